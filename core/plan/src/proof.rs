// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lower bounds on what a placement costs, proven in integers.
//!
//! Give each slice any value, and let no node of kind k hold more value than u_k (the knapsack's
//! upper bound). All slices together are worth V = Σ n·v. A used node of kind k carries at most
//! u_k and costs c_k, and there are N_k of it, so a placement costs at least
//!
//! V − Σ_k N_k · max(0, u_k − c_k)
//!
//! which is Lagrange's bound. Values may be scaled by any s: at s = min c_k / u_k no node pays, and
//! the bound is Farley's, s · V. In s the bound is concave and made of straight pieces, so its
//! maximum is at one of the s = c_k / u_k, or at 1. Read: Farley, *A note on bounding a class of
//! linear programming problems*, Operations Research 38 (1990).
//!
//! With costs of zero and values of at most one, the bound is on the slices that stay without a
//! place: above zero it proves that they do not all fit.

/// A kind of node in the bound; all in units of [`VALUE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundedKind {
    /// The nodes that there are.
    pub(crate) count: u32,
    /// The cost of one.
    pub(crate) cost: u64,
    /// No node holds more value.
    pub(crate) upper: u64,
}

/// Returns the highest bound that the values prove, rounded down; `value` is that of all slices
/// together.
pub(crate) fn lower_bound(value: u128, kinds: &[BoundedKind]) -> u128 {
    let pays = |kind: &&BoundedKind| kind.count > 0 && kind.cost > 0 && kind.upper > kind.cost;
    let scales = kinds.iter().filter(pays).map(|kind| (kind.cost, kind.upper));
    scales.chain([(1, 1)]).map(|scale| bound_at(value, kinds, scale)).max().unwrap_or(0)
}

/// Returns the bound with all values times `above` / `below`, which is at most 1.
fn bound_at(value: u128, kinds: &[BoundedKind], (above, below): (u64, u64)) -> u128 {
    let (above, below) = (u128::from(above), u128::from(below));
    let excess = |kind: &BoundedKind| {
        let upper = (u128::from(kind.upper) * above).div_ceil(below);
        upper.saturating_sub(u128::from(kind.cost)) * u128::from(kind.count)
    };
    let excess: u128 = kinds.iter().map(excess).sum();
    // The value of 20 000 slices is below 2^80, a cost below 2^43: nothing overflows.
    (value * above / below).saturating_sub(excess)
}

/// One unit of cost, or one slice without a place.
pub(crate) const VALUE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten slices worth 4 each, nodes that hold 12 and cost 10: s = 10/12, so 33; three nodes at 1
    /// bring 40 − 3 · 2 = 34.
    #[test]
    fn the_better_of_farley_and_lagrange_is_taken() {
        let kind = BoundedKind { count: 3, cost: 10, upper: 12 };
        assert_eq!(lower_bound(40, &[kind]), 34);
        assert_eq!(lower_bound(40, &[BoundedKind { count: 100, ..kind }]), 33);
        assert_eq!(lower_bound(40, &[BoundedKind { upper: 9, ..kind }]), 40);
        assert_eq!(lower_bound(5, &[BoundedKind { cost: 0, ..kind }]), 0);
    }
}
