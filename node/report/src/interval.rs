// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The traffic of one direction of one interface in an interval: the difference between two
//! statuses.
//!
//! A status holds counters since the node started. Their difference says what was offered, got and
//! dropped meanwhile. Drops are grouped by *cause*, since an owner's share has to be judged by
//! them: frames refused for what they are were never an offer; drops at a limit are the owner's or
//! its receiver's own; drops for lack of room are the node's.

use std::collections::BTreeMap;

use weir_policy::{Direction, Layer, Port, Slice};
use weir_switch::Reason;

use weir_api_types::status::{Amount, DirectionStatus};

/// The difference between two statuses of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalFlow {
    /// Frames that came in and were not refused for what they are.
    pub offered: Amount,
    /// Frames that were forwarded.
    pub got: Amount,
    /// Traffic in the queue at the beginning.
    pub waited: Amount,
    /// Traffic in the queue at the end.
    pub waits: Amount,
    /// Forwarded packets that were marked "congestion experienced".
    pub marked: u64,
    /// Packets a second that a control loop lets pass to all vifs of the router together, at the
    /// end.
    pub held_pps: Option<u64>,
    /// The same rate at the beginning, perhaps of another router.
    pub held_before_pps: Option<u64>,
    /// Drops by cause and reason. Reasons that did not occur are absent.
    pub dropped: BTreeMap<DropCause, BTreeMap<Reason, Amount>>,
    /// Frames refused for what they are, by reasons that only the kernel's data plane has. Reasons
    /// that did not occur are absent.
    pub refused_by_kernel: BTreeMap<&'static str, Amount>,
}

/// The cause of a drop, as it matters for the share of the frame's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropCause {
    /// The frame itself: malformed, spoofed, filtered, without a destination. It counts as never
    /// offered.
    Itself,
    /// A limit of its sender or of its receiver.
    Limit,
    /// A lack of room or of time.
    Room,
}

/// Returns true if a reason of this name means that a frame is refused for what it is. Such a frame
/// counts as never offered, since no guarantee applies to it.
#[must_use]
pub fn is_refusal(reason: &str) -> bool {
    let own = Reason::ALL.into_iter().find(|own| own.name() == reason);
    own.map(DropCause::of) == Some(DropCause::Itself) || KERNEL_REASONS.contains(&reason)
}

impl DropCause {
    /// Returns the cause behind a reason.
    #[must_use]
    pub const fn of(reason: Reason) -> Self {
        match reason {
            Reason::Truncated
            | Reason::Oversize
            | Reason::BadSource
            | Reason::ReservedGroup
            | Reason::UnexpectedTag
            | Reason::UnknownVlan
            | Reason::NestedTag
            | Reason::PihShort
            | Reason::PihUnknown
            | Reason::FiveTupleUnknown
            | Reason::Unknown
            | Reason::SpoofedMac
            | Reason::SpoofedAddress
            | Reason::Moved
            | Reason::MacsFull
            | Reason::Storm
            | Reason::Filtered
            | Reason::NoDestination => Self::Itself,
            Reason::VifPackets
            | Reason::RouterPackets
            | Reason::SlicePackets
            | Reason::VifBits
            | Reason::RouterBits
            | Reason::SliceBits
            | Reason::Shaper
            | Reason::RefusedByReceiver => Self::Limit,
            Reason::QueuePackets
            | Reason::QueueBytes
            | Reason::PoolShare
            | Reason::PoolExhausted
            | Reason::NoHeadroom
            | Reason::NoCredit
            | Reason::Codel
            | Reason::Removed
            | Reason::RefusedByPort => Self::Room,
        }
    }
}

impl IntervalFlow {
    /// Computes the difference. Counters that ran backwards are those of a new interface, which
    /// began at zero.
    #[must_use]
    pub fn between(before: &DirectionStatus, after: &DirectionStatus) -> Self {
        let nothing = DirectionStatus::default();
        let anew = after.received.packets < before.received.packets
            || after.sent.packets < before.sent.packets;
        let before = if anew { &nothing } else { before };
        let mut flow = Self {
            got: after.sent.minus(before.sent),
            waited: before.backlog,
            waits: after.backlog,
            marked: after.marked.saturating_sub(before.marked),
            held_pps: after.held_pps,
            held_before_pps: before.held_pps,
            ..Self::default()
        };
        for reason in Reason::ALL {
            let name = reason.name();
            let of = |status: &DirectionStatus| {
                let at = |by: &BTreeMap<String, Amount>| by.get(name).copied().unwrap_or_default();
                at(&status.dropped).plus(at(&status.dropped_after_by))
            };
            let new = of(after).minus(of(before));
            if new != Amount::default() {
                flow.dropped.entry(DropCause::of(reason)).or_default().insert(reason, new);
            }
        }
        for name in KERNEL_REASONS {
            let of = |status: &DirectionStatus| status.dropped.get(name).copied();
            let new = of(after).unwrap_or_default().minus(of(before).unwrap_or_default());
            if new != Amount::default() {
                flow.refused_by_kernel.insert(name, new);
            }
        }
        let came = after.received.minus(before.received).plus(after.copies.minus(before.copies));
        flow.offered = came.minus(flow.refused());
        flow
    }

    /// Sums up the drops for a cause.
    #[must_use]
    pub fn dropped_for(&self, cause: DropCause) -> Amount {
        let each = self.dropped.get(&cause).into_iter().flat_map(BTreeMap::values);
        each.fold(Amount::default(), |sum, amount| sum.plus(*amount))
    }

    /// Sums up the frames refused for what they are, which count as never offered.
    #[must_use]
    pub fn refused(&self) -> Amount {
        let by_kernel = self.refused_by_kernel.values();
        by_kernel.fold(self.dropped_for(DropCause::Itself), |sum, amount| sum.plus(*amount))
    }

    /// Returns the reason for which most frames were refused for what they are.
    #[must_use]
    pub fn most_refused(&self) -> Option<&'static str> {
        let own = self.dropped.get(&DropCause::Itself).into_iter().flatten();
        let own = own.map(|(reason, amount)| (reason.name(), amount));
        let all = own.chain(self.refused_by_kernel.iter().map(|(name, amount)| (*name, amount)));
        all.max_by_key(|(_, amount)| amount.packets).map(|(name, _)| name)
    }

    /// Returns true if any packet was dropped for one of these reasons.
    #[must_use]
    pub fn dropped_by(&self, reasons: &[Reason]) -> bool {
        let mut each = self.dropped.values().flat_map(BTreeMap::iter);
        each.any(|(reason, amount)| amount.packets > 0 && reasons.contains(reason))
    }

    /// Returns the traffic that could have been forwarded within the owner's limits.
    #[must_use]
    pub fn demand(&self) -> Amount {
        self.offered.plus(self.waited).minus(self.dropped_for(DropCause::Limit))
    }
}

/// Returns the bytes of these frames as the port's layer counts them. On layer 1 a frame is at
/// least as long as the shortest on a wire; the mean length is compared with that. `headers` are
/// the bytes of the slice's headers on the port, which counters leave out.
pub(crate) fn charged(port: &Port, amount: Amount, headers: u16) -> u64 {
    let (headers, least) = match port.layer {
        Layer::L1 => (headers, FRAME_MIN),
        Layer::L2 => (headers, 0),
        Layer::L3 => (0, 0),
    };
    let more = i128::from(port.packet_overhead()) + i128::from(headers);
    let bytes = amount.bytes.max(amount.packets.saturating_mul(least));
    let all = i128::from(bytes) + more * i128::from(amount.packets);
    u64::try_from(all.max(0)).unwrap_or(u64::MAX)
}

/// Returns the bytes of the headers that frames of a slice carry on a port, in this direction of
/// its vifs.
pub(crate) fn headers_of(port: &Port, slice: &Slice, direction: Direction) -> u16 {
    match direction {
        Direction::Send => port.header_bytes(slice),
        Direction::Receive => 0,
    }
}

/// Reasons of the kernel's data plane alone: the frame is another slice's, or nobody's, or a copy
/// that a bridge flooded. A test of weir-node holds them to the counters of the programs.
pub const KERNEL_REASONS: [&str; 3] = ["foreign_slice", "unknown_slice", "flooded"];

/// Bytes of the shortest frame on a wire, without FCS.
const FRAME_MIN: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    const fn amount(packets: u64, bytes: u64) -> Amount {
        Amount { packets, bytes }
    }

    fn status(received: Amount, sent: Amount, dropped: &[(Reason, Amount)]) -> DirectionStatus {
        DirectionStatus {
            received,
            sent,
            dropped: dropped.iter().map(|(reason, of)| (reason.name().to_owned(), *of)).collect(),
            ..DirectionStatus::default()
        }
    }

    /// Ten came: one spoofed, two above the limit, three without room, four handed on.
    #[test]
    fn what_came_is_told_apart_by_cause() {
        let before = status(amount(100, 9_000), amount(90, 8_000), &[]);
        let after = status(
            amount(110, 10_000),
            amount(94, 8_400),
            &[
                (Reason::SpoofedMac, amount(1, 100)),
                (Reason::VifBits, amount(2, 200)),
                (Reason::QueuePackets, amount(3, 300)),
            ],
        );
        let flow = IntervalFlow::between(&before, &after);
        assert_eq!((flow.offered, flow.got), (amount(9, 900), amount(4, 400)));
        assert_eq!(flow.dropped_for(DropCause::Limit), amount(2, 200));
        assert_eq!(flow.dropped_for(DropCause::Room), amount(3, 300));
        assert_eq!(flow.demand(), amount(7, 700));
    }

    /// Goal: what the kernel's data plane keeps from a vif of another slice was no offer to it.
    #[test]
    fn a_reason_of_the_kernel_alone_is_no_offer() {
        let before = status(amount(100, 9_000), amount(100, 9_000), &[]);
        let mut after = status(amount(110, 10_000), amount(104, 9_400), &[]);
        after.received = after.received.plus(amount(2, 200));
        after.dropped.insert("foreign_slice".to_owned(), amount(6, 600));
        after.dropped.insert(Reason::SpoofedMac.name().to_owned(), amount(1, 100));
        after.dropped.insert("of_a_later_version".to_owned(), amount(1, 100));
        let flow = IntervalFlow::between(&before, &after);
        assert_eq!((flow.offered, flow.got), (amount(5, 500), amount(4, 400)));
        assert_eq!(flow.most_refused(), Some("foreign_slice"));
        assert!(is_refusal("unknown_slice") && is_refusal("moved"));
        assert!(!is_refusal("vif_bits") && !is_refusal("of_a_later_version"));
    }

    #[test]
    fn counters_that_run_backwards_begin_at_zero() {
        let before = status(amount(100, 9_000), amount(90, 8_000), &[]);
        let after = status(amount(5, 500), amount(5, 500), &[]);
        assert_eq!(IntervalFlow::between(&before, &after).got, amount(5, 500));
    }

    /// The expected values are what the switch charges frames of these lengths on the wire.
    #[test]
    fn short_frames_and_tags_count_as_on_the_wire() {
        let mut port = Port::new("p", weir_units::BitRate::from_mbps(10));
        let mut of = |layer, bytes: u64, headers| {
            port.layer = layer;
            charged(&port, amount(10, 10 * bytes), headers)
        };
        assert_eq!([of(Layer::L2, 54, 0), of(Layer::L2, 54, 4)], [540, 580]);
        assert_eq!([of(Layer::L1, 54, 0), of(Layer::L1, 1514, 0)], [840, 15_380]);
        assert_eq!([of(Layer::L3, 54, 0), of(Layer::L3, 54, 7)], [400, 400]);
    }
}
