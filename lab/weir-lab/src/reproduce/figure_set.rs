// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a paper: one or all of them are made, or shown on a page.

use std::process::ExitCode;
use std::time::Duration;

use weir_experiment::{ExperimentError, Recording, product};
use weir_platform::failure::{Failure, UsageError};
use weir_result::ResultFile;
use weir_suites::sim::SimFigure;

use crate::output::Output;
use crate::run_on::RunOn;
use crate::sim_options::SimOptions;

/// Makes one figure after the other. One that fails does not keep the others from being made.
pub(super) fn make_all(
    figures: &[(&'static str, Duration)],
    make: impl FnMut(&'static str) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let lengths = figures.iter().map(|(_, length)| *length).sum();
    Output::say(&format!("{} figures take {} in all", figures.len(), duration_text(lengths)));
    make_each(figures.iter().map(|(figure, _)| *figure), make)
}

/// Makes figures one after the other. Returns success only if all of them return it.
pub(super) fn make_each(
    figures: impl IntoIterator<Item = &'static str>,
    mut make: impl FnMut(&'static str) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let (mut status, mut failures) = (ExitCode::SUCCESS, Vec::new());
    for figure in figures {
        match make(figure) {
            Ok(done) if done == ExitCode::SUCCESS => {}
            Ok(done) => status = done,
            Err(failure) if is_interruption(&failure) => return Err(failure),
            Err(failure) => failures.push(format!("{figure}: {failure}")),
        }
    }
    match failures.first() {
        None => Ok(status),
        Some(first) => Err(format!("{} figures were not made; {first}", failures.len()).into()),
    }
}

/// Records a figure.
pub(super) fn record(
    output: &Output,
    measure: impl FnOnce(&mut Recording<'_>) -> Result<(), ExperimentError>,
) -> Result<ResultFile, Failure> {
    product::path()?;
    let (result, ()) = output.measure(|recording| Ok(measure(recording)?))?;
    Ok(result)
}

/// Makes a figure of a paper in virtual time, or all that can be made there.
pub(super) fn simulate(
    text: &str,
    wanted: &str,
    (sim, output): (&SimOptions, &Output),
) -> Result<ExitCode, Failure> {
    sim.refuse_pcap(&format!("{text} {wanted}"), WITH_FRAMES)?;
    let one = |name: &str| SimFigure::of(text).find(|figure| figure.name == name);
    if let Some(figure) = one(wanted) {
        return simulate_one(figure, sim, output);
    }
    if wanted != ALL {
        return Err(not_simulated(text, wanted, SimFigure::of(text).map(|one| one.name)));
    }
    make_each(SimFigure::of(text).map(|figure| figure.name), |name| match one(name) {
        Some(figure) => simulate_one(figure, sim, &output.part(&sim_place(figure))),
        None => Err(unknown("figure", name, SimFigure::of(text).map(|one| one.name)).into()),
    })
}

fn simulate_one(
    figure: &SimFigure,
    sim: &SimOptions,
    output: &Output,
) -> Result<ExitCode, Failure> {
    Output::say(&format!("{}: {}, in virtual time", figure.name, figure.title));
    let name = format!("reproduce/{}", sim_place(figure));
    let (result, ()) = output.measure(|rec| {
        rec.set_sim(sim.arm(output, &name));
        Ok(figure.record(rec)?)
    })?;
    if !output.json {
        println!("{result}");
    }
    output.finish(&name, &result)
}

/// The folder of a figure's result among the others.
fn sim_place(figure: &SimFigure) -> String {
    RunOn::Sim.folder(&format!("{}-{}", figure.text, figure.name))
}

/// Returns the error that a figure cannot be made in virtual time; `known` are those that can.
pub(super) fn not_simulated(
    text: &str,
    wanted: &str,
    known: impl IntoIterator<Item = &'static str>,
) -> Failure {
    let known: Vec<&str> = known.into_iter().collect();
    let known = known.join(", ");
    UsageError(format!("{text} {wanted}: not in virtual time, which has {known}")).into()
}

/// Reads the results of these figures, each given with its folder, and reports those that were not
/// made. Fails if a result is of a quick run, but the report is not.
pub(super) fn results(
    output: &Output,
    figures: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<Vec<(&'static str, ResultFile)>, Failure> {
    let from = output.folder("reproduce");
    let (mut made, mut missing) = (Vec::new(), Vec::new());
    for (figure, folder) in figures {
        let path = from.join(folder).join("result.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            missing.push(figure);
            continue;
        };
        let result =
            ResultFile::from_json(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if !output.quick && result.origin().command.contains(" --quick") {
            let path = path.display();
            return Err(format!("{path}: made with --quick; so must its report be").into());
        }
        made.push((figure, result));
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        Output::say(&format!("not in {}, so not shown: {missing}", from.display()));
    }
    Ok(made)
}

/// Returns the message that there is no figure or experiment (`kind`) of that name.
pub(super) fn unknown<'n>(
    kind: &str,
    name: &str,
    known: impl IntoIterator<Item = &'n str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    format!("no {kind} '{name}': {}, {ALL} or {REPORT}", known.join(", "))
}

/// Returns a length in hours and minutes, or in seconds.
pub(super) fn duration_text(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

fn is_interruption(failure: &Failure) -> bool {
    matches!(failure.downcast_ref::<ExperimentError>(), Some(ExperimentError::Interrupted))
}

/// The command whose figures have frames in virtual time.
pub(super) const WITH_FRAMES: &str = "reproduce netback";

/// The words that stand for all figures, and for their page.
pub(super) const ALL: &str = "all";
pub(super) const REPORT: &str = "report";
