// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir doctor`: what this host offers, what is missing, and what that costs.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use weir_api_types::status::Health;
use weir_client::Client;
use weir_platform::StateDir;
use weir_platform::cap::MissingActuator;
use weir_platform::cap::xl_text::XenScheduler;
use weir_platform::doctor::{self, DoctorFinding, Facts, Severity};

use weir_platform::failure::Failure;
use weir_platform::output;

/// Say what this kernel and host can do, found by trying, and what is missing and what that costs;
/// and what the nodes that run here complain of, or do not enforce of their policies. Exit status
/// 1: a node cannot run here.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The answer as JSON.
#[derive(Serialize)]
struct Report<'f> {
    /// True if a node can run.
    can_run: bool,
    findings: &'f [DoctorFinding],
    facts: &'f Facts,
    nodes: &'f [NodeFindings],
}

/// The complaints of a running node, and the keys of its policy that it does not enforce here.
#[derive(Serialize)]
struct NodeFindings {
    node: String,
    findings: Vec<String>,
    unheld: Vec<String>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let facts = doctor::probe()?;
        let findings = facts.findings();
        let nodes = running_nodes(StateDir::from_env().path());
        let can_run = findings.iter().all(|finding| finding.severity != Severity::Missing);
        if self.json {
            output::print_json(&Report {
                can_run,
                findings: &findings,
                facts: &facts,
                nodes: &nodes,
            })?;
        } else {
            output::print(&(page(&facts, &findings, can_run) + &node_lines(&nodes)))?;
        }
        Ok(if can_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Asks each node that runs here. One that does not answer says so by it.
fn running_nodes(state: &Path) -> Vec<NodeFindings> {
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    let mut nodes: Vec<NodeFindings> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let node = name.strip_prefix("node-")?.strip_suffix(".sock")?.to_owned();
            let health = Client::new(&entry.path()).get::<Health>("/v1/health");
            let (findings, unheld) = match health {
                Ok(Health { findings, unheld, .. }) => (findings, unheld),
                Err(error) => (vec![error.to_string()], Vec::new()),
            };
            Some(NodeFindings { node, findings, unheld })
        })
        .collect();
    nodes.sort_by(|a, b| a.node.cmp(&b.node));
    nodes
}

fn node_lines(nodes: &[NodeFindings]) -> String {
    let lines = |NodeFindings { node, findings, unheld }: &NodeFindings| {
        if findings.is_empty() && unheld.is_empty() {
            return format!("node {node} runs: nothing is wrong\n");
        }
        let wrong = findings.iter().map(|finding| format!("node {node}: {finding}\n"));
        wrong.chain(unheld.iter().map(|key| format!("node {node}: not held: {key}\n"))).collect()
    };
    nodes.iter().map(lines).collect()
}

/// Says whether guests of Xen could have a real-time class.
fn rtds(facts: &Facts) -> &'static str {
    let xl = facts.caps.iter().find(|way| way.name == "xl").map(|way| &way.there);
    match xl {
        Some(Err(MissingActuator::NoCaps(XenScheduler::Rtds))) => "Xen runs RTDS",
        None | Some(Err(MissingActuator::NoXen)) => "no Xen and so no RTDS",
        Some(_) => "Xen does not run RTDS",
    }
}

/// Formats the answer: the machine, its devices, the means of capping, then the findings.
fn page(facts: &Facts, findings: &[DoctorFinding], can_run: bool) -> String {
    let mut page = String::new();
    let processors = facts.processors;
    let _written = writeln!(page, "{}, {processors} processors", facts.kernel);
    for device in &facts.devices {
        let kind = device.kind.as_deref().unwrap_or("hardware");
        let offloads = device.offloads.join(", ");
        let (name, queues, mtu) = (&device.name, device.queues, device.mtu);
        let _written = writeln!(page, "{name}: {kind}, {queues} queues, mtu {mtu}: {offloads}");
    }
    for actuator in &facts.caps {
        let (name, caps) = (actuator.name, actuator.caps);
        let _written = match &actuator.there {
            Ok(place) => writeln!(page, "cap of {caps}: {name}: {place}"),
            Err(missing) => writeln!(page, "cap of {caps}: {name}: no: {missing}"),
        };
    }
    let (timing, wake_up) = (&facts.timing, facts.wake_up_us);
    let _written =
        writeln!(page, "real-time classes: {timing}, awake within {wake_up}us, {}", rtds(facts));
    for finding in findings {
        let _written = writeln!(page, "{finding}");
    }
    page + if can_run { "a node can run here\n" } else { "a node cannot run here\n" }
}
