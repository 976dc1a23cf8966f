// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The share of each tenant of a link, computed without a scheduler: weighted max-min fairness
//! between what is guaranteed and what is allowed (Bertsekas and Gallager, *Data Networks*, 1992,
//! §6.5.2, with lower bounds).
//!
//! Let *least* of a tenant be the lesser of its minimum and its offer, and *most* the lesser of its
//! limit and its offer. There is one level λ at which the shares `weight · λ`, each clamped to
//! least and most, fill the link, unless all tenants have their most before. Their sum grows with
//! λ, so bisection finds it.

/// A tenant's guarantee, limit and offer, in bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareDemand {
    /// Its weight, at least 1.
    pub weight: u32,
    /// Guaranteed rate; all guarantees together are at most the link.
    pub min_bps: u64,
    /// Maximum rate; `None`: no limit.
    pub max_bps: Option<u64>,
    /// Rate at which it would send without limits.
    pub offer_bps: u64,
}

/// Returns the share of each tenant of a link of `link_bps`, in bits a second.
pub fn shares(link_bps: u64, demands: &[ShareDemand]) -> Vec<f64> {
    let link = weir_experiment::float(link_bps);
    let at = |level: f64| demands.iter().map(|demand| demand.at(level)).collect::<Vec<_>>();
    let total = |level: f64| at(level).iter().sum::<f64>();
    // At this level each tenant has its most, or twice the link: no weight is below 1.
    let mut above = link.max(1.0) * 2.0;
    if total(above) <= link {
        return at(above);
    }
    let mut below = 0.0;
    // A double has 53 bits: after so many halvings the two ends are neighbours.
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(below, above);
        if total(middle) > link { above = middle } else { below = middle }
    }
    at(below)
}

impl ShareDemand {
    /// Returns its share at a level.
    fn at(&self, level: f64) -> f64 {
        let most = self.max_bps.unwrap_or(u64::MAX).min(self.offer_bps);
        let least = self.min_bps.min(most);
        (f64::from(self.weight) * level)
            .clamp(weir_experiment::float(least), weir_experiment::float(most))
    }
}

/// The number of bisections.
const HALVINGS: u32 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 1_000;

    fn demand(weight: u32, min_bps: u64, max_bps: Option<u64>, offer_bps: u64) -> ShareDemand {
        ShareDemand { weight, min_bps, max_bps, offer_bps }
    }

    fn is(demands: &[ShareDemand], expected: &[f64]) {
        let got = shares(100, demands);
        let near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6);
        assert!(near && got.len() == expected.len(), "{got:?}, not {expected:?}");
    }

    #[test]
    fn weights_divide_what_all_want() {
        is(&[demand(3, 0, None, ALL), demand(1, 0, None, ALL)], &[75.0, 25.0]);
    }

    #[test]
    fn what_one_does_not_want_is_divided_among_the_others() {
        let wants = demand(1, 0, None, ALL);
        is(&[demand(1, 0, None, 10), wants, wants], &[10.0, 45.0, 45.0]);
        is(&[demand(1, 50, None, 10), wants], &[10.0, 90.0]);
        is(&[demand(1, 0, None, 10), demand(1, 0, None, 20)], &[10.0, 20.0]);
    }

    #[test]
    fn minimums_and_rates_bound_a_share() {
        let wants = demand(1, 0, None, ALL);
        is(&[demand(1, 60, None, ALL), wants, wants], &[60.0, 20.0, 20.0]);
        is(&[demand(1, 20, None, ALL), wants], &[50.0, 50.0]);
        is(&[demand(1, 0, Some(5), ALL), wants], &[5.0, 95.0]);
    }
}
