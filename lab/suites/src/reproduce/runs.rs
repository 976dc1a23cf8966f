// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The series of a figure by their names, and the way back from a result file.

use weir_experiment::mean;
use weir_experiment::prelude::*;
use weir_result::ResultFile;

use super::interval::{Interval, by_sample, interval};
use super::scenario::{FigurePanel, FigureTenant, Scenario, VARIANTS, Variant};

/// The runs of a panel with one thing in the middle. Their series are called
/// `PREFIX PANEL/VARIANT/WHAT/REPETITION`, or without the last part for all repetitions together.
#[derive(Clone, Copy, Debug)]
pub struct PanelRuns<'a> {
    /// Empty, or something that ends with `/`.
    pub prefix: &'a str,
    /// The figure.
    pub scenario: &'a Scenario,
    /// One of its panels.
    pub panel: &'a FigurePanel,
    /// The thing in the middle.
    pub variant: Variant,
}

impl<'a> PanelRuns<'a> {
    /// The runs as a result file of their own figure has them.
    pub const fn new(scenario: &'a Scenario, panel: &'a FigurePanel, variant: Variant) -> Self {
        Self { prefix: "", scenario, panel, variant }
    }

    /// The name of a series of one repetition.
    pub fn each(&self, what: &str, repetition: usize) -> String {
        format!("{}/{repetition}", self.all(what))
    }

    /// The name of a series of all repetitions together.
    pub fn all(&self, what: &str) -> String {
        format!("{}{}/{}/{what}", self.prefix, self.panel.name, self.variant.key())
    }

    /// The samples of each repetition, in order.
    pub fn repeated<'r>(&self, result: &'r ResultFile, what: &str) -> Vec<&'r [f64]> {
        let series = (0..).map_while(|number| result.series().get(&self.each(what, number)));
        series.map(|series| series.samples.as_slice()).collect()
    }

    /// Keeps a series of each repetition.
    pub fn keep(
        &self,
        rec: &mut Recording<'_>,
        what: &str,
        unit: &str,
        rows: Vec<Vec<f64>>,
    ) -> Result {
        for (number, samples) in rows.into_iter().enumerate() {
            rec.keep(&self.each(what, number), Series::unordered(unit, samples))?;
        }
        Ok(())
    }

    /// The tenant's throughput over time, each sample a mean over repetitions with its interval.
    pub fn over_time(&self, result: &ResultFile, tenant: &FigureTenant) -> Vec<Interval> {
        by_sample(&self.repeated(result, &tenant.name))
    }

    /// The tenant's mean throughput while it sent, with its interval over repetitions.
    pub fn overall(&self, result: &ResultFile, tenant: &FigureTenant) -> Option<Interval> {
        let first = self.scenario.first_judged(tenant);
        let judged = |samples: &&[f64]| mean(samples.get(first..).unwrap_or_default());
        let means: Vec<f64> = self.repeated(result, &tenant.name).iter().map(judged).collect();
        interval(&means)
    }
}

impl Scenario {
    /// Returns it as the run was that made a result: its panels, its length, its repetitions.
    pub fn as_run(mut self, result: &ResultFile) -> Self {
        let first = |panel: &FigurePanel| {
            let tenant = panel.all().into_iter().next()?;
            VARIANTS.iter().find_map(|variant| {
                let runs = PanelRuns::new(&self, panel, *variant);
                let series = result.series().get(&runs.each(&tenant.name, 0))?;
                let count = runs.repeated(result, &tenant.name).len();
                let seconds = series.interval_s? * float(series.samples.len() as u64);
                Some((Duration::from_secs_f64(seconds), count))
            })
        };
        let made: Vec<_> = self.panels.iter().map(first).collect();
        let mut is_made = made.iter().map(Option::is_some);
        self.panels.retain(|_| is_made.next().unwrap_or(false));
        match made.into_iter().flatten().next() {
            None => self,
            Some((duration, count)) => {
                self.repetitions = u32::try_from(count).unwrap_or(u32::MAX);
                self.lasting(duration)
            }
        }
    }
}
