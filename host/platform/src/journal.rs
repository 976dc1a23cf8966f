// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The undo journal: the undo of every change of the host is on disk before the change is made, so
//! that every change can be undone even after a `kill -9` at any moment.
//!
//! **File.** A journal is a file of JSON lines in the state folder; lines are only appended. A
//! change has a line with its undo, and a second line once it is undone. The process that changes
//! the host holds a lock on the file, which the kernel releases when the process dies. A journal
//! whose lock is free and which was not *kept* ([`Journal::keep`]) is stale: [`clean`] undoes its
//! changes, and so does the next start.
//!
//! **Order: [`Journal::record`], then the change.** The journal is a write-ahead log of undos. A
//! crash between the two steps leaves the undo of a change that never happened; every [`Undo`]
//! tolerates that.

mod content;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use content::{Content, JournalLine, JournaledChange, batches, boot_id};
use serde::Serialize;

use crate::error::HostError;
use crate::output;
use crate::process::Identity;
use crate::purpose::ChangePurpose;
use crate::run::{Host, Platform};
use crate::state::StateDir;
use crate::undo::Undo;

/// An open journal: this process holds its lock.
#[derive(Debug)]
pub struct Journal {
    state: StateDir,
    path: PathBuf,
    file: File,
    content: Content,
    next_sequence: u64,
}

/// A change to be recorded in a journal.
#[derive(Clone, Debug)]
pub struct JournalEntry<'a> {
    /// Its purpose, by which it can be selected later.
    pub purpose: ChangePurpose,
    /// Its description for people.
    pub what: &'a str,
    /// Its undo.
    pub undo: &'a Undo,
}

/// The result of undoing journals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UndoReport {
    /// Names of the journals that were processed.
    pub journals: Vec<String>,
    /// The changes that were undone, in that order.
    pub undone: Vec<String>,
    /// The changes that could not be undone, with the reason; they stay in their journal.
    pub failed: Vec<String>,
    /// Journals that were left alone, with the reason.
    pub left: Vec<String>,
}

impl UndoReport {
    /// Prints the report for a person, or as JSON. For a person, changes that could not be undone
    /// go to standard error.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print(&self, as_json: bool) -> io::Result<()> {
        if as_json {
            return output::print_own(self);
        }
        let lines = |what: &str, list: &[String]| -> String {
            list.iter().map(|line| format!("{what}: {line}\n")).collect()
        };
        output::print(&(lines("undone", &self.undone) + &lines("left", &self.left)))?;
        eprint!("{}", lines("not undone", &self.failed));
        Ok(())
    }
}

/// The journals that [`clean`] undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Journals whose owner died.
    Stale,
    /// Also those that were kept when their owner ended: nodes that left, labs that are up.
    All,
}

impl Journal {
    /// Opens or creates the journal `name` and takes its lock. Waits at most `patience` for another
    /// holder.
    ///
    /// # Errors
    /// Another process holds the lock; the file cannot be made, read or written.
    pub fn open(state: &StateDir, name: &str, patience: Duration) -> Result<Self, HostError> {
        check_name(name)?;
        let folder = state.journals();
        let path = folder.join(format!("{name}.{EXTENSION}"));
        let until = Instant::now() + patience;
        loop {
            let made = fs::create_dir_all(&folder);
            made.map_err(|error| HostError::io("make the folder", &folder, error))?;
            let options = OpenOptions::new().read(true).append(true).create(true).open(&path);
            let file = match options {
                // Another process has just removed the empty folder: create it again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|error| HostError::io("open the journal", &path, error))?,
            };
            if lock(&file).map_err(|error| HostError::io("lock the journal", &path, error))? {
                if !is_still(&file, &path) {
                    continue;
                }
                return Self::take_over(state.clone(), path, file);
            }
            if Instant::now() >= until {
                return Err(HostError::Refused(format!(
                    "{name} is locked by {} ({})",
                    holder(&path),
                    path.display()
                )));
            }
            thread::sleep(POLL);
        }
    }

    /// Reads the lines of earlier owners and appends the new owner's.
    fn take_over(state: StateDir, path: PathBuf, file: File) -> Result<Self, HostError> {
        let content = Content::read(&path)?;
        let next_sequence =
            content.changes.last().map_or(1, |change| change.sequence.saturating_add(1));
        let mut journal = Self { state, path, file, content, next_sequence };
        let owner = Identity::own()?;
        journal.append(&JournalLine::Owner { owner, boot: boot_id(), command: command_line() })?;
        journal.content.kept = false;
        sync_folder(&journal.state.journals());
        Ok(journal)
    }

    /// Writes the undo of the change that `what` describes to disk. The caller makes the change
    /// next.
    ///
    /// # Errors
    /// The journal is full or cannot be written: then the change must not be made.
    pub fn record(&mut self, what: &str, undo: Undo) -> Result<(), HostError> {
        self.record_all([JournalEntry { purpose: ChangePurpose::Other, what, undo: &undo }])
    }

    /// Writes the undos of `entries` to disk, with one sync. The caller makes the changes next, in
    /// this order.
    ///
    /// # Errors
    /// The journal would hold more than 100 000 changes, or cannot be written: then none of the
    /// changes may be made.
    pub fn record_all<'a>(
        &mut self,
        entries: impl IntoIterator<Item = JournalEntry<'a>>,
    ) -> Result<(), HostError> {
        let mut bytes = Vec::new();
        let mut changes = Vec::new();
        for (sequence, entry) in (self.next_sequence..).zip(entries) {
            let JournalEntry { purpose, what, undo } = entry;
            let (what, undo, purpose) = (what.to_owned(), undo.clone(), Some(purpose));
            let line = JournalLine::Change(JournaledChange {
                sequence,
                purpose,
                what,
                undo,
                boot_ended: false,
            });
            self.encode(&line, &mut bytes)?;
            let JournalLine::Change(change) = line else { continue };
            changes.push(change);
        }
        if self.content.changes.len() + changes.len() > CHANGES_MAX {
            return Err(HostError::Refused(format!(
                "journal {}: more than {CHANGES_MAX} changes, the most it holds",
                self.path.display()
            )));
        }
        if changes.is_empty() {
            return Ok(());
        }
        // A number is never used twice, even if the lines cannot be written.
        self.next_sequence += changes.len() as u64;
        self.append_bytes(&bytes)?;
        self.content.changes.extend(changes);
        Ok(())
    }

    /// Keeps the changes when this process ends, until somebody undoes them by name.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn keep(&mut self) -> Result<(), HostError> {
        self.append(&JournalLine::Keep)?;
        self.content.kept = true;
        Ok(())
    }

    /// Undoes the changes that were recorded since [`Journal::mark`] returned `mark`, last first.
    ///
    /// # Errors
    /// The journal cannot be written. What could not be undone is in the report.
    pub fn undo_since(&mut self, on: &dyn Platform, mark: u64) -> Result<UndoReport, HostError> {
        self.undo_those(on, |place, _| place >= mark)
    }

    /// Undoes the changes that `wanted` selects by sequence number and purpose, last first; the
    /// others stay.
    ///
    /// # Errors
    /// The journal cannot be written. What could not be undone is in the report.
    pub fn undo_those(
        &mut self,
        on: &dyn Platform,
        wanted: impl Fn(u64, &ChangePurpose) -> bool,
    ) -> Result<UndoReport, HostError> {
        let mut report = UndoReport { journals: vec![self.name()], ..UndoReport::default() };
        let changes = self.content.changes.iter().rev();
        let changes = changes.filter(|change| wanted(change.sequence, change.purpose()));
        let changes: Vec<JournaledChange> = changes.cloned().collect();
        for group in batches(&changes) {
            if let (Some(batch), true) = (&group.batch, group.changes.len() > 1)
                && on.run(batch).is_ok()
            {
                self.strike(group.changes)?;
                report.undone.extend(group.changes.iter().map(|change| change.what.clone()));
                continue;
            }
            // An undo may be applied twice, so those of a failed batch are tried one by one.
            for change in group.changes {
                let skip = change.boot_ended && change.undo.ends_with_boot();
                match if skip { Ok(()) } else { change.undo.apply(on) } {
                    Ok(()) => {
                        self.strike(slice::from_ref(change))?;
                        report.undone.push(change.what.clone());
                    }
                    Err(error) => report.failed.push(format!("{}: {error}", change.what)),
                }
            }
        }
        Ok(report)
    }

    /// Removes the changes that `gone` selects by sequence number and purpose, without undoing
    /// them, because the objects that they changed no longer exist.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn forget_those(
        &mut self,
        gone: impl Fn(u64, &ChangePurpose) -> bool,
    ) -> Result<(), HostError> {
        let changes = self.content.changes.iter();
        let changes = changes.filter(|change| gone(change.sequence, change.purpose()));
        let changes: Vec<JournaledChange> = changes.cloned().collect();
        self.strike(&changes)
    }

    /// Marks these changes as undone, on disk first, with one sync.
    fn strike(&mut self, gone: &[JournaledChange]) -> Result<(), HostError> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for change in gone {
            self.encode(&JournalLine::Undone { sequence: change.sequence }, &mut bytes)?;
        }
        self.append_bytes(&bytes)?;
        let gone: BTreeSet<u64> = gone.iter().map(|change| change.sequence).collect();
        self.content.changes.retain(|change| !gone.contains(&change.sequence));
        Ok(())
    }

    /// Undoes everything, last change first, and removes the journal if nothing is left of it.
    ///
    /// # Errors
    /// The journal cannot be written or removed. What could not be undone is in the report.
    pub fn undo_all(mut self, on: &dyn Platform) -> Result<UndoReport, HostError> {
        let report = self.undo_since(on, 0)?;
        if report.failed.is_empty() {
            let removed = fs::remove_file(&self.path);
            removed.map_err(|error| HostError::io("remove the journal", &self.path, error))?;
            self.state.remove_if_empty();
        }
        Ok(report)
    }

    /// Returns the sequence number of the next change, for [`Journal::undo_since`].
    pub const fn mark(&self) -> u64 {
        self.next_sequence
    }

    /// Returns the purposes of the changes, oldest first.
    pub fn purposes(&self) -> impl Iterator<Item = &ChangePurpose> {
        self.content.changes.iter().map(JournaledChange::purpose)
    }

    /// Returns true if no change is left to undo.
    pub const fn is_empty(&self) -> bool {
        self.content.changes.is_empty()
    }

    /// Returns true if the journal has this undo already. An adopted change is then not recorded
    /// twice.
    pub fn holds(&self, undo: &Undo) -> bool {
        self.content.changes.iter().any(|change| change.undo == *undo)
    }

    /// Returns the host, whose commands hold this journal's lock while they run.
    pub fn host(&self) -> Host {
        Host::holding(self.file.as_raw_fd())
    }

    /// Returns the name it was opened by.
    pub fn name(&self) -> String {
        name_of(&self.path)
    }

    fn append(&mut self, line: &JournalLine) -> Result<(), HostError> {
        let mut bytes = Vec::new();
        self.encode(line, &mut bytes)?;
        self.append_bytes(&bytes)
    }

    fn encode(&self, line: &JournalLine, bytes: &mut Vec<u8>) -> Result<(), HostError> {
        serde_json::to_writer(&mut *bytes, line)
            .map_err(|error| HostError::io("write the journal", &self.path, error.into()))?;
        bytes.push(b'\n');
        Ok(())
    }

    /// Appends `bytes` and syncs the file. Ends a torn last line first, in which an earlier owner
    /// died, so that the new lines can be read. After a failed write, truncates the file to its old
    /// length if possible.
    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        let failed = |error| HostError::io("write the journal", &self.path, error);
        let length = self.file.metadata().map_err(failed)?.len();
        let end: &[u8] = if self.content.torn { b"\n" } else { b"" };
        let text = [end, bytes].concat();
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        if written.is_ok() {
            self.content.torn = false;
        } else if self.file.set_len(length).is_err() {
            self.content.torn = true;
        }
        written.map_err(failed)
    }
}

/// Opens the journal `name` for a fresh start, and undoes the changes that a dead owner left in it.
///
/// # Errors
/// The errors of [`Journal::open`]; or a change of the dead owner could not be undone.
pub fn open_clean(
    state: &StateDir,
    name: &str,
    patience: Duration,
) -> Result<(Journal, UndoReport), HostError> {
    let mut journal = Journal::open(state, name, patience)?;
    let host = journal.host();
    let report = journal.undo_since(&host, 0)?;
    match report.failed.first() {
        Some(first) => Err(HostError::Refused(format!("{name}: left by an earlier run: {first}"))),
        None => Ok((journal, report)),
    }
}

/// Undoes every journal whose owner is dead (`weir clean`).
///
/// # Errors
/// The state folder cannot be read. Changes that could not be undone are in the report.
pub fn clean(state: &StateDir, scope: Scope) -> Result<UndoReport, HostError> {
    let mut total = UndoReport::default();
    for path in files(state)? {
        let name = name_of(&path);
        // Read before opening, since opening appends an owner's line, which revokes *kept*.
        let content = Content::read(&path)?;
        if content.kept && scope == Scope::Stale {
            total.left.push(format!("{name}: kept by its owner"));
            continue;
        }
        let journal = match Journal::open(state, &name, content.patience()) {
            Ok(journal) => journal,
            Err(error @ HostError::Refused(_)) => {
                total.left.push(error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        let host = journal.host();
        let report = journal.undo_all(&host)?;
        total.journals.extend(report.journals);
        total.undone.extend(report.undone);
        total.failed.extend(report.failed);
    }
    state.remove_if_empty();
    Ok(total)
}

/// Undoes the changes that a dead owner of the journal `name` left, before its next start. Does
/// nothing if there is no such journal.
///
/// # Errors
/// It was kept, or a living process holds it; something could not be undone.
pub fn clean_one(state: &StateDir, name: &str) -> Result<UndoReport, HostError> {
    let path = state.journals().join(format!("{name}.{EXTENSION}"));
    if !path.exists() {
        return Ok(UndoReport::default());
    }
    let content = Content::read(&path)?;
    if content.kept {
        return Err(HostError::Refused(format!(
            "{name} is still up because its owner kept it; see {}",
            path.display()
        )));
    }
    let (journal, mut report) = open_clean(state, name, content.patience())?;
    let host = journal.host();
    report.journals = journal.undo_all(&host)?.journals;
    Ok(report)
}

/// Returns the names of all journals, sorted.
///
/// # Errors
/// The state folder cannot be read.
pub fn list(state: &StateDir) -> Result<Vec<String>, HostError> {
    Ok(files(state)?.iter().map(|path| name_of(path)).collect())
}

/// Checks that a name is one plain path component.
fn check_name(name: &str) -> Result<(), HostError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=NAME_LEN_MAX).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(HostError::Refused(format!(
        "journal {name:?}: a name is 1 to {NAME_LEN_MAX} letters, digits, '-', '_' or '.'"
    )))
}

/// Takes the lock; false if another has it.
fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock takes an open descriptor and a flag.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// Returns true if the path still names the locked file; its last owner may have removed it.
fn is_still(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (held, named) = (file.metadata().map(identity), fs::metadata(path).map(identity));
    matches!((held, named), (Ok(held), Ok(named)) if held == named)
}

fn holder(path: &Path) -> String {
    match Content::read(path).ok().and_then(|content| content.owner) {
        Some(owner) => format!("process {}", owner.pid),
        None => "another process".to_owned(),
    }
}

fn files(state: &StateDir) -> Result<Vec<PathBuf>, HostError> {
    let folder = state.journals();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HostError::io("list the journals in", &folder, error)),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Syncs the folder, so that the name of a new journal survives a power cut.
fn sync_folder(folder: &Path) {
    // A file system that cannot sync a folder (tmpfs) is lost together with the changes.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

fn command_line() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

const EXTENSION: &str = "jsonl";

/// A file's name is at most 255 bytes; a lab's or node's is at most 63, with a word before it.
const NAME_LEN_MAX: usize = 128;

/// The most changes of one journal: a lab of a thousand nodes needs a few thousand.
const CHANGES_MAX: usize = 100_000;

/// The interval at which a held lock is tried again.
const POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
// A test may panic.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::run::Command;

    /// Goal: after a disk that was full, what is recorded can be read, under another number.
    /// Method: a device that is always full, and cannot be cut, in place of the file, and then a
    /// part of the line in it.
    #[test]
    fn a_full_disk_costs_no_later_record() {
        let path = std::env::temp_dir().join(format!("weir-journal-full-{}", std::process::id()));
        let state = StateDir::at(&path);
        let undo = |name: &str| Undo::run(Command::line(&format!("ip link del {name}")));
        let mut journal = Journal::open(&state, "lab-a", Duration::ZERO).unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let file = std::mem::replace(&mut journal.file, full);
        assert!(journal.record("one", undo("a")).is_err());
        journal.file = file;
        journal.file.write_all(br#"{"change":{"seq"#).unwrap();
        journal.record("two", undo("b")).unwrap();
        drop(journal);
        let journal = Journal::open(&state, "lab-a", Duration::ZERO).unwrap();
        assert!(journal.holds(&undo("b")) && !journal.holds(&undo("a")));
        assert_eq!(journal.content.changes[0].sequence, 2);
        drop(journal);
        fs::remove_dir_all(&path).unwrap();
    }
}
