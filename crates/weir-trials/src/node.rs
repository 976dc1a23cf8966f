// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running `weir node run` in a namespace of the lab, driven as an operator would drive it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_api::client::{Client, ClientError, Method};
use weir_host::netns::Namespace;
use weir_node::control;
use weir_node::status::Status;
use weir_policy::Policy;

use crate::TrialError;
use crate::place::Place;

/// A node process. It ends, and hands its devices back, when this value is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    socket: PathBuf,
    config: PathBuf,
}

impl NodeProcess {
    /// Starts a node with `policy` in `namespace`, its files at `place`, and waits until it
    /// forwards. It ends when the calling thread does, even if that is killed.
    ///
    /// # Errors
    /// It could not be started, or ended again: the error has what it said.
    pub fn start(
        namespace: &Namespace,
        policy: &Policy,
        place: &Place,
    ) -> Result<Self, TrialError> {
        let config = place.folder().join("node.toml");
        write_policy(&config, policy)?;
        let log = place.folder().join("node.log");
        let output = fs::File::create(&log).map_err(|error| TrialError::io(&log, error))?;
        let errors = output.try_clone().map_err(|error| TrialError::io(&log, error))?;
        let program = std::env::current_exe().map_err(|error| TrialError::io("weir", error))?;
        let mut command = Command::new(program);
        command.args(["node", "run", "--config"]).arg(&config);
        command.env("WEIR_STATE", place.state().path());
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = namespace.spawn(command)?;
        let socket = control::socket_path(place.state().path(), &policy.node.name);
        let mut node = Self { child, socket, config };
        node.wait_until_ready(&log)?;
        Ok(node)
    }

    /// Writes `policy` to the configuration file and has the node apply it.
    ///
    /// # Errors
    /// The node refuses it, or does not answer.
    pub fn reload(&self, policy: &Policy) -> Result<(), TrialError> {
        write_policy(&self.config, policy)?;
        self.client().ask::<()>(Method::POST, "/v1/reload", None::<&()>).map_err(failed)
    }

    /// The node's counters.
    ///
    /// # Errors
    /// The node does not answer.
    pub fn status(&self) -> Result<Status, TrialError> {
        self.client().get("/v1/status").map_err(failed)
    }

    /// Asks the node as an administrator.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    /// Ends the node by SIGTERM and waits until it has handed everything back.
    ///
    /// # Errors
    /// It ended with a failure.
    pub fn stop(mut self) -> Result<(), TrialError> {
        weir_host::process::terminate(&self.child);
        let status = self.child.wait().map_err(|error| TrialError::io("weir node", error))?;
        if status.success() {
            return Ok(());
        }
        Err(TrialError::Node(format!("the node ended with {status}")))
    }

    /// Kills the node as a crash would.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(mut self) -> Result<(), TrialError> {
        self.child.kill().map_err(|error| TrialError::io("weir node", error))?;
        self.child.wait().map_err(|error| TrialError::io("weir node", error))?;
        Ok(())
    }

    /// The node's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<(), TrialError> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if self.status().is_ok() {
                return Ok(());
            }
            let ended =
                self.child.try_wait().map_err(|error| TrialError::io("weir node", error))?;
            if ended.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(log).unwrap_or_default();
                return Err(TrialError::Node(format!("the node did not start: {said}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // After `stop` or `kill` there is nothing left to end.
        if matches!(self.child.try_wait(), Ok(None)) {
            weir_host::process::terminate(&self.child);
            let _ended = self.child.wait();
        }
    }
}

fn failed(error: ClientError) -> TrialError {
    TrialError::Node(error.to_string())
}

fn write_policy(path: &Path, policy: &Policy) -> Result<(), TrialError> {
    fs::write(path, policy.to_toml()).map_err(|error| TrialError::io(path, error))
}

/// Loading the program and binding 200 devices takes 2 s.
const START_PATIENCE: Duration = Duration::from_secs(20);
