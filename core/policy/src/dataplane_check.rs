// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys that only one data plane has.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::dataplane::Dataplane;
use crate::finding::Finding;
use crate::format::quoted;
use crate::model::{Kind, Policy, Port};
use crate::share::Direction;

/// Adds the problems of keys that the policy's data plane does not have.
pub(crate) fn check(policy: &Policy, findings: &mut Vec<Finding>) {
    match policy.node.dataplane {
        Dataplane::Switch => check_switch(policy, findings),
        Dataplane::Kernel => check_kernel(policy, findings),
    }
}

fn check_switch(policy: &Policy, findings: &mut Vec<Finding>) {
    for (index, _) in policy.ports.iter().enumerate().filter(|(_, port)| port.bridge.is_some()) {
        let message = "needs node.dataplane = \"kernel\": the switch is a bridge itself";
        findings.push(Finding::new("port", index, "bridge", message));
    }
    for (index, _) in policy.ports.iter().enumerate().filter(|(_, port)| !port.rules.is_empty()) {
        let message = "needs node.dataplane = \"kernel\", where guests' devices stay on a bridge";
        findings.push(Finding::new("port", index, "rule", message));
    }
    let has_ring = |port: &Port| matches!(port.kind, Kind::Auto | Kind::Xdp);
    let sized = |port: &Port| port.receive_ring != Port::RECEIVE_RING_DEFAULT;
    let ports = policy.ports.iter().enumerate();
    for (index, _) in ports.filter(|(_, port)| sized(port) && !has_ring(port)) {
        let message = "is for ports of kind \"auto\" or \"xdp\": others have no ring";
        findings.push(Finding::new("port", index, "receive_ring", message));
    }
    for (index, port) in policy.ports.iter().enumerate() {
        let given = |direction: &Direction| port.host_share(*direction).is_some();
        for direction in Direction::ALL.into_iter().filter(given) {
            let message = "needs node.dataplane = \"kernel\": on the switch the host has a vif of \
                           kind \"host\"";
            let key = format!("host_{}", direction.name());
            findings.push(Finding::new("port", index, key, message));
        }
    }
}

fn check_kernel(policy: &Policy, findings: &mut Vec<Finding>) {
    let mut bridges = BTreeMap::new();
    for (index, port) in policy.ports.iter().enumerate() {
        let Some(bridge) = &port.bridge else {
            let message = "is missing: node.dataplane = \"kernel\" needs the bridge of the port";
            findings.push(Finding::new("port", index, "bridge", message));
            continue;
        };
        if port.receive_ring != Port::RECEIVE_RING_DEFAULT {
            let message =
                "is for the switch: node.dataplane = \"kernel\" leaves devices to the kernel";
            findings.push(Finding::new("port", index, "receive_ring", message));
        }
        if let Some(first) = bridges.insert(bridge, &port.name) {
            let message = format!("is that of port {} already", quoted(first));
            findings.push(Finding::new("port", index, "bridge", message));
        }
    }
    let ports = policy.ports.iter().map(|port| port.kind).enumerate();
    let vifs = policy.vifs.iter().map(|vif| vif.kind).enumerate();
    let kinds = ports.map(|at| ("port", at)).chain(vifs.map(|at| ("vif", at)));
    for (table, (index, _)) in kinds.filter(|(_, (_, kind))| *kind != Kind::Auto) {
        let message = "must be \"auto\": node.dataplane = \"kernel\" leaves devices to the kernel";
        findings.push(Finding::new(table, index, "kind", message));
    }
}
