// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three routers one behind the other, probed hop by hop: Fig. 20.

use weir_experiment::prelude::*;
use weir_plot::{PointSet, Svg};
use weir_result::ResultFile;

use super::picture::points;
use super::results::samples;
use super::table::{PageTable, cell, kpps};
use crate::routers::{Chain, HOPS, HoldingMeans, ProbePath, RouterKind, lost, prefix};

/// Tries the chain and keeps what is seen.
pub(super) fn run(trial: &mut Recording<'_>, kind: RouterKind) -> Result<(), ExperimentError> {
    if kind != RouterKind::Process {
        let (what, needs) = ("fig20".to_owned(), "routers that are processes".to_owned());
        return Err(ExperimentError::Missing { what, needs });
    }
    Chain::of(trial.quick).run(trial)?.keep(trial, "")
}

/// Returns a row for each hop at each set-point, with a column for each way of holding routers.
pub(super) fn table(result: &ResultFile) -> String {
    let head = ["set-point", "probed behind"].map(str::to_owned);
    let means = HoldingMeans::ALL.map(|means| means.name().to_owned());
    let mut table = PageTable::new(2, head.into_iter().chain(means));
    for percent in percents(result) {
        let wanted = samples(result, &format!("{}set-point", prefix(HoldingMeans::Weir, percent)));
        let wanted = format!("{percent} %, {}", cell(wanted.first(), |rate| kpps(*rate)));
        for hop in 0..HOPS {
            let cells = HoldingMeans::ALL.map(|means| {
                let seen = HopResult { result, means, percent, hop };
                cell(seen.cell(), |text| text)
            });
            table.row([wanted.clone(), format!("vr{}", hop + 1)].into_iter().chain(cells));
        }
    }
    table.explained(
        "Each cell: the flow that was lost up to there; of the probe that comes with it, what did \
         not\ncome back, and the mean round-trip time; the same of a probe by an interface of its \
         own.",
    )
}

/// Loss and round-trip time of the probe that comes with the flow, by hop: a picture of each for
/// each way of holding the routers.
pub(super) fn draw(
    title: &str,
    result: &ResultFile,
) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let mut drawn = Vec::new();
    for means in HoldingMeans::HELD {
        for HopMetric { key, name, unit, value } in METRICS {
            let set = |means, percent, name: String| {
                let point = |hop: usize| {
                    let seen = HopResult { result, means, percent, hop };
                    Some((float(hop as u64 + 1), value(&seen.probed(ProbePath::Flow)?)))
                };
                let points = (0..HOPS).filter_map(point).collect();
                PointSet::line(name, points)
            };
            let held = percents(result).into_iter().map(|p| set(means, p, format!("{p} %")));
            let without = set(HoldingMeans::Without, 0, HoldingMeans::Without.name().to_owned());
            let title = format!("{title}: {}", means.name());
            let axes = [("probed behind router", "1"), (name, unit)];
            let svg = points(title, axes, std::iter::once(without).chain(held))?;
            drawn.extend(svg.map(|svg| (format!("{key}-{}", means.key()), svg)));
        }
    }
    Ok(drawn)
}

/// One hop of a chain held in one way, as the result has it.
struct HopResult<'r> {
    result: &'r ResultFile,
    means: HoldingMeans,
    percent: u64,
    hop: usize,
}

/// A probe: the part that did not come back, and the mean time of the others in seconds.
struct HopProbe {
    loss: f64,
    time_s: f64,
}

impl<'r> HopResult<'r> {
    fn samples(&self, name: &str) -> &'r [f64] {
        samples(self.result, &format!("{}{name}", prefix(self.means, self.percent)))
    }

    /// The part of the flow that was lost up to here.
    fn lost(&self) -> Option<f64> {
        let (came, forwarded) = (self.samples("came").first()?, self.samples("forwarded"));
        forwarded.get(self.hop).map(|rate| lost(*came, *rate))
    }

    fn probed(&self, way: ProbePath) -> Option<HopProbe> {
        let of = |name: &str| self.samples(&format!("hop{}/{}/{name}", self.hop + 1, way.key()));
        let (times_s, due, failed) = (of("times"), of("due").first()?, of("failed").first()?);
        let answered = !times_s.is_empty();
        answered.then(|| HopProbe {
            loss: failed / due.max(1.0),
            time_s: weir_experiment::mean(times_s),
        })
    }

    fn cell(&self) -> Option<String> {
        let probe = |way: ProbePath| {
            let probe = self.probed(way)?;
            Some(format!("{:.1} %, {:.2} ms", probe.loss * 100.0, probe.time_s * 1e3))
        };
        let lost = self.lost()? * 100.0;
        Some(format!("{lost:.1} %; {}; {}", probe(ProbePath::Flow)?, probe(ProbePath::Own)?))
    }
}

/// The set-points that were made.
fn percents(result: &ResultFile) -> Vec<u64> {
    let mut percents = [Chain::of(false).percents, Chain::of(true).percents].concat();
    percents.sort_unstable();
    percents.dedup();
    let is_made = |percent: &u64| {
        let made = |means| !samples(result, &format!("{}came", prefix(means, *percent))).is_empty();
        HoldingMeans::HELD.into_iter().any(made)
    };
    percents.into_iter().filter(is_made).collect()
}

/// A value of a probe that is drawn.
struct HopMetric {
    /// Its part of the file's name.
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    value: fn(&HopProbe) -> f64,
}

const METRICS: [HopMetric; 2] = [
    HopMetric { key: "loss", name: "probes lost", unit: "1", value: |probe| probe.loss },
    HopMetric { key: "rtt", name: "mean round-trip time", unit: "s", value: |probe| probe.time_s },
];
