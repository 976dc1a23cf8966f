// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that puts text, before and after side by side: from result files and scenarios alone,
//! so that each number is from a measurement.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use weir_experiment::prelude::*;
use weir_result::{Case, ResultFile, wrapped};

use super::figure;
use super::generated::{PageFiles, command_and_day, commit, heading, machine, no_results};
use super::interval::Interval;
use super::judge::{DefectFinding, NamedClaim, claims, finding, worst};
use super::runs::PanelRuns;
use super::scenario::{Defect, FigurePanel, FigureTenant, Scenario, VARIANTS, Variant};

/// A figure, its scenario, its result.
pub type MadeFigure = (&'static str, Scenario, ResultFile);

/// Writes the page and its pictures below `root`, the project's folder.
pub fn write(root: &Path, made: &[MadeFigure]) -> Result<PathBuf> {
    if made.is_empty() {
        return Err(no_results("a result; make one figure first"));
    }
    let files = PageFiles::make(root, "netback")?;
    for (name, scenario, result) in made {
        let picture =
            figure::draw(result, &scenario.clone().as_run(result), Variant::Before.name())?;
        files.save_picture(name, &picture)?;
    }
    files.save_page(&page(made))
}

/// Adds the findings about the text's defects to a result as notes.
pub fn note(trial: &mut Recording<'_>, scenario: &Scenario) {
    for line in findings(&trial.result, scenario) {
        trial.say(&line);
        trial.result.add_note(line);
    }
}

/// Returns the page.
pub fn page(made: &[MadeFigure]) -> String {
    let mut text = HEAD.to_owned();
    for (name, scenario, result) in made {
        text += &section(name, &scenario.clone().as_run(result), result);
    }
    text
}

fn section(name: &str, scenario: &Scenario, result: &ResultFile) -> String {
    let heading = heading(name).unwrap_or_else(|| format!("Beyond the text: {name}"));
    let title = &scenario.title;
    let mut text = format!(
        "\n## {heading}: {title}\n\n{}\n![{title}](../img/netback/{name}.svg)\n\n{}",
        wrapped(&scenario.text, "> ", "> "),
        table(scenario, result),
    );
    for line in findings(result, scenario) {
        text.push('\n');
        text += &wrapped(&line, "- ", "  ");
    }
    let origin = &result.origin();
    let seconds = scenario.duration.as_secs_f64();
    let made = format!(
        "{}: {} × {seconds} s each, {}, {}.",
        command_and_day(origin),
        scenario.repetitions,
        machine(origin),
        commit(origin),
    );
    text.push('\n');
    text += &wrapped(&made, "", "");
    text
}

/// Returns the throughput of each machine, and the worst case of each claim.
fn table(scenario: &Scenario, result: &ResultFile) -> String {
    let mut text = format!("| | {} |\n|---|", VARIANTS.map(Variant::name).join(" | "));
    text += &"---|".repeat(VARIANTS.len());
    text.push('\n');
    for panel in &scenario.panels {
        let runs = |variant| PanelRuns::new(scenario, panel, variant);
        let _ = writeln!(text, "| **{}** | | | |", panel.title);
        for (who, tenants) in groups(panel) {
            let cell = |variant| throughput(result, runs(variant), &tenants);
            let _ = writeln!(text, "| {who}, Mb/s | {} |", VARIANTS.map(cell).join(" | "));
        }
        let all = VARIANTS.map(|variant| claims(result, runs(variant)));
        for (word, label) in WORDS {
            if !all.iter().flatten().any(|named| named.word == word) {
                continue;
            }
            let cell = |claims: &Vec<NamedClaim>| judged(worst(result, claims, word).as_ref());
            let cells: Vec<String> = all.iter().map(cell).collect();
            let _ = writeln!(text, "| {label} | {} |", cells.join(" | "));
        }
    }
    text
}

/// Returns the machines that are shown together: each alone, or the first and the others.
fn groups(panel: &FigurePanel) -> Vec<(String, Vec<FigureTenant>)> {
    let tenants = panel.all();
    if tenants.len() <= ALONE_MAX {
        return tenants.into_iter().map(|tenant| (tenant.name.clone(), vec![tenant])).collect();
    }
    let others = format!("each of {} others, least to most", tenants.len() - 1);
    let (first, rest) = tenants.split_at(1);
    vec![(first[0].name.clone(), first.to_vec()), (others, rest.to_vec())]
}

fn throughput(result: &ResultFile, runs: PanelRuns<'_>, tenants: &[FigureTenant]) -> String {
    let seen: Vec<Interval> =
        tenants.iter().filter_map(|tenant| runs.overall(result, tenant)).collect();
    match seen.as_slice() {
        [] => "not run".to_owned(),
        [Interval { mean, half: None }] => format!("{:.2}", mean / 1e6),
        [Interval { mean, half: Some(half) }] => format!("{:.2} ± {:.2}", mean / 1e6, half / 1e6),
        several => {
            let means = several.iter().map(|interval| interval.mean);
            let (low, high) =
                means.fold((f64::INFINITY, 0.0_f64), |(l, h), mean| (l.min(mean), h.max(mean)));
            format!("{:.2} to {:.2}", low / 1e6, high / 1e6)
        }
    }
}

/// Returns a value, in bold if it breaks what Weir promises.
fn judged(case: Option<&Case>) -> String {
    let Some(case) = case else { return "–".to_owned() };
    let value = match case.unit() {
        "1" => format!("{:.4}", case.value()),
        unit => weir_result::quantity(case.value(), unit),
    };
    if case.holds() { value } else { format!("**{value}**") }
}

/// Returns a line for each defect of the text in each panel.
fn findings(result: &ResultFile, scenario: &Scenario) -> Vec<String> {
    let mut lines = Vec::new();
    for panel in &scenario.panels {
        for defect in scenario.defects.iter().filter(|defect| defect.concerns(panel)) {
            let (what, title) = (&defect.what, &panel.title);
            let found = finding(result, scenario, panel, defect);
            lines.push(format!("{title}: \"{what}\": {}", verdict(defect, found.as_ref())));
        }
    }
    lines
}

/// Returns the finding about a defect, in words.
fn verdict(defect: &Defect, found: Option<&DefectFinding>) -> String {
    let Some(found) = found else { return "not judged, the result does not tell".to_owned() };
    let (sign, bound) = match (defect.at_most, defect.at_least) {
        (Some(bound), _) => ("at most", bound),
        (None, bound) => ("at least", bound.unwrap_or(f64::INFINITY)),
    };
    let range = match found.range {
        Some((least, greatest)) => format!(", {least:.4} to {greatest:.4} over the repetitions"),
        None => String::new(),
    };
    let measured = format!("{:.4}{range} (the defect is {sign} {bound})", found.worst);
    if found.shown {
        return format!("reproduced before, {measured}");
    }
    let why = defect.otherwise.split_whitespace().collect::<Vec<_>>().join(" ");
    let instead = found.favoured.as_ref();
    let instead = instead.map_or_else(String::new, |who| format!(", and {who} got most instead"));
    format!("not reproduced on this kernel, {measured}{instead}: {why}")
}

/// The words of claims, and their names in the table.
const WORDS: [(&str, &str); 12] = [
    ("least", "least second by `rate`"),
    ("greatest", "greatest second by `rate`"),
    ("interval", "widest half 95 % interval by `rate`"),
    ("balance", "least by greatest machine, worst second"),
    ("shares", "least by greatest machine, whole run"),
    ("utilization", "link, worst second"),
    ("kept", "another machine beside disk work by before it, least second"),
    ("gained", "the same, greatest second"),
    ("own", "the disk's own machine, mean beside disk work by before it"),
    ("weight", "distance from the weights by what is allowed, worst second"),
    ("lost", "scheduled, not at the sink"),
    ("order", "out of order at the sink"),
];

/// The most machines that are shown each alone; more are shown as the first and the others.
const ALONE_MAX: usize = 4;

const HEAD: &str = "\
# Netback's experiments, made again

Text: B. Adamczyk, A. Chydzinski, *Performance Isolation Issues in Network Virtualization in Xen*,
International Journal on Advances in Networks and Services 5(1–2), 2012. Two paravirtualized guests
sent UDP datagrams of 1500 bytes over a link of 100 Mb/s; both ran on one processor, in Figure 8
each on its own.

Here the guests are network namespaces with as many sender threads as connections. **Before** is
what the text had: a bridge, the link's FIFO of 1000 packets, and where `rate` is set a token bucket
with the credit of Netback (50 ms) at the machine's interface. **Weir** is the same with Weir in
place of the bridge, with the text's own scheduler (WRR) and with its default (HFSC). A connection
at full speed offers what the link carries. A sample is a second, or 100 ms in runs shorter than
5 s; the first two of a machine (three of 100 ms) are not judged. An interval is one of 95 % over
repetitions, by Student's t. A value in **bold** is outside the bound that Weir is held to: each
second within 0.2 % of `rate` or a packet, half intervals as narrow or two packets; least by
greatest machine 0.99; link full to 98 %; other machines beside disk work within 2 %; shares within
2 % of their weights or two packets, 100 ms after a change.

On a machine of two processors, Weir's worker has the second and all senders share the first; the
bridge has both. What came before varies from run to run, so each line about a defect tells how far
the repetitions were from each other. A **control** is run before only: it takes one thing away and
shows whether that is why a defect is absent. What was made with `--quick` is shorter and less often
repeated than in the text; the last line of each section says how. Scenarios:
`lab/scenarios/netback/`; how to run them: [reproduce.md](../reproduce.md).

This page is generated: `weir-lab reproduce netback all`, then `weir-lab reproduce netback report`.
";
