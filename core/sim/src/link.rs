// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link: frames leave it in order, at its rate, after its delay.

use weir_switch::IfaceId;
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::MemoryPool;

/// One direction of a link, with a bounded first-in-first-out queue before it.
///
/// It keeps the instant at which its last frame will have been sent. A frame that arrives earlier
/// starts at that instant. So frames need not be queued, and the backlog is computed: the
/// bytes that pass at the link's rate until that instant.
#[derive(Clone, Debug)]
pub struct SimLink {
    rate: BitRate,
    delay: Nanos,
    queue_max: ByteCount,
    /// Instant at which the last accepted frame has left the near end.
    free_at: Instant,
    /// The transmission time of the backlog that still leaves room for the longest frame.
    longest_waits: Nanos,
    /// The length of the last frame. The next one is mostly as long, and needs no division.
    last_bytes: ByteCount,
    /// The transmission time of `last_bytes`.
    last_time: Nanos,
    dropped: u64,
}

/// Links by interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkTable {
    /// By the interface's slot.
    links: Vec<Option<(IfaceId, SimLink)>>,
}

impl SimLink {
    /// Makes an idle link of this rate and delay. At most `queue_max` bytes wait before it, the
    /// frame that is being sent included.
    #[must_use]
    pub const fn new(rate: BitRate, delay: Nanos, queue_max: ByteCount) -> Self {
        let before = queue_max.get().saturating_sub(MemoryPool::FRAME_MAX as u64);
        let longest_waits = rate.time_for_ceil(ByteCount::new(before));
        Self {
            rate,
            delay,
            queue_max,
            free_at: Instant::ZERO,
            longest_waits,
            last_bytes: ByteCount::new(0),
            last_time: Nanos::ZERO,
            dropped: 0,
        }
    }

    /// Accepts a frame of `bytes` bytes and returns when it arrives at the far end; `None` if the
    /// queue has no room for it, which is counted.
    pub fn send(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        if self.free_at > now && self.room_at(bytes) > now {
            self.dropped += 1;
            return None;
        }
        let bytes = ByteCount::new(bytes);
        if bytes != self.last_bytes {
            (self.last_bytes, self.last_time) = (bytes, self.rate.time_for_ceil(bytes));
        }
        self.free_at = self.free_at.max(now) + self.last_time;
        Some(self.free_at + self.delay)
    }

    /// Returns the instant from which the queue has room for `bytes` bytes. A frame that is longer
    /// than the queue passes when the link is idle.
    #[must_use]
    pub fn room_at(&self, bytes: u64) -> Instant {
        let may_wait = ByteCount::new(self.queue_max.get().saturating_sub(bytes));
        self.free_at.saturating_sub(self.rate.time_for_ceil(may_wait))
    }

    /// Returns [`Self::room_at`] of the longest frame, without a division.
    #[must_use]
    pub fn room_for_longest(&self) -> Instant {
        self.free_at.saturating_sub(self.longest_waits)
    }

    /// Returns how many frames found no room.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl LinkTable {
    /// Puts a link at an interface, in the place of the one that its slot has.
    pub(crate) fn insert(&mut self, iface: IfaceId, link: SimLink) {
        if self.links.len() <= iface.slot() {
            self.links.resize(iface.slot() + 1, None);
        }
        self.links[iface.slot()] = Some((iface, link));
    }

    /// Returns the link at an interface, if one is there.
    pub(crate) fn get(&self, iface: IfaceId) -> Option<&SimLink> {
        let (at, link) = self.links.get(iface.slot())?.as_ref()?;
        (*at == iface).then_some(link)
    }

    /// Returns the link at an interface, if one is there.
    pub(crate) fn get_mut(&mut self, iface: IfaceId) -> Option<&mut SimLink> {
        let (at, link) = self.links.get_mut(iface.slot())?.as_mut()?;
        (*at == iface).then_some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mb/s are a byte a microsecond.
    fn link(queue: u64) -> SimLink {
        SimLink::new(BitRate::from_mbps(8), Nanos::from_millis(5), ByteCount::new(queue))
    }

    #[test]
    fn frames_leave_in_turn_at_the_rate_and_arrive_after_the_delay() {
        let mut link = link(10_000);
        let at = |micros: u64| Instant::from_nanos(micros * 1_000);
        assert_eq!(link.send(at(0), 1_000), Some(at(6_000)));
        assert_eq!(link.send(at(0), 1_000), Some(at(7_000)));
        // Idle from 2 ms on.
        assert_eq!(link.send(at(4_000), 500), Some(at(9_500)));
    }

    #[test]
    fn a_full_queue_refuses_and_counts() {
        let mut link = link(2_000);
        let at = |micros: u64| Instant::from_nanos(micros * 1_000);
        let sent = (0..5).filter(|_| link.send(at(0), 1_000).is_some()).count();
        assert_eq!((sent, link.dropped()), (2, 3));
        assert_eq!(link.room_at(1_000), at(1_000));
        assert_eq!(link.room_for_longest(), link.room_at(MemoryPool::FRAME_MAX.into()));
        assert!(link.send(at(1_000), 1_000).is_some());
        // Longer than the queue: only when idle.
        assert_eq!(link.room_at(4_000), at(3_000));
        assert!(link.send(at(3_000), 4_000).is_some());
    }

    /// An interface that is removed leaves its slot to another, whose id differs.
    #[test]
    fn a_link_is_not_that_of_the_slots_next_interface() {
        let (gone, next) = (IfaceId(1), IfaceId(1 | 1 << 16));
        assert_eq!(gone.slot(), next.slot());
        let mut table = LinkTable::default();
        table.insert(gone, link(1_000));
        assert!(table.get(next).is_none() && table.get_mut(next).is_none());
        table.insert(next, link(1_000));
        assert!(table.get(next).is_some() && table.get(gone).is_none());
    }
}
