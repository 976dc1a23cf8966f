// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that the node has opened, until it is closed.
//!
//! A device is first *opened* (it has a socket and gates, but no place in a policy), then
//! *attached* (it is an interface of the switch), then *detached* (the worker has let it go, its
//! socket is still open), and at last closed. Its gates stay the same all that time. A gate is the
//! place in the kernel's table where the credit and the drops of one direction of a vif are
//! counted; a vif has two gates (send, receive), a port has one, for frames that belong to no vif
//! in particular.

use weir_policy::{Kind, Policy, VifId};
use weir_ports::{AnyPort, ClosingPort, FramePort, GateId, Gates, XdpPort};
use weir_switch::{Direction, IfaceId, Reason, Switch, Tally};
use weir_units::{ByteCount, Instant};

/// An interface of the switch and the device that is its outside.
#[derive(Debug)]
pub struct AttachedDevice {
    /// The name of the port or vif in the policy.
    pub name: String,
    /// The interface in the switch, once the switch has the policy.
    pub iface: IfaceId,
    /// The vif; `None` for a port.
    pub vif: Option<VifId>,
    /// The name of the device in the policy.
    pub device: String,
    /// The kind that the policy gives the device.
    pub kind: Kind,
    /// The open device.
    pub port: AnyPort,
    /// A description for people of how the device is driven.
    pub driver: String,
    /// Why XDP, which was tried first, does not drive the device.
    pub fallback: Option<String>,
    /// The gates through which its frames enter.
    pub(crate) gates: DeviceGates,
    /// True if frames stayed in the device's ring at the last flush.
    pub flush_again: bool,
    /// Most bytes that may be handed to the device and not taken by its receiver; `None`: as many
    /// as its ring holds.
    pub in_flight_max: Option<u64>,
    /// Times that due frames waited because `in_flight_max` was reached or the ring was full.
    pub held: u64,
    /// True if reading stops when the vif's queue is full, so that its sender waits.
    pub holds_back: bool,
}

/// The gates of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceGates {
    /// The gate of a port, for frames that belong to no vif in particular.
    Port(GateId),
    /// The gates of a vif: send, receive.
    Vif([GateId; 2]),
}

/// A device that the worker has let go. Its gates are free again once it is closed.
#[derive(Debug)]
pub struct DetachedDevice {
    /// The name of the device.
    pub device: String,
    pub(crate) gates: DeviceGates,
    pub(crate) port: ClosingPort,
    /// The drops of its gates at that moment. The program drops more until it is detached from the
    /// device.
    pub(crate) dropped: u64,
}

/// Frames of a device that were dropped before the switch saw them and belong to no vif.
pub type EarlyDrops = [(Reason, Tally); 4];

impl AttachedDevice {
    /// Returns how many frames may be read now. A sender that can wait is made to wait while its
    /// queue is full.
    pub fn receive_limit(&self, now: Instant, switch: &Switch) -> usize {
        match self.vif {
            Some(vif) if self.holds_back => switch.credit(now, vif, Direction::Send) as usize,
            _ => usize::MAX,
        }
    }

    /// Bounds the frames that are on their way to a vif's device. A port has the whole ring: its
    /// scheduler paces it by the link's rate.
    pub(crate) fn bound_in_flight(&mut self, policy: &Policy) {
        let vif = self.vif.and_then(|vif| policy.vifs.get(vif.0 as usize));
        let bytes = vif.and_then(|vif| policy.in_flight(vif)).map(ByteCount::get);
        let bounds = self.port.bound_outstanding(bytes);
        self.in_flight_max = bytes.filter(|_| bounds);
    }

    /// Returns the gate for frames that belong to no vif in particular, if this is a port.
    pub(crate) const fn port_gate(&self) -> Option<GateId> {
        match self.gates {
            DeviceGates::Port(gate) => Some(gate),
            DeviceGates::Vif(_) => None,
        }
    }

    /// Tells whether this is `device`, in the same role and driven the same way.
    pub(crate) fn matches(&self, device: &str, kind: Kind, is_port: bool) -> bool {
        let same_role = is_port == matches!(self.gates, DeviceGates::Port(_));
        same_role && self.kind == kind && self.device == device
    }

    /// Returns the index by which the kernel's tables know the device, if XDP drives it.
    pub(crate) fn device_index(&self) -> Option<u32> {
        match &self.port {
            AnyPort::Xdp(port) => Some(port.device_index()),
            _ => None,
        }
    }
}

impl DeviceGates {
    /// Returns the two gates of a vif.
    pub(crate) const fn of_vif(&self) -> Option<[GateId; 2]> {
        match self {
            Self::Port(_) => None,
            Self::Vif(gates) => Some(*gates),
        }
    }

    /// Returns the number of frames that these gates have dropped since they were made.
    pub(crate) fn dropped(&self, gates: &Gates) -> u64 {
        self.all().iter().map(|gate| gates.counters(*gate).dropped.packets).sum()
    }

    pub(crate) fn all(&self) -> &[GateId] {
        match self {
            Self::Port(gate) => std::slice::from_ref(gate),
            Self::Vif(gates) => gates,
        }
    }
}

/// Converts a count of things in a policy to an id. Policies have at most some ten thousand of
/// anything.
pub(crate) fn id_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the device of an interface, if XDP drives it.
pub(crate) fn xdp_port(attached: &[AttachedDevice], index: usize) -> Option<&XdpPort> {
    match attached.get(index).map(|attached| &attached.port) {
        Some(AnyPort::Xdp(port)) => Some(port),
        _ => None,
    }
}
