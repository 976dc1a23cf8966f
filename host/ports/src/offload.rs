// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The offloads of a device, and what each means for a port on it.
//!
//! An offload lets the kernel hand on less than whole frames of the wire: without checksum, without
//! tag, or many frames in one. A port either completes them, or they must be off.

use std::fmt;
use std::ptr;

use crate::error::PortError;
use crate::link;

/// An offload, by its short name in `ethtool -K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offload {
    /// `tx`: checksums are left to the device on transmission.
    TxChecksum,
    /// `tso`: TCP is segmented by the device.
    Tso,
    /// `gso`: super-frames are segmented just before the device.
    Gso,
    /// `gro`: received frames are joined before the stack.
    Gro,
    /// `lro`: received frames are joined by the device.
    Lro,
    /// `txvlan`: the device inserts the tag.
    TxVlan,
    /// `rxvlan`: the device takes the tag off.
    RxVlan,
}

/// The relation of a device to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadPlace {
    /// The device of an XDP port, with the program in its driver.
    XdpNative,
    /// The device of an XDP port, with the program in the kernel's receive path.
    XdpGeneric,
    /// The other end of a veth pair whose end here is an XDP port.
    PeerOfXdp,
    /// Like [`Self::PeerOfXdp`], on the redirected path: nothing in user space finishes anything.
    PeerOfRedirected,
    /// The device of a packet socket, or its peer, or a TAP device.
    Packet,
}

/// The treatment of an offload that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It does not touch what the port sees.
    Harmless,
    /// Weir finishes what the offload left undone.
    Completed,
    /// The kernel keeps it off while the XDP program is attached.
    Suspended,
    /// It must be off before the port carries traffic.
    TurnOff,
    /// It must be on before the port carries traffic.
    TurnOn,
}

/// An offload of a device: whether it is on, and what that means at its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadNote {
    /// The device.
    pub device: String,
    /// The offload.
    pub offload: Offload,
    /// True if it is on.
    pub on: bool,
    /// Its treatment.
    pub treatment: Treatment,
    /// Why, in one clause.
    pub why: &'static str,
}

impl Offload {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::TxChecksum, Self::Tso, Self::Gso, Self::Gro, Self::Lro, Self::TxVlan, Self::RxVlan];

    /// Returns the short name that `ethtool -K` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TxChecksum => "tx",
            Self::Tso => "tso",
            Self::Gso => "gso",
            Self::Gro => "gro",
            Self::Lro => "lro",
            Self::TxVlan => "txvlan",
            Self::RxVlan => "rxvlan",
        }
    }

    /// Returns whether the device has it on now. A driver that does not know the offload has it
    /// off.
    ///
    /// # Errors
    /// The device is not there.
    pub fn read(self, device: &str) -> Result<bool, PortError> {
        link::ifindex(device)?;
        let (command, bits) = match self {
            Self::TxChecksum => (ETHTOOL_GTXCSUM, 1),
            Self::Tso => (ETHTOOL_GTSO, 1),
            Self::Gso => (ETHTOOL_GGSO, 1),
            Self::Gro => (ETHTOOL_GGRO, 1),
            Self::Lro => (ETHTOOL_GFLAGS, ETH_FLAG_LRO),
            Self::TxVlan => (ETHTOOL_GFLAGS, ETH_FLAG_TXVLAN),
            Self::RxVlan => (ETHTOOL_GFLAGS, ETH_FLAG_RXVLAN),
        };
        // struct ethtool_value: command, data.
        let mut value = [command, 0_u32];
        let read = link::ethtool(device, ptr::from_mut(&mut value).cast());
        Ok(read.is_ok() && value[1] & bits != 0)
    }

    /// Returns how a port at that place treats the offload, and the reason.
    #[must_use]
    pub fn treatment(self, place: OffloadPlace) -> (Treatment, &'static str) {
        use Treatment::{Completed, Harmless, Suspended, TurnOff, TurnOn};
        match (place, self) {
            (OffloadPlace::XdpNative | OffloadPlace::XdpGeneric, Self::RxVlan) => {
                (TurnOff, "the tag must stand in the frame, where the program looks for it")
            }
            (OffloadPlace::XdpNative | OffloadPlace::XdpGeneric, Self::Lro) => {
                (TurnOff, "a joined frame does not fit a chunk")
            }
            (OffloadPlace::XdpNative, Self::Gro) => (Harmless, "it comes after the program"),
            (OffloadPlace::XdpGeneric, Self::Gro) => {
                (TurnOff, "it joins frames before the program")
            }
            (OffloadPlace::XdpNative | OffloadPlace::XdpGeneric, _) => {
                (Harmless, "frames are sent complete")
            }
            (OffloadPlace::PeerOfXdp, Self::TxChecksum) => {
                (Completed, "the switch finishes checksums")
            }
            (OffloadPlace::PeerOfRedirected, Self::TxChecksum) => {
                (TurnOff, "a redirected frame's checksum is finished by nobody")
            }
            (OffloadPlace::PeerOfXdp | OffloadPlace::PeerOfRedirected, Self::Tso | Self::Gso) => {
                (Suspended, "veth segments first while its peer runs a program")
            }
            (OffloadPlace::PeerOfXdp | OffloadPlace::PeerOfRedirected, Self::TxVlan) => {
                (TurnOff, "the tag must stand in the frame, where the program looks for it")
            }
            (OffloadPlace::PeerOfRedirected, Self::Gro) => {
                (TurnOn, "without it a veth takes no redirects")
            }
            (OffloadPlace::PeerOfXdp | OffloadPlace::PeerOfRedirected, _) => {
                (Harmless, "it concerns what the tenant receives")
            }
            (OffloadPlace::Packet, Self::RxVlan | Self::TxVlan) => {
                (Completed, "the tag is put back")
            }
            (OffloadPlace::Packet, Self::TxChecksum) => (Completed, "the port finishes checksums"),
            (OffloadPlace::Packet, _) => (Completed, "the port cuts super-frames"),
        }
    }
}

/// Returns all offloads of a device at that place.
///
/// # Errors
/// The device is not there.
pub fn describe(device: &str, place: OffloadPlace) -> Result<Vec<OffloadNote>, PortError> {
    let note = |offload: Offload| {
        let (treatment, why) = offload.treatment(place);
        let on = offload.read(device)?;
        Ok(OffloadNote { device: device.to_owned(), offload, on, treatment, why })
    };
    Offload::ALL.into_iter().map(note).collect()
}

impl OffloadNote {
    /// Returns whether something is to be done before the port carries traffic.
    #[must_use]
    pub fn must_change(&self) -> bool {
        match self.treatment {
            Treatment::TurnOff => self.on,
            Treatment::TurnOn => !self.on,
            _ => false,
        }
    }

    /// Returns the command that switches the offload, as a person would type it. The command that
    /// undoes it ends with the opposite word.
    #[must_use]
    pub fn command(&self) -> String {
        let word = if self.on { "off" } else { "on" };
        format!("ethtool -K {} {} {word}", self.device, self.offload.name())
    }
}

/// For example `up0: rxvlan is on; must be off: the tag must stand in the frame, …`.
impl fmt::Display for OffloadNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, name) = (&self.device, self.offload.name());
        if !self.on {
            let must = if self.must_change() { "; must be on: " } else { "" };
            let why = if self.must_change() { self.why } else { "" };
            return write!(f, "{device}: {name} is off{must}{why}");
        }
        let what = match self.treatment {
            Treatment::Harmless => "harmless",
            Treatment::Completed => "completed",
            Treatment::Suspended => "kept off by the kernel",
            Treatment::TurnOff => "must be off",
            Treatment::TurnOn => "needed",
        };
        write!(f, "{device}: {name} is on; {what}: {}", self.why)
    }
}

/// From `linux/ethtool.h`. The old commands for single offloads are understood by every kernel.
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETH_FLAG_LRO: u32 = 1 << 15;
