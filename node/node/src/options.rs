// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of a start, the needs of the interface that serves the node, and the end of a run.

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
    /// The time after which everything is undone unless somebody confirms.
    pub confirm: Option<Duration>,
    /// True if live changes are put aside first, for a start that they prevent.
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
