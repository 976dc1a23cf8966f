// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weighted max-min fairness of tenants whose packets pass several nodes (D. Bertsekas and R.
//! Gallager, *Data Networks*, §6.5.2): a tenant has one rate, and every node that it passes must
//! carry it.
//!
//! Nodes fill up one after the other. The one at which tenants get least for their weight is a
//! bottleneck: its tenants cannot have more anywhere, so what they leave at other nodes is for the
//! others.

use alloc::vec;
use alloc::vec::Vec;

use weir_units::PacketRate;

use super::set_points::{LEVEL_BITS, RateClaim, weighted_max_min};

/// A tenant's claim, and the nodes that its packets pass, each once, as places in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassingClaim {
    /// Its guarantees and its demand.
    pub claim: RateClaim,
    /// The nodes.
    pub nodes: Vec<usize>,
}

/// Divides the capacities of nodes, `None` for a node that does not limit anybody. The sum at each
/// node is at most its capacity if its guarantees are. No tenant can get more without taking from
/// one at the same node that has less for its weight. Nodes that the list lacks are passed over.
///
/// Cost: at most one pass of [`weighted_max_min`] for each pair of nodes.
#[must_use]
pub fn max_min_over_nodes(
    capacities: &[Option<PacketRate>],
    claims: &[PassingClaim],
) -> Vec<PacketRate> {
    let most = |of: &PassingClaim| PacketRate::from_pps(of.claim.ceiling());
    let mut rates: Vec<PacketRate> = claims.iter().map(most).collect();
    let mut is_fixed = vec![false; claims.len()];
    let mut left = capacities.to_vec();
    // Each round fixes a node.
    for _round in 0..capacities.len() {
        let Some(node) = bottleneck(&left, claims, &rates, &is_fixed) else { break };
        let shares = shares(node, &left, claims, &is_fixed);
        left[node] = None;
        for (tenant, share) in shares {
            rates[tenant] = share.min(rates[tenant]);
            is_fixed[tenant] = true;
            for place in &claims[tenant].nodes {
                if let Some(Some(capacity)) = left.get_mut(*place) {
                    let rest = capacity.as_pps().saturating_sub(rates[tenant].as_pps());
                    *capacity = PacketRate::from_pps(rest);
                }
            }
        }
    }
    rates
}

/// Finds the node at which a tenant that gets less than it could gets least for its weight.
fn bottleneck(
    left: &[Option<PacketRate>],
    claims: &[PassingClaim],
    most: &[PacketRate],
    is_fixed: &[bool],
) -> Option<usize> {
    let levels = (0..left.len()).filter_map(|node| {
        let held = shares(node, left, claims, is_fixed);
        let held = held.into_iter().filter(|(tenant, share)| *share < most[*tenant]);
        let level = held.map(|(tenant, share)| {
            (u128::from(share.as_pps()) << LEVEL_BITS) / claims[tenant].claim.weight()
        });
        Some((level.min()?, node))
    });
    levels.min().map(|(_, node)| node)
}

/// Divides what is left of a node among its tenants that are not fixed yet.
fn shares(
    node: usize,
    left: &[Option<PacketRate>],
    claims: &[PassingClaim],
    is_fixed: &[bool],
) -> Vec<(usize, PacketRate)> {
    let Some(Some(capacity)) = left.get(node) else { return Vec::new() };
    let here = |tenant: &usize| !is_fixed[*tenant] && claims[*tenant].nodes.contains(&node);
    let tenants: Vec<usize> = (0..claims.len()).filter(here).collect();
    let own: Vec<RateClaim> = tenants.iter().map(|tenant| claims[*tenant].claim).collect();
    tenants.into_iter().zip(weighted_max_min(*capacity, &own)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    fn pps(pps: u64) -> PacketRate {
        PacketRate::from_pps(pps)
    }

    fn claim(weight: u32, wants: Option<u64>, nodes: &[usize]) -> PassingClaim {
        let claim = RateClaim { min: pps(0), max: None, weight, wants: wants.map(pps) };
        PassingClaim { claim, nodes: nodes.to_vec() }
    }

    fn divided(capacities: &[u64], claims: &[PassingClaim]) -> Vec<u64> {
        let capacities: Vec<_> = capacities.iter().map(|of| Some(pps(*of))).collect();
        let rates = max_min_over_nodes(&capacities, claims);
        rates.into_iter().map(PacketRate::as_pps).collect()
    }

    #[test]
    fn shares_by_hand() {
        let all = None;
        // The classic chain: who passes both nodes has least, and leaves more at the wider one.
        let chain = [claim(1, all, &[0, 1]), claim(1, all, &[0]), claim(1, all, &[1])];
        assert_eq!(divided(&[100, 60], &chain), [30, 70, 30]);
        assert_eq!(divided(&[100, 300], &chain), [50, 50, 250]);
        // A weight of two, and one that wants little.
        let weighed = [claim(2, all, &[0, 1]), claim(1, all, &[0]), claim(1, Some(5), &[1])];
        assert_eq!(divided(&[90, 300], &weighed), [60, 30, 5]);
        // Nobody is limited where there is room, or where there is no limit.
        assert_eq!(
            divided(&[100], &[claim(1, Some(20), &[0]), claim(1, Some(30), &[0])]),
            [20, 30]
        );
        let free = max_min_over_nodes(&[None], &[claim(1, Some(20), &[0, 7])]);
        assert_eq!(free, [pps(20)]);
    }

    /// Goal: the law of max-min over many nodes. Each tenant has all it can use, or passes a
    /// full node at which no other tenant has more for the same weight.
    #[test]
    fn every_tenant_has_what_it_wants_or_a_bottleneck() {
        let mut noise = Noise::new(5);
        let (mut limited, mut free) = (0, 0);
        for _round in 0..2000 {
            let mut number = |most: u64| noise.next() % most.max(1);
            let nodes = 1 + usize::try_from(number(5)).unwrap();
            let capacities: Vec<u64> = (0..nodes).map(|_| 100_000 + number(1_000_000)).collect();
            let claims: Vec<PassingClaim> = (0..1 + number(8))
                .map(|_| {
                    let passed: Vec<usize> = (0..nodes).filter(|_| number(2) == 0).collect();
                    let wants = (number(2) == 0).then(|| number(600_000));
                    claim(u32::try_from(1 + number(4)).unwrap(), wants, &passed)
                })
                .filter(|of| !of.nodes.is_empty())
                .collect();
            let rates = divided(&capacities, &claims);
            let at = |node: usize| {
                let here =
                    claims.iter().zip(&rates).filter(move |(of, _)| of.nodes.contains(&node));
                here.map(|(of, rate)| (u64::from(of.claim.weight), *rate))
            };
            for (node, capacity) in capacities.iter().enumerate() {
                assert!(at(node).map(|(_, rate)| rate).sum::<u64>() <= *capacity);
            }
            for (of, rate) in claims.iter().zip(&rates) {
                let wants = of.claim.wants.map_or(u64::MAX, PacketRate::as_pps);
                assert!(*rate <= wants);
                if *rate == wants {
                    free += 1;
                    continue;
                }
                let weight = u64::from(of.claim.weight);
                let is_bottleneck = |node: &usize| {
                    let full = at(*node).map(|(_, rate)| rate).sum::<u64>() == capacities[*node];
                    // To the packet, for each unit of weight.
                    full && at(*node).all(|(theirs, other)| (rate + 5) * theirs >= other * weight)
                };
                assert!(
                    of.nodes.iter().any(is_bottleneck),
                    "{of:?} has {rate}: {claims:?} {rates:?}"
                );
                limited += 1;
            }
        }
        assert!(limited > 2000 && free > 1000, "{limited} {free}");
    }
}
