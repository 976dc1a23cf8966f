// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The most valuable packing of one node: a knapsack with several resources, by branch and bound.
//!
//! The linear relaxation prices the resources. At these prices a packing's worth is bounded by what
//! its room costs, times the best value for money among the items that are still to be tried. Items
//! come in the order of value for money, so the first dive is the greedy packing, and a branch ends
//! with the first item that cannot beat the best packing. A second bound takes each resource alone.
//!
//! The search ends early after a number of steps, or within a tolerance. What it left out is then
//! part of [`KnapsackAnswer::upper`], which is a valid upper bound in any case. Bounds are floats
//! of integers below 2⁵³, raised by 10⁻⁹: far more than their sums and products round.

use crate::lp::{LinearProgram, LinearRow};
use crate::resource::{Resource, ResourceAmounts, float, whole};

/// An item that may be packed several times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnapsackItem {
    /// The caller's number for it.
    pub(crate) id: usize,
    /// The worth of one.
    pub(crate) value: u64,
    /// The demand of one.
    pub(crate) demand: ResourceAmounts,
    /// The number of them.
    pub(crate) most: u32,
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnapsackLimits {
    /// Packings that are worth no more than this are of no use.
    pub(crate) floor: u64,
    /// Items that are looked at.
    pub(crate) steps: u32,
}

/// The best packings that were found.
#[derive(Debug)]
pub(crate) struct KnapsackAnswer {
    /// Packings above the floor, each worth more than the one before: pairs of item and number.
    pub(crate) packings: Vec<Vec<(usize, u32)>>,
    /// No packing is worth more than this.
    pub(crate) upper: u64,
}

/// Packs `room`. Items without value and items that do not fit are left out.
pub(crate) fn pack_node(
    room: &ResourceAmounts,
    items: &[KnapsackItem],
    limits: KnapsackLimits,
) -> KnapsackAnswer {
    let useful = |item: &&KnapsackItem| {
        item.value > 0 && item.most > 0 && item.demand != ResourceAmounts::default()
    };
    let items = items.iter().filter(useful).filter(|item| item.demand.fits(room));
    let mut search = KnapsackSearch::new(room, items.copied().collect(), limits);
    search.dive(0, *room, 0, 0);
    let upper = search.open.max(search.threshold());
    let packings = search.found.into_iter().collect();
    KnapsackAnswer { packings, upper: whole(upper * ROUNDING).saturating_add(1) }
}

struct KnapsackSearch {
    items: Vec<KnapsackItem>,
    /// The price of each resource, a unit.
    prices: [f64; Resource::ALL.len()],
    /// The best value for money of an item and those after it.
    worth: Vec<f64>,
    /// The best value for a unit of each resource, of an item and those after it.
    rates: Vec<[f64; Resource::ALL.len()]>,
    taken: Vec<(usize, u32)>,
    best: u64,
    found: Vec<Vec<(usize, u32)>>,
    steps: u32,
    /// The highest bound of a branch that was left out for want of steps.
    open: f64,
}

impl KnapsackSearch {
    fn new(room: &ResourceAmounts, mut items: Vec<KnapsackItem>, limits: KnapsackLimits) -> Self {
        let prices = resource_prices(room, &items);
        let worth = |item: &KnapsackItem| {
            let cost = weighed(&prices, &item.demand);
            if cost > 0.0 { float(item.value) / cost } else { f64::INFINITY }
        };
        items.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.id.cmp(&b.id)));
        let mut rates = vec![[0.0_f64; Resource::ALL.len()]; items.len() + 1];
        for (at, item) in items.iter().enumerate().rev() {
            let later = rates[at + 1];
            for ((rate, later), need) in rates[at].iter_mut().zip(later).zip(item.demand.0) {
                let own = if need == 0 { f64::INFINITY } else { float(item.value) / float(need) };
                *rate = later.max(own);
            }
        }
        let worth = items.iter().map(worth).collect();
        let (best, steps) = (limits.floor, limits.steps);
        let (taken, found) = (vec![], vec![]);
        Self { items, prices, worth, rates, taken, best, found, steps, open: 0.0 }
    }

    /// Tries items from `from` on in the room that is left.
    fn dive(&mut self, from: usize, room: ResourceAmounts, value: u64, depth: u32) {
        let money = weighed(&self.prices, &room);
        for at in from..self.items.len() {
            let bound = self.bound(at, &room, money, value);
            if bound <= self.threshold() {
                return;
            }
            if self.steps == 0 || depth == DEPTH_MAX {
                self.open = self.open.max(bound);
                return;
            }
            self.steps -= 1;
            let item = self.items[at];
            let mut times = times_fit(&item, &room);
            while times > 0 {
                let value = value + item.value * u64::from(times);
                self.taken.push((item.id, times));
                self.record(value);
                self.dive(at + 1, less(room, &item.demand, times), value, depth + 1);
                self.taken.pop();
                times -= 1;
            }
        }
    }

    /// Returns an upper bound on the total worth of a packing that only adds items from `at` on, in
    /// this room.
    fn bound(&self, at: usize, room: &ResourceAmounts, money: f64, value: u64) -> f64 {
        let mut most = if money > 0.0 { money * self.worth[at] } else { f64::INFINITY };
        for (rate, room) in self.rates[at].iter().zip(room.0) {
            if rate.is_finite() {
                most = most.min(rate * float(room));
            }
        }
        (float(value) + most) * ROUNDING
    }

    fn record(&mut self, value: u64) {
        if value > self.best {
            self.best = value;
            self.found.push(self.taken.clone());
        }
    }

    /// Returns the worth that a branch must promise to exceed, or else it is not worth its steps.
    fn threshold(&self) -> f64 {
        float(self.best) * (1.0 + TOLERANCE)
    }
}

/// Returns the prices of the relaxation's resources, a unit of each.
fn resource_prices(room: &ResourceAmounts, items: &[KnapsackItem]) -> [f64; Resource::ALL.len()] {
    let mut program = LinearProgram::new(&[LinearRow::AtMost { bound: 1.0 }; Resource::ALL.len()]);
    let most = items.iter().map(|item| item.value).max().unwrap_or(1).max(1);
    for item in items {
        let shares = item.demand.shares(room).into_iter().enumerate();
        let entries = shares.filter(|(_, share)| *share > 0.0).collect();
        program.add_column(-float(item.value) / float(most), entries);
    }
    program.solve(PIVOTS_MAX);
    let mut prices = [0.0; Resource::ALL.len()];
    for ((price, of_row), room) in prices.iter_mut().zip(program.prices()).zip(room.0) {
        if room > 0 {
            *price = (-of_row).max(0.0) * float(most) / float(room);
        }
    }
    prices
}

/// Returns the cost of amounts at these prices.
fn weighed(prices: &[f64; Resource::ALL.len()], amounts: &ResourceAmounts) -> f64 {
    prices.iter().zip(amounts.0).map(|(price, amount)| price * float(amount)).sum()
}

fn times_fit(item: &KnapsackItem, room: &ResourceAmounts) -> u32 {
    let each = item.demand.0.iter().zip(room.0);
    let fits = each.filter(|(need, _)| **need > 0).map(|(need, room)| room / need);
    let fits = fits.min().unwrap_or(0).min(u64::from(item.most));
    u32::try_from(fits).unwrap_or(item.most)
}

fn less(room: ResourceAmounts, demand: &ResourceAmounts, times: u32) -> ResourceAmounts {
    let mut left = room;
    for (left, need) in left.0.iter_mut().zip(demand.0) {
        *left = left.saturating_sub(need.saturating_mul(u64::from(times)));
    }
    left
}

/// A search may miss a packing that is better by less than this share.
const TOLERANCE: f64 = 1e-3;
/// Above all errors of rounding in a bound.
const ROUNDING: f64 = 1.0 + 1e-9;
/// Different items in a node: beyond it a branch counts as left out, and the stack stays small.
const DEPTH_MAX: u32 = 256;
/// A program of four rows ends after some ten.
const PIVOTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: usize, value: u64, demand: [u64; 5], most: u32) -> KnapsackItem {
        KnapsackItem { id, value, demand: ResourceAmounts(demand), most }
    }

    /// Returns the best value by trying everything.
    fn exhaustive(room: ResourceAmounts, items: &[KnapsackItem]) -> u64 {
        let Some((first, rest)) = items.split_first() else { return 0 };
        let fits = if first.demand.fits(&room) { times_fit(first, &room) } else { 0 };
        let of = |times| {
            first.value * u64::from(times) + exhaustive(less(room, &first.demand, times), rest)
        };
        (0..=fits).map(of).max().unwrap_or(0)
    }

    /// Goal: the best packing is within the tolerance, and the upper bound is one, also where the
    /// search had to stop early.
    #[test]
    fn random_knapsacks_are_solved_and_bounded() {
        let mut state = 3_u64;
        let mut draw = |least: u64, most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            least + (state >> 33) % (most - least + 1)
        };
        for round in 0..300 {
            let room = ResourceAmounts([100, 90, 0, 80, 70]);
            let items: Vec<KnapsackItem> = (0..7)
                .map(|id| {
                    let demand = [draw(5, 60), draw(5, 60), 0, draw(0, 60), draw(0, 30)];
                    item(id, draw(1, 100_000), demand, u32::try_from(draw(1, 3)).unwrap())
                })
                .collect();
            let best = exhaustive(room, &items);
            let steps = if round % 3 == 0 { 5 } else { 1_000_000 };
            let answer = pack_node(&room, &items, KnapsackLimits { floor: 0, steps });
            let worth = |packing: &Vec<(usize, u32)>| {
                packing.iter().map(|(id, times)| items[*id].value * u64::from(*times)).sum()
            };
            let found: u64 = answer.packings.last().map_or(0, worth);
            assert!(found <= best && best <= answer.upper);
            if steps > 5 {
                assert!(float(best) <= float(found) * (1.0 + TOLERANCE) + 1.0);
                assert!(float(answer.upper) <= float(found) * (1.0 + 2.0 * TOLERANCE) + 2.0);
            }
        }
    }

    #[test]
    fn nothing_below_the_floor_is_returned() {
        let room = ResourceAmounts([10; 5]);
        let items = [item(0, 5, [4, 1, 1, 1, 1], 9)];
        let answer = pack_node(&room, &items, KnapsackLimits { floor: 10, steps: 100 });
        assert!(answer.packings.is_empty() && answer.upper >= 10);
        let answer = pack_node(&room, &items, KnapsackLimits { floor: 9, steps: 100 });
        assert_eq!(answer.packings, [[(0, 2)]]);
    }
}
