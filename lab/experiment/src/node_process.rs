// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running `weir node run` in a namespace of the lab, driven as an operator would drive it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_api_types::status::NodeStatus;
use weir_client::{Client, ClientError, Method};
use weir_node::control;
use weir_platform::netns::Namespace;
use weir_policy::Policy;

use crate::run_folder::RunFolder;
use crate::{ExperimentError, product};

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
    pub fn start(
        namespace: Namespace,
        policy: &Policy,
        place: &RunFolder,
    ) -> Result<Self, ExperimentError> {
        let config = place.folder().join("node.toml");
        write_policy(&config, policy)?;
        let log = place.folder().join("node.log");
        let state = place.state().path().to_owned();
        let program = product::path()?;
        let child = spawn(program, &namespace, &config, &state, &log)?;
        let socket = control::socket_path(&state, &policy.node.name);
        let node = Self { child: Mutex::new(child), namespace, state, log, socket, config };
        node.wait_until_ready()?;
        Ok(node)
    }

    /// Has the node end and leave everything to [`Self::start_again`].
    pub fn leave(&self) -> Result<(), ExperimentError> {
        self.ask("/v1/leave")?;
        let ended = self.child().wait().map_err(|error| ExperimentError::io("weir node", error))?;
        match ended.success() {
            true => Ok(()),
            false => Err(ExperimentError::Node(format!("the node ended with {ended}"))),
        }
    }

    /// Kills the node as a crash would; [`Self::start_again`] may follow.
    pub fn crash(&self) -> Result<(), ExperimentError> {
        let mut child = self.child();
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(drop).map_err(|error| ExperimentError::io("weir node", error))
    }

    /// Starts the node again with the same files, as `program`, and waits until it forwards.
    pub fn start_again(&self, program: &Path) -> Result<(), ExperimentError> {
        let child = spawn(program, &self.namespace, &self.config, &self.state, &self.log)?;
        *self.child() = child;
        self.wait_until_ready()
    }

    /// The document of the policy in force.
    pub fn document(&self) -> Result<String, ExperimentError> {
        self.client().text("/v1/document").map_err(failed)
    }

    /// Writes `policy` to the configuration file and has the node apply it.
    pub fn reload(&self, policy: &Policy) -> Result<(), ExperimentError> {
        write_policy(&self.config, policy)?;
        self.ask("/v1/reload")
    }

    /// The node's counters.
    pub fn status(&self) -> Result<NodeStatus, ExperimentError> {
        self.client().get("/v1/status").map_err(failed)
    }

    /// Asks the node as an administrator.
    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    /// Ends the node by SIGTERM and waits until it has handed everything back.
    pub fn stop(self) -> Result<(), ExperimentError> {
        let mut child = self.child();
        weir_platform::process::terminate(&child);
        let status = child.wait().map_err(|error| ExperimentError::io("weir node", error))?;
        if status.success() {
            return Ok(());
        }
        Err(ExperimentError::Node(format!("the node ended with {status}")))
    }

    /// Kills the node for good.
    pub fn kill(self) -> Result<(), ExperimentError> {
        self.crash()
    }

    /// Returns the path of the node's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the node's output so far.
    pub fn said(&self) -> String {
        fs::read_to_string(self.config.with_file_name("node.log")).unwrap_or_default()
    }

    /// The node's process id.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    fn ask(&self, path: &str) -> Result<(), ExperimentError> {
        self.client().ask::<()>(Method::POST, path, None::<&()>).map_err(failed)
    }

    /// A child is one whatever happened to the thread that held its lock.
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until_ready(&self) -> Result<(), ExperimentError> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if self.status().is_ok() {
                return Ok(());
            }
            let ended =
                self.child().try_wait().map_err(|error| ExperimentError::io("weir node", error))?;
            if ended.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(ExperimentError::Node(format!("the node did not start: {said}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
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
) -> Result<Child, ExperimentError> {
    let output = fs::File::create(log).map_err(|error| ExperimentError::io(log, error))?;
    let errors = output.try_clone().map_err(|error| ExperimentError::io(log, error))?;
    let mut command = Command::new(program);
    command.args(["node", "run", "--config"]).arg(config);
    command.env("WEIR_STATE", state);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    Ok(namespace.spawn(command)?)
}

fn failed(error: ClientError) -> ExperimentError {
    ExperimentError::Node(error.to_string())
}

fn write_policy(path: &Path, policy: &Policy) -> Result<(), ExperimentError> {
    fs::write(path, policy.to_toml()).map_err(|error| ExperimentError::io(path, error))
}

/// Loading the program and binding 200 devices takes 2 s.
const START_PATIENCE: Duration = Duration::from_secs(20);
