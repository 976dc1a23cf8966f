// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor's experiments of the Jitter text, reproduced on this machine: activation by a
//! clock, ping, iperf, RTP, and shares of a core, each under shares alone and in the class.
//!
//! The runs and the claims are those of rows 1 to 4 of `weir-lab verify jitter`; here they are
//! drawn beside the text's words.

use std::fmt::Write as _;
use std::path::Path;

use weir_experiment::pictures::save_picture;
use weir_experiment::prelude::*;
use weir_plot::{Bar, BarGroup, Bars, Curve, Distribution, Lines, Panel, PlotLine, Svg};
use weir_result::{ResultFile, quantity, wrapped};

use crate::jitter::timely::{self, KINDS};
use crate::jitter::timely_scenario::TimelyScenario;
use crate::jitter::timely_stream;
use crate::reproduce::generated::{command_and_day, commit, machine};

/// An experiment of the text with the processor's scheduler.
pub struct TimelyExperiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// A title of one line.
    pub title: &'static str,
    /// Its length in full.
    pub length: Duration,
    /// The finding of the text.
    text: &'static str,
    /// Measures the experiment, and judges what Weir promises.
    record: fn(&mut Recording<'_>) -> Result,
    /// Returns the cases that are compared.
    cases: fn(&TimelyScenario) -> Vec<TimelyCase>,
    chart: TimelyChart,
}

/// A case that was measured without and with the class.
struct TimelyCase {
    /// Its name for people.
    title: String,
    /// Its series without and with the class. A name that ends with `/` stands for all series whose
    /// names continue with a number.
    series: [String; 2],
}

/// How an experiment is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimelyChart {
    /// The distribution of a time, with its name.
    Times(&'static str),
    /// Rates.
    Rates,
    /// Shares of a core over time.
    Shares,
}

/// An experiment with its result.
pub type MadeTimely = (&'static TimelyExperiment, ResultFile);

impl TimelyExperiment {
    /// The experiments, in the text's order.
    pub const ALL: [Self; 5] = [
        Self {
            name: "activation",
            title: "Alone, activated every 1, 10, 20 and 40 ms",
            length: Duration::from_secs(240),
            text: "The VM runs alone on a dedicated CPU core; under Xen's Credit Scheduler, the VM \
                   is activated every 1ms, 10ms, 20ms and 40ms respectively.",
            record: timely::alone_both,
            cases: |scenario| {
                let case = |every: Nanos| {
                    TimelyCase::of(&format!("every {every}"), &format!("every-{every}"), &["/"; 2])
                };
                scenario.alone.every.iter().map(|text| case(text.0)).collect()
            },
            chart: TimelyChart::Times("lateness"),
        },
        Self {
            name: "ping",
            title: "Ping, beside two neighbours at 60/20/20",
            length: Duration::from_secs(45),
            text: SHARED_CORE,
            record: timely::pings,
            cases: |_| vec![TimelyCase::of("round trip", "ping", &["/"; 2])],
            chart: TimelyChart::Times("round trip"),
        },
        Self {
            name: "iperf",
            title: "Bulk as of iperf, beside two neighbours at 60/20/20",
            length: Duration::from_secs(135),
            text: SHARED_CORE,
            record: timely_stream::bulk,
            cases: |_| vec![TimelyCase::of("bulk", "bulk", &[""; 2])],
            chart: TimelyChart::Rates,
        },
        Self {
            name: "rtp",
            title: "Sending on time as of RTP, beside two neighbours at 60/20/20",
            length: Duration::from_secs(90),
            text: "Not all of a VM's I/O is event-triggered: media streaming sends without any \
                   external event, so that Xen's BOOST does not help it. VM needs to be scheduled \
                   periodically.",
            record: |rec| {
                timely::sender(rec, 0)?;
                timely::sender(rec, 1)
            },
            cases: |scenario| {
                let case = |case: &crate::jitter::timely_scenario::WorkerCase| {
                    let (every, work) = (case.every.0, case.work.0);
                    let title = format!("every {every}, {work} of work");
                    TimelyCase::of(&title, &format!("every-{every}"), &["/"; 2])
                };
                scenario.sender.case.iter().map(case).collect()
            },
            chart: TimelyChart::Times("error of the time between two"),
        },
        Self {
            name: "shares",
            title: "Shares of a core at 60/20/20",
            length: Duration::from_secs(45),
            text: "VM1 60%; VM2 20%; VM3 20%. When runs alone, VM1 consumes no more than 55% CPU \
                   time. They run together all the time; CPU time proportional share, recorded by \
                   every three seconds.",
            record: timely::shares,
            cases: |_| {
                let case = |who: &str| TimelyCase {
                    title: who.to_owned(),
                    series: KINDS.map(|kind| format!("{kind}/{who}")),
                };
                ["first", "second", "third"].map(case).into()
            },
            chart: TimelyChart::Shares,
        },
    ];

    /// Returns the experiment of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        const ALL: &[TimelyExperiment] = &TimelyExperiment::ALL;
        ALL.iter().find(|one| one.name == name)
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// The lab cannot be made here, or a series is empty.
    pub fn run(&self, rec: &mut Recording<'_>) -> Result {
        (self.record)(rec)
    }

    /// Writes the pictures of a result into `folder`, as SVG and as PNG.
    ///
    /// # Errors
    /// A series is missing, or a file cannot be written.
    pub fn write(&self, result: &ResultFile, folder: &Path) -> Result {
        let drawn = self.draw(result)?;
        drawn.iter().try_for_each(|(name, svg)| save_picture(folder, name, svg, 1.0))
    }

    /// Returns the pictures of a result, each with the name of its file.
    pub(super) fn draw(&self, result: &ResultFile) -> Result<Vec<(String, Svg)>> {
        let scenario = TimelyScenario::read()?;
        let cases = (self.cases)(&scenario);
        let title = self.title.to_owned();
        match self.chart {
            TimelyChart::Times(quantity) => {
                let draw = |(number, case): (usize, &TimelyCase)| {
                    let curve = |at: usize| Curve {
                        name: NAMES[at].to_owned(),
                        samples: case.samples(result, at).iter().map(|us| us / 1e6).collect(),
                    };
                    let drawn = Distribution {
                        title: format!("{title}: {}", case.title),
                        quantity: quantity.to_owned(),
                        unit: "s".to_owned(),
                        curves: vec![curve(0), curve(1)],
                    };
                    Ok((format!("{}-{}", self.name, number + 1), drawn.draw()?))
                };
                cases.iter().enumerate().map(draw).collect()
            }
            TimelyChart::Rates => {
                let bar = |case: &TimelyCase, at: usize| Bar {
                    name: NAMES[at].to_owned(),
                    value: weir_experiment::median(&case.samples(result, at)),
                };
                let group = |case: &TimelyCase| BarGroup {
                    name: case.title.clone(),
                    guarantee: None,
                    bars: vec![bar(case, 0), bar(case, 1)],
                };
                let groups = cases.iter().map(group).collect();
                let drawn = Bars { title, unit: "bit/s".to_owned(), groups };
                Ok(vec![(self.name.to_owned(), drawn.draw()?)])
            }
            TimelyChart::Shares => {
                let panel = |at: usize| Panel {
                    title: NAMES[at].to_owned(),
                    lines: cases
                        .iter()
                        .map(|case| PlotLine::new(&case.title, case.samples(result, at)))
                        .collect(),
                };
                let interval_s = float(scenario.shares.window.0.as_nanos()) / 1e9;
                let panels = vec![panel(0), panel(1)];
                let drawn = Lines { title, unit: "%".to_owned(), interval_s, panels };
                Ok(vec![(self.name.to_owned(), drawn.draw()?)])
            }
        }
    }

    /// Returns the experiment's part of the page.
    pub(super) fn section(&self, result: &ResultFile, pictures: &[&str]) -> Result<String> {
        let mut text = format!("\n## {}\n\n{}\n", self.title, wrapped(self.text, "> ", "> "));
        for picture in pictures {
            let _ = writeln!(text, "![{}](../img/jitter/{picture}.svg)", self.title);
        }
        let _ = write!(text, "\n{}", self.table(result)?);
        let origin = result.origin();
        let (made, commit) = (command_and_day(&origin), commit(&origin));
        let made = format!("{made}: {}, {commit}.", machine(&origin));
        Ok(text + "\n" + &wrapped(&made, "", ""))
    }

    /// Returns the table of a result's numbers.
    ///
    /// # Errors
    /// The scenario cannot be read.
    pub fn table(&self, result: &ResultFile) -> Result<String> {
        let mut text = COLUMNS.to_owned();
        let (unit, factor) = match self.chart {
            TimelyChart::Times(_) => ("s", 1e-6),
            TimelyChart::Rates => ("bit/s", 1.0),
            TimelyChart::Shares => ("%", 1.0),
        };
        for case in (self.cases)(&TimelyScenario::read()?) {
            for (at, name) in NAMES.into_iter().enumerate() {
                let samples = case.samples(result, at);
                let ranks = [0, 50, 99, 100].map(|percent| match samples.is_empty() {
                    true => "–".to_owned(),
                    false => quantity(timely::percentile(&samples, percent) * factor, unit),
                });
                let (title, count) = (&case.title, samples.len());
                let _ = writeln!(text, "| {title} | {name} | {} | {count} |", ranks.join(" | "));
            }
        }
        Ok(text)
    }
}

impl TimelyCase {
    fn of(title: &str, key: &str, ends: &[&str; 2]) -> Self {
        let [fair, class] = KINDS;
        let series = [(fair, ends[0]), (class, ends[1])];
        let series = series.map(|(kind, end)| format!("{key}/{kind}{end}"));
        Self { title: title.to_owned(), series }
    }

    /// Returns the samples without (0) or with the class (1).
    fn samples(&self, result: &ResultFile, at: usize) -> Vec<f64> {
        let wanted = self.series[at].as_str();
        let is_wanted = |name: &str| match name.strip_prefix(wanted) {
            Some("") => true,
            Some(rest) => wanted.ends_with('/') && rest.parse::<u32>().is_ok(),
            None => false,
        };
        let of = result.series().iter().filter(|(name, _)| is_wanted(name));
        of.flat_map(|(_, series)| series.samples.iter().copied()).collect()
    }
}

/// The names of both cases: without and with the class.
const NAMES: [&str; 2] = ["shares alone", "real-time class"];

const SHARED_CORE: &str = "VM1, VM2 and VM3 co-locate on one CPU core. VM1 60%; VM2 20%; VM3 20%. \
                           Benchmarks: Ping and Iperf, RTP video streaming.";

const COLUMNS: &str = "\
| | | least | median | p99 | most | samples |
|---|---|---:|---:|---:|---:|---:|
";

#[cfg(test)]
mod tests {
    use weir_result::{Origin, Series};

    use super::*;

    /// By hand: 200 round trips of 1 to 200 µs in two runs. The p99 of each run has nearly the same
    /// name, but is not among them.
    #[test]
    fn the_numbers_of_all_runs_are_together() {
        let mut result = ResultFile::new(Origin::default());
        let mut add = |name: &str, samples: Vec<f64>| {
            result.add_series(name, Series::unordered("us", samples)).unwrap();
        };
        add("ping/class/0", (1..=100).map(f64::from).collect());
        add("ping/class/1", (101..=200).map(f64::from).collect());
        add("ping/class", vec![99_000.0]);
        add("ping/fair/0", vec![2000.0]);
        let ping = TimelyExperiment::named("ping").unwrap();
        let table = ping.table(&result).unwrap();
        let rows = [
            "| round trip | shares alone | 2 ms | 2 ms | 2 ms | 2 ms | 1 |",
            "| round trip | real-time class | 1 µs | 100 µs | 198 µs | 200 µs | 200 |",
        ];
        assert!(rows.iter().all(|row| table.contains(row)), "{table}");
        assert_eq!(ping.draw(&result).unwrap().len(), 1);
    }

    #[test]
    fn every_experiment_has_cases_of_its_own_name() {
        let scenario = TimelyScenario::read().unwrap();
        for one in &TimelyExperiment::ALL {
            assert!(!(one.cases)(&scenario).is_empty(), "{}", one.name);
            assert_eq!(TimelyExperiment::named(one.name).unwrap().title, one.title);
        }
    }
}
