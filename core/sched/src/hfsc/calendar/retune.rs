// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes the width or the number of a calendar's buckets; all entries are linked anew.

use super::tuning::Tuning;
use super::{Calendar, EMPTY, Link};
use crate::slab::NONE;

impl Calendar {
    /// Makes the buckets as wide as the recent keys ask for. Amortized: it takes some steps for
    /// each entry, after more pushes than there are entries.
    #[inline]
    pub(super) fn tune(&mut self, links: &mut [Link]) {
        self.tuning.pushes += 1;
        if self.tuning.is_ripe(self.shift, self.buckets.len()) {
            self.retune(links);
        }
    }

    #[cold]
    fn retune(&mut self, links: &mut [Link]) {
        let tuning = core::mem::take(&mut self.tuning);
        if self.buckets.is_empty() {
            return;
        }
        let shift = tuning.width(self.shift, self.buckets.len());
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
        // The least entry may be in the heap now, which may have another of equal key on top.
        self.top = self.find(links);
        self.tuning = Tuning::default();
    }
}
