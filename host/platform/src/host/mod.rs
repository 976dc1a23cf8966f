// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes of a host that `weir node run` makes, as a plan: commands, and their undo.
//!
//! [`take_device`], [`host_vif`] and [`spare_cpu`] read the host and return [`Change`]s. A dry run
//! prints them; [`apply`] records them in the journal and makes them.

mod spare;
mod take;
mod vif;

use std::fmt;

pub use spare::spare_cpu;
pub use take::{TakeRequest, take_device, take_devices};
pub use vif::{HostVif, host_vif};

use crate::error::HostError;
use crate::journal::{Journal, JournalEntry};
use crate::merge::merge;
use crate::purpose::ChangePurpose;
use crate::run::{Command, Platform, RunError};
use crate::undo::Undo;

/// One change of the host, not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its purpose in the journal.
    pub purpose: ChangePurpose,
    /// Its description, for example "up0: leave no offload on that merges frames".
    pub what: String,
    /// The commands, in this order.
    pub run: Vec<Command>,
    /// Its undo.
    pub undo: Undo,
}

/// Prints the description, and below it the commands as they are typed.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}", self.what)?;
        self.run.iter().try_for_each(|command| writeln!(f, "{command}"))
    }
}

/// Runs the commands in order, in few processes; stops at the first that fails.
///
/// # Errors
/// A command failed; the earlier ones took effect.
pub fn run_all<'a>(
    on: &dyn Platform,
    commands: impl IntoIterator<Item = &'a Command>,
) -> Result<(), RunError> {
    merge(commands).iter().try_for_each(|(command, _)| on.run(command).map(drop))
}

/// Records all changes in the journal, with one sync, then makes them in order. If one fails, all
/// are undone, last first.
///
/// # Errors
/// A command failed, or the journal could not be written. The text names changes that could not be
/// undone.
pub fn apply(journal: &mut Journal, changes: &[Change]) -> Result<(), HostError> {
    let (host, mark) = (journal.host(), journal.mark());
    journal.record_all(changes.iter().map(|change| JournalEntry {
        purpose: change.purpose.clone(),
        what: &change.what,
        undo: &change.undo,
    }))?;
    let made = run_all(&host, changes.iter().flat_map(|change| &change.run));
    let Err(error) = made else { return Ok(()) };
    let report = journal.undo_since(&host, mark)?;
    match report.failed.is_empty() {
        true => Err(error.into()),
        false => Err(HostError::Refused(format!("{error}; left: {}", report.failed.join("; ")))),
    }
}
