// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A journal of changes to the host that is opened when it is needed.
//!
//! Leftovers of an earlier run are undone when it is opened. What cannot be undone then is reported
//! and tried again with every later use; it never blocks a start.

use std::sync::Arc;
use std::time::Duration;

use weir_dataplane::clock;
use weir_platform::journal::UndoReport;
use weir_platform::{HostError, Journal, StateDir};
use weir_units::{Instant, Nanos};

use super::error::{Leftovers, RouterError};
use super::parts::Tell;

/// The journal of one part of a node.
pub(crate) struct HostJournal {
    state: StateDir,
    name: String,
    tell: Tell,
    record: JournalState,
}

enum JournalState {
    /// It could not be opened: the time of the next attempt, and the reason.
    Closed(Instant, Option<Arc<HostError>>),
    Open {
        journal: Journal,
        /// The journal's end when it was opened: earlier entries are leftovers that could not be
        /// undone yet.
        left: Option<u64>,
    },
    /// The node has ended.
    Ended,
}

impl HostJournal {
    /// Opens the journal of that name and undoes leftovers of an earlier run. If it cannot be
    /// opened, the operator is told the reason, behind `not_yet`.
    pub(crate) fn new(state: &StateDir, name: String, not_yet: &str, tell: Tell) -> Self {
        let record = JournalState::Closed(clock::now(), None);
        let mut journal = Self { state: state.clone(), name, tell, record };
        if let Err(why) = journal.open(LOCK_PATIENCE) {
            (journal.tell)(format!("{not_yet}: {why}"));
        }
        journal
    }

    /// Opens the journal if it is closed, and undoes leftovers of an earlier run.
    ///
    /// # Errors
    /// It cannot be opened, or the node is ending.
    pub(crate) fn open(&mut self, patience: Duration) -> Result<&mut Journal, RouterError> {
        match &mut self.record {
            JournalState::Ended => return Err(RouterError::Ending),
            JournalState::Closed(again, Some(error)) if clock::now() < *again => {
                return Err(RouterError::Host(Arc::clone(error)));
            }
            JournalState::Closed(again, last) => {
                match Journal::open(&self.state, &self.name, patience) {
                    Ok(journal) => {
                        let left = Some(journal.mark());
                        self.record = JournalState::Open { journal, left };
                        let undone = self.undo_left();
                        undone.into_iter().for_each(|line| (self.tell)(line));
                    }
                    Err(error) => {
                        *again = clock::now() + OPEN_RETRY;
                        return Err(RouterError::Host(Arc::clone(last.insert(Arc::new(error)))));
                    }
                }
            }
            JournalState::Open { left: None, .. } => {}
            JournalState::Open { left: Some(_), .. } => {
                self.undo_left();
            }
        }
        self.opened().ok_or(RouterError::Ending)
    }

    /// Returns the journal if it is open.
    pub(crate) const fn opened(&mut self) -> Option<&mut Journal> {
        match &mut self.record {
            JournalState::Open { journal, .. } => Some(journal),
            JournalState::Closed(..) | JournalState::Ended => None,
        }
    }

    /// Undoes everything, for good.
    ///
    /// # Errors
    /// The leftovers.
    pub(crate) fn end(&mut self) -> Result<(), RouterError> {
        let record = std::mem::replace(&mut self.record, JournalState::Ended);
        let JournalState::Open { journal, .. } = record else { return Ok(()) };
        let on = journal.host();
        left_by(journal.undo_all(&on)).map_or(Ok(()), |left| Err(RouterError::Left(left)))
    }

    /// Undoes leftovers of an earlier run; returns a line each.
    fn undo_left(&mut self) -> Vec<String> {
        let JournalState::Open { journal, left } = &mut self.record else { return Vec::new() };
        let Some(before) = *left else { return Vec::new() };
        let on = journal.host();
        match journal.undo_those(&on, |place, _| place < before) {
            Ok(report) => {
                if report.failed.is_empty() {
                    *left = None;
                }
                let undone = report.undone.into_iter();
                let undone = undone.map(|what| format!("undone, left by an earlier run: {what}"));
                let failed = report.failed.into_iter();
                let failed = failed.map(|what| format!("left by an earlier run: {what}"));
                undone.chain(failed).collect()
            }
            Err(error) => vec![format!("routers: {error}")],
        }
    }
}

/// Returns the leftovers of an undo; `None` if there are none.
pub(crate) fn left_by(undone: Result<UndoReport, HostError>) -> Option<Leftovers> {
    match undone {
        Ok(report) if report.failed.is_empty() => None,
        Ok(report) => Some(Leftovers::Failed(report.failed)),
        Err(error) => Some(Leftovers::Journal(Arc::new(error))),
    }
}

/// The wait for the journal's lock: an earlier run of the same node may be about to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The time between attempts to open the journal.
const OPEN_RETRY: Nanos = Nanos::from_secs(1);
