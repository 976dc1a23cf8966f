// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redirected paths of a running node: kept as the policy says, engaged when nothing of them
//! is in user space, counted like everything else.
//!
//! Beside them a vif and direction may have a path that stands in while no worker is here, since
//! the node restarts or was killed: it polices at the limits, and holds no minimum.
//!
//! Order is kept by one rule: whenever a receiver or a route appears, every sender leaves its path
//! and comes back when the frames that it has in user space are gone.

use std::collections::{BTreeMap, BTreeSet};

use weir_policy::{Policy, PortId, VifId};
use weir_ports::{AnyPort, DataPlane, GateId, PortError, RedirectCounters, Route, XdpPort};
use weir_switch::{Direction, IfaceId, Reason, Switch, Tally};
use weir_units::{Instant, Nanos};

use crate::places::Moved;
use crate::ports::{Attached, Entry};
use crate::redirect::choices;
use crate::ways::{Way, Ways};

/// What is set in the data plane, and what of its counts the switch knows.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Of each vif.
    gates: Vec<[GateId; 2]>,
    set: Vec<[Way; 2]>,
    ways: Ways,
    stations: BTreeMap<Station, Target>,
    /// Learned behind ports, of these places only.
    remotes: BTreeSet<Station>,
    /// The table had no room for another when it was tried last.
    full: bool,
    places: BTreeMap<(PortId, u16), Target>,
    reported: Vec<[Reported; 2]>,
    /// Vifs that are not redirected for now: somebody captures them.
    captured: BTreeSet<VifId>,
    any: bool,
    /// A policy has been followed, so that what is in the data plane is known.
    followed: bool,
    since: Instant,
    next_learn: Instant,
    next_keep: Instant,
}

/// An address in a VLAN (0: untagged) of a port's bridge.
type Station = (PortId, u16, [u8; 6]);

/// Where frames for a station go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// To user space, by that gate; without a worker to that device of a slice.
    Gate(GateId, Option<(u32, u32)>),
    /// There, if both paths are engaged.
    Route(Route),
}

#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    counters: RedirectCounters,
    /// Of the redirected ones, by the port.
    wire: Tally,
}

impl Paths {
    /// Brings the data plane to what `policy` says.
    ///
    /// # Errors
    /// A table is full; nothing is redirected then.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        policy: &Policy,
        attached: &[Attached],
        plane: &mut DataPlane,
    ) -> Result<(), PortError> {
        self.gates = attached.iter().filter_map(|attached| attached.gate.of_vif()).collect();
        let followed = self
            .follow_paths(policy, attached, plane)
            .and_then(|switched| Ok(self.follow_stations(policy, attached, plane)? || switched));
        match followed {
            Ok(true) => self.start(now, plane),
            Ok(false) => {}
            Err(_) => self.stop(plane),
        }
        if !self.followed {
            self.followed = true;
            let bridge = |port: PortId| xdp(attached, port.0 as usize).map(XdpPort::device_index);
            let known: BTreeSet<_> =
                self.stations.keys().map(|s| (bridge(s.0), s.1, s.2)).collect();
            plane.sweep(|device, vlan, mac| known.contains(&(Some(device), vlan, mac)));
        }
        self.any = self.set.iter().flatten().any(|way| way.redirect.is_some());
        (self.next_learn, self.full) = (now, false);
        followed.map(drop)
    }

    /// Everything by its new number; what is gone leaves the data plane. `left`: devices that have
    /// no place any more; `gates`: of the vifs, by their new numbers. [`Self::follow`] comes next.
    pub(crate) fn renumber(
        &mut self,
        moved: &Moved,
        left: &[Attached],
        gates: &[[GateId; 2]],
        plane: &mut DataPlane,
    ) {
        let of_gate = |gate: &GateId| Reported::from_now_on(plane.redirect_counters(*gate));
        let mut reported: Vec<_> =
            gates.iter().map(|both| [0, 1].map(|i| of_gate(&both[i]))).collect();
        let mut set: Vec<[Way; 2]> = vec![Default::default(); gates.len()];
        let before = self.gates.iter().zip(&mut self.set).zip(&self.reported);
        for (((both, paths), counted), after) in before.zip(&moved.vifs) {
            match after.map(|after| after as usize) {
                Some(after) if after < set.len() => {
                    (set[after], reported[after]) = (std::mem::take(paths), *counted);
                }
                _ => {
                    for (gate, way) in both.iter().zip(paths) {
                        way.clear(*gate, plane);
                    }
                }
            }
        }
        (self.set, self.reported) = (set, reported);
        self.ways.renumber(moved);
        for attached in left.iter().filter(|one| matches!(one.gate, Entry::Port(_))) {
            let Some(device) = attached.device_index() else { continue };
            let here = |(port, ..): &&Station| port.0 == attached.iface.0;
            for (_, vlan, mac) in
                self.stations.keys().filter(here).chain(self.remotes.iter().filter(here))
            {
                plane.remove_station(device, *vlan, *mac);
            }
        }
        let to = |port: PortId| moved.ports.get(port.0 as usize).copied().flatten().map(PortId);
        let station = |(port, vlan, mac): Station| Some((to(port)?, vlan, mac));
        let old = std::mem::take(&mut self.stations).into_iter();
        self.stations = old.filter_map(|(key, target)| Some((station(key)?, target))).collect();
        self.remotes = std::mem::take(&mut self.remotes).into_iter().filter_map(station).collect();
        let old = std::mem::take(&mut self.places).into_iter();
        let place = |((port, vlan), target)| Some(((to(port)?, vlan), target));
        self.places = old.filter_map(place).collect();
        let vif = |vif: VifId| moved.vifs.get(vif.0 as usize).copied().flatten().map(VifId);
        self.captured = std::mem::take(&mut self.captured).into_iter().filter_map(vif).collect();
    }

    /// Takes the paths of these vifs off, and puts those of others back on: see [`Self::follow`].
    /// Whether that took any off.
    ///
    /// # Errors
    /// As [`Self::follow`].
    pub(crate) fn capture(
        &mut self,
        captured: BTreeSet<VifId>,
        now: Instant,
        policy: &Policy,
        attached: &[Attached],
        plane: &mut DataPlane,
    ) -> Result<bool, PortError> {
        if self.captured == captured {
            return Ok(false);
        }
        let on =
            |paths: &Self| paths.set.iter().flatten().filter(|way| way.redirect.is_some()).count();
        let before = on(self);
        self.captured = captured;
        self.follow(now, policy, attached, plane)?;
        Ok(on(self) < before)
    }

    /// Whether there is any.
    pub(crate) const fn any(&self) -> bool {
        self.any
    }

    /// The credit that a gate is to be given instead of `credit`; before, a path that waits to
    /// engage is told what it still has in user space. `held`: some device has not taken what it
    /// was handed, or somebody's frames wait for theirs.
    pub(crate) fn credit(
        &self,
        now: Instant,
        (vif, direction, gate): (VifId, Direction, GateId),
        (switch, plane): (&Switch, &DataPlane),
        held: bool,
        credit: u32,
    ) -> u32 {
        let way = self.set.get(vif.0 as usize).map(|set| &set[direction as usize]);
        if way.is_none_or(|way| way.redirect.is_none()) || plane.redirects(gate) {
            return credit;
        }
        let backlog = switch.waiting(vif, direction).saturating_add(u32::from(held));
        plane.gates().drained(gate, u64::from(backlog));
        match now.saturating_since(self.since) < PATIENCE {
            true => credit,
            // A flood leaves no pause by itself.
            false if backlog > 0 => 0,
            false => credit.min(CREDIT_WHILE_WAITING),
        }
    }

    /// Fetches counts, and now and then what the bridge has learned.
    pub(crate) fn upkeep(
        &mut self,
        now: Instant,
        switch: &mut Switch,
        attached: &[Attached],
        plane: &mut DataPlane,
    ) {
        self.count(now, switch, plane);
        if !self.any || now < self.next_learn {
            return;
        }
        self.next_learn = now + LEARN_INTERVAL;
        if now >= self.next_keep {
            self.next_keep = now + KEEP_INTERVAL;
            self.keep(now, switch, attached, plane);
        }
        self.learn(now, switch, attached, plane);
    }

    /// Takes off what is not wanted any more or otherwise; whether anything is new.
    fn follow_paths(
        &mut self,
        policy: &Policy,
        attached: &[Attached],
        plane: &mut DataPlane,
    ) -> Result<bool, PortError> {
        self.set.resize(policy.vifs.len(), Default::default());
        self.reported.resize(policy.vifs.len(), Default::default());
        let choices = choices(policy, &self.captured);
        let mut changed = false;
        for ((id, vif), choice) in policy.vifs().zip(choices) {
            let device = xdp(attached, policy.ports.len() + id.0 as usize);
            let ends = xdp(attached, vif.port.0 as usize).zip(device);
            for (direction, choice) in Direction::ALL.into_iter().zip(choice) {
                let wanted = match ends {
                    Some((port, device)) if takes(device, direction) => {
                        let bridge = port.device_index();
                        self.ways.of(policy, (id, direction), choice.is_ok(), bridge, plane)?
                    }
                    _ => Way::default(),
                };
                let gate = self.gates[id.0 as usize][direction as usize];
                let set = &mut self.set[id.0 as usize][direction as usize];
                if *set != wanted || !self.followed {
                    plane.set_redirect(gate, wanted.stand_in.as_ref())?;
                    changed |= wanted.redirect.is_some();
                    *set = wanted;
                }
            }
        }
        self.ways.free_unused(plane);
        Ok(changed)
    }

    /// The addresses that the policy gives, and the places whose others are worth learning;
    /// whether anything may be redirected that was not.
    fn follow_stations(
        &mut self,
        policy: &Policy,
        attached: &[Attached],
        plane: &mut DataPlane,
    ) -> Result<bool, PortError> {
        let (mut stations, mut places) = (BTreeMap::new(), BTreeMap::new());
        for (id, vif) in policy.vifs() {
            let Some(port) = xdp(attached, vif.port.0 as usize) else { continue };
            let vlan = policy[vif.slice].vlan.unwrap_or(0);
            let [send, receive] = &self.set[id.0 as usize];
            let (gate, slice) = (self.gates[id.0 as usize][1], vif.slice.0);
            let device = xdp(attached, policy.ports.len() + id.0 as usize);
            let device = device.map(XdpPort::device_index);
            let target = match device.filter(|_| receive.redirect.is_some()) {
                Some(device) => Target::Route(Route::Vif { gate, device, slice }),
                None => {
                    let stand_in = device.filter(|_| receive.stand_in.is_some());
                    Target::Gate(gate, stand_in.map(|device| (device, slice)))
                }
            };
            stations.extend(vif.macs.iter().map(|mac| ((vif.port, vlan, mac.0), target)));
            if send.redirect.is_some() && port.takes_redirects() {
                let remote = Route::Remote { device: port.device_index(), slice };
                places.insert((vif.port, vlan), Target::Route(remote));
            }
        }
        if places != self.places {
            self.forget_remotes(attached, plane);
        }
        self.places = places;
        let old = std::mem::take(&mut self.stations);
        for station in old.keys().filter(|station| !stations.contains_key(*station)) {
            remove(*station, attached, plane);
        }
        let is_new = |(station, target): (&Station, &Target)| {
            matches!(target, Target::Route(_)) && old.get(station) != Some(target)
        };
        let changed = stations.iter().any(is_new);
        if changed {
            self.rest(plane);
        }
        for (station, target) in stations {
            if old.get(&station) != Some(&target) {
                set(station, target, attached, plane)?;
            }
            self.remotes.remove(&station);
            self.stations.insert(station, target);
        }
        Ok(changed)
    }

    /// Takes every sender off its path until [`Self::start`]: nobody may find a receiver or a
    /// route that is new while frames for it are in user space.
    fn rest(&self, plane: &mut DataPlane) {
        for ([gate, _], [send, _]) in self.gates.iter().zip(&self.set) {
            if send.redirect.is_some() {
                // Taking off is one write to a table that exists.
                let _off = plane.set_redirect(*gate, send.stand_in.as_ref());
            }
        }
    }

    /// Puts every path on, from the beginning: receivers first, then senders. What the kernel
    /// refuses stays off.
    fn start(&mut self, now: Instant, plane: &mut DataPlane) {
        self.rest(plane);
        for direction in [Direction::Receive, Direction::Send] {
            for (gates, paths) in self.gates.iter().zip(&mut self.set) {
                let path = &mut paths[direction as usize].redirect;
                let gate = gates[direction as usize];
                if path.is_some() && plane.set_redirect(gate, path.as_ref()).is_err() {
                    *path = None;
                }
            }
        }
        self.since = now;
    }

    /// Takes every path off.
    fn stop(&mut self, plane: &mut DataPlane) {
        for (gates, paths) in self.gates.iter().zip(&mut self.set) {
            gates.iter().zip(paths).for_each(|(gate, way)| way.clear(*gate, plane));
        }
    }

    /// Follows the bridge's table for what is behind ports.
    fn learn(
        &mut self,
        now: Instant,
        switch: &Switch,
        attached: &[Attached],
        plane: &mut DataPlane,
    ) {
        let mut known = BTreeSet::new();
        for (port, vlan, mac, iface, fixed) in switch.addresses() {
            let [_, _, mac @ ..] = mac.to_be_bytes();
            let station = (port, vlan, mac);
            let here = iface == IfaceId(port.0) && self.places.contains_key(&(port, vlan));
            if here && !fixed && !self.stations.contains_key(&station) {
                known.insert(station);
            }
        }
        let gone: Vec<_> = self.remotes.difference(&known).copied().collect();
        for station in &gone {
            remove(*station, attached, plane);
            self.remotes.remove(station);
        }
        self.full &= gone.is_empty();
        let new: Vec<_> = known.difference(&self.remotes).copied().collect();
        if new.is_empty() || self.full {
            return;
        }
        // Frames for the new ones are in user space: nobody may overtake them.
        self.rest(plane);
        for station in new {
            let Some(target) = self.places.get(&(station.0, station.1)) else { continue };
            // What does not fit goes through user space; it is not tried again, since each try is
            // a rest for all.
            if set(station, *target, attached, plane).is_err() {
                self.full = true;
                break;
            }
            self.remotes.insert(station);
        }
        self.start(now, plane);
    }

    /// Frames that user space does not see still use their addresses.
    fn keep(&self, now: Instant, switch: &mut Switch, attached: &[Attached], plane: &DataPlane) {
        for (port, vlan, mac) in &self.remotes {
            let Some(bridge) = xdp(attached, port.0 as usize) else { continue };
            let used = plane.route_used(bridge.device_index(), *vlan, *mac);
            if used.is_some_and(|used| now.saturating_since(used) < KEEP_RECENT) {
                let [a, b, c, d, e, f] = *mac;
                let mac = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
                switch.keep_address(now, *port, *vlan, mac);
            }
        }
    }

    fn forget_remotes(&mut self, attached: &[Attached], plane: &mut DataPlane) {
        for station in std::mem::take(&mut self.remotes) {
            remove(station, attached, plane);
        }
    }

    /// Adds what the program counted to the switch's counters.
    fn count(&mut self, now: Instant, switch: &mut Switch, plane: &DataPlane) {
        let policy = switch.policy();
        let place = |id: usize| policy.vifs.get(id).map(|v| (v.port, policy[v.slice].vlan));
        let places: Vec<_> = (0..self.reported.len()).map(place).collect();
        let each = self.gates.iter().zip(&mut self.reported).zip(places);
        for (vif, ((gates, reported), place)) in (0..).map(VifId).zip(each) {
            for direction in Direction::ALL {
                let counters = plane.redirect_counters(gates[direction as usize]);
                let Reported { counters: before, wire } = &mut reported[direction as usize];
                if counters == *before {
                    continue;
                }
                let new = counters.redirected.minus(before.redirected);
                switch.account_redirected(switch.vif_iface(vif), direction, new);
                let by_wire = counters.redirected.minus(counters.local).minus(*wire);
                *wire = wire.plus(by_wire);
                if let Some((port, vlan)) = place {
                    let tags = if vlan.is_some() { TAG * by_wire.packets } else { 0 };
                    let bytes = by_wire.bytes + tags;
                    let frames = Tally { packets: by_wire.packets, bytes };
                    switch.account_redirected(Switch::port_iface(port), direction, frames);
                }
                let of = dropped(&counters).zip(dropped(before));
                for (reason, (all, known)) in IN_KERNEL.into_iter().zip(of) {
                    switch.account_early_drop(now, vif, direction, reason, all.minus(known));
                }
                *before = counters;
            }
        }
    }
}

impl Reported {
    /// Of a gate that somebody else had before.
    fn from_now_on(counters: RedirectCounters) -> Self {
        Self { counters, wire: counters.redirected.minus(counters.local) }
    }
}

/// Whether frames may be redirected to where they go in that direction: a port that does not take
/// them is found out for each route.
fn takes(vif: &XdpPort, direction: Direction) -> bool {
    match direction {
        Direction::Send => true,
        Direction::Receive => vif.takes_redirects(),
    }
}

fn xdp(attached: &[Attached], index: usize) -> Option<&XdpPort> {
    match attached.get(index).map(|attached| &attached.port) {
        Some(AnyPort::Xdp(port)) => Some(port),
        _ => None,
    }
}

fn set(
    (port, vlan, mac): Station,
    target: Target,
    attached: &[Attached],
    plane: &mut DataPlane,
) -> Result<(), PortError> {
    let Some(port) = xdp(attached, port.0 as usize) else { return Ok(()) };
    match target {
        Target::Gate(gate, stand_in) => {
            plane.set_station(port.device_index(), vlan, mac, gate, stand_in)
        }
        Target::Route(route) => plane.set_route(port.device_index(), vlan, mac, route),
    }
}

fn remove((port, vlan, mac): Station, attached: &[Attached], plane: &mut DataPlane) {
    if let Some(port) = xdp(attached, port.0 as usize) {
        plane.remove_station(port.device_index(), vlan, mac);
    }
}

/// What the program dropped, in the order of [`IN_KERNEL`].
fn dropped(counters: &RedirectCounters) -> impl Iterator<Item = Tally> + use<> {
    counters.policed.into_iter().chain([counters.spoofed, counters.refused])
}

/// The reasons for which the program drops of redirected paths, and goes on counting for the next
/// process: those of the buckets, by position, then the others.
pub const IN_KERNEL: [Reason; 8] = [
    Reason::VifPackets,
    Reason::VifBits,
    Reason::RouterPackets,
    Reason::RouterBits,
    Reason::SlicePackets,
    Reason::SliceBits,
    Reason::SpoofedMac,
    Reason::RefusedByReceiver,
];

/// Bytes of an 802.1Q tag.
const TAG: u64 = 4;

/// A sender that finds no pause in this time is a flood, and is made to pause.
const PATIENCE: Nanos = Nanos::from_millis(100);

/// As many as a turn reads, so that none is left when it ends.
const CREDIT_WHILE_WAITING: u32 = 64;

/// What is learned is forwarded by user space until then. The table is read whole, up to some
/// milliseconds.
const LEARN_INTERVAL: Nanos = Nanos::from_millis(500);

/// Far below the half of an address's life.
const KEEP_INTERVAL: Nanos = Nanos::from_secs(10);

/// Used since the last look, with room for a late one.
const KEEP_RECENT: Nanos = Nanos::from_secs(20);
