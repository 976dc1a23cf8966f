// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal of an apply: what it is about to change on each node, on disk before the first
//! change.
//!
//! An apply changes several nodes one after the other, and may be killed between two of them. The
//! journal is written whole before the first change, and removed after the last. Which nodes were
//! changed is asked of the nodes, whose records of changes cannot be behind. Each change has a
//! number that was fixed beforehand, so that it is made at most once, and the id of its apply, so
//! that it is not taken for another apply's. Before a node is asked for another number, the journal
//! is written again with it.
//!
//! The file is `FILE.journal` beside the plan's FILE. It is written under another name, synced and
//! renamed, and its folder synced, so that a power cut leaves all of it or nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_api_types::change::{ChangeSet, ChangeView, EditView, undone_changes};
use weir_platform::failure::Failure;

use super::file::beside;
use super::running::{NodeAddress, RunningNode};

/// What an apply is about to change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanJournal {
    version: u32,
    /// The id of the apply, in the records of the nodes too.
    pub(super) apply: String,
    pub(super) nodes: Vec<JournaledNode>,
}

/// The change of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournaledNode {
    pub(super) name: String,
    address: NodeAddress,
    /// The number that the change has on the node.
    pub(super) number: u64,
    pub(super) set: ChangeSet,
    /// Each key with its value before and after, for who looks after a node by hand.
    edits: Vec<EditView>,
}

/// The fate of the change of one node, by the node's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeState {
    /// It was made and holds.
    Holds,
    /// It was made and taken back.
    Undone,
    /// It was not made and cannot be any more: its number is another change's.
    NumberTaken,
    /// It is not on record, and a request for it may still be on its way.
    NotMade,
    /// The node's record ends long before it: the node was set up anew since.
    RecordLost,
}

impl PlanJournal {
    pub(super) const fn new(apply: String, nodes: Vec<JournaledNode>) -> Self {
        Self { version: VERSION, apply, nodes }
    }

    /// Reads the journal that an earlier apply of this plan left; `None` if there is none.
    pub(super) fn left_by(plan: &Path) -> Result<Option<Self>, Failure> {
        let path = path(plan);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(&path, &error)),
        };
        let journal: Self = serde_json::from_slice(&text).map_err(|error| named(&path, &error))?;
        match journal.version {
            VERSION => Ok(Some(journal)),
            other => {
                let text = format!(
                    "version is {other}, {VERSION} is known: recover with the version of weir \
                     that wrote it; or set the nodes right by hand and remove the file"
                );
                Err(named(&path, &text))
            }
        }
    }

    /// Writes the journal; it is on disk once this returns.
    pub(super) fn write(&self, plan: &Path) -> Result<(), Failure> {
        let (path, new) = (path(plan), beside(plan, "journal.new"));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_folder(&path)
        });
        written.map_err(|error| named(&path, &error))
    }

    /// Removes the journal: the apply is whole, or all of it is undone.
    pub(super) fn remove(plan: &Path) -> Result<(), Failure> {
        let path = path(plan);
        let removed = fs::remove_file(&path).and_then(|()| sync_folder(&path));
        removed.map_err(|error| named(&path, &error))
    }
}

impl JournaledNode {
    pub(super) fn new(node: &RunningNode, set: ChangeSet, foreseen: ChangeView) -> Self {
        let (name, address) = (node.name.clone(), node.address.clone());
        Self { name, address, number: foreseen.id, set, edits: foreseen.edits }
    }

    pub(super) fn connect(&self) -> Result<RunningNode, Failure> {
        RunningNode::new(self.name.clone(), self.address.clone())
    }

    /// Makes `foreseen` the change of this node instead.
    pub(super) fn renumber(&mut self, foreseen: ChangeView) {
        (self.number, self.edits) = (foreseen.id, foreseen.edits);
    }

    /// Returns what became of the node's change in the apply of this id, by the node's whole
    /// record, oldest first.
    ///
    /// # Errors
    /// The record does not reach back far enough.
    pub(super) fn state(&self, apply: &str, record: &[ChangeView]) -> Result<ChangeState, String> {
        let number = self.number;
        let last = record.last().map_or(0, |change| change.id);
        let Some(made) = record.iter().find(|change| change.id == number) else {
            return match record.first() {
                Some(first) if first.id > number => Err(format!(
                    "the record of changes begins with {}, so that it is not known whether change \
                     {number} was made",
                    first.id
                )),
                _ if last.saturating_add(1) < number => Ok(ChangeState::RecordLost),
                _ => Ok(ChangeState::NotMade),
            };
        };
        // A change without edits of this apply is one that used the number up.
        if made.apply.as_deref() != Some(apply) || made.edits.is_empty() {
            return Ok(ChangeState::NumberTaken);
        }
        let undone = undone_changes(record.iter().rev().map(|change| (change.id, change.undoes)));
        Ok(if undone.contains(&number) { ChangeState::Undone } else { ChangeState::Holds })
    }
}

/// Returns the journal of the plan in this file.
pub(super) fn path(plan: &Path) -> PathBuf {
    beside(plan, "journal")
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    format!("{}: {error}", path.display()).into()
}

/// The version of the file's form.
const VERSION: u32 = 2;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_api_types::change::ChangeOrigin;

    use super::*;

    fn change(id: u64, undoes: Option<u64>, apply: &str) -> ChangeView {
        let edit = EditView {
            table: "slice".into(),
            name: "gold".into(),
            key: "phase".into(),
            before: json!(null),
            after: json!("100us"),
        };
        let (who, kind) = ("uid 0".to_owned(), ChangeOrigin::Change);
        let apply = (!apply.is_empty()).then(|| apply.to_owned());
        ChangeView { id, at_unix_ms: 0, who, kind, undoes, apply, edits: vec![edit] }
    }

    fn journaled() -> JournaledNode {
        let address = serde_json::from_value(json!({ "api": "/run/a.sock" })).unwrap();
        let node = RunningNode::new("edge".into(), address).unwrap();
        JournaledNode::new(&node, ChangeSet::default(), change(7, None, "a"))
    }

    #[test]
    fn the_nodes_record_says_what_became_of_a_change() {
        let ours = journaled();
        let state = |record: &[ChangeView]| ours.state("a", record);
        assert_eq!(state(&[]), Ok(ChangeState::RecordLost));
        assert_eq!(state(&[change(5, None, "a")]), Ok(ChangeState::RecordLost));
        assert_eq!(state(&[change(6, None, "")]), Ok(ChangeState::NotMade));
        let made = change(7, None, "a");
        assert_eq!(state(std::slice::from_ref(&made)), Ok(ChangeState::Holds));
        // The same edits, by another machine with the same plan, or by hand.
        assert_eq!(state(&[change(7, None, "b")]), Ok(ChangeState::NumberTaken));
        assert_eq!(state(&[change(7, None, "")]), Ok(ChangeState::NumberTaken));
        let used_up = ChangeView { edits: vec![], ..made.clone() };
        assert_eq!(state(&[used_up]), Ok(ChangeState::NumberTaken));
        assert!(state(&[change(8, None, "")]).unwrap_err().contains("begins with 8"));
        // Undone; the undo undone; and that undone again.
        let mut record = vec![made, change(8, Some(7), "")];
        assert_eq!(state(&record), Ok(ChangeState::Undone));
        record.push(change(9, Some(8), ""));
        assert_eq!(state(&record), Ok(ChangeState::Holds));
        record.push(change(10, Some(9), ""));
        assert_eq!(state(&record), Ok(ChangeState::Undone));
    }

    #[test]
    fn a_journal_is_read_back_and_gone_once_removed() {
        let plan = std::env::temp_dir().join(format!("weir-plan-{}.toml", std::process::id()));
        assert!(PlanJournal::left_by(&plan).unwrap().is_none());
        PlanJournal::new("a".into(), vec![journaled()]).write(&plan).unwrap();
        let read = PlanJournal::left_by(&plan).unwrap().unwrap();
        assert_eq!((read.nodes.len(), read.nodes[0].number, read.apply.as_str()), (1, 7, "a"));
        PlanJournal::remove(&plan).unwrap();
        assert!(PlanJournal::left_by(&plan).unwrap().is_none());
        fs::write(path(&plan), r#"{"version":3,"apply":"a","nodes":[]}"#).unwrap();
        let refused = PlanJournal::left_by(&plan).unwrap_err().to_string();
        assert!(refused.contains("version is 3, 2 is known: recover with"), "{refused}");
        fs::remove_file(path(&plan)).unwrap();
    }
}
