// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that went wrong under a data plane in force, each a fault of its own.
//!
//! A device may be given a discipline by others, or refuse a step of a plan. Its port or vif then
//! has what is left: without a tree, the programs still limit and isolate. The plans of all others
//! go on.

use alloc::format;
use alloc::vec::Vec;

use weir_policy::{Policy, Port};

use crate::facts::HostFacts;
use crate::held::KernelProblem;
use crate::inbound::inbound_name;

/// Returns the faults of a policy's devices, those of the `ports` that do not wait first. An
/// ingress discipline that is in the way, and one of others at a vif's device, are said among the
/// keys that are not held.
pub(crate) fn faults<'p>(
    policy: &Policy,
    facts: &HostFacts,
    ports: impl Iterator<Item = &'p Port>,
) -> Vec<KernelProblem> {
    let mut list = Vec::new();
    for port in ports {
        let place = format!("port {:?}.device", port.name);
        if let Some(reason) = facts.programs_obstacle(&port.device) {
            let lacks = "until then the port has neither programs nor a tree";
            list.push(KernelProblem::new(place, format!("{reason}; {lacks}")));
        } else if let Some(reason) = facts.tree_obstacle(&port.device) {
            let lacks = "until then no tree shares the port's link";
            list.push(KernelProblem::new(place, format!("{reason}; {lacks}")));
        }
        if let Some(fault) = facts.faults.get(&inbound_name(facts, port)) {
            let lacks = "until then no tree shares what the port brings";
            let place = format!("port {:?}.receive", port.name);
            list.push(KernelProblem::new(place, format!("{}; {lacks}", fault.reason)));
        }
    }
    list.extend(policy.vifs.iter().filter_map(|vif| {
        let fault = facts.faults.get(&vif.device)?;
        let lacks = match fault.has_programs {
            true => "until then what it receives is limited by dropping, without a queue",
            false => "until then it is neither limited nor isolated",
        };
        let place = format!("vif {:?}.device", vif.name);
        Some(KernelProblem::new(place, format!("{}; {lacks}", fault.reason)))
    }));
    list
}
