// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ledger: the counters of every interface, kept by slot.
//!
//! Every frame is counted where it is received, where it is queued or refused, and where it leaves
//! or is given up, so that the identities of [`Counters`] hold after each call of the switch.

use alloc::vec::Vec;

use weir_policy::Direction;

use crate::counters::Counters;
use crate::ids::SlotChanges;

/// The counters of every interface, and of what no interface can be charged with.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By the interface's slot, then direction: send, receive.
    counters: Vec<[Counters; 2]>,
    /// Dropped frames that no interface could be charged with, and frames dropped because a change
    /// of policy removed their queue or requires headers for which they have no room.
    pub(crate) removed: u64,
}

impl Ledger {
    /// Follows a change of ids: a new interface starts at zero.
    pub(crate) fn follow(&mut self, length: usize, changes: &SlotChanges) {
        self.counters.resize(length, <[Counters; 2]>::default());
        for slot in &changes.added {
            self.counters[*slot as usize] = Default::default();
        }
    }

    /// Returns the counters of an interface that exists.
    #[inline]
    pub(crate) fn of(&mut self, slot: usize, direction: Direction) -> &mut Counters {
        &mut self.counters[slot][direction as usize]
    }

    /// Returns the counters of a slot; `None` beyond the table.
    pub(crate) fn get(&self, slot: usize, direction: Direction) -> Option<&Counters> {
        Some(&self.counters.get(slot)?[direction as usize])
    }

    /// Loads a cache line of counters ahead of the frame that will need it. The returned value has
    /// no meaning; it keeps the load from being optimized away.
    #[inline]
    pub(crate) fn fetch(&self, slot: usize, direction: Direction) -> u32 {
        let counters = self.counters.get(slot).map(|both| &both[direction as usize]);
        u32::from(counters.is_some_and(|counters| counters.received.packets == 1))
    }
}
