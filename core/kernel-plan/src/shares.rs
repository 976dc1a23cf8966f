// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rates that a link gives its classes if all of them are busy, for HTB.
//!
//! HTB serves a class at its own rate by tokens, frame by frame, and lets it take turns for what it
//! borrows. So each class's own rate is what it gets while all classes are busy: its minimum or its
//! weight's part of the link, whichever is more, up to its limit (weighted max-min fairness with
//! guarantees). Turns then divide only what some do not use.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use weir_policy::{Guarantees, RouterId, Share, Vif};
use weir_units::BitRate;

use crate::compile::Compiler;
use crate::terms::QdiscTree;
use crate::text::OTHERS_CLASS;
use crate::trees::{PortTree, host_share};

/// The terms of one of the parts into which an amount is divided.
#[derive(Clone, Copy, Debug)]
struct Part {
    weight: u64,
    least: u64,
    most: u64,
}

impl Part {
    /// Returns the part at a level, in 1/65 536 of a bit a second for each unit of weight.
    fn at(&self, level: u128) -> u64 {
        let part = (level * u128::from(self.weight)) >> LEVEL_SHIFT;
        u64::try_from(part).unwrap_or(u64::MAX).clamp(self.least, self.most)
    }
}

/// Divides `amount` by weight, with no part below its least or above its most. The sum is at most
/// `amount`, unless the leasts are more.
fn divide(amount: u64, parts: &[Part]) -> Vec<u64> {
    let total = |level: u128| parts.iter().map(|part| u128::from(part.at(level))).sum::<u128>();
    // At the upper level, each part would be the whole amount, or its most.
    let (mut below, mut above) = (0, (u128::from(amount) + 1) << LEVEL_SHIFT);
    if total(above) <= u128::from(amount) {
        below = above;
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if total(middle) > u128::from(amount) { above = middle } else { below = middle }
    }
    parts.iter().map(|part| part.at(below)).collect()
}

impl Compiler<'_> {
    /// Returns the rate of each class of a port's tree, by the number of its owner, if all are
    /// busy.
    pub(crate) fn shares(&self, to: &PortTree<'_>, here: &[&Vif]) -> BTreeMap<u16, u64> {
        let (policy, link) = (self.policy, to.port.rate.as_bps());
        let sums = Guarantees::of_rates(policy, to.direction);
        let part = |share: &Share, least: BitRate, most: u64| {
            let most = share.rate.map_or(most, |rate| rate.as_bps().min(most));
            let weight = u64::from(share.priority);
            Part { weight, least: least.as_bps().min(most), most }
        };
        let of_vif = |vif: &Vif| {
            let share = vif.share(to.direction);
            ShareClass::of(self.vif(vif), part(share, share.min_rate, link))
        };
        let sum = |members: &[ShareClass]| {
            members.iter().fold(0_u64, |sum, class| sum.saturating_add(class.part.most)).min(link)
        };
        let bounded = |part: Part| {
            let weight = part.weight.min(u64::from(QdiscTree::Htb.priority_max()));
            Part { weight, ..part }
        };
        let host = host_share(to.port, to.direction);
        let mut groups =
            Vec::from([ShareClass::of(OTHERS_CLASS, bounded(part(&host, host.min_rate, link)))]);
        for (slice, config) in policy.slices() {
            let mates: Vec<&Vif> = here.iter().copied().filter(|vif| vif.slice == slice).collect();
            if mates.is_empty() {
                continue;
            }
            let alone = mates.iter().filter(|vif| vif.router.is_none());
            let mut members: Vec<ShareClass> = alone.map(|vif| of_vif(vif)).collect();
            for router in routers_of(&mates) {
                let inside = mates.iter().filter(|vif| vif.router == Some(router));
                let inside: Vec<ShareClass> = inside.map(|vif| of_vif(vif)).collect();
                let share = policy[router].share(to.direction);
                let part = part(share, sums.router(router, to.id), sum(&inside));
                members.push(ShareClass { number: self.router(router), part, members: inside });
            }
            let part = part(config.share(to.direction), sums.slice(slice, to.id), sum(&members));
            groups.push(ShareClass { number: self.slice(slice), part: bounded(part), members });
        }
        let mut rates = BTreeMap::new();
        assign_rates(&mut rates, link, &groups);
        rates
    }
}

/// Returns the routers of these vifs.
pub(crate) fn routers_of(vifs: &[&Vif]) -> BTreeSet<RouterId> {
    vifs.iter().filter_map(|vif| vif.router).collect()
}

/// A class, and those below it.
#[derive(Clone, Debug)]
struct ShareClass {
    number: u16,
    part: Part,
    members: Vec<Self>,
}

impl ShareClass {
    const fn of(number: u16, part: Part) -> Self {
        Self { number, part, members: Vec::new() }
    }
}

/// Divides `amount` among these classes, and each one's part among the classes below it.
fn assign_rates(rates: &mut BTreeMap<u16, u64>, amount: u64, classes: &[ShareClass]) {
    let parts: Vec<Part> = classes.iter().map(|class| class.part).collect();
    for (class, rate) in classes.iter().zip(divide(amount, &parts)) {
        rates.insert(class.number, rate);
        assign_rates(rates, rate, &class.members);
    }
}

/// The level is kept in 1/65 536 of a bit a second.
const LEVEL_SHIFT: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights, leasts and mosts, and what each is to get.
    type DivideCase<'c> = (&'c [(u64, u64, u64)], &'c [u64]);

    fn parts(list: &[(u64, u64, u64)]) -> Vec<Part> {
        list.iter().map(|&(weight, least, most)| Part { weight, least, most }).collect()
    }

    /// Goal: weights divide, minimums and limits bind, and what a limit leaves is the others'.
    #[test]
    fn an_amount_is_divided_by_weight_between_least_and_most() {
        let all = 1_000_000;
        let cases: [DivideCase<'_>; 6] = [
            (&[(3, 0, all), (1, 0, all)], &[75_000, 25_000]),
            (&[(1, 40_000, all), (1, 0, all), (2, 0, all)], &[40_000, 20_000, 40_000]),
            (&[(1, 0, 10_000), (1, 0, all), (1, 0, all)], &[10_000, 45_000, 45_000]),
            (&[(1, 0, 10_000), (1_000_000, 0, 20_000)], &[10_000, 20_000]),
            (&[], &[]),
            // No policy asks for it: then each has its least.
            (&[(1, 80_000, all), (1, 70_000, all)], &[80_000, 70_000]),
        ];
        for (list, expected) in cases {
            assert_eq!(divide(100_000, &parts(list)), expected, "{list:?}");
        }
    }

    /// Goal: a link of any rate is divided to the last few bits.
    #[test]
    fn hardly_anything_is_left() {
        for amount in [1_000, 8_000_000, 10_000_000_000_000] {
            let list: Vec<_> = (1..=100).map(|weight| (weight, 0, u64::MAX)).collect();
            let given: u64 = divide(amount, &parts(&list)).iter().sum();
            assert!(given <= amount && amount - given <= 100, "{given} of {amount}");
        }
    }
}
