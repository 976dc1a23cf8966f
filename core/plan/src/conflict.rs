// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An irreducible reason: a set of slices that do not fit, though they fit without any one of them.
//!
//! `QuickXplain` halves the candidates and asks which half the conflict needs (Junker,
//! *`QuickXplain`: preferred explanations and relaxations for over-constrained problems*, AAAI
//! 2004). Candidates come in an order of preference, those that take most of what is scarce first,
//! and only as many of them as conflict by themselves. Slices that are alike are one candidate; how
//! many of them a conflict needs is then found by halves. A conflict of k among n candidates takes
//! some 2k · log₂(n/k) + 2k checks, and log₂ of the number of slices for each of the k.

/// A set of slices that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceConflict {
    /// The slices, by number.
    pub slices: Vec<usize>,
    /// They fit without any one of them: no smaller reason is in it. False where the bound on
    /// checks came first.
    pub is_irreducible: bool,
    /// Subsets that were checked by a linear program, or by patterns.
    pub checks: u32,
}

/// Finds an irreducible conflict among `candidates`, which conflict all together; the first ones
/// are preferred. Each candidate is some slices that can change places. `conflicts` tells of any
/// subset whether it conflicts.
pub(crate) fn find_conflict(
    candidates: &[&[usize]],
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
    let background: Vec<&[usize]> = last.into_iter().collect();
    let found = search.explain(&background, !background.is_empty(), others);
    let (mut is_irreducible, mut kept) = match found {
        Some(found) => (true, [found, background].concat()),
        None => (false, prefix.to_vec()),
    };
    for at in (0..kept.len()).rev() {
        is_irreducible = is_irreducible && search.thin(&mut kept, at).is_some();
    }
    let mut slices = kept.concat();
    slices.sort_unstable();
    SliceConflict { slices, is_irreducible, checks: search.checks }
}

struct ConflictSearch<'c> {
    conflicts: &'c mut dyn FnMut(&[usize]) -> bool,
    checks: u32,
    most: u32,
}

impl ConflictSearch<'_> {
    /// Returns whether these candidates conflict; `None` when the checks are used up.
    fn check(&mut self, candidates: &[&[usize]]) -> Option<bool> {
        self.checks = self.checks.checked_add(1).filter(|checks| *checks <= self.most)?;
        Some((self.conflicts)(&candidates.concat()))
    }

    /// Takes as many slices out of the candidate `at` as the conflict does not need.
    fn thin(&mut self, candidates: &mut [&[usize]], at: usize) -> Option<()> {
        let alike = candidates[at];
        // None of them are too few: the candidate is needed.
        let (mut few, mut enough) = (0, alike.len());
        while few + 1 < enough {
            let middle = few.midpoint(enough);
            candidates[at] = &alike[..middle];
            let conflicts = self.check(candidates);
            candidates[at] = &alike[..enough];
            if conflicts? {
                enough = middle
            } else {
                few = middle
            }
            candidates[at] = &alike[..enough];
        }
        Some(())
    }

    /// Returns an irreducible part of `candidates` that conflicts beside `background`. `has_grown`
    /// is true if the background is larger than when it was last known not to conflict.
    fn explain<'s>(
        &mut self,
        background: &[&'s [usize]],
        has_grown: bool,
        candidates: &[&'s [usize]],
    ) -> Option<Vec<&'s [usize]>> {
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
        let slices: Vec<usize> = (0..100).collect();
        let candidates: Vec<&[usize]> = slices.chunks(1).collect();
        let mut conflicts = |set: &[usize]| [3, 20, 77].iter().all(|one| set.contains(one));
        let found = find_conflict(&candidates, 1000, &mut conflicts);
        assert_eq!((found.slices, found.is_irreducible), (vec![3, 20, 77], true));
        assert!(found.checks < 50, "{}", found.checks);
    }

    /// Any eleven of a hundred are too many.
    #[test]
    fn a_sum_that_is_too_large_is_reduced() {
        let slices: Vec<usize> = (0..100).collect();
        let candidates: Vec<&[usize]> = slices.chunks(1).collect();
        let found = find_conflict(&candidates, 1000, &mut |set: &[usize]| set.len() > 10);
        assert_eq!((found.slices.len(), found.is_irreducible), (11, true));
        let found = find_conflict(&candidates, 9, &mut |set: &[usize]| set.len() > 10);
        assert!(!found.is_irreducible && found.slices.len() > 10);
    }
    /// Goal: slices that are alike cost the logarithm of their number. 6001 of the first thousands
    /// and 3 of the last one conflict; two thousands between them have no part in it.
    #[test]
    fn slices_that_are_alike_are_counted_by_halves() {
        let slices: Vec<usize> = (0..10_000).collect();
        let candidates = [&slices[..7000], &slices[7000..9000], &slices[9000..]];
        let mut conflicts = |set: &[usize]| {
            let early = set.iter().filter(|slice| **slice < 7000).count();
            early > 6000 && set.iter().filter(|slice| **slice >= 9000).count() > 2
        };
        let found = find_conflict(&candidates, 1000, &mut conflicts);
        let expected: Vec<usize> = (0..6001).chain(9000..9003).collect();
        assert!(found.slices == expected && found.is_irreducible);
        assert!(found.checks < 40, "{}", found.checks);
        let found = find_conflict(&candidates, 12, &mut conflicts);
        assert!(!found.is_irreducible && conflicts(&found.slices));
    }
}
