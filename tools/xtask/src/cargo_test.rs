// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo test` with its output shown as it comes, and the results of all suites summed.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::again::again;
use crate::command;
use crate::stolen::Stolen;
use crate::summary::{TestSummary, report};

/// A run that says nothing for so long hangs, and is ended with the last test that it named. The
/// longest silence of a run that holds is its build: about ten minutes on two processors.
const SILENCE: Duration = Duration::from_secs(1500);

/// The variable from which proptest reads its seed.
const SEED: &str = "PROPTEST_RNG_SEED";

/// All tests of the workspace, all suites even when one fails. A few that fail are made again
/// alone ([`again`]).
pub(crate) fn all() -> (TestSummary, Result<(), String>) {
    let (mut summary, outcome) = counted(workspace().args(["--", "--show-output"]));
    if outcome.is_ok() {
        return (summary, outcome);
    }
    again(&mut summary, |failures| {
        let stolen = Stolen::since_now();
        let mut command = workspace();
        command.args(["--lib", "--bins", "--tests", "--", "--show-output", "--exact"]);
        let (alone, _) = counted(command.args(["--test-threads", "1"]).args(failures));
        let part = stolen.part();
        println!("\nmeanwhile the machine's host took {:.0} %", 100.0 * part);
        (alone, part)
    });
    let outcome = if summary.failed == 0 && !summary.crashed { Ok(()) } else { outcome };
    (summary, outcome)
}

/// Returns the command that runs all tests. Tests with random cases draw the same ones each time,
/// so that a failure comes from the change and can be repeated; plain `cargo test` draws anew.
fn workspace() -> Command {
    let mut command = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
    if std::env::var_os(SEED).is_none() {
        command.env(SEED, "1");
    }
    command
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

fn counted(command: &mut Command) -> (TestSummary, Result<(), String>) {
    let mut summary = TestSummary::default();
    command::show(command);
    let outcome = stream(command.stdout(Stdio::piped()), &mut summary, SILENCE);
    summary.close();
    (summary, outcome)
}

fn stream(
    command: &mut Command,
    summary: &mut TestSummary,
    silence: Duration,
) -> Result<(), String> {
    // Until its end is seen.
    summary.crashed = true;
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
    // Cargo's own status where tests have failed, if it is not for another reason.
    let failed = status.code() == Some(101) && summary.failed > 0;
    summary.crashed = silent || !(status.success() || failed);
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
        let error = stream(&mut command, &mut TestSummary::default(), silence).unwrap_err();
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
}
