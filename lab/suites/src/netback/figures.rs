// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text's figures: each by its one command, and Weir's results against bounds.

use std::path::Path;
use std::process::{Command, Stdio};

use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_result::ResultFile;

use crate::reproduce::scenario::{Scenario, WeirScheduler};
use crate::reproduce::{self, RunPlace, Variant, judge, report, runner};

/// Runs all eight figures by the command that a reader would type, and makes the page of them.
pub(super) fn commands(rec: &mut Recording<'_>) -> Result {
    let place = RunFolder::take("netback-page", &StateDir::from_env())?;
    let (mut made, mut silent) = (Vec::new(), 0);
    for figure in FIGURES {
        rec.say(&format!("weir-lab reproduce netback {figure} --quick"));
        let result = command(figure, &place.folder().join(figure))?;
        let scenario = reproduce::netback(figure)?.as_run(&result);
        for panel in &scenario.panels {
            let found = |defect| judge::finding(&result, &scenario, panel, defect);
            silent += scenario.defects.iter().filter(|defect| found(defect).is_none()).count();
        }
        made.push((figure, scenario, result));
    }
    report::write(place.folder(), &made)?;
    let page = place.folder().join("docs/reproduced/netback.md");
    let page = std::fs::read_to_string(&page).map_err(|error| ExperimentError::io(&page, error))?;
    let shown = |figure: &&&str| page.contains(&format!("](../img/netback/{figure}.svg)"));
    let counts = [
        ("made", "figures made by one command each", made.len(), FIGURES.len()),
        ("silent", "defects of the text about which a result says nothing", silent, 0),
        ("page", "figures on the page", FIGURES.iter().filter(shown).count(), FIGURES.len()),
    ];
    for (what, text, count, expected) in counts {
        let id = what;
        let bound = Bound::equal(float(expected as u64));
        rec.count(id, text, count as u64, bound)?;
    }
    Ok(())
}

/// Shows a row by its figures, on the wire.
pub(super) fn on_the_wire(rec: &mut Recording<'_>, row: usize) -> Result {
    parts_of(row, rec.quick).iter().try_for_each(|one| part(rec, one, runner::run))
}

/// Shows a row by its figures, in virtual time.
pub(super) fn in_virtual_time(rec: &mut Recording<'_>, row: usize) -> Result {
    parts_of(row, rec.quick).iter().try_for_each(|one| part(rec, one, runner::run_in_virtual_time))
}

/// Row 2: a more active machine gets no more, for as long as the text watched two machines that are
/// free to send, and for as many machines.
pub(super) const EQUAL: usize = 2;
/// Row 3: priorities that change each second.
pub(super) const SWEEP: usize = 3;
/// Row 4: four rates, one machine alone, then both: as often as in the text, as long as it takes to
/// judge two seconds of each.
pub(super) const RATES: usize = 4;
/// Row 5: disk work on a sender's machine.
pub(super) const DISK: usize = 5;

/// Returns the figures of a row.
fn parts_of(row: usize, quick: bool) -> Vec<FigurePart> {
    match row {
        EQUAL => vec![
            FigurePart { length: Some(ACTIVE_LENGTH), ..FigurePart::of("fig8") },
            FigurePart { panels: &["free"], ..FigurePart::of("fig12") },
            FigurePart { panels: &["64"], repetitions: 3, ..FigurePart::of("gigabit") },
        ],
        SWEEP => vec![FigurePart::of("fig10")],
        RATES => {
            let half = if quick { QUICK } else { RATES_LENGTH } / 2;
            let (length, second) = (Some(RATES_LENGTH), Some(half));
            vec![FigurePart { repetitions: 10, length, second, ..FigurePart::of("fig11") }]
        }
        _ => {
            let length = Some(DISK_LENGTH);
            vec![FigurePart { repetitions: 3, length, ..FigurePart::of("fig9") }]
        }
    }
}

/// A part of a figure that is run through Weir.
struct FigurePart {
    figure: &'static str,
    /// The panels that are run; all if empty.
    panels: &'static [&'static str],
    repetitions: u32,
    /// The length, if it differs from the scenario's.
    length: Option<Duration>,
    /// The start of the later senders, if it does not scale with the length.
    second: Option<Duration>,
}

impl FigurePart {
    const fn of(figure: &'static str) -> Self {
        Self { figure, panels: &[], repetitions: 1, length: None, second: None }
    }
}

/// Runs a part of a figure through Weir alone, and judges it.
fn part(
    rec: &mut Recording<'_>,
    part: &FigurePart,
    run: impl FnOnce(&mut Recording<'_>, &Scenario, RunPlace<'_>) -> Result,
) -> Result {
    let FigurePart { figure, panels, .. } = *part;
    let mut scenario = reproduce::netback(figure)?;
    scenario.repetitions = part.repetitions;
    if let Some(length) = part.length {
        scenario = scenario.lasting(length);
    }
    if rec.quick {
        // A quick run has a few seconds of each, but all that the row is about.
        scenario.repetitions = part.repetitions.min(QUICK_REPETITIONS);
        // Before, during and after disk work.
        let phases = if scenario.disk.is_some() { 2 } else { 1 };
        scenario = scenario.lasting(QUICK * phases);
    }
    if let Some(second) = part.second {
        scenario = scenario.starting(second);
    }
    scenario.panels.retain(|panel| panels.is_empty() || panels.contains(&panel.name.as_str()));
    let (lab, prefix) = (format!("verify-{figure}"), rec.name(&format!("{figure}/")));
    let variants = [WeirScheduler::Wrr, WeirScheduler::Hfsc].map(Variant::After);
    let at = RunPlace { lab: &lab, prefix: &prefix, variants: &variants };
    rec.with_full_names(|rec| {
        run(rec, &scenario, at)?;
        judge::judge(rec, &scenario, at)
    })
}

/// Runs a figure as a process of its own. A bound that so short a run breaks does not matter here.
fn command(figure: &str, folder: &Path) -> Result<ResultFile> {
    let mut command = Command::new(product::own_path()?);
    command.args(["reproduce", "netback", figure, "--quick", "--out"]).arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let ended = command.output().map_err(|error| ExperimentError::io("weir", error))?;
    if !matches!(ended.status.code(), Some(0 | 3)) {
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().last().unwrap_or_default();
        return Err(ExperimentError::Node(format!("weir-lab reproduce netback {figure}: {last}")));
    }
    let path = folder.join("result.json");
    let text = std::fs::read_to_string(&path).map_err(|error| ExperimentError::io(&path, error))?;
    Ok(ResultFile::from_json(&text)?)
}

/// The length of a quick run: from here on samples are of a second.
const QUICK: Duration = Duration::from_secs(6);

const QUICK_REPETITIONS: u32 = 3;

/// Length of the runs with a more active machine. Each second shows whether it gets more.
const ACTIVE_LENGTH: Duration = Duration::from_secs(40);

/// Length of the runs with disk work: eight seconds before it, beside it and after it.
const DISK_LENGTH: Duration = Duration::from_secs(24);

/// Length of the runs with a rate: four seconds alone and four together, of which the first two are
/// not judged.
const RATES_LENGTH: Duration = Duration::from_secs(8);

/// Figures of the text.
const FIGURES: [&str; 8] = ["fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12"];
