// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of an interface, and the identities that they obey.
//!
//! A frame that vanishes without a trace is the worst fault of a switch, since nobody looks for it.
//! So every frame is counted when it arrives and under exactly one outcome, and the two identities
//! of [`Counters`] must balance, in packets and in bytes, after each call of the switch.

use crate::reason::Reason;

/// Packets and bytes (layer 2, without FCS and without the slice's tag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Counts the frames of one interface in one direction since the interface was added.
///
/// `send` of a vif counts the frames that it handed in, `receive` those that were for it. `receive`
/// of a port counts the frames that came in from its wire, `send` those for its wire. Always, in
/// packets and in bytes:
///
/// - `received + copies = Σ dropped + enqueued`
/// - `enqueued = sent + dropped_after + backlog`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Counters {
    /// Frames that arrived for this interface and direction, early drops included.
    pub received: Tally,
    /// Frames accepted into a queue.
    pub enqueued: Tally,
    /// Frames handed out to be sent.
    pub sent: Tally,
    /// Frames of `sent` that were forwarded without the switch: see
    /// [`crate::Switch::account_redirected`].
    pub redirected: Tally,
    /// Frames of `enqueued` that were dropped instead of sent.
    pub dropped_after: Tally,
    /// Additional copies of received frames, made to flood them.
    pub copies: Tally,
    /// Packets of `sent` that were marked "congestion experienced".
    pub marked: u64,
    /// Packets of `received` whose source address was not learned for lack of room on their bridge:
    /// frames to it are flooded. Only a port has them; a vif's are dropped.
    pub unlearned: u64,
    /// Frames dropped before a queue, by [`Reason`].
    pub dropped: [Tally; Reason::COUNT],
    /// The frames of `dropped_after`, by their reason's position in [`Reason::AFTER_QUEUE`].
    after: [Tally; Reason::AFTER_QUEUE.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: Tally::default(),
            copies: Tally::default(),
            dropped: [Tally::default(); Reason::COUNT],
            enqueued: Tally::default(),
            dropped_after: Tally::default(),
            sent: Tally::default(),
            redirected: Tally::default(),
            marked: 0,
            unlearned: 0,
            after: [Tally::default(); Reason::AFTER_QUEUE.len()],
        }
    }
}

impl Tally {
    /// Counts one packet of `bytes` bytes.
    pub(crate) fn add(&mut self, bytes: u16) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// Returns the sum, part by part.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }

    /// Returns the difference, part by part, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Counters {
    /// Drops before a queue, for one reason.
    #[must_use]
    pub const fn dropped_for(&self, reason: Reason) -> Tally {
        self.dropped[reason as usize]
    }

    /// Returns all drops before a queue.
    #[must_use]
    pub fn dropped_total(&self) -> Tally {
        self.dropped.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally))
    }

    /// Drops after a queue, for one reason.
    #[must_use]
    pub fn dropped_after_for(&self, reason: Reason) -> Tally {
        let position = Reason::AFTER_QUEUE.iter().position(|known| *known == reason);
        position.and_then(|position| self.after.get(position)).copied().unwrap_or_default()
    }

    /// Returns the frames that are queued, by the second identity.
    #[must_use]
    pub const fn backlog(&self) -> Tally {
        self.enqueued.minus(self.sent.plus(self.dropped_after))
    }

    /// Tells whether both identities hold for a `backlog` that was counted independently, and every
    /// drop after a queue has a reason.
    #[must_use]
    pub fn balanced(&self, backlog: Tally) -> bool {
        let after = self.after.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally));
        after == self.dropped_after
            && self.received.plus(self.copies) == self.dropped_total().plus(self.enqueued)
            && self.enqueued == self.sent.plus(self.dropped_after).plus(backlog)
    }

    /// Counts received frames that were dropped, early or at once.
    pub(crate) fn drop_many(&mut self, reason: Reason, packets: u64, bytes: u64) {
        let dropped = Tally { packets, bytes };
        self.received = self.received.plus(dropped);
        self.dropped[reason as usize] = self.dropped[reason as usize].plus(dropped);
    }

    /// Counts a drop after a queue, for one of [`Reason::AFTER_QUEUE`].
    pub(crate) fn drop_after(&mut self, reason: Reason, bytes: u16) {
        let place = Reason::AFTER_QUEUE.iter().position(|known| *known == reason);
        debug_assert!(place.is_some(), "{reason} is no reason after a queue");
        if let Some(tally) = place.and_then(|place| self.after.get_mut(place)) {
            tally.add(bytes);
            self.dropped_after.add(bytes);
        }
    }

    /// Counts a frame that was handed out to be sent and came back: it was dropped after all.
    pub(crate) fn take_back(&mut self, reason: Reason, bytes: u16) {
        self.sent = self.sent.minus(Tally { packets: 1, bytes: u64::from(bytes) });
        self.drop_after(reason, bytes);
    }

    /// Counts a drop before a queue.
    pub(crate) fn drop(&mut self, reason: Reason, bytes: u16) {
        self.dropped[reason as usize].add(bytes);
    }
}
