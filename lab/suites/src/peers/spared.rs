// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The forwarder's processor without the kernel's own threads, whoever forwards: a node has it so
//! by itself, and its peers are to have the same.

use weir_experiment::host_changes::HostChanges;
use weir_experiment::prelude::*;
use weir_experiment::senders::worker_cpu;
use weir_platform::host::spare_cpu;

/// Moves them off the worker's processor. Nodes that start meanwhile find nothing to move.
pub(crate) fn spare_worker_cpu() -> Result<HostChanges> {
    HostChanges::make("spared-processor", || spare_cpu(worker_cpu()))
}
