// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small 4-ary heap of (key, id), with or without a record of where each id lies.
//!
//! Four children share one cache line's worth of keys, so a level costs about as much as in a
//! binary heap and there are half as many.

use alloc::vec::Vec;

/// A heap, least key first.
///
/// Keys are instants, and often equal by the thousand, of classes that became active at once: none
/// of those goes before the others, so that each costs the same however many there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
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

impl Heap {
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
            let (index, child) = match self.entries.get(first..first + 4) {
                Some(&[a, b, c, d]) => {
                    // Which child is least is a coin toss: selected, not branched on.
                    let ab = Self::lesser((0, a), (1, b));
                    let cd = Self::lesser((2, c), (3, d));
                    Self::lesser(ab, cd)
                }
                _ => {
                    let rest = self.entries.get(first..).unwrap_or_default();
                    match rest.iter().copied().enumerate().reduce(Self::lesser) {
                        Some(least) => least,
                        None => break,
                    }
                }
            };
            if !Self::less(child, entry) {
                break;
            }
            self.set(place, child, places);
            place = first + index;
        }
        self.set(place, entry, places);
    }

    fn set(&mut self, place: usize, entry: Entry, places: &mut impl Places) {
        self.entries[place] = entry;
        // At most as many entries as ids, which are u32.
        #[expect(clippy::cast_possible_truncation, reason = "entries are counted by u32 ids")]
        places.put(entry.id, place as u32);
    }

    #[inline(always)]
    fn lesser(a: (usize, Entry), b: (usize, Entry)) -> (usize, Entry) {
        let second = Self::less(b.1, a.1);
        (if second { b.0 } else { a.0 }, if second { b.1 } else { a.1 })
    }

    #[inline(always)]
    const fn less(a: Entry, b: Entry) -> bool {
        a.key < b.key
    }
}
