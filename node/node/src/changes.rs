// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of changes: each with its caller, its time, and the values before and after.
//!
//! It holds the newest changes, as many as `api.changes` says; fewer where they are so long that
//! their edits take more than `BYTES_MAX`. [`crate::policy_store`] keeps it on disk.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_api_types::change::undone_changes;
use weir_policy::Edit;

/// One change of the policy that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyChange {
    /// The change's number: one more than that of the change before it.
    pub id: u64,
    /// The time at which it was made, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The caller: `uid 0` for one on the Unix socket, `token NAME`, `signal`.
    pub who: String,
    /// The origin of the change.
    pub kind: ChangeKind,
    /// The number of the change that it undid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// The id of the plan's apply that it was part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<String>,
    /// Each key that changed, with its values before and after, in the order of the edits.
    /// Empty: the change only used up its number.
    pub edits: Vec<Edit>,
}

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A request.
    Change,
    /// The undo of a change.
    Undo,
    /// The file was read again.
    Reload,
}

/// A change as it is on record: its edits as text, beside the change itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedChange {
    pub(crate) change: PolicyChange,
    /// JSON of [`PolicyChange::edits`].
    pub(crate) edits: String,
}

/// The newest changes of one node, oldest first. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct ChangeLog {
    list: VecDeque<Arc<RecordedChange>>,
    /// Bytes of all edits.
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl ChangeKind {
    /// Returns the kind's name in the record and in the interface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Undo => "undo",
            Self::Reload => "reload",
        }
    }

    /// Returns the kind with this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Change, Self::Undo, Self::Reload].into_iter().find(|kind| kind.name() == name)
    }
}

impl RecordedChange {
    pub(crate) fn new(change: PolicyChange) -> serde_json::Result<Self> {
        let edits = serde_json::to_string(&change.edits)?;
        Ok(Self { change, edits })
    }
}

impl ChangeLog {
    /// Makes a record without changes that holds at most `count_max`.
    pub(crate) fn new(count_max: usize) -> Self {
        Self::bounded(count_max, BYTES_MAX)
    }

    fn bounded(count_max: usize, bytes_max: usize) -> Self {
        Self { list: VecDeque::new(), bytes: 0, count_max, bytes_max }
    }

    /// Returns the number of the next change.
    pub(crate) fn next_id(&self) -> u64 {
        self.list.back().map_or(1, |last| last.change.id.saturating_add(1))
    }

    /// Adds the newest change. If there are too many, the oldest are dropped; the newest always
    /// stays.
    pub(crate) fn push(&mut self, recorded: Arc<RecordedChange>) {
        debug_assert!(
            self.list.back().is_none_or(|last| last.change.id < recorded.change.id),
            "changes are numbered in the order in which they are made"
        );
        self.bytes += recorded.edits.len();
        self.list.push_back(recorded);
        while self.list.len() > 1
            && (self.list.len() > self.count_max || self.bytes > self.bytes_max)
        {
            let gone = self.list.pop_front();
            self.bytes -= gone.map_or(0, |gone| gone.edits.len());
        }
    }

    /// Returns all changes on record, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &RecordedChange> {
        self.list.iter().map(Arc::as_ref)
    }

    /// Returns the change to undo: the one with this number, or else the newest request that is not
    /// undone yet. `whose` restricts it to the changes of one caller. A reload or an undo is undone
    /// by its number only.
    pub(crate) fn to_undo(&self, id: Option<u64>, whose: Option<&str>) -> Option<&PolicyChange> {
        let newest_first = self.iter().rev().map(|RecordedChange { change, .. }| change);
        let undone = undone_changes(newest_first.map(|change| (change.id, change.undoes)));
        let open = |change: &&PolicyChange| {
            !undone.contains(&change.id) && whose.is_none_or(|who| change.who == who)
        };
        let mut changes = self.list.iter().map(|recorded| &recorded.change);
        match id {
            Some(id) => changes.find(|change| change.id == id).filter(open),
            None => {
                let made = |change: &&PolicyChange| {
                    change.kind == ChangeKind::Change && !change.edits.is_empty()
                };
                changes.rev().filter(made).find(open)
            }
        }
    }
}

/// The most bytes of all edits on record. A change takes some 300 bytes; a reload that changes
/// every vif of a large policy takes less than a MiB.
const BYTES_MAX: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::KeyPath;

    fn push(log: &mut ChangeLog, kind: ChangeKind, undoes: Option<u64>, edits: usize) {
        let edits = vec![Edit::set(KeyPath::vif("a", "send.rate"), "1Mbit"); edits];
        let who = if kind == ChangeKind::Reload { "signal" } else { "uid 0" }.to_owned();
        let change = PolicyChange {
            id: log.next_id(),
            at_unix_ms: 0,
            who,
            kind,
            undoes,
            apply: None,
            edits,
        };
        log.push(Arc::new(RecordedChange::new(change).unwrap()));
    }

    #[test]
    fn the_newest_change_that_holds_is_taken_back_first() {
        let log = &mut ChangeLog::new(100);
        let undone = |log: &ChangeLog, id| log.to_undo(id, None).map(|change| change.id);
        push(log, ChangeKind::Change, None, 1);
        push(log, ChangeKind::Change, None, 1);
        assert_eq!(undone(log, None), Some(2));
        push(log, ChangeKind::Undo, Some(2), 1);
        assert_eq!(undone(log, None), Some(1));
        assert_eq!(undone(log, Some(2)), None, "it is taken back already");
        assert_eq!(undone(log, Some(3)), Some(3), "an undo is taken back by its number");
        assert!(log.to_undo(None, Some("token a")).is_none(), "somebody else's");
        push(log, ChangeKind::Undo, Some(3), 1);
        assert_eq!(undone(log, None), Some(2), "it holds again");
        push(log, ChangeKind::Reload, None, 1);
        assert_eq!(undone(log, None), Some(2), "a reload stays");
        assert_eq!(undone(log, Some(5)), Some(5), "but by its number");
        push(log, ChangeKind::Undo, Some(4), 1);
        assert_eq!(undone(log, Some(2)), None, "the undo of it is in force again");
        assert_eq!(undone(log, Some(3)), Some(3));
        push(log, ChangeKind::Change, None, 0);
        assert_eq!(undone(log, None), Some(1), "a change without edits only used up its number");
    }

    /// Goal: the newest change always stays, and older ones as far as both bounds allow.
    #[test]
    fn the_record_is_bounded_in_changes_and_in_bytes() {
        let log = &mut ChangeLog::new(10);
        (0..25).for_each(|_| push(log, ChangeKind::Change, None, 1));
        let ids =
            |log: &ChangeLog| log.iter().map(|recorded| recorded.change.id).collect::<Vec<_>>();
        assert_eq!(ids(log), (16..=25).collect::<Vec<u64>>());
        let one = log.bytes / 10;
        let log = &mut ChangeLog::bounded(10, 5 * one);
        (0..8).for_each(|_| push(log, ChangeKind::Change, None, 1));
        assert_eq!(ids(log), [4, 5, 6, 7, 8]);
        push(log, ChangeKind::Reload, None, 100);
        assert_eq!(ids(log), [9], "longer than all there may be");
        assert_eq!(log.bytes, log.iter().map(|recorded| recorded.edits.len()).sum::<usize>());
    }
}
