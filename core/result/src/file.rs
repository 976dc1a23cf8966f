// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file itself: the place of the measurement, the raw samples, and the verdicts on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Case, Claim, ResultError, Series};

/// One run of a measuring command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultFile {
    /// The version of this format.
    format: Format,
    /// The command line, as a person would type it.
    command: String,
    /// The machine.
    machine: Machine,
    /// Kernel name and release, for example `Linux 6.18.5`.
    kernel: String,
    /// The commit that the program was built from, followed by `-dirty` if the tree differed;
    /// `unknown` outside a repository.
    commit: String,
    /// When it began: UTC in the form of RFC 3339, for example `2026-11-21T10:55:14Z`.
    start: String,
    /// Its duration in seconds, set-up included.
    duration_s: f64,
    /// The raw samples by name.
    series: BTreeMap<String, Series>,
    /// The verdicts, in the order in which they were made.
    cases: Vec<Case>,
    /// Notes for the reader: measurements that are missing, and why.
    #[serde(default)]
    notes: Vec<String>,
}

/// The version of the format. A new field that old readers may not ignore is a new version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Format {
    /// Version 1.
    #[default]
    #[serde(rename = "weir-result/1")]
    V1,
}

/// The place and time of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The command line, as a person would type it.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// Kernel name and release, for example `Linux 6.18.5`.
    pub kernel: String,
    /// The commit that the program was built from, followed by `-dirty` if the tree differed;
    /// `unknown` outside a repository.
    pub commit: String,
    /// When it began: UTC in the form of RFC 3339, for example `2026-11-21T10:55:14Z`.
    pub start: String,
}

/// The properties of a machine that bound its speed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Logical processors that the process could use.
    pub cores: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl ResultFile {
    /// Makes a file without samples and verdicts.
    pub fn new(origin: Origin) -> Self {
        let Origin { command, machine, kernel, commit, start } = origin;
        Self {
            format: Format::V1,
            command,
            machine,
            kernel,
            commit,
            start,
            duration_s: 0.0,
            series: BTreeMap::new(),
            cases: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads a file and recomputes each of its cases.
    ///
    /// # Errors
    /// The text is no result file, or the value, unit or verdict of a case does not follow from its
    /// series.
    pub fn from_json(text: &str) -> Result<Self, ResultError> {
        let file: Self =
            serde_json::from_str(text).map_err(|error| ResultError::Json(error.to_string()))?;
        file.check()?;
        Ok(file)
    }

    /// Adds the samples of one quantity.
    ///
    /// # Errors
    /// The name is empty or taken, a sample is not finite, or the unit is empty.
    pub fn add_series(&mut self, name: &str, series: Series) -> Result<(), ResultError> {
        check_series(name, &series)?;
        if self.series.contains_key(name) {
            return Err(ResultError::Duplicate { what: "series", name: name.to_string() });
        }
        self.series.insert(name.to_string(), series);
        Ok(())
    }

    /// Judges a claim by the series it names, and keeps the verdict.
    ///
    /// # Errors
    /// The id is taken, a series does not exist, or the rule has no value for the series.
    pub fn judge(&mut self, claim: Claim) -> Result<&Case, ResultError> {
        if self.cases.iter().any(|case| case.id == claim.id) {
            return Err(ResultError::Duplicate { what: "case", name: claim.id });
        }
        let case = self.verdict(claim)?;
        self.cases.push(case);
        let last = self.cases.len() - 1;
        Ok(&self.cases[last])
    }

    /// Adds a note for the reader.
    pub fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Sets the duration of the whole run in seconds.
    pub const fn set_duration_s(&mut self, seconds: f64) {
        self.duration_s = seconds;
    }

    /// Adds everything that `other` holds: its series as `PREFIX/NAME`, its cases on the renamed
    /// series, and its notes.
    ///
    /// # Errors
    /// A name of a series or an id of a case is taken; then nothing is added.
    pub fn absorb(&mut self, prefix: &str, other: &Self) -> Result<(), ResultError> {
        let renamed = |name: &str| format!("{prefix}/{name}");
        let mut whole = self.clone();
        for (name, series) in &other.series {
            whole.add_series(&renamed(name), series.clone())?;
        }
        for case in &other.cases {
            let mut claim = case.claim();
            claim.series = claim.series.iter().map(|name| renamed(name)).collect();
            whole.judge(claim)?;
        }
        whole.notes.extend(other.notes.iter().cloned());
        *self = whole;
        Ok(())
    }

    /// Recomputes every case from its series.
    ///
    /// # Errors
    /// A series is malformed, or a case does not follow from its series; the first one found.
    pub fn check(&self) -> Result<(), ResultError> {
        for (name, series) in &self.series {
            check_series(name, series)?;
        }
        if !self.duration_s.is_finite() {
            return Err(ResultError::Json("duration_s is no finite number".to_string()));
        }
        for (index, case) in self.cases.iter().enumerate() {
            if self.cases[..index].iter().any(|earlier| earlier.id == case.id) {
                return Err(ResultError::Duplicate { what: "case", name: case.id.clone() });
            }
            let again = self.verdict(case.claim())?;
            if again != *case {
                let text = |case: &Case| format!("{} {} {}", case.value, case.unit, case.holds);
                let (says, follows) = (text(case), text(&again));
                let case = case.id.clone();
                return Err(ResultError::NotReproduced { case, says, follows });
            }
        }
        Ok(())
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        // Never fails: keys are strings, and numbers were checked to be finite.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// 0 if every case holds, 3 if one does not. A file without a case holds nothing: 3.
    pub fn exit_status(&self) -> u8 {
        if self.holds() { 0 } else { 3 }
    }

    /// Says whether every case holds, and there is at least one.
    pub fn holds(&self) -> bool {
        !self.cases.is_empty() && self.cases.iter().all(Case::holds)
    }

    /// Returns the place and time of the measurement.
    pub fn origin(&self) -> Origin {
        Origin {
            command: self.command.clone(),
            machine: self.machine.clone(),
            kernel: self.kernel.clone(),
            commit: self.commit.clone(),
            start: self.start.clone(),
        }
    }

    /// Its duration in seconds, set-up included.
    pub const fn duration_s(&self) -> f64 {
        self.duration_s
    }

    /// The raw samples by name.
    pub const fn series(&self) -> &BTreeMap<String, Series> {
        &self.series
    }

    /// The verdicts, in the order in which they were made.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The case with this id.
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// Returns the notes for the reader.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn verdict(&self, claim: Claim) -> Result<Case, ResultError> {
        let id = claim.id.clone();
        let find = |name: &String| {
            let missing = || ResultError::NoSeries { case: id.clone(), series: name.clone() };
            self.series.get(name).ok_or_else(missing)
        };
        let series = claim.series.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        claim.judge(&series).map_err(|error| ResultError::Rule { case: id.clone(), error })
    }
}

fn check_series(name: &str, series: &Series) -> Result<(), ResultError> {
    let problem = if name.trim().is_empty() {
        Some("its name is empty".to_string())
    } else {
        series.problem()
    };
    problem.map_or(Ok(()), |problem| Err(ResultError::Series { name: name.to_string(), problem }))
}
