// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small 4-ary heap of (key, id), with a record of where each id lies.
//!
//! Four children share one cache line's worth of keys, so a level costs about as much as in a
//! binary heap and there are half as many.

use alloc::vec::Vec;

use crate::slab::NONE;

/// A heap, least key first.
///
/// Keys are instants, and thousands are often equal: those of classes that became active at once.
/// Entries of equal key are never exchanged, so each costs the same however many there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    entries: Vec<HeapEntry>,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapEntry {
    /// Entries are sorted by it.
    pub(super) key: u64,
    /// The entry's owner.
    pub(super) id: u32,
}

/// A record of the place of each entry.
pub(super) trait HeapPlaces {
    /// Notes that `id` lies at `place` now.
    fn put(&mut self, id: u32, place: u32);
}

impl Heap {
    /// Makes room for `count` entries in all, so that no push allocates.
    pub(super) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count.saturating_sub(self.entries.len()));
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, key: u64, id: u32, places: &mut (impl HeapPlaces + ?Sized)) {
        let entry = HeapEntry { key, id };
        self.entries.push(entry);
        self.rise(self.entries.len() - 1, entry, places);
    }

    /// Removes the entry at `place`; the least one is at 0.
    pub(super) fn remove_at(&mut self, place: usize, places: &mut (impl HeapPlaces + ?Sized)) {
        let Some(last) = self.entries.pop() else { return };
        if let Some(&old) = self.entries.get(place) {
            if Self::less(last, old) {
                self.rise(place, last, places);
            } else {
                self.sink(place, last, places);
            }
        }
    }

    /// Returns the least entry, or `other` if that is not greater.
    #[inline]
    pub(super) fn least(&self, other: HeapEntry) -> HeapEntry {
        match self.entries.first() {
            Some(&top) if other.id == NONE || Self::less(top, other) => top,
            _ => other,
        }
    }

    fn rise(
        &mut self,
        mut place: usize,
        entry: HeapEntry,
        places: &mut (impl HeapPlaces + ?Sized),
    ) {
        while place > 0 {
            let parent = (place - 1) / 4;
            let above = self.entries[parent];
            if !Self::less(entry, above) {
                break;
            }
            self.set(place, above, places);
            place = parent;
        }
        self.set(place, entry, places);
    }

    fn sink(
        &mut self,
        mut place: usize,
        entry: HeapEntry,
        places: &mut (impl HeapPlaces + ?Sized),
    ) {
        loop {
            let first = place * 4 + 1;
            let rest = self.entries.get(first..).unwrap_or_default();
            let children = rest.iter().copied().take(4).enumerate();
            let lesser = |a: (usize, HeapEntry), b: (usize, HeapEntry)| {
                if Self::less(b.1, a.1) { b } else { a }
            };
            let Some((index, child)) = children.reduce(lesser) else { break };
            if !Self::less(child, entry) {
                break;
            }
            self.set(place, child, places);
            place = first + index;
        }
        self.set(place, entry, places);
    }

    fn set(&mut self, place: usize, entry: HeapEntry, places: &mut (impl HeapPlaces + ?Sized)) {
        self.entries[place] = entry;
        // At most as many entries as ids, which are u32.
        #[expect(clippy::cast_possible_truncation, reason = "entries are counted by u32 ids")]
        places.put(entry.id, place as u32);
    }

    #[inline(always)]
    const fn less(a: HeapEntry, b: HeapEntry) -> bool {
        a.key < b.key
    }
}
