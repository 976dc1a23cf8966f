// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DPDK's scheduler as a child: built from the source that this program carries, driven a run at a
//! time, so that its runs and ours can take turns.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use weir_host::run::{Command as HostCommand, Host, Platform};

use crate::TrialError;

/// The program of the peer.
#[derive(Debug)]
pub(super) struct Built {
    program: PathBuf,
}

/// A running peer with its classes and packets.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Built {
    /// Compiles it into the folder of results, unless that has it from the same source already.
    ///
    /// # Errors
    /// No compiler, or no DPDK (`libdpdk-dev`); the text names what failed.
    pub(super) fn new() -> Result<Self, TrialError> {
        let folder = Path::new(FOLDER);
        let (source, program) = (folder.join("rte_sched.c"), folder.join("rte_sched"));
        let built = Self { program };
        if built.program.exists() && fs::read_to_string(&source).is_ok_and(|text| text == SOURCE) {
            return Ok(built);
        }
        fs::create_dir_all(folder).map_err(|error| TrialError::io(folder, error))?;
        // A program of another source must not outlive it.
        if built.program.exists() {
            fs::remove_file(&built.program).map_err(|error| TrialError::io(folder, error))?;
        }
        fs::write(&source, SOURCE).map_err(|error| TrialError::io(&source, error))?;
        let ask = HostCommand::line("pkg-config --cflags --libs libdpdk");
        let flags = Host::default().run(&ask).map_err(|error| missing(&error.to_string()))?;
        let paths = [&source, &built.program].map(|path| path.display().to_string());
        // DPDK's own headers use what they warn of.
        let words = ["-O3", "-w", &paths[0], "-o", &paths[1]].into_iter();
        let compile = HostCommand::new("cc", words.chain(flags.split_whitespace()));
        let compile = compile.limit(COMPILE_LIMIT);
        Host::default().run(&compile).map_err(|error| missing(&error.to_string()))?;
        Ok(built)
    }

    /// Starts it on processor `cpu` with so many classes and packets.
    pub(super) fn start(&self, cpu: u32, pipes: u32, packets: u32) -> Result<Peer, TrialError> {
        let mut command = Command::new(&self.program);
        command.args([cpu, pipes, packets].map(|number| number.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| TrialError::io(&self.program, error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(missing("its pipes"));
        };
        let mut peer = Peer { child, input, output: BufReader::new(output) };
        match peer.answer()?.as_str() {
            "ready" => Ok(peer),
            other => Err(missing(&format!("{pipes} pipes: it answered {other:?}"))),
        }
    }
}

impl Peer {
    /// Seconds a packet, over `packets` of them under the load of that name.
    pub(super) fn run(&mut self, load: &str, packets: u64) -> Result<f64, TrialError> {
        let asked = writeln!(self.input, "{load} {packets}").and_then(|()| self.input.flush());
        asked.map_err(|error| TrialError::io("rte_sched", error))?;
        let answer = self.answer()?;
        let fields: Vec<f64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
        match fields[..] {
            // A queue that overflows now and then is part of a random load; a load that is mostly
            // refused would be another.
            [nanos, dropped, _] if dropped <= crate::float(packets) * DROPPED_MAX => {
                Ok(nanos * 1e-9)
            }
            _ => Err(missing(&format!("load {load}: it answered {answer:?}"))),
        }
    }

    fn answer(&mut self) -> Result<String, TrialError> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| TrialError::io("rte_sched", error))?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends by itself otherwise.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn missing(why: &str) -> TrialError {
    let needs = format!("DPDK's rte_sched (package libdpdk-dev): {why}");
    TrialError::Missing { what: "scheduler beside rte_sched".to_owned(), needs }
}

const SOURCE: &str = include_str!("../../../../../bench/peers/rte_sched.c");

/// Where `weir` keeps what it makes, below the folder in which it runs.
const FOLDER: &str = "out/peers";

/// Compiling takes two seconds; a busy machine may take longer.
const COMPILE_LIMIT: Duration = Duration::from_secs(300);

/// Of all packets.
const DROPPED_MAX: f64 = 1e-3;
