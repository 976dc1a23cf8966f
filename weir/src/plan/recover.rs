// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan recover`: undoes or completes an apply that was cut off.
//!
//! Two answers of a node's record are final: the change was made, or another change has its number.
//! "Not on record" is not final: the request may still be on its way. To keep it from arriving
//! after the recovery, the number is used up first, by a change without edits; then the node
//! refuses the request.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use weir_api_types::error::{ApiError, ErrorCode};
use weir_client::ClientError;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output;

use super::file::{canonical, lock};
use super::journal::{ChangeState, JournaledNode, PlanJournal, path};
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
    /// Leave this node as it is, and forget that the apply was to change it; for a node that is
    /// gone or that somebody changed since
    #[arg(long, value_name = "NODE")]
    forget: Vec<String>,
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
        let plan = canonical(&self.file)?;
        let _lock = lock(&plan)?;
        let mut left = PlanJournal::left_by(&plan)?;
        if let Some(journal) = &mut left {
            forget(journal, &self.forget, &plan)?;
        }
        let (recovered, nodes) = match &mut left {
            None => ("nothing", Vec::new()),
            Some(journal) if self.complete => ("completed", complete(journal, &plan)?),
            Some(journal) => ("undone", undo(journal, &plan)?),
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

/// Strikes nodes from the journal.
fn forget(journal: &mut PlanJournal, nodes: &[String], plan: &Path) -> Result<(), Failure> {
    for node in nodes {
        let Some(at) = journal.nodes.iter().position(|one| one.name == *node) else {
            let known: Vec<_> = journal.nodes.iter().map(|one| one.name.as_str()).collect();
            let text = format!("--forget {node}: the apply was to change {}", known.join(", "));
            return Err(UsageError(text).into());
        };
        journal.nodes.remove(at);
    }
    if nodes.is_empty() { Ok(()) } else { journal.write(plan) }
}

/// Takes back each change of the journal that holds, the last one first, and has those that were
/// not made refused for good; then removes the journal. Returns the nodes that were changed.
///
/// # Errors
/// A node does not answer or refuses; the others are undone all the same, and the journal stays.
pub(super) fn undo(journal: &PlanJournal, plan: &Path) -> Result<Vec<String>, Failure> {
    let each = journal.nodes.iter().rev();
    let settled = each.map(|one| (one.name.as_str(), undo_one(one, &journal.apply)));
    finished(settled.collect(), plan)
}

/// Makes each change of the journal that does not hold, then removes the journal. Returns the nodes
/// that were changed.
///
/// # Errors
/// A node does not answer or refuses; the others are completed all the same, and the journal stays.
fn complete(journal: &mut PlanJournal, plan: &Path) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = journal.nodes.iter().map(|one| one.name.clone()).collect();
    let mut settled = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        settled.push((name.as_str(), complete_one(journal, at, plan)));
    }
    finished(settled, plan)
}

/// Removes the journal if every node is settled. Returns the names of those with `Ok(true)`: they
/// were changed.
fn finished(
    settled: Vec<(&str, Result<bool, Failure>)>,
    plan: &Path,
) -> Result<Vec<String>, Failure> {
    let (mut changed, mut failures) = (Vec::new(), Vec::new());
    for (name, settled) in settled {
        match settled {
            Ok(true) => changed.push(name.to_owned()),
            Ok(false) => {}
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    if failures.is_empty() {
        PlanJournal::remove(plan)?;
        return Ok(changed);
    }
    let (journal, plan) = (path(plan), plan.display());
    let stays = format!(
        "{} stays. Once that is mended, `weir plan recover {plan}` does the rest; with --forget \
         NODE it leaves a node as it is.",
        journal.display()
    );
    Err(format!("{}\n{stays}", failures.join("\n")).into())
}

fn undo_one(one: &JournaledNode, apply: &str) -> Result<bool, Failure> {
    let node = connected(one)?;
    // A change that is made between reading and asking shows at the second look.
    for _ in 0..LOOKS {
        match state(&node, one, apply)? {
            ChangeState::Holds => {
                let undone = node.undo(one.number).map(|_| true);
                return undone.map_err(|error| not_taken_back(&node, one.number, &error));
            }
            ChangeState::NotMade => match node.use_up(one.number, apply) {
                Err(ClientError::Refused(ApiError { code: ErrorCode::Conflict, .. })) => {}
                used => return used.map(|_| false).map_err(|error| node.named(&error).into()),
            },
            ChangeState::Undone | ChangeState::NumberTaken | ChangeState::RecordLost => {
                return Ok(false);
            }
        }
    }
    Err(format!("node {}: others change its policy all the time", one.name).into())
}

fn complete_one(journal: &mut PlanJournal, at: usize, plan: &Path) -> Result<bool, Failure> {
    let apply = journal.apply.clone();
    let node = connected(&journal.nodes[at])?;
    if state(&node, &journal.nodes[at], &apply)? == ChangeState::Holds {
        return Ok(false);
    }
    // The number may be another change's by now. The journal has the new one before the node does.
    let set = journal.nodes[at].set.clone();
    let foreseen = node.foresee(&set, &apply).map_err(|error| node.named(&error))?;
    let number = foreseen.id;
    journal.nodes[at].renumber(foreseen);
    journal.write(plan)?;
    node.make(&set, number, &apply).map_err(|error| node.named(&error))?;
    Ok(true)
}

/// Connects as an administrator: a tenant reads only its own part of the record.
fn connected(one: &JournaledNode) -> Result<RunningNode, Failure> {
    let node = one.connect()?;
    node.administrator()?;
    Ok(node)
}

fn state(node: &RunningNode, one: &JournaledNode, apply: &str) -> Result<ChangeState, Failure> {
    let record = node.changes().map_err(|error| node.named(&error))?;
    Ok(one.state(apply, &record).map_err(|why| {
        format!("node {}: {why}: compare its policy with the plan, then --forget it", node.name)
    })?)
}

fn not_taken_back(node: &RunningNode, number: u64, error: &ClientError) -> Failure {
    let way = match error {
        ClientError::Refused(ApiError { code: ErrorCode::Conflict, .. }) => {
            "; take the later change back first, or --forget the node"
        }
        _ => "",
    };
    format!("{} (undo of change {number}){way}", node.named(error)).into()
}

fn listed(nodes: &[String]) -> String {
    if nodes.is_empty() { "no node had to be changed".to_owned() } else { nodes.join(", ") }
}

/// Attempts to settle a node while other callers change its policy.
const LOOKS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::super::fake_node::FakeNode;
    use super::*;

    /// Returns the journal of an apply `a` that was cut off after it was written.
    fn left(fakes: &[&FakeNode], name: &str) -> (PlanJournal, PathBuf) {
        let file = format!("weir-t-recover-{name}-{}.toml", std::process::id());
        let plan = std::env::temp_dir().join(file);
        let journaled = fakes.iter().map(|fake| {
            let (node, set) = (fake.node(), FakeNode::change());
            let foreseen = node.foresee(&set, "a").unwrap();
            JournaledNode::new(&node, set, foreseen)
        });
        let journal = PlanJournal::new("a".to_owned(), journaled.collect());
        journal.write(&plan).unwrap();
        (journal, plan)
    }

    /// The request of the cut-off apply arrives after the recovery: its number is gone.
    #[test]
    fn a_request_that_is_still_on_its_way_is_refused_after_the_recovery() {
        let fake = FakeNode::start("r-late");
        let (journal, plan) = left(&[&fake], "late");
        assert_eq!(undo(&journal, &plan).unwrap(), [""; 0]);
        assert!(fake.node().make(&FakeNode::change(), 1, "a").is_err());
        assert_eq!(fake.log(), ["1 a, no edits"]);
        assert!(!path(&plan).exists());
    }

    #[test]
    fn a_change_of_another_apply_with_the_same_edits_stays() {
        let fake = FakeNode::start("r-other");
        let (journal, plan) = left(&[&fake], "other");
        fake.node().make(&FakeNode::change(), 1, "b").unwrap();
        assert_eq!(undo(&journal, &plan).unwrap(), [""; 0]);
        assert_eq!(fake.log(), ["1 b"]);
    }

    /// The completion is cut off in its turn: the journal on disk has the number that was asked
    /// for, so that the next recovery takes it back.
    #[test]
    fn a_completion_writes_its_numbers_before_it_asks_for_them() {
        let fake = FakeNode::start("r-complete");
        let (mut journal, plan) = left(&[&fake], "complete");
        fake.disturb();
        fake.lose_next_answer();
        let why = complete(&mut journal, &plan).unwrap_err().to_string();
        assert!(why.contains("recover") && why.contains("--forget"), "{why}");
        let read = PlanJournal::left_by(&plan).unwrap().unwrap();
        assert_eq!(read.nodes[0].number, 2);
        assert_eq!(undo(&read, &plan).unwrap(), ["r-complete"]);
        assert_eq!(fake.log(), ["1", "2 a", "3 undoes 2"]);
    }

    #[test]
    fn a_tenant_does_not_recover() {
        let fake = FakeNode::start("r-tenant");
        let (journal, plan) = left(&[&fake], "tenant");
        fake.tenants_only();
        let why = undo(&journal, &plan).unwrap_err().to_string();
        assert!(why.contains("token t is a tenant there") && why.contains("token_file"), "{why}");
        assert!(path(&plan).exists(), "the journal stays");
        std::fs::remove_file(path(&plan)).unwrap();
    }

    #[test]
    fn a_forgotten_node_is_struck_from_the_journal() {
        let [gone, stays] = ["r-gone", "r-stays"].map(FakeNode::start);
        let (mut journal, plan) = left(&[&gone, &stays], "forget");
        forget(&mut journal, &["r-gone".to_owned()], &plan).unwrap();
        let unknown = forget(&mut journal, &["x".to_owned()], &plan).unwrap_err().to_string();
        assert_eq!(unknown, "--forget x: the apply was to change r-stays");
        let read = PlanJournal::left_by(&plan).unwrap().unwrap();
        assert_eq!(undo(&read, &plan).unwrap(), [""; 0]);
        assert_eq!((gone.log().len(), stays.log().len()), (0, 1));
    }
}
