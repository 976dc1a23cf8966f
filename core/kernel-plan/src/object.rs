// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel objects that a plan makes: each has an identity and values.
//!
//! A setup lists each object after the objects that it depends on: a class after its parent, a
//! program after the table entry that it reads.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketTerms;
use crate::terms::{ClassTerms, LeafKind, QdiscTree};

/// An object of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelObject {
    /// A device (ifb) in whose tree frames from a port wait.
    Inbound(InboundObject),
    /// The scheduler of a device.
    Root(RootObject),
    /// A class of a device's scheduler.
    Class(ClassObject),
    /// The queue of a class without children.
    Leaf(LeafObject),
    /// A limit in the table of the programs.
    Bucket(BucketObject),
    /// A port in the table of the programs.
    Uplink(UplinkObject),
    /// A vif in the table of the programs.
    Member(MemberObject),
    /// A device whose frames may leave past the bridge, in the table of the programs.
    Exit(ExitObject),
    /// The discipline to which a device's programs are attached as filters, before Linux 6.6.
    Clsact(ClsactObject),
    /// A program at a device.
    Program(ProgramObject),
    /// A filter that leads frames to a class, on a host without programs.
    Filter(FilterObject),
    /// A bridge that joins the members of a VLAN.
    Bridge(BridgeObject),
    /// The filter that keeps the frames of a VLAN's bridge from the host itself.
    Seal(SealObject),
    /// A device with the frames of one VLAN of a port.
    Vlan(VlanObject),
    /// A device's membership of a VLAN's bridge.
    Joined(JoinedObject),
}

/// A device (ifb) in whose tree frames from a port wait, and from which they go on to the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundObject {
    /// The device, which is made.
    pub device: String,
}

/// The scheduler of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootObject {
    /// The device.
    pub device: String,
    /// The scheduler.
    pub tree: QdiscTree,
    /// True if somebody had put a `noqueue` on the device, as libvirt does. A `noqueue` holds no
    /// frames, so the tree may replace it; when the tree is removed, the `noqueue` is put back.
    #[serde(default)]
    pub over_noqueue: bool,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassObject {
    /// The device.
    pub device: String,
    /// Its number.
    pub minor: u16,
    /// Its parent's number; 0: the root.
    pub parent: u16,
    /// The values.
    pub terms: ClassTerms,
}

/// A class's queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafObject {
    /// The device.
    pub device: String,
    /// The class's number.
    pub minor: u16,
    /// The queue.
    pub kind: LeafKind,
}

/// A limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketObject {
    /// The owner's number: of a slice, router or vif.
    pub owner: u16,
    /// The kind.
    pub unit: BucketUnit,
    /// The values.
    pub terms: BucketTerms,
}

/// The direction and the unit of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BucketUnit {
    /// Packets from vifs.
    SendPackets,
    /// Bits from vifs.
    SendBits,
    /// Packets towards vifs.
    ReceivePackets,
    /// Bits towards vifs.
    ReceiveBits,
}

/// A port, as the programs know it by its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkObject {
    /// The port's device.
    pub device: String,
    /// Its bridge. Within a bridge, an address belongs to one vif.
    pub bridge: String,
    /// The device in whose tree its frames wait before they cross the bridge; `None`: they do not
    /// wait.
    #[serde(default)]
    pub through: Option<String>,
}

/// A vif, as the programs know it by its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberObject {
    /// The vif's device.
    pub device: String,
    /// The number of its class, and of its counters.
    pub owner: u16,
    /// The number of its slice.
    pub slice: u16,
    /// Its bridge. Within a bridge, an address belongs to one vif.
    pub bridge: String,
    /// Source addresses allowed; empty: any address that belongs to nobody else.
    pub macs: Vec<[u8; 6]>,
    /// Most addresses that are learned for it, if `macs` is empty.
    pub macs_max: u32,
    /// Owners whose limits apply, from the vif upwards; 0: none at that level.
    pub limits: [u16; 3],
}

/// A device whose frames may be redirected past the bridge, and that takes redirected frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitObject {
    /// The device: of a vif, or of a port.
    pub device: String,
    /// The destination of its redirected frames. For a vif: the port's device. For a port: the
    /// bridge, whose vifs the frames are for.
    pub to: String,
    /// The longest frame that the device takes, bytes without FCS.
    pub frame_max: u32,
}

/// A `clsact` discipline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClsactObject {
    /// The device.
    pub device: String,
}

/// A program at a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramObject {
    /// The device.
    pub device: String,
    /// The place at the device.
    pub hook: Hook,
}

/// A filter at the root of a port's tree: frames of a VLAN, or of one source address in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterObject {
    /// The port's device.
    pub device: String,
    /// The VLAN.
    pub vlan: u16,
    /// The source address; `None`: any address that no other filter of the VLAN names.
    pub mac: Option<[u8; 6]>,
    /// The number of the class that it leads to.
    pub minor: u16,
}

/// A bridge for one VLAN of a port. The host itself does not take part in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeObject {
    /// The bridge, which is made.
    pub device: String,
}

/// The filter that keeps a bridge's frames from the host itself. The host has no address there, but
/// without the filter it would still answer requests and accept router advertisements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealObject {
    /// The bridge.
    pub device: String,
}

/// A device with the frames of one VLAN of a port, without their tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanObject {
    /// The device, which is made.
    pub device: String,
    /// The port's device.
    pub port: String,
    /// The VLAN.
    pub vlan: u16,
}

/// A device's membership of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedObject {
    /// The device.
    pub device: String,
    /// The bridge.
    pub bridge: String,
}

/// The place of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Frames from the vif: the ingress of its device on the host.
    Send,
    /// Frames towards the vif: the egress of its device on the host.
    Receive,
    /// Frames towards a port: the egress of its device, before the tree.
    Port,
    /// Frames from beyond a port: the ingress of its device.
    Uplink,
}

/// The identity of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKey<'o> {
    /// By device.
    Inbound(&'o str),
    /// By device.
    Root(&'o str),
    /// By device and number.
    Class(&'o str, u16),
    /// By device and number.
    Leaf(&'o str, u16),
    /// By owner and unit.
    Bucket(u16, BucketUnit),
    /// By device.
    Uplink(&'o str),
    /// By device.
    Member(&'o str),
    /// By device.
    Exit(&'o str),
    /// By device.
    Clsact(&'o str),
    /// By device and place.
    Program(&'o str, Hook),
    /// By device, VLAN and source address.
    Filter(&'o str, u16, Option<[u8; 6]>),
    /// By device.
    Bridge(&'o str),
    /// By device.
    Seal(&'o str),
    /// By device.
    Vlan(&'o str),
    /// By device.
    Joined(&'o str),
}

impl KernelObject {
    /// Returns true for a device or a discipline of a device: such an object has one owner and no
    /// values.
    #[must_use]
    pub const fn is_owned(&self) -> bool {
        matches!(
            self,
            Self::Root(_) | Self::Inbound(_) | Self::Clsact(_) | Self::Bridge(_) | Self::Vlan(_)
        )
    }

    /// Returns the identity.
    #[must_use]
    pub fn key(&self) -> ObjectKey<'_> {
        match self {
            Self::Inbound(inbound) => ObjectKey::Inbound(&inbound.device),
            Self::Root(root) => ObjectKey::Root(&root.device),
            Self::Class(class) => ObjectKey::Class(&class.device, class.minor),
            Self::Leaf(leaf) => ObjectKey::Leaf(&leaf.device, leaf.minor),
            Self::Bucket(bucket) => ObjectKey::Bucket(bucket.owner, bucket.unit),
            Self::Uplink(uplink) => ObjectKey::Uplink(&uplink.device),
            Self::Member(member) => ObjectKey::Member(&member.device),
            Self::Exit(exit) => ObjectKey::Exit(&exit.device),
            Self::Clsact(clsact) => ObjectKey::Clsact(&clsact.device),
            Self::Program(program) => ObjectKey::Program(&program.device, program.hook),
            Self::Filter(filter) => ObjectKey::Filter(&filter.device, filter.vlan, filter.mac),
            Self::Seal(seal) => ObjectKey::Seal(&seal.device),
            Self::Bridge(bridge) => ObjectKey::Bridge(&bridge.device),
            Self::Vlan(vlan) => ObjectKey::Vlan(&vlan.device),
            Self::Joined(joined) => ObjectKey::Joined(&joined.device),
        }
    }
}

impl BucketUnit {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 4] =
        [Self::SendPackets, Self::SendBits, Self::ReceivePackets, Self::ReceiveBits];

    /// Returns the number within an owner's buckets.
    #[must_use]
    pub const fn index(self) -> u32 {
        self as u32
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SendPackets => "send packets",
            Self::SendBits => "send bits",
            Self::ReceivePackets => "receive packets",
            Self::ReceiveBits => "receive bits",
        }
    }
}

impl Hook {
    /// All.
    pub const ALL: [Self; 4] = [Self::Send, Self::Receive, Self::Port, Self::Uplink];
    /// The hooks at a vif's device.
    pub const OF_VIF: [Self; 2] = [Self::Send, Self::Receive];
    /// The hooks at a port's device.
    pub const OF_PORT: [Self; 2] = [Self::Port, Self::Uplink];

    /// Returns the program's name.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Send => "weir_from_vif",
            Self::Receive => "weir_to_vif",
            Self::Port => "weir_to_port",
            Self::Uplink => "weir_from_port",
        }
    }

    /// Returns the hook's name in the kernel.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send | Self::Uplink => "tcx_ingress",
            Self::Receive | Self::Port => "tcx_egress",
        }
    }
}
