// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of a host that `weir node run` makes, as a plan: what is done, and the way back of it.
//!
//! [`take_device`], [`host_vif`] and [`spare_cpu`] read the host and give [`Change`]s; printing
//! them is the dry run; [`apply`] makes them, each written down in the journal first.

mod spare;
mod take;
mod vif;

use std::fmt;

pub use spare::spare_cpu;
pub use take::{Take, take_device};
pub use vif::{HostVif, host_vif};

use crate::error::HostError;
use crate::journal::Journal;
use crate::run::{Command, Platform};
use crate::undo::Undo;

/// One change of the host, not made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it is for, as in "up0: leave no offload on that merges frames".
    pub what: String,
    /// What is run, in this order.
    pub run: Vec<Command>,
    /// The way back.
    pub undo: Undo,
}

/// What it is for, and below it the commands as they are typed.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}", self.what)?;
        self.run.iter().try_for_each(|command| writeln!(f, "{command}"))
    }
}

/// Makes the changes in order. If one fails, those that this call made are undone, last first.
///
/// # Errors
/// A command failed, or the journal could not be written; also what could not be undone then.
pub fn apply(journal: &mut Journal, changes: &[Change]) -> Result<(), HostError> {
    let (host, mark) = (journal.host(), journal.mark());
    let made = changes.iter().try_for_each(|change| {
        journal.record(&change.what, change.undo.clone())?;
        change
            .run
            .iter()
            .try_for_each(|command| host.run(command).map(drop).map_err(HostError::from))
    });
    let Err(error) = made else { return Ok(()) };
    let report = journal.undo_since(&host, mark)?;
    match report.failed.is_empty() {
        true => Err(error),
        false => Err(HostError::Refused(format!("{error}; left: {}", report.failed.join("; ")))),
    }
}
