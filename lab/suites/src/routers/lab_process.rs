// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of a lab of routers: hidden commands of `weir-lab`, in namespaces of the lab.

use std::process::{Child, Command, Stdio};

use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_experiment::senders::worker_cpu;
use weir_platform::netns::Namespace;
use weir_platform::process::Identity;

/// A running `weir-lab lab COMMAND` on the routers' processor. It is killed with this value, and
/// ends with the thread that started it, even if that is killed.
#[derive(Debug)]
pub(super) struct LabProcess(Child);

impl LabProcess {
    pub(super) fn start(
        command: &str,
        arguments: impl IntoIterator<Item = String>,
        namespace: &Namespace,
    ) -> Result<Self, ExperimentError> {
        let mut process = Command::new(product::own_path()?);
        process.args(["lab", command, "--cpu", &worker_cpu().to_string()]).args(arguments);
        process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        Ok(Self(namespace.spawn(process)?))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns `None` if it has ended.
    pub(super) fn identity(&self) -> Option<Identity> {
        Identity::of(self.id())
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        // It has no state to save; a cap could make it slow to end by itself.
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}
