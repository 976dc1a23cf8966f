// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a host without Weir has: the kernel's bridge, and an HTB class for each tenant at the
//! uplink.

use weir_experiment::UPLINK;
use weir_experiment::{ExperimentError, Forwarder, StarTopology, Testbed};
use weir_platform::run::Command;
use weir_units::BitRate;

use crate::conformance::intent::{Intent, Limits};
use crate::conformance::plane::{Ability, DataPlane};

/// Bridge and HTB. A frame's class is its source address (u32).
#[derive(Clone, Copy, Debug)]
pub struct Htb;

impl DataPlane for Htb {
    fn name(&self) -> &'static str {
        "htb"
    }

    fn about(&self) -> &'static str {
        "the kernel's bridge with an HTB class for each tenant: what a host has without Weir"
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::PacketRate => Some("HTB counts bytes only"),
            Ability::Delay => Some("an HTB class has no delay bound"),
            Ability::NeighbourMaximum => Some("what tenants send each other passes no class"),
            _ => None,
        }
    }

    fn start(&mut self, rig: &mut Testbed, intent: &Intent) -> Result<(), ExperimentError> {
        rig.put(&Forwarder::Bridge)?;
        tc(rig, uplink(rig.star(), intent, "add"))
    }

    fn change(&mut self, rig: &Testbed, intent: &Intent) -> Result<(), ExperimentError> {
        tc(rig, uplink(rig.star(), intent, "change"))
    }

    fn stop(&mut self, _rig: &mut Testbed) -> Result<(), ExperimentError> {
        Ok(())
    }
}

/// The classes at the uplink: below one of the link's rate, one for each tenant.
fn uplink(star: &StarTopology, intent: &Intent, verb: &str) -> Vec<String> {
    let link = intent.link.as_bps();
    let mut lines = Vec::new();
    if verb == "add" {
        // The lab's own discipline has the same handle.
        lines.push(format!("qdisc del dev {UPLINK} root"));
        lines.push(format!("qdisc add dev {UPLINK} root handle 1: htb"));
    }
    lines.push(format!(
        "class {verb} dev {UPLINK} parent 1: classid 1:1 htb rate {link}bit ceil {link}bit"
    ));
    for (index, tenant) in intent.tenants.iter().enumerate().take(star.tenants.len()) {
        let class = format!("1:{:x}", FIRST_CLASS + index);
        let terms = terms(&tenant.send, intent.link);
        let line = format!("class {verb} dev {UPLINK} parent 1:1 classid {class} htb {terms}");
        lines.push(line);
        if verb == "add" {
            lines.push(format!("qdisc add dev {UPLINK} parent {class} pfifo limit {QUEUE}"));
            let source = StarTopology::address(index);
            lines.push(format!(
                "filter add dev {UPLINK} parent 1: protocol ip prio 1 \
                 u32 match ip src {source}/32 flowid {class}"
            ));
        }
    }
    lines
}

/// A class's rate is what it has in any case, its ceiling what it may borrow up to; what is left is
/// lent in rounds of its quantum.
fn terms(limits: &Limits, link: BitRate) -> String {
    let ceiling = limits.rate.unwrap_or(link).as_bps().min(link.as_bps());
    let rate = limits.min_rate.as_bps().clamp(LEAST_RATE_BPS, ceiling);
    let quantum = u64::from(limits.weight).saturating_mul(QUANTUM_BYTES).min(QUANTUM_MAX);
    let burst = limits.burst().get();
    format!("rate {rate}bit ceil {ceiling}bit burst {burst} cburst {burst} quantum {quantum}")
}

fn tc(rig: &Testbed, lines: Vec<String>) -> Result<(), ExperimentError> {
    rig.ask("sw", Command::batch("tc", lines)).map(drop)
}

const FIRST_CLASS: usize = 0x10;

/// As many packets as wait at a device by default (`txqueuelen`).
const QUEUE: u32 = 1000;

/// A class without a minimum has a rate all the same.
const LEAST_RATE_BPS: u64 = 8_000;

/// A frame of the suite; the kernel warns below its MTU and above 200 000.
const QUANTUM_BYTES: u64 = 1_514;
const QUANTUM_MAX: u64 = 200_000;
