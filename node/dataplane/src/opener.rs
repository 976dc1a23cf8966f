// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opens and closes devices while the worker moves frames.
//!
//! Opening a device takes milliseconds: sockets, rings, a program to attach. This happens on the
//! control thread; the worker receives devices that are ready, and returns those that it no longer
//! needs.
//!
//! Each open device has gates of its own. Their number is fixed when the kernel's tables are made:
//! there are places for the interfaces of the first policy and for `VIFS_SPARE` further vifs and
//! `PORTS_SPARE` further ports. Tables that an earlier process left are adopted if they have room.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustix::io::Errno;
use weir_policy::{Kind, Policy, Port, RingFrames};
use weir_ports::{
    AnyPort, BindMode, DevicePropertyCache, DeviceRole, Devices, GateId, LentChunks, PacketConfig,
    PacketPort, Pins, PlaneLimits, Pool, PortError, Region, TapConfig, TapPort, XdpConfig,
    XdpPlane, XdpPort,
};
use weir_switch::IfaceId;

use crate::device::{AttachedDevice, DetachedDevice, DeviceGates, id_of};

/// Opens devices. It may be used on any thread.
#[derive(Debug)]
pub struct Opener {
    devices: Arc<Devices>,
    region: Region,
    device_properties: Arc<DevicePropertyCache>,
    vifs_max: u32,
    ports_max: u32,
    /// Free places of vifs and of ports.
    free_vifs: Vec<u32>,
    free_ports: Vec<u32>,
    /// The gates of the vifs that have deep rings, [`RingFrames::DEEP_VIFS`] at most.
    deep_vifs: BTreeSet<GateId>,
}

impl Opener {
    /// Loads the kernel's program with tables for `policy` and some interfaces more, or adopts the
    /// tables of an earlier process if they have room for `policy`. Opened devices are added to
    /// `device_properties`, which is refreshed later.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn new(
        policy: &Policy,
        pool: &Pool,
        pins: Option<&Pins>,
        device_properties: &Arc<DevicePropertyCache>,
    ) -> Result<(Self, XdpPlane), PortError> {
        let sizes = pins.and_then(|pins| adoptable(policy, pins)).unwrap_or_else(|| {
            let vifs_max = id_of(policy.vifs.len()).saturating_add(VIFS_SPARE);
            let ports_max = id_of(policy.ports.len()).saturating_add(PORTS_SPARE);
            limits(policy, vifs_max, ports_max)
        });
        let plane = XdpPlane::load_with(sizes, pins)?;
        let (vifs_max, ports_max) = interfaces(sizes);
        let devices = Arc::clone(plane.devices());
        // A place that an earlier run left keeps its paths until they are swept. It is reserved for
        // the same device until the next start.
        let left: BTreeSet<GateId> = devices.left_roles().into_iter().map(first_gate).collect();
        let free = |gate: u32| !left.contains(&GateId(gate));
        let opener = Self {
            devices,
            region: pool.region().clone(),
            device_properties: Arc::clone(device_properties),
            vifs_max,
            ports_max,
            free_vifs: (0..vifs_max).rev().filter(|place| free(2 * place)).collect(),
            free_ports: (0..ports_max).rev().filter(|place| free(2 * vifs_max + place)).collect(),
            deep_vifs: BTreeSet::new(),
        };
        Ok((opener, plane))
    }

    /// Returns the devices of the kernel's program, whose stand-ins are to be attached after a
    /// start.
    #[must_use]
    pub fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// Opens the devices of `policy` that `wanted` selects by name, in the order of the policy.
    ///
    /// # Errors
    /// A device cannot be opened. Those opened before it are closed.
    pub fn open(
        &mut self,
        policy: &Policy,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<AttachedDevice>, PortError> {
        let ports = policy.ports.iter();
        let ports =
            ports.map(|port| (&port.name, &port.device, port.kind, Some(port.receive_ring)));
        let vifs = policy.vifs.iter().map(|vif| (&vif.name, &vif.device, vif.kind, None));
        let mut opened = Vec::new();
        for (name, device, kind, port_ring) in ports.chain(vifs) {
            if !wanted(device) {
                continue;
            }
            match self.open_one(name, device, kind, port_ring) {
                Ok(attached) => opened.push(attached),
                Err(error) => {
                    self.give_up(opened);
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Closes devices that the worker never had. The state that an earlier run left of them is
    /// kept.
    pub fn give_up(&mut self, opened: Vec<AttachedDevice>) {
        for attached in opened {
            // Other ports hold no frames before they are first read.
            if let AnyPort::Xdp(port) = attached.port {
                self.region.retire_all(port.abandon(&self.devices));
            }
            self.free(attached.gates);
        }
    }

    /// Closes a device that the worker has detached. Returns its frames, for [`Pool::reclaim`], and
    /// how many frames were dropped there since it was detached.
    pub fn shut(&mut self, detached: DetachedDevice) -> (LentChunks, u64) {
        let lent = detached.port.shut(&self.devices);
        let dropped = detached.gates.dropped(self.devices.gates()).saturating_sub(detached.dropped);
        self.free(detached.gates);
        (lent, dropped)
    }

    fn free(&mut self, gates: DeviceGates) {
        match gates {
            DeviceGates::Vif([send, _]) => {
                self.deep_vifs.remove(&send);
                self.free_vifs.push(send.0 / 2);
            }
            DeviceGates::Port(flood) => {
                self.free_ports.push(flood.0.saturating_sub(2 * self.vifs_max))
            }
        }
    }

    fn open_one(
        &mut self,
        name: &str,
        device: &str,
        kind: Kind,
        port_ring: Option<u32>,
    ) -> Result<AttachedDevice, PortError> {
        let gates = self.take_gates(device, port_ring.is_some())?;
        let bounce = port_ring.is_none() && self.region.frames() > RingFrames::SHARED_POOL_MAX;
        let is_of_many = self.vifs_max > RingFrames::FEW_VIFS + VIFS_SPARE;
        let (role, rings) = match gates {
            DeviceGates::Port(flood) => {
                let receive = port_ring.unwrap_or(Port::RECEIVE_RING_DEFAULT);
                (DeviceRole::Port(flood), RingFrames::of_port(receive))
            }
            DeviceGates::Vif([send, _])
                if self.deep_vifs.len() < RingFrames::DEEP_VIFS && !(bounce && is_of_many) =>
            {
                (DeviceRole::Vif(send), RingFrames::DEEP_VIF)
            }
            DeviceGates::Vif([send, _]) => (DeviceRole::Vif(send), RingFrames::VIF),
        };
        let sized = XdpConfig::sized(device, role, rings.receive, rings.transmit);
        let config = XdpConfig { bounce, ..sized };
        let opened = open(&config, kind, &self.devices, &self.region);
        if opened.is_err() {
            self.free(gates);
        }
        let Opened { port, fallback } = opened?;
        if let (AnyPort::Xdp(_), DeviceRole::Vif(send), RingFrames::DEEP_VIF) = (&port, role, rings)
        {
            self.deep_vifs.insert(send);
        }
        if let Some(properties) = port.properties() {
            self.device_properties.add(properties);
        }
        Ok(attached(name, device, kind, gates, port, fallback))
    }

    /// Takes free gates for a device, or those that it had in an earlier process.
    ///
    /// # Errors
    /// None is free; the error names the bound.
    pub fn take_gates(&mut self, device: &str, is_port: bool) -> Result<DeviceGates, PortError> {
        let (free, what, most) = match is_port {
            true => (&mut self.free_ports, "ports", self.ports_max),
            false => (&mut self.free_vifs, "vifs", self.vifs_max),
        };
        let before = self.devices.left(device).and_then(|role| match role {
            DeviceRole::Port(flood) if is_port => flood.0.checked_sub(2 * self.vifs_max),
            DeviceRole::Vif(send) if !is_port => Some(send.0 / 2),
            _ => None,
        });
        let place = before.or_else(|| free.pop()).ok_or_else(|| {
            let bound =
                format!("one more than the {most} {what} that the running node has room for");
            PortError::bound(device, format!("{bound}; start it again"))
        })?;
        Ok(match is_port {
            true => DeviceGates::Port(GateId(2 * self.vifs_max + place)),
            false => DeviceGates::Vif([GateId(2 * place), GateId(2 * place + 1)]),
        })
    }
}

/// Returns the gate that identifies a place.
const fn first_gate(role: DeviceRole) -> GateId {
    match role {
        DeviceRole::Vif(gate) | DeviceRole::Port(gate) => gate,
    }
}

/// Returns the sizes of the tables that an earlier process left, if they have room for `policy`.
pub fn adoptable(policy: &Policy, pins: &Pins) -> Option<PlaneLimits> {
    let there = pins.limits()?;
    let (vifs, ports) = (id_of(policy.vifs.len()), id_of(policy.ports.len()));
    let (vifs_max, ports_max) = interfaces(there);
    let needed = limits(policy, vifs, ports);
    let room = needed.sockets <= there.sockets && needed.stations <= there.stations;
    (vifs <= vifs_max && ports <= ports_max && room).then_some(there)
}

/// Returns how many vifs and ports tables of these sizes have room for. A vif takes two gates, a
/// port one.
fn interfaces(sizes: PlaneLimits) -> (u32, u32) {
    let vifs = sizes.gates.saturating_sub(sizes.devices);
    (vifs, sizes.devices.saturating_sub(vifs))
}

/// Makes the interface of an opened device. It gets its index and its vif when it gets its place in
/// a policy.
pub fn attached(
    name: &str,
    device: &str,
    kind: Kind,
    gates: DeviceGates,
    port: AnyPort,
    fallback: Option<String>,
) -> AttachedDevice {
    let driver = match &port {
        AnyPort::Xdp(port) => {
            let copies = if port.bound() == BindMode::Copy { "copy" } else { "zero-copy" };
            format!("xdp {:?} {copies}", port.attached()).to_lowercase()
        }
        other => other.kind().to_owned(),
    };
    let holds_back = matches!(port, AnyPort::Memory(_));
    AttachedDevice {
        name: name.to_owned(),
        // Both are set with the place in a policy.
        iface: IfaceId(u32::MAX),
        vif: None,
        device: device.to_owned(),
        kind,
        port,
        driver,
        fallback,
        gates,
        flush_again: false,
        in_flight_max: None,
        held: 0,
        holds_back,
    }
}

/// An opened port, and why it is not driven by XDP.
#[derive(Debug)]
struct Opened<T = AnyPort> {
    port: T,
    /// Why XDP does not drive it, if XDP was tried first.
    fallback: Option<String>,
}

/// Opens a device as its kind says; for `auto`, by XDP if that works.
fn open(
    config: &XdpConfig,
    kind: Kind,
    devices: &Devices,
    region: &Region,
) -> Result<Opened, PortError> {
    let device = config.device.as_str();
    let xdp = || XdpPort::prepare(config, devices, region).map(AnyPort::Xdp);
    let best = |port| Opened { port, fallback: None };
    match kind {
        Kind::Xdp | Kind::Host => xdp().map(best),
        Kind::Auto => or_packet(device, xdp(), || packet(device, devices)),
        Kind::Packet => packet(device, devices).map(best),
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

/// Returns the port that XDP opened, or else a packet socket and why XDP failed.
fn or_packet<T>(
    device: &str,
    xdp: Result<T, PortError>,
    packet: impl FnOnce() -> Result<T, PortError>,
) -> Result<Opened<T>, PortError> {
    let error = match xdp {
        Ok(port) => return Ok(Opened { port, fallback: None }),
        Err(error) => error,
    };
    // Another program is on the device, perhaps another node's. Beside it a packet socket would
    // forward every frame a second time.
    if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
        return Err(error);
    }
    match packet() {
        Ok(port) => Ok(Opened { port, fallback: Some(error.to_string()) }),
        Err(other) => Err(PortError::bound(device, format!("by XDP: {error}; else: {other}"))),
    }
}

fn packet(device: &str, devices: &Devices) -> Result<AnyPort, PortError> {
    let port = PacketPort::open(&PacketConfig::new(device), Some(devices))?;
    Ok(AnyPort::Packet(Box::new(port)))
}

/// Returns sizes with room for that many interfaces, and for addresses that the bridge learns.
fn limits(policy: &Policy, vifs: u32, ports: u32) -> PlaneLimits {
    let interfaces = vifs.saturating_add(ports);
    let macs: usize = policy.vifs.iter().map(|vif| vif.macs.len()).sum();
    PlaneLimits {
        gates: vifs.saturating_mul(2).saturating_add(ports),
        devices: interfaces,
        sockets: interfaces.saturating_mul(QUEUES_EACH).min(SOCKETS_MAX),
        // An address is on its slice's bridge, and may be on the bridge of all slices without a
        // header, too.
        stations: id_of(macs).saturating_mul(2).saturating_add(STATIONS_SPARE),
    }
}

/// Vifs that may be added to those of the start. Each takes 2 KiB of tables.
const VIFS_SPARE: u32 = 256;

/// Ports that may be added to those of the start.
const PORTS_SPARE: u32 = 16;

/// Receive queues of a device, on average over all.
const QUEUES_EACH: u32 = 16;

/// The most sockets that the kernel's tables can number.
const SOCKETS_MAX: u32 = 1 << 16;

/// Stations that the bridge may learn.
const STATIONS_SPARE: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that is slower than its operator thinks must say so, and why.
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
