// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's functions on a full kernel: routers whose links are VLANs of 8021q and whose
//! tunnels are devices of `ip6tnl` (`lab/kernel-guest/run.sh FOLDER PROGRAMS em.14`).
//!
//! All routers are namespaces of one kernel, with an SSH server each.

use weir_experiment::prelude::*;

use super::broker_lab::BrokerLab;
use super::comparison;
use super::{crash, drift, linux_hosts, tables};

/// Shows the row, or says what this kernel lacks for it.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let Some(lab) = BrokerLab::on_vlans(&comparison::link_rate(rec), "10s")? else {
        let lacks = "this kernel has no 8021q or no ip6tnl";
        comparison::skipped(rec, "VLANs and tunnel devices", lacks);
        return Ok(());
    };
    let broker = lab.broker()?;
    rec.within("connections/", |rec| comparison::show_connections(rec, &lab))?;
    broker.terminate();
    lab.down()?;
    for (name, check, show) in [
        ("drift/", "1s", drift_in as fn(&mut Recording<'_>, BrokerLab) -> Result),
        ("restart/", "10s", crash::show_in),
        ("mtu/", "10s", mtu_in),
    ] {
        // The kernel had it before.
        if let Some(lab) = BrokerLab::on_vlans("100Mbit", check)? {
            rec.within(name, |rec| show(rec, lab))?;
        }
    }
    rec.within("hosts/", linux_hosts::show)
}

/// An emulated processor takes seconds for a comparison.
fn drift_in(rec: &mut Recording<'_>, lab: BrokerLab) -> Result {
    drift::show_in(rec, lab, 10.0)
}

fn mtu_in(rec: &mut Recording<'_>, lab: BrokerLab) -> Result {
    let broker = lab.broker()?;
    tables::mtu(&lab, rec)?;
    broker.terminate();
    lab.down()
}
