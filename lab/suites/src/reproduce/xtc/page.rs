// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that puts the text's numbers beside what was seen, from result files alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use weir_experiment::prelude::*;
use weir_result::{ResultFile, wrapped};

use super::Flow;
use super::draw::{draw, samples};
use super::figures::{Figure, Made};
use super::shares::{Setting, Shares, prefix};
use super::sweep::{Metric, Sweep};
use super::training::Curve;
use crate::reproduce::figure::save;
use crate::reproduce::interval::interval;
use crate::routers::{Contender, HoldingMeans};

/// Writes the page and its pictures below `root`, the project's folder.
pub fn write(root: &Path, made: &[(&Figure, ResultFile)]) -> Result<PathBuf, ExperimentError> {
    if made.is_empty() {
        let (what, needs) = ("a report".to_owned(), "a result; make one figure first".to_owned());
        return Err(ExperimentError::Missing { what, needs });
    }
    let (pictures, page) = (root.join(PICTURES), root.join(PAGE));
    for folder in [pictures.as_path(), page.parent().unwrap_or(root)] {
        std::fs::create_dir_all(folder).map_err(|error| ExperimentError::io(folder, error))?;
    }
    let mut text = HEAD.to_owned();
    for (figure, result) in made {
        let drawn = draw(figure, result)?;
        let names: Vec<String> =
            drawn.iter().map(|(part, _)| picture(figure, part, "svg")).collect();
        for ((_, svg), name) in drawn.iter().zip(&names) {
            save(&pictures.join(name), svg.as_str().as_bytes())?;
        }
        text += &section(figure, result, &names);
    }
    save(&page, text.as_bytes())?;
    Ok(page)
}

/// The file of a picture.
pub fn picture(figure: &Figure, part: &str, extension: &str) -> String {
    let dash = if part.is_empty() { "" } else { "-" };
    format!("{}{dash}{part}.{extension}", figure.name)
}

fn section(figure: &Figure, result: &ResultFile, pictures: &[String]) -> String {
    let name = figure.name;
    let heading = match (name.strip_prefix("fig"), name.strip_prefix("table")) {
        (Some(number), _) => format!("Figure {number}"),
        (_, Some(number)) => format!("Table {number}"),
        _ => name.to_owned(),
    };
    let title = figure.title;
    let mut text = format!("\n## {heading}: {title}\n\n{}\n", wrapped(figure.text, "> ", "> "));
    for picture in pictures {
        let _ = writeln!(text, "![{title}](../img/xtc/{picture})");
    }
    text.push('\n');
    text += &table(figure, result);
    if !figure.differs.is_empty() {
        text.push('\n');
        text += &wrapped(figure.differs, "", "");
    }
    let origin = result.origin();
    let (day, _) = origin.start.split_once('T').unwrap_or_default();
    let made = format!(
        "`{}` on {day}: {} cores of {}, {}, commit {}.",
        origin.command,
        origin.machine.cores,
        origin.machine.cpu,
        origin.kernel,
        origin.commit.chars().take(12).collect::<String>(),
    );
    text.push('\n');
    text + &wrapped(&made, "", "")
}

/// What a figure shows, in numbers.
pub fn table(figure: &Figure, result: &ResultFile) -> String {
    match &figure.made {
        Made::Curve(curve) => by_cap(figure, curve, result),
        Made::Residuals => model(result),
        Made::Sweep(sweep) => {
            sweep.flows.iter().map(|flow| by_set_point(sweep, *flow, result)).collect()
        }
        Made::Shares(shares) => {
            let of = |setting| by_router(shares, setting, result);
            shares.settings.iter().map(of).collect()
        }
        Made::Chain => super::chain::table(result),
    }
}

fn by_cap(figure: &Figure, curve: &Curve, result: &ResultFile) -> String {
    let text_rates: &[f64] = if figure.name == "table1" { &TABLE_1_KPPS } else { &[] };
    let mut text = String::from("| cap |");
    if !text_rates.is_empty() {
        text += " text, of 100 kp/s |";
    }
    for flow in curve.flows {
        let offered = samples(result, &format!("{}/offered", Flow::Udp(*flow).key()));
        let threshold = samples(result, &format!("{}/threshold", Flow::Udp(*flow).key()));
        let threshold = match threshold.first() {
            Some(cap) if *cap > 0.0 => format!("threshold {:.0} %", cap * 100.0),
            _ => "no threshold".to_owned(),
        };
        let offered = offered.first().copied().unwrap_or(0.0);
        let _ = write!(text, " {} offered, {threshold} |", kpps(offered));
    }
    let columns = curve.flows.len() + 1 + usize::from(!text_rates.is_empty());
    text += &format!("\n|{}\n", "---:|".repeat(columns));
    for (row, cap) in curve.caps.iter().enumerate() {
        let _ = write!(text, "| {cap} % |");
        if let Some(kpps) = text_rates.get(row) {
            let _ = write!(text, " {:.2} |", kpps / 100.0);
        }
        for flow in curve.flows {
            let of = |name: &str| samples(result, &format!("{}/{name}", Flow::Udp(*flow).key()));
            let at = of("cap").iter().position(|seen| (seen * 100.0 - f64::from(*cap)).abs() < 0.5);
            let found = at.and_then(|at| Some((of("mean").get(at)?, of("half-interval").get(at)?)));
            let offered = of("offered").first().copied().unwrap_or(f64::INFINITY);
            let cell = found.map_or_else(nothing, |(mean, half)| {
                format!("{} ± {:.2}: {:.2}", kpps(*mean), half / 1e3, mean / offered)
            });
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

fn model(result: &ResultFile) -> String {
    let first = |name: &str, at: usize| samples(result, name).get(at).copied().unwrap_or(f64::NAN);
    let offered = first("udp-100/offered", 0);
    format!(
        "| | text | here |\n|---|---:|---:|\n| a | 0.0915 | {:.4} |\n\
         | b, kp/s a decade of cap | 63.0051 | {:.4} |\n\
         | b by what is offered | 0.630 | {:.3} |\n\
         | operating point, kp/s | 78.14 | {:.2} |\n| operating point, log10 of the cap | 1.39 | \
         {:.2} |\n| R², a step, on its own data | 0.9899 | {:.4} |\n\
         | R², free run, on a run not seen | – | {:.4} |\n",
        first("model", 0),
        first("model", 1),
        first("model", 1) * 1e3 / offered,
        first("operating-point", 0),
        first("operating-point", 1),
        first("own/r2", 0),
        first("unseen/r2", 0),
    )
}

fn by_set_point(sweep: &Sweep, flow: Flow, result: &ResultFile) -> String {
    let capacity = samples(result, &format!("{}/capacity", flow.key()));
    let capacity = capacity.first().copied().unwrap_or(f64::NAN);
    let what: Vec<&str> = sweep.shows.iter().map(|metric| metric.words()).collect();
    let mut text = format!("| {}, {} |", flow.name(), kpps(capacity));
    for contender in sweep.contenders {
        let _ = write!(text, " {} |", contender.name());
    }
    text += &format!("\n|---:|{}\n", "---:|".repeat(sweep.contenders.len()));
    let runs: Vec<_> =
        sweep.contenders.iter().map(|one| Held::all(result, flow, *one, sweep)).collect();
    let points = runs.iter().map(Vec::len).max().unwrap_or(0);
    for at in 0..points {
        let Some(held) = runs.iter().find_map(|runs| runs.get(at)) else { continue };
        let _ = write!(text, "| {} %, {} |", held.percent, kpps(held.set_point));
        for runs in &runs {
            let cell = runs.get(at).map(|held| {
                let cells = sweep.shows.iter().map(|metric| held.cell(*metric));
                cells.collect::<Vec<String>>().join(" · ")
            });
            let _ = write!(text, " {} |", cell.unwrap_or_else(nothing));
        }
        text.push('\n');
    }
    format!("{text}\nEach cell: {}.\n\n", what.join(" · "))
}

fn by_router(shares: &Shares, setting: &Setting, result: &ResultFile) -> String {
    let mut text = String::new();
    for (configuration, _) in setting.configurations {
        let _ = writeln!(
            text,
            "| {}, {configuration} | set-point | {} | {} | {} |",
            setting.key,
            HoldingMeans::Without.name(),
            HoldingMeans::Cap.name(),
            HoldingMeans::Weir.name()
        );
        text += "|---|---:|---:|---:|---:|\n";
        for router in 0..setting.loads.len() {
            let of = |means, what: &str| {
                let prefix = prefix(setting.key, configuration, means);
                interval(samples(result, &format!("{prefix}{what}/{}", router + 1)))
            };
            let wanted = of(HoldingMeans::Weir, "set-point").map_or(f64::NAN, |wanted| wanted.mean);
            let _ = write!(text, "| vr{} | {} |", router + 1, kpps(wanted));
            for means in HoldingMeans::ALL {
                let rate = of(means, "rate").map_or_else(nothing, |rate| {
                    format!("{}: {:.3}", kpps(rate.mean), rate.mean / wanted)
                });
                let time = of(means, "rtt").filter(|_| shares.probed);
                let time =
                    time.map_or(String::new(), |time| format!(", {:.2} ms", time.mean * 1e3));
                let _ = write!(text, " {rate}{time} |");
            }
            text.push('\n');
        }
        text += "| together | |";
        for means in HoldingMeans::ALL {
            let cell = together(result, setting, configuration, means).map(|all| {
                let half = all.half.map_or(String::new(), |half| format!(" ± {:.2}", half / 1e3));
                format!("{}{half}, min/max {:.3}", kpps(all.mean), all.balance)
            });
            let _ = write!(text, " {} |", cell.unwrap_or_else(nothing));
        }
        text += "\n\n";
    }
    text
}

/// Routers of a setting taken together.
pub(super) struct Together {
    /// Packets a second, and half its 95 % interval over repetitions.
    mean: f64,
    half: Option<f64>,
    /// The least router by the greatest.
    pub(super) balance: f64,
}

/// What all routers of a setting forward, held in one way; none if that was not made.
pub(super) fn together(
    result: &ResultFile,
    setting: &Setting,
    configuration: &str,
    means: HoldingMeans,
) -> Option<Together> {
    let prefix = prefix(setting.key, configuration, means);
    let of = |router: usize| samples(result, &format!("{prefix}rate/{}", router + 1));
    let rates: Vec<&[f64]> = (0..setting.loads.len()).map(of).collect();
    let repetitions = rates.iter().map(|rates| rates.len()).min()?;
    let sums: Vec<f64> =
        (0..repetitions).map(|at| rates.iter().map(|rates| rates[at]).sum()).collect();
    let all = interval(&sums)?;
    let means: Vec<f64> = rates.iter().map(|rates| weir_experiment::mean(rates)).collect();
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let most = means.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    Some(Together { mean: all.mean, half: all.half, balance: least / most })
}

/// A run of a sweep, as the result has it.
pub(super) struct Held<'r> {
    result: &'r ResultFile,
    id: String,
    percent: u64,
    /// Packets a second.
    pub(super) set_point: f64,
}

impl<'r> Held<'r> {
    /// All of a contender under a flow, by rising set-point.
    pub(super) fn all(
        result: &'r ResultFile,
        flow: Flow,
        contender: Contender,
        sweep: &Sweep,
    ) -> Vec<Self> {
        let of = |percent: u64| {
            let id = format!("{}/{}/{percent}%/", flow.key(), contender.key());
            let set_point = *samples(result, &format!("{id}set-point")).first()?;
            Some(Self { result, id, percent, set_point })
        };
        let mut percents = [sweep.points(false), sweep.points(true)].concat();
        percents.sort_unstable();
        percents.dedup();
        percents.into_iter().filter_map(of).collect()
    }

    fn samples(&self, name: &str) -> &'r [f64] {
        samples(self.result, &format!("{}{name}", self.id))
    }

    /// A metric in its unit; none where it was not measured.
    pub(super) fn metric(&self, metric: Metric) -> Option<f64> {
        let mean = |name: &str| {
            let seen = self.samples(name);
            (!seen.is_empty()).then(|| weir_experiment::mean(seen))
        };
        match metric {
            Metric::Achieved => mean("rate"),
            Metric::Disturbed => mean("disturbed-rate"),
            Metric::RoundTrip => mean("rtt"),
            Metric::Lost => {
                let [failed, all] = ["probes-failed", "probes"].map(mean);
                failed.zip(all).map(|(failed, all)| failed / all.max(1.0))
            }
            Metric::Deviation => {
                let rates: Vec<PacketRate> = self.samples("rate").iter().map(whole).collect();
                weir_control::relative_rmse(&rates)
            }
        }
    }

    /// As the table has it.
    fn cell(&self, metric: Metric) -> String {
        let value = self.metric(metric);
        value.map_or_else(nothing, |value| match metric {
            Metric::Achieved | Metric::Disturbed => format!("{:.3}", value / self.set_point),
            Metric::Deviation => format!("{value:.4}"),
            Metric::RoundTrip => format!("{:.2} ms", value * 1e3),
            Metric::Lost => format!("{:.1} %", value * 100.0),
        })
    }
}

impl Metric {
    const fn words(self) -> &'static str {
        match self {
            Self::Achieved => "mean rate by set-point",
            Self::Deviation => "relative RMSE",
            Self::Disturbed => "mean rate by set-point beside the disturbance",
            Self::RoundTrip => "mean round-trip time of the probe",
            Self::Lost => "probes that did not come back",
        }
    }
}

/// In a cell of what was not measured.
pub(super) fn nothing() -> String {
    "–".to_owned()
}

pub(super) fn kpps(rate: f64) -> String {
    format!("{:.2} kp/s", rate / 1e3)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn whole(rate: &f64) -> PacketRate {
    PacketRate::from_pps(rate.round() as u64)
}

/// Table 1 of the text, in the order of its caps.
const TABLE_1_KPPS: [f64; 10] = [16.0, 32.0, 50.0, 65.0, 77.0, 85.0, 91.0, 94.0, 96.0, 98.0];

/// Where the page and its pictures go, from the project's folder.
const PAGE: &str = "docs/reproduced/xtc.md";
const PICTURES: &str = "docs/img/xtc";

const HEAD: &str = "\
# XTC's experiments, made again

Text: R. S. Couto, M. E. M. Campista, L. H. M. K. Costa, *Network Resource Control for Xen-based
Virtualized Software Routers*. A paravirtualized guest on a processor of its own forwarded UDP
packets of 64 bytes or TCP packets of 524 bytes; its cap of Xen's credit scheduler was set once a
second.

Here the router is a process that forwards between two devices, in a control group whose quota is
its cap, or, with `--router namespace`, a namespace whose devices' kernel threads have deadline
budgets. **PI** and **dead-beat** are the text's, by its poles on the a and b that a training of
30 s gives for this router; **Fixed Cap** is the map of that training. **Weir, cap alone** needs no
training; **Weir** is a running node's default: a limit at ingress, under a cap that is a ceiling.
In Figures 5 to 14, where the lab and not a node holds the router, the limit is a bucket of 1 ms
(**Weir, bucket**) in place of the node's short queue, and does not meet the probe. The text's
flow of 100 kp/s nearly filled its router; here *the flow* is seven tenths of what the router
forwards of a flood, TCP through one router is half of what gets through where it is greedy, and
set-points are in percent of what the router forwards of the load with its largest cap. Samples are
a second, as there; of **Weir, cap alone** too, which decides ten times in each. Runs are 60 s in
place of 120 s, of which the first 10 s are not judged; 8 and 3 s with `--quick`. Where
six or two routers are held, a running node holds them through its API with samples of 100 ms, by
Weir's controllers alone; so do three nodes with a router each for Figure 20. Figures 1, 2 and 19
are drawings.

This page is generated: `weir-lab reproduce xtc all`, then `weir-lab reproduce xtc report`.
";
