// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A set of small numbers that finds the next member in a few steps: a bitmap of three levels.

use alloc::vec;
use alloc::vec::Vec;

/// A set of numbers below its capacity.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    /// A bit of each level says whether the word below it has any; the highest is searched in line.
    levels: [Vec<u64>; 3],
}

impl Bits {
    /// The empty set of numbers below `capacity`.
    pub(super) fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(64);
        let above = words.div_ceil(64);
        Self { levels: [vec![0; words], vec![0; above], vec![0; above.div_ceil(64)]] }
    }

    /// Adds `number`.
    pub(super) fn insert(&mut self, number: usize) {
        let mut bit = number;
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            let was_empty = *word == 0;
            *word |= 1 << (bit % 64);
            if !was_empty {
                return;
            }
            bit /= 64;
        }
    }

    /// Removes `number`.
    pub(super) fn remove(&mut self, number: usize) {
        let mut bit = number;
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            *word &= !(1 << (bit % 64));
            if *word != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// The least member that is at least `number`.
    pub(super) fn next(&self, number: usize) -> Option<usize> {
        let mut from = number;
        for (height, level) in self.levels.iter().enumerate() {
            let rest = level.get(from / 64)? & (u64::MAX << (from % 64));
            if rest != 0 {
                return Some(self.descend(height, from / 64 * 64 + least(rest)));
            }
            from = from / 64 + 1;
        }
        let top = &self.levels[2];
        let word = (from..top.len()).find(|&word| top[word] != 0)?;
        Some(self.descend(2, word * 64 + least(top[word])))
    }

    /// The least member below bit `bit` of the level at `height`.
    fn descend(&self, height: usize, mut bit: usize) -> usize {
        for level in self.levels[..height].iter().rev() {
            bit = bit * 64 + least(level[bit]);
        }
        bit
    }
}

/// The lowest bit of a word that is not zero.
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
