// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small 4-ary heap of (key, id), with or without a record of where each id lies.
//!
//! Four children share one cache line's worth of keys, so a level costs about as much as in a
//! binary heap and there are half as many.

use alloc::vec::Vec;

/// A heap, least key first; equal keys by the lesser id, so that runs repeat.
///
/// `WRAPPING`: keys are compared on a circle (virtual times); all lie within half of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap<const WRAPPING: bool> {
    entries: Vec<Entry>,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// What it is sorted by.
    pub(super) key: u64,
    /// What it stands for.
    pub(super) id: u32,
}

/// Is told where an entry came to lie.
pub(super) trait Places {
    /// `id` lies at `place` now.
    fn put(&mut self, id: u32, place: u32);
}

/// No record: entries are found only at the top, or by a search.
pub(super) struct NoPlaces;

impl Places for NoPlaces {
    fn put(&mut self, _: u32, _: u32) {}
}

impl Places for Vec<u32> {
    fn put(&mut self, id: u32, place: u32) {
        if let Some(slot) = self.get_mut(id as usize) {
            *slot = place;
        }
    }
}

impl<const WRAPPING: bool> Heap<WRAPPING> {
    /// Room for `count` entries in all, so that no push allocates.
    pub(super) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count.saturating_sub(self.entries.len()));
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, key: u64, id: u32, places: &mut impl Places) {
        let entry = Entry { key, id };
        self.entries.push(entry);
        self.rise(self.entries.len() - 1, entry, places);
    }

    /// Removes the least entry.
    pub(super) fn pop(&mut self, places: &mut impl Places) -> Option<Entry> {
        let top = self.top()?;
        self.remove_at(0, places);
        Some(top)
    }

    /// Gives the least entry a key that is not less.
    pub(super) fn raise_top(&mut self, key: u64, places: &mut impl Places) {
        if let Some(top) = self.top() {
            self.sink(0, Entry { key, id: top.id }, places);
        }
    }

    /// Gives the entry at `place` another key.
    pub(super) fn rekey(&mut self, place: usize, key: u64, places: &mut impl Places) {
        let Some(&old) = self.entries.get(place) else { return };
        let entry = Entry { key, id: old.id };
        if Self::less(entry, old) {
            self.rise(place, entry, places);
        } else {
            self.sink(place, entry, places);
        }
    }

    /// Removes the entry of `id`, found by a search.
    pub(super) fn remove(&mut self, id: u32, places: &mut impl Places) {
        if let Some(place) = self.entries.iter().position(|entry| entry.id == id) {
            self.remove_at(place, places);
        }
    }

    /// Removes the entry at `place`.
    pub(super) fn remove_at(&mut self, place: usize, places: &mut impl Places) {
        let Some(last) = self.entries.pop() else { return };
        if let Some(&old) = self.entries.get(place) {
            if Self::less(last, old) {
                self.rise(place, last, places);
            } else {
                self.sink(place, last, places);
            }
        }
    }

    /// The least entry.
    pub(super) fn top(&self) -> Option<Entry> {
        self.entries.first().copied()
    }

    /// The key of the entry at `place`; the greatest if there is none.
    pub(super) fn key_at(&self, place: usize) -> u64 {
        self.entries.get(place).map_or(u64::MAX, |entry| entry.key)
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn rise(&mut self, mut place: usize, entry: Entry, places: &mut impl Places) {
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

    fn sink(&mut self, mut place: usize, entry: Entry, places: &mut impl Places) {
        loop {
            let first = place * 4 + 1;
            let Some(children) = self.entries.get(first..) else { break };
            let mut least = None;
            for (index, &child) in children.iter().take(4).enumerate() {
                if least.is_none_or(|(_, other)| Self::less(child, other)) {
                    least = Some((first + index, child));
                }
            }
            match least {
                Some((index, child)) if Self::less(child, entry) => {
                    self.set(place, child, places);
                    place = index;
                }
                _ => break,
            }
        }
        self.set(place, entry, places);
    }

    fn set(&mut self, place: usize, entry: Entry, places: &mut impl Places) {
        self.entries[place] = entry;
        // At most as many entries as ids, which are u32.
        #[expect(clippy::cast_possible_truncation, reason = "entries are counted by u32 ids")]
        places.put(entry.id, place as u32);
    }

    fn less(a: Entry, b: Entry) -> bool {
        if a.key == b.key {
            return a.id < b.id;
        }
        if WRAPPING { is_before(a.key, b.key) } else { a.key < b.key }
    }
}

/// Whether `a` lies before `b` on the circle of 2⁶⁴, the shorter way round.
pub(super) const fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) > u64::MAX / 2
}
