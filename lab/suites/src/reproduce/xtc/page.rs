// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that puts the text's numbers beside what was seen, from result files alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use weir_experiment::prelude::*;
use weir_result::{ResultFile, wrapped};

use super::draw::draw;
use super::figures::{Figure, FigureKind};
use super::flow::FigureFlow;
use super::results::{SweepResult, first, samples, together};
use super::shares::{ShareSetting, SharedRouters, prefix};
use super::sweep::{Metric, SetPointSweep};
use super::table::{PageTable, cell, kpps};
use super::training::CapCurve;
use crate::reproduce::generated::{
    PageFiles, command_and_day, commit, heading, machine, no_results,
};
use crate::reproduce::interval::interval;
use crate::routers::HoldingMeans;

/// Writes the page and its pictures below `root`, the project's folder.
pub fn write(root: &Path, made: &[(&Figure, ResultFile)]) -> Result<PathBuf, ExperimentError> {
    if made.is_empty() {
        return Err(no_results("a result; make one figure first"));
    }
    let files = PageFiles::make(root, "xtc")?;
    let mut text = HEAD.to_owned();
    for (figure, result) in made {
        let drawn = draw(figure, result)?;
        let names: Vec<String> = drawn.iter().map(|(part, _)| figure.picture(part)).collect();
        for ((_, svg), name) in drawn.iter().zip(&names) {
            files.save_picture(name, svg)?;
        }
        text += &section(figure, result, &names);
    }
    files.save_page(&text)
}

fn section(figure: &Figure, result: &ResultFile, pictures: &[String]) -> String {
    let name = figure.name;
    let heading = heading(name).unwrap_or_else(|| name.to_owned());
    let title = figure.title;
    let mut text = format!("\n## {heading}: {title}\n\n{}\n", wrapped(figure.text, "> ", "> "));
    for picture in pictures {
        let _ = writeln!(text, "![{title}](../img/xtc/{picture}.svg)");
    }
    text.push('\n');
    text += &table(figure, result);
    if !figure.differs.is_empty() {
        text.push('\n');
        text += &wrapped(figure.differs, "", "");
    }
    let origin = &result.origin();
    let made = format!("{}: {}, {}.", command_and_day(origin), machine(origin), commit(origin));
    text.push('\n');
    text + &wrapped(&made, "", "")
}

/// Returns the numbers of a figure.
pub fn table(figure: &Figure, result: &ResultFile) -> String {
    match &figure.made {
        FigureKind::Curve(curve) => by_cap(figure, curve, result),
        FigureKind::Residuals => model(result),
        FigureKind::Sweep(sweep) => {
            sweep.flows.iter().map(|flow| by_set_point(sweep, *flow, result)).collect()
        }
        FigureKind::Shares(shares) => {
            let of = |setting| by_router(shares, setting, result);
            shares.settings.iter().map(of).collect()
        }
        FigureKind::Chain => super::chain::table(result),
    }
}

fn by_cap(figure: &Figure, curve: &CapCurve, result: &ResultFile) -> String {
    let text_kpps: &[f64] = if figure.name == "table1" { &TABLE_1_KPPS } else { &[] };
    let flows: Vec<String> =
        curve.flows.iter().map(|percent| FigureFlow::Udp(*percent).key()).collect();
    let head = flows.iter().map(|flow| {
        let threshold = match first(result, &format!("{flow}/threshold")) {
            Some(cap) if cap > 0.0 => format!("threshold {:.0} %", cap * 100.0),
            _ => "no threshold".to_owned(),
        };
        let offered = first(result, &format!("{flow}/offered")).unwrap_or(0.0);
        format!("{} offered, {threshold}", kpps(offered))
    });
    let text_head = (!text_kpps.is_empty()).then(|| "text, of 100 kp/s".to_owned());
    let cap_head = std::iter::once("cap".to_owned());
    let mut table = PageTable::new(0, cap_head.chain(text_head).chain(head));
    for (row, cap) in curve.caps.iter().enumerate() {
        let text = text_kpps.get(row).map(|kpps| format!("{:.2}", kpps / 100.0));
        let cells = flows.iter().map(|flow| {
            let of = |name: &str| samples(result, &format!("{flow}/{name}"));
            let at = of("cap").iter().position(|seen| (seen * 100.0 - f64::from(*cap)).abs() < 0.5);
            let found = at.and_then(|at| Some((of("mean").get(at)?, of("half-interval").get(at)?)));
            let offered = first(result, &format!("{flow}/offered")).unwrap_or(f64::INFINITY);
            cell(found, |(mean, half)| {
                format!("{} ± {:.2}: {:.2}", kpps(*mean), half / 1e3, mean / offered)
            })
        });
        table.row(std::iter::once(format!("{cap} %")).chain(text).chain(cells));
    }
    table.text()
}

fn model(result: &ResultFile) -> String {
    let at = |name: &str, at: usize| samples(result, name).get(at).copied().unwrap_or(f64::NAN);
    let by_offered = at("model", 1) * 1e3 / at("udp-100/offered", 0);
    let mut table = PageTable::new(1, ["", "text", "here"].map(str::to_owned));
    for (what, text, here) in [
        ("a", "0.0915", format!("{:.4}", at("model", 0))),
        ("b, kp/s a decade of cap", "63.0051", format!("{:.4}", at("model", 1))),
        ("b by what is offered", "0.630", format!("{by_offered:.3}")),
        ("operating point, kp/s", "78.14", format!("{:.2}", at("operating-point", 0))),
        ("operating point, log10 of the cap", "1.39", format!("{:.2}", at("operating-point", 1))),
        ("R², a step, on its own data", "0.9899", format!("{:.4}", at("own/r2", 0))),
        ("R², free run, on a run not seen", "–", format!("{:.4}", at("unseen/r2", 0))),
    ] {
        table.row([what.to_owned(), text.to_owned(), here]);
    }
    table.text()
}

fn by_set_point(sweep: &SetPointSweep, flow: FigureFlow, result: &ResultFile) -> String {
    let capacity = first(result, &format!("{}/capacity", flow.key())).unwrap_or(f64::NAN);
    let head = std::iter::once(format!("{}, {}", flow.name(), kpps(capacity)));
    let names = sweep.contenders.iter().map(|contender| contender.name());
    let mut table = PageTable::new(0, head.chain(names));
    let runs: Vec<_> =
        sweep.contenders.iter().map(|one| SweepResult::all(result, flow, *one, sweep)).collect();
    let points = runs.iter().map(Vec::len).max().unwrap_or(0);
    for at in 0..points {
        let Some(held) = runs.iter().find_map(|runs| runs.get(at)) else { continue };
        let set_point = format!("{} %, {}", held.percent, kpps(held.set_point));
        let cells = runs.iter().map(|runs| {
            cell(runs.get(at), |held| {
                let cells = sweep.shows.iter().map(|metric| measured(held, *metric));
                cells.collect::<Vec<String>>().join(" · ")
            })
        });
        table.row(std::iter::once(set_point).chain(cells));
    }
    let what: Vec<&str> = sweep.shows.iter().map(|metric| metric.words()).collect();
    table.explained(&format!("Each cell: {}.", what.join(" · ")))
}

/// Returns a metric as the table has it.
fn measured(held: &SweepResult<'_>, metric: Metric) -> String {
    cell(held.metric(metric), |value| match metric {
        Metric::Achieved | Metric::Disturbed => format!("{:.3}", value / held.set_point),
        Metric::Deviation => format!("{value:.4}"),
        Metric::RoundTrip => format!("{:.2} ms", value * 1e3),
        Metric::Lost => format!("{:.1} %", value * 100.0),
    })
}

fn by_router(shares: &SharedRouters, setting: &ShareSetting, result: &ResultFile) -> String {
    let table = |(configuration, _): &(&str, _)| {
        let head = [format!("{}, {configuration}", setting.key), "set-point".to_owned()];
        let means = HoldingMeans::ALL.map(|means| means.name().to_owned());
        let mut table = PageTable::new(1, head.into_iter().chain(means));
        for router in 1..=setting.loads.len() {
            let of = |means, what: &str| {
                let prefix = prefix(setting.key, configuration, means);
                interval(samples(result, &format!("{prefix}{what}/{router}")))
            };
            let wanted = of(HoldingMeans::Weir, "set-point").map_or(f64::NAN, |wanted| wanted.mean);
            let cells = HoldingMeans::ALL.map(|means| {
                let rate = cell(of(means, "rate"), |rate| {
                    format!("{}: {:.3}", kpps(rate.mean), rate.mean / wanted)
                });
                let time = of(means, "rtt").filter(|_| shares.probed);
                rate + &time.map_or(String::new(), |time| format!(", {:.2} ms", time.mean * 1e3))
            });
            table.row([format!("vr{router}"), kpps(wanted)].into_iter().chain(cells));
        }
        let cells = HoldingMeans::ALL.map(|means| {
            cell(together(result, setting, configuration, means), |all| {
                let half = all.half.map_or(String::new(), |half| format!(" ± {:.2}", half / 1e3));
                format!("{}{half}, min/max {:.3}", kpps(all.mean), all.balance)
            })
        });
        // A cell without a set-point is empty.
        table.row(["together".to_owned(), String::new()].into_iter().chain(cells));
        table.text() + "\n"
    };
    setting.configurations.iter().map(table).collect()
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

/// Table 1 of the text, in the order of its caps.
const TABLE_1_KPPS: [f64; 10] = [16.0, 32.0, 50.0, 65.0, 77.0, 85.0, 91.0, 94.0, 96.0, 98.0];

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
In Figures 5 to 14 packets stay in the kernel on the node's side, where the limit is a bucket of
1 ms (**Weir, bucket**) in place of the node's short queue, and does not meet the probe. The text's
flow of 100 kp/s nearly filled its router; here *the flow* is seven tenths of what the router
forwards of a flood, TCP through one router is half of what gets through where it is greedy, and
set-points are in percent of what the router forwards of the load with its largest cap. Samples are
a second, as there; of **Weir, cap alone** too, which decides ten times in each. Runs are 60 s in
place of 120 s, of which the first 10 s are not judged; 8 and 3 s with `--quick`. Where six or two
routers are held, the node holds them with samples of 100 ms, by Weir's controllers alone; so do
three nodes with a router each for Figure 20. Figures 1, 2 and 19 are drawings.

This page is generated: `weir-lab reproduce xtc all`, then `weir-lab reproduce xtc report`.
";
