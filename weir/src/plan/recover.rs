// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan recover`: what an apply that was cut off left half made.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use weir_client::ClientError;
use weir_platform::failure::Failure;
use weir_platform::output;

use super::file::lock;
use super::journal::{JournaledNode, PlanJournal, path};
use super::running::RunningNode;

/// Take back what an apply of this plan that was cut off had changed, so that each node is as it
/// was before; or make the rest of it. Without a journal of one, nothing is done.
#[derive(Debug, Args)]
pub(crate) struct PlanRecover {
    /// The plan's file
    file: PathBuf,
    /// Make the rest instead, so that the plan holds on each node
    #[arg(long)]
    complete: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The nodes that a recovery changed.
#[derive(Debug, Serialize)]
struct RecoveredView {
    recovered: &'static str,
    nodes: Vec<String>,
}

impl PlanRecover {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let _lock = lock(&self.file)?;
        let left = PlanJournal::left_by(&self.file)?;
        let (recovered, nodes) = match &left {
            None => ("nothing", Vec::new()),
            Some(journal) if self.complete => ("completed", complete(journal, &self.file)?),
            Some(journal) => ("undone", undo(journal, &self.file)?),
        };
        if self.json {
            output::print_own(&RecoveredView { recovered, nodes })?;
        } else if left.is_none() {
            output::print("No apply of this plan was cut off.\n")?;
        } else {
            output::print(&format!("{recovered}: {}\n", listed(&nodes)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Takes back each change of the journal that holds, the last one first, then removes the journal.
/// Returns the nodes that were changed.
///
/// # Errors
/// A node does not answer or refuses; the others are undone all the same, and the journal stays.
pub(super) fn undo(journal: &PlanJournal, plan: &Path) -> Result<Vec<String>, Failure> {
    let nodes = journal.nodes.iter().rev();
    finish(nodes, plan, |one, node, holds| match holds {
        true => node.undo(one.number).map(|_| true),
        false => Ok(false),
    })
}

/// Makes each change of the journal that does not hold, then removes the journal. Returns the nodes
/// that were changed.
///
/// # Errors
/// As for [`undo`].
fn complete(journal: &PlanJournal, plan: &Path) -> Result<Vec<String>, Failure> {
    finish(journal.nodes.iter(), plan, |one, node, holds| match holds {
        true => Ok(false),
        // Another change may have taken the number meanwhile.
        false => {
            let foreseen = node.foresee(&one.set)?;
            node.make(&one.set, foreseen.id).map(|_| true)
        }
    })
}

fn finish<'j>(
    nodes: impl Iterator<Item = &'j JournaledNode>,
    plan: &Path,
    step: impl Fn(&JournaledNode, &RunningNode, bool) -> Result<bool, ClientError>,
) -> Result<Vec<String>, Failure> {
    let (mut changed, mut failures) = (Vec::new(), Vec::new());
    for one in nodes {
        match finish_one(one, &step) {
            Ok(true) => changed.push(one.name.clone()),
            Ok(false) => {}
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    if failures.is_empty() {
        PlanJournal::remove(plan)?;
        return Ok(changed);
    }
    let stays = format!("{} stays: recover again once they answer", path(plan).display());
    Err(format!("{}\n{stays}", failures.join("\n")).into())
}

fn finish_one(
    one: &JournaledNode,
    step: impl Fn(&JournaledNode, &RunningNode, bool) -> Result<bool, ClientError>,
) -> Result<bool, Failure> {
    let node = one.connect()?;
    let record = node.changes().map_err(|error| node.named(&error))?;
    let holds = one.holds(&record).map_err(|why| format!("node {}: {why}", one.name))?;
    Ok(step(one, &node, holds).map_err(|error| node.named(&error))?)
}

fn listed(nodes: &[String]) -> String {
    if nodes.is_empty() { "no node had to be changed".to_owned() } else { nodes.join(", ") }
}
