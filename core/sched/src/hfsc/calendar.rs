// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A calendar before a heap: the least key of many in about constant time.
//!
//! Keys in the near future lie in buckets of equal width, each a sorted list (R. Brown, "Calendar
//! Queues", CACM 31(10), 1988); a bitmap finds the first bucket. A key is compared from the end of
//! its list on, since most keys grow from one to the next and many are equal; one that would lie
//! deeper goes to a heap, as does one beyond the buckets. So the width of the buckets decides the
//! speed only, never the order.

mod retune;
mod tuning;

use alloc::vec::Vec;

use self::tuning::Tuning;
use super::heap::{Heap, HeapEntry, HeapPlaces};
use crate::bits::Bits;
use crate::slab::NONE;

/// A priority queue of (key, id), least key first.
///
/// An id is in at most one of the calendars that share a table of [`Link`]s.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    /// The least entry, of id [`NONE`] if there is none.
    top: HeapEntry,
    buckets: Vec<Bucket>,
    occupied: Bits,
    /// Entries in buckets. All their keys lie within one turn from `start`.
    near: u32,
    /// A bucket is 2 to this power wide.
    shift: u32,
    /// The first key of the bucket that the last entry was taken from.
    start: u64,
    far: Heap,
    tuning: Tuning,
}

/// Links of an id in a calendar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    key: u64,
    /// The next in the list, or [`NONE`] at its end; [`ABSENT`] or [`IN_HEAP`] for an id in no
    /// list.
    next: u32,
    /// The one before in the list, or [`NONE`] at its start; in the heap, the id's place there.
    before: u32,
}

/// A list, sorted by key.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    head: u32,
    tail: u32,
}

impl Link {
    /// A link of an id in no calendar.
    pub(super) const NONE: Self = Self { key: 0, next: ABSENT, before: NONE };

    /// Returns the key that the id is entered with.
    #[inline]
    pub(super) const fn key(&self) -> Option<u64> {
        if self.next == ABSENT { None } else { Some(self.key) }
    }
}

impl HeapPlaces for [Link] {
    fn put(&mut self, id: u32, place: u32) {
        if let Some(link) = self.get_mut(id as usize) {
            link.before = place;
        }
    }
}

impl Default for Calendar {
    fn default() -> Self {
        Self {
            top: NOBODY,
            buckets: Vec::new(),
            occupied: Bits::default(),
            near: 0,
            shift: 0,
            start: 0,
            far: Heap::default(),
            tuning: Tuning::default(),
        }
    }
}

impl Calendar {
    /// Makes room for `count` entries in all, so that no push allocates.
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

    /// Returns the least entry. Among equal keys, any.
    #[inline]
    pub(super) fn top(&self) -> Option<HeapEntry> {
        (self.top.id != NONE).then_some(self.top)
    }

    /// Tells whether the least key is `now` or less.
    #[inline]
    pub(super) const fn is_due(&self, now: u64) -> bool {
        self.top.key <= now && self.top.id != NONE
    }

    /// Adds an entry, whose id is in no calendar.
    #[inline(always)]
    pub(super) fn push(&mut self, key: u64, id: u32, links: &mut [Link]) {
        self.tune(links);
        if self.near == 0 {
            self.start = key >> self.shift << self.shift;
        }
        self.insert(key, id, links);
        if key < self.top.key || self.top.id == NONE {
            self.top = HeapEntry { key, id };
        }
    }

    /// Removes the least entry.
    #[inline(always)]
    pub(super) fn pop(&mut self, links: &mut [Link]) -> Option<HeapEntry> {
        let top = self.top()?;
        let link = links.get_mut(top.id as usize)?;
        let next = core::mem::replace(&mut link.next, ABSENT);
        if next == IN_HEAP {
            self.pop_far(links);
            return Some(top);
        }
        self.near -= 1;
        self.start = top.key >> self.shift << self.shift;
        let place = self.place(top.key);
        let bucket = self.buckets.get_mut(place)?;
        bucket.head = next;
        if let Some(link) = links.get_mut(next as usize) {
            link.before = NONE;
            self.top = self.far.least(HeapEntry { key: link.key, id: next });
        } else {
            bucket.tail = NONE;
            self.occupied.remove(place);
            self.top = self.find(links);
        }
        Some(top)
    }

    /// Removes the entry of `id` if it has one.
    pub(super) fn remove(&mut self, id: u32, links: &mut [Link]) {
        let Link { key, next, before } = links[id as usize];
        match next {
            ABSENT => return,
            IN_HEAP => self.far.remove_at(before as usize, links),
            _ => {
                let place = self.place(key);
                let bucket = &mut self.buckets[place];
                match links.get_mut(before as usize) {
                    Some(link) => link.next = next,
                    None => bucket.head = next,
                }
                match links.get_mut(next as usize) {
                    Some(link) => link.before = before,
                    None => bucket.tail = before,
                }
                if bucket.head == NONE {
                    self.occupied.remove(place);
                }
                self.near -= 1;
            }
        }
        links[id as usize] = Link::NONE;
        self.top = self.find(links);
    }

    /// Enters a key into its bucket if it fits there, else into the heap.
    #[inline(always)]
    fn insert(&mut self, key: u64, id: u32, links: &mut [Link]) {
        let distance = key.wrapping_sub(self.start);
        if distance > u64::MAX / 2 {
            // The key is before the window, not beyond it.
            return self.insert_far(key, id, links);
        }
        self.tuning.farthest = self.tuning.farthest.max(distance);
        if distance >> self.shift >= self.buckets.len() as u64 {
            self.tuning.beyond += 1;
            return self.insert_far(key, id, links);
        }
        let place = self.place(key);
        let Some(bucket) = self.buckets.get_mut(place) else { return };
        let before = bucket.tail;
        match links.get_mut(before as usize) {
            Some(link) if link.key <= key => link.next = id,
            Some(_) => return self.insert_among(key, id, before, links),
            None => {
                bucket.head = id;
                self.occupied.insert(place);
            }
        }
        bucket.tail = id;
        links[id as usize] = Link { key, next: NONE, before };
        self.near += 1;
    }

    /// Enters a key before `next`, the last of its list, which has a greater key, or before earlier
    /// ones.
    #[inline(never)]
    fn insert_among(&mut self, key: u64, id: u32, mut next: u32, links: &mut [Link]) {
        for _ in 0..STEPS_MAX {
            let before = links[next as usize].before;
            let behind = links.get(before as usize).is_some_and(|link| link.key > key);
            if behind {
                next = before;
                continue;
            }
            match links.get_mut(before as usize) {
                Some(link) => link.next = id,
                None => {
                    let place = self.place(key);
                    self.buckets[place].head = id;
                }
            }
            links[next as usize].before = id;
            links[id as usize] = Link { key, next, before };
            self.near += 1;
            return;
        }
        self.tuning.crowded += 1;
        self.insert_far(key, id, links);
    }

    #[inline(never)]
    fn pop_far(&mut self, links: &mut [Link]) {
        debug_assert_eq!(self.far.least(NOBODY).id, self.top.id, "the root is the least entry");
        self.far.remove_at(0, links);
        self.top = self.find(links);
    }

    #[inline(never)]
    fn insert_far(&mut self, key: u64, id: u32, links: &mut [Link]) {
        links[id as usize] = Link { key, next: IN_HEAP, before: NONE };
        self.far.push(key, id, links);
    }

    /// Returns the bucket of a key within the window.
    #[expect(clippy::cast_possible_truncation, reason = "masked by a length in memory")]
    #[inline(always)]
    const fn place(&self, key: u64) -> usize {
        (key >> self.shift) as usize & self.buckets.len().wrapping_sub(1)
    }

    /// Returns the least entry of all.
    #[inline(never)]
    fn find(&self, links: &[Link]) -> HeapEntry {
        let mut near = NOBODY;
        if self.near > 0 {
            let from = self.place(self.start);
            let first = self.occupied.next(from).or_else(|| self.occupied.next(0));
            let head = first.and_then(|place| self.buckets.get(place)).map_or(NONE, |b| b.head);
            if let Some(link) = links.get(head as usize) {
                near = HeapEntry { key: link.key, id: head };
            }
        }
        self.far.least(near)
    }
}

const EMPTY: Bucket = Bucket { head: NONE, tail: NONE };

/// An entry after all others.
const NOBODY: HeapEntry = HeapEntry { key: u64::MAX, id: NONE };

/// `next` of a link whose id is in no calendar.
const ABSENT: u32 = NONE - 1;

/// `next` of a link whose id is in the heap.
const IN_HEAP: u32 = NONE - 2;

/// With fewer entries a heap has two levels below its root and is as fast.
const ENTRIES_MIN: usize = 17;

/// Entries of a list that a key is compared with before it goes to the heap, which is then faster.
const STEPS_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;

    /// Goal: the same order as a sorted set, through changes of scale and removals. Method: 100 000
    /// operations, keys that only grow, every other thousand of operations many of them equal.
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
            let key = if round / 1000 % 2 == 0 { key } else { key.next_multiple_of(8) };
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
            let top = calendar.top().map(|top| top.key);
            assert_eq!(top, model.first().map(|least| least.0));
        }
        assert!(beyond_heap > 50_000, "buckets are used: {beyond_heap}");
    }

    /// Goal: two entries of one key come out once each when the width changes while one is in the
    /// heap and the other, first of all, goes there by that. Method: the width is learned and then
    /// halved by bursts into single buckets, at a push chosen so that this happens.
    #[test]
    fn equal_keys_survive_a_change_of_width_between_bucket_and_heap() {
        let (mut calendar, mut links) = (Calendar::default(), vec![Link::NONE; 32]);
        calendar.reserve(32, &mut links);
        let mut now = 0;
        while calendar.shift == 0 {
            calendar.push(now + 10, 0, &mut links);
            calendar.push(now + 100_000, 1, &mut links);
            calendar.pop(&mut links);
            now = calendar.pop(&mut links).unwrap().key;
        }
        let (shift, buckets) = (calendar.shift, calendar.buckets.len() as u64);
        while u64::from(calendar.tuning.pushes) < 2 * buckets - 21 {
            let base = ((now >> shift) + 3) << shift;
            for id in 0..16 {
                calendar.push(base + 500 - u64::from(id), id, &mut links);
            }
            now = core::iter::from_fn(|| calendar.pop(&mut links)).last().unwrap().key;
        }
        while u64::from(calendar.tuning.pushes) < 2 * buckets - 5 {
            calendar.push(now + 10, 0, &mut links);
            now = calendar.pop(&mut links).unwrap().key;
        }
        calendar.push(now + 10, 0, &mut links);
        let window = buckets << shift;
        let (beyond, last) = (calendar.start + window * 7 / 4, calendar.start + window);
        calendar.push(beyond, 1, &mut links);
        calendar.push(last - (1 << shift), 2, &mut links);
        calendar.push(last - (1 << shift), 5, &mut links);
        calendar.pop(&mut links);
        calendar.pop(&mut links);
        calendar.push(beyond, 3, &mut links);
        calendar.pop(&mut links);
        assert_eq!((links[1].next, links[3].next), (IN_HEAP, NONE), "one key in both");
        calendar.push(beyond + 5, 4, &mut links);
        assert_eq!((calendar.shift, links[3].next), (shift - 1, IN_HEAP), "the width was changed");
        let rest = core::iter::from_fn(|| calendar.pop(&mut links)).take(9);
        let mut left: Vec<_> = rest.map(|top| (top.key, top.id)).collect();
        left[..2].sort_unstable();
        assert_eq!(left, [(beyond, 1), (beyond, 3), (beyond + 5, 4)]);
        assert_eq!(calendar.near, 0);
    }
}
