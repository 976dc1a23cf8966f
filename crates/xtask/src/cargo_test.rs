// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo test` with its output shown as it comes, and the results of all suites summed.
//!
//! A test that cannot run here (no root, no XDP, no namespaces) prints `SKIPPED name: reason` on a
//! line of its own and returns. Cargo counts it as passed; here it counts as skipped, like an
//! ignored one, and is named again at the end. One that has real packets or processes prints
//! `ON THE HOST name`: it needs a processor now and then, which the machine's own host may take.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::command;
use crate::stolen::{DISTURBED, Stolen};

/// A run that says nothing for so long hangs, and is ended with the last test that it named. The
/// longest silence of a run that holds is its build: about ten minutes on two processors.
const SILENCE: Duration = Duration::from_secs(1500);

/// More that fail at once are no accident.
const UNSTEADY_MAX: usize = 8;

/// How often what fails is made again, for as long as the machine's host takes its processors.
const ALONE_MAX: u32 = 3;

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
    /// Suites that were begun: one that crashes has no closing line.
    begun: u64,
    /// Those that failed, by name.
    failures: Vec<String>,
    /// Those that held, by name.
    held: Vec<String>,
    /// Those that failed beside others and held alone.
    unsteady: Vec<String>,
    /// Those that have real packets or processes, by the last part of their names.
    on_host: BTreeSet<String>,
}

impl Summary {
    /// Takes one line of `cargo test`'s output into account.
    pub(crate) fn add_line(&mut self, line: &str) {
        if let Some(reason) = line.trim_start().strip_prefix("SKIPPED ") {
            self.skipped.push(reason.trim().to_string());
        } else if let Some(name) = line.trim_start().strip_prefix("ON THE HOST ") {
            self.on_host.insert(last_part(name.trim()).to_owned());
        } else if is_beginning(line) {
            self.begun += 1;
        } else if let Some(name) = named(line, " ... FAILED") {
            self.failures.push(name.to_owned());
        } else if let Some(name) = named(line, " ... ok") {
            self.held.push(name.to_owned());
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

    /// Whether what failed may have lacked a processor beside others: a few tests, and no suite
    /// that crashed.
    fn may_be_unsteady(&self) -> bool {
        let few = 1..=UNSTEADY_MAX;
        few.contains(&self.failures.len())
            && self.failed == self.failures.len() as u64
            && self.begun == self.suites
    }

    /// Takes another run into account, of those alone that failed. Whether it can be told of each
    /// of them what it came to: none crashed, and all names were found.
    fn take_alone(&mut self, alone: &Self) -> bool {
        let told = |name: &String| alone.held.contains(name) || alone.failures.contains(name);
        if alone.begun != alone.suites || !self.failures.iter().all(told) {
            return false;
        }
        let failures = std::mem::take(&mut self.failures).into_iter();
        let (failures, held): (_, Vec<_>) =
            failures.partition(|name| alone.failures.contains(name));
        self.passed += held.len() as u64;
        self.failed -= held.len() as u64;
        self.failures = failures;
        self.unsteady.extend(held);
        true
    }

    /// Of what failed in all of its attempts, that which has real packets or processes is not
    /// shown: the machine's host took at least this part of the processors each time.
    fn leave_out(&mut self, least: f64) {
        let failures = std::mem::take(&mut self.failures).into_iter();
        let (late, failures): (Vec<_>, Vec<_>) =
            failures.partition(|name| self.on_host.contains(last_part(name)));
        self.failed -= late.len() as u64;
        self.failures = failures;
        let reason = format!("fails, and the machine's host takes {:.0} %", 100.0 * least);
        self.skipped.extend(late.into_iter().map(|name| format!("{name}: {reason}")));
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
/// A few that fail are made again alone ([`again`]).
pub(crate) fn all() -> (Summary, Result<(), String>) {
    let mut command = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(["--", "--show-output"]);
    if std::env::var_os(SEED).is_none() {
        command.env(SEED, "1");
    }
    let (mut summary, outcome) = counted(&mut command);
    if outcome.is_ok() || !summary.may_be_unsteady() {
        return (summary, outcome);
    }
    again(&mut summary);
    let outcome = if summary.failed == 0 { Ok(()) } else { outcome };
    (summary, outcome)
}

/// Makes again alone what failed, since many tests judge time on a machine that has two processors
/// for all of them; what holds then does not fail the run, and is named at its end. What fails
/// again has failed, unless the machine's host took processors meanwhile: then it is made once
/// more, and what has real packets or processes is not shown if it was so each time.
fn again(summary: &mut Summary) {
    let mut least = f64::INFINITY;
    for _ in 0..ALONE_MAX {
        println!("\nwhat failed is made again, alone");
        let stolen = Stolen::since_now();
        let mut command = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
        command.args(["--lib", "--bins", "--tests"]);
        command.args(["--", "--show-output", "--test-threads", "1", "--exact"]);
        let (alone, _) = counted(command.args(&summary.failures));
        least = least.min(stolen.part());
        if !summary.take_alone(&alone) || summary.failures.is_empty() || least < DISTURBED {
            return;
        }
    }
    summary.leave_out(least);
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
    if !summary.unsteady.is_empty() {
        println!("\n*** {} UNSTEADY, failed beside others and held alone:", summary.unsteady.len());
        summary.unsteady.iter().for_each(|name| println!("***   {name}"));
    }
    if !summary.failures.is_empty() {
        println!("\n*** {} FAILED:", summary.failures.len());
        summary.failures.iter().for_each(|name| println!("***   {name}"));
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

/// `running 12 tests`, as a suite begins.
fn is_beginning(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    matches!(words[..], ["running", count, "test" | "tests"] if count.parse::<u64>().is_ok())
}

/// The name in `test NAME ... FAILED`, where that is what it came to.
fn named<'l>(line: &'l str, came_to: &str) -> Option<&'l str> {
    let name = line.strip_prefix("test ")?.strip_suffix(came_to)?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

/// `c` of `a::b::c`.
fn last_part(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
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

    /// A run of one suite with these lines between its first and its last.
    fn run(lines: &str, closing: &str) -> Summary {
        let mut summary = Summary::default();
        let output = format!("running 2 tests\n{lines}\n{closing}");
        output.lines().for_each(|line| summary.add_line(line));
        summary.close();
        summary
    }

    #[test]
    fn what_holds_alone_is_unsteady_and_said() {
        let mut summary =
            run("test a::b ... FAILED\ntest c ... ok", "test result: FAILED. 1 passed; 1 failed;");
        assert!(summary.may_be_unsteady());
        let alone = run("test a::b ... ok", "test result: ok. 1 passed; 0 failed;");
        assert!(summary.take_alone(&alone));
        assert_eq!(summary.to_string(), "2 passed, 0 failed, 0 skipped");
        assert_eq!((summary.unsteady, summary.failures), (vec!["a::b".to_owned()], vec![]));
    }

    #[test]
    fn what_fails_again_or_is_not_found_has_failed() {
        let failed = || run("test a - should panic ... FAILED", "test result: FAILED. 1 failed;");
        assert_eq!(failed().failures, ["a"]);
        for (alone, told) in [
            (run("test a ... FAILED", "test result: FAILED. 0 passed; 1 failed;"), true),
            // One of the same name elsewhere holds.
            (run("test a ... ok\ntest a ... FAILED", "test result: FAILED. 1 failed;"), true),
            (run("", "test result: ok. 0 passed; 0 failed;"), false),
            (run("test a ... ok", ""), false),
        ] {
            let mut summary = failed();
            assert_eq!(summary.take_alone(&alone), told, "{alone:?}");
            assert_eq!((summary.failed, summary.failures.len()), (1, 1));
        }
    }

    /// Only what says that it needs the host is left out, and is named.
    #[test]
    fn what_the_host_broke_each_time_is_not_shown() {
        let lines = "test a::b ... FAILED\ntest pure ... FAILED\nON THE HOST b";
        let mut summary = run(lines, "test result: FAILED. 0 passed; 2 failed;");
        summary.leave_out(0.3);
        assert_eq!((summary.failed, &summary.failures), (1, &vec!["pure".to_owned()]));
        assert_eq!(summary.skipped, ["a::b: fails, and the machine's host takes 30 %"]);
    }

    #[test]
    fn many_failures_or_a_crash_are_no_accident() {
        let many = "test a ... FAILED\n".repeat(UNSTEADY_MAX + 1);
        assert!(!run(&many, "test result: FAILED. 0 passed; 9 failed;").may_be_unsteady());
        assert!(!run("test a ... FAILED", "").may_be_unsteady(), "no closing line");
        assert!(!run("test a ... ok", "test result: ok. 2 passed; 0 failed;").may_be_unsteady());
        assert!(!is_beginning("running away tests"));
    }
}
