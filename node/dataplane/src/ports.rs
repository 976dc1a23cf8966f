// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices that a node uses, and the gates that let their frames in.
//!
//! The kernel's program counts how many frames of each gate are on their way to the worker. Frames
//! beyond the gate's *credit* are dropped before they cost a copy. In each turn the worker grants
//! credit: to a vif's gates as many frames as its queue has room for, to a port's gate a fixed
//! number. So a flood towards one vif is dropped at the device, and takes neither the worker's time
//! nor room in the ring from other vifs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::{iter, thread};

use weir_policy::{Policy, PortId, VifId};
use weir_ports::{AnyPort, Faults, GateId, Gates, LentChunks, Pool, PortError, XdpPlane};
use weir_switch::{Direction, IfaceId, Reason, Switch, Tally};
use weir_units::Instant;

use crate::device::{AttachedDevice, DetachedDevice, DeviceGates, EarlyDrops, id_of};
use crate::paths::RedirectedPaths;
use crate::placement::Placement;

/// The devices that a node uses.
#[derive(Debug)]
pub struct NodePorts {
    /// One for each interface of the policy, in its order: ports, then vifs.
    pub attached: Vec<AttachedDevice>,
    /// The place in `attached` of each interface of the switch, by the interface's slot.
    by_slot: Vec<usize>,
    plane: XdpPlane,
    paths: RedirectedPaths,
    gates: Arc<Gates>,
    /// The gates of each vif: send, receive.
    vif_gates: Vec<[GateId; 2]>,
    /// The early drops of each gate that the switch has counted so far.
    reported: Vec<Tally>,
    /// Frames that a gate let in and that were not read before their device was detached.
    unread: u64,
    /// The next vif to be granted credit.
    grant_next: u32,
}

impl NodePorts {
    /// Puts the opened devices of `policy` in its order: ports, then vifs. They receive nothing
    /// before `begin`.
    ///
    /// # Errors
    /// A device of the policy is not among them. All of them are closed then.
    pub fn new(
        policy: &Policy,
        plane: XdpPlane,
        opened: Vec<AttachedDevice>,
        pool: &mut Pool,
    ) -> Result<Self, PortError> {
        let gates = Arc::clone(plane.gates());
        let mut ports = Self {
            attached: Vec::new(),
            by_slot: Vec::new(),
            plane,
            paths: RedirectedPaths::default(),
            vif_gates: Vec::new(),
            reported: vec![Tally::default(); gates.count() as usize],
            gates,
            unread: 0,
            grant_next: 0,
        };
        match Placement::find(policy, &[], &opened) {
            Ok(placement) => {
                let unplaced = ports.place(opened, &placement, policy);
                debug_assert!(unplaced.is_empty(), "only devices of the policy were opened");
                Ok(ports)
            }
            Err(error) => {
                ports.attached = opened;
                ports.close(pool);
                Err(error)
            }
        }
    }

    /// Takes all devices into use, and takes over from the program that an earlier process left in
    /// the kernel. Gates and paths come first, so that the program never drops a frame for lack of
    /// credit while there is room for it.
    ///
    /// # Errors
    /// A table is full.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        policy: &Policy,
        switch: &Switch,
        pool: &mut Pool,
    ) -> Result<(), PortError> {
        let mut attached = std::mem::take(&mut self.attached);
        self.adopt(&mut attached, pool);
        self.attached = attached;
        self.follow(now, policy)?;
        for _ in 0..self.vif_gates.len().div_ceil(GRANTS_A_TURN as usize).max(1) {
            self.grant(now, switch);
        }
        self.connect(&self.attached)
    }

    /// Lets the program hand frames to the sockets of these devices.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn connect(&self, attached: &[AttachedDevice]) -> Result<(), PortError> {
        attached.iter().try_for_each(|attached| match &attached.port {
            AnyPort::Xdp(port) => port.connect(self.plane.devices()),
            _ => Ok(()),
        })
    }

    /// Has the program forward in place of the worker from now on. The frames that the sockets have
    /// received can still be read.
    pub(crate) fn disconnect(&self) {
        for attached in &self.attached {
            if let AnyPort::Xdp(port) = &attached.port {
                port.disconnect(self.plane.devices());
            }
        }
    }

    /// Takes opened devices into use. They receive once they are connected and their gates have
    /// credit.
    pub(crate) fn adopt(&mut self, opened: &mut [AttachedDevice], pool: &mut Pool) {
        for attached in opened {
            attached.port.adopt(pool);
            for gate in attached.gates.all() {
                self.gates.reset(*gate);
                if let Some(known) = self.reported.get_mut(gate.0 as usize) {
                    *known = self.gates.counters(*gate).dropped;
                }
            }
        }
    }

    /// Orders the devices in use, and `others`, by a policy, and follows this policy. Returns the
    /// devices that the policy does not have. The caller calls [`Self::number`] once the switch has
    /// the policy.
    ///
    /// # Errors
    /// A table is full. The devices are in the new order all the same.
    pub(crate) fn reconfigure(
        &mut self,
        now: Instant,
        policy: &Policy,
        placement: &Placement,
        others: Vec<AttachedDevice>,
    ) -> (Vec<AttachedDevice>, Result<(), PortError>) {
        let unplaced = self.place(others, placement, policy);
        self.paths.detach(&unplaced, &mut self.plane);
        (unplaced, self.follow(now, policy))
    }

    /// Records which interface of the switch each device belongs to. The devices must be in their
    /// places in the switch's policy.
    pub(crate) fn number(&mut self, switch: &Switch) {
        self.by_slot.clear();
        for (place, attached) in self.attached.iter_mut().enumerate() {
            attached.iface = match attached.vif {
                Some(vif) => switch.vif_iface(vif),
                None => switch.port_iface(PortId(id_of(place))),
            };
            attached.bound_in_flight(switch.policy());
            let slot = attached.iface.slot();
            if slot >= self.by_slot.len() {
                self.by_slot.resize(slot + 1, usize::MAX);
            }
            self.by_slot[slot] = place;
        }
    }

    /// Returns the place in `attached` of an interface of the switch.
    pub(crate) fn place_of(&self, iface: IfaceId) -> Option<usize> {
        let place = *self.by_slot.get(iface.slot())?;
        self.attached.get(place).filter(|attached| attached.iface == iface).map(|_| place)
    }

    /// Puts every device in its place, and returns those without one.
    fn place(
        &mut self,
        others: Vec<AttachedDevice>,
        placement: &Placement,
        policy: &Policy,
    ) -> Vec<AttachedDevice> {
        let all = std::mem::take(&mut self.attached).into_iter().chain(others);
        let (attached, unplaced) = placement.arrange(all.collect(), policy);
        self.attached = attached;
        let gates = self.attached.iter().filter_map(|attached| attached.gates.of_vif());
        self.vif_gates = gates.collect();
        self.grant_next = 0;
        unplaced
    }

    /// Detaches devices that have no place any more. Their frames that were not read count as
    /// [`Self::unread`].
    pub(crate) fn detach(
        &mut self,
        unplaced: Vec<AttachedDevice>,
        pool: &mut Pool,
    ) -> Vec<DetachedDevice> {
        let detach = |attached: AttachedDevice| {
            let AttachedDevice { device, gates, port, .. } = attached;
            let received_by = match gates {
                DeviceGates::Port(gate) | DeviceGates::Vif([gate, _]) => gate,
            };
            self.unread += self.gates.in_flight(received_by);
            for gate in gates.all() {
                self.gates.reset(*gate);
            }
            let dropped = gates.dropped(&self.gates);
            DetachedDevice { device, gates, port: port.leave(pool), dropped }
        };
        unplaced.into_iter().map(detach).collect()
    }

    /// Returns the number of frames that a gate let in and that were not read before their device
    /// was detached.
    #[must_use]
    pub const fn unread(&self) -> u64 {
        self.unread
    }

    /// Grants credit: to each port for frames that belong to no single vif, and to the next
    /// `GRANTS_A_TURN` vifs, in both directions, as much as the switch has room for. Vifs take
    /// turns, so that a thousand vifs do not make every turn long.
    pub fn grant(&mut self, now: Instant, switch: &Switch) {
        for flood in self.attached.iter().filter_map(AttachedDevice::port_gate) {
            self.gates.grant(flood, FLOOD_CREDIT);
        }
        let held = self.paths.any() && self.holds_frames(switch);
        let vifs = id_of(self.vif_gates.len());
        let first_vif = self.attached.len().saturating_sub(self.vif_gates.len());
        for _ in 0..vifs.min(GRANTS_A_TURN) {
            let vif = VifId(self.grant_next);
            let Some(gates) = self.vif_gates.get(vif.0 as usize) else { break };
            for (direction, gate) in Direction::ALL.into_iter().zip(gates) {
                let mut credit = switch.credit(now, vif, direction);
                if direction == Direction::Send
                    && let Some(AnyPort::Xdp(port)) =
                        self.attached.get(first_vif + vif.0 as usize).map(|one| &one.port)
                {
                    // Then the gate drops and counts the frames that the ring has no room for.
                    credit = credit.min(port.receive_room());
                }
                if self.paths.any() {
                    let (path, parts) = ((vif, direction, *gate), (switch, &self.plane));
                    credit = self.paths.credit(now, path, parts, held, credit);
                }
                self.gates.grant(*gate, credit);
            }
            self.grant_next = (self.grant_next + 1) % vifs;
        }
    }

    /// Adds early drops and the kernel's counts to the switch's counters. `quiet` says that the
    /// last turn received everything, so the rings are empty. Credit that is still in use then was
    /// lost together with a frame, and is given back.
    pub fn upkeep(&mut self, now: Instant, switch: &mut Switch, quiet: bool) {
        if quiet {
            let floods = self.attached.iter().filter_map(AttachedDevice::port_gate);
            floods.for_each(|flood| self.gates.settle(flood));
        }
        for (vif, gates) in (0..).map(VifId).zip(&self.vif_gates) {
            for (direction, gate) in Direction::ALL.into_iter().zip(*gates) {
                let dropped = self.gates.counters(gate).dropped;
                let Some(known) = self.reported.get_mut(gate.0 as usize) else { continue };
                let new = dropped.minus(*known);
                if new.packets > 0 {
                    *known = dropped;
                    switch.account_early_drop(now, vif, direction, Reason::NoCredit, new);
                }
                if quiet {
                    self.gates.settle(gate);
                }
            }
        }
        self.paths.upkeep(now, switch, &self.attached, &mut self.plane);
    }

    /// Returns true if frames have left their queues, but not yet the node.
    fn holds_frames(&self, switch: &Switch) -> bool {
        switch.next_ready(IfaceId(0)).is_some()
            || self.attached.iter().any(|attached| attached.flush_again)
    }

    /// Returns a device's early drops that belong to no vif, by reason: at a port's gate, and
    /// before any gate. Before a gate the program counts packets only, not bytes.
    #[must_use]
    pub fn early_drops(&self, attached: &AttachedDevice) -> EarlyDrops {
        let flood = attached.port_gate().map(|flood| self.gates.counters(flood).dropped);
        let faults = match &attached.port {
            AnyPort::Xdp(port) => self.plane.faults(port.device_index()),
            _ => Faults::default(),
        };
        let packets = |packets| Tally { packets, bytes: 0 };
        [
            (Reason::NoCredit, flood.unwrap_or_default()),
            (Reason::Truncated, packets(faults.malformed)),
            (Reason::Oversize, packets(faults.oversize)),
            (Reason::Unknown, packets(faults.no_socket)),
        ]
    }

    /// Writes a policy, whose devices are in order, into the kernel's tables: which frames are
    /// redirected, and which vif each address belongs to. With these, the gate of a vif stops a
    /// flood towards its address at the port.
    ///
    /// # Errors
    /// A table is full.
    pub fn follow(&mut self, now: Instant, policy: &Policy) -> Result<(), PortError> {
        self.paths.follow(now, policy, &self.attached, &mut self.plane)
    }

    /// Takes the vifs in `captured`, and no others, off their redirected paths, since only user
    /// space can copy frames. Returns true if any vif left its path now.
    ///
    /// # Errors
    /// A table is full.
    pub fn capture(
        &mut self,
        now: Instant,
        captured: &BTreeSet<VifId>,
        policy: &Policy,
    ) -> Result<bool, PortError> {
        self.paths.capture(captured, now, policy, &self.attached, &mut self.plane)
    }

    /// Hands all devices back, several at a time: the kernel waits for an RCU grace period whenever
    /// an AF_XDP socket closes, and waits that overlap share one.
    pub fn close(self, pool: &mut Pool) {
        let Self { attached, plane, .. } = self;
        let ports: Vec<_> =
            attached.into_iter().map(|attached| attached.port.leave(pool)).collect();
        let threads = ports.len().min(CLOSERS);
        let ports = Mutex::new(ports.into_iter());
        let next = || ports.lock().unwrap_or_else(PoisonError::into_inner).next();
        let close = || iter::from_fn(next).map(|port| port.shut(plane.devices())).collect();
        let lent: Vec<Vec<LentChunks>> = thread::scope(|scope| {
            // This thread closes devices too, so that all are closed even if no thread can be made.
            let start = |_| thread::Builder::new().spawn_scoped(scope, close).ok();
            let closers: Vec<_> = (1..threads).filter_map(start).collect();
            let own = close();
            // A thread that panicked has closed its descriptors; its chunks go with the pool.
            let others = closers.into_iter().filter_map(|closer| closer.join().ok());
            iter::once(own).chain(others).collect()
        });
        lent.into_iter().flatten().for_each(|lent| pool.reclaim(lent));
    }
}

/// The number of devices that are closed at a time. One after the other, 128 veths take 4 s; more
/// threads than this gain nothing, since the kernel detaches programs one by one.
const CLOSERS: usize = 32;

/// The most vifs that one turn grants credit. A grant costs some 20 ns, so that this many, in both
/// directions, add 3 µs to a full turn of some 50 µs.
const GRANTS_A_TURN: u32 = 64;

/// The most broadcast, multicast and unknown frames of a port in flight: enough for the ARP
/// requests of a whole rack between two turns, and a quarter of a port's default receive ring.
const FLOOD_CREDIT: u32 = 256;
