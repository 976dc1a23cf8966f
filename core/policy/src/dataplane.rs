// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data plane that enforces a policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The data plane of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dataplane {
    /// Weir's own switch, which takes the devices from the host: every guarantee is exact.
    #[default]
    Switch,
    /// The host's own bridge, with programs and queueing disciplines of the kernel on its devices:
    /// super-frames stay whole, nothing depends on a running process.
    Kernel,
}
