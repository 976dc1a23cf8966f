// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan apply`: brings a plan to its running nodes, as a whole or not at all.
//!
//! It is a two-phase commit that the client coordinates (Gray and Reuter, *Transaction Processing*,
//! chapter 7). First each node checks its change and returns the number that the change would have;
//! if any node refuses, nothing is changed. Then the changes of all nodes are written to a
//! [journal](super::journal), and made one node after the other. If one fails, the changes before
//! it are undone. If the coordinator is killed, the next apply or recover undoes them.
//!
//! A node makes its change between two packets and touches no queue, so no packet is lost.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use weir_api_types::change::{ChangeView, EditView};
use weir_api_types::policy::PolicyView;
use weir_api_types::xtc::XtcView;
use weir_plan::{NodePlan, PlanRequest, PlannedNode};
use weir_platform::failure::Failure;
use weir_platform::output;

use super::change_set::{PlannedChange, change_set};
use super::file::{canonical, lock, placed, print_refused, read};
use super::journal::{JournaledNode, PlanJournal};
use super::recover;
use super::running::{self, RunningNode, pairs};
use crate::live::lines;

/// Bring a plan to its running nodes: guarantees, limits and phases of slices, caps and set-points
/// of held routers, as live changes, on all nodes or on none. Without --confirm each node only
/// checks what it would change. An earlier apply that was cut off is taken back first.
#[derive(Debug, Args)]
pub(crate) struct PlanApply {
    /// The plan's file, where each node has its address: docs/planning.md
    file: PathBuf,
    /// Change the nodes
    #[arg(long)]
    confirm: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The changes of all nodes.
#[derive(Debug, Serialize)]
struct AppliedView {
    /// False if the nodes only checked the changes.
    applied: bool,
    /// Nodes on which an earlier apply was undone.
    undone: Vec<String>,
    nodes: Vec<AppliedNodeView>,
}

#[derive(Debug, Serialize)]
struct AppliedNodeView {
    name: String,
    /// The number of the change on the node; absent if nothing had to change.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    edits: Vec<EditView>,
    notes: Vec<String>,
}

impl PlanApply {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let file = canonical(&self.file)?;
        if !self.confirm {
            return self.checked(&file);
        }
        let _lock = lock(&file)?;
        // First undo an earlier apply that was cut off: the plan is for the nodes without it.
        let undone = match PlanJournal::left_by(&file)? {
            Some(journal) => recover::undo(&journal, &file)?,
            None => Vec::new(),
        };
        let undone = undone.as_slice();
        let told = |failure: Failure| match undone {
            [] => failure,
            _ => format!("{failure}\n{}", leftover(undone)).into(),
        };
        self.applied(&file, undone).map_err(told)
    }

    /// Has the nodes check the plan, and changes nothing.
    fn checked(&self, file: &Path) -> Result<ExitCode, Failure> {
        if PlanJournal::left_by(file)?.is_some() {
            let plan = file.display();
            return Err(format!(
                "an apply of this plan runs, or was cut off: `weir plan recover {plan}` takes it \
                 back, and so does apply --confirm"
            )
            .into());
        }
        self.applied(file, &[])
    }

    fn applied(&self, file: &Path, undone: &[String]) -> Result<ExitCode, Failure> {
        let request = read(file)?;
        let plan = match placed(&request) {
            Ok(plan) => plan,
            Err(answer) => {
                if !undone.is_empty() {
                    eprintln!("{}", leftover(undone));
                }
                return print_refused(&request, &answer, self.json);
            }
        };
        let nodes = running::nodes(&request, &plan, file)?;
        let apply = apply_id()?;
        let foreseen = foresee_all(&request, &plan, &nodes, &apply)
            .map_err(|why| format!("{why}\nthis plan has changed nothing"))?;
        if self.confirm {
            make_all(&nodes, &foreseen, apply, file)?;
        }
        let view = AppliedView {
            applied: self.confirm,
            undone: undone.to_vec(),
            nodes: nodes.iter().zip(foreseen).map(|(node, of)| node_view(node, of)).collect(),
        };
        if self.json {
            output::print_own(&view)?;
        } else {
            output::print(&text(&view))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the line that an earlier apply of the plan was undone.
fn leftover(undone: &[String]) -> String {
    format!("an earlier apply, which was cut off, is taken back: {}", undone.join(", "))
}

/// Makes an id that no other apply has, on any machine.
fn apply_id() -> Result<String, Failure> {
    let id = std::fs::read_to_string(RANDOM_ID).map_err(|error| format!("{RANDOM_ID}: {error}"))?;
    Ok(id.trim().to_owned())
}

/// Has each node check its change.
///
/// # Errors
/// All refusals of all nodes.
fn foresee_all(
    request: &PlanRequest,
    plan: &NodePlan,
    nodes: &[RunningNode],
    apply: &str,
) -> Result<Vec<(PlannedChange, ChangeView)>, Failure> {
    let (mut foreseen, mut problems) = (Vec::new(), Vec::new());
    for (planned, node) in pairs(plan, nodes) {
        match foresee(request, planned, node, &policy_of(node)?, apply)? {
            Ok(found) => foreseen.push(found),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(foreseen) } else { Err(problems.join("\n").into()) }
}

/// Reads a node's policy in force.
///
/// # Errors
/// The node does not answer, or the caller's token is a tenant's, which does not show the whole
/// policy.
pub(super) fn policy_of(node: &RunningNode) -> Result<PolicyView, Failure> {
    node.administrator()?;
    node.get("/v1/policy")
}

/// Has a node check its change, which is computed from the policy in force. If the node refuses, or
/// differs from the node that the plan describes, returns all reasons.
///
/// # Errors
/// The node does not answer.
pub(super) fn foresee(
    request: &PlanRequest,
    planned: &PlannedNode,
    node: &RunningNode,
    policy: &PolicyView,
    apply: &str,
) -> Result<Result<(PlannedChange, ChangeView), Vec<String>>, Failure> {
    let xtc: XtcView = node.get("/v1/xtc")?;
    Ok(match change_set(request, planned, policy, &xtc) {
        Ok(change) => match node.foresee(&change.set, apply) {
            Ok(view) => Ok((change, view)),
            Err(error) => Err(vec![node.named(&error)]),
        },
        Err(found) => Err(found.iter().map(|one| format!("node {}: {one}", node.name)).collect()),
    })
}

/// Makes the changes of all nodes that have any.
///
/// # Errors
/// A node refused or did not answer. The changes before it are undone; if that fails, the journal
/// stays.
fn make_all(
    nodes: &[RunningNode],
    foreseen: &[(PlannedChange, ChangeView)],
    apply: String,
    plan: &Path,
) -> Result<(), Failure> {
    let each = nodes.iter().zip(foreseen).filter(|(_, (_, view))| is_effective(view));
    let journaled = each
        .clone()
        .map(|(node, (change, view))| JournaledNode::new(node, change.set.clone(), view.clone()));
    let mut journal = PlanJournal::new(apply, journaled.collect());
    if journal.nodes.is_empty() {
        return Ok(());
    }
    journal.write(plan)?;
    for (at, (node, (change, view))) in each.enumerate() {
        if let Err(error) = node.make(&change.set, view.id, &journal.apply) {
            let why = node.named(&error);
            // No request was sent to the nodes after this one.
            journal.nodes.truncate(at + 1);
            let undone = recover::undo(&journal, plan).map_err(|more| format!("{why}\n{more}"))?;
            let back = match undone.is_empty() {
                true => "this plan has changed nothing".to_owned(),
                false => format!("this plan is taken back: {}", undone.join(", ")),
            };
            return Err(format!("{why}\n{back}").into());
        }
    }
    PlanJournal::remove(plan)
}

/// Tells whether a change would alter anything.
fn is_effective(view: &ChangeView) -> bool {
    view.effective_edits().next().is_some()
}

fn node_view(node: &RunningNode, (change, view): (PlannedChange, ChangeView)) -> AppliedNodeView {
    let number = is_effective(&view).then_some(view.id);
    let edits = view.effective_edits().cloned().collect();
    AppliedNodeView { name: node.name.clone(), change: number, edits, notes: change.notes }
}

fn text(view: &AppliedView) -> String {
    let mut page = String::new();
    if !view.undone.is_empty() {
        page += &format!("{}\n", leftover(&view.undone));
    }
    for node in &view.nodes {
        let number = match (view.applied, node.change) {
            (_, None) => "all is there already".to_owned(),
            (true, Some(number)) => format!("change {number}"),
            (false, Some(number)) => format!("would be change {number}"),
        };
        page += &format!("{}: {number}\n", node.name);
        let notes = node.notes.iter().map(|note| format!("{note}\n"));
        let body: String = std::iter::once(lines(&node.edits)).chain(notes).collect();
        body.lines().for_each(|line| page += &format!("  {line}\n"));
    }
    if !view.applied {
        page += "Nothing was changed. --confirm makes these changes, all or none.\n";
    }
    page
}

/// The kernel returns a new random id at each read.
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";

#[cfg(test)]
mod tests {
    use super::super::fake_node::FakeNode;
    use super::super::journal::path;
    use super::*;

    fn plan(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("weir-t-apply-{name}-{}.toml", std::process::id()))
    }

    fn made(fakes: &[&FakeNode], name: &str) -> (Result<(), Failure>, std::path::PathBuf) {
        let nodes: Vec<_> = fakes.iter().map(|fake| fake.node()).collect();
        let foresee = |node: &RunningNode| {
            let change = PlannedChange { set: FakeNode::change(), ..PlannedChange::default() };
            let view = node.foresee(&change.set, "a").unwrap();
            (change, view)
        };
        let foreseen: Vec<_> = nodes.iter().map(foresee).collect();
        let plan = plan(name);
        (make_all(&nodes, &foreseen, "a".to_owned(), &plan), plan)
    }

    #[test]
    fn a_node_that_refuses_midway_has_those_before_it_taken_back() {
        let [first, second, third] = ["m1", "m2", "m3"].map(FakeNode::start);
        second.refuse_next();
        let (made, plan) = made(&[&first, &second, &third], "midway");
        let why = made.unwrap_err().to_string();
        assert_eq!(why, "node m2: no disk\nthis plan is taken back: m1");
        assert_eq!(first.log(), ["1 a", "2 undoes 1"]);
        assert_eq!(second.log(), ["1 a, no edits"], "the number is used up");
        assert_eq!(third.log(), [""; 0], "it was never asked");
        assert!(!path(&plan).exists());
    }

    /// The node made the change, but its answer was lost. The change is on record, and is undone.
    #[test]
    fn a_node_that_answers_too_late_is_taken_back_too() {
        let [first, second] = ["l1", "l2"].map(FakeNode::start);
        second.lose_next_answer();
        let (made, plan) = made(&[&first, &second], "late");
        let why = made.unwrap_err().to_string();
        assert!(why.ends_with("\nthis plan is taken back: l2, l1"), "{why}");
        assert_eq!(second.log(), ["1 a", "2 undoes 1"]);
        assert!(!path(&plan).exists());
    }

    #[test]
    fn a_plan_that_holds_already_writes_no_journal() {
        let fake = FakeNode::start("same");
        let node = fake.node();
        let mut view = node.foresee(&FakeNode::change(), "a").unwrap();
        view.edits.iter_mut().for_each(|edit| edit.after = edit.before.clone());
        let plan = std::path::Path::new("/nowhere/plan.toml");
        make_all(&[node], &[(PlannedChange::default(), view)], "a".to_owned(), plan).unwrap();
        assert_eq!(fake.log(), [""; 0]);
    }
}
