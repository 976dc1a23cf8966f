// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds for each interface of a policy the opened device that belongs to it.
//!
//! A device is known by its own name and role, whatever the vif or port on it is called: a vif that
//! is renamed keeps its device, and with it its gates and its queue. [`Placement::find`] maps the
//! interfaces of a policy to devices, [`Placement::arrange`] puts the devices in that order, and
//! [`Placement::reversed`] undoes this, for a policy that is refused afterwards.

use std::collections::BTreeMap;

use weir_policy::{Policy, VifId};
use weir_ports::PortError;

use crate::device::{AttachedDevice, id_of};

/// For each interface of a policy (ports, then vifs), the position of its device among those in
/// use, followed by those newly opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement(Vec<usize>);

impl Placement {
    /// Finds the device of each interface of `policy`.
    ///
    /// # Errors
    /// A device of the policy is neither in use nor opened.
    pub(crate) fn find(
        policy: &Policy,
        in_use: &[AttachedDevice],
        opened: &[AttachedDevice],
    ) -> Result<Self, PortError> {
        let ports = policy.ports.iter().map(|port| (&port.device, port.kind, true));
        let vifs = policy.vifs.iter().map(|vif| (&vif.device, vif.kind, false));
        let mut known = BTreeMap::new();
        for (at, attached) in in_use.iter().chain(opened).enumerate() {
            known.entry(attached.device.as_str()).or_insert((at, attached));
        }
        let place = |(device, kind, is_port): (&String, _, bool)| {
            let found = known.get(device.as_str());
            let found = found.filter(|(_, one)| one.matches(device, kind, is_port));
            let missing = || PortError::bound(device, "is not open".to_owned());
            found.map(|(at, _)| *at).ok_or_else(missing)
        };
        ports.chain(vifs).map(place).collect::<Result<_, _>>().map(Self)
    }

    /// Puts each device in its place, numbered and named as in `policy`. Returns the devices with a
    /// place, and those without one.
    pub(crate) fn arrange(
        &self,
        all: Vec<AttachedDevice>,
        policy: &Policy,
    ) -> (Vec<AttachedDevice>, Vec<AttachedDevice>) {
        let mut all: Vec<Option<AttachedDevice>> = all.into_iter().map(Some).collect();
        let mut placed = Vec::with_capacity(self.0.len());
        let names = policy.ports.iter().map(|port| &port.name);
        let names = names.chain(policy.vifs.iter().map(|vif| &vif.name));
        for ((place, at), name) in (0u32..).zip(&self.0).zip(names) {
            let Some(mut attached) = all.get_mut(*at).and_then(Option::take) else { continue };
            attached.vif = place.checked_sub(id_of(policy.ports.len())).map(VifId);
            attached.name.clone_from(name);
            placed.push(attached);
        }
        (placed, all.into_iter().flatten().collect())
    }

    /// Returns the placement that undoes [`Self::arrange`] where `in_use` and `opened` devices were
    /// there: those in use get their old places again, those opened get none.
    pub(crate) fn reversed(&self, in_use: usize, opened: usize) -> Self {
        let mut now = vec![None; in_use + opened];
        for (place, before) in self.0.iter().enumerate() {
            if let Some(now) = now.get_mut(*before) {
                *now = Some(place);
            }
        }
        // Devices without a place follow behind, in their order.
        let mut next = self.0.len();
        let mut behind = || {
            next += 1;
            next - 1
        };
        let all: Vec<usize> = now.into_iter().map(|at| at.unwrap_or_else(&mut behind)).collect();
        Self(all.into_iter().take(in_use).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Kind, Port, PortId, Slice, Vif};
    use weir_ports::{AnyPort, GateId, MemoryPort};
    use weir_switch::IfaceId;
    use weir_units::BitRate;

    use crate::device::DeviceGates;

    /// A device in memory; its gates tell it from others.
    fn device(name: &str, gates: DeviceGates) -> AttachedDevice {
        let port = AnyPort::Memory(MemoryPort::pair([name, "other"], 1).0);
        AttachedDevice {
            name: String::new(),
            iface: IfaceId(u32::MAX),
            vif: None,
            device: name.to_owned(),
            kind: Kind::Memory,
            port,
            driver: String::new(),
            fallback: None,
            gates,
            flush_again: false,
            in_flight_max: None,
            held: 0,
            holds_back: false,
        }
    }

    fn vif(name: &str, place: u32) -> AttachedDevice {
        device(name, DeviceGates::Vif([GateId(2 * place), GateId(2 * place + 1)]))
    }

    fn policy(vifs: &[&str]) -> Policy {
        let mut policy = Policy::new("edge");
        let mut port = Port::new("up0", BitRate::from_mbps(100));
        port.kind = Kind::Memory;
        policy.add_port(port);
        let slice = policy.add_slice(Slice::new("gold"));
        for name in vifs {
            let mut vif = Vif::new(name, slice, PortId(0));
            vif.kind = Kind::Memory;
            policy.add_vif(vif);
        }
        policy
    }

    fn names(of: &[AttachedDevice]) -> Vec<&str> {
        of.iter().map(|attached| attached.device.as_str()).collect()
    }

    /// One vif leaves, one comes in front: what stays keeps its gates, and the reversed placement
    /// leads back.
    #[test]
    fn devices_keep_their_gates_and_find_the_way_back() {
        let (old, new) = (policy(&["a", "b", "c"]), policy(&["d", "c", "a"]));
        let up = device("up0", DeviceGates::Port(GateId(99)));
        let in_use = vec![up, vif("a", 0), vif("b", 1), vif("c", 2)];
        let opened = vec![vif("d", 3)];
        let placement = Placement::find(&new, &in_use, &opened).unwrap();
        let back = placement.reversed(in_use.len(), opened.len());
        let (placed, left) = placement.arrange(in_use.into_iter().chain(opened).collect(), &new);
        assert_eq!((names(&placed), names(&left)), (vec!["up0", "d", "c", "a"], vec!["b"]));
        assert_eq!(placed[3].gates, DeviceGates::Vif([GateId(0), GateId(1)]));
        assert_eq!(placed[3].vif, Some(VifId(2)));
        let (placed, left) = back.arrange(placed.into_iter().chain(left).collect(), &old);
        assert_eq!((names(&placed), names(&left)), (vec!["up0", "a", "b", "c"], vec!["d"]));
    }

    #[test]
    fn a_device_that_nobody_opened_is_named() {
        let in_use = [device("up0", DeviceGates::Port(GateId(9))), vif("a", 0)];
        let missing = Placement::find(&policy(&["a", "x"]), &in_use, &[]).unwrap_err();
        assert_eq!(missing.to_string(), "x: is not open");
        let role = [
            device("up0", DeviceGates::Port(GateId(9))),
            device("a", DeviceGates::Port(GateId(8))),
        ];
        assert!(Placement::find(&policy(&["a"]), &role, &[]).is_err(), "a port is no vif");
    }
}
