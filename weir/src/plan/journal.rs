// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal of an apply: what it is about to change on each node, on disk before the first
//! change.
//!
//! An apply changes several nodes one after the other, and may be killed between two of them. The
//! journal is written once, whole, before the first change, and removed after the last. In between
//! it is not touched: which nodes were changed is asked of the nodes, whose records of changes
//! cannot be behind. Each change has a number that was fixed beforehand, so that it is known by it,
//! and is made at most once.
//!
//! The file is `FILE.journal` beside the plan's FILE. It is written under another name, synced and
//! renamed, and its folder synced, so that a power cut leaves all of it or nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_api_types::change::{ChangeSet, ChangeView, EditView};
use weir_platform::failure::Failure;

use super::running::{NodeAddress, RunningNode};

/// What an apply is about to change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanJournal {
    version: u32,
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
    /// Each key with its value before and after: the undo.
    edits: Vec<EditView>,
}

impl PlanJournal {
    pub(super) const fn new(nodes: Vec<JournaledNode>) -> Self {
        Self { version: VERSION, nodes }
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
            other => Err(named(&path, &format!("version is {other}, {VERSION} is known"))),
        }
    }

    /// Writes the journal; it is on disk once this returns.
    pub(super) fn write(&self, plan: &Path) -> Result<(), Failure> {
        let (path, new) = (path(plan), path(plan).with_extension("journal.new"));
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

    /// Tells from the node's record whether the change was made and holds.
    ///
    /// # Errors
    /// The record does not reach back far enough.
    pub(super) fn holds(&self, record: &[ChangeView]) -> Result<bool, String> {
        let number = self.number;
        let Some(made) = record.iter().find(|change| change.id == number) else {
            return match record.first() {
                Some(first) if first.id > number => Err(format!(
                    "the record of changes begins with {}, so that it is not known whether change \
                     {number} was made",
                    first.id
                )),
                _ => Ok(false),
            };
        };
        // Another caller's change may have taken the number; then ours was refused.
        let is_ours = made.edits == self.edits;
        Ok(is_ours && !record.iter().any(|change| change.undoes == Some(number)))
    }
}

/// The journal of the plan in this file.
pub(super) fn path(plan: &Path) -> PathBuf {
    let mut name = plan.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    format!("{}: {error}", path.display()).into()
}

/// The version of the file's form.
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_api_types::change::ChangeOrigin;

    use super::*;

    fn change(id: u64, undoes: Option<u64>, after: &str) -> ChangeView {
        let edit = EditView {
            table: "slice".into(),
            name: "gold".into(),
            key: "phase".into(),
            before: json!(null),
            after: json!(after),
        };
        let (who, kind) = ("uid 0".to_owned(), ChangeOrigin::Change);
        ChangeView { id, at_unix_ms: 0, who, kind, undoes, edits: vec![edit] }
    }

    fn journaled() -> JournaledNode {
        let address = serde_json::from_value(json!({ "api": "/run/a.sock" })).unwrap();
        let node = RunningNode::new("edge".into(), address).unwrap();
        JournaledNode::new(&node, ChangeSet::default(), change(7, None, "100us"))
    }

    #[test]
    fn the_nodes_record_says_whether_a_change_holds() {
        let ours = journaled();
        assert_eq!(ours.holds(&[]), Ok(false));
        assert_eq!(ours.holds(&[change(6, None, "1us")]), Ok(false), "not made yet");
        assert_eq!(ours.holds(&[change(7, None, "100us")]), Ok(true));
        assert_eq!(ours.holds(&[change(7, None, "90us")]), Ok(false), "somebody else's");
        let undone = [change(7, None, "100us"), change(8, Some(7), "")];
        assert_eq!(ours.holds(&undone), Ok(false), "undone since");
        assert!(ours.holds(&[change(8, None, "1us")]).unwrap_err().contains("begins with 8"));
    }

    #[test]
    fn a_journal_is_read_back_and_gone_once_removed() {
        let plan = std::env::temp_dir().join(format!("weir-plan-{}.toml", std::process::id()));
        assert!(PlanJournal::left_by(&plan).unwrap().is_none());
        PlanJournal::new(vec![journaled()]).write(&plan).unwrap();
        let read = PlanJournal::left_by(&plan).unwrap().unwrap();
        assert_eq!((read.nodes.len(), read.nodes[0].number), (1, 7));
        PlanJournal::remove(&plan).unwrap();
        assert!(PlanJournal::left_by(&plan).unwrap().is_none());
        fs::write(path(&plan), r#"{"version":2,"nodes":[]}"#).unwrap();
        let refused = PlanJournal::left_by(&plan).unwrap_err().to_string();
        assert!(refused.contains("version is 2, 1 is known"), "{refused}");
        fs::remove_file(path(&plan)).unwrap();
    }
}
