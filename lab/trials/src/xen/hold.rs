// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Set-points, held by the cap alone.

use std::fmt::Write as _;

use weir_control::identify::Identified;
use weir_control::manage::{Command, Instance, InstanceConfig};
use weir_control::{
    Controller, DeadZone, FeedForward, FeedForwardConfig, Gains, Pi, PiConfig, Poles, Settings,
};
use weir_platform::cap::Actuator;
use weir_result::{Bound, Claim, Rule, Series};
use weir_units::{Nanos, PacketRate};

use super::bench::{Bench, METER, Router, now};
use super::picture::{self, Course};
use super::{Spec, refused, write};
use crate::{Trial, TrialError, float};

/// What is known before set-points are held.
pub(super) struct Plan {
    /// What each guest forwards without a cap.
    pub(super) capacity: Vec<PacketRate>,
    /// The model of each guest; none without a training.
    pub(super) trained: Vec<Identified>,
}

/// Weir's controller at two set-points of each guest; beside it, without a bound, the text's at the
/// first ones; logs and a picture.
///
/// # Errors
/// A meter or an actuator failed; the result does not take a series.
pub(super) fn run(
    trial: &mut Trial<'_>,
    id: &str,
    bench: &mut Bench<'_>,
    plan: &Plan,
    spec: &Spec,
) -> Result<(), TrialError> {
    let ranges: Vec<_> = bench.guests.iter().map(|guest| guest.cap.range()).collect();
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

/// A fifth of a guest's capacity for one, two fifths for the next; the other way round in the next
/// turn.
fn set_points(capacity: &[PacketRate], turn: usize) -> Vec<PacketRate> {
    let parts = capacity.iter().zip(turn..);
    parts
        .map(|(rate, index)| {
            let part = SET_POINTS_PERCENT[index % SET_POINTS_PERCENT.len()];
            PacketRate::from_pps((rate.as_pps() * part / 100).max(1))
        })
        .collect()
}

/// One controller a guest, from no cap through all steps.
fn held(
    trial: &mut Trial<'_>,
    id: &str,
    bench: &mut Bench<'_>,
    controllers: Vec<Box<dyn Controller + Send>>,
    steps: &[(&Vec<PacketRate>, usize)],
    spec: &Spec,
) -> Result<(), TrialError> {
    let mut instances: Vec<_> =
        controllers.into_iter().map(|controller| Instance::new(CONFIG, controller)).collect();
    let mut courses: Vec<Course> =
        bench.guests.iter().map(|guest| Course::new(guest.name)).collect();
    bench.restart();
    for (step, (set_points, samples)) in (1..).zip(steps) {
        begin(bench, &mut instances, set_points)?;
        watch(bench, &mut instances, *samples, &mut courses)?;
        for (index, set_point) in set_points.iter().enumerate() {
            let id = format!("{id}/{}/step-{step}", bench.guests[index].name);
            let course = courses[index].tail(*samples);
            judge(trial, &id, *set_point, &course)?;
        }
    }
    for (guest, instance) in bench.guests.iter_mut().zip(&mut instances) {
        let command = instance.deactivate(now());
        carry_out(guest, instance, command);
        if instance.status().owes_release {
            return Err(refused(format!("guest {}: its cap is still in force", guest.name)));
        }
        logged(trial, id, guest.name, instance, spec)?;
    }
    let name = format!("{}.svg", id.replace('/', "-"));
    write(spec, &name, picture::draw(id, &courses)?.as_str())
}

/// Set-points for all: each instance begins with the cap in force, or goes on to another rate.
fn begin(
    bench: &mut Bench<'_>,
    instances: &mut [Instance],
    set_points: &[PacketRate],
) -> Result<(), TrialError> {
    for ((guest, instance), set_point) in bench.guests.iter_mut().zip(instances).zip(set_points) {
        let command = if instance.log().made() == 0 {
            let in_force = guest.cap.in_force().map_err(refused)?;
            let in_force = Settings::capped(in_force.unwrap_or_else(|| guest.cap.range().most()));
            instance.activate(now(), in_force, *set_point)
        } else {
            instance.change_set_point(now(), *set_point)
        };
        carry_out(guest, instance, command.map_err(refused)?);
    }
    Ok(())
}

/// So many samples of each guest, and what follows from each.
fn watch(
    bench: &mut Bench<'_>,
    instances: &mut [Instance],
    samples: usize,
    courses: &mut [Course],
) -> Result<(), TrialError> {
    let wanted: Vec<u64> =
        instances.iter().map(|instance| instance.status().samples + samples as u64).collect();
    // A period without a sample is told in the log; the run has its bound all the same.
    for _ in 0..samples * TRIES {
        if instances.iter().zip(&wanted).all(|(one, wanted)| one.status().samples >= *wanted) {
            return Ok(());
        }
        let (at, readings) = bench.read()?;
        for (index, reading) in readings.into_iter().enumerate() {
            let (instance, guest) = (&mut instances[index], &mut bench.guests[index]);
            let before = instance.status();
            if before.samples >= wanted[index] {
                continue;
            }
            let command = instance.read(at, reading);
            carry_out(guest, instance, command);
            let after = instance.status();
            if let Some(sample) = after.sample.filter(|_| after.samples > before.samples) {
                courses[index].push(&sample, &before);
            }
        }
    }
    Err(refused(format!("not {samples} samples in {} periods", samples * TRIES)))
}

fn carry_out(guest: &mut Router<'_>, instance: &mut Instance, command: Command) {
    let outcome = match command {
        Command::Nothing => return,
        Command::Apply(settings) => guest.cap.set(settings.cap).map(drop),
        Command::Release => guest.cap.release(),
    };
    let outcome = outcome.map_err(|error| error.to_string());
    let told = match &outcome {
        Ok(()) => Ok(()),
        Err(text) => Err(text.as_str()),
    };
    instance.outcome(now(), told);
}

/// The mean after the controller has settled, and what was offered all the while.
fn judge(
    trial: &mut Trial<'_>,
    id: &str,
    set_point: PacketRate,
    course: &Course,
) -> Result<(), TrialError> {
    let wanted = float(set_point.as_pps());
    let [rate, offered, cap] = ["rate", "offered", "cap"].map(|part| format!("{id}/{part}"));
    trial.keep(&rate, Series::sampled("pps", 1.0, course.rates.clone()))?;
    trial.keep(&offered, Series::sampled("pps", 1.0, course.offered.clone()))?;
    trial.keep(&cap, Series::sampled("1", 1.0, course.caps.clone()))?;
    let settled = course.rates.get(SETTLING..).unwrap_or_default();
    let off = crate::mean(settled) / wanted - 1.0;
    let percent = off * 100.0;
    trial.say(&format!("{id}: {percent:+.1} % off {wanted:.0} pps after {SETTLING} samples"));
    // The text's needs more samples than these to come back from a first error that is large, and
    // whole per cents of the cap are coarse steps for it: it is shown, and bound to nothing.
    if !id.contains(TEXT) {
        let rule = Rule::RelativeError { reference: wanted };
        let title = format!("distance of the mean from {wanted:.0} pps");
        let claim = Claim::new(id, title, rule, Bound::at_most(WITHIN)).of(&[&rate]);
        trial.judge(claim.skip(SETTLING))?;
    }
    let title = format!("offered, at {wanted:.0} pps");
    let claim = Claim::new(&offered, title, Rule::Mean, Bound::at_least(2.0 * wanted));
    trial.judge(claim.of(&[&offered]))?;
    Ok(())
}

/// The log of an instance as a file; it has a decision for each sample.
fn logged(
    trial: &mut Trial<'_>,
    id: &str,
    name: &str,
    instance: &Instance,
    spec: &Spec,
) -> Result<(), TrialError> {
    let mut text = String::new();
    for decision in instance.log().since(0) {
        let since = instance.log().since(0).next().map_or(decision.at, |first| first.at);
        let seconds = float((decision.at - since).as_nanos()) / 1e9;
        let _written = writeln!(text, "{seconds:8.3} s  {decision}");
    }
    let made = instance.log().made();
    write(spec, &format!("decisions-{}-{name}.txt", id.rsplit('/').next().unwrap_or(id)), &text)?;
    let status = instance.status();
    trial.say(&format!("{id}/{name}: {made} decisions, {} calls of xl", status.commands));
    let [decisions, samples] = ["decisions", "samples"].map(|part| format!("{id}/{name}/{part}"));
    trial.keep(&decisions, Series::count("1", made))?;
    trial.keep(&samples, Series::count("1", status.samples))?;
    let title = format!("{name}: decisions in the log, of samples");
    let claim = Claim::new(&decisions, title, Rule::RatioOfSums, Bound::at_least(1.0));
    trial.judge(claim.of(&[decisions, samples]))?;
    let failures = format!("{id}/{name}/failures");
    trial.keep(&failures, Series::count("1", status.failures))?;
    let claim = Claim::new(&failures, "calls of xl that failed", Rule::Sum, Bound::equal(0.0));
    trial.judge(claim.of(&[&failures])).map(drop)
}

/// In identifiers of what the text's controller does.
const TEXT: &str = "/pi";

/// Of each guest's capacity. What is offered is at least the capacity.
const SET_POINTS_PERCENT: [u64; 2] = [20, 40];

/// A call of `xl` takes domain 0 a tenth of a second and more here, during which it does nothing
/// else: it is not made for less than this of the cap.
const DEAD_ZONE: DeadZone = DeadZone::from_ppm(40_000);

/// The text's, by which its gains were chosen (§6).
const PUBLISHED_POLES: (f64, f64) = (0.2445, 0.3766);

/// At each set-point; the first so many are the way there.
const SAMPLES: usize = 15;
const SETTLING: usize = 5;

/// Periods for each sample that is wanted, at most.
const TRIES: usize = 2;

/// Row 14.
const WITHIN: f64 = 0.10;

const CONFIG: InstanceConfig =
    InstanceConfig { meter: METER, release_after: Nanos::from_secs(10), log: 1000, dry_run: false };
