// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running `weir node run` in a namespace of the lab, driven as an operator would drive it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_api_types::policy::PolicyView;
use weir_api_types::status::NodeStatus;
use weir_client::{Client, ClientError, Method};
use weir_node::control;
use weir_platform::netns::Namespace;
use weir_policy::Policy;

use crate::run_folder::RunFolder;
use crate::weir_program::spawn_logged;
use crate::{ExperimentError, Result, clock, product};

/// A node process. It ends, and hands its devices back, when this value is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    /// Replaced when the node starts again.
    child: Mutex<Child>,
    namespace: Namespace,
    state: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    config: PathBuf,
}

impl NodeProcess {
    /// Starts a node with `policy` in `namespace`, its files at `place`, and waits until it
    /// forwards. It ends when the calling thread does, even if that is killed.
    pub fn start(namespace: Namespace, policy: &Policy, place: &RunFolder) -> Result<Self> {
        let [config, log] = ["node.toml", "node.log"].map(|name| place.folder().join(name));
        write_policy(&config, policy)?;
        let state = place.state().path().to_owned();
        let child = spawn(product::path()?, &namespace, &config, &state, &log)?;
        let socket = control::socket_path(&state, &policy.node.name);
        let node = Self { child: Mutex::new(child), namespace, state, log, socket, config };
        node.wait_until_ready()?;
        Ok(node)
    }

    /// Has the node end and leave everything to [`Self::start_again`].
    pub fn leave(&self) -> Result {
        self.ask("/v1/leave")?;
        good_end(&mut self.child())
    }

    /// Kills the node as a crash would; [`Self::start_again`] may follow.
    pub fn crash(&self) -> Result {
        let mut child = self.child();
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(drop).map_err(failed_to_run)
    }

    /// Starts the node again with the same files, as `program`, and waits until it forwards.
    pub fn start_again(&self, program: &Path) -> Result {
        let child = spawn(program, &self.namespace, &self.config, &self.state, &self.log)?;
        *self.child() = child;
        self.wait_until_ready()
    }

    /// The document of the policy in force.
    pub fn document(&self) -> Result<String> {
        self.client().text("/v1/document").map_err(failed)
    }

    /// Writes `policy` to the configuration file and has the node apply it.
    pub fn reload(&self, policy: &Policy) -> Result {
        write_policy(&self.config, policy)?;
        self.ask("/v1/reload")
    }

    /// The policy that the node enforces.
    pub fn policy(&self) -> Result<PolicyView> {
        self.client().get("/v1/policy").map_err(failed)
    }

    /// The node's counters.
    pub fn status(&self) -> Result<NodeStatus> {
        self.client().get("/v1/status").map_err(failed)
    }

    /// Asks the node as an administrator.
    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    /// Ends the node by SIGTERM and waits until it has handed everything back.
    pub fn stop(self) -> Result {
        let mut child = self.child();
        weir_platform::process::terminate(&child);
        good_end(&mut child)
    }

    /// Kills the node for good.
    pub fn kill(self) -> Result {
        self.crash()
    }

    /// Returns the path of the node's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the node's output so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The node's process id.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    fn ask(&self, path: &str) -> Result {
        self.client().ask::<()>(Method::POST, path, None::<&()>).map_err(failed)
    }

    /// Locks the child. It stays usable after a thread panicked with the lock held.
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until_ready(&self) -> Result {
        let is_ready = clock::wait_for(START_PATIENCE, START_POLL, || {
            let is_ready = self.status().is_ok();
            Ok((is_ready || self.try_wait()?.is_some()).then_some(is_ready))
        })?;
        match is_ready {
            Some(true) => Ok(()),
            _ => Err(ExperimentError::Node(format!("the node did not start: {}", self.said()))),
        }
    }

    fn try_wait(&self) -> Result<Option<ExitStatus>> {
        self.child().try_wait().map_err(failed_to_run)
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let mut child = self.child();
        // After `stop` or `kill` there is nothing left to end.
        if matches!(child.try_wait(), Ok(None)) {
            weir_platform::process::terminate(&child);
            let _ended = child.wait();
        }
    }
}

fn spawn(
    program: &Path,
    namespace: &Namespace,
    config: &Path,
    state: &Path,
    log: &Path,
) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(["node", "run", "--config"]).arg(config).env("WEIR_STATE", state);
    spawn_logged(namespace, command, log)
}

/// Waits for the end of a node, and refuses any exit status but success.
fn good_end(child: &mut Child) -> Result {
    match child.wait().map_err(failed_to_run)? {
        status if status.success() => Ok(()),
        status => Err(ExperimentError::Node(format!("the node ended with {status}"))),
    }
}

fn failed_to_run(error: std::io::Error) -> ExperimentError {
    ExperimentError::io("weir node", error)
}

fn failed(error: ClientError) -> ExperimentError {
    ExperimentError::Node(error.to_string())
}

fn write_policy(path: &Path, policy: &Policy) -> Result {
    fs::write(path, policy.to_toml()).map_err(|error| ExperimentError::io(path, error))
}

/// Loading the program and binding 200 devices takes 2 s; in a guest without acceleration, 20.
const START_PATIENCE: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(5);
