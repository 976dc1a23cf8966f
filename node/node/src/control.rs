// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be asked of a running node, whoever carries the question: the HTTP interface is a
//! crate above this one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use weir_dataplane::{Refusal, RefusalKind};
use weir_policy::{Edit, Policy, Problem};

use crate::changes::Change;
use weir_api_types::status::NodeStatus;
use weir_dataplane::capture::{CaptureRequest, Capturing};
use weir_loops::{LogLine, LoopsLoad, RouterStatus};
use weir_report::{Answer, Question, Service, Subject};

/// A running node. Every call may wait, some milliseconds as a rule: never call it on a thread that
/// must not.
pub trait Control: Send + Sync + 'static {
    /// Counters, queues, lateness.
    ///
    /// # Errors
    /// The node is busy, starting or ending.
    fn status(&self) -> Result<NodeStatus, Refusal>;

    /// The policy in force, its document, and what of it holds beside the file. Never waits for a
    /// change.
    ///
    /// # Errors
    /// The node is ending.
    fn policy(&self) -> Result<InForce, Refusal>;

    /// Makes all of `edits` between two packets, or none.
    ///
    /// # Errors
    /// Why they are refused; nothing has changed then.
    fn change(&self, request: &ChangeRequest<'_>, edits: &[Edit]) -> Result<Change, Refusal>;

    /// Takes a change back: the newest that was not taken back yet, or the one of that number.
    ///
    /// # Errors
    /// There is none, or something else holds now at one of its places.
    fn undo(&self, request: &ChangeRequest<'_>, id: Option<u64>) -> Result<Change, Refusal>;

    /// The newest `most` of the changes on record that are `wanted`, oldest first.
    fn changes(&self, most: usize, wanted: &dyn Fn(&Change) -> bool) -> Vec<Change>;

    /// What tenants had in a time.
    ///
    /// # Errors
    /// There is no store of records, or it cannot be read.
    fn report(&self, question: &Question) -> Result<Answer, Refusal>;

    /// What each vif and slice had since the node started, send and receive.
    fn service(&self) -> BTreeMap<Subject, [Service; 2]>;

    /// How the routers are that are held at a rate, in the policy's order, or the one of that
    /// name; and what holding all of them takes.
    ///
    /// # Errors
    /// What holds them does not answer.
    fn routers(&self, router: Option<&str>) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal> {
        let _none = router;
        Ok((Vec::new(), LoopsLoad::default()))
    }

    /// The newest decisions on a router, oldest first.
    ///
    /// # Errors
    /// It is not held at a rate; or what holds it does not answer.
    fn router_log(&self, router: &str, newest: usize) -> Result<Vec<LogLine>, Refusal> {
        let text = format!("router {router:?} is not held at a rate; the newest {newest} are none");
        Err(Refusal::new(RefusalKind::NotFound, text))
    }

    /// Reads the configuration file again and applies what changed.
    ///
    /// # Errors
    /// The file is refused.
    fn reload(&self, who: &str) -> Result<(), Refusal>;

    /// Tells the operator; what is too much is dropped.
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
    /// Why there is nothing to capture.
    fn capture(&self, request: CaptureRequest) -> Result<Capturing, Refusal>;
}

/// Who asks for a change, and what it may do and see.
pub struct ChangeRequest<'r> {
    /// The caller's name in the record.
    pub who: &'r str,
    /// Whether it takes back its own changes only.
    pub own: bool,
    /// Refuses changes that the caller may not make.
    pub may: &'r ChangePermission<'r>,
    /// Tells which problems with a refused policy the caller may read: some tell of others.
    pub sees: &'r ProblemVisibility<'r>,
}

/// Judges a change by the policy that holds, the policy that would hold, and the edits between.
pub type ChangePermission<'p> = dyn Fn(&Policy, &Policy, &[Edit]) -> Result<(), Refusal> + 'p;

/// Tells, by the policy that holds, whether a caller may read of a problem with another one.
pub type ProblemVisibility<'p> = dyn Fn(&Policy, &Problem) -> bool + 'p;

/// What holds now.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The document that it was read from: the file's keys, live changes among them.
    pub document: Arc<str>,
    /// What holds beside the file: the edits from it to the document.
    pub overlay: Arc<[Edit]>,
}

/// The path of the control socket of the node `name` below the state directory.
#[must_use]
pub fn socket_path(state: &Path, name: &str) -> PathBuf {
    state.join(format!("node-{name}.sock"))
}

/// The control socket of the only node below the state directory.
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
