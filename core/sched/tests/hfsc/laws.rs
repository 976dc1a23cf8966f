// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HFSC against its theory, under random trees, curves and arrivals.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the oracle computes in floating point, with small positive numbers"
)]

use crate::gps::Gps;
use crate::testbed::{Sent, Testbed};
use proptest::prelude::*;
use weir_sched::{ClassConfig, ClassId};
use weir_units::{BitRate, ByteCount, Nanos};

/// 1 Gb/s is an eighth of a byte a nanosecond.
const LINK: BitRate = BitRate::from_mbps(1000);
const LONGEST: u64 = 1518;

/// (instant, leaf, bytes), by time.
type Arrivals = Vec<(u64, usize, u32)>;

/// Bursts at random instants within a millisecond, at the leaves numbered below `leaves`.
fn arrivals(leaves: usize) -> impl Strategy<Value = Arrivals> {
    let burst = (0..1_000_000u64, 0..leaves, 1..12usize, 40..=LONGEST as u32);
    prop::collection::vec(burst, 1..80).prop_map(|bursts| {
        let mut all: Arrivals = bursts
            .into_iter()
            .flat_map(|(at, leaf, count, bytes)| vec![(at, leaf, bytes); count])
            .collect();
        all.sort_by_key(|arrival| arrival.0);
        all
    })
}

/// Weights of slices, and of leaves (slice, weight).
fn tree() -> impl Strategy<Value = (Vec<u32>, Vec<(usize, u32)>)> {
    prop::collection::vec(1..20u32, 1..4).prop_flat_map(|slices| {
        let leaves = prop::collection::vec((0..slices.len(), 1..20u32), 2..7);
        (Just(slices), leaves)
    })
}

fn weighted(weight: u32) -> ClassConfig {
    ClassConfig { weight, ..ClassConfig::default() }
}

/// Builds the tree; returns the testbed and the leaves' classes.
fn build(slices: &[u32], leaves: &[(usize, u32)]) -> (Testbed, Vec<ClassId>) {
    let mut bed = Testbed::new(LINK);
    let parents: Vec<ClassId> =
        slices.iter().map(|&weight| bed.add(None, &weighted(weight))).collect();
    let classes =
        leaves.iter().map(|&(slice, weight)| bed.add(Some(parents[slice]), &weighted(weight)));
    let classes = classes.collect();
    (bed, classes)
}

fn run(bed: &mut Testbed, classes: &[ClassId], arrivals: &Arrivals) {
    let arrivals: Vec<_> =
        arrivals.iter().map(|&(at, leaf, bytes)| (at, classes[leaf], bytes)).collect();
    bed.arrive(&arrivals);
    bed.run(Nanos::from_millis(20));
}

/// When a set of leaves was backlogged, as a step function, and what it was served.
struct Progress {
    backlog: i64,
    served: u64,
}

/// The largest difference of normalized service between two sets of leaves over any window in which
/// both were backlogged throughout, in bytes at weight 1.
fn unfairness(
    log: &[Sent],
    arrivals: &Arrivals,
    classes: &[ClassId],
    sets: [&dyn Fn(usize) -> bool; 2],
    weights: [u32; 2],
) -> f64 {
    let leaf_of = |class: ClassId| classes.iter().position(|other| *other == class).unwrap();
    let mut sides = [Progress { backlog: 0, served: 0 }, Progress { backlog: 0, served: 0 }];
    let (mut least, mut most, mut worst) = (f64::MAX, f64::MIN, 0.0f64);
    let mut next = 0;
    for sent in log {
        while next < arrivals.len() && arrivals[next].0 <= sent.at {
            for (side, set) in sides.iter_mut().zip(&sets) {
                side.backlog += i64::from(set(arrivals[next].1)) * i64::from(arrivals[next].2);
            }
            next += 1;
        }
        let difference = |sides: &[Progress; 2]| {
            sides[0].served as f64 / f64::from(weights[0])
                - sides[1].served as f64 / f64::from(weights[1])
        };
        if sides.iter().all(|side| side.backlog > 0) {
            let now = difference(&sides);
            (least, most) = (least.min(now), most.max(now));
        } else {
            (least, most) = (f64::MAX, f64::MIN);
        }
        for (side, set) in sides.iter_mut().zip(&sets) {
            if set(leaf_of(sent.class)) {
                side.backlog -= i64::from(sent.bytes);
                side.served += u64::from(sent.bytes);
            }
        }
        if least <= most {
            let now = difference(&sides);
            worst = worst.max(now - least).max(most - now);
        }
        if sides.iter().any(|side| side.backlog <= 0) {
            (least, most) = (f64::MAX, f64::MIN);
        }
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Start-time fair queueing's bound at every node: over any window in which two siblings are
    /// backlogged, |Wa/wa − Wb/wb| ≤ La/wa + Lb/wb (Goyal, Vin, Cheng 1996, Theorem 1).
    #[test]
    fn siblings_share_by_weight_within_a_packet_of_each(
        (slices, leaves) in tree(),
        arrivals in arrivals(7),
    ) {
        let arrivals: Arrivals =
            arrivals.into_iter().filter(|arrival| arrival.1 < leaves.len()).collect();
        let (mut bed, classes) = build(&slices, &leaves);
        run(&mut bed, &classes, &arrivals);
        let bound = |a: u32, b: u32| LONGEST as f64 / f64::from(a) + LONGEST as f64 / f64::from(b);
        for a in 0..leaves.len() {
            for b in 0..a {
                if leaves[a].0 != leaves[b].0 {
                    continue;
                }
                let weights = [leaves[a].1, leaves[b].1];
                let worst =
                    unfairness(&bed.log, &arrivals, &classes, [&|x| x == a, &|x| x == b], weights);
                prop_assert!(worst <= bound(weights[0], weights[1]) + 1e-3, "{a} {b}: {worst}");
            }
        }
        for a in 0..slices.len() {
            for b in 0..a {
                let weights = [slices[a], slices[b]];
                let sets: [&dyn Fn(usize) -> bool; 2] =
                    [&|leaf| leaves[leaf].0 == a, &|leaf| leaves[leaf].0 == b];
                let worst = unfairness(&bed.log, &arrivals, &classes, sets, weights);
                prop_assert!(worst <= bound(weights[0], weights[1]) + 1e-3, "{a} {b}: {worst}");
            }
        }
    }

    /// Beside the fluid: no leaf lags behind hierarchical GPS by more than one longest packet of
    /// each other leaf and of itself (the delay bound of start-time fair queueing, Goyal et al.
    /// Theorem 4, summed over the levels), and the link is never idle with backlog.
    #[test]
    fn no_leaf_lags_far_behind_the_fluid((slices, leaves) in tree(), arrivals in arrivals(7)) {
        let arrivals: Arrivals =
            arrivals.into_iter().filter(|arrival| arrival.1 < leaves.len()).collect();
        let (mut bed, classes) = build(&slices, &leaves);
        run(&mut bed, &classes, &arrivals);
        let mut gps = Gps::new(0.125);
        let parents: Vec<usize> = slices.iter().map(|&weight| gps.add(None, weight)).collect();
        let fluid: Vec<usize> =
            leaves.iter().map(|&(slice, weight)| gps.add(Some(parents[slice]), weight)).collect();
        let total: u64 = arrivals.iter().map(|arrival| u64::from(arrival.2)).sum();
        let mut served = vec![0u64; leaves.len()];
        let mut next = 0;
        let bound = (slices.len() + leaves.len()) as f64 * LONGEST as f64;
        for sent in &bed.log {
            while next < arrivals.len() && arrivals[next].0 <= sent.at {
                gps.arrive(arrivals[next].0, fluid[arrivals[next].1], arrivals[next].2);
                next += 1;
            }
            gps.advance(sent.at);
            for (leaf, served) in served.iter().enumerate() {
                let lag = gps.served(fluid[leaf]) - *served as f64;
                prop_assert!(lag <= bound, "leaf {leaf} lags {lag} bytes at {}", sent.at);
            }
            let sums = fluid.iter().map(|leaf| gps.served(*leaf)).sum::<f64>();
            let packets = served.iter().sum::<u64>() as f64;
            prop_assert!((sums - packets).abs() <= LONGEST as f64 + 1.0, "work: {sums} {packets}");
            let leaf = classes.iter().position(|class| *class == sent.class).unwrap();
            served[leaf] += u64::from(sent.bytes);
        }
        prop_assert_eq!(served.iter().sum::<u64>(), total);
    }

    /// The paper's Theorem 1 and 2: a leaf is served W(t) ≥ min over its activations s of
    /// W(s) + S(t − s), less one packet of its own, and one of the longest on the link, whatever
    /// the others' weights and loads, while the curves sum up to the link.
    #[test]
    fn every_leaf_has_its_service_curve(
        (slices, leaves) in tree(),
        curves in prop::collection::vec((1..100u64, prop::option::of(10_000..1_000_000u64)), 7),
        arrivals in arrivals(7),
    ) {
        let arrivals: Arrivals =
            arrivals.into_iter().filter(|arrival| arrival.1 < leaves.len()).collect();
        let (mut bed, classes) = build(&slices, &leaves);
        let curves = Curve::filling_the_link(&curves[..leaves.len()]);
        for ((class, leaf), curve) in classes.iter().zip(&leaves).zip(&curves) {
            bed.change(*class, &curve.config(leaf.1));
        }
        run(&mut bed, &classes, &arrivals);
        for (leaf, class) in classes.iter().enumerate() {
            curves[leaf].check(*class, leaf, &bed.log, &arrivals)?;
        }
    }
}

/// A real-time curve.
struct Curve {
    /// Bits a second.
    min_rate: u64,
    /// Nanoseconds for `LONGEST` bytes.
    delay: Option<u64>,
}

impl Curve {
    /// Curves (percent of the link, delay), all stretched in time so that their sum just touches
    /// the link's.
    fn filling_the_link(wishes: &[(u64, Option<u64>)]) -> Vec<Self> {
        let stretched = |stretch: f64| -> Vec<Self> {
            let one = |&(share, delay): &(u64, Option<u64>)| Self {
                min_rate: ((LINK.as_bps() * share / 100) as f64 / stretch) as u64,
                delay: delay.map(|delay| (delay as f64 * stretch).ceil() as u64),
            };
            wishes.iter().map(one).collect()
        };
        let curves = stretched(1.0);
        let knees = wishes.iter().filter_map(|wish| wish.1);
        let stretch = knees
            .chain([1, 1_000_000_000_000])
            .map(|knee| {
                let sum: f64 = curves.iter().map(|curve| curve.at(knee as f64)).sum();
                sum / (knee as f64 / 8.0)
            })
            .fold(0.0, f64::max);
        // A rounded delay must not let the sum above the link again.
        stretched(stretch * 1.000_1)
    }

    fn config(&self, weight: u32) -> ClassConfig {
        ClassConfig {
            weight,
            min_rate: BitRate::from_bps(self.min_rate),
            delay: self.delay.map(Nanos::new),
            delay_packet: ByteCount::new(LONGEST),
            ..ClassConfig::default()
        }
    }

    /// S(t) in bytes.
    fn at(&self, nanos: f64) -> f64 {
        let second = self.min_rate as f64 / 8e9;
        let Some(delay) = self.delay else { return second * nanos };
        let first = LONGEST as f64 / delay as f64;
        let knee = delay as f64;
        if nanos <= knee { first * nanos } else { LONGEST as f64 + second * (nanos - knee) }
    }

    fn check(
        &self,
        class: ClassId,
        leaf: usize,
        log: &[Sent],
        arrivals: &Arrivals,
    ) -> Result<(), TestCaseError> {
        let mine: Vec<(u64, u32)> = arrivals
            .iter()
            .filter(|arrival| arrival.1 == leaf)
            .map(|arrival| (arrival.0, arrival.2))
            .collect();
        let blocking = LONGEST as f64 * 8.0;
        let (mut backlog, mut served, mut next) = (0u64, 0u64, 0);
        let mut starts: Vec<(u64, u64)> = Vec::new();
        for sent in log {
            while next < mine.len() && mine[next].0 <= sent.at {
                if backlog == 0 {
                    starts.push((mine[next].0, served));
                }
                backlog += u64::from(mine[next].1);
                next += 1;
            }
            if backlog > 0 {
                let owed = starts
                    .iter()
                    .map(|&(start, then)| {
                        let passed = sent.at as f64 - start as f64 - blocking - 2.0;
                        then as f64 + self.at(passed.max(0.0))
                    })
                    .fold(f64::MAX, f64::min);
                prop_assert!(
                    served as f64 + LONGEST as f64 + 1.0 >= owed,
                    "leaf {leaf} at {}: served {served}, owed {owed}",
                    sent.at
                );
            }
            if sent.class == class {
                served += u64::from(sent.bytes);
                backlog -= u64::from(sent.bytes);
            }
        }
        Ok(())
    }
}
