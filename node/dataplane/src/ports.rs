// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The opened ports of a node, and the gates that let their frames in.
//!
//! A vif has two gates (send, receive) and a port one (what is for nobody in particular), which it
//! keeps as long as its device is the node's: see `opener`.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_policy::{Kind, Policy, VifId};
use weir_ports::{AnyPort, DataPlane, Faults, GateId, Gates, Leaving, Pool, PortError};
use weir_switch::{Direction, IfaceId, Reason, Switch, Tally};
use weir_units::Instant;

use crate::paths::Paths;
use crate::places::Places;

/// All ports of a node in use.
#[derive(Debug)]
pub struct Ports {
    /// One for each interface of the switch, in its order: ports, then vifs.
    pub attached: Vec<Attached>,
    plane: DataPlane,
    paths: Paths,
    gates: Arc<Gates>,
    /// Of each vif.
    vif_gates: Vec<[GateId; 2]>,
    /// Early drops of each gate that the switch knows of.
    reported: Vec<Tally>,
    /// Frames let in that nobody read before their device left.
    unread: u64,
    grant_next: u32,
}

/// One interface of the switch and the device that is its outside.
#[derive(Debug)]
pub struct Attached {
    /// The policy's name.
    pub name: String,
    /// The switch's index.
    pub iface: IfaceId,
    /// The vif, if it is one.
    pub vif: Option<VifId>,
    /// The device, as the policy calls it.
    pub device: String,
    /// How the policy wants it driven.
    pub kind: Kind,
    /// The device.
    pub port: AnyPort,
    /// How it is driven, for people.
    pub driver: String,
    /// Why it is not driven by XDP, which was tried first.
    pub fallback: Option<String>,
    /// By which its frames enter.
    pub gate: Entry,
    /// The device left frames in its ring at the last flush.
    pub flush_again: bool,
    /// Reading stops when the vif's queue is full, so that its sender waits.
    pub holds_back: bool,
}

/// The gates of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Of a port: what is for nobody in particular.
    Port(GateId),
    /// Of a vif: send, receive.
    Vif([GateId; 2]),
}

/// A device that has left: its gates are free again when it is shut.
#[derive(Debug)]
pub struct Left {
    /// Its name.
    pub device: String,
    pub(crate) gate: Entry,
    pub(crate) port: Leaving,
    /// What its gates had dropped when it left: more comes until the program is off the device.
    pub(crate) dropped: u64,
}

/// Frames that the switch never saw.
pub type EarlyDrops = [(Reason, Tally); 4];

impl Ports {
    /// The opened devices of `policy`, in its order: ports, then vifs. They receive nothing before
    /// `begin`.
    ///
    /// # Errors
    /// A device of the policy is not among them. They are closed then.
    pub fn new(
        policy: &Policy,
        plane: DataPlane,
        opened: Vec<Attached>,
        pool: &mut Pool,
    ) -> Result<Self, PortError> {
        let gates = Arc::clone(plane.gates());
        let reported = vec![Tally::default(); gates.count() as usize];
        let (attached, paths, vif_gates) = (Vec::new(), Paths::default(), Vec::new());
        let (unread, grant_next) = (0, 0);
        let mut ports =
            Self { attached, plane, paths, gates, vif_gates, reported, unread, grant_next };
        match Places::find(policy, &[], &opened) {
            Ok(places) => {
                // At the start every device has its place.
                let _none = ports.place(opened, &places, policy);
                Ok(ports)
            }
            Err(error) => {
                ports.attached = opened;
                ports.close(pool);
                Err(error)
            }
        }
    }

    /// Takes all devices into use, and over from what an earlier process left in the kernel: gates
    /// and paths first, so that no frame which the program hands on is without a credit.
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
        self.welcome(&mut attached, pool);
        self.attached = attached;
        self.adapt(now, policy)?;
        for _ in 0..self.vif_gates.len().div_ceil(GRANTS_A_TURN as usize).max(1) {
            self.grant(now, switch);
        }
        self.connect(&self.attached)
    }

    /// Lets the program hand frames to these devices' sockets.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn connect(&self, attached: &[Attached]) -> Result<(), PortError> {
        attached.iter().try_for_each(|attached| match &attached.port {
            AnyPort::Xdp(port) => port.connect(self.plane.devices()),
            _ => Ok(()),
        })
    }

    /// From now on the program stands in; what the sockets have received can still be read.
    pub(crate) fn disconnect(&self) {
        for attached in &self.attached {
            if let AnyPort::Xdp(port) = &attached.port {
                port.disconnect(self.plane.devices());
            }
        }
    }

    /// Takes opened devices into use: they receive as soon as they are connected and their gates
    /// are opened.
    pub(crate) fn welcome(&mut self, opened: &mut [Attached], pool: &mut Pool) {
        for attached in opened {
            attached.port.adopt(pool);
            for gate in attached.gate.gates() {
                self.gates.reset(*gate);
                if let Some(known) = self.reported.get_mut(gate.0 as usize) {
                    *known = self.gates.counters(*gate).dropped;
                }
            }
        }
    }

    /// Puts the devices in use and `others` in their places, numbers everything by the second of
    /// the policies and follows it; gives back those without a place.
    ///
    /// # Errors
    /// A table is full. The devices are in their new places all the same.
    pub(crate) fn refit(
        &mut self,
        now: Instant,
        (old, new): (&Policy, &Policy),
        places: &Places,
        others: Vec<Attached>,
    ) -> (Vec<Attached>, Result<(), PortError>) {
        let moved = places.moved(old, new);
        let left = self.place(others, places, new);
        self.paths.renumber(&moved, &left, &self.vif_gates, &mut self.plane);
        (left, self.adapt(now, new))
    }

    /// Puts every device in its place; gives back those without one.
    fn place(&mut self, others: Vec<Attached>, places: &Places, policy: &Policy) -> Vec<Attached> {
        let all = std::mem::take(&mut self.attached).into_iter().chain(others);
        let (attached, left) = places.arrange(all.collect(), policy);
        self.attached = attached;
        let gates = self.attached.iter().filter_map(|attached| attached.gate.of_vif());
        self.vif_gates = gates.collect();
        self.grant_next = 0;
        left
    }

    /// Lets devices go that have no place any more. Their frames that nobody read count as
    /// [`Self::unread`].
    pub(crate) fn let_go(&mut self, left: Vec<Attached>, pool: &mut Pool) -> Vec<Left> {
        let out = |attached: Attached| {
            let Attached { device, gate, port, .. } = attached;
            let read_by = match gate {
                Entry::Port(flood) => flood,
                Entry::Vif([send, _]) => send,
            };
            self.unread += self.gates.in_flight(read_by);
            for gate in gate.gates() {
                self.gates.reset(*gate);
            }
            Left { device, gate, port: port.leave(pool), dropped: gate.dropped(&self.gates) }
        };
        left.into_iter().map(out).collect()
    }

    /// Frames let in that nobody read before their device left.
    #[must_use]
    pub const fn unread(&self) -> u64 {
        self.unread
    }

    /// Grants each port some frames for nobody in particular, and the next `GRANTS_A_TURN` vifs,
    /// in both directions, what the switch has room for now: all of them in turn, so that a
    /// thousand vifs do not make every turn long.
    pub fn grant(&mut self, now: Instant, switch: &Switch) {
        for flood in self.attached.iter().filter_map(Attached::flood) {
            self.gates.grant(flood, FLOOD_CREDIT);
        }
        let held = self.paths.any() && self.holds_frames(switch);
        let vifs = id_of(self.vif_gates.len());
        for _ in 0..vifs.min(GRANTS_A_TURN) {
            let vif = VifId(self.grant_next);
            let Some(gates) = self.vif_gates.get(vif.0 as usize) else { break };
            for (direction, gate) in Direction::ALL.into_iter().zip(gates) {
                let mut credit = switch.credit(now, vif, direction);
                if self.paths.any() {
                    let (path, parts) = ((vif, direction, *gate), (switch, &self.plane));
                    credit = self.paths.credit(now, path, parts, held, credit);
                }
                self.gates.grant(*gate, credit);
            }
            self.grant_next = (self.grant_next + 1) % vifs;
        }
    }

    /// Fetches the early drops into the switch's counters, and with `quiet` (the last turn
    /// received all there was: the rings are empty) returns credit that was lost with its frames.
    pub fn upkeep(&mut self, now: Instant, switch: &mut Switch, quiet: bool) {
        if quiet {
            let floods = self.attached.iter().filter_map(Attached::flood);
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

    /// Whether frames have left the queues and not yet the node.
    fn holds_frames(&self, switch: &Switch) -> bool {
        let ports = self.attached.iter().take_while(|attached| attached.vif.is_none()).count();
        switch.next_ready(IfaceId(id_of(ports))).is_some()
            || self.attached.iter().any(|attached| attached.flush_again)
    }

    /// What was dropped before the copy and is no vif's, by reason: by the gate of a port for
    /// nobody in particular, and without a gate. Of the latter the program counts packets alone.
    #[must_use]
    pub fn early_drops(&self, attached: &Attached) -> EarlyDrops {
        let flood = attached.flood().map(|flood| self.gates.counters(flood).dropped);
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

    /// Follows a policy whose interfaces are in their places: which addresses belong to
    /// which vif, so that a flood towards one of them is stopped at the port by that vif's own
    /// gate, and what is redirected.
    ///
    /// # Errors
    /// A table is full.
    pub fn adapt(&mut self, now: Instant, policy: &Policy) -> Result<(), PortError> {
        self.paths.follow(now, policy, &self.attached, &mut self.plane)
    }

    /// Takes exactly these vifs off the redirected path, since only user space can copy their
    /// frames; whether that took any off.
    ///
    /// # Errors
    /// As [`Self::adapt`].
    pub fn capture(
        &mut self,
        now: Instant,
        captured: BTreeSet<VifId>,
        policy: &Policy,
    ) -> Result<bool, PortError> {
        self.paths.capture(captured, now, policy, &self.attached, &mut self.plane)
    }

    /// Hands all devices back.
    pub fn close(self, pool: &mut Pool) {
        let Self { attached, mut plane, .. } = self;
        for attached in attached {
            attached.port.close(Some(&mut plane), pool);
        }
    }
}

impl Attached {
    /// How many frames may be read now: a sender that can wait does, when its queue is full.
    pub fn receive_limit(&self, now: Instant, switch: &Switch) -> usize {
        match self.vif {
            Some(vif) if self.holds_back => switch.credit(now, vif, Direction::Send) as usize,
            _ => usize::MAX,
        }
    }

    /// Of a port: the gate of what is for nobody in particular.
    pub(crate) const fn flood(&self) -> Option<GateId> {
        match self.gate {
            Entry::Port(flood) => Some(flood),
            Entry::Vif(_) => None,
        }
    }

    /// Whether it is this device, in the same role and driven alike.
    pub(crate) fn is(&self, device: &str, kind: Kind, port: bool) -> bool {
        let same_role = port == matches!(self.gate, Entry::Port(_));
        same_role && self.kind == kind && self.device == device
    }

    /// By which the data plane knows it, if it does.
    pub(crate) fn device_index(&self) -> Option<u32> {
        match &self.port {
            AnyPort::Xdp(port) => Some(port.device_index()),
            _ => None,
        }
    }
}

impl Entry {
    pub(crate) const fn of_vif(&self) -> Option<[GateId; 2]> {
        match self {
            Self::Port(_) => None,
            Self::Vif(gates) => Some(*gates),
        }
    }

    /// Frames that its gates have dropped since they were made.
    pub(crate) fn dropped(&self, gates: &Gates) -> u64 {
        self.gates().iter().map(|gate| gates.counters(*gate).dropped.packets).sum()
    }

    pub(crate) fn gates(&self) -> &[GateId] {
        match self {
            Self::Port(gate) => std::slice::from_ref(gate),
            Self::Vif(gates) => gates,
        }
    }
}

/// Policies have at most some ten thousand of anything.
pub(crate) fn id_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A credit costs some 20 ns, and a turn of a full batch some 50 µs.
const GRANTS_A_TURN: u32 = 64;

/// Broadcast, multicast and unknown frames of a port in flight: an ARP storm of a whole rack fits
/// between two turns, and an eighth of a receive ring is all that it can fill.
const FLOOD_CREDIT: u32 = 256;
