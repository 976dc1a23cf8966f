// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of an experiment: hidden commands of `weir-lab`, in namespaces of its lab.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use weir_platform::netns::Namespace;
use weir_platform::process::Identity;

use crate::senders::worker_cpu;
use crate::{ExperimentError, Result, product};

/// A running `weir-lab lab COMMAND` on the worker's processor. It is killed when this value is
/// dropped, and ends with the thread that started it, even if that is killed.
#[derive(Debug)]
pub struct LabProcess(Child);

impl LabProcess {
    /// Starts a command whose output nobody reads.
    pub fn start(
        command: &str,
        arguments: impl IntoIterator<Item = String>,
        namespace: &Namespace,
    ) -> Result<Self> {
        Self::spawn(command, arguments, namespace, Stdio::null())
    }

    /// Starts a command whose output [`Self::stop`] returns. It must fit into a pipe, 64 KiB.
    pub fn start_piped(
        command: &str,
        arguments: impl IntoIterator<Item = String>,
        namespace: &Namespace,
    ) -> Result<Self> {
        Self::spawn(command, arguments, namespace, Stdio::piped())
    }

    fn spawn(
        command: &str,
        arguments: impl IntoIterator<Item = String>,
        namespace: &Namespace,
        output: Stdio,
    ) -> Result<Self> {
        let mut process = Command::new(product::own_path()?);
        process.args(["lab", command, "--cpu", &worker_cpu().to_string()]).args(arguments);
        process.stdin(Stdio::null()).stdout(output).stderr(Stdio::inherit());
        Ok(Self(namespace.spawn(process)?))
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns `None` if it has ended.
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(self.id())
    }

    /// Says whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    /// Ends it by SIGTERM, and returns its output; none if that is not piped.
    pub fn stop(mut self) -> Result<Vec<u8>> {
        weir_platform::process::terminate(&self.0);
        let mut output = Vec::new();
        let read = self.0.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut output));
        let ended = read.and_then(|_| self.0.wait());
        ended.map_err(|error| ExperimentError::io("a process of weir-lab", error))?;
        Ok(output)
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        // It has no state to save; a cap could make it slow to end by itself.
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}
