// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan apply`: a plan on its running nodes, all of it or nothing.
//!
//! Two phases (Gray and Reuter, *Transaction Processing*, chapter 7, where the client coordinates):
//! first each node checks its change and says which number it would have; nothing is changed while
//! any node refuses. Then the intent of all nodes is written to a [journal](super::journal), and
//! the changes are made one node after the other. If one fails, those before it are taken back. If
//! the coordinator is killed, the next apply or recover does so.
//!
//! A node makes its change between two packets, and no queue is touched: nothing is lost by it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use weir_api_types::change::{ChangeView, EditView};
use weir_api_types::policy::PolicyView;
use weir_api_types::xtc::XtcView;
use weir_plan::{NodePlan, PlanRequest};
use weir_platform::failure::Failure;
use weir_platform::output;

use super::change_set::{PlannedChange, change_set};
use super::file::{lock, placed, print_refused, read};
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
    /// False if the nodes only checked them.
    applied: bool,
    /// Nodes on which an earlier apply was taken back.
    undone: Vec<String>,
    nodes: Vec<AppliedNodeView>,
}

#[derive(Debug, Serialize)]
struct AppliedNodeView {
    name: String,
    /// The number of the change on the node; absent if all is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
    edits: Vec<EditView>,
    notes: Vec<String>,
}

impl PlanApply {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let request = read(&self.file)?;
        let plan = match placed(&request) {
            Ok(plan) => plan,
            Err(answer) => return print_refused(&request, &answer, self.json),
        };
        let nodes = running::nodes(&request, &plan, &self.file)?;
        let _lock = lock(&self.file)?;
        let undone = match PlanJournal::left_by(&self.file)? {
            Some(journal) if self.confirm => recover::undo(&journal, &self.file)?,
            Some(_) => {
                let text = "an apply of this plan was cut off: `weir plan recover` takes it back, \
                            and so does apply --confirm";
                return Err(text.into());
            }
            None => Vec::new(),
        };
        let foreseen = foresee_all(&request, &plan, &nodes)?;
        if self.confirm {
            make_all(&nodes, &foreseen, &self.file)?;
        }
        let view = AppliedView {
            applied: self.confirm,
            undone,
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

/// Has each node check its change.
///
/// # Errors
/// All refusals of all nodes.
fn foresee_all(
    request: &PlanRequest,
    plan: &NodePlan,
    nodes: &[RunningNode],
) -> Result<Vec<(PlannedChange, ChangeView)>, Failure> {
    let (mut foreseen, mut problems) = (Vec::new(), Vec::new());
    for (planned, node) in pairs(plan, nodes) {
        let policy: PolicyView = node.get("/v1/policy")?;
        let xtc: XtcView = node.get("/v1/xtc")?;
        match change_set(request, planned, &policy, &xtc) {
            Ok(change) => match node.foresee(&change.set) {
                Ok(view) => foreseen.push((change, view)),
                Err(error) => problems.push(node.named(&error)),
            },
            Err(found) => {
                problems.extend(found.iter().map(|one| format!("node {}: {one}", node.name)));
            }
        }
    }
    if problems.is_empty() {
        return Ok(foreseen);
    }
    Err(format!("{}\nnothing was changed", problems.join("\n")).into())
}

/// Makes the change of each node that has any.
///
/// # Errors
/// A node refused or did not answer; the changes before are taken back, or the journal stays.
fn make_all(
    nodes: &[RunningNode],
    foreseen: &[(PlannedChange, ChangeView)],
    plan: &Path,
) -> Result<(), Failure> {
    let each = nodes.iter().zip(foreseen).filter(|(_, (_, view))| changes_something(view));
    let journaled = each
        .clone()
        .map(|(node, (change, view))| JournaledNode::new(node, change.set.clone(), view.clone()));
    let journal = PlanJournal::new(journaled.collect());
    journal.write(plan)?;
    for (node, (change, view)) in each {
        if let Err(error) = node.make(&change.set, view.id) {
            let why = node.named(&error);
            let undone = recover::undo(&journal, plan).map_err(|more| format!("{why}\n{more}"))?;
            let back = match undone.is_empty() {
                true => "nothing was changed".to_owned(),
                false => format!("taken back: {}", undone.join(", ")),
            };
            return Err(format!("{why}\n{back}").into());
        }
    }
    PlanJournal::remove(plan)
}

fn changes_something(view: &ChangeView) -> bool {
    view.edits.iter().any(|edit| edit.before != edit.after)
}

fn node_view(node: &RunningNode, (change, view): (PlannedChange, ChangeView)) -> AppliedNodeView {
    let number = changes_something(&view).then_some(view.id);
    let edits = view.edits.into_iter().filter(|edit| edit.before != edit.after).collect();
    AppliedNodeView { name: node.name.clone(), change: number, edits, notes: change.notes }
}

fn text(view: &AppliedView) -> String {
    let mut page = String::new();
    if !view.undone.is_empty() {
        page += &format!("An apply that was cut off is taken back: {}\n", view.undone.join(", "));
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
