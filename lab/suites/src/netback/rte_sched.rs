// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DPDK's scheduler as a child process: built from the source that this program carries, and driven
//! a run at a time, so that its runs and Weir's can take turns.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_platform::run::{Command as HostCommand, Host, Platform};

/// The peer's program, in a folder of this run that belongs to root. The folder goes when this
/// value is dropped, or with `weir clean`.
#[derive(Debug)]
pub(super) struct Built {
    program: PathBuf,
    _place: RunFolder,
}

/// A running peer with its classes and packets. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    input: ChildStdin,
    /// The peer's lines, as they come. The channel closes when the peer ends.
    lines: Receiver<String>,
    /// Path of its log.
    log: PathBuf,
}

impl Built {
    /// Compiles the peer's program.
    pub(super) fn new() -> Result<Self> {
        let place = RunFolder::take(LAB, &StateDir::from_env())?;
        let folder = place.folder();
        let (source, program) = (folder.join("rte_sched.c"), folder.join("rte_sched"));
        fs::write(&source, SOURCE).map_err(|error| ExperimentError::io(&source, error))?;
        let ask = HostCommand::line("pkg-config --cflags --libs libdpdk");
        let flags = Host::default().run(&ask).map_err(|error| missing(&error.to_string()))?;
        let paths = [&source, &program].map(|path| path.display().to_string());
        // DPDK's own headers cause warnings.
        let words = ["-O3", "-w", &paths[0], "-o", &paths[1]].into_iter();
        let compile = HostCommand::new("cc", words.chain(flags.split_whitespace()));
        let compile = compile.limit(COMPILE_LIMIT);
        let compiled = Host::unless(weir_traffic::is_stopped).run(&compile);
        compiled.map_err(|error| missing(&error.to_string()))?;
        Ok(Self { program, _place: place })
    }

    /// Starts the program on processor `cpu` with that many classes and packets.
    pub(super) fn start(&self, cpu: u32, pipes: u32, packets: u32) -> Result<Peer> {
        let log = self.program.with_extension("log");
        let file = fs::File::create(&log).map_err(|error| ExperimentError::io(&log, error))?;
        let mut command = Command::new(&self.program);
        command.args([cpu, pipes, packets].map(|number| number.to_string()));
        Peer::start(command, file, log, &format!("{pipes} pipes"))
    }
}

impl Peer {
    /// Starts a program that prints `ready` once it is.
    fn start(mut command: Command, errors: fs::File, log: PathBuf, what: &str) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let program = command.get_program().display().to_string();
        let mut child = command.spawn().map_err(|error| ExperimentError::io(program, error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(missing("its pipes"));
        };
        let (say, lines) = mpsc::sync_channel(LINES_MAX);
        // The thread ends with the program's output, or with the receiver.
        thread::spawn(move || {
            let lines = BufReader::new(output.take(OUTPUT_BYTES_MAX)).lines();
            lines.map_while(Result::ok).try_for_each(|line| say.send(line))
        });
        let mut peer = Self { child, input, lines, log };
        match peer.answer()?.as_str() {
            "ready" => Ok(peer),
            other => Err(missing(&format!("{what}: it answered {other:?}{}", peer.reason()))),
        }
    }

    /// Returns the seconds for a packet, over `packets` of them under the load of that name.
    pub(super) fn run(&mut self, load: &str, packets: u64) -> Result<f64> {
        let asked = writeln!(self.input, "{load} {packets}").and_then(|()| self.input.flush());
        asked.map_err(|error| ExperimentError::io("rte_sched", error))?;
        let answer = self.answer()?;
        let fields: Vec<f64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
        match fields[..] {
            // In a random load a queue may overflow now and then. A load that is mostly refused
            // would be another load.
            [nanos, dropped, _] if dropped <= float(packets) * DROPPED_MAX => Ok(nanos * 1e-9),
            _ => {
                let reason = self.reason();
                Err(missing(&format!("load {load}: it answered {answer:?}{reason}")))
            }
        }
    }

    /// Returns the next line of the peer. Waits for [`ANSWER_LIMIT`] at most.
    fn answer(&mut self) -> Result<String> {
        let until = Instant::now() + ANSWER_LIMIT;
        loop {
            match self.lines.recv_timeout(clock::SIGNAL_POLL) {
                Ok(line) => return Ok(line.trim().to_owned()),
                Err(RecvTimeoutError::Disconnected) => return Ok(String::new()),
                Err(RecvTimeoutError::Timeout) if weir_traffic::is_stopped() => {
                    return Err(ExperimentError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                    let waited = ANSWER_LIMIT.as_secs();
                    let reason = self.reason();
                    return Err(missing(&format!("no answer for {waited} s{reason}")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the last words of its log.
    fn reason(&self) -> String {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        said.lines().last().map_or_else(String::new, |line| format!("; its log ends: {line}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Without this, a peer that hangs would go on.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn missing(why: &str) -> ExperimentError {
    let needs = format!("DPDK's rte_sched (package libdpdk-dev): {why}");
    ExperimentError::Missing { what: "scheduler beside rte_sched".to_owned(), needs }
}

const SOURCE: &str = include_str!("../../../../bench/peers/rte_sched.c");

/// Name of the folder.
const LAB: &str = "rte-sched";

/// Compiling takes two seconds; a busy machine may take longer.
const COMPILE_LIMIT: Duration = Duration::from_secs(300);

/// The greatest part of all packets that may be dropped.
const DROPPED_MAX: f64 = 1e-3;

/// A run of a million packets takes half a second, and up to a minute under an emulator.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// The most lines and bytes of output. An answer is a line; the only other output is what DPDK
/// prints at its start.
const LINES_MAX: usize = 64;
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn started(script: &str) -> Result<Peer> {
        let log = std::env::temp_dir().join(format!("weir-peer-{}.log", std::process::id()));
        let file = fs::File::create(&log).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let peer = Peer::start(command, file, log.clone(), "a test");
        fs::remove_file(&log).unwrap();
        peer
    }

    #[test]
    fn what_a_peer_says_is_read_and_its_reason_is_told() {
        let mut peer = started("echo ready; read line; echo 25.5 0 0").unwrap();
        assert!((peer.run("refill", 10).unwrap() - 25.5e-9).abs() < 1e-12);
        let error = started("echo EAL: no memory >&2; exit 1").unwrap_err().to_string();
        assert!(error.contains("it answered \"\"; its log ends: EAL: no memory"), "{error}");
    }
}
