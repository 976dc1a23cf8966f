// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The requests that a running node answers. The HTTP interface, which carries them, is a crate
//! above this one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use weir_dataplane::{Refusal, RefusalKind};
use weir_policy::{Edit, Policy, Problem};

use crate::changes::PolicyChange;
use weir_api_types::status::NodeStatus;
use weir_dataplane::capture::{CaptureRequest, Capturing};
use weir_loops::{
    ClassStatus, LeaseRequest, LogLine, LoopsLoad, RefusedLeases, RouterActivations, RouterStatus,
};
use weir_platform::StateDir;
use weir_report::{ReportSubject, Service, StoreAnswer, StoreQuery};

/// A running node. Most calls may wait, usually for some milliseconds; a thread that must not wait
/// must not call them.
pub trait Control: Send + Sync + 'static {
    /// Returns counters, queues and lateness.
    ///
    /// # Errors
    /// The node is busy, starting or ending.
    fn status(&self) -> Result<NodeStatus, Refusal>;

    /// Returns the policy in force, its document, and the live edits. Never waits for a change.
    ///
    /// # Errors
    /// The node is ending.
    fn policy(&self) -> Result<InForce, Refusal>;

    /// Makes all of `edits` between two packets, or none.
    ///
    /// # Errors
    /// The edits are refused; nothing has changed then.
    fn change(&self, request: &ChangeRequest<'_>, edits: &[Edit]) -> Result<PolicyChange, Refusal>;

    /// Checks `edits` as [`Self::change`] does, and changes nothing. Returns the change that they
    /// would make now.
    ///
    /// # Errors
    /// The errors of [`Self::change`] that can be foreseen. A device may still fail to open, or a
    /// disk fail to take the record.
    fn foresee(&self, request: &ChangeRequest<'_>, edits: &[Edit])
    -> Result<PolicyChange, Refusal>;

    /// Undoes a change: the newest that is not undone yet, or the one with this number.
    ///
    /// # Errors
    /// There is none, or one of its keys was changed since.
    fn undo(&self, request: &ChangeRequest<'_>, id: Option<u64>) -> Result<PolicyChange, Refusal>;

    /// Returns the newest `most` of the changes on record that are `wanted`, oldest first.
    fn changes(&self, most: usize, wanted: &dyn Fn(&PolicyChange) -> bool) -> Vec<PolicyChange>;

    /// Returns the service that tenants got in a span of time.
    ///
    /// # Errors
    /// There is no store of records, or it cannot be read.
    fn report(&self, question: &StoreQuery) -> Result<StoreAnswer, Refusal>;

    /// Returns the service of each vif and slice since the node started, send and receive.
    fn service(&self) -> BTreeMap<ReportSubject, [Service; 2]>;

    /// Returns the status of all routers that are held at a rate, in the policy's order, or of the
    /// named one, and the load of all control loops.
    ///
    /// # Errors
    /// The control loops do not answer.
    fn routers(&self, router: Option<&str>) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal>;

    /// Takes set-points of a controller of several nodes, which hold for a bounded time and are on
    /// no record. Returns the routers for which they are refused, each with the reason.
    ///
    /// # Errors
    /// The control loops do not answer.
    fn lease(&self, request: LeaseRequest) -> Result<RefusedLeases, Refusal>;

    /// Returns the newest decisions on a router, oldest first.
    ///
    /// # Errors
    /// The router is not held at a rate, or the control loops do not answer.
    fn router_log(&self, router: &str, newest: usize) -> Result<Vec<LogLine>, Refusal>;

    /// Returns the status of the classes of routers, in the policy's order.
    ///
    /// # Errors
    /// The thread that keeps them does not answer.
    fn classes(&self) -> Result<Vec<ClassStatus>, Refusal>;

    /// Watches the activations of a router's threads for `span`, and waits for that long.
    ///
    /// # Errors
    /// There is no such router; it has no threads that can be watched; the kernel refuses.
    fn activations(&self, router: &str, span: Duration) -> Result<RouterActivations, Refusal>;

    /// Reads the configuration file again and applies what changed.
    ///
    /// # Errors
    /// The file is refused.
    fn reload(&self, who: &str) -> Result<(), Refusal>;

    /// Adds a line for the operator. Lines beyond a bound are only counted.
    fn note(&self, line: String);

    /// Keeps a node that was started with `--confirm`.
    fn confirm(&self);

    /// Undoes everything and ends.
    fn stop(&self);

    /// Ends, and leaves devices and data plane to the next start.
    fn leave(&self);

    /// Begins a capture, which goes on until the sender or the receiver of blocks is dropped.
    ///
    /// # Errors
    /// There is nothing to capture.
    fn capture(&self, request: CaptureRequest) -> Result<Capturing, Refusal>;
}

/// The caller of a change, with its rights.
pub struct ChangeRequest<'r> {
    /// The caller's name in the record.
    pub who: &'r str,
    /// True if the caller may take back only its own changes.
    pub own: bool,
    /// The number that the change must get, if the caller asks for one. If another change has taken
    /// the number meanwhile, this one is refused; so a change that is sent twice is made once.
    pub number: Option<u64>,
    /// The id of the apply of a plan that the change is part of.
    pub apply: Option<&'r str>,
    /// Refuses changes that the caller may not make.
    pub may: &'r ChangePermission<'r>,
    /// Selects the problems of a refused policy that the caller may read, since some concern other
    /// tenants.
    pub sees: &'r ProblemVisibility<'r>,
}

/// Judges a change by the policy in force, the policy that would be in force, and the edits between
/// them.
pub type ChangePermission<'p> = dyn Fn(&Policy, &Policy, &[Edit]) -> Result<(), Refusal> + 'p;

/// Returns true if a caller may read about a problem of a policy; the first argument is the policy
/// in force.
pub type ProblemVisibility<'p> = dyn Fn(&Policy, &Problem) -> bool + 'p;

/// The policy in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its document: the policy file with the live edits.
    pub document: Arc<str>,
    /// The live edits, which lead from the file to the document.
    pub overlay: Arc<[Edit]>,
}

/// Returns the path of the control socket of the node `name` below the state directory.
#[must_use]
pub fn socket_path(state: &Path, name: &str) -> PathBuf {
    StateDir::at(state).node_socket(name)
}

/// Returns the path of the control socket of the only node below the state directory.
///
/// # Errors
/// There is none, or there are several; the error names them.
pub fn only_socket(state: &Path) -> std::io::Result<PathBuf> {
    let names = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("node-")?.strip_suffix(".sock")?.to_owned())
    };
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    let mut nodes: Vec<String> = entries.filter_map(names).collect();
    nodes.sort();
    match nodes.as_slice() {
        [only] => Ok(socket_path(state, only)),
        [] => Err(std::io::Error::other(format!("{}: no node runs here", state.display()))),
        several => {
            let text = format!("nodes {} run here: say which", several.join(", "));
            Err(std::io::Error::other(text))
        }
    }
}
