// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The opened ports of a node, and the gates that let their frames in.
//!
//! Gates are numbered from the policy: two for each vif (send, receive), then one for each port
//! (what is for nobody in particular).

use std::collections::BTreeSet;
use std::sync::Arc;

use rustix::io::Errno;
use weir_policy::{Kind, Policy, VifId};
use weir_ports::{
    AnyPort, BindMode, DataPlane, Faults, GateId, Gates, PacketConfig, PacketPort, PlaneLimits,
    Pool, PortError, Role, TapConfig, TapPort, XdpConfig, XdpPort,
};
use weir_switch::{Direction, IfaceId, Reason, Switch, Tally};
use weir_units::Instant;

use crate::clock;
use crate::paths::Paths;

/// All ports of a node in use.
#[derive(Debug)]
pub struct Ports {
    /// One for each interface of the switch, in its order: ports, then vifs.
    pub attached: Vec<Attached>,
    plane: DataPlane,
    paths: Paths,
    gates: Arc<Gates>,
    /// Early drops of each gate that the switch knows of.
    reported: Vec<Tally>,
    vifs: u32,
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
    /// The device.
    pub port: AnyPort,
    /// How it is driven, for people.
    pub driver: String,
    /// Why it is not driven by XDP, which was tried first.
    pub fallback: Option<String>,
    /// Of a port: the gate of what is for nobody in particular.
    flood: Option<GateId>,
    /// The device left frames in its ring at the last flush.
    pub flush_again: bool,
    /// Reading stops when the vif's queue is full, so that its sender waits.
    holds_back: bool,
}

/// Frames that the switch never saw.
pub type EarlyDrops = [(Reason, Tally); 4];

impl Ports {
    /// Opens the device of every port and vif of `policy` and sets their gates. The gates are shut
    /// until the first [`Self::grant`].
    ///
    /// # Errors
    /// The first device that cannot be opened, and why. Devices opened before it are handed back.
    pub fn open(policy: &Policy, pool: &mut Pool) -> Result<Self, PortError> {
        let plane = DataPlane::load(limits(policy))?;
        let gates = Arc::clone(plane.gates());
        let reported = vec![Tally::default(); gates.count() as usize];
        let (vifs, grant_next) = (id_of(policy.vifs.len()), 0);
        let (attached, paths) = (Vec::new(), Paths::default());
        let mut ports = Self { attached, plane, paths, gates, reported, vifs, grant_next };
        let opened = ports.open_all(policy, pool).and_then(|()| ports.adapt(policy));
        match opened {
            Ok(()) => Ok(ports),
            Err(error) => {
                ports.close(pool);
                Err(error)
            }
        }
    }

    fn open_all(&mut self, policy: &Policy, pool: &mut Pool) -> Result<(), PortError> {
        for (id, port) in policy.ports() {
            let flood = flood_gate(policy, id.0);
            let opened = open(&port.device, port.kind, Role::Port(flood), &mut self.plane, pool)?;
            let attached = Attached::new(&port.name, id.0, None, opened);
            self.attached.push(Attached { flood: Some(flood), ..attached });
        }
        let first_vif = id_of(policy.ports.len());
        for (id, vif) in policy.vifs() {
            let role = Role::Vif(vif_gate(id, Direction::Send));
            let opened = open(&vif.device, vif.kind, role, &mut self.plane, pool)?;
            let iface = first_vif.saturating_add(id.0);
            self.attached.push(Attached::new(&vif.name, iface, Some(id), opened));
        }
        Ok(())
    }

    /// Grants each port some frames for nobody in particular, and the next `GRANTS_A_TURN` vifs,
    /// in both directions, what the switch has room for now: all of them in turn, so that a
    /// thousand vifs do not make every turn long.
    pub fn grant(&mut self, now: Instant, switch: &Switch) {
        for flood in self.attached.iter().filter_map(|attached| attached.flood) {
            self.gates.grant(flood, FLOOD_CREDIT);
        }
        let held = self.paths.any() && self.holds_frames(switch);
        for _ in 0..self.vifs.min(GRANTS_A_TURN) {
            let vif = VifId(self.grant_next);
            for direction in Direction::ALL {
                let mut credit = switch.credit(now, vif, direction);
                if self.paths.any() {
                    let (path, parts) = ((vif, direction), (switch, &self.plane));
                    credit = self.paths.credit(now, path, parts, held, credit);
                }
                self.gates.grant(vif_gate(vif, direction), credit);
            }
            self.grant_next = (self.grant_next + 1) % self.vifs;
        }
    }

    /// Fetches the early drops into the switch's counters, and with `quiet` (the last turn moved
    /// nothing, so the rings are empty) returns credit that was lost with its frames.
    pub fn upkeep(&mut self, now: Instant, switch: &mut Switch, quiet: bool) {
        if quiet {
            let floods = self.attached.iter().filter_map(|attached| attached.flood);
            floods.for_each(|flood| self.gates.settle(flood));
        }
        for vif in self.attached.iter().filter_map(|attached| attached.vif) {
            for direction in Direction::ALL {
                let gate = vif_gate(vif, direction);
                let dropped = self.gates.counters(gate).dropped;
                let Some(known) = self.reported.get_mut(gate.0 as usize) else { continue };
                let new = dropped.minus(*known);
                if new.packets > 0 {
                    *known = dropped;
                    let (packets, bytes) = (new.packets, new.bytes);
                    switch.account_early_drop(vif, direction, Reason::NoCredit, packets, bytes);
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
        let flood = attached.flood.map(|flood| self.gates.counters(flood).dropped);
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

    /// Follows a policy that has the same interfaces in the same order: which addresses belong to
    /// which vif, so that a flood towards one of them is stopped at the port by that vif's own
    /// gate, and what is redirected.
    ///
    /// # Errors
    /// A table is full.
    pub fn adapt(&mut self, policy: &Policy) -> Result<(), PortError> {
        self.paths.follow(clock::now(), policy, &self.attached, &mut self.plane)
    }

    /// Takes exactly these vifs off the redirected path, since only user space can copy their
    /// frames; whether that took any off.
    ///
    /// # Errors
    /// As [`Self::adapt`].
    pub fn capture(
        &mut self,
        captured: BTreeSet<VifId>,
        policy: &Policy,
    ) -> Result<bool, PortError> {
        self.paths.capture(captured, clock::now(), policy, &self.attached, &mut self.plane)
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
    fn new(name: &str, iface: u32, vif: Option<VifId>, opened: Opened) -> Self {
        let Opened { port, fallback } = opened;
        let driver = match &port {
            AnyPort::Xdp(port) => {
                let copies = if port.bound() == BindMode::Copy { "copy" } else { "zero-copy" };
                format!("xdp {:?} {copies}", port.attached()).to_lowercase()
            }
            other => other.kind().to_owned(),
        };
        let holds_back = matches!(port, AnyPort::Memory(_));
        let (name, iface, flood, flush_again) = (name.to_owned(), IfaceId(iface), None, false);
        Self { name, iface, vif, port, driver, fallback, flood, flush_again, holds_back }
    }

    /// How many frames may be read now: a sender that can wait does, when its queue is full.
    pub fn receive_limit(&self, now: Instant, switch: &Switch) -> usize {
        match self.vif {
            Some(vif) if self.holds_back => switch.credit(now, vif, Direction::Send) as usize,
            _ => usize::MAX,
        }
    }
}

/// A device that was opened.
#[derive(Debug)]
struct Opened<T = AnyPort> {
    port: T,
    /// Why it is not the best way.
    fallback: Option<String>,
}

/// Opens a device as the policy says, or in the best way that works.
fn open(
    device: &str,
    kind: Kind,
    role: Role,
    plane: &mut DataPlane,
    pool: &mut Pool,
) -> Result<Opened, PortError> {
    let mut xdp = || XdpPort::open(&XdpConfig::new(device, role), plane, pool).map(AnyPort::Xdp);
    let best = |port| Opened { port, fallback: None };
    match kind {
        Kind::Xdp | Kind::Host => xdp().map(best),
        Kind::Auto => {
            let opened = xdp();
            or_packet(device, opened, || packet(device, plane))
        }
        Kind::Packet => packet(device, plane).map(best),
        Kind::Tap => {
            let port = TapPort::open(&TapConfig::new(device))?;
            Ok(best(AnyPort::Tap(Box::new(port))))
        }
        Kind::Memory | Kind::Pcap => {
            let message = "this kind has no device; it is for tests that open their own".to_owned();
            Err(PortError::bound(device, message))
        }
    }
}

/// What XDP opened, or a packet socket and why.
fn or_packet<T>(
    device: &str,
    xdp: Result<T, PortError>,
    packet: impl FnOnce() -> Result<T, PortError>,
) -> Result<Opened<T>, PortError> {
    let error = match xdp {
        Ok(port) => return Ok(Opened { port, fallback: None }),
        Err(error) => error,
    };
    // Somebody else's program is there, another node's perhaps: beside it a packet socket would
    // forward every frame a second time.
    if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
        return Err(error);
    }
    match packet() {
        Ok(port) => Ok(Opened { port, fallback: Some(error.to_string()) }),
        Err(other) => Err(PortError::bound(device, format!("by XDP: {error}; else: {other}"))),
    }
}

fn packet(device: &str, plane: &DataPlane) -> Result<AnyPort, PortError> {
    let port = PacketPort::open(&PacketConfig::new(device), Some(plane))?;
    Ok(AnyPort::Packet(Box::new(port)))
}

/// Room for the policy's own interfaces, which are fixed while the node runs, and for addresses
/// that the bridge learns.
fn limits(policy: &Policy) -> PlaneLimits {
    let (vifs, ports) = (id_of(policy.vifs.len()), id_of(policy.ports.len()));
    let interfaces = vifs.saturating_add(ports);
    let macs: usize = policy.vifs.iter().map(|vif| vif.macs.len()).sum();
    PlaneLimits {
        gates: vifs.saturating_mul(2).saturating_add(ports).max(1),
        devices: interfaces.max(1),
        sockets: interfaces.saturating_mul(QUEUES_EACH).max(1),
        stations: id_of(macs).saturating_add(STATIONS_SPARE),
    }
}

pub(crate) const fn vif_gate(vif: VifId, direction: Direction) -> GateId {
    GateId(vif.0 * 2 + direction as u32)
}

fn flood_gate(policy: &Policy, port: u32) -> GateId {
    GateId(id_of(policy.vifs.len()).saturating_mul(2).saturating_add(port))
}

/// Policies have at most some ten thousand of anything.
fn id_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A credit costs some 20 ns, and a turn of a full batch some 50 µs.
const GRANTS_A_TURN: u32 = 64;

/// Broadcast, multicast and unknown frames of a port in flight: an ARP storm of a whole rack fits
/// between two turns, and an eighth of a receive ring is all that it can fill.
const FLOOD_CREDIT: u32 = 256;

/// Receive queues of a device, on average over all.
const QUEUES_EACH: u32 = 16;

/// For addresses that the bridge learns.
const STATIONS_SPARE: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that is slower than its operator thinks must say so, and why.
    #[test]
    fn a_fallback_to_a_packet_socket_keeps_its_reason() {
        let failed =
            |errno: Errno| Err(PortError::system("eth0", "attach", std::io::Error::from(errno)));
        let opened = or_packet("eth0", Ok("xdp"), || Ok("packet")).unwrap();
        assert_eq!((opened.port, opened.fallback), ("xdp", None));
        let opened = or_packet("eth0", failed(Errno::OPNOTSUPP), || Ok("packet")).unwrap();
        assert_eq!(opened.port, "packet");
        assert!(opened.fallback.unwrap().starts_with("eth0: cannot attach: "));
        let busy = or_packet("eth0", failed(Errno::BUSY), || Ok("packet")).unwrap_err();
        assert_eq!(busy.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
        let none = or_packet("eth0", failed(Errno::OPNOTSUPP), || failed(Errno::PERM));
        let text = none.unwrap_err().to_string();
        assert!(
            text.contains("Operation not supported") && text.contains("not permitted"),
            "{text}"
        );
    }
}
