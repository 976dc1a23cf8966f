// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router of each kind held at set-points from a hundredth of its capacity up by a running
//! node, as it does by default: by a limit at ingress, under a cap that is a ceiling (row 3).
//!
//! Capacity is what the router forwards with its largest cap under the same load: half of the UDP
//! or the TCP that gets through where as much comes as there is. The set-points follow each other,
//! after a second in which the router forwards what waited in it before. What is judged is counted
//! beside the node, at its ends of the router's devices. A packet passes in one sample or in the
//! next: at a hundredth of a capacity one is 1 % of a sample, so a sample that is off by no more
//! than one is on the set-point.

use weir_experiment::prelude::*;

use super::figures::Judge;
use super::held::{Bench, Held, Seen, keep};
use crate::routers::{HeldLab, RouterSample, SAMPLING, UNLIMITED, mean};

/// Shows the row on bench number `bench`.
pub(super) fn show(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    super::needs_root(rec)?;
    let bench = Bench::numbered("xtc-combined", SAMPLING, bench)?;
    let points: &[u64] =
        if rec.quick { &[1, 10, 50, 100] } else { &[1, 2, 5, 10, 20, 40, 60, 80, 100] };
    let (seen, latest) = run(&bench, points)?;
    for line in latest {
        let place = rec.name(&bench.name());
        rec.result.add_note(format!("{place}: {line}"));
    }
    judge(rec, &bench, &seen)
}

/// What was seen, and the node's latest decision at each set-point.
fn run(bench: &Bench, points: &[u64]) -> Result<(Seen, Vec<String>), ExperimentError> {
    let mut lab = HeldLab::up(bench.plan.clone())?;
    let offered = bench.offered(&mut lab, capacity)?;
    let (seen, _) = offered.beside(&mut lab, |lab| {
        let capacity = capacity(lab)?;
        let at = |percent: u64| PacketRate::from_pps((capacity.as_pps() * percent / 100).max(1));
        let (mut held, mut latest) = (Vec::new(), Vec::new());
        lab.hold(0, at(points.first().copied().unwrap_or(1)))?;
        lab.watch(0, SETTLE)?;
        for percent in points {
            let set_point = at(*percent);
            lab.hold(0, set_point)?;
            let taken = lab.watch(0, SAMPLES)?;
            held.push(Held { controller: "combined", percent: *percent, set_point, taken });
            latest.extend(lab.status(0)?.latest);
        }
        Ok((Seen { capacity, held }, latest))
    })?;
    Ok(seen)
}

/// What a router that the node holds forwards with its largest cap.
pub(super) fn capacity(lab: &mut HeldLab) -> Result<PacketRate, ExperimentError> {
    lab.hold(0, UNLIMITED)?;
    lab.watch(0, SETTLE)?;
    let capacity = mean(&lab.watch(0, SAMPLES)?);
    // Of nothing every part would hold.
    let nothing =
        || ExperimentError::Node("the router forwards nothing with its largest cap".into());
    if capacity > PacketRate::ZERO { Ok(capacity) } else { Err(nothing()) }
}

fn judge(rec: &mut Recording<'_>, bench: &Bench, seen: &Seen) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{part}", bench.name());
    keep(rec, &id, seen)?;
    let of = |value: &dyn Fn(&Held) -> f64| seen.held.iter().map(value).collect::<Vec<f64>>();
    let worst = of(&|held| {
        let off = |one: &RouterSample| beyond_one(one, held).abs();
        held.taken.iter().skip(1).map(off).fold(0.0, f64::max)
    });
    let over =
        of(&|held| held.taken.iter().map(|one| beyond_one(one, held)).fold(f64::MIN, f64::max));
    let within = of(&|held| {
        let judged = held.taken.get(1..).unwrap_or_default();
        let within = judged.iter().filter(|one| beyond_one(one, held).abs() <= ERROR).count();
        float(within as u64) / float(judged.len().max(1) as u64)
    });
    let (percents, name) = (of(&|held| float(held.percent)), bench.name());
    rec.say(&format!(
        "{name}: {}, set-points {percents:?} %: off by {worst:.4?}, over {over:.4?}; \
         within 1 % {within:.3?} of all samples",
        seen.capacity
    ));
    rec.keep(&id("within"), Series::unordered("1", within))?;
    let mut judge = Judge { rec, kind: "combined" };
    let text = format!("{name}: rate beside the set-point, from the second sample on");
    let worst = Series::unordered("1", worst);
    judge.one(id("error"), &text, Rule::Max, Bound::at_most(ERROR), worst)?;
    let text = format!("{name}: above the set-point in any sample");
    let over = Series::unordered("1", over);
    judge.one(id("overshoot"), &text, Rule::Max, Bound::at_most(0.02), over)
}

/// How far a sample is off the set-point, by more than a packet, relative to what it should have.
pub(super) fn beyond_one(one: &RouterSample, held: &Held) -> f64 {
    let due = held.wanted() * float(one.sample.span.as_nanos()) / 1e9;
    let off = float(one.sample.packets) - due;
    off.signum() * (off.abs() - 1.0).max(0.0) / due.max(1.0)
}

/// Of the set-point.
const ERROR: f64 = 0.01;

/// A second, in which what waited goes and TCP finds its rate; and what is judged.
pub(super) const SETTLE: usize = 10;
pub(super) const SAMPLES: usize = 30;
