// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of small numbers that finds the next member in a few steps: a bitmap of three levels.

use alloc::vec;
use alloc::vec::Vec;

/// A set of numbers below its capacity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    /// Each bit of a level tells whether the word below it is not zero; the highest level is
    /// searched word by word.
    above: [Vec<u64>; 2],
}

impl Bits {
    /// Returns the empty set of numbers below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(64);
        let above = words.div_ceil(64);
        Self { words: vec![0; words], above: [vec![0; above], vec![0; above.div_ceil(64)]] }
    }

    /// Adds `number`.
    #[inline]
    pub(crate) fn insert(&mut self, number: usize) {
        let word = &mut self.words[number / 64];
        let was_empty = *word == 0;
        *word |= 1 << (number % 64);
        if was_empty {
            self.insert_above(number / 64);
        }
    }

    /// Removes `number`.
    #[inline]
    pub(crate) fn remove(&mut self, number: usize) {
        let word = &mut self.words[number / 64];
        *word &= !(1 << (number % 64));
        if *word == 0 {
            self.remove_above(number / 64);
        }
    }

    /// Returns the least member that is at least `number`.
    #[inline]
    pub(crate) fn next(&self, number: usize) -> Option<usize> {
        let rest = self.words.get(number / 64)? & (u64::MAX << (number % 64));
        if rest != 0 {
            return Some(number / 64 * 64 + least(rest));
        }
        self.next_above(number / 64 + 1)
    }

    fn insert_above(&mut self, mut bit: usize) {
        for level in &mut self.above {
            level[bit / 64] |= 1 << (bit % 64);
            bit /= 64;
        }
    }

    fn remove_above(&mut self, mut bit: usize) {
        for level in &mut self.above {
            let word = &mut level[bit / 64];
            *word &= !(1 << (bit % 64));
            if *word != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// Returns the least member in a word from `word` on.
    fn next_above(&self, word: usize) -> Option<usize> {
        let [first, second] = &self.above;
        let rest = first.get(word / 64)? & (u64::MAX << (word % 64));
        let word = if rest != 0 {
            word / 64 * 64 + least(rest)
        } else {
            let from = word / 64 + 1;
            let rest = second.get(from / 64).map_or(0, |word| word & (u64::MAX << (from % 64)));
            let middle = if rest != 0 {
                from / 64 * 64 + least(rest)
            } else {
                let top = (from / 64 + 1..second.len()).find(|&top| second[top] != 0)?;
                top * 64 + least(second[top])
            };
            middle * 64 + least(first[middle])
        };
        Some(word * 64 + least(self.words[word]))
    }
}

/// Returns the lowest bit of a word that is not zero.
const fn least(word: u64) -> usize {
    word.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    /// Method: every small set operation against an ordered set, across all three levels.
    #[test]
    fn it_finds_what_an_ordered_set_finds() {
        let capacity = 64 * 64 * 64 * 2;
        let (mut bits, mut model, mut seed) = (Bits::new(capacity), BTreeSet::new(), 1u64);
        for round in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = ((seed >> 40) as usize % capacity) >> (round % 16);
            if seed >> 33 & 3 != 0 {
                bits.insert(number);
                model.insert(number);
            } else if let Some(&member) = model.range(number..).next() {
                bits.remove(member);
                model.remove(&member);
            }
            for from in [0, number, number + 1, capacity - 1] {
                assert_eq!(bits.next(from), model.range(from..).next().copied());
            }
        }
        assert!(model.len() > 100);
    }
}
