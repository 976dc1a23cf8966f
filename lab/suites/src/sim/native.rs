// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Netback text in virtual time: Xen's native back end, and Weir in its place (row 4).
//!
//! The scenarios are those of the laboratory, where *before* is a bridge of today, and some of the
//! text's defects are gone. Here *before* is the back end of the text's time
//! ([`weir_sim::NetbackModel`]): each defect must be there, and none with Weir.

use weir_experiment::SimArm;
use weir_experiment::prelude::*;

use crate::reproduce::runs::PanelRuns;
use crate::reproduce::{self, RunPlace, Scenario, VARIANTS, Variant, judge, runner};

/// Shows the row: Figures 5, 7, 8 and 9.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for (figure, seconds) in [("fig5", 25), ("fig7", 100), ("fig8", 50), ("fig9", 45)] {
        let mut scenario = reproduce::netback(figure)?;
        if rec.quick {
            scenario.repetitions = scenario.repetitions.min(QUICK_REPETITIONS);
        }
        let length = if rec.quick { seconds / 4 } else { seconds };
        let scenario = scenario.lasting(Duration::from_secs(length));
        let (mut scenario, variants) = figure_in_virtual_time(rec, scenario)?;
        // The control of a bridge of today shows nothing here.
        scenario.panels.retain(|panel| !panel.control);
        let (lab, prefix) = (format!("verify-{figure}"), rec.name(&format!("{figure}/")));
        let at = RunPlace { lab: &lab, prefix: &prefix, variants };
        rec.with_full_names(|rec| {
            runner::run_in_virtual_time(rec, &scenario, at, &SimArm::default())?;
            judge::judge(rec, &scenario, at)?;
            defects(rec, &scenario, at)?;
            if figure == "fig5" { rates(rec, &scenario, at) } else { Ok(()) }
        })?;
    }
    Ok(())
}

/// Leaves out what virtual time has not, with a note for each: panels whose senders share a
/// processor, and Weir beside a disk.
///
/// # Errors
/// Nothing is left.
pub(super) fn figure_in_virtual_time(
    rec: &mut Recording<'_>,
    mut scenario: Scenario,
) -> Result<(Scenario, &'static [Variant])> {
    let mut left_out = Vec::new();
    scenario.panels.retain(|panel| {
        let shares = panel.tenants.iter().any(|tenant| tenant.nice > 0);
        if shares {
            let why = "its senders share a processor (`nice`), which virtual time has not";
            left_out.push(format!("panel {:?} is left out: {why}", panel.name));
        }
        !shares
    });
    let shown: Vec<String> = scenario.panels.iter().map(|panel| panel.name.clone()).collect();
    scenario.defects.retain_mut(|defect| {
        let everywhere = defect.panels.is_empty();
        defect.panels.retain(|name| shown.contains(name));
        everywhere || !defect.panels.is_empty()
    });
    let variants: &[Variant] = match &scenario.disk {
        None => &VARIANTS,
        Some(_) => {
            let why = "the disk of virtual time blocks domain 0, in which Weir is not";
            left_out.push(format!("Weir is left out: {why}"));
            &[Variant::Before]
        }
    };
    for line in &left_out {
        rec.say(line);
        rec.result.add_note(line.clone());
    }
    if scenario.panels.is_empty() {
        let what = left_out.join("; ");
        return Err(ExperimentError::Scenario { name: scenario.title, what });
    }
    Ok((scenario, variants))
}

/// Claims each defect of the text of what stands in the middle before.
pub(super) fn defects(rec: &mut Recording<'_>, scenario: &Scenario, at: RunPlace<'_>) -> Result {
    for runs in at.runs(scenario).filter(|runs| runs.variant == Variant::Before) {
        let claims = judge::claims(&rec.result, runs);
        for defect in scenario.defects.iter().filter(|defect| defect.concerns(runs.panel)) {
            if defect.claim == NOT_MODELLED {
                rec.result.add_note(format!("{}: not modelled: {}", runs.all(""), defect.what));
                continue;
            }
            let Some(worst) = judge::worst(&rec.result, &claims, &defect.claim) else { continue };
            let bound = match (defect.at_most, defect.at_least) {
                (Some(most), _) => Bound::at_most(most),
                (None, Some(least)) => Bound::at_least(least),
                (None, None) => continue,
            };
            let series = Series::unordered("1", vec![worst.value()]);
            let id = runs.all(&format!("defect-{}", defect.claim));
            let text = format!("the text's defect: {}", defect.what);
            rec.claim_samples(id, text, series, Rule::Last, bound)?;
            if let Some(favoured) = &defect.favours {
                favours(rec, runs, favoured)?;
            }
        }
    }
    Ok(())
}

/// Claims that a tenant got more than each other one, over all repetitions.
fn favours(rec: &mut Recording<'_>, runs: PanelRuns<'_>, favoured: &str) -> Result {
    let mean_of = |rec: &Recording<'_>, name: &str| {
        let all = runs.repeated(&rec.result, name);
        weir_experiment::mean(&all.into_iter().flatten().copied().collect::<Vec<f64>>())
    };
    let own = mean_of(rec, favoured);
    let others = runs.panel.all().into_iter().filter(|tenant| tenant.name != favoured);
    let parts: Vec<f64> = others.map(|tenant| own / mean_of(rec, &tenant.name)).collect();
    let text = format!("throughput of {favoured}, of that of each other one");
    let series = Series::unordered("1", parts);
    rec.claim_samples(runs.all("favours"), text, series, Rule::Min, Bound::at_least(1.1))
}

/// Claims what a `rate` gives: by Xen's own bucket 3 to 10 % less, by Weir's the rate.
fn rates(rec: &mut Recording<'_>, scenario: &Scenario, at: RunPlace<'_>) -> Result {
    for runs in at.runs(scenario) {
        let mut means = Vec::new();
        for tenant in runs.panel.all() {
            let of_rate = runs.all(&format!("{}/of-rate", tenant.name));
            let samples = rec.result.series().get(&of_rate).map(|series| series.samples.as_slice());
            means.push(weir_experiment::mean(samples.unwrap_or_default()));
        }
        let (least, most) = match runs.variant {
            Variant::Before => (0.90, 0.97),
            Variant::After(_) => (0.999, 1.001),
        };
        let name = runs.all("rate");
        rec.keep(&name, Series::unordered("1", means))?;
        let text = "throughput of each in all, of its rate";
        let id = |side: &str| runs.all(&format!("rate-{side}"));
        rec.claim(id("least"), text, Rule::Min, Bound::at_least(least), &[&name])?;
        rec.claim(id("most"), text, Rule::Max, Bound::at_most(most), &[&name])?;
    }
    Ok(())
}

/// The spread of runs with a `rate`: the model's bucket ticks alike in each run.
const NOT_MODELLED: &str = "interval";

const QUICK_REPETITIONS: u32 = 3;
