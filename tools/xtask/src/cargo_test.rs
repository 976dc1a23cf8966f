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

/// The silence after which a build counts as hung and is killed. A build takes about ten minutes on
/// two processors.
const BUILD_SILENCE: Duration = Duration::from_secs(1500);

/// The silence after which a suite counts as hung. It is killed, its slow tests count as failed,
/// and the next suite begins. The slowest test takes about three minutes.
const SUITE_SILENCE: Duration = Duration::from_secs(600);

/// The variable from which proptest reads its seed.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Runs all tests of the workspace, with all suites even if one fails. If only a few tests fail,
/// they are run again alone ([`again`]).
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

/// Returns the command that runs all tests. Its random tests draw the same cases each time, so that
/// a failure comes from the change and can be repeated. Plain `cargo test` draws new cases.
fn workspace() -> Command {
    let mut command = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
    if std::env::var_os(SEED).is_none() {
        command.env(SEED, "1");
    }
    command
}

/// Runs `cargo test` with these arguments and prints the summary.
pub(crate) fn run_selected(arguments: &[String]) -> Result<(), String> {
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
    let command = command.stdout(Stdio::piped());
    let silence = [BUILD_SILENCE, SUITE_SILENCE];
    let outcome = stream(command, &mut summary, silence, &mut std::io::stdout());
    summary.close();
    (summary, outcome)
}

fn stream(
    command: &mut Command,
    summary: &mut TestSummary,
    [build_silence, suite_silence]: [Duration; 2],
    out: &mut dyn Write,
) -> Result<(), String> {
    // A run counts as crashed until its end is seen.
    summary.crashed = true;
    let mut child = command.spawn().map_err(|error| format!("cargo test: {error}"))?;
    let lines = child.stdout.take().map(lines_of);
    let mut last = "the build".to_owned();
    let mut hung = None;
    while let Some(lines) = &lines {
        let silence = if summary.is_in_suite() { suite_silence } else { build_silence };
        let line = match lines.recv_timeout(silence) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => break,
            // Cargo itself continues with the next suite.
            Err(RecvTimeoutError::Timeout) if summary.end_hung_suite() => {
                let _ = writeln!(out, "\nsilent for {silence:?}: the suite is ended; {CLEAN}");
                end(&descendants(child.id()));
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                hung = Some(silence);
                let mut all = vec![child.id()];
                all.extend(descendants(child.id()));
                end(&all);
                break;
            }
        };
        // Even if the terminal is closed, keep reading the child's output.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        let line = String::from_utf8_lossy(&line);
        summary.add_line(line.trim_end());
        if line.starts_with("test ") {
            last = line.trim_end().to_owned();
        }
    }
    let status = child.wait().map_err(|error| format!("cargo test: {error}"))?;
    // 101 is Cargo's own status after failed tests; without failed tests it has another reason.
    let failed = status.code() == Some(101) && summary.failed > 0;
    summary.crashed = hung.is_some() || !(status.success() || failed);
    match (hung, status.success()) {
        (Some(silence), _) => {
            Err(format!("cargo test: silent for {silence:?} after `{last}`: ended; {CLEAN}"))
        }
        (None, true) => Ok(()),
        (None, false) => Err(format!("cargo test: {status}")),
    }
}

/// The hint that is printed after a suite was killed.
const CLEAN: &str = "`weir clean --all` removes leftovers of killed labs";

/// Reads the lines of a pipe, with their line ends, on a thread of its own. Lines are bytes, since
/// a test may print invalid UTF-8.
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

/// Returns all descendants of a process. They must be collected before the first one is killed,
/// since the children of a dead process get another parent.
fn descendants(pid: u32) -> Vec<u32> {
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
    all.split_off(1)
}

/// Kills processes in this order with SIGKILL, since a hung process may not react to other signals.
fn end(pids: &[u32]) {
    for pid in pids {
        // A process that has ended meanwhile is no failure.
        let _ended = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script in the place of cargo. Returns the summary and the outcome.
    fn run(script: &str) -> (TestSummary, Result<(), String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let mut summary = TestSummary::default();
        let silence = Duration::from_secs(5);
        // This run's own reader would take the script's lines for those of tests.
        let mut out = std::io::sink();
        let outcome = stream(&mut command, &mut summary, [silence; 2], &mut out);
        (summary, outcome)
    }

    /// Waits for the end of a process that a script wrote to a file.
    fn assert_ends(file: &str) {
        let child = std::fs::read_to_string(file).unwrap();
        std::fs::remove_file(file).unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Goal: a hung run is killed with all its descendants, and its last test is named.
    #[test]
    fn a_silent_run_is_ended() {
        let file = std::env::temp_dir().join(format!("weir-t-build-{}", std::process::id()));
        let file = file.to_str().unwrap();
        let script = format!("sleep 1000 & echo $! > {file}; echo test a ... ok; wait");
        let (summary, outcome) = run(&script);
        let why = format!("cargo test: silent for 5s after `test a ... ok`: ended; {CLEAN}");
        assert_eq!(outcome.unwrap_err(), why);
        assert!(summary.crashed);
        assert_ends(file);
    }

    /// Goal: a hung suite is killed with all its descendants, its slow test counts as failed, and
    /// the next suite counts.
    #[test]
    fn a_silent_suite_has_failed() {
        let file = std::env::temp_dir().join(format!("weir-t-suite-{}", std::process::id()));
        let file = file.to_str().unwrap();
        let (summary, outcome) = run(&format!(
            "echo running 2 tests; echo 'test a ... ok'; \
             echo 'test b has been running for over 60 seconds'; \
             sh -c 'sleep 1000 & echo $! > {file}; wait'; \
             echo running 1 test; echo 'test c ... ok'; \
             echo 'test result: ok. 1 passed; 0 failed;'; exit 101"
        ));
        assert_eq!(outcome.unwrap_err(), "cargo test: exit status: 101");
        assert_eq!(summary.to_string(), "2 passed, 1 failed, 0 skipped");
        assert_eq!(summary.failures, ["b"]);
        assert!(summary.may_be_flaky());
        assert_ends(file);
    }
}
