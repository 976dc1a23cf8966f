// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole nodes from a mixture of patterns: take the whole parts, mix again what is left.
//!
//! Each turn packs whole nodes and makes the problem smaller. Where the mixture uses each pattern
//! less than once, the patterns nearest to one are taken. Columns are generated for what is left,
//! since patterns that were good for many items are too large for the last few.

use crate::columns::{ColumnLimits, PackingGoal, PatternMix, generate};
use crate::packing::{NodePattern, PackingProblem, PatternPool};

/// Packs nodes, one entry for each; items that no node was found for are left out.
pub(crate) fn whole_nodes(
    problem: &PackingProblem,
    pool: &mut PatternPool,
    mix: &PatternMix,
    limits: ColumnLimits,
) -> Vec<NodePattern> {
    let mut left = problem.clone();
    let mut nodes = vec![];
    let mut uses = mix.uses.clone();
    for _ in 0..TURNS_MAX {
        let before = nodes.len();
        for (pattern, times) in &uses {
            let mut whole = (times + WHOLE).floor();
            while whole >= 1.0 {
                nodes.extend(left.take(&pool.patterns[*pattern]));
                whole -= 1.0;
            }
        }
        if nodes.len() == before {
            uses.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            for (pattern, _) in uses.iter().take(1 + uses.len() / FRACTIONS) {
                nodes.extend(left.take(&pool.patterns[*pattern]));
            }
        }
        if nodes.len() == before || left.is_done() {
            break;
        }
        uses = generate(&left, pool, PackingGoal::Cost, limits).uses;
    }
    nodes
}

/// Turns of rounding: each takes a node at least.
const TURNS_MAX: u32 = 1000;
/// A pattern that is used so much less than once is used once.
const WHOLE: f64 = 1e-3;
/// One of this many fractions is rounded up in a turn.
const FRACTIONS: usize = 12;
