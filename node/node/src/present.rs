// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the part of a policy whose devices are there. The rest waits for its devices: guests
//! start, restart and move while the node runs.

use std::collections::{BTreeMap, BTreeSet};

use weir_policy::{Kind, Policy, PortId};

/// The present devices: their names in the policy, with their numbers in the kernel.
pub(crate) type PresentDevices = BTreeMap<String, u32>;

/// Finds the devices of `policy` that others make and that `number` knows.
pub(crate) fn there(policy: &Policy, number: impl Fn(&str) -> Option<u32>) -> PresentDevices {
    let ports = policy.ports.iter().map(|port| (&port.device, port.kind));
    let vifs = policy.vifs.iter().map(|vif| (&vif.device, vif.kind));
    let waited_for = ports.chain(vifs).filter(|(_, kind)| is_waited_for(*kind));
    waited_for.filter_map(|(device, _)| Some((device.clone(), number(device)?))).collect()
}

/// Returns the policy without ports whose device is not among `devices`, without the vifs on those
/// ports, and without vifs whose own device is missing.
pub(crate) fn part(policy: &Policy, devices: &PresentDevices) -> Policy {
    let is_there = |device: &str, kind| !is_waited_for(kind) || devices.contains_key(device);
    let mut part = policy.clone();
    let mut moved = vec![None; policy.ports.len()];
    part.ports.clear();
    for (moved, port) in moved.iter_mut().zip(&policy.ports) {
        if is_there(&port.device, port.kind) {
            *moved = Some(part.add_port(port.clone()));
        }
    }
    let to = |port: PortId| moved.get(port.0 as usize).copied().flatten();
    part.vifs.retain_mut(|vif| {
        let port = to(vif.port).filter(|_| is_there(&vif.device, vif.kind));
        vif.port = port.unwrap_or(vif.port);
        port.is_some()
    });
    part
}

/// Returns the part of a policy with which a node starts, and its devices. If no port is there, it
/// returns the whole policy, so that the start fails at the missing device.
pub(crate) fn on_host(
    policy: &Policy,
    number: impl Fn(&str) -> Option<u32>,
) -> (Policy, PresentDevices) {
    let devices = there(policy, number);
    let part = part(policy, &devices);
    if part.ports.is_empty() { (policy.clone(), devices) } else { (part, devices) }
}

/// Lists the ports and vifs of `policy` that are not in `part` of it.
pub(crate) fn waiting(policy: &Policy, part: &Policy) -> BTreeSet<String> {
    let names = |policy: &Policy| -> BTreeSet<String> {
        let ports = policy.ports.iter().map(|port| format!("port {}", port.name));
        ports.chain(policy.vifs.iter().map(|vif| format!("vif {}", vif.name))).collect()
    };
    names(policy).difference(&names(part)).cloned().collect()
}

/// Returns true if others make devices of this kind. The node makes all other devices itself.
const fn is_waited_for(kind: Kind) -> bool {
    matches!(kind, Kind::Auto | Kind::Xdp | Kind::Packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Port, Slice, Vif};
    use weir_units::BitRate;

    #[test]
    fn what_has_no_device_is_left_out_and_its_vifs_with_it() {
        let mut policy = Policy::new("edge");
        let ports =
            ["up0", "up1"].map(|name| policy.add_port(Port::new(name, BitRate::from_mbps(100))));
        let slice = policy.add_slice(Slice::new("gold"));
        for (name, port) in [("a", ports[0]), ("b", ports[1]), ("c", ports[1])] {
            policy.add_vif(Vif::new(name, slice, port));
        }
        policy.add_vif(Vif { kind: Kind::Tap, ..Vif::new("t", slice, ports[1]) });
        let all = there(&policy, |name| Some(u32::from(name.as_bytes()[0])));
        assert_eq!(all.len(), 5, "the TAP device is the node's own");
        assert_eq!(part(&policy, &all), policy);
        let some = |names: &[&str]| {
            part(&policy, &there(&policy, |name| names.contains(&name).then_some(1)))
        };
        let names = |policy: &Policy| -> Vec<String> {
            policy
                .vifs
                .iter()
                .map(|vif| format!("{}@{}", vif.name, policy[vif.port].name))
                .collect()
        };
        assert_eq!(names(&some(&["up1", "a", "b"])), ["b@up1", "t@up1"]);
        assert_eq!(names(&some(&["up0", "up1", "c"])), ["c@up1", "t@up1"]);
        assert_eq!(names(&some(&["up0", "a", "b"])), ["a@up0"]);
        let waits = waiting(&policy, &some(&["up0", "a"]));
        assert_eq!(waits.into_iter().collect::<Vec<_>>(), ["port up1", "vif b", "vif c", "vif t"]);
    }
}
