// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A calendar before a heap: the least key of many in about constant time.
//!
//! Keys in the near future lie in buckets of equal width, each a list (R. Brown, "Calendar
//! Queues", CACM 31(10), 1988); a bitmap finds the first bucket. Whatever a bucket cannot take goes
//! to a heap, so how well the width fits decides the speed
//! only. Exact: the list of a bucket is short and looked through.

mod tuning;

use alloc::vec::Vec;

use self::tuning::Tuning;
use super::bits::Bits;
use super::heap::{Entry, Heap, NoPlaces};
use super::tree::NONE;

/// A priority queue of (key, id), least key first.
///
/// An id is in at most one of the calendars that share a table of [`Link`]s.
#[derive(Clone, Debug, Default)]
pub(super) struct Calendar {
    buckets: Vec<Bucket>,
    occupied: Bits,
    /// Entries in buckets. All keys lie within one turn from `start`.
    near: u32,
    /// A bucket is 2 to this power wide.
    shift: u32,
    /// The first key of the bucket that the last entry was taken from.
    start: u64,
    far: Heap,
    /// Entries in all.
    entries: u32,
    /// The least entry and whether it is in a bucket, while that is known.
    least: Option<(Entry, bool)>,
    tuning: Tuning,
}

/// What a calendar keeps for each id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    key: u64,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    head: u32,
    /// Entries in the list.
    length: u32,
}

impl Link {
    /// In no calendar.
    pub(super) const NONE: Self = Self { key: 0, next: NONE };
}

impl Calendar {
    /// Room for `count` entries in all, so that no push allocates.
    pub(super) fn reserve(&mut self, count: usize, links: &mut [Link]) {
        self.far.reserve(count);
        let buckets = if count < ENTRIES_MIN { 0 } else { 2 * count.next_power_of_two() };
        if buckets > self.buckets.len() {
            let all = self.unlink_all(links);
            self.buckets = Vec::new();
            self.buckets.resize(buckets, EMPTY);
            self.occupied = Bits::new(buckets);
            self.link_all(all, links);
        }
    }

    /// Whether the least key could be `now` or less: false only if it is known not to be.
    #[inline]
    pub(super) const fn may_be_due(&self, now: u64) -> bool {
        match self.least {
            Some((least, _)) => least.key <= now,
            None => self.entries > 0,
        }
    }

    /// Adds an entry.
    #[inline]
    pub(super) fn push(&mut self, key: u64, id: u32, links: &mut [Link]) {
        self.tune(links);
        self.entries += 1;
        if let Some((least, _)) = self.least
            && Self::less(Entry { key, id }, least)
        {
            self.least = None;
        }
        if self.near == 0 {
            self.start = key >> self.shift << self.shift;
        }
        self.insert(key, id, links);
    }

    /// The least entry.
    #[inline]
    pub(super) fn top(&mut self, links: &[Link]) -> Option<Entry> {
        if self.least.is_none() {
            let near = self.least_near(links);
            self.least = match (near, self.far.top()) {
                (Some(near), Some(far)) if Self::less(far, near) => Some((far, false)),
                (Some(near), _) => Some((near, true)),
                (None, far) => far.map(|far| (far, false)),
            };
        }
        self.least.map(|(entry, _)| entry)
    }

    /// Removes the least entry.
    #[inline]
    pub(super) fn pop(&mut self, links: &mut [Link]) -> Option<Entry> {
        let top = self.top(links)?;
        let (_, is_near) = self.least.take()?;
        self.entries -= 1;
        if is_near {
            let place = self.place(top.key);
            let Bucket { head, length } = self.buckets[place];
            if head == top.id {
                let next = links[top.id as usize].next;
                self.buckets[place] = Bucket { head: next, length: length.wrapping_sub(1) };
                if next == NONE {
                    self.occupied.remove(place);
                }
                self.near -= 1;
            } else {
                self.unlink(top.id, links);
            }
            self.start = top.key >> self.shift << self.shift;
        } else {
            self.far.pop(&mut NoPlaces);
        }
        Some(top)
    }

    /// Removes the entry of `id`, wherever it is.
    pub(super) fn remove(&mut self, id: u32, links: &mut [Link]) {
        self.least = None;
        self.entries -= 1;
        if !self.unlink(id, links) {
            self.far.remove(id, &mut NoPlaces);
        }
    }

    /// Into its bucket if it fits there, else to the heap.
    fn insert(&mut self, key: u64, id: u32, links: &mut [Link]) {
        let turn = self.buckets.len() as u64;
        let distance = key.wrapping_sub(self.start);
        let beyond = distance >> self.shift >= turn;
        // A key before the window is not far, only early.
        if distance <= u64::MAX / 2 {
            self.tuning.farthest = self.tuning.farthest.max(distance);
        }
        let place = self.place(key);
        let Some(bucket) = self.buckets.get_mut(place) else {
            self.far.push(key, id, &mut NoPlaces);
            return;
        };
        let crowded = bucket.length >= LENGTH_MAX;
        if beyond || crowded {
            self.tuning.beyond += u32::from(beyond);
            self.tuning.crowded += u32::from(!beyond);
            self.far.push(key, id, &mut NoPlaces);
            return;
        }
        self.near += 1;
        if bucket.head == NONE {
            self.occupied.insert(place);
        }
        links[id as usize] = Link { key, next: bucket.head };
        *bucket = Bucket { head: id, length: bucket.length + 1 };
    }

    /// The bucket of a key within the window.
    #[expect(clippy::cast_possible_truncation, reason = "masked by a length in memory")]
    const fn place(&self, key: u64) -> usize {
        (key >> self.shift) as usize & self.buckets.len().wrapping_sub(1)
    }

    fn least_near(&self, links: &[Link]) -> Option<Entry> {
        if self.near == 0 {
            return None;
        }
        let from = self.place(self.start);
        let place = self.occupied.next(from).or_else(|| self.occupied.next(0))?;
        let mut id = self.buckets[place].head;
        let mut least = Entry { key: links[id as usize].key, id };
        loop {
            id = links[id as usize].next;
            if id == NONE {
                return Some(least);
            }
            let entry = Entry { key: links[id as usize].key, id };
            if Self::less(entry, least) {
                least = entry;
            }
        }
    }

    /// Takes `id` out of its bucket. Says whether it was in one.
    fn unlink(&mut self, id: u32, links: &mut [Link]) -> bool {
        let Link { key, next } = links[id as usize];
        let place = self.place(key);
        let Some(bucket) = self.buckets.get_mut(place) else { return false };
        let mut before = NONE;
        let mut at = bucket.head;
        while at != id {
            if at == NONE {
                return false;
            }
            before = at;
            at = links[at as usize].next;
        }
        if before == NONE {
            bucket.head = next;
        } else {
            links[before as usize].next = next;
        }
        bucket.length = bucket.length.wrapping_sub(1);
        if bucket.head == NONE {
            self.occupied.remove(place);
        }
        self.near -= 1;
        true
    }

    #[inline(always)]
    const fn less(a: Entry, b: Entry) -> bool {
        a.key < b.key
    }
}

const EMPTY: Bucket = Bucket { head: NONE, length: 0 };

/// Below this many entries a heap has two levels and is as fast.
const ENTRIES_MIN: usize = 17;

/// A longer list is slower to look through than a heap.
const LENGTH_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    /// Goal: the same order as a sorted set, through changes of scale and removals. Method: 100 000
    /// operations, keys that only grow.
    #[test]
    fn they_are_ordered_like_a_sorted_set() {
        let mut calendar = Calendar::default();
        let mut links = vec![Link::NONE; 300];
        let mut model = BTreeSet::new();
        let (mut seed, mut floor, mut beyond_heap) = (1u64, 0u64, 0);
        calendar.reserve(40, &mut links);
        for round in 0..100_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if round == 30_000 {
                calendar.reserve(300, &mut links);
            }
            let ids = if round < 30_000 { 40 } else { 300 };
            let id = (seed >> 33) as u32 % ids;
            let key = floor + (seed >> 40) % (1 << (round / 10_000 + 4));
            let known = model.iter().find(|entry: &&(u64, u32)| entry.1 == id).copied();
            match (seed >> 60, known) {
                (0..=8, None) => {
                    calendar.push(key, id, &mut links);
                    model.insert((key, id));
                }
                (9, Some(entry)) => {
                    calendar.remove(id, &mut links);
                    model.remove(&entry);
                }
                (10.., _) => {
                    if let Some(top) = calendar.pop(&mut links) {
                        let old = top.key;
                        floor = floor.max(old);
                        assert!(model.remove(&(old, top.id)));
                    }
                }
                _ => (),
            }
            beyond_heap += u64::from(calendar.near > 0);
            let top = calendar.top(&links).map(|top| top.key);
            assert_eq!(top, model.first().map(|least| least.0));
        }
        assert!(beyond_heap > 50_000, "buckets are used: {beyond_heap}");
    }
}
