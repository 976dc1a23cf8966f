// SPDX-License-Identifier: Apache-2.0 OR MIT
//! "Did you mean": finds the known name nearest to an unknown one.
//!
//! A crate for it, strsim, needs the standard library, which this crate does without.

use alloc::vec::Vec;

/// Returns the nearest of `known`, if it is near enough to be meant: at most a third of its
/// characters differ.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > NAME_MAX {
        return None;
    }
    let distances = known.map(|candidate| (distance(name, candidate), candidate));
    let (distance, candidate) = distances.min()?;
    (distance * 3 <= candidate.chars().count().max(3)).then_some(candidate)
}

/// Counts the edits (insert, delete, replace, swap of neighbours) from one to the other: the
/// restricted Damerau-Levenshtein distance, by dynamic programming over three rows.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let from: Vec<char> = from.chars().collect();
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (j, b) in to.iter().enumerate() {
            let mut least = (row[j] + usize::from(a != b)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(above[j - 1] + 1);
            }
            next.push(least);
        }
        above = core::mem::replace(&mut row, next);
    }
    row[to.len()]
}

/// A longer name is no typing error, and the distance costs quadratic time.
const NAME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        for (from, to, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("rate", "rate", 0),
            ("raet", "rate", 1),
            ("rat", "rate", 1),
        ] {
            assert_eq!(distance(from, to), edits, "{from} {to}");
            assert_eq!(distance(to, from), edits, "{to} {from}");
        }
    }

    #[test]
    fn what_is_far_is_not_suggested() {
        let known = ["min_rate", "rate", "mac"];
        assert_eq!(nearest("min-rate", known.into_iter()), Some("min_rate"));
        assert_eq!(nearest("minrate", known.into_iter()), Some("min_rate"));
        assert_eq!(nearest("bandwidth", known.into_iter()), None);
        assert_eq!(nearest("", known.into_iter()), None);
    }
}
