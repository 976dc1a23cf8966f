// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tuning of the width of a calendar's buckets.

use super::{Calendar, EMPTY, Link};
use crate::hfsc::tree::NONE;

/// Records how the width has fitted since it was last changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tuning {
    pub(super) pushes: u32,
    /// Keys beyond the window: the buckets are too narrow.
    pub(super) beyond: u32,
    /// Entries for which the list was full: the buckets are too wide.
    pub(super) crowded: u32,
    /// The greatest distance of a key from the window's begin.
    pub(super) farthest: u64,
}

impl Calendar {
    /// Makes the buckets as wide as the keys of late ask for. Amortized: it takes some steps for
    /// each entry, after more pushes than there are entries.
    #[inline]
    pub(super) fn tune(&mut self, links: &mut [Link]) {
        self.tuning.pushes += 1;
        let period = if self.shift == 0 { FIRST_TUNING } else { 2 * self.buckets.len() };
        if self.tuning.pushes as usize > period {
            self.retune(links);
        }
    }

    #[cold]
    fn retune(&mut self, links: &mut [Link]) {
        let Tuning { pushes, beyond, crowded, farthest } = core::mem::take(&mut self.tuning);
        if self.buckets.is_empty() {
            return;
        }
        let turn = u64::BITS - (self.buckets.len() as u64).leading_zeros() - 1;
        let fitting = (u64::BITS - farthest.leading_zeros()).saturating_sub(turn);
        let shift = if self.shift == 0 || beyond > pushes / 8 {
            fitting
        } else {
            self.shift - u32::from(crowded > pushes / 8)
        };
        let shift = shift.clamp(1, SHIFT_MAX);
        if shift != self.shift {
            let all = self.unlink_all(links);
            self.shift = shift;
            self.link_all(all, links);
        }
    }

    /// Empties the buckets into one list.
    pub(super) fn unlink_all(&mut self, links: &mut [Link]) -> u32 {
        let (mut first, mut last, mut place) = (NONE, NONE, 0);
        while let Some(occupied) = self.occupied.next(place) {
            place = occupied;
            self.occupied.remove(place);
            let bucket = core::mem::replace(&mut self.buckets[place], EMPTY);
            if last == NONE {
                first = bucket.head;
            } else {
                links[last as usize].next = bucket.head;
            }
            last = bucket.tail;
        }
        self.near = 0;
        first
    }

    /// Enters a list of entries anew.
    pub(super) fn link_all(&mut self, mut all: u32, links: &mut [Link]) {
        self.start = self.start >> self.shift << self.shift;
        while all != NONE {
            let Link { key, next, .. } = links[all as usize];
            self.insert(key, all, links);
            all = next;
        }
        // The least entry may lie in the heap now, which of equal ones may have another on top.
        self.top = self.find(links);
        self.tuning = Tuning::default();
    }
}

/// The width is unknown until this many entries were seen.
const FIRST_TUNING: usize = 256;

/// Buckets of 2⁴⁰ ns are 18 minutes wide, of 2⁴⁰ in virtual time a megabyte.
const SHIFT_MAX: u32 = 40;
