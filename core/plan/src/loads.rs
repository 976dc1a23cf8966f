// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program of the linear bound (`capacity`): ways to share slices out, and their loads.
//!
//! The load of each shape on each kind is computed once. Slices can be taken away from a program
//! afterwards: each known way then loads less, and mostly the basis of before already shows that
//! the rest fits.

use std::cell::Cell;

use crate::lp::{LinearProgram, LinearRow};
use crate::resource::{Resource, float, whole};
use crate::shapes::ShapedRequest;

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundDepth {
    /// When it is known whether the slices fit.
    Answer,
    /// When the load is the lowest, so that the weights are those of the scarcest resources.
    Weights,
}

/// A number for each resource of a kind of node: its weight, or the share that is taken.
pub(crate) type PerResource = [f64; Resource::ALL.len()];

/// The shapes of some slices, with the share of all nodes of a kind that one slice takes.
pub(crate) struct SliceLoads<'r> {
    request: &'r ShapedRequest,
    /// The shapes, by entry.
    shapes: Vec<usize>,
    /// By entry, then by kind; `None` where a slice does not fit.
    shares: Vec<Option<PerResource>>,
    /// Times that a program of these loads was solved with new ways.
    solved: Cell<u32>,
}

impl<'r> SliceLoads<'r> {
    /// Returns the loads of the shapes of which there are slices.
    pub(crate) fn of(request: &'r ShapedRequest, counts: &[u32]) -> Self {
        let shapes: Vec<_> = (0..counts.len()).filter(|shape| counts[*shape] > 0).collect();
        let share = |shape: usize, kind: usize| {
            let numbers = &request.kinds[kind];
            let demand = request.shapes[shape][kind]?;
            if numbers.count == 0 || !demand.fits(&numbers.capacity) {
                return None;
            }
            let shares = demand.shares(&numbers.capacity);
            Some(shares.map(|share| share / f64::from(numbers.count)))
        };
        let kinds = request.kinds.len();
        let each = shapes.iter().copied();
        let each = each.flat_map(|shape| (0..kinds).map(move |kind| (kind, shape)));
        let shares = each.map(|(kind, shape)| share(shape, kind)).collect();
        Self { request, shapes, shares, solved: Cell::new(0) }
    }

    /// Returns the number of times that a program of these loads was solved with new ways.
    pub(crate) fn solved(&self) -> u32 {
        self.solved.get()
    }

    /// Returns the counts by entry, of those by shape.
    pub(crate) fn counts(&self, by_shape: &[u32]) -> Vec<u32> {
        self.shapes.iter().map(|shape| by_shape[*shape]).collect()
    }

    /// Returns the entry of each shape.
    pub(crate) fn entries(&self) -> Vec<Option<usize>> {
        let mut entries = vec![None; self.request.shapes.len()];
        self.shapes.iter().enumerate().for_each(|(entry, shape)| entries[*shape] = Some(entry));
        entries
    }

    fn load(&self, entry: usize, kind: usize) -> PerResource {
        self.shares[entry * self.request.kinds.len() + kind].unwrap_or_default()
    }

    /// Returns the kind where a slice weighs least, and its price there; `None` if it fits nowhere.
    fn cheapest(&self, entry: usize, weights: &[PerResource]) -> Option<(usize, f64)> {
        let kinds = weights.len();
        let mut best: Option<(usize, f64)> = None;
        for (kind, shares) in self.shares[entry * kinds..][..kinds].iter().enumerate() {
            let Some(shares) = shares else { continue };
            let price = shares.iter().zip(&weights[kind]).map(|(share, w)| share * w).sum();
            if best.is_none_or(|(_, least)| price < least) {
                best = Some((kind, price));
            }
        }
        best
    }
}

/// Weights and the integers that they prove a bound with.
#[derive(Clone, Debug)]
pub(crate) struct LoadProof {
    pub(crate) weights: Vec<PerResource>,
    exact: Vec<[u128; Resource::ALL.len()]>,
    /// The weight of all that nodes have. Slices that weigh more do not fit.
    pub(crate) all: u128,
}

impl LoadProof {
    /// Makes integers of weights.
    pub(crate) fn of(weights: &[PerResource]) -> Self {
        let exact: Vec<_> =
            weights.iter().map(|of| of.map(|w| u128::from(whole(w * WEIGHT)))).collect();
        let all = exact.iter().flatten().sum::<u128>() << PROOF_BITS;
        Self { weights: weights.to_vec(), exact, all }
    }

    /// Returns the weight of one slice, rounded down, on the kind where it is least.
    pub(crate) fn price(&self, loads: &SliceLoads<'_>, entry: usize) -> u128 {
        let kinds = loads.request.kinds.len();
        let price = |kind: usize| {
            loads.shares[entry * kinds + kind]?;
            let numbers = &loads.request.kinds[kind];
            let demand = loads.request.shapes[loads.shapes[entry]][kind]?;
            let each = demand.0.iter().zip(numbers.capacity.0).zip(self.exact[kind]);
            let each = each.filter(|(_, weight)| *weight > 0).map(|((demand, has), weight)| {
                let has = u128::from(has) * u128::from(numbers.count);
                ((weight * u128::from(*demand)) << PROOF_BITS).checked_div(has).unwrap_or(0)
            });
            Some(each.sum::<u128>())
        };
        (0..kinds).filter_map(price).min().unwrap_or(0)
    }

    /// Returns the weight of all slices.
    pub(crate) fn need(&self, loads: &SliceLoads<'_>, counts: &[u32]) -> u128 {
        let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(entry, count)| self.price(loads, entry) * u128::from(*count)).sum()
    }
}

/// A way to share the slices out.
struct LoadWay {
    /// The kind of each entry; kind 0 where there are no slices of it.
    kinds: Vec<usize>,
    /// The load of each row, now and in the linear program.
    load: Vec<f64>,
    in_program: Vec<f64>,
}

/// The linear program of the lowest load of the fullest resource.
pub(crate) struct LoadProgram<'l> {
    loads: &'l SliceLoads<'l>,
    counts: Vec<u32>,
    ways: Vec<LoadWay>,
    linear: LinearProgram,
    /// The number of the first way's column.
    first: usize,
    /// The row of each resource of each kind; `None` where the kind has none of it.
    rows: Vec<[Option<usize>; Resource::ALL.len()]>,
    row_count: usize,
    weights: Vec<PerResource>,
}

impl<'l> LoadProgram<'l> {
    /// Returns the program of `counts` slices of each entry, without a way yet.
    pub(crate) fn new(loads: &'l SliceLoads<'l>, counts: Vec<u32>) -> Self {
        // Row 0: the ways add up to one.
        let mut rows = vec![];
        let mut row_count = 1;
        for kind in &loads.request.kinds {
            rows.push(kind.capacity.0.map(|amount| {
                let has = amount > 0 && kind.count > 0;
                row_count += usize::from(has);
                has.then(|| row_count - 1)
            }));
        }
        let (linear, first) = without_ways(row_count);
        let each = 1.0 / float((row_count - 1).max(1) as u64);
        let even =
            |row: &[Option<usize>; Resource::ALL.len()]| row.map(|row| row.map_or(0.0, |_| each));
        let weights = rows.iter().map(even).collect();
        Self { loads, counts, ways: vec![], linear, first, rows, row_count, weights }
    }

    /// Returns the slices of each entry.
    pub(crate) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Returns the weight of each resource of each kind, of all nodes together.
    pub(crate) fn weights(&self) -> &[PerResource] {
        &self.weights
    }

    /// Adds ways until it is known whether the slices fit, or until the load is the lowest; returns
    /// a proof that they do not fit.
    pub(crate) fn solve(&mut self, depth: BoundDepth) -> Option<LoadProof> {
        self.loads.solved.set(self.loads.solved.get() + 1);
        let mut proof = None;
        for _ in 0..ROUNDS_MAX {
            let Some((kinds, need)) = self.cheapest_kinds() else {
                // A slice that fits nowhere.
                return Some(LoadProof::of(&self.weights));
            };
            let all: f64 = self.weights.iter().flatten().sum();
            if need > all * NEARLY {
                let tried = LoadProof::of(&self.weights);
                if tried.need(self.loads, &self.counts) > tried.all {
                    proof = Some(tried);
                    if depth == BoundDepth::Answer {
                        return proof;
                    }
                }
            }
            if !self.add(kinds) {
                break;
            }
            self.linear.solve(PIVOTS_MAX);
            if depth == BoundDepth::Answer && self.linear.objective() <= 1.0 {
                return proof;
            }
            self.weights = self.priced();
        }
        proof
    }

    /// Gives each slice to the kind where it weighs least; returns the weight of all.
    fn cheapest_kinds(&self) -> Option<(Vec<usize>, f64)> {
        let mut need = 0.0;
        let kind_of = |(entry, count): (usize, &u32)| {
            if *count == 0 {
                return Some(0);
            }
            let (kind, price) = self.loads.cheapest(entry, &self.weights)?;
            need += price * f64::from(*count);
            Some(kind)
        };
        let kinds = self.counts.iter().enumerate().map(kind_of).collect::<Option<Vec<_>>>()?;
        Some((kinds, need))
    }

    fn priced(&self) -> Vec<PerResource> {
        let prices = self.linear.prices();
        let weight = |row: Option<usize>| row.map_or(0.0, |row| (-prices[row]).max(0.0));
        self.rows.iter().map(|rows| rows.map(weight)).collect()
    }

    /// Adds a way to share the slices out; returns whether it improves the program.
    fn add(&mut self, kinds: Vec<usize>) -> bool {
        let mut load = vec![0.0; self.row_count];
        load[0] = 1.0;
        for (entry, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let shares = self.loads.load(entry, kinds[entry]);
            for (row, share) in self.rows[kinds[entry]].iter().zip(shares) {
                if let Some(row) = row {
                    load[*row] += share * f64::from(*count);
                }
            }
        }
        let prices = self.linear.prices();
        let gain: f64 = prices.iter().zip(&load).map(|(price, load)| price * load).sum();
        self.linear.add_column(0.0, load.iter().copied().enumerate().collect());
        self.ways.push(LoadWay { kinds, in_program: load.clone(), load });
        gain > GAIN_MIN
    }

    /// Takes one slice of an entry away, or gives it back (`sign` -1 or 1). The linear program
    /// stays as it is until [`Self::known_ways_fit`].
    fn change(&mut self, entry: usize, sign: f64) {
        for way in &mut self.ways {
            let kind = way.kinds[entry];
            let shares = self.loads.load(entry, kind);
            for (row, share) in self.rows[kind].iter().zip(shares) {
                if let Some(row) = row {
                    way.load[*row] += sign * share;
                }
            }
        }
    }

    /// Takes one slice of an entry away.
    pub(crate) fn remove(&mut self, entry: usize) {
        debug_assert!(self.counts[entry] > 0, "only what is there is taken away");
        self.counts[entry] -= 1;
        self.change(entry, -1.0);
    }

    /// Gives one slice of an entry back.
    pub(crate) fn put_back(&mut self, entry: usize) {
        self.counts[entry] += 1;
        self.change(entry, 1.0);
    }

    /// Tells whether a mixture of the known ways that is near to the program's last one shows that
    /// the slices fit. It follows from the basis by Newton's method, and is then summed up.
    pub(crate) fn nearby_mixture_fits(&self) -> bool {
        let mut mixture: Vec<(usize, f64)> = self.linear.values().collect();
        for _ in 0..NEWTON_STEPS {
            let mut change = vec![0.0; self.row_count];
            for (way, part) in self.parts(&mixture) {
                let now = way.in_program.iter().zip(&way.load);
                let each = change.iter_mut().zip(now);
                each.for_each(|(change, (before, now))| *change += part * (before - now));
            }
            mixture = self.linear.shifted(&change);
            if self.largest_load(&mixture) <= FULL {
                return true;
            }
        }
        false
    }

    /// Returns the ways of a mixture, each with its part.
    fn parts<'p>(
        &'p self,
        mixture: &'p [(usize, f64)],
    ) -> impl Iterator<Item = (&'p LoadWay, f64)> {
        mixture.iter().filter_map(|(column, part)| {
            let way = self.ways.get(column.checked_sub(self.first)?)?;
            Some((way, part.max(0.0)))
        })
    }

    /// Returns the load of the fullest resource, with parts that add up to one.
    fn largest_load(&self, mixture: &[(usize, f64)]) -> f64 {
        let mut load = vec![0.0; self.row_count];
        for (way, part) in self.parts(mixture) {
            load.iter_mut().zip(&way.load).for_each(|(sum, load)| *sum += part * load);
        }
        // Row 0 is the sum of the parts.
        let most = load[1..].iter().copied().fold(0.0, f64::max);
        if load[0] > 0.0 { most / load[0] } else { f64::INFINITY }
    }

    /// Makes the linear program that of the slices as they are now, with the known ways; of many
    /// only those in use. Tells whether a mixture of them shows that the slices fit.
    pub(crate) fn known_ways_fit(&mut self) -> bool {
        if self.ways.len() > WAYS_A_ROW * self.row_count {
            let used: Vec<usize> = self.linear.values().map(|(column, _)| column).collect();
            let mut column = self.first;
            self.ways.retain(|_| {
                column += 1;
                used.contains(&(column - 1))
            });
        }
        (self.linear, self.first) = without_ways(self.row_count);
        for way in &mut self.ways {
            way.in_program.clone_from(&way.load);
            self.linear.add_column(0.0, way.load.iter().copied().enumerate().collect());
        }
        self.linear.solve(PIVOTS_MAX);
        self.weights = self.priced();
        let mixture: Vec<(usize, f64)> = self.linear.values().collect();
        self.largest_load(&mixture) <= FULL
    }
}

/// Returns the program without ways, and the number that the first way's column will have.
fn without_ways(rows: usize) -> (LinearProgram, usize) {
    let mut bounds = vec![LinearRow::AtMost { bound: 0.0 }; rows];
    bounds[0] = LinearRow::AtLeast { bound: 1.0, penalty: SHORT };
    let mut linear = LinearProgram::new(&bounds);
    let load = linear.add_column(1.0, (1..rows).map(|row| (row, -1.0)).collect());
    (linear, load + 1)
}

/// Ways to share out that are tried; some tens suffice.
const ROUNDS_MAX: u32 = 400;
/// Steps of the simplex method a round.
const PIVOTS_MAX: usize = 10_000;
/// The load of no way at all: above that of any.
const SHORT: f64 = 1e6;
/// A way that lowers the load by less is no improvement.
const GAIN_MIN: f64 = 1e-9;
/// Weights whose floats are further below a proof than this prove nothing: 320 of them round by
/// 2⁻³⁰ each.
const NEARLY: f64 = 1.0 - 1e-6;
/// A load up to this is one: right-hand sides are raised by 2 · 10⁻¹⁰, and sums round by less.
const FULL: f64 = 1.0 + 1e-9;
/// Steps of Newton's method; the second one already corrects products of small changes.
const NEWTON_STEPS: u32 = 3;
/// Known ways are weeded out when there are more than this many times the rows.
const WAYS_A_ROW: usize = 4;
/// Weights of one become integers of 30 bits, demands below 2⁵³ have 30 bits behind the point: the
/// product stays below 2¹¹⁴.
const WEIGHT: f64 = (1_u64 << 30) as f64;
const PROOF_BITS: u32 = 30;
