// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repairs of a router for the history: the items that somebody else had changed there.

use std::collections::BTreeSet;

use weir_broker_api_types::HistoryChange;

use crate::history::{HistoryNote, HistorySubject};

/// Has a note stored. Returns false if there is no room for it now.
pub(crate) type NoteTaker = Box<dyn Fn(&HistorySubject, HistoryNote) -> bool + Send + Sync>;

/// Repairs of one router that are not in the history yet.
pub(crate) struct RepairLog {
    subject: HistorySubject,
    taker: NoteTaker,
    /// At most [`KEPT_MAX`] keys of items.
    keys: BTreeSet<String>,
    /// True if there were more.
    more: bool,
}

impl RepairLog {
    /// Makes an empty log of a network's router.
    pub(crate) fn new(network: &str, router: &str, taker: NoteTaker) -> Self {
        let (network, router) = (network.to_owned(), router.to_owned());
        let subject = HistorySubject::Router { network, router };
        Self { subject, taker, keys: BTreeSet::new(), more: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds the items that differed at one reading.
    pub(crate) fn add<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>) {
        for key in keys {
            if self.keys.len() < KEPT_MAX {
                self.keys.insert(key.to_owned());
            } else if !self.keys.contains(key) {
                self.more = true;
            }
        }
    }

    /// Has what was repaired stored, as one entry. Without room for it now it is part of the next
    /// one.
    pub(crate) fn tell(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let named: Vec<&str> = self.keys.iter().take(NAMED_MAX).map(String::as_str).collect();
        let mut detail = named.join(", ");
        let others = self.keys.len() - named.len();
        if others > 0 {
            let least = if self.more { "at least " } else { "" };
            detail += &format!(" and {least}{others} more");
        }
        if (self.taker)(&self.subject, (HistoryChange::Repaired, Some(detail))) {
            self.keys.clear();
            self.more = false;
        }
    }
}

/// Items of an entry that are named, and that are kept for it. After a reboot a router lacks all.
const NAMED_MAX: usize = 8;
const KEPT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an entry names a bounded number of items, and one without room for it is not lost.
    #[test]
    fn repairs_wait_for_a_place() {
        let (sender, notes) = std::sync::mpsc::sync_channel(1);
        let take = move |_: &HistorySubject, note: HistoryNote| sender.try_send(note.1).is_ok();
        let mut log = RepairLog::new("blue", "b1", Box::new(take));
        log.tell();
        assert!(notes.try_recv().is_err(), "nothing was repaired");
        log.add(["entry/1"]);
        log.tell();
        log.add(["entry/2", "link/b2"]);
        log.tell();
        assert_eq!(notes.try_recv().unwrap().as_deref(), Some("entry/1"));
        assert!(notes.try_recv().is_err());
        let many: Vec<_> = (1..=9).map(|number| format!("outer/{number}")).collect();
        log.add(many.iter().map(String::as_str));
        log.add(["entry/2"]);
        log.tell();
        let all =
            "entry/2, link/b2, outer/1, outer/2, outer/3, outer/4, outer/5, outer/6 and 3 more";
        assert_eq!(notes.try_recv().unwrap().as_deref(), Some(all));
        log.tell();
        assert!(notes.try_recv().is_err());
    }
}
