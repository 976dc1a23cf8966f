// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir` or `weir-lab` as a child: in a namespace, with a state folder and a temporary folder of
//! its own, so that its leftovers can be told from those of others.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weir_platform::netns::Namespace;

use crate::{ExperimentError, Result, clock, product};

/// The program `weir` and the folders it is run with.
#[derive(Debug)]
pub struct WeirProgram {
    namespace: Namespace,
    folder: PathBuf,
    started: AtomicU32,
}

/// A run that has not ended yet; it is killed when this value is dropped.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    log: PathBuf,
}

/// A run that has ended.
#[derive(Debug)]
pub struct EndedProgram {
    /// None if it had to be killed at its limit.
    pub status: Option<ExitStatus>,
    /// Standard output and standard error.
    pub said: String,
}

impl WeirProgram {
    /// Makes a program that runs in `namespace`, with its folders in `folder`, which must exist.
    pub fn new(namespace: Namespace, folder: &Path) -> Result<Self> {
        let program = Self { namespace, folder: folder.to_owned(), started: AtomicU32::new(0) };
        let temporary = program.temporary();
        fs::create_dir_all(&temporary).map_err(|error| ExperimentError::io(&temporary, error))?;
        Ok(program)
    }

    /// Returns the folder for its input.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its state folder.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Its temporary folder.
    pub fn temporary(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// Returns the folder for its results.
    pub fn output(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// Starts it. The child ends with the calling thread at the latest.
    pub fn start(&self, arguments: &[&str]) -> Result<RunningProgram> {
        self.start_with(arguments, &[])
    }

    /// Does the same as [`Self::start`], with more environment variables.
    pub fn start_with(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<RunningProgram> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = self.folder.join(format!("said-{number}.log"));
        let mut command = match arguments.first() {
            Some(first) if LAB.contains(first) => Command::new(product::own_path()?),
            _ => Command::new(product::path()?),
        };
        command.args(arguments).current_dir(&self.folder);
        command.env("WEIR_STATE", self.state()).env("TMPDIR", self.temporary());
        command.envs(environment.iter().copied());
        Ok(RunningProgram { child: spawn_logged(&self.namespace, command, &log)?, log })
    }

    /// Runs it to its end, at most `limit`.
    pub fn run(&self, arguments: &[&str], limit: Duration) -> Result<EndedProgram> {
        self.start(arguments)?.end_within(limit)
    }
}

impl RunningProgram {
    /// Returns true while it runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until `sign` holds for its output. Returns false if the program ends first, or at
    /// `limit`.
    pub fn shows(&mut self, limit: Duration, sign: impl Fn(&str) -> bool) -> bool {
        let seen = clock::wait_for(limit, POLL, || {
            let seen = sign(&self.said());
            Ok((seen || !self.is_alive()).then_some(seen))
        });
        matches!(seen, Ok(Some(true)))
    }

    /// Asks it to end by SIGTERM.
    pub fn terminate(&self) {
        weir_platform::process::terminate(&self.child);
    }

    /// Ends it by SIGKILL, as a crash would.
    pub fn kill(mut self) -> Result {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        ended.map(drop).map_err(|error| ExperimentError::io("weir", error))
    }

    /// Waits for its end, and kills it at `limit`.
    pub fn end_within(mut self, limit: Duration) -> Result<EndedProgram> {
        let status = clock::wait_for(limit, POLL, || {
            self.child.try_wait().map_err(|error| ExperimentError::io("weir", error))
        })?;
        Ok(EndedProgram { status, said: self.said() })
    }

    /// Returns its output so far.
    fn said(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(file) = fs::File::open(&self.log) {
            // Output that cannot be read counts as none; the caller then misses it.
            let _read = file.take(SAID_BYTES_MAX).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if self.is_alive() {
            // If this fails, the program ends with the thread that started it.
            let _killed = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}

impl EndedProgram {
    /// Returns true if it ended by itself with status 0.
    pub fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns true for a node that was not confirmed and undid its changes.
    pub fn is_unconfirmed(&self) -> bool {
        self.status.and_then(|status| status.code()) == Some(4)
    }

    /// Returns true if it ended by itself without a panic, with status 1 or 2: the documented
    /// statuses of a refusal.
    pub fn is_refusal(&self) -> bool {
        let code = self.status.and_then(|status| status.code());
        matches!(code, Some(1 | 2)) && !self.said.contains("panicked")
    }
}

/// Starts a program in a namespace as a service manager would, with standard output and standard
/// error in `log`.
pub fn spawn_logged(namespace: &Namespace, mut command: Command, log: &Path) -> Result<Child> {
    let output = fs::File::create(log).map_err(|error| ExperimentError::io(log, error))?;
    let errors = output.try_clone().map_err(|error| ExperimentError::io(log, error))?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    Ok(namespace.spawn_service(command)?)
}

/// The interval at which a child is polled.
const POLL: Duration = Duration::from_millis(5);

/// Most bytes that are read of a child's output.
const SAID_BYTES_MAX: u64 = 1 << 20;

/// The commands of `weir-lab`; all others are those of `weir`.
const LAB: [&str; 7] = ["conformance", "demo", "lab", "reproduce", "sim", "traffic", "verify"];
