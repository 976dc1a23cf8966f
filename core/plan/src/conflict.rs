// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest reason: a set of slices that do not fit, though they fit without any one of them.
//!
//! `QuickXplain` halves the candidates and asks which half the conflict needs (Junker,
//! *`QuickXplain`: preferred explanations and relaxations for over-constrained problems*, AAAI
//! 2004). Candidates come in an order of preference, those that take most of what is scarce first,
//! and only as many of them as conflict by themselves. A conflict of k among n takes some
//! 2k · log₂(n/k) + 2k checks.

/// A set of slices that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceConflict {
    /// The slices, by number.
    pub slices: Vec<usize>,
    /// They fit without any one of them: no smaller reason is in it. False where the bound on
    /// checks came first.
    pub is_irreducible: bool,
    /// Subsets that were checked.
    pub checks: u32,
}

/// Finds an irreducible conflict among `candidates`, which conflict all together; the first ones
/// are preferred. `conflicts` tells of any subset whether it conflicts.
pub(crate) fn find_conflict(
    candidates: &[usize],
    checks: u32,
    conflicts: &mut dyn FnMut(&[usize]) -> bool,
) -> SliceConflict {
    let mut search = ConflictSearch { conflicts, checks: 0, most: checks };
    let (mut low, mut high) = (0, candidates.len());
    while low + 1 < high {
        let middle = low.midpoint(high);
        match search.check(&candidates[..middle]) {
            Some(true) => high = middle,
            Some(false) => low = middle,
            None => break,
        }
    }
    let prefix = &candidates[..high];
    // The last one is part of the conflict: without it the others fit.
    let (last, others) = prefix.split_last().map_or((None, prefix), |(l, o)| (Some(*l), o));
    let background: Vec<usize> = last.into_iter().collect();
    let found = search.explain(&background, !background.is_empty(), others);
    let is_irreducible = found.is_some();
    let mut slices = match found {
        Some(found) => [background, found].concat(),
        None => prefix.to_vec(),
    };
    slices.sort_unstable();
    SliceConflict { slices, is_irreducible, checks: search.checks }
}

struct ConflictSearch<'c> {
    conflicts: &'c mut dyn FnMut(&[usize]) -> bool,
    checks: u32,
    most: u32,
}

impl ConflictSearch<'_> {
    /// `None` when the checks are used up.
    fn check(&mut self, slices: &[usize]) -> Option<bool> {
        self.checks = self.checks.checked_add(1).filter(|checks| *checks <= self.most)?;
        Some((self.conflicts)(slices))
    }

    /// The smallest part of `candidates` that conflicts beside `background`. `has_grown`: the
    /// background is larger than when it was last known not to conflict.
    fn explain(
        &mut self,
        background: &[usize],
        has_grown: bool,
        candidates: &[usize],
    ) -> Option<Vec<usize>> {
        if candidates.is_empty() || has_grown && self.check(background)? {
            return Some(vec![]);
        }
        if candidates.len() == 1 {
            return Some(candidates.to_vec());
        }
        let (first, second) = candidates.split_at(candidates.len() / 2);
        let beside = [background, first].concat();
        let of_second = self.explain(&beside, !first.is_empty(), second)?;
        let beside = [background, &of_second].concat();
        let of_first = self.explain(&beside, !of_second.is_empty(), first)?;
        Some([of_first, of_second].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices 3, 20 and 77 conflict, and nothing else does.
    #[test]
    fn the_one_conflict_is_found_in_few_checks() {
        let candidates: Vec<usize> = (0..100).collect();
        let mut conflicts = |set: &[usize]| [3, 20, 77].iter().all(|one| set.contains(one));
        let found = find_conflict(&candidates, 1000, &mut conflicts);
        assert_eq!((found.slices, found.is_irreducible), (vec![3, 20, 77], true));
        assert!(found.checks < 50, "{}", found.checks);
    }

    /// Any eleven of a hundred are too many.
    #[test]
    fn a_sum_that_is_too_large_is_reduced() {
        let candidates: Vec<usize> = (0..100).collect();
        let found = find_conflict(&candidates, 1000, &mut |set: &[usize]| set.len() > 10);
        assert_eq!((found.slices.len(), found.is_irreducible), (11, true));
        let found = find_conflict(&candidates, 9, &mut |set: &[usize]| set.len() > 10);
        assert!(!found.is_irreducible && found.slices.len() > 10);
    }
}
