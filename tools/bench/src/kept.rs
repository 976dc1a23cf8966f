// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runs that are kept: a line of JSON for each, in a file that is committed.
//!
//! A line must be worth keeping when it is written, and each time it is read. Its run is of a clean
//! tree and of a commit that HEAD descends from, it is no quick run, and it has at least five
//! samples of each figure.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::process::Command;

use serde::{Deserialize, Serialize};
use weir_result::{ATTEMPT, Case, MACHINE, Machine, ResultFile, Rule, RuleError, Series};

/// The last kept run of each bench, by the name of the bench.
pub(crate) type KeptLines = BTreeMap<String, KeptLine>;

/// One run of one bench.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptLine {
    pub(crate) bench: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) kernel: String,
    pub(crate) commit: String,
    pub(crate) start: String,
    /// The figures, by name.
    pub(crate) series: BTreeMap<String, Summary>,
    /// Settings of the run, and facts that it measured once, by name.
    pub(crate) settings: BTreeMap<String, KeptSetting>,
    pub(crate) cases: Vec<Case>,
    /// The ratio of first to second in each turn, for each case that claims a ratio of medians.
    pub(crate) pairs: BTreeMap<String, Summary>,
    pub(crate) notes: Vec<String>,
}

/// The summary of a series that a line keeps.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Summary {
    pub(crate) unit: String,
    pub(crate) samples: usize,
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) greatest: f64,
}

/// A setting, which does not change during a run.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeptSetting {
    pub(crate) unit: String,
    pub(crate) value: f64,
}

/// Appends the run of bench `name` in the result file `result` to the file `lines`.
///
/// # Errors
/// A file is missing, or the run is not worth keeping.
pub(crate) fn append(lines: &str, name: &str, result: &str) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(result).map_err(|error| format!("{result}: {error}"))?;
    let file = ResultFile::from_json(&text).map_err(|error| format!("{result}: {error}"))?;
    let line = KeptLine::of(name, &file).map_err(|error| format!("{result}: {error}"))?;
    if let Some(problem) = line.problem().or_else(|| ancestry_problem(&line.commit)) {
        return Err(format!("{result} is not kept: {problem}").into());
    }
    let mut out = fs::OpenOptions::new().create(true).append(true).open(lines)?;
    writeln!(out, "{}", serde_json::to_string(&line)?)?;
    Ok(())
}

/// Reads all lines, and keeps the last of each bench.
///
/// # Errors
/// The file is missing, or a line is malformed or not worth keeping; the error has its number.
pub(crate) fn read(path: &str) -> Result<KeptLines, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let lines = parse(&text).map_err(|error| format!("{path}:{error}"))?;
    if is_shallow() {
        eprintln!("SKIPPED commits of {path}: the repository has no history");
        return Ok(lines);
    }
    for line in lines.values() {
        if let Some(problem) = ancestry_problem(&line.commit) {
            return Err(format!("{path}: {}: {problem}", line.bench).into());
        }
    }
    Ok(lines)
}

/// Reads lines of JSON. An error begins with the number of its line.
pub(crate) fn parse(text: &str) -> Result<KeptLines, String> {
    let mut last = KeptLines::new();
    for (number, text) in (1..).zip(text.lines()) {
        let line: KeptLine =
            serde_json::from_str(text).map_err(|error| format!("{number}: {error}"))?;
        if let Some(problem) = line.problem() {
            return Err(format!("{number}: {}: {problem}", line.bench));
        }
        last.insert(line.bench.clone(), line);
    }
    Ok(last)
}

impl KeptLine {
    fn of(bench: &str, file: &ResultFile) -> Result<Self, RuleError> {
        let (mut series, mut settings) = (BTreeMap::new(), BTreeMap::new());
        for (name, raw) in file.series() {
            if !is_figure(name) {
                continue;
            }
            let unit = raw.unit.clone();
            let summary = Summary::of(&unit, &raw.samples)?;
            if let Some(value) = summary.constant().filter(|_| is_setting(name)) {
                settings.insert(name.clone(), KeptSetting { unit, value });
            } else {
                series.insert(name.clone(), summary);
            }
        }
        let origin = file.origin();
        Ok(Self {
            bench: bench.to_owned(),
            command: origin.command,
            machine: origin.machine,
            kernel: origin.kernel,
            commit: origin.commit,
            start: origin.start,
            series,
            settings,
            cases: file.cases().to_vec(),
            pairs: pairs(file)?,
            notes: file.notes().to_vec(),
        })
    }

    /// Returns the reason why the line is not worth keeping; `None` if it is worth it.
    fn problem(&self) -> Option<String> {
        let commit = &self.commit;
        if commit.len() != 40 || !commit.chars().all(|c| c.is_ascii_hexdigit()) {
            return Some(format!("commit '{commit}' is no commit of a clean tree"));
        }
        if self.command.split_whitespace().any(|word| word == "--quick") {
            return Some(format!("'{}' is a quick run", self.command));
        }
        let short = self.series.iter().find(|(_, summary)| summary.samples < SAMPLES_MIN);
        short.map(|(name, summary)| {
            format!("series {name} has {} samples; at least {SAMPLES_MIN}", summary.samples)
        })
    }
}

impl Summary {
    fn of(unit: &str, samples: &[f64]) -> Result<Self, RuleError> {
        let of = |rule: Rule| rule.apply(&[samples]);
        let (least, median, greatest) = (of(Rule::Min)?, of(Rule::Median)?, of(Rule::Max)?);
        Ok(Self { unit: unit.to_owned(), samples: samples.len(), least, median, greatest })
    }

    /// Returns the value of a series whose samples are all the same.
    fn constant(&self) -> Option<f64> {
        (self.least.to_bits() == self.greatest.to_bits()).then_some(self.median)
    }
}

/// Computes the ratio in each turn, for each claim on a ratio of medians. The series
/// `setting/turns` says how many turns there were; files without it have no ratios. A turn's
/// samples follow each other, and their median is the turn's value.
fn pairs(file: &ResultFile) -> Result<BTreeMap<String, Summary>, RuleError> {
    let mut pairs = BTreeMap::new();
    let turns = file.series().iter().find(|(name, _)| without_row(name) == TURNS);
    let Some(turns) = turns.and_then(|(_, series)| count(*series.samples.first()?)) else {
        return Ok(pairs);
    };
    for case in file.cases().iter().filter(|case| case.rule() == Rule::RatioOfMedians) {
        let both: Vec<&Series> =
            case.series().iter().filter_map(|name| file.series().get(name)).collect();
        let whole = case.claim().skip == 0 && case.claim().take.is_none();
        let ([first, second], true) = (&both[..], whole) else { continue };
        let (first, second) = (by_turn(first, turns)?, by_turn(second, turns)?);
        let each = first.iter().zip(&second);
        let ratios: Vec<f64> = each.map(|(first, second)| first / second).collect();
        if !ratios.is_empty() && ratios.iter().all(|ratio| ratio.is_finite()) {
            pairs.insert(case.id().to_owned(), Summary::of("1", &ratios)?);
        }
    }
    Ok(pairs)
}

/// Returns the median of each turn; empty if turns have different numbers of samples.
fn by_turn(series: &Series, turns: usize) -> Result<Vec<f64>, RuleError> {
    let samples = &series.samples;
    if samples.is_empty() || !samples.len().is_multiple_of(turns) {
        return Ok(Vec::new());
    }
    samples.chunks(samples.len() / turns).map(|turn| Rule::Median.apply(&[turn])).collect()
}

/// Converts a sample to a count, rounded up, of at most [`TURNS_MAX`].
fn count(value: f64) -> Option<usize> {
    (1..=TURNS_MAX).find(|count| f64::from(*count) >= value).map(|count| count as usize)
}

/// Returns a name without its prefix, the row of a table of requirements.
pub(crate) fn without_row(name: &str) -> &str {
    match name.split_once('/') {
        Some((table, rest)) if table.contains('.') => rest,
        _ => name,
    }
}

/// Returns true if a series is a figure of the run. Verdicts on parts, stolen time of the host, and
/// samples of an attempt that does not count are no figures.
fn is_figure(name: &str) -> bool {
    !name.ends_with("/parts")
        && !without_row(name).starts_with(MACHINE)
        && !name.starts_with(ATTEMPT)
}

/// Returns true if a series is a setting of the run (`setting/NAME`).
fn is_setting(name: &str) -> bool {
    without_row(name).starts_with(SETTING)
}

/// Returns the problem with a commit that HEAD does not descend from; `None` if it does.
fn ancestry_problem(commit: &str) -> Option<String> {
    let mut git = Command::new("git");
    let found = git.args(["merge-base", "--is-ancestor", commit, "HEAD"]).output();
    match found {
        Err(error) => Some(format!("git: {error}")),
        Ok(said) if said.status.success() => None,
        Ok(said) => {
            let why = String::from_utf8_lossy(&said.stderr);
            let text = format!("commit {commit} is no ancestor of HEAD {}", why.trim());
            Some(text.trim_end().to_owned())
        }
    }
}

/// Returns true if the repository is a shallow clone, as on many build machines.
fn is_shallow() -> bool {
    let said = Command::new("git").args(["rev-parse", "--is-shallow-repository"]).output();
    said.is_ok_and(|said| said.stdout.starts_with(b"true"))
}

/// The fewest samples whose median is kept.
const SAMPLES_MIN: usize = 5;

/// The series that counts how often everything was measured in turn.
const TURNS: &str = "setting/turns";
const TURNS_MAX: u32 = 10_000;

/// The first part of the name of a setting.
pub(crate) const SETTING: &str = "setting/";

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;
    use weir_result::{Bound, Claim, Origin};

    const COMMIT: &str = "0123456789012345678901234567890123456789";

    /// Two series with these samples, and a claim on their ratio.
    fn file(commit: &str, command: &str, ours: &[f64], theirs: &[f64]) -> ResultFile {
        let (command, commit) = (command.to_owned(), commit.to_owned());
        let mut file = ResultFile::new(Origin { command, commit, ..Origin::default() });
        for (name, samples) in [("t.7/ours/rate", ours), ("t.7/theirs/rate", theirs)] {
            file.add_series(name, Series::unordered("packet/s", samples.to_vec())).unwrap();
        }
        file.add_series("t.7/setting/turns", Series::unordered("1", vec![5.0])).unwrap();
        let claim = Claim::new("t.7/ratio", "ratio", Rule::RatioOfMedians, Bound::at_least(1.5));
        file.judge(claim.of(&["t.7/ours/rate", "t.7/theirs/rate"])).unwrap();
        file
    }

    const FIVE: &[f64] = &[3.0, 3.0, 3.0, 3.0, 2.0];
    const ONES: &[f64] = &[1.0, 1.0, 1.0, 2.0, 2.0];

    #[test]
    fn what_is_worth_keeping_is_read_again_with_its_pairs() {
        let line = KeptLine::of("b", &file(COMMIT, "./x bench b", FIVE, ONES)).unwrap();
        let mut all = parse(&serde_json::to_string(&line).unwrap()).unwrap();
        let line = all.remove("b").unwrap();
        let ratio = &line.pairs["t.7/ratio"];
        assert_eq!((ratio.samples, ratio.least, ratio.greatest), (5, 1.0, 3.0));
        assert_eq!(line.cases[0].value(), 3.0);
    }

    #[test]
    fn what_is_not_worth_keeping_is_refused_by_name() {
        let dirty = format!("{COMMIT}-dirty");
        for (commit, command, samples, why) in [
            (&*dirty, "./x bench b", FIVE, "no commit of a clean tree"),
            ("unknown", "./x bench b", FIVE, "'unknown' is no commit"),
            (COMMIT, "./x bench b -- --quick", FIVE, "is a quick run"),
            (COMMIT, "./x bench b", &FIVE[..4], "series t.7/ours/rate has 4 samples; at least 5"),
        ] {
            let line = KeptLine::of("b", &file(commit, command, samples, ONES)).unwrap();
            assert!(line.problem().unwrap().contains(why), "{:?}", line.problem());
            let refused = parse(&serde_json::to_string(&line).unwrap()).err().unwrap();
            assert!(refused.starts_with("1: b: ") && refused.contains(why), "{refused}");
        }
    }

    /// Two samples a turn on one side: 4 ÷ 2 in the first turn, 9 ÷ 3 in the second and so on.
    #[test]
    fn a_turn_is_judged_by_its_median() {
        let ours = [3.0, 5.0, 9.0, 9.0, 2.0, 2.0, 2.0, 2.0, 1.0, 3.0];
        let line =
            KeptLine::of("b", &file(COMMIT, "b", &ours, &[2.0, 3.0, 1.0, 1.0, 1.0])).unwrap();
        let Summary { samples, least, median, greatest, .. } = line.pairs["t.7/ratio"];
        assert_eq!((samples, least, median, greatest), (5, 2.0, 2.0, 3.0));
    }

    #[test]
    fn turns_of_unequal_length_are_no_pairs() {
        let line = KeptLine::of("b", &file(COMMIT, "b", FIVE, &ONES[..4])).unwrap();
        assert!(line.pairs.is_empty());
    }

    /// A single sample of a setting is enough. A setting that changes during a run is a figure.
    #[test]
    fn a_setting_is_no_figure() {
        let mut file = file(COMMIT, "b", FIVE, ONES);
        file.add_series("t.7/setting/batch", Series::unordered("frame", vec![64.0])).unwrap();
        let moved = Series::unordered("1", vec![0.0, 1.0]);
        file.add_series("t.7/setting/moved", moved).unwrap();
        let line = KeptLine::of("b", &file).unwrap();
        assert_eq!(line.settings["t.7/setting/batch"].value, 64.0);
        assert!(line.problem().unwrap().contains("t.7/setting/moved has 2 samples"));
    }

    /// The file has a sample for each window with stolen time, and all series of an attempt that
    /// was repeated for it.
    #[test]
    fn what_the_host_took_and_what_does_not_count_are_no_figures() {
        let mut file = file(COMMIT, "b", FIVE, ONES);
        for name in [
            format!("t.7/{MACHINE}stolen"),
            format!("{ATTEMPT}1/t.7/ours/rate"),
            format!("{ATTEMPT}1/t.7/setting/x"),
        ] {
            file.add_series(&name, Series::unordered("ms", vec![10.0])).unwrap();
        }
        let line = KeptLine::of("b", &file).unwrap();
        assert_eq!((line.problem(), line.series.len()), (None, 2));
    }

    /// Goal: a run of a commit that is no ancestor of HEAD is refused. HEAD itself is not foreign.
    #[test]
    fn a_commit_of_another_history_is_refused() {
        if is_shallow() || ancestry_problem("HEAD").is_some() {
            println!("SKIPPED a_commit_of_another_history_is_refused: no repository");
            return;
        }
        assert!(ancestry_problem(COMMIT).unwrap().contains("is no ancestor of HEAD"));
    }
}
