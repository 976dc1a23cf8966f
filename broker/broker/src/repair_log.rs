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
    /// At most [`NAMED_MAX`] keys of items.
    named: BTreeSet<String>,
    /// Items beyond those.
    others: usize,
}

impl RepairLog {
    /// Makes an empty log of a network's router.
    pub(crate) fn new(network: &str, router: &str, taker: NoteTaker) -> Self {
        let (network, router) = (network.to_owned(), router.to_owned());
        let subject = HistorySubject::Router { network, router };
        Self { subject, taker, named: BTreeSet::new(), others: 0 }
    }

    /// Adds the items that differed at one reading.
    pub(crate) fn add<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>) {
        for key in keys {
            if self.named.contains(key) {
                continue;
            }
            if self.named.len() < NAMED_MAX {
                self.named.insert(key.to_owned());
            } else {
                self.others += 1;
            }
        }
    }

    /// Has what was repaired stored, as one entry. Without room for it now it is part of the next
    /// one.
    pub(crate) fn tell(&mut self) {
        if self.named.is_empty() {
            return;
        }
        let named: Vec<&str> = self.named.iter().map(String::as_str).collect();
        let mut detail = named.join(", ");
        if self.others > 0 {
            detail += &format!(" and {} more", self.others);
        }
        if (self.taker)(&self.subject, (HistoryChange::Repaired, Some(detail))) {
            self.named.clear();
            self.others = 0;
        }
    }
}

/// Items of an entry that are named. After a reboot a router lacks all.
const NAMED_MAX: usize = 8;

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
        log.tell();
        let all =
            "entry/2, link/b2, outer/1, outer/2, outer/3, outer/4, outer/5, outer/6 and 3 more";
        assert_eq!(notes.try_recv().unwrap().as_deref(), Some(all));
        log.tell();
        assert!(notes.try_recv().is_err());
    }
}
