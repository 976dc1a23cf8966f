// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo test` with its output shown as it comes, and the results of all suites summed.
//!
//! A test that cannot run here (no root, no XDP, no namespaces) prints `SKIPPED name: reason` on a
//! line of its own and returns. Cargo counts it as passed; here it counts as skipped, like an
//! ignored one, and is named again at the end.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::command;

/// A run that says nothing for so long hangs, and is ended with the last test that it named. The
/// longest silence of a run that holds is its build: about ten minutes on two processors.
const SILENCE: Duration = Duration::from_secs(1500);

/// As proptest reads it.
const SEED: &str = "PROPTEST_RNG_SEED";

/// What all suites of a run came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Tests that ran and held.
    pub(crate) passed: u64,
    /// Tests that ran and did not hold.
    pub(crate) failed: u64,
    /// Tests that did not run, with their reasons.
    pub(crate) skipped: Vec<String>,
    /// Suites whose closing line was seen.
    pub(crate) suites: u64,
}

impl Summary {
    /// Takes one line of `cargo test`'s output into account.
    pub(crate) fn add_line(&mut self, line: &str) {
        if let Some(reason) = line.trim_start().strip_prefix("SKIPPED ") {
            self.skipped.push(reason.trim().to_string());
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            self.suites += 1;
            self.passed += number_before(rest, " passed");
            self.failed += number_before(rest, " failed");
        } else if line.starts_with("test ") && line.contains(" ... ignored") {
            let (name, reason) = line.split_once(" ... ").unwrap_or((line, ""));
            self.skipped.push(format!("{}: {reason}", name.trim_start_matches("test ")));
            // Not among the passed in the closing line; see `close`.
            self.passed += 1;
        }
    }

    /// Cargo counted the skipped among the passed.
    pub(crate) fn close(&mut self) {
        self.passed = self.passed.saturating_sub(self.skipped.len() as u64);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.skipped.len();
        write!(f, "{} passed, {} failed, {skipped} skipped", self.passed, self.failed)
    }
}

/// All tests of the workspace, all suites even when one fails. Those that draw their cases draw the
/// same each time, so that what fails is the change and can be made again; `cargo test` draws anew.
pub(crate) fn all() -> (Summary, Result<(), String>) {
    let mut command = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(["--", "--show-output"]);
    if std::env::var_os(SEED).is_none() {
        command.env(SEED, "1");
    }
    counted(&mut command)
}

/// `cargo test` with these arguments, and the summary.
pub(crate) fn some(arguments: &[String]) -> Result<(), String> {
    let mut command = command::cargo(&["test"]);
    command.args(arguments);
    if !arguments.iter().any(|argument| argument == "--") {
        command.args(["--", "--show-output"]);
    }
    let (summary, outcome) = counted(&mut command);
    report(&summary);
    outcome
}

/// The skipped by name, then the line that sums all up.
pub(crate) fn report(summary: &Summary) {
    if !summary.skipped.is_empty() {
        println!("\n*** {} NOT RUN:", summary.skipped.len());
        for skipped in &summary.skipped {
            println!("***   SKIPPED {skipped}");
        }
    }
    println!("\n{summary}");
}

fn counted(command: &mut Command) -> (Summary, Result<(), String>) {
    let mut summary = Summary::default();
    command::show(command);
    let outcome = stream(command.stdout(Stdio::piped()), &mut summary, SILENCE);
    summary.close();
    (summary, outcome)
}

fn stream(command: &mut Command, summary: &mut Summary, silence: Duration) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| format!("cargo test: {error}"))?;
    let lines = child.stdout.take().map(lines_of);
    let mut last = "the build".to_owned();
    let mut silent = false;
    while let Some(lines) = &lines {
        let line = match lines.recv_timeout(silence) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                silent = true;
                end(child.id());
                break;
            }
        };
        let mut out = std::io::stdout().lock();
        // A closed terminal is no reason to leave the child alone.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        let line = String::from_utf8_lossy(&line);
        summary.add_line(line.trim_end());
        if line.starts_with("test ") {
            last = line.trim_end().to_owned();
        }
    }
    let status = child.wait().map_err(|error| format!("cargo test: {error}"))?;
    match (silent, status.success()) {
        (true, _) => Err(format!(
            "cargo test: silent for {silence:?} after `{last}`: ended; `weir clean --all` takes \
             away what its labs left"
        )),
        (false, true) => Ok(()),
        (false, false) => Err(format!("cargo test: {status}")),
    }
}

/// The lines of this pipe, with their ends, read by a thread of their own. Bytes, not strings: a
/// test may print what is no UTF-8.
fn lines_of(stdout: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, lines) = std::sync::mpsc::sync_channel(1000);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// Ends a process and what it has started, and what that has, without asking: it does not answer.
/// All are known before the first one ends, for the children of a process that is gone are not its
/// any more; and it comes first, so that it does not start the next suite.
fn end(pid: u32) {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    for pid in all {
        // One that has ended meanwhile is no failure.
        let _ended = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
}

/// The number that ends right before `label`; 0 if there is none.
fn number_before(text: &str, label: &str) -> u64 {
    let Some(end) = text.find(label) else { return 0 };
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that hangs is ended with all that it has started, and its last test is named.
    #[test]
    fn a_silent_run_is_ended() {
        let mut command = Command::new("sh");
        let script = "sleep 1000 & echo test $! ... ok; wait";
        command.args(["-c", script]).stdout(Stdio::piped());
        let silence = Duration::from_secs(5);
        let error = stream(&mut command, &mut Summary::default(), silence).unwrap_err();
        let (before, after) = error.split_once("`test ").unwrap();
        assert_eq!(before, "cargo test: silent for 5s after ");
        let (child, rest) = after.split_once(' ').unwrap();
        assert!(rest.starts_with("... ok`: ended"), "{error}");
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Two suites: a skipped one that cargo calls passed, an ignored one, a failed one.
    #[test]
    fn sums_suites_and_moves_skipped_out_of_passed() {
        let output = "\
test a ... ok
test b ... ignored, needs a second machine
SKIPPED c: not root
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s
";
        let mut summary = Summary::default();
        output.lines().for_each(|line| summary.add_line(line));
        summary.close();
        assert_eq!((summary.passed, summary.failed, summary.suites), (6, 2, 2));
        assert_eq!(summary.skipped, ["b: ignored, needs a second machine", "c: not root"]);
        assert_eq!(summary.to_string(), "6 passed, 2 failed, 2 skipped");
    }
}
