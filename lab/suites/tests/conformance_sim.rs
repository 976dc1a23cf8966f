// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance suite in virtual time.
//!
//! Goal: the shipped switch holds every experiment of the suite, on any machine, in every run.
//! Method: the quick form on the data plane `sim`. Scenarios that no switch could hold must be
//! found broken, so that the suite can fail.
#![allow(clippy::unwrap_used)]

use weir_experiment::{Recording, SimArm};
use weir_result::{Origin, ResultFile};
use weir_suites::conformance::planes::SIM;
use weir_suites::conformance::{
    ConformanceScenario, ExperimentVerdict, Laboratory, experiments, names, nothing_beside, table,
};
use weir_units::BitRate;

#[test]
fn the_switch_holds_the_whole_suite() {
    let experiments = experiments().unwrap();
    assert!(
        names().eq(experiments.iter().map(ConformanceScenario::name)),
        "a file is called as it is"
    );
    let (verdicts, result) = run(&experiments, None);
    let all = verdicts.iter().all(|(_, verdict)| *verdict == ExperimentVerdict::Holds);
    assert!(all && result.holds(), "{verdicts:?}");
    assert_eq!(verdicts.len(), 10);
}

/// Goal: the suite in its form for slow machines holds on the switch, and finds a promise that is
/// not kept, too.
#[test]
fn the_suite_holds_scaled_down() {
    let rates_max = Some(BitRate::from_mbps(10));
    let (verdicts, result) = run(&experiments().unwrap(), rates_max);
    let all = verdicts.iter().all(|(_, verdict)| *verdict == ExperimentVerdict::Holds);
    assert!(all && result.holds(), "{verdicts:?}");
    let series = result.series().get("conformance.weights/8x100M-apart-scaled/t7/share");
    assert!((series.unwrap().samples[1] - 10e6 * 8.0 / 36.0).abs() < 10.0);
    let text = std::fs::read_to_string(scenario("minimum")).unwrap();
    let idle = text.replace("percent = 300", "percent = 30");
    let (verdicts, _) = run(&[parsed(&idle)], rates_max);
    assert_eq!(verdicts[0].1, ExperimentVerdict::Broken, "an idle link: {verdicts:?}");
}

#[test]
fn the_same_experiment_gives_the_same_samples() {
    let weights = vec![named("weights")];
    let json = || run(&weights, None).1.to_json();
    assert_eq!(json(), json());
}

/// A tenant that is promised 60 % of the link and offers that has it; one that is promised 10 % and
/// judged as if it were promised 60 % has not.
#[test]
fn a_promise_that_is_not_kept_is_found() {
    let text = std::fs::read_to_string(scenario("minimum")).unwrap();
    let promised = text.replace("send.min_percent = 10", "send.min_percent = 60");
    assert_ne!(text, promised);
    let (verdicts, _) = run(&[parsed(&promised)], None);
    assert_eq!(verdicts[0].1, ExperimentVerdict::Holds, "{verdicts:?}");
    // Nothing but what is asked for: a fifth tenant asks for more than its share and for no more.
    let idle = text.replace("percent = 300", "percent = 30");
    let (verdicts, _) = run(&[parsed(&idle)], None);
    assert_eq!(verdicts[0].1, ExperimentVerdict::Broken, "an idle link: {verdicts:?}");
}

/// Names, verdicts and the result of experiments in their quick form.
fn run(
    experiments: &[ConformanceScenario],
    rates_max: Option<BitRate>,
) -> (Vec<(String, ExperimentVerdict)>, ResultFile) {
    let mut silent = |_: &str| {};
    let mut trial = Recording::new(ResultFile::new(Origin::default()), true, &mut silent);
    let mut beside = nothing_beside;
    let mut laboratory =
        Laboratory { rates_max, ..Laboratory::new(&SIM, "sim", &mut beside, SimArm::default()) };
    let made = experiments.iter().map(|experiment| experiment.run(&mut trial, &mut laboratory));
    let lines: Vec<_> = made.map(Result::unwrap).collect();
    println!("{}", table(&lines));
    let verdicts = lines.into_iter().map(|line| (line.experiment, line.verdict));
    (verdicts.collect(), trial.result)
}

fn named(name: &str) -> ConformanceScenario {
    experiments().unwrap().into_iter().find(|experiment| experiment.name == name).unwrap()
}

fn parsed(text: &str) -> ConformanceScenario {
    ConformanceScenario::parse("test", text).unwrap()
}

fn scenario(name: &str) -> String {
    format!("{}/../scenarios/conformance/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}
