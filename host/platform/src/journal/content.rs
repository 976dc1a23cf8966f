// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines of a journal, and the changes that are left when all of them are read.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::HostError;
use crate::merge::merge;
use crate::process::Identity;
use crate::purpose::ChangePurpose;
use crate::run::Command;
use crate::undo::Undo;

/// One line of a journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalLine {
    /// The process that makes the changes that follow.
    Owner { owner: Identity, boot: String, command: String },
    /// A change that is about to be made.
    Change(JournaledChange),
    /// The change of this number is undone.
    Undone { sequence: u64 },
    /// The changes so far outlive their owner.
    Keep,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JournaledChange {
    pub(super) sequence: u64,
    /// `None` only while a line of an old journal is read.
    #[serde(default)]
    pub(super) purpose: Option<ChangePurpose>,
    pub(super) what: String,
    pub(super) undo: Undo,
    /// It was made before the last boot: what it changed in the kernel is gone.
    #[serde(skip)]
    pub(super) boot_ended: bool,
}

impl JournaledChange {
    pub(super) fn purpose(&self) -> &ChangePurpose {
        self.purpose.as_ref().unwrap_or(&ChangePurpose::Other)
    }
}

/// Consecutive changes, and one command that undoes all of them, if there is one.
pub(super) struct UndoBatch<'a> {
    pub(super) changes: &'a [JournaledChange],
    pub(super) batch: Option<Command>,
}

/// Divides the changes into batches, in the same order; each change is in exactly one.
pub(super) fn batches(changes: &[JournaledChange]) -> Vec<UndoBatch<'_>> {
    let mut batches = Vec::new();
    let has_command =
        |change: &JournaledChange| !change.boot_ended && change.undo.command().is_some();
    for part in changes.chunk_by(|a, b| has_command(a) && has_command(b)) {
        let mut rest = part;
        let commands = part.iter().filter(|change| has_command(change));
        for (command, count) in merge(commands.filter_map(|change| change.undo.command())) {
            let (changes, others) = rest.split_at(count.min(rest.len()));
            batches.push(UndoBatch { changes, batch: Some(command) });
            rest = others;
        }
        if !rest.is_empty() {
            batches.push(UndoBatch { changes: rest, batch: None });
        }
    }
    batches
}

/// The state that the lines of a journal add up to.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) owner: Option<Identity>,
    /// True while the lines being read were written before the last boot.
    boot_ended: bool,
    pub(super) kept: bool,
    pub(super) changes: Vec<JournaledChange>,
    /// The file ends inside a line: its writer died, or could not write all of it, and the change
    /// that it was to describe was not made.
    pub(super) torn: bool,
}

impl Content {
    /// Returns how long to wait for the lock of a journal that should be stale. After its owner
    /// died, the owner's last command still holds the lock until its change is made. While the
    /// owner lives, only a process that it has just started may hold it for a moment.
    pub(super) fn patience(&self) -> Duration {
        match self.owner {
            Some(owner) if owner.is_alive() => PATIENCE_LIVING,
            _ => PATIENCE_DEAD,
        }
    }

    pub(super) fn read(path: &Path) -> Result<Self, HostError> {
        let mut content = Self::default();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(content),
            Err(error) => return Err(HostError::io("read the journal", path, error)),
        };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line);
            if read.map_err(|error| HostError::io("read the journal", path, error))? == 0 {
                return Ok(content);
            }
            content.torn = line.last() != Some(&b'\n');
            // A line that does not parse was torn by a crash before its change was made, since a
            // change waits for the sync of its line.
            if let Ok(line) = serde_json::from_slice(&line) {
                content.add(line);
            }
        }
    }

    fn add(&mut self, line: JournalLine) {
        match line {
            JournalLine::Owner { owner, boot, .. } => {
                self.owner = Some(owner);
                self.boot_ended = boot != boot_id();
                self.kept = false;
            }
            JournalLine::Change(change) => {
                let old = || ChangePurpose::from_old_description(&change.what);
                let purpose = Some(change.purpose.clone().unwrap_or_else(old));
                self.changes.push(JournaledChange {
                    purpose,
                    boot_ended: self.boot_ended,
                    ..change
                });
            }
            JournalLine::Undone { sequence } => self.changes.retain(|c| c.sequence != sequence),
            JournalLine::Keep => self.kept = true,
        }
    }
}

pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The wait while the owner lives: a process that it has just started holds its lock until it runs
/// its own program.
const PATIENCE_LIVING: Duration = Duration::from_millis(200);

/// The wait after the owner's death: the longest command of a lab may take as long.
const PATIENCE_DEAD: Duration = Duration::from_secs(10);
