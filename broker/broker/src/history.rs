// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The history: each change of a connection, a link or a network, who asked for it, and when.
//!
//! An entry is stored in the transaction of its change, so it is there if and only if the change
//! is. [`HISTORY_MAX`] entries are kept, and beside them [`POLICING_MAX`] of policing and
//! [`REPAIRS_MAX`] of repairs: demand and daemons of others make those, and may not push out what
//! somebody asked for. Beyond that the oldest entry of the network with the most goes, so that no
//! network pushes out another's. Renewals of leases are not in it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use weir_broker_api_types::{ConnectionChange, HistoryChange, HistoryEntry, RequestedConnection};
use weir_units::Instant;

use crate::clock;

/// The newest entries, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ChangeHistory {
    entries: VecDeque<HistoryEntry>,
    /// The number of entries by kind and network.
    kept: BTreeMap<(EntryKind, String), usize>,
}

/// Kinds of entries: of what somebody asked for, and of what the broker did by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntryKind {
    Asked,
    Policing,
    Repair,
}

/// An entry as it is written, with the entries that it pushes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddedEntry {
    #[serde(flatten)]
    pub(crate) entry: HistoryEntry,
    /// Their numbers. Other brokers find them by the same bounds.
    #[serde(skip)]
    pub(crate) forgotten: Vec<u64>,
}

/// The part of a network that an entry is about, or the network itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HistorySubject {
    Connection { network: String, id: String },
    Link { network: String, link: String },
    Router { network: String, router: String },
    Network { network: String },
}

/// Kind of a change, and more of it for people.
pub(crate) type HistoryNote = (HistoryChange, Option<String>);

/// Entries that somebody asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// Only entries of this network.
    pub(crate) network: Option<String>,
    /// Only entries of this connection.
    pub(crate) connection: Option<String>,
    /// Only entries with a smaller number.
    pub(crate) before: Option<u64>,
}

impl ChangeHistory {
    /// Takes over stored entries, oldest first.
    pub(crate) fn new(entries: Vec<HistoryEntry>) -> Self {
        let mut kept = BTreeMap::new();
        for entry in &entries {
            *kept.entry((EntryKind::of(entry), entry.network.clone())).or_default() += 1;
        }
        Self { entries: entries.into(), kept }
    }

    /// Adds an entry and returns it. `by` is the token that asked for the change.
    pub(crate) fn add(
        &mut self,
        subject: HistorySubject,
        by: Option<&str>,
        (change, detail): HistoryNote,
        now: Instant,
    ) -> AddedEntry {
        let (network, [connection, link, router]) = match subject {
            HistorySubject::Connection { network, id } => (network, [Some(id), None, None]),
            HistorySubject::Link { network, link } => (network, [None, Some(link), None]),
            HistorySubject::Router { network, router } => (network, [None, None, Some(router)]),
            HistorySubject::Network { network } => (network, [None, None, None]),
        };
        let number = self.entries.back().map_or(1, |last| last.number + 1);
        let (at, by) = (clock::text(now), by.map(str::to_owned));
        let entry =
            HistoryEntry { number, at, network, connection, link, router, by, change, detail };
        let forgotten = self.take_over(entry.clone());
        AddedEntry { entry, forgotten }
    }

    /// Takes over an entry that is stored. Returns the numbers of those that it pushes out.
    pub(crate) fn take_over(&mut self, entry: HistoryEntry) -> Vec<u64> {
        let (kind, mut forgotten) = (EntryKind::of(&entry), Vec::new());
        *self.kept.entry((kind, entry.network.clone())).or_default() += 1;
        self.entries.push_back(entry);
        // More than one goes only of a store whose entries had other bounds.
        while let Some(fullest) = self.fullest_beyond(kind) {
            let is_own = |of: &HistoryEntry| EntryKind::of(of) == kind && of.network == fullest;
            let oldest = self.entries.iter().position(is_own);
            let gone = oldest.and_then(|place| self.entries.remove(place));
            let Some(count) = self.kept.get_mut(&(kind, fullest)) else { break };
            *count = count.saturating_sub(1);
            forgotten.extend(gone.map(|entry| entry.number));
        }
        forgotten
    }

    /// Returns the network with the most entries of a kind of which there are too many: who makes
    /// many pushes out its own.
    fn fullest_beyond(&self, kind: EntryKind) -> Option<String> {
        let of_kind = || self.kept.iter().filter(|((of, _), _)| *of == kind);
        if of_kind().map(|(_, count)| count).sum::<usize>() <= kind.most() {
            return None;
        }
        of_kind().max_by_key(|(_, count)| **count).map(|((_, network), _)| network.clone())
    }

    /// Returns at most [`PAGE_MAX`] entries of networks that the caller sees, the newest first.
    pub(crate) fn page(
        &self,
        query: &HistoryQuery,
        sees: impl Fn(&str) -> bool,
    ) -> Vec<HistoryEntry> {
        let HistoryQuery { network, connection, before } = query;
        let wanted = self.entries.iter().rev().filter(|entry| {
            before.is_none_or(|before| entry.number < before)
                && network.as_ref().is_none_or(|name| *name == entry.network)
                && connection.as_ref().is_none_or(|id| entry.connection.as_ref() == Some(id))
                && sees(&entry.network)
        });
        wanted.take(PAGE_MAX).cloned().collect()
    }
}

/// Describes a request in a few words.
pub(crate) fn described(requested: &RequestedConnection) -> String {
    let RequestedConnection { from, to, rate, .. } = requested;
    format!("{rate} from {from} to {to}")
}

/// Describes a change in a few words.
pub(crate) fn described_change(change: &ConnectionChange) -> String {
    let ConnectionChange { rate, back_rate, delay_max, hops_max, avoid } = change;
    let hops = hops_max.map(|hops| hops.to_string());
    let avoid = avoid.as_ref().map(|links| links.join(" "));
    let fields = [
        ("rate", rate),
        ("back_rate", back_rate),
        ("delay_max", delay_max),
        ("hops_max", &hops),
        ("avoid", &avoid),
    ];
    let named = fields.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    named.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

impl EntryKind {
    const fn of(entry: &HistoryEntry) -> Self {
        use HistoryChange::{Held, LetGo, Punished, Reformed, Repaired};
        match entry.change {
            Held | LetGo | Punished | Reformed => Self::Policing,
            Repaired => Self::Repair,
            _ => Self::Asked,
        }
    }

    const fn most(self) -> usize {
        match self {
            Self::Asked => HISTORY_MAX,
            Self::Policing => POLICING_MAX,
            Self::Repair => REPAIRS_MAX,
        }
    }
}

/// Entries that are kept of what somebody asked for, and of what became of it.
const HISTORY_MAX: usize = 10_000;

/// Entries of policing that are kept, and of repairs.
const POLICING_MAX: usize = 1_000;
const REPAIRS_MAX: usize = 1_000;

/// Entries of an answer.
pub(crate) const PAGE_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn add(history: &mut ChangeHistory, network: &str, id: &str) -> HistoryEntry {
        let subject = HistorySubject::Connection { network: network.to_owned(), id: id.to_owned() };
        history.add(subject, Some("o"), (HistoryChange::Created, None), Instant::ZERO).entry
    }

    /// Goal: demand that comes and goes without end pushes out its own entries alone, each of which
    /// the store is told to forget; other entries push out none of policing's, and those of a
    /// network none of another's. So do other brokers, who take over what is stored, and a store
    /// that has more is brought to the bounds.
    #[test]
    fn each_pushes_out_its_own_entries_alone() {
        let (mut history, mut other) = (ChangeHistory::default(), ChangeHistory::default());
        let mut kept = std::collections::BTreeSet::new();
        let police = |history: &mut ChangeHistory, number: usize| {
            let subject = HistorySubject::Network { network: "red".to_owned() };
            let change = [HistoryChange::Held, HistoryChange::LetGo][number % 2];
            history.add(subject, None, (change, None), Instant::ZERO)
        };
        let mut store = |added: AddedEntry| {
            kept.insert(added.entry.number);
            added.forgotten.iter().for_each(|number| assert!(kept.remove(number)));
            other.take_over(added.entry);
            kept.len()
        };
        let operators = add(&mut history, "blue", "c1");
        store(AddedEntry { entry: operators.clone(), forgotten: Vec::new() });
        let stored = (0..3 * HISTORY_MAX).map(|number| store(police(&mut history, number)));
        assert_eq!(stored.max(), Some(1 + POLICING_MAX));
        let mut count = 0;
        for number in 0..HISTORY_MAX {
            let subject = HistorySubject::Link { network: "n".to_owned(), link: "l".to_owned() };
            let change = [HistoryChange::LinkDown, HistoryChange::LinkUp][number % 2];
            count = store(history.add(subject, Some("o"), (change, None), Instant::ZERO));
        }
        assert_eq!(count, HISTORY_MAX + POLICING_MAX);
        let has = |history: &ChangeHistory| history.entries.iter().map(|of| of.number).collect();
        let (own, others): (Vec<u64>, Vec<u64>) = (has(&history), has(&other));
        assert!(own == others && own.iter().eq(&kept) && own.contains(&operators.number));
        let many = 1..=POLICING_MAX as u64 + 40;
        let entry =
            |number| HistoryEntry { number, change: HistoryChange::Held, ..operators.clone() };
        let mut old = ChangeHistory::new(many.map(entry).collect());
        assert_eq!(police(&mut old, 0).forgotten, (1..=41).collect::<Vec<u64>>());
    }

    /// Goal: a caller gets the entries of its own networks only, page by page, the newest first.
    /// Beyond the bound the oldest entry goes, and numbers go on after a restart.
    #[test]
    fn entries_are_found_page_by_page() {
        let mut history = ChangeHistory::default();
        for number in 0..HISTORY_MAX + 2 {
            add(&mut history, ["blue", "red"][number % 2], &format!("c{}", number % 10));
        }
        let all = HistoryQuery::default();
        let newest = history.page(&all, |_| true);
        assert_eq!((newest.len(), newest[0].number), (PAGE_MAX, HISTORY_MAX as u64 + 2));
        let last = newest[PAGE_MAX - 1].number;
        let next = HistoryQuery { before: Some(last), ..HistoryQuery::default() };
        assert_eq!(history.page(&next, |_| true)[0].number + 1, last);
        let red = history.page(&all, |network| network == "red");
        assert!(red.len() == PAGE_MAX && red.iter().all(|entry| entry.network == "red"));
        let network = Some("blue".to_owned());
        let foreign = HistoryQuery { network, ..HistoryQuery::default() };
        assert_eq!(history.page(&foreign, |network| network == "red"), []);
        let connection = Some("c3".to_owned());
        let of_one = HistoryQuery { connection, ..HistoryQuery::default() };
        let of_one = history.page(&of_one, |_| true);
        assert!(
            !of_one.is_empty() && of_one.iter().all(|of| of.connection.as_deref() == Some("c3"))
        );
        let last = HistoryQuery { before: Some(4), ..HistoryQuery::default() };
        assert_eq!(history.page(&last, |_| true).iter().map(|of| of.number).min(), Some(3));
        let mut later = ChangeHistory::new(history.entries.iter().cloned().collect());
        assert_eq!(add(&mut later, "blue", "c1").number, HISTORY_MAX as u64 + 3);
    }
}
