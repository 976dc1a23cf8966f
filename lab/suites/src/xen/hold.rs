// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Set-points, held by the cap alone.

use std::fmt::Write as _;

use weir_control::identify::Identified;
use weir_control::{
    Actuator as _, CapRange, Controller, DeadZone, FeedForward, FeedForwardConfig, Gains, Pi,
    PiConfig, Poles,
};
use weir_experiment::prelude::*;

use super::bench::{GuestBench, XenGuest, now};
use super::picture::{self, GuestCourse, GuestSample};
use super::spec::{XenSpec, refused, write};

/// What is known before set-points are held.
pub(super) struct HoldPlan {
    /// The rate of each guest without a cap.
    pub(super) capacity: Vec<PacketRate>,
    /// The model of each guest; none without a training.
    pub(super) trained: Vec<Identified>,
}

/// Holds each guest at two set-points by Weir's controller, and at the first ones also by the
/// text's, without a bound. Keeps logs and a picture.
pub(super) fn run(
    trial: &mut Recording<'_>,
    id: &str,
    bench: &mut GuestBench<'_>,
    plan: &HoldPlan,
    spec: &XenSpec,
) -> Result<(), ExperimentError> {
    let range =
        |guest: &XenGuest<'_>| guest.control.actuator().map_or(CapRange::WHOLE, |a| a.range());
    let ranges: Vec<_> = bench.guests.iter().map(range).collect();
    let weir = ranges.iter().map(|range| -> Box<dyn Controller + Send> {
        let config = FeedForwardConfig { dead_zone: DEAD_ZONE, ..FeedForwardConfig::new(*range) };
        Box::new(FeedForward::new(config, PacketRate::ZERO, range.most()))
    });
    let [first, second] = [0, 1].map(|turn| set_points(&plan.capacity, turn));
    let steps = [(&first, SAMPLES), (&second, SAMPLES)];
    held(trial, &format!("{id}/weir"), bench, weir.collect(), &steps, spec)?;
    if plan.trained.is_empty() {
        return Ok(());
    }
    let poles = Poles::pair(PUBLISHED_POLES.0, PUBLISHED_POLES.1).map_err(refused)?;
    let text =
        ranges.iter().zip(&plan.trained).map(|(range, trained)| -> Box<dyn Controller + Send> {
            let gains = Gains::place(trained.model, poles);
            let config = PiConfig { gains, range: *range, dead_zone: DEAD_ZONE };
            Box::new(Pi::new(config, PacketRate::ZERO, range.most()))
        });
    held(trial, &format!("{id}{TEXT}"), bench, text.collect(), &[(&first, SAMPLES)], spec)
}

/// Returns a fifth of a guest's capacity for one guest, two fifths for the next; in the next turn
/// the other way round.
fn set_points(capacity: &[PacketRate], turn: usize) -> Vec<PacketRate> {
    let parts = capacity.iter().zip(turn..);
    parts
        .map(|(rate, index)| {
            let part = SET_POINTS_PERCENT[index % SET_POINTS_PERCENT.len()];
            PacketRate::from_pps((rate.as_pps() * part / 100).max(1))
        })
        .collect()
}

/// Runs one controller for each guest, from no cap through all steps.
fn held(
    trial: &mut Recording<'_>,
    id: &str,
    bench: &mut GuestBench<'_>,
    controllers: Vec<Box<dyn Controller + Send>>,
    steps: &[(&Vec<PacketRate>, usize)],
    spec: &XenSpec,
) -> Result<(), ExperimentError> {
    for (guest, controller) in bench.guests.iter_mut().zip(controllers) {
        guest.renew()?;
        guest.control.install(now(), controller);
    }
    let course =
        |guest: &XenGuest<'_>| GuestCourse { name: guest.name.to_owned(), samples: Vec::new() };
    let mut courses: Vec<GuestCourse> = bench.guests.iter().map(course).collect();
    bench.restart();
    for (step, (set_points, samples)) in (1..).zip(steps) {
        begin(bench, step == 1, set_points)?;
        watch(bench, *samples, &mut courses)?;
        for (index, set_point) in set_points.iter().enumerate() {
            let id = format!("{id}/{}/step-{step}", bench.guests[index].name);
            let course = &courses[index].samples;
            judge(trial, &id, *set_point, &course[course.len().saturating_sub(*samples)..])?;
        }
    }
    for guest in &mut bench.guests {
        guest.control.deactivate(now());
        if guest.execute().is_err() {
            return Err(refused(format!("guest {}: its cap is still in force", guest.name)));
        }
        logged(trial, id, guest, spec)?;
    }
    let name = format!("{}.svg", id.replace('/', "-"));
    write(spec, &name, picture::draw(id, &courses)?.as_str())
}

/// Sets the set-points of all guests. At first each loop begins with the cap in force; later it
/// goes on to another rate. A cap that fails is in the log.
fn begin(
    bench: &mut GuestBench<'_>,
    first: bool,
    set_points: &[PacketRate],
) -> Result<(), ExperimentError> {
    for (guest, set_point) in bench.guests.iter_mut().zip(set_points) {
        let begun = match first {
            true => guest.control.activate(now(), *set_point),
            false => guest.control.change_set_point(now(), *set_point),
        };
        begun.map_err(refused)?;
        let _logged = guest.execute();
    }
    Ok(())
}

/// Takes that many samples of each guest, and has each guest's loop decide by them.
fn watch(
    bench: &mut GuestBench<'_>,
    samples: usize,
    courses: &mut [GuestCourse],
) -> Result<(), ExperimentError> {
    let count = |guest: &XenGuest<'_>| guest.control.status().map_or(0, |status| status.samples);
    let wanted: Vec<u64> = bench.guests.iter().map(|guest| count(guest) + samples as u64).collect();
    // The log names a period without a sample. The number of periods is bounded all the same.
    for _ in 0..samples * TRIES {
        if bench.guests.iter().zip(&wanted).all(|(guest, wanted)| count(guest) >= *wanted) {
            return Ok(());
        }
        let (at, readings) = bench.read()?;
        for (index, reading) in readings.into_iter().enumerate() {
            let guest = &mut bench.guests[index];
            let Some(before) = guest.control.status().filter(|one| one.samples < wanted[index])
            else {
                continue;
            };
            guest.step(at, reading);
            let after = guest.control.status().filter(|after| after.samples > before.samples);
            if let Some(sample) = after.and_then(|after| after.sample) {
                courses[index].samples.push(GuestSample::new(&sample, &before));
            }
        }
    }
    Err(refused(format!("not {samples} samples in {} periods", samples * TRIES)))
}

/// Judges the mean after the controller has settled, and the offered rate of all samples.
fn judge(
    trial: &mut Recording<'_>,
    id: &str,
    set_point: PacketRate,
    course: &[GuestSample],
) -> Result<(), ExperimentError> {
    let wanted = float(set_point.as_pps());
    let values = |value: fn(&GuestSample) -> f64| course.iter().map(value).collect::<Vec<f64>>();
    let [rate, offered, cap] = ["rate", "offered", "cap"].map(|part| format!("{id}/{part}"));
    let rates = values(|sample| sample.rate);
    let off = weir_experiment::mean(rates.get(SETTLING..).unwrap_or_default()) / wanted - 1.0;
    trial.keep(&rate, Series::sampled("pps", 1.0, rates))?;
    trial.keep(&offered, Series::sampled("pps", 1.0, values(|sample| sample.offered)))?;
    trial.keep(&cap, Series::sampled("1", 1.0, values(|sample| sample.cap)))?;
    let percent = off * 100.0;
    trial.say(&format!("{id}: {percent:+.1} % off {wanted:.0} pps after {SETTLING} samples"));
    // The text's controller needs more samples to recover from a large first error, and whole per
    // cents of the cap are coarse steps for it: its result is shown without a bound.
    if !id.contains(TEXT) {
        let rule = Rule::RelativeError { reference: wanted };
        let title = format!("distance of the mean from {wanted:.0} pps");
        let claim = Claim::new(id, title, rule, Bound::at_most(WITHIN)).of(&[&rate]);
        trial.judge(claim.skip(SETTLING))?;
    }
    let title = format!("offered, at {wanted:.0} pps");
    trial.claim(&offered, title, Rule::Mean, Bound::at_least(2.0 * wanted), &[&offered])
}

/// Writes the log of an instance to a file. The log must have a decision for each sample.
fn logged(
    trial: &mut Recording<'_>,
    id: &str,
    guest: &XenGuest<'_>,
    spec: &XenSpec,
) -> Result<(), ExperimentError> {
    let name = guest.name;
    let (Some(log), Some(status)) = (guest.control.log(), guest.control.status()) else {
        return Err(refused(format!("guest {name}: no controller decided")));
    };
    let mut text = String::new();
    let first = log.since(0).next().map(|first| first.at);
    for decision in log.since(0) {
        let seconds = float((decision.at - first.unwrap_or(decision.at)).as_nanos()) / 1e9;
        let _written = writeln!(text, "{seconds:8.3} s  {decision}");
    }
    let made = log.made();
    write(spec, &format!("decisions-{}-{name}.txt", id.rsplit('/').next().unwrap_or(id)), &text)?;
    trial.say(&format!("{id}/{name}: {made} decisions, {} calls of xl", status.commands));
    let [decisions, samples] = ["decisions", "samples"].map(|part| format!("{id}/{name}/{part}"));
    trial.keep(&decisions, Series::count("1", made))?;
    trial.keep(&samples, Series::count("1", status.samples))?;
    let title = format!("{name}: decisions in the log, of samples");
    let bound = Bound::at_least(1.0);
    trial.claim(&decisions, title, Rule::RatioOfSums, bound, &[&decisions, &samples])?;
    let failures = format!("{id}/{name}/failures");
    trial.count(failures, "calls of xl that failed", status.failures, Bound::equal(0.0))
}

/// The mark of the text's controller in identifiers.
const TEXT: &str = "/pi";

/// Set-points as parts of each guest's capacity. The offered rate is at least the capacity.
const SET_POINTS_PERCENT: [u64; 2] = [20, 40];

/// A call of `xl` occupies domain 0 for a tenth of a second and more here. It is therefore not made
/// for less than this part: of the cap for Weir's controller, of the set-point for the text's.
const DEAD_ZONE: DeadZone = DeadZone::from_ppm(40_000);

/// The text's poles, by which its gains were chosen (§6).
const PUBLISHED_POLES: (f64, f64) = (0.2445, 0.3766);

/// The samples at each set-point, and those at the beginning in which the controller settles.
const SAMPLES: usize = 15;
const SETTLING: usize = 5;

/// The most periods for each sample that is wanted.
const TRIES: usize = 2;

/// The bound of row 14.
const WITHIN: f64 = 0.10;
