// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's table of stations: where frames for an address go.
//!
//! A station is a MAC address in a VLAN of a port's bridge. The policy *gives* the stations of
//! vifs: their frames go to the vif's gate in user space, or straight to its device if it receives
//! by a redirected path. Stations behind a port are *learned* from the switch's bridge, in those
//! VLANs in which somebody sends by a redirected path; frames for an address that is not in the
//! table go through user space.
//!
//! The table is changed in two steps, since order must be kept: the caller has to take all senders
//! off their paths after the first step ([`Stations::remove_others`], [`Stations::unlearn`]) and
//! before the second ([`Stations::set`], [`Stations::learn`]), which brings new routes.

use std::collections::{BTreeMap, BTreeSet};

use weir_policy::{FiveTuple, Policy, Port, PortId};
use weir_ports::{BridgeMember, GateId, PortError, Route, XdpPlane, XdpPort};
use weir_switch::Switch;
use weir_units::{Instant, Nanos};

use crate::device::{AttachedDevice, xdp_port};
use crate::kernel_path::KernelPath;

/// An address in a VLAN (0: untagged) of a port's bridge, which the kernel knows by the index of
/// the port's device. The index stays the same whatever the port's position in the policy.
pub(crate) type Station = (u32, u16, [u8; 6]);

/// A bridge of a port: the index of the port's device, and the VLAN or the parallel internet.
type Bridge = (u32, u16);

/// The stations that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Stations {
    given: BTreeMap<Station, Destination>,
    learned: BTreeSet<Station>,
    /// The destination of learned stations, for each port and VLAN in which a vif sends by a
    /// redirected path.
    learnable: BTreeMap<Bridge, Destination>,
    /// The vifs that group frames reach while no worker runs.
    members: BTreeMap<Bridge, Vec<BridgeMember>>,
    /// The five-tuples in force; `None` before the first policy.
    five_tuples: Option<Vec<(u16, FiveTuple)>>,
    /// The slices that have five-tuples, by the numbers of their bridges.
    owners: BTreeMap<u16, String>,
    /// True if the table had no room for another station at the last attempt.
    full: bool,
}

/// The stations that a policy gives, and where others are to be learned.
#[derive(Debug)]
pub(crate) struct GivenStations {
    stations: BTreeMap<Station, Destination>,
    learnable: BTreeMap<Bridge, Destination>,
    members: BTreeMap<Bridge, Vec<BridgeMember>>,
    /// Five-tuples that classify frames without a header (VLAN or number), each with the number of
    /// its bridge.
    five_tuples: Vec<(u16, FiveTuple)>,
    /// The slices that have five-tuples, by the numbers of their bridges.
    owners: BTreeMap<u16, String>,
}

/// The destination of frames for a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// To user space, through this gate; while no worker runs, to this device of this slice.
    Gate(GateId, Option<(u32, u32)>),
    /// To this route, if both ends have a redirected path.
    Route(Route),
}

impl GivenStations {
    /// Derives them from a policy, the paths of its vifs (send, receive) and their gates.
    pub(crate) fn of(
        policy: &Policy,
        attached: &[AttachedDevice],
        paths: &BTreeMap<GateId, KernelPath>,
        gates: &[[GateId; 2]],
    ) -> Self {
        let (mut stations, mut learnable) = (BTreeMap::new(), BTreeMap::new());
        let mut members: BTreeMap<Bridge, Vec<BridgeMember>> = BTreeMap::new();
        let has_five_tuples = policy.five_tuples().next().is_some();
        for ((id, vif), [from, gate]) in policy.vifs().zip(gates.iter().copied()) {
            let Some(port) = xdp_port(attached, vif.port.0 as usize) else { continue };
            let (Some(send), Some(receive)) = (paths.get(&from), paths.get(&gate)) else {
                continue;
            };
            let number = policy.bridge_of(vif.port, vif.slice);
            let is_untagged = number == 0 || Port::is_by_five_tuple(number);
            // ARP and neighbour discovery are for all slices without a header.
            let shared = (has_five_tuples && is_untagged).then_some(Port::UNTAGGED);
            let numbers = || [Some(number), shared].into_iter().flatten();
            let (bridge, slice) = (port.device_index(), vif.slice.0);
            let device = xdp_port(attached, policy.ports.len() + id.0 as usize);
            let device = device.map(XdpPort::device_index);
            if let Some(device) = device.filter(|_| receive.stand_in.is_some()) {
                let member = BridgeMember { gate, device, slice };
                for number in numbers() {
                    members.entry((bridge, number)).or_default().push(member);
                }
            }
            let destination = match device.filter(|_| receive.redirect.is_some()) {
                Some(device) => Destination::Route(Route::Vif { gate, device, slice }),
                None => {
                    let stand_in = device.filter(|_| receive.stand_in.is_some());
                    Destination::Gate(gate, stand_in.map(|device| (device, slice)))
                }
            };
            for number in numbers() {
                stations.extend(vif.macs.iter().map(|mac| ((bridge, number, mac.0), destination)));
            }
            if send.redirect.is_some() && port.takes_redirects() {
                let remote = Route::Remote { device: bridge, slice };
                learnable.insert((bridge, number), Destination::Route(remote));
            }
        }
        let five_tuples = policy.five_tuples().map(|(bridge, tuple)| (bridge, *tuple)).collect();
        let owners = policy.by_five_tuple().map(|(number, _, slice)| (number, slice.name.clone()));
        let owners = owners.collect();
        Self { stations, learnable, members, five_tuples, owners }
    }
}

impl Stations {
    /// Removes the stations that are not among `new`. Returns true if `new` has routes that are not
    /// in the table yet.
    pub(crate) fn remove_others(&mut self, new: &GivenStations, plane: &mut XdpPlane) -> bool {
        if new.learnable != self.learnable {
            for station in std::mem::take(&mut self.learned) {
                remove(station, plane);
            }
        }
        let stays = |station: &Station| {
            new.stations.contains_key(station) && !has_new_owner(&self.owners, new, station.1)
        };
        for station in self.given.keys().filter(|station| !stays(station)) {
            remove(*station, plane);
        }
        self.given.retain(|station, _| stays(station));
        let is_new = |(station, destination): (&Station, &Destination)| {
            matches!(destination, Destination::Route(_))
                && self.given.get(station) != Some(destination)
        };
        new.stations.iter().any(is_new)
    }

    /// Brings the table to `new`, after [`Self::remove_others`].
    ///
    /// # Errors
    /// The table is full.
    pub(crate) fn set(
        &mut self,
        new: GivenStations,
        plane: &mut XdpPlane,
    ) -> Result<(), PortError> {
        let mut numbers = new.owners.keys();
        let begins = self.five_tuples.is_none()
            || numbers.any(|number| has_new_owner(&self.owners, &new, *number));
        if begins {
            plane.begin_five_tuples()?;
        }
        self.learnable = new.learnable;
        self.set_members(new.members, plane)?;
        let old = std::mem::take(&mut self.given);
        for (station, destination) in new.stations {
            if old.get(&station) != Some(&destination) {
                set(station, destination, plane)?;
            }
            self.learned.remove(&station);
            self.given.insert(station, destination);
        }
        // From here every classified frame finds only its own slice's stations.
        if begins || self.five_tuples.as_ref() != Some(&new.five_tuples) {
            let each = new.five_tuples.iter().map(|(bridge, tuple)| (*bridge, tuple));
            plane.set_five_tuples(each)?;
            self.five_tuples = Some(new.five_tuples);
        }
        self.owners = new.owners;
        Ok(())
    }

    /// Brings the members of all bridges to `new`.
    fn set_members(
        &mut self,
        new: BTreeMap<Bridge, Vec<BridgeMember>>,
        plane: &mut XdpPlane,
    ) -> Result<(), PortError> {
        let none = Vec::new();
        let mut changed: BTreeSet<Bridge> =
            self.members.keys().chain(new.keys()).copied().collect();
        changed.retain(|bridge| self.members.get(bridge) != new.get(bridge));
        let size = |of: Option<&Vec<_>>| of.map_or(0, Vec::len);
        let grows = |bridge: &Bridge| size(new.get(bridge)) > size(self.members.get(bridge));
        if self.members.is_empty() {
            plane.sweep_members(|bridge, number| new.contains_key(&(bridge, number)));
        }
        // Shrink first: the table has room for all vifs, and a growing bridge may need what a
        // shrinking one leaves.
        let (growing, others): (Vec<_>, Vec<_>) = changed.into_iter().partition(grows);
        for bridge in others.into_iter().chain(growing) {
            let members = new.get(&bridge).unwrap_or(&none);
            plane.set_members(bridge.0, bridge.1, members)?;
            self.members.insert(bridge, members.clone());
        }
        self.members = new;
        Ok(())
    }

    /// Removes learned stations that the switch's bridge has forgotten, and returns those that it
    /// has learned since: none while the table has no room.
    pub(crate) fn unlearn(
        &mut self,
        switch: &Switch,
        attached: &[AttachedDevice],
        plane: &mut XdpPlane,
    ) -> Vec<Station> {
        let mut known = BTreeSet::new();
        for (port, vlan, mac, iface, fixed) in switch.addresses() {
            let [_, _, mac @ ..] = mac.to_be_bytes();
            let bridge = xdp_port(attached, port.0 as usize).map(XdpPort::device_index);
            let Some(bridge) = bridge.filter(|_| iface == switch.port_iface(port)) else {
                continue;
            };
            let station = (bridge, vlan, mac);
            let here = self.learnable.contains_key(&(bridge, vlan));
            if here && !fixed && !self.given.contains_key(&station) {
                known.insert(station);
            }
        }
        let gone: Vec<_> = self.learned.difference(&known).copied().collect();
        for station in &gone {
            remove(*station, plane);
            self.learned.remove(station);
        }
        self.full &= gone.is_empty();
        if self.full {
            return Vec::new();
        }
        known.difference(&self.learned).copied().collect()
    }

    /// Adds learned stations. Frames for stations that do not fit go through user space. These are
    /// not tried again before there is room, since each try takes all senders off their paths.
    pub(crate) fn learn(&mut self, new: Vec<Station>, plane: &mut XdpPlane) {
        for station in new {
            let Some(destination) = self.learnable.get(&(station.0, station.1)) else { continue };
            if set(station, *destination, plane).is_err() {
                self.full = true;
                return;
            }
            self.learned.insert(station);
        }
    }

    /// Assumes room in the table again, since the policy has changed.
    pub(crate) fn try_again(&mut self) {
        self.full = false;
    }

    /// Tells the switch's bridge which learned addresses are in use: it does not see their frames.
    pub(crate) fn keep_used(
        &self,
        now: Instant,
        switch: &mut Switch,
        attached: &[AttachedDevice],
        plane: &XdpPlane,
    ) {
        let ports = attached.iter().take_while(|attached| attached.vif.is_none());
        let bridges = ports.map(AttachedDevice::device_index).zip((0..).map(PortId));
        let bridges: BTreeMap<_, _> = bridges.collect();
        for (bridge, vlan, mac) in &self.learned {
            let Some(port) = bridges.get(&Some(*bridge)) else { continue };
            let used = plane.route_used(*bridge, *vlan, *mac);
            if used.is_some_and(|used| now.saturating_since(used) < RECENT_USE) {
                let [a, b, c, d, e, f] = *mac;
                let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
                switch.keep_address(now, *port, *vlan, mac);
            }
        }
    }

    /// Removes from the kernel the stations that an earlier process left and this table lacks.
    pub(crate) fn sweep(&self, plane: &mut XdpPlane) {
        plane.sweep(|device, vlan, mac| self.given.contains_key(&(device, vlan, mac)));
    }

    /// Removes the stations of a port whose device leaves.
    pub(crate) fn detach(&mut self, bridge: u32, plane: &mut XdpPlane) {
        let here = |station: &&Station| station.0 == bridge;
        for station in self.given.keys().chain(&self.learned).filter(here) {
            remove(*station, plane);
        }
        self.given.retain(|station, _| station.0 != bridge);
        self.learned.retain(|station| station.0 != bridge);
        self.learnable.retain(|place, _| place.0 != bridge);
        for ((_, number), _) in self.members.range((bridge, 0)..=(bridge, u16::MAX)) {
            // Removing members takes no room, so this does not fail.
            let _gone = plane.set_members(bridge, *number, &[]);
        }
        self.members.retain(|place, _| place.0 != bridge);
    }
}

/// Returns true if the number of a bridge belonged to another slice before.
fn has_new_owner(owners: &BTreeMap<u16, String>, new: &GivenStations, number: u16) -> bool {
    match (owners.get(&number), new.owners.get(&number)) {
        (Some(before), Some(now)) => before != now,
        _ => false,
    }
}

fn set(
    (bridge, vlan, mac): Station,
    destination: Destination,
    plane: &mut XdpPlane,
) -> Result<(), PortError> {
    match destination {
        Destination::Gate(gate, stand_in) => plane.set_station(bridge, vlan, mac, gate, stand_in),
        Destination::Route(route) => plane.set_route(bridge, vlan, mac, route),
    }
}

fn remove((bridge, vlan, mac): Station, plane: &mut XdpPlane) {
    plane.remove_station(bridge, vlan, mac);
}

/// An address that was used this recently stays in the bridge. The time is longer than the interval
/// at which it is checked, so that a late check does not matter.
const RECENT_USE: Nanos = Nanos::from_secs(20);
