// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Set-points by weighted max-min fairness (D. Bertsekas and R. Gallager, *Data Networks*, §6.5).

use alloc::vec::Vec;
use core::fmt;

use weir_units::PacketRate;

/// The claim of a router: its guarantees and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateClaim {
    /// The guaranteed rate: `min_pps`.
    pub min: PacketRate,
    /// The limit: `max_pps`.
    pub max: Option<PacketRate>,
    /// Its weight in the division of the rest, from 1 to [`RateClaim::WEIGHT_MAX`]; other values
    /// are clamped.
    pub weight: u32,
    /// Its estimated demand (see [`wants`]); `None`: as much as it can get.
    pub wants: Option<PacketRate>,
}

/// The error of guarantees that exceed the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionError {
    /// The sum of the minimums, saturating.
    pub sum: PacketRate,
    /// The measured capacity of the node.
    pub capacity: PacketRate,
}

impl RateClaim {
    /// The largest weight.
    pub const WEIGHT_MAX: u32 = 1_000_000;

    /// Returns its demand, bounded by its limit.
    pub(super) fn ceiling(&self) -> u64 {
        let most = |rate: Option<PacketRate>| rate.map_or(u64::MAX, PacketRate::as_pps);
        most(self.max).min(most(self.wants))
    }

    /// Returns its share before the rest is divided: the guarantee, bounded by demand and limit.
    fn floor(&self) -> u64 {
        self.min.as_pps().min(self.ceiling())
    }

    pub(super) fn weight(&self) -> u128 {
        u128::from(self.weight.clamp(1, Self::WEIGHT_MAX))
    }

    /// Returns its share at a water level, in 2⁻²⁰ packets a second each unit of weight.
    fn at(&self, level: u128) -> u64 {
        let share = (self.weight() * level) >> LEVEL_BITS;
        u64::try_from(share).unwrap_or(u64::MAX).clamp(self.floor(), self.ceiling())
    }
}

/// Checks that all guarantees fit on a node of this capacity.
///
/// # Errors
/// They do not fit: the sum and the bound.
pub fn admit(
    capacity: PacketRate,
    minimums: impl IntoIterator<Item = PacketRate>,
) -> Result<(), AdmissionError> {
    let sum = minimums.into_iter().fold(0u64, |sum, min| sum.saturating_add(min.as_pps()));
    let sum = PacketRate::from_pps(sum);
    if sum <= capacity { Ok(()) } else { Err(AdmissionError { sum, capacity }) }
}

/// Divides `capacity`: each router gets its guarantee as far as it wants it, and of the rest as
/// much as the others for the same weight, bounded by demand and limit. No router can get more
/// without taking from one that has less for its weight. The sum is at most `capacity`, and equal
/// to it where that much is wanted. Guarantees that exceed the capacity are cut in proportion.
///
/// The shares are exact to the packet; the remainder goes to the first routers. Cost: at most 84
/// passes, some 40 at 100 kp/s.
#[must_use]
pub fn weighted_max_min(capacity: PacketRate, claims: &[RateClaim]) -> Vec<PacketRate> {
    let capacity = u128::from(capacity.as_pps());
    let sum =
        |of: &dyn Fn(&RateClaim) -> u64| claims.iter().map(|claim| u128::from(of(claim))).sum();
    let floors: u128 = sum(&RateClaim::floor);
    if floors > capacity {
        let cut = |claim: &RateClaim| u128::from(claim.floor()) * capacity / floors;
        let rates = claims.iter().map(|claim| u64::try_from(cut(claim)).unwrap_or(u64::MAX));
        let mut rates: Vec<u64> = rates.collect();
        // Each was rounded down by less than one, so that one for each is enough.
        let mut rest = capacity - rates.iter().map(|rate| u128::from(*rate)).sum::<u128>();
        for (rate, claim) in rates.iter_mut().zip(claims) {
            if rest > 0 && *rate < claim.floor() {
                *rate += 1;
                rest -= 1;
            }
        }
        return rates.into_iter().map(PacketRate::from_pps).collect();
    }
    // The highest level whose sum still fits; level 0 does, as the floors fit.
    let (mut fits, mut spills) = (0u128, (capacity + 1) << LEVEL_BITS);
    while spills - fits > 1 {
        let level = fits + (spills - fits) / 2;
        let total: u128 = sum(&|claim| claim.at(level));
        if total <= capacity { fits = level } else { spills = level }
    }
    let mut rates: Vec<u64> = claims.iter().map(|claim| claim.at(fits)).collect();
    let mut rest = capacity - rates.iter().map(|rate| u128::from(*rate)).sum::<u128>();
    for (rate, claim) in rates.iter_mut().zip(claims) {
        // At the next level all of these would rise by one, which is more than is left.
        let next = claim.at(fits + 1).max(*rate);
        let more = u128::from(next - *rate).min(rest);
        *rate += u64::try_from(more).unwrap_or(0);
        rest -= more;
    }
    rates.into_iter().map(PacketRate::from_pps).collect()
}

/// Returns the set-points: the shares of [`weighted_max_min`], but at least the guarantee of each.
/// A router that does not use its guarantee lends it to the others. It has it back with its next
/// packet; the others yield with the next period. Until then more may be forwarded than the node
/// carries, at most by the lent rate, and any router may lose packets: a node that guarantees
/// minimums within a period too passes a `capacity` with a reserve left out.
///
/// ```
/// use weir_control::police::{RateClaim, set_points};
/// use weir_units::PacketRate;
///
/// let kpps = |kpps: u64| PacketRate::from_pps(kpps * 1000);
/// let claim = |min, wants| RateClaim { min, max: None, weight: 1, wants };
/// let idle = claim(kpps(30), Some(kpps(10)));
/// let busy = claim(kpps(30), None);
/// assert_eq!(set_points(kpps(100), &[idle, busy]), [kpps(30), kpps(90)]);
/// ```
#[must_use]
pub fn set_points(capacity: PacketRate, claims: &[RateClaim]) -> Vec<PacketRate> {
    let shared = weighted_max_min(capacity, claims);
    let held = |(rate, claim): (PacketRate, &RateClaim)| {
        rate.max(claim.max.map_or(claim.min, |max| claim.min.min(max)))
    };
    shared.into_iter().zip(claims).map(held).collect()
}

/// Estimates the demand of a router: all it can get (`None`) where it comes within a twentieth of
/// its set-point, since a sender that yields shows no more than it is given; otherwise a quarter
/// more than its used or offered rate, so that it can grow until the next period.
#[must_use]
pub fn wants(
    set_point: PacketRate,
    used: PacketRate,
    offered: Option<PacketRate>,
) -> Option<PacketRate> {
    let seen = offered.map_or(used, |offered| offered.max(used)).as_pps();
    let near = u128::from(seen) * 20 >= u128::from(set_point.as_pps()) * 19;
    (!near).then(|| PacketRate::from_pps(seen.saturating_add(seen / 4).max(WANTS_LEAST)))
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sum, capacity } = self;
        write!(f, "min_pps add up to {sum}, must be at most the node's capacity of {capacity}")
    }
}

impl core::error::Error for AdmissionError {}

/// The part of a capacity that is shared, in millionths: the demand at which contention begins, so
/// that sharing does not prolong it. The reserve serves a router that takes back what it had lent
/// before others have yielded.
pub const SHARED_PPM: u32 = 950_000;

/// A set-point moves by more than this fraction of itself (one part in 50), or not at all: each
/// move is a call of an actuator, or a request to a node.
pub const MOVED_PART: u64 = 50;

/// The least set-point.
pub const SET_POINT_LEAST: PacketRate = PacketRate::from_pps(1);

/// Fraction bits of a water level: so fine that one step moves the largest weight by less than a
/// packet.
pub(super) const LEVEL_BITS: u32 = 20;
/// The least demand, in packets a second, that even an idle router is assumed to have.
pub(super) const WANTS_LEAST: u64 = 100;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::noise::Noise;

    fn pps(pps: u64) -> PacketRate {
        PacketRate::from_pps(pps)
    }

    fn claim(min: u64, max: Option<u64>, weight: u32, wants: Option<u64>) -> RateClaim {
        RateClaim { min: pps(min), max: max.map(pps), weight, wants: wants.map(pps) }
    }

    #[test]
    fn shares_by_hand() {
        let all = |claims: &[RateClaim]| -> Vec<u64> {
            weighted_max_min(pps(100), claims).iter().map(|rate| rate.as_pps()).collect()
        };
        assert_eq!(all(&[claim(0, None, 1, None), claim(0, None, 3, None)]), [25, 75]);
        assert_eq!(all(&[claim(40, None, 1, None), claim(0, None, 3, None)]), [40, 60]);
        assert_eq!(all(&[claim(0, Some(10), 9, None), claim(0, None, 1, None)]), [10, 90]);
        assert_eq!(all(&[claim(50, None, 1, Some(20)), claim(0, None, 1, None)]), [20, 80]);
        assert_eq!(all(&[claim(0, None, 1, Some(20)), claim(0, None, 1, Some(30))]), [20, 30]);
        assert_eq!(all(&[claim(0, None, 1, None); 3]), [34, 33, 33]);
        assert_eq!(all(&[claim(150, None, 1, None), claim(50, None, 1, None)]), [75, 25]);
        assert_eq!(all(&[claim(50, None, 1, None); 3]), [34, 33, 33], "cut, and nothing left over");
        assert_eq!(all(&[]), [0; 0]);
    }

    /// Goal: the laws of weighted max-min on thousands of random nodes, huge numbers included.
    #[test]
    fn no_node_breaks_the_laws() {
        let mut noise = Noise::new(11);
        let (mut shared, mut cut, mut lent) = (0, 0, 0);
        for round in 0..3000 {
            let scale = if round % 10 == 0 { u64::MAX } else { 1_000_000 };
            let mut number = |most: u64| noise.next() % most.max(1);
            let capacity = number(scale);
            let count = 1 + number(8);
            let claims: Vec<RateClaim> = (0..count)
                .map(|_| {
                    let min = number(scale / 8);
                    let max = (number(3) == 0).then(|| min.saturating_add(number(scale)));
                    let wants = (number(2) == 0).then(|| number(scale));
                    claim(min, max, u32::try_from(number(1 << 20)).unwrap(), wants)
                })
                .collect();
            let rates = weighted_max_min(pps(capacity), &claims);
            let total: u128 = rates.iter().map(|rate| u128::from(rate.as_pps())).sum();
            let floors: u128 = claims.iter().map(|claim| u128::from(claim.floor())).sum();
            let ceilings: u128 = claims.iter().map(|claim| u128::from(claim.ceiling())).sum();
            assert!(total <= u128::from(capacity));
            if floors > u128::from(capacity) {
                assert_eq!(total, u128::from(capacity), "cut, and nothing left over");
                for (rate, claim) in rates.iter().zip(&claims) {
                    let exact = u128::from(claim.floor()) * u128::from(capacity);
                    let rate = u128::from(rate.as_pps()) * floors;
                    assert!(rate.abs_diff(exact) <= floors, "in proportion, to the packet");
                }
                cut += 1;
                continue;
            }
            assert_eq!(total, ceilings.min(u128::from(capacity)), "nothing is left over");
            for (rate, claim) in rates.iter().zip(&claims) {
                let rate = rate.as_pps();
                assert!((claim.floor()..=claim.ceiling()).contains(&rate));
                for (other, theirs) in rates.iter().zip(&claims) {
                    let other = other.as_pps();
                    // Who could take more has no less for its weight than who could give some.
                    if rate < claim.ceiling() && other > theirs.floor() {
                        let mine = u128::from(rate + 1) * theirs.weight();
                        assert!(mine >= u128::from(other - 1) * claim.weight());
                        shared += 1;
                    }
                }
            }
            let held = set_points(pps(capacity), &claims);
            assert!(held.iter().zip(&claims).all(|(rate, claim)| *rate >= claim.min));
            let held: u128 = held.iter().map(|rate| u128::from(rate.as_pps())).sum();
            let minimums: u128 = claims.iter().map(|claim| u128::from(claim.min.as_pps())).sum();
            assert!(held <= u128::from(capacity) + minimums - floors, "beyond by what is lent");
            lent += u32::from(held > u128::from(capacity));
        }
        assert!(shared > 1000, "the rounds reach shares: {shared}");
        assert!(cut > 100 && lent > 100, "and cuts: {cut}, and lent minimums: {lent}");
    }

    #[test]
    fn who_is_near_his_set_point_wants_more() {
        let of = |used, offered: Option<u64>| wants(pps(1000), pps(used), offered.map(pps));
        assert_eq!(of(950, None), None);
        assert_eq!(of(949, None), Some(pps(1186)));
        assert_eq!(of(400, Some(5000)), None, "a flood");
        assert_eq!(of(400, Some(400)), Some(pps(500)));
        assert_eq!(of(0, None), Some(pps(100)));
    }

    #[test]
    fn admission_names_sum_and_bound() {
        assert_eq!(admit(pps(100), [pps(60), pps(40)]), Ok(()));
        let error = admit(pps(100_000), [pps(60_000), pps(41_000)]).unwrap_err();
        let text = "min_pps add up to 101kpps, must be at most the node's capacity of 100kpps";
        assert_eq!(error.to_string(), text);
        assert!(admit(pps(u64::MAX - 1), [pps(u64::MAX), pps(1)]).is_err());
    }
}
