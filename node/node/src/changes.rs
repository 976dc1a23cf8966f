// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of changes on disk: who changed what, from what, to what.
//!
//! A file of JSON lines: the first names the format and its version, each further one is a
//! [`Change`]. It holds the newest changes, as many as `api.changes` says, and at most as many more
//! that are written over at the next occasion; fewer where they are so long that the file could not
//! be read again. Each line has a checksum; the last one counts as never written if its own does
//! not hold, as after a crash: the change it tells of was answered by nobody.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_platform::StateDir;
use weir_policy::Edit;

use crate::lines::{self, Lines, line};
use crate::overlay::Overlay;

/// The record of the node `name`: beside its overlay.
#[must_use]
pub fn path(state: &StateDir, name: &str) -> PathBuf {
    Overlay::path(state, name).with_file_name(format!("changes-{name}.jsonl"))
}

/// One change of the policy that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Its number: one more than that of the change before it.
    pub id: u64,
    /// When, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Who: `uid 0` for one on the Unix socket, `token NAME`, `signal`.
    pub who: String,
    /// How it came.
    pub kind: ChangeKind,
    /// The change that it took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// What, from what, to what; in the order in which it was done.
    pub edits: Vec<Edit>,
}

/// How a change came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A request.
    Change,
    /// A change taken back.
    Undo,
    /// The file was read again.
    Reload,
}

/// The record of one node.
#[derive(Debug)]
pub(crate) struct Changes {
    path: PathBuf,
    list: VecDeque<Change>,
    /// Made with the first change: a node that nobody changes leaves no file.
    file: Option<Lines>,
    /// Lines behind the first.
    lines: usize,
    /// Changes that are kept, and bytes of the file.
    most: usize,
    bytes_max: u64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl Changes {
    /// The record at `path`, which may not exist yet.
    ///
    /// # Errors
    /// It cannot be read, or is of another version.
    pub(crate) fn open(path: &Path, most: usize) -> io::Result<Self> {
        Self::within(path, most, BYTES_MAX)
    }

    fn within(path: &Path, most: usize, bytes_max: u64) -> io::Result<Self> {
        let mut list = match lines::read(path, bytes_max)? {
            Some(text) => changes_of(&text)?,
            None => VecDeque::new(),
        };
        let count = list.len();
        list.drain(..count.saturating_sub(most));
        // Written anew with the next change: what stands behind the last whole line goes so.
        let (path, lines) = (path.to_owned(), usize::MAX);
        Ok(Self { path, list, file: None, lines, most, bytes_max })
    }

    /// Writes a change down and hands back its number.
    ///
    /// # Errors
    /// It cannot be written; then it is not on record.
    pub(crate) fn record(
        &mut self,
        at_unix_ms: u64,
        who: &str,
        kind: ChangeKind,
        undoes: Option<u64>,
        edits: Vec<Edit>,
    ) -> io::Result<Change> {
        let id = self.list.back().map_or(1, |last| last.id.saturating_add(1));
        let change = Change { id, at_unix_ms, who: who.to_owned(), kind, undoes, edits };
        let line = line(&change)?;
        self.list.push_back(change.clone());
        let more = (line.len() + lines::GROWTH) as u64;
        let fits = |file: &Lines| file.end() + more <= self.bytes_max;
        let written = match &mut self.file {
            Some(file) if self.lines < 2 * self.most && fits(file) && file.is_at(&self.path) => {
                self.lines += 1;
                file.add(&line)
            }
            _ => self.write_anew(),
        };
        match written {
            Ok(()) => {
                let more = self.list.len().saturating_sub(self.most);
                self.list.drain(..more);
                Ok(change)
            }
            Err(error) => {
                self.list.pop_back();
                // What was half written is written over.
                self.file = None;
                Err(error)
            }
        }
    }

    /// All that are on record, oldest first.
    pub(crate) fn list(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.list.iter()
    }

    /// The change to take back: that of the number, or the newest request that is not taken back;
    /// of this one only, if somebody is named. What the file brought is taken back by its number
    /// alone.
    pub(crate) fn to_undo(&self, id: Option<u64>, whose: Option<&str>) -> Option<&Change> {
        // Oldest first: what an undo took back holds again once the undo is taken back.
        let mut undone = BTreeMap::new();
        for change in &self.list {
            if let Some(took) = change.undoes {
                undone.insert(took, change.id);
                undone.retain(|_, by| *by != took);
            }
        }
        let open = |change: &&Change| {
            !undone.contains_key(&change.id) && whose.is_none_or(|who| change.who == who)
        };
        match id {
            Some(id) => self.list.iter().find(|change| change.id == id).filter(open),
            None => {
                let made = |change: &&Change| change.kind == ChangeKind::Change;
                self.list.iter().rev().filter(made).find(open)
            }
        }
    }

    /// A new file takes the old one's place when it is whole.
    fn write_anew(&mut self) -> io::Result<()> {
        let mut text = line(&Header { format: FORMAT.to_owned(), version: VERSION })?;
        let kept = self.list.iter().rev().take(self.most).map(line);
        // So that it is not written anew at once.
        let mut kept = newest(kept, self.bytes_max / 2)?;
        kept.iter_mut().rev().for_each(|line| text.append(line));
        self.file = Some(Lines::anew(&self.path, &text, lines::GROWTH)?);
        self.lines = kept.len();
        // What is not in the file would be gone with the next start.
        self.list.drain(..self.list.len().saturating_sub(self.lines));
        Ok(())
    }
}

/// The changes of a record's text, oldest first.
fn changes_of(text: &str) -> io::Result<VecDeque<Change>> {
    let first_version = text.starts_with('{');
    let lines = match first_version {
        // Without checksums.
        true => text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect(),
        false => lines::values(text)?,
    };
    let mut lines = lines.into_iter();
    let first = lines.next().ok_or_else(|| io::Error::other("no line of it is whole"))?;
    let header: Header = serde_json::from_str(first).map_err(io::Error::other)?;
    let expected = if first_version { FIRST_VERSION } else { VERSION };
    if (header.format.as_str(), header.version) != (FORMAT, expected) {
        return Err(io::Error::other(format!(
            "{} of version {} is not {FORMAT} of version {FIRST_VERSION} or {VERSION}",
            header.format, header.version
        )));
    }
    lines.map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

/// The first of `lines` that have room in so many bytes, the very first in any case.
fn newest(
    lines: impl Iterator<Item = io::Result<Vec<u8>>>,
    bytes_max: u64,
) -> io::Result<Vec<Vec<u8>>> {
    let (mut kept, mut bytes) = (Vec::new(), 0);
    for line in lines {
        let line = line?;
        bytes += line.len() as u64;
        if bytes > bytes_max && !kept.is_empty() {
            break;
        }
        kept.push(line);
    }
    Ok(kept)
}

const FORMAT: &str = "weir-changes";
const VERSION: u32 = 2;
/// Lines without checksums.
const FIRST_VERSION: u32 = 1;
/// A file that would be longer is written anew. A change takes some 300 bytes, and one of every vif
/// of a large policy, as a reload may be, less than a MiB.
const BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;
    use weir_policy::Place;

    const MOST: usize = 100;

    fn edits(rate: &str) -> Vec<Edit> {
        vec![Edit::set(Place::vif("a", "send.rate"), rate)]
    }

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("weir-changes-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        folder
    }

    /// Twice the bound and more; then a line that a crash cut short.
    #[test]
    fn the_record_is_bounded_and_survives_a_cut_line() {
        let folder = folder("bound");
        let path = folder.join("node-a.changes");
        let mut changes = Changes::open(&path, MOST).unwrap();
        assert!(!path.exists(), "nothing changed yet");
        let count = u64::try_from(2 * MOST + 10).unwrap();
        for number in 0..count {
            changes.record(number, "uid 0", ChangeKind::Change, None, edits("1Mbit")).unwrap();
        }
        let lines = fs::read_to_string(&path).unwrap().lines().count() - 1;
        assert!((MOST..=2 * MOST + 1).contains(&lines), "{lines} lines");
        let last = changes.list().next_back().cloned();
        let whole = fs::read_to_string(&path).unwrap().trim_end().len() + 1;
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"[\"12345678\",{\"id\":7,", whole as u64).unwrap();
        let mut again = Changes::open(&path, MOST).unwrap();
        assert_eq!(again.list().next_back().cloned(), last);
        assert_eq!(again.list().count(), MOST);
        let next = again.record(0, "uid 0", ChangeKind::Change, None, edits("2Mbit")).unwrap();
        assert_eq!(next.id, count + 1);
        assert!(Changes::open(&path, MOST).unwrap().list().any(|change| change.id == count + 1));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_version_is_refused() {
        let folder = folder("version");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("node-a.changes");
        let header = |version| Header { format: FORMAT.to_owned(), version };
        fs::write(&path, line(&header(3)).unwrap()).unwrap();
        let refused = Changes::open(&path, MOST).unwrap_err().to_string();
        assert!(refused.contains("version 3 is not weir-changes of version 1 or 2"), "{refused}");
        for damaged in ["", "[\"12345678\",{}]\n\0\0", "{\"format\":"] {
            fs::write(&path, damaged).unwrap();
            let refused = Changes::open(&path, MOST).unwrap_err().to_string();
            assert_eq!(refused, "no line of it is whole", "{damaged}");
        }
        // The first had no checksums.
        let first = serde_json::to_string(&header(1)).unwrap();
        let edits = edits("1Mbit");
        let who = "uid 0".to_owned();
        let kind = ChangeKind::Change;
        let change = Change { id: 41, at_unix_ms: 0, who, kind, undoes: None, edits };
        let text = format!("{first}\n{}\n{{\"id\":", serde_json::to_string(&change).unwrap());
        fs::write(&path, text).unwrap();
        let mut changes = Changes::open(&path, MOST).unwrap();
        assert_eq!(changes.list().collect::<Vec<_>>(), [&change]);
        changes.record(0, "uid 0", kind, None, Vec::new()).unwrap();
        assert_eq!(Changes::open(&path, MOST).unwrap().list().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Goal: what a node writes it can read, and it offers nothing else.
    #[test]
    fn long_changes_are_fewer() {
        let folder = folder("long");
        let path = folder.join("node-a.changes");
        let most = 1 << 20;
        let mut changes = Changes::within(&path, MOST, most).unwrap();
        for number in 0..300 {
            let edits = vec![edits("1Mbit"); 200].concat();
            changes.record(number, "uid 0", ChangeKind::Change, None, edits).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= most);
        }
        let again = Changes::within(&path, MOST, most).unwrap();
        assert!(changes.list().eq(again.list()));
        assert!((10..MOST).contains(&again.list().count()), "{}", again.list().count());
        assert_eq!(again.list().next_back().map(|last| last.id), Some(300));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// The newest in any case, and of the others what fits.
    #[test]
    fn what_fits_is_the_newest() {
        let of = |lengths: &[usize], most| {
            let lines = lengths.iter().map(|length| Ok(vec![b'x'; *length]));
            newest(lines, most).unwrap().iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(of(&[3, 3, 3], 9), [3, 3, 3]);
        assert_eq!(of(&[3, 3, 4, 1], 9), [3, 3], "none older than one that is left out");
        assert_eq!(of(&[10, 1], 9), [10]);
        assert!(of(&[], 9).is_empty());
    }

    #[test]
    fn the_newest_change_that_holds_is_taken_back_first() {
        let folder = folder("undo");
        let mut changes = Changes::open(&folder.join("c"), MOST).unwrap();
        for _ in 0..2 {
            changes.record(0, "uid 0", ChangeKind::Change, None, edits("1Mbit")).unwrap();
        }
        assert_eq!(changes.to_undo(None, None).unwrap().id, 2);
        changes.record(0, "uid 0", ChangeKind::Undo, Some(2), edits("1Mbit")).unwrap();
        assert_eq!(changes.to_undo(None, None).unwrap().id, 1);
        assert!(changes.to_undo(Some(2), None).is_none(), "it is taken back already");
        assert_eq!(
            changes.to_undo(Some(3), None).unwrap().id,
            3,
            "an undo can be undone by number"
        );
        assert!(changes.to_undo(None, Some("token a")).is_none(), "somebody else's");
        changes.record(0, "uid 0", ChangeKind::Undo, Some(3), edits("1Mbit")).unwrap();
        assert_eq!(changes.to_undo(None, None).unwrap().id, 2, "it holds again");
        changes.record(0, "signal", ChangeKind::Reload, None, edits("1Mbit")).unwrap();
        assert_eq!(changes.to_undo(None, None).unwrap().id, 2, "the file's stays");
        assert_eq!(changes.to_undo(Some(5), None).unwrap().id, 5, "but by its number");
        fs::remove_dir_all(&folder).unwrap();
    }
}
