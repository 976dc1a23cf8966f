// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a frame was dropped: one enum for the whole switch.

use core::fmt;

use weir_sched::DropReason;

/// Why a frame did not pass. Every drop is counted under exactly one reason at the interface and
/// direction it is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Shorter than its Ethernet header (14 bytes; 18 with a tag).
    Truncated,
    /// Longer than the interface may carry.
    Oversize,
    /// The source address is a group address or zero.
    BadSource,
    /// The destination is reserved for the link itself (01:80:c2:00:00:0x, IEEE 802.1Q §8.6.3).
    ReservedGroup,
    /// A vif's frames carry no VLAN tag and, on a node with parallel internets, none of their
    /// headers; this one did.
    UnexpectedTag,
    /// The tag belongs to no slice with a vif on this port; or an untagged frame where all are.
    UnknownVlan,
    /// A second tag behind the first, or behind the header of a parallel internet.
    NestedTag,
    /// Cut off within the header of a parallel internet.
    PihShort,
    /// No slice with a vif on this port is the parallel internet of the frame.
    PihUnknown,
    /// The frame matches the five-tuple of no slice on this port, and no slice here is without
    /// five-tuples and header.
    FiveTupleUnknown,
    /// The frame's chunk lies beyond the table of the switch, or the interface does not exist.
    Unknown,
    /// Anti-spoofing: a source MAC that is not the vif's.
    SpoofedMac,
    /// Anti-spoofing: a source address, or an ARP or ND sender, that is not the vif's.
    SpoofedAddress,
    /// The source MAC lives elsewhere: a spoof or a loop.
    Moved,
    /// The vif has as many MACs as it may.
    MacsFull,
    /// Above the limit of broadcast, multicast and unknown frames.
    Storm,
    /// A filter rule of the vif.
    Filtered,
    /// Above the vif's packet rate.
    VifPackets,
    /// Above the router's packet rate: refused, or given up while it waited for the limit.
    RouterPackets,
    /// Above the slice's packet rate.
    SlicePackets,
    /// Above the vif's bit rate, where it is policed rather than shaped.
    VifBits,
    /// Above the router's bit rate, where it is policed rather than shaped.
    RouterBits,
    /// Above the slice's bit rate, where it is policed rather than shaped.
    SliceBits,
    /// The smooth window of the vif would have to hold it for longer than `delay_max`.
    Shaper,
    /// The queue holds its bound of packets.
    QueuePackets,
    /// The queue holds its bound of bytes.
    QueueBytes,
    /// The queue holds its share of the frame pool, which is nearly used up.
    PoolShare,
    /// No free chunk for a flooded copy.
    PoolExhausted,
    /// No room before the frame for a VLAN tag.
    NoHeadroom,
    /// Nobody to give it to: the destination is the interface it came from, or no vif is there.
    NoDestination,
    /// The other vif refused it; the cause is counted there, under `receive`.
    RefusedByReceiver,
    /// Dropped before it was copied, for lack of credit.
    NoCredit,
    /// Given up by active queue management after it had been queued.
    Codel,
    /// Its vif or its queue was taken away by a change of policy.
    Removed,
    /// The device behind the interface refused it after it had offered room.
    RefusedByPort,
}

impl Reason {
    /// The number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// All, in the order of their discriminants.
    pub const ALL: [Self; 35] = [
        Self::Truncated,
        Self::Oversize,
        Self::BadSource,
        Self::ReservedGroup,
        Self::UnexpectedTag,
        Self::UnknownVlan,
        Self::NestedTag,
        Self::PihShort,
        Self::PihUnknown,
        Self::FiveTupleUnknown,
        Self::Unknown,
        Self::SpoofedMac,
        Self::SpoofedAddress,
        Self::Moved,
        Self::MacsFull,
        Self::Storm,
        Self::Filtered,
        Self::VifPackets,
        Self::RouterPackets,
        Self::SlicePackets,
        Self::VifBits,
        Self::RouterBits,
        Self::SliceBits,
        Self::Shaper,
        Self::QueuePackets,
        Self::QueueBytes,
        Self::PoolShare,
        Self::PoolExhausted,
        Self::NoHeadroom,
        Self::NoDestination,
        Self::RefusedByReceiver,
        Self::NoCredit,
        Self::Codel,
        Self::Removed,
        Self::RefusedByPort,
    ];

    /// The reasons that a frame can still meet after it was queued.
    pub const AFTER_QUEUE: [Self; 6] = [
        Self::RouterPackets,
        Self::Codel,
        Self::Removed,
        Self::NoHeadroom,
        Self::RefusedByPort,
        Self::RefusedByReceiver,
    ];

    /// Returns the name in metrics and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Oversize => "oversize",
            Self::BadSource => "bad_source",
            Self::ReservedGroup => "reserved_group",
            Self::UnexpectedTag => "unexpected_tag",
            Self::UnknownVlan => "unknown_vlan",
            Self::NestedTag => "nested_tag",
            Self::PihShort => "pih_short",
            Self::PihUnknown => "pih_unknown",
            Self::FiveTupleUnknown => "five_tuple_unknown",
            Self::Unknown => "unknown",
            Self::SpoofedMac => "spoofed_mac",
            Self::SpoofedAddress => "spoofed_address",
            Self::Moved => "moved",
            Self::MacsFull => "macs_full",
            Self::Storm => "storm",
            Self::Filtered => "filtered",
            Self::VifPackets => "vif_packets",
            Self::RouterPackets => "router_packets",
            Self::SlicePackets => "slice_packets",
            Self::VifBits => "vif_bits",
            Self::RouterBits => "router_bits",
            Self::SliceBits => "slice_bits",
            Self::Shaper => "shaper",
            Self::QueuePackets => "queue_packets",
            Self::QueueBytes => "queue_bytes",
            Self::PoolShare => "pool_share",
            Self::PoolExhausted => "pool_exhausted",
            Self::NoHeadroom => "no_headroom",
            Self::NoDestination => "no_destination",
            Self::RefusedByReceiver => "refused_by_receiver",
            Self::NoCredit => "no_credit",
            Self::Codel => "codel",
            Self::Removed => "removed",
            Self::RefusedByPort => "refused_by_port",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<DropReason> for Reason {
    fn from(reason: DropReason) -> Self {
        match reason {
            DropReason::QueuePackets => Self::QueuePackets,
            DropReason::QueueBytes => Self::QueueBytes,
            DropReason::AllQueues => Self::PoolShare,
            DropReason::Codel => Self::Codel,
            DropReason::NoSuchQueue => Self::Removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reasons_stand_at_their_discriminant() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index, "{reason}");
        }
        assert_eq!(Reason::COUNT, Reason::RefusedByPort as usize + 1);
    }
}
