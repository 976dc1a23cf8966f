// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The undo of one change of the host, as data that survives a crash.
//!
//! An undo may run twice, before its change was made, or after a person undid the change by hand.
//! So each variant treats an object that does not exist as undone.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control_group;
use crate::cpu;
use crate::error::HostError;
use crate::netns;
use crate::process::{self, Identity};
use crate::run::{Command, Platform};

/// The undo of one change. It may be applied before the change was made, after it, and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Undo {
    /// Run these commands; a thing that does not exist any more counts as undone.
    Run(Vec<Command>),
    /// End the processes inside and delete the namespace with all that is in it.
    DeleteNamespace(String),
    /// End a process that was started.
    EndProcess(Identity),
    /// Remove a file, or an empty folder (a control group).
    Remove(PathBuf),
    /// Remove a folder that was made for files of one run, with everything in it.
    RemoveTree(PathBuf),
    /// Write the earlier text back into a file of the kernel, such as a control group's limit.
    Write {
        /// The file.
        path: PathBuf,
        /// The text that it held.
        text: String,
    },
    /// Disable the CPU controller for the groups below the root of a tree (version 2), unless one
    /// of them uses it.
    DisableCpu(PathBuf),
    /// Move every process of a control group to another, then remove the group.
    Dissolve {
        /// The group.
        group: PathBuf,
        /// The group that its processes go to.
        to: PathBuf,
    },
    /// Move a process back to the control group that it was in.
    Move {
        /// The process.
        process: Identity,
        /// The group that it was in.
        to: PathBuf,
    },
    /// Take deadline and real-time priority from a thread.
    Ordinary(Identity),
    /// Take the deadline budgets from all threads of a process.
    OrdinaryProcess(Identity),
}

impl Undo {
    /// Makes an undo by one command.
    pub fn run(command: Command) -> Self {
        Self::Run(vec![command])
    }

    /// Returns the command, if the undo consists of a single one.
    pub(crate) fn command(&self) -> Option<&Command> {
        match self {
            Self::Run(commands) => match commands.as_slice() {
                [command] => Some(command),
                _ => None,
            },
            _ => None,
        }
    }

    /// Undoes the change.
    ///
    /// # Errors
    /// The change, or a part of it, is still in force.
    pub fn apply(&self, on: &dyn Platform) -> Result<(), HostError> {
        match self {
            Self::Run(commands) => {
                let mut first = Ok(());
                for command in commands {
                    match on.run(command) {
                        Err(error) if !error.is_gone() && first.is_ok() => {
                            first = Err(error.into())
                        }
                        _ => {}
                    }
                }
                first
            }
            Self::DeleteNamespace(name) => netns::delete(on, name),
            Self::EndProcess(identity) => process::end_all(&[*identity], PATIENCE),
            Self::Remove(path) => tolerate(match fs::symlink_metadata(path) {
                Ok(meta) if meta.is_dir() => fs::remove_dir(path),
                Ok(_) => fs::remove_file(path),
                Err(error) => Err(error),
            })
            .map_err(|error| HostError::io("remove", path, error)),
            Self::RemoveTree(path) => tolerate(fs::remove_dir_all(path))
                .map_err(|error| HostError::io("remove", path, error)),
            Self::Write { path, text } => tolerate(control_group::write(path, text))
                .map_err(|error| HostError::io("write back", path, error)),
            Self::DisableCpu(root) => control_group::disable(root),
            Self::Dissolve { group, to } => control_group::dissolve(group, to),
            Self::Move { process, to } => control_group::move_back(process, to),
            Self::Ordinary(thread) => cpu::make_ordinary(*thread),
            Self::OrdinaryProcess(process) => cpu::make_process_ordinary(*process),
        }
    }

    /// Returns true if a reboot undoes the change, too: that holds for every change except files on
    /// a disk.
    pub const fn ends_with_boot(&self) -> bool {
        !matches!(self, Self::Remove(_) | Self::RemoveTree(_))
    }
}

/// Turns the error of a missing thing into success. A file of a control group that is being removed
/// answers with ENODEV.
fn tolerate(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// The time that a process may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);
