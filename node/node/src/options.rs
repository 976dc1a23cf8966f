// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a node is started, what its interface needs to serve it, and how it ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_platform::StateDir;
use weir_policy::Policy;

use crate::control::Control;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file.
    pub config: PathBuf,
    /// Undo everything after this time unless somebody confirms.
    pub confirm: Option<Duration>,
    /// Put live changes aside, for a start that they prevent.
    pub without_overlay: bool,
    /// The folder of journals and of the control socket.
    pub state: StateDir,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NodeEnd {
    /// A signal or a request ended it; everything is undone.
    Asked,
    /// The confirmation did not come in time; everything is undone.
    NotConfirmed,
    /// A signal or a request ended it; everything is left as it is, for the next start to adopt.
    Left,
}

/// Everything that the interface needs to serve a running node.
#[derive(Clone)]
pub struct Serving {
    /// The socket to listen on.
    pub socket: PathBuf,
    /// The node that answers.
    pub control: Arc<dyn Control>,
    /// The policy that the node starts with.
    pub policy: Arc<Policy>,
}
