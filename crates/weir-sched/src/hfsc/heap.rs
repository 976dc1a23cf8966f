// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small 4-ary heap of (key, id).
//!
//! Four children share one cache line's worth of keys, so a level costs about as much as in a
//! binary heap and there are half as many.

use alloc::vec::Vec;

use super::tree::NONE;

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

impl Heap {
    /// Room for `count` entries in all, so that no push allocates.
    pub(super) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count.saturating_sub(self.entries.len()));
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, key: u64, id: u32) {
        let entry = Entry { key, id };
        self.entries.push(entry);
        self.rise(self.entries.len() - 1, entry);
    }

    /// Removes the least entry.
    pub(super) fn pop(&mut self) {
        self.remove_at(0);
    }

    /// Removes the entry of `id`, found by a search.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some(place) = self.entries.iter().position(|entry| entry.id == id) {
            self.remove_at(place);
        }
    }

    fn remove_at(&mut self, place: usize) {
        let Some(last) = self.entries.pop() else { return };
        if let Some(&old) = self.entries.get(place) {
            if Self::less(last, old) {
                self.rise(place, last);
            } else {
                self.sink(place, last);
            }
        }
    }

    /// The least entry, or `other` if that is not greater.
    #[inline]
    pub(super) fn least(&self, other: Entry) -> Entry {
        match self.entries.first() {
            Some(&top) if other.id == NONE || Self::less(top, other) => top,
            _ => other,
        }
    }

    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / 4;
            let above = self.entries[parent];
            if !Self::less(entry, above) {
                break;
            }
            self.entries[place] = above;
            place = parent;
        }
        self.entries[place] = entry;
    }

    fn sink(&mut self, mut place: usize, entry: Entry) {
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
            self.entries[place] = child;
            place = first + index;
        }
        self.entries[place] = entry;
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
