// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's functions on a full kernel: routers whose links are VLANs of 8021q
//! (`lab/kernel-guest/run.sh FOLDER PROGRAMS em.14`).
//!
//! All routers are namespaces of one kernel, with an SSH server each. Tunnels are the broker's own
//! as everywhere: IPv6 in IPv6 by segment routing, which that kernel has, too.

use weir_experiment::prelude::*;

use super::broker_lab::BrokerLab;
use super::comparison;
use super::{crash, drift, tables};

/// Shows the row, or says what this kernel lacks for it.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let Some(lab) = BrokerLab::on_vlans(&comparison::link_rate(rec), "10s")? else {
        comparison::skipped(rec, "links that are VLANs", "this kernel has no 8021q");
        return Ok(());
    };
    let broker = lab.broker()?;
    rec.within("connections/", |rec| comparison::show_connections(rec, &lab))?;
    tables::mtu(&lab, rec)?;
    broker.terminate();
    lab.down()?;
    for (name, show) in [
        ("drift/", drift::show_in as fn(&mut Recording<'_>, BrokerLab) -> Result),
        ("restart/", crash::show_in),
    ] {
        // The kernel had it before.
        if let Some(lab) = BrokerLab::on_vlans("100Mbit", "1s")? {
            rec.within(name, |rec| show(rec, lab))?;
        }
    }
    Ok(())
}
