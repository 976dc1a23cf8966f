// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guaranteed rates in a round robin: classes below their minimum go first, the most overdue ahead.

use alloc::vec::Vec;

use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::LinkClock;
use crate::heap::MinHeap;

/// A class is *below its minimum* when it is active and the time that its last packet takes at
/// the minimum has passed. A packet served beyond the minimum counts from when it was served, so
/// what a class got in good times is not held against it; a class that was idle has no claim to
/// the past. With the sum of the minimums below the link's rate each class gets its own.
#[derive(Clone, Debug)]
pub(crate) struct Minimums {
    claims: Vec<Option<Claim>>,
    /// By an instant at or before the true one, which is corrected at the top. Holds inactive
    /// classes until they get there.
    due: MinHeap<Instant>,
}

#[derive(Clone, Debug)]
struct Claim {
    /// Sends the class's packets at the minimum; it is free when the next one is due.
    clock: LinkClock,
    listed: bool,
}

impl Minimums {
    pub(crate) const fn new() -> Self {
        Self { claims: Vec::new(), due: MinHeap::new() }
    }

    /// Sets a class's minimum; zero for none.
    pub(crate) fn configure(&mut self, class: u32, rate: BitRate, active: bool) {
        let index = class as usize;
        if self.claims.len() <= index {
            self.claims.resize_with(index + 1, || None);
            self.due.reserve(index + 1);
        }
        match &mut self.claims[index] {
            Some(claim) if claim.clock.rate() == rate => return,
            Some(claim) => claim.clock.set_rate(rate),
            None if rate.is_zero() => return,
            slot => {
                let clock = LinkClock::new(rate, MINIMUM_CATCH_UP);
                *slot = Some(Claim { clock, listed: false });
            }
        }
        if active {
            self.activate(Instant::ZERO, class);
        }
    }

    #[inline]
    pub(crate) fn activate(&mut self, now: Instant, class: u32) {
        let Some(Some(claim)) = self.claims.get_mut(class as usize) else { return };
        claim.clock.idle_until(now);
        if !claim.listed && !claim.clock.rate().is_zero() {
            claim.listed = true;
            self.due.push(claim.clock.busy_until(), class);
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, class: u32, bytes: ByteCount) {
        let Some(Some(claim)) = self.claims.get_mut(class as usize) else { return };
        if claim.clock.rate().is_zero() {
            return;
        }
        if claim.clock.ready(now).is_ok() {
            claim.clock.sent(now, bytes);
            return;
        }
        // Beyond the minimum. Due times never move back, which the heap relies on.
        let mut beyond = LinkClock::new(claim.clock.rate(), MINIMUM_CATCH_UP);
        beyond.idle_until(now);
        beyond.sent(now, bytes);
        if beyond.busy_until() > claim.clock.busy_until() {
            claim.clock = beyond;
        }
    }

    /// Returns the active class that is below its minimum for the longest time.
    #[inline]
    pub(crate) fn first_below(
        &mut self,
        now: Instant,
        active: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        loop {
            let (known, class) = self.due.peek()?;
            if known > now {
                return None;
            }
            let claim = self.claims.get_mut(class as usize)?.as_mut()?;
            let due = claim.clock.busy_until();
            if claim.clock.rate().is_zero() || !active(class) {
                claim.listed = false;
                self.due.pop();
            } else if due > known {
                self.due.replace_top(due);
            } else {
                return Some(class);
            }
        }
    }
}

/// The longest time that a class may wait behind others below their minimum and still get all that
/// is due to it.
pub const MINIMUM_CATCH_UP: Nanos = Nanos::from_millis(100);
