// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An irreducible conflict with regard to the linear bound, also of many thousand slices.
//!
//! Weights that prove a bound are a sum over slices, so each slice that the sum can spare goes
//! without a program being solved. In the order of preference, the shortest prefix that conflicts
//! is found first: the weights of a conflicting prefix give a shorter one by prefix sums, until
//! the prefix without its last slice fits. Then slices are taken away, the least preferred first.
//! A slice goes if the weights still prove a conflict without it. It stays if a mixture near the
//! last one shows that the rest fits, or any mixture of the known ways. In between, a linear
//! program with new ways decides. The outcome is that of `QuickXplain` (`conflict`) on the same
//! order: a slice stays if the slices before it, and those after it that stay, do not conflict
//! without it.

use crate::conflict::SliceConflict;
use crate::loads::{BoundDepth, LoadProgram, LoadProof, SliceLoads};
use crate::shapes::ShapedRequest;

/// Finds an irreducible conflict among `order`, which falls short all together; the first ones are
/// preferred. At most `programs` linear programs get new ways.
pub(crate) fn shrink(request: &ShapedRequest, order: &[usize], programs: u32) -> SliceConflict {
    debug_assert!(
        order.iter().all(|slice| request.has_home(*slice)),
        "a slice that fits nowhere is refused by itself, and no weights prove it"
    );
    let counts = request.counts(order);
    let loads = SliceLoads::of(request, &counts);
    let entries = loads.entries();
    let entry_of: Vec<usize> =
        order.iter().filter_map(|slice| entries[request.shape_of[*slice]]).collect();
    let search = ShrinkSearch { loads: &loads, programs };
    let Some((high, program, proof)) = search.prefix(&entry_of, loads.counts(&counts)) else {
        let slices = order.to_vec();
        return SliceConflict { slices, is_irreducible: false, checks: loads.solved() };
    };
    let (kept, is_irreducible) = search.filter(&entry_of[..high], program, proof);
    let mut slices: Vec<usize> = kept.into_iter().map(|at| order[at]).collect();
    slices.sort_unstable();
    SliceConflict { slices, is_irreducible, checks: loads.solved() }
}

struct ShrinkSearch<'l> {
    loads: &'l SliceLoads<'l>,
    programs: u32,
}

impl<'l> ShrinkSearch<'l> {
    /// Tells whether another linear program may get new ways.
    fn may_solve(&self) -> bool {
        self.loads.solved() < self.programs
    }

    /// Returns the length of the shortest prefix that falls short, with its program and proof.
    /// `None` if not even all are proven to fall short.
    fn prefix(
        &self,
        entry_of: &[usize],
        counts: Vec<u32>,
    ) -> Option<(usize, LoadProgram<'l>, LoadProof)> {
        if !self.may_solve() {
            return None;
        }
        let mut program = LoadProgram::new(self.loads, counts);
        let mut proof = program.solve(BoundDepth::Weights)?;
        // `is_solved`: the program's ways are of this prefix, not of a longer one.
        let (mut high, mut is_solved) = (entry_of.len(), true);
        loop {
            let length = shortest_proven(self.loads, &entry_of[..high], &proof);
            entry_of[length..high].iter().for_each(|entry| program.remove(*entry));
            (high, is_solved) = (length, is_solved && length == high);
            let Some(last) = high.checked_sub(1).filter(|_| self.may_solve()) else { break };
            let mut counts = program.counts().to_vec();
            counts[entry_of[last]] -= 1;
            let mut without = LoadProgram::new(self.loads, counts);
            let Some(shorter) = without.solve(BoundDepth::Weights) else { break };
            (high, program, proof, is_solved) = (last, without, shorter, true);
        }
        // The proof at hand holds in any case; a better one spares more slices.
        if !is_solved && self.may_solve() {
            program = LoadProgram::new(self.loads, program.counts().to_vec());
            proof = program.solve(BoundDepth::Weights).unwrap_or(proof);
        }
        Some((high, program, proof))
    }

    /// Takes away what the conflict does not need, the last first; returns the positions that stay,
    /// and whether all of them are needed.
    fn filter(
        &self,
        entry_of: &[usize],
        mut program: LoadProgram<'l>,
        mut proof: LoadProof,
    ) -> (Vec<usize>, bool) {
        let mut need = proof.need(self.loads, program.counts());
        let mut kept = vec![];
        let mut is_needed = vec![false; program.counts().len()];
        for (at, entry) in entry_of.iter().copied().enumerate().rev() {
            // If the conflict needs one of several equal slices, it needs all that are left.
            if is_needed[entry] {
                kept.push(at);
                continue;
            }
            let price = proof.price(self.loads, entry);
            program.remove(entry);
            if need - price > proof.all {
                need -= price;
                continue;
            }
            if !program.nearby_mixture_fits() && !program.known_ways_fit() {
                if !self.may_solve() {
                    program.put_back(entry);
                    kept.extend(0..=at);
                    return (kept, false);
                }
                if let Some(better) = program.solve(BoundDepth::Weights) {
                    need = better.need(self.loads, program.counts());
                    proof = better;
                    continue;
                }
            }
            program.put_back(entry);
            is_needed[entry] = true;
            kept.push(at);
        }
        (kept, true)
    }
}

/// Returns the length of the shortest prefix that a proof still holds for.
fn shortest_proven(loads: &SliceLoads<'_>, entry_of: &[usize], proof: &LoadProof) -> usize {
    let mut sum = 0;
    for (at, entry) in entry_of.iter().enumerate() {
        sum += proof.price(loads, *entry);
        if sum > proof.all {
            return at + 1;
        }
    }
    entry_of.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::capacity_bound;
    use crate::capacity::tests::random_request;
    use crate::conflict::find_conflict;
    use crate::resource::ResourceAmounts;

    /// Returns a random request in which each of twelve shapes has `of_each` slices, or a shape of
    /// its own that is larger by some millionths.
    fn random_slices(state: &mut u64, of_each: usize, all_differ: bool) -> ShapedRequest {
        let mut request = random_request(state);
        for kind in &mut request.kinds {
            kind.capacity = ResourceAmounts(kind.capacity.0.map(|amount| amount * MILLION));
        }
        let types = std::mem::take(&mut request.shapes);
        for at in 0..types.len() * of_each {
            let more = if all_differ { (at as u64 * 7919) % 1_000_003 } else { 0 };
            let shape = if all_differ { at } else { at % types.len() };
            let larger = |one: ResourceAmounts| {
                ResourceAmounts(one.0.map(|amount| amount * (MILLION + more * amount % MILLION)))
            };
            if shape == request.shapes.len() {
                let of_type = types[at % types.len()].iter();
                request.shapes.push(of_type.map(|demand| demand.map(larger)).collect());
            }
            request.shape_of.push(shape);
        }
        request
    }

    fn conflicts(request: &ShapedRequest, set: &[usize]) -> bool {
        capacity_bound(request, &request.counts(set), BoundDepth::Answer).falls_short
    }

    /// Goal: the fast search finds the conflict of `QuickXplain`, slice by slice, whichever slices
    /// are preferred. Some of them take a linear program.
    #[test]
    fn the_conflict_is_that_of_quickxplain() {
        let (mut state, mut found, mut programs) = (5, 0, 0);
        for round in 0..240_usize {
            let request = random_slices(&mut state, 1 + round % 9, round % 2 == 0);
            let mut order: Vec<usize> = (0..request.shape_of.len()).collect();
            let key = |slice: &usize| {
                let shape = request.shape_of[*slice];
                (shape.wrapping_mul(31 * round + 7) % 101, shape, *slice)
            };
            order.sort_by_key(key);
            if !conflicts(&request, &order) {
                continue;
            }
            let fast = shrink(&request, &order, u32::MAX);
            let each: Vec<&[usize]> = order.chunks(1).collect();
            let slow = find_conflict(&each, u32::MAX, &mut |set| conflicts(&request, set));
            assert_eq!(fast.slices, slow.slices, "round {round}");
            assert!(fast.is_irreducible && conflicts(&request, &fast.slices));
            for without in &fast.slices {
                let rest: Vec<_> = fast.slices.iter().copied().filter(|at| at != without).collect();
                assert!(!conflicts(&request, &rest), "round {round}: {without} is not needed");
            }
            found += 1;
            programs += fast.checks;
        }
        println!("{found} conflicts by {programs} programs");
        assert!(found > 40 && programs > 3 * found, "{found} {programs}");
    }

    /// When the programs are used up, what is left still conflicts.
    #[test]
    fn a_search_that_ends_early_says_so() {
        let mut state = 5;
        let (mut early, mut done) = (0, 0);
        for round in 0..60_usize {
            let request = random_slices(&mut state, 9, true);
            let order: Vec<usize> = (0..request.shape_of.len()).collect();
            for programs in (0..4).chain((8..80).step_by(8)) {
                if !conflicts(&request, &order) {
                    continue;
                }
                let found = shrink(&request, &order, programs);
                assert!(conflicts(&request, &found.slices), "round {round}");
                assert!(found.checks <= programs, "round {round}");
                let count = if found.is_irreducible { &mut done } else { &mut early };
                *count += 1;
            }
        }
        assert!(early > 20 && done > 20, "{early} {done}");
    }

    const MILLION: u64 = 1_000_000;
}
