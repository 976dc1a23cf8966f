// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure as the text laid it out: time, Mb/s, a line for each machine with error bars; one graph
//! for each panel, one row for each thing in the middle. And the same numbers as CSV.

use std::fmt::Write;
use std::path::Path;

use weir_experiment::pictures::{save_file, save_picture};
use weir_experiment::prelude::*;
use weir_plot::{Lines, PlotLine, Svg};
use weir_result::ResultFile;

use super::interval::Interval;
use super::runs::PanelRuns;
use super::scenario::{Scenario, VARIANTS, Variant};

/// Writes `figure.svg`, `figure.png` and `data.csv` into `folder`; `before` is as for [`draw`].
pub fn write(result: &ResultFile, scenario: &Scenario, before: &str, folder: &Path) -> Result {
    save_picture(folder, "figure", &draw(result, scenario, before)?, 1.0)?;
    save_file(&folder.join("data.csv"), csv(result, scenario).as_bytes())
}

/// The picture of a figure, in which `before` names what stood in the middle before.
pub fn draw(result: &ResultFile, scenario: &Scenario, before: &str) -> Result<Svg> {
    let mut panels = Vec::new();
    let mut rows = 0;
    for variant in VARIANTS {
        // Controls are no part of the text's figure.
        let shown = scenario.panels.iter().filter(|panel| !panel.control);
        let runs = shown.map(|panel| PanelRuns::new(scenario, panel, variant));
        let row: Vec<_> = runs.filter_map(|runs| graph(result, runs, before)).collect();
        rows += usize::from(!row.is_empty());
        panels.extend(row);
    }
    let (title, unit) = (scenario.title.clone(), "bit/s".to_owned());
    let interval_s = scenario.interval().as_secs_f64();
    Ok(Lines { title, unit, interval_s, panels }.draw_rows(rows.max(1))?)
}

/// A line for each sample of each machine: the mean over repetitions, and half its 95 % interval.
pub fn csv(result: &ResultFile, scenario: &Scenario) -> String {
    let mut text = String::from("panel,middle,machine,time_s,mean_bps,half_interval_bps\n");
    let width = scenario.interval().as_secs_f64();
    for panel in &scenario.panels {
        for variant in VARIANTS {
            for tenant in panel.all() {
                let runs = PanelRuns::new(scenario, panel, variant);
                for (index, sample) in runs.over_time(result, &tenant).iter().enumerate() {
                    let time = (float(index as u64) + 0.5) * width;
                    let half = sample.half.map_or_else(String::new, |half| format!("{half:.0}"));
                    let (name, middle, who) = (&panel.name, variant.key(), &tenant.name);
                    let _ =
                        writeln!(text, "{name},{middle},{who},{time:.2},{:.0},{half}", sample.mean);
                }
            }
        }
    }
    text
}

/// A graph; none if that was not run.
fn graph(result: &ResultFile, runs: PanelRuns<'_>, before: &str) -> Option<weir_plot::Panel> {
    let tenants = runs.panel.all();
    let seen: Vec<_> = tenants.iter().map(|tenant| runs.over_time(result, tenant)).collect();
    if seen.iter().all(Vec::is_empty) {
        return None;
    }
    let lines = if tenants.len() <= LINES_MAX {
        tenants.iter().zip(&seen).map(|(tenant, seen)| line(&tenant.name, seen)).collect()
    } else {
        let (first, others) = seen.split_first()?;
        let bound = |pick: fn(f64, f64) -> f64| {
            let at =
                |k: usize| others.iter().filter_map(|row| row.get(k)).map(|s| s.mean).reduce(pick);
            (0..first.len()).filter_map(at).collect::<Vec<f64>>()
        };
        let name = |what: &str| format!("others, {what}");
        vec![
            line(&tenants.first()?.name, first),
            PlotLine::new(name("most"), bound(f64::max)),
            PlotLine::new(name("least"), bound(f64::min)),
        ]
    };
    let middle = match runs.variant {
        Variant::Before => before,
        after @ Variant::After(_) => after.name(),
    };
    Some(weir_plot::Panel { title: format!("{middle}: {}", runs.panel.title), lines })
}

fn line(name: &str, seen: &[Interval]) -> PlotLine {
    let line = PlotLine::new(name, seen.iter().map(|sample| sample.mean).collect());
    let halves: Vec<f64> = seen.iter().filter_map(|sample| sample.half).collect();
    // Hundreds of bars beside each other are a wall.
    if halves.len() > BARS_MAX { line } else { line.within(halves) }
}

/// More lines than colours cannot be told apart.
const LINES_MAX: usize = 6;

const BARS_MAX: usize = 120;
