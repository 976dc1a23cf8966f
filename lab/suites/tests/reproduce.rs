// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios are read whole, and the page follows from a result alone.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use weir_experiment::Recording;
use weir_result::{Machine, Origin, ResultFile, Series};
use weir_suites::reproduce::{
    self, NETBACK, RunPlace, Scenario, VARIANTS, Variant, figure, judge, report, runs::PanelRuns,
};

/// A result of two repetitions of a second each: the bridge gives the second machine, which
/// is twice as active, twice as much; Weir gives both the same.
fn made() -> (Scenario, ResultFile) {
    let length = std::time::Duration::from_secs(1);
    let mut scenario = reproduce::netback("fig8").unwrap().lasting(length);
    scenario.repetitions = 2;
    scenario.panels.truncate(1);
    let origin = Origin {
        command: "weir-lab reproduce netback fig8".into(),
        machine: Machine { cpu: "a processor".into(), cores: 2, memory_mib: 1 },
        kernel: "Linux 6.18.0".into(),
        commit: "0123456789abcdef".into(),
        start: "2026-11-21T15:00:00Z".into(),
    };
    let mut silent = |_: &str| {};
    let mut trial = Recording::new(ResultFile::new(origin), true, &mut silent);
    for variant in VARIANTS {
        let runs = PanelRuns::new(&scenario, &scenario.panels[0], variant);
        let more = if variant == Variant::Before { 33e6 } else { 0.0 };
        let of = |bps: f64| Series::sampled("bit/s", 0.1, vec![bps; 10]);
        for (repetition, wobble) in [0.0, 1e5].into_iter().enumerate() {
            let name = |vm| runs.each(vm, repetition);
            trial.keep(&name("vm1"), of(50e6 - more / 2.0 - wobble)).unwrap();
            trial.keep(&name("vm2"), of(50e6 + more / 2.0 + wobble)).unwrap();
        }
    }
    let at = RunPlace { lab: "none", prefix: "", variants: &VARIANTS };
    judge::judge(&mut trial, &scenario, at).unwrap();
    (scenario, trial.result)
}

#[test]
fn every_scenario_is_read_and_its_defects_name_claims() {
    for (name, text) in NETBACK {
        let scenario = Scenario::parse(name, text).unwrap();
        assert!(!scenario.defects.is_empty(), "{name}");
        let quick = scenario.clone().quickly();
        let runs = quick.panels.len() * VARIANTS.len() * quick.repetitions as usize;
        let seconds = (quick.duration.as_secs_f64() + 1.0) * runs as f64;
        assert!(seconds <= 130.0, "{name} --quick takes {seconds} s");
        quick.checked(name).unwrap();
    }
}

#[test]
fn times_keep_their_proportion_in_a_shorter_run() {
    let short = reproduce::netback("fig5").unwrap().lasting(std::time::Duration::from_secs(10));
    let second = short.panels[0].all()[1].clone();
    assert_eq!(second.start, std::time::Duration::from_secs(2));
    assert_eq!(short.samples(), 10);
}

#[test]
fn a_sweep_goes_from_its_ratio_to_the_inverse() {
    let sweep = reproduce::netback("fig10").unwrap();
    let ratio = |step| {
        let [first, second] = sweep.priorities(step).map(f64::from);
        first / second
    };
    assert!((ratio(0) - 30.0).abs() < 0.01, "{}", ratio(0));
    assert!((ratio(159) - 1.0 / 30.0).abs() < 0.0001, "{}", ratio(159));
    assert!((1..160).all(|step| ratio(step) < ratio(step - 1)));
}

#[test]
fn the_bridge_is_found_guilty_and_weir_is_held_to_its_bounds() {
    let (scenario, result) = made();
    let found = judge::finding(&result, &scenario, &scenario.panels[0], &scenario.defects[0]);
    let found = found.unwrap();
    assert!(found.shown && (found.worst - 0.504).abs() < 0.01, "{found:?}");
    // The same shares, but with the other machine ahead, are not what the text saw.
    let mut defect = scenario.defects[0].clone();
    defect.favours = Some("vm1".to_owned());
    let found = judge::finding(&result, &scenario, &scenario.panels[0], &defect).unwrap();
    assert!(!found.shown && found.favoured.as_deref() == Some("vm2"), "{found:?}");
    assert!(result.holds(), "{result}");
    let csv = figure::csv(&result, &scenario);
    assert!(csv.contains("\n2x,before,vm1,0.05,33450000,635300\n"), "{csv}");
}

#[test]
fn the_page_is_what_the_result_says() {
    let (_, result) = made();
    let page = report::page(&[("fig8", reproduce::netback("fig8").unwrap(), result)]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/netback-page.txt");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "{} is not what the result says; ./x bless rewrites it:\n{page}",
        path.display()
    );
}
