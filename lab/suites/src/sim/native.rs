// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Netback text in virtual time: Xen's native back end, and Weir in its place (row 4).
//!
//! The scenarios are those of the laboratory, where *before* is a bridge of today, and some of the
//! text's defects are gone. Here *before* is the back end of the text's time
//! ([`weir_sim::NetbackModel`]): each defect must be there, and none with Weir.

use weir_experiment::prelude::*;

use crate::reproduce::runs::PanelRuns;
use crate::reproduce::scenario::{FigurePanel, FigureTenant};
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
        let (scenario, variants) = figure_in_virtual_time(rec, scenario)?;
        let (lab, prefix) = (format!("verify-{figure}"), rec.name(&format!("{figure}/")));
        let at = RunPlace { lab: &lab, prefix: &prefix, variants: &variants };
        rec.with_full_names(|rec| {
            record_at(rec, &scenario, at)?;
            if figure == "fig5" { rates(rec, &scenario, at) } else { Ok(()) }
        })?;
    }
    Ok(())
}

/// Runs and judges the parts of a figure that virtual time can run; `lab` names it. Returns the
/// scenario with these parts.
///
/// # Errors
/// Nothing of it can be run, or the simulation cannot go on.
pub fn record_figure(rec: &mut Recording<'_>, scenario: Scenario, lab: &str) -> Result<Scenario> {
    let (scenario, variants) = figure_in_virtual_time(rec, scenario)?;
    let at = RunPlace { lab, prefix: "", variants: &variants };
    record_at(rec, &scenario, at)?;
    Ok(scenario)
}

fn record_at(rec: &mut Recording<'_>, scenario: &Scenario, at: RunPlace<'_>) -> Result {
    runner::run_in_virtual_time(rec, scenario, at)?;
    judge::judge(rec, scenario, at)?;
    defects(rec, scenario, at)
}

/// Leaves out what virtual time cannot run, with a note for each: panels whose senders share a
/// processor, controls of a bridge of today, Weir beside a disk, and features that the model of
/// Xen's back end lacks.
///
/// # Errors
/// Nothing is left.
fn figure_in_virtual_time(
    rec: &mut Recording<'_>,
    mut scenario: Scenario,
) -> Result<(Scenario, Vec<Variant>)> {
    let mut left_out = Vec::new();
    scenario.panels.retain(|panel| {
        let why = not_in_virtual_time(panel);
        left_out.extend(why.map(|why| format!("panel {:?} is left out: {why}", panel.name)));
        why.is_none()
    });
    let shown: Vec<String> = scenario.panels.iter().map(|panel| panel.name.clone()).collect();
    scenario.defects.retain_mut(|defect| {
        let everywhere = defect.panels.is_empty();
        defect.panels.retain(|name| shown.contains(name));
        everywhere || !defect.panels.is_empty()
    });
    let mut variants = VARIANTS.to_vec();
    if scenario.disk.is_some() {
        let why = "the disk of virtual time blocks domain 0, in which Weir is not";
        left_out.push(format!("Weir is left out: {why}"));
        variants.retain(|variant| *variant == Variant::Before);
    }
    if let Some(why) = not_at_the_back_end(&scenario, rec.sim.captures.is_some()) {
        left_out.push(format!("before is left out: {why}"));
        variants.retain(|variant| *variant != Variant::Before);
    }
    for line in &left_out {
        rec.say(line);
        rec.result.add_note(line.clone());
    }
    if scenario.panels.is_empty() || variants.is_empty() {
        let what = left_out.join("; ");
        return Err(ExperimentError::Scenario { name: scenario.title, what });
    }
    Ok((scenario, variants))
}

/// Returns the reason why a panel cannot be run, if there is one.
fn not_in_virtual_time(panel: &FigurePanel) -> Option<&'static str> {
    if panel.tenants.iter().any(|tenant| tenant.nice != 0) {
        return Some("its senders share a processor (`nice`), which virtual time has not");
    }
    panel.control.then_some("it is a control of a bridge of today, which virtual time has not")
}

/// Returns the reason why Xen's back end cannot be run, if there is one.
fn not_at_the_back_end(scenario: &Scenario, captured: bool) -> Option<&'static str> {
    let any = |is: fn(&FigureTenant) -> bool| {
        scenario.panels.iter().flat_map(|panel| &panel.tenants).any(is)
    };
    if captured {
        return Some("frames at Xen's back end have lengths alone");
    }
    if any(|tenant| tenant.frame_min != tenant.frame_max) {
        return Some("a sender at Xen's back end has frames of one length");
    }
    any(|tenant| tenant.credit.is_some())
        .then_some("`credit` is of another bucket than that of Xen's back end")
}

/// Claims that the forwarder before has each defect of the text.
fn defects(rec: &mut Recording<'_>, scenario: &Scenario, at: RunPlace<'_>) -> Result {
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

/// Claims that a tenant got more than every other one, over all repetitions.
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

/// Claims the effect of a `rate`: Xen's own bucket gives 3 to 10 % less, Weir's gives the rate.
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

/// A defect that the model lacks: the spread of runs with a `rate`. The model's bucket ticks alike
/// in each run.
const NOT_MODELLED: &str = "interval";

const QUICK_REPETITIONS: u32 = 3;
