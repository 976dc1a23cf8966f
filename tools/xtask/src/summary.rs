// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outcome of a test run, read from its output.
//!
//! A test that cannot run here (no root, no XDP, no namespaces) prints `SKIPPED name: reason` on a
//! line of its own and returns. Cargo counts it as passed; here it counts as skipped, like an
//! ignored test, and is named again at the end. A test with real packets or processes prints
//! `ON THE HOST`: it may fail because the host of a virtual machine took its processor away.

use std::collections::BTreeSet;
use std::fmt;

/// The outcome of all suites of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestSummary {
    /// Tests that ran and passed.
    pub(crate) passed: u64,
    /// Tests that ran and failed.
    pub(crate) failed: u64,
    /// Tests that did not run, with their reasons.
    pub(crate) skipped: Vec<String>,
    /// Suites whose closing line was seen.
    pub(crate) suites: u64,
    /// Suites that began. One that crashes has no closing line.
    begun: u64,
    /// True if the run ended by a signal, a silence or a crash at exit.
    pub(crate) crashed: bool,
    /// Names of the tests that failed.
    pub(crate) failures: Vec<String>,
    /// Names of the tests that passed.
    passed_names: Vec<String>,
    /// Names of the tests of this suite that take long and have no outcome yet.
    slow: Vec<String>,
    /// Tests of this suite without an outcome.
    left: u64,
    /// Tests that had passed and failed when this suite began.
    before: (usize, usize),
    /// Names of flaky tests: they failed in parallel and passed alone.
    flaky: Vec<String>,
    /// The test whose captured output is being read.
    printing: String,
    /// Names of tests that reported themselves, or a part of them, as skipped.
    not_run: BTreeSet<String>,
    /// Names of tests with real packets or processes.
    on_host: BTreeSet<String>,
}

impl TestSummary {
    /// Reads one line of the output of `cargo test`.
    pub(crate) fn add_line(&mut self, line: &str) {
        if let Some(reason) = line.trim_start().strip_prefix("SKIPPED ") {
            self.skipped.push(reason.trim().to_string());
            self.not_run.insert(self.printing.clone());
        } else if line.trim() == "ON THE HOST" {
            self.on_host.insert(self.printing.clone());
        } else if let Some(name) = headed(line) {
            name.clone_into(&mut self.printing);
        } else if let Some(tests) = beginning(line) {
            self.begun += 1;
            self.left = tests;
            self.slow.clear();
            self.before = (self.passed_names.len(), self.failures.len());
        } else if let Some(name) = named(line, " has been running for over 60 seconds") {
            self.slow.push(name.to_owned());
        } else if let Some(name) = named(line, " ... FAILED") {
            self.end_test(name);
            self.failures.push(name.to_owned());
        } else if let Some(name) = named(line, " ... ok") {
            self.end_test(name);
            self.passed_names.push(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            self.suites += 1;
            self.printing.clear();
            self.passed += number_before(rest, " passed");
            self.failed += number_before(rest, " failed");
        } else if line.starts_with("test ") && line.contains(" ... ignored") {
            let (name, reason) = line.split_once(" ... ").unwrap_or((line, ""));
            self.end_test(name);
            self.skipped.push(format!("{}: {reason}", name.trim_start_matches("test ")));
        }
    }

    fn end_test(&mut self, name: &str) {
        self.left = self.left.saturating_sub(1);
        self.slow.retain(|slow| slow != name);
    }

    /// Returns true between the first and the last line of a suite.
    pub(crate) const fn is_in_suite(&self) -> bool {
        self.begun > self.suites
    }

    /// Counts the slow tests of this suite as failed, and the suite as ended, or as crashed if some
    /// of its tests have not begun. Returns false, and counts nothing, if no test of it is slow.
    pub(crate) fn end_hung_suite(&mut self) -> bool {
        if !self.is_in_suite() || self.slow.is_empty() {
            return false;
        }
        let has_begun = self.left <= self.slow.len() as u64;
        self.failures.append(&mut self.slow);
        let (passed, failures) = self.before;
        self.passed += (self.passed_names.len() - passed) as u64;
        self.failed += (self.failures.len() - failures) as u64;
        self.suites += u64::from(has_begun);
        true
    }

    /// Returns true if the failures may be flaky, because the tests competed for processors: the
    /// failures are few, and nothing crashed.
    pub(crate) fn may_be_flaky(&self) -> bool {
        let few = 1..=FLAKY_MAX;
        few.contains(&self.failures.len())
            && self.failed == self.failures.len() as u64
            && self.begun == self.suites
            && !self.crashed
    }

    /// Replaces the result of each failed test by that of `alone`, a run of these tests only.
    /// Returns false, and changes nothing, if that run crashed or lacks a test.
    pub(crate) fn take_alone(&mut self, alone: &Self) -> bool {
        let is_told =
            |name: &String| alone.passed_names.contains(name) || alone.failures.contains(name);
        let crashed = alone.crashed || alone.begun != alone.suites;
        if crashed || !self.failures.iter().all(is_told) {
            return false;
        }
        for name in std::mem::take(&mut self.failures) {
            if alone.failures.contains(&name) {
                self.failures.push(name);
                continue;
            }
            self.failed -= 1;
            if alone.not_run.contains(&name) {
                self.skipped.push(format!("{name}: failed in parallel, did not run alone"));
            } else {
                self.passed += 1;
                self.flaky.push(name);
            }
        }
        true
    }

    /// Returns true if each failed test is `ON THE HOST`. Its name must be unique, since only the
    /// name connects a test with its output.
    pub(crate) fn is_all_on_host(&self) -> bool {
        let count = |name: &String| {
            self.passed_names.iter().chain(&self.failures).filter(|other| *other == name).count()
        };
        self.failures.iter().all(|name| self.on_host.contains(name) && count(name) == 1)
    }

    /// Counts the failed tests as not judged, since the machine's host took at least this part of
    /// the processors' time in each run.
    pub(crate) fn leave_out(&mut self, least_stolen: f64) {
        let reason = format!("fails, and the machine's host takes {:.0} %", 100.0 * least_stolen);
        self.failed -= self.failures.len() as u64;
        let all = self.failures.drain(..);
        self.skipped.extend(all.map(|name| format!("{name}: {reason}")));
    }

    /// Ends the reading. Tests that reported themselves as skipped, which Cargo counts as passed,
    /// then count as skipped only.
    pub(crate) fn close(&mut self) {
        let passed = self.not_run.iter().filter(|name| self.passed_names.contains(name));
        self.passed = self.passed.saturating_sub(passed.count() as u64);
    }
}

impl fmt::Display for TestSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.skipped.len();
        write!(f, "{} passed, {} failed, {skipped} skipped", self.passed, self.failed)
    }
}

/// Prints the names of skipped, flaky and failed tests, then a line with all counts.
pub(crate) fn report(summary: &TestSummary) {
    if !summary.skipped.is_empty() {
        println!("\n*** {} NOT RUN:", summary.skipped.len());
        for skipped in &summary.skipped {
            println!("***   SKIPPED {skipped}");
        }
    }
    if !summary.flaky.is_empty() {
        println!("\n*** {} FLAKY, failed in parallel and passed alone:", summary.flaky.len());
        summary.flaky.iter().for_each(|name| println!("***   {name}"));
    }
    if !summary.failures.is_empty() {
        println!("\n*** {} FAILED:", summary.failures.len());
        summary.failures.iter().for_each(|name| println!("***   {name}"));
    }
    println!("\n{summary}");
}

/// Returns the number of tests in the first line of a suite: `running 12 tests`.
fn beginning(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["running", count, "test" | "tests"] = words[..] else { return None };
    count.parse().ok()
}

/// Returns the name in `test NAME ... FAILED`, if the line ends so.
fn named<'l>(line: &'l str, end: &str) -> Option<&'l str> {
    let name = line.strip_prefix("test ")?.strip_suffix(end)?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

/// Returns the name in `---- NAME stdout ----`, the line before a test's captured output.
fn headed(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Returns the number that ends right before `label`; 0 if there is none.
fn number_before(text: &str, label: &str) -> u64 {
    let Some(end) = text.find(label) else { return 0 };
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The most failures that may be flaky. More failures at a time are no coincidence.
const FLAKY_MAX: usize = 8;

#[cfg(test)]
impl TestSummary {
    /// Reads the output of a run of one suite with these lines between its first and its last.
    pub(crate) fn of_run(lines: &str, closing: &str) -> Self {
        let mut summary = Self::default();
        let output = format!("running 2 tests\n{lines}\n{closing}");
        output.lines().for_each(|line| summary.add_line(line));
        summary.close();
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &str, closing: &str) -> TestSummary {
        TestSummary::of_run(lines, closing)
    }

    /// Two suites, with a skipped test that cargo calls passed, a test with a skipped part, a test
    /// that failed after a skipped part, an ignored test, and output of no test.
    #[test]
    fn sums_suites_and_moves_skipped_out_of_passed() {
        let output = "\
running 4 tests
test a ... ok
test c ... ok
test d ... FAILED
test b ... ignored, needs a second machine

---- c stdout ----
SKIPPED c: not root
SKIPPED c: no XDP

---- d stdout ----
SKIPPED d (50 %): no time
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
SKIPPED lintian: not installed
running 6 tests
test result: FAILED. 5 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s
";
        let mut summary = TestSummary::default();
        output.lines().for_each(|line| summary.add_line(line));
        summary.close();
        assert_eq!((summary.passed, summary.failed, summary.suites), (6, 2, 2));
        assert_eq!(summary.skipped.len(), 5);
        assert_eq!(summary.skipped[0], "b: ignored, needs a second machine");
        assert_eq!(summary.to_string(), "6 passed, 2 failed, 5 skipped");
    }

    #[test]
    fn what_passes_alone_is_flaky_and_named() {
        let mut summary =
            run("test a::b ... FAILED\ntest c ... ok", "test result: FAILED. 1 passed; 1 failed;");
        assert!(summary.may_be_flaky());
        let alone = run("test a::b ... ok", "test result: ok. 1 passed; 0 failed;");
        assert!(summary.take_alone(&alone));
        assert_eq!(summary.to_string(), "2 passed, 0 failed, 0 skipped");
        assert_eq!((summary.flaky, summary.failures), (vec!["a::b".to_owned()], vec![]));
    }

    #[test]
    fn what_skips_itself_alone_has_not_held() {
        let mut summary = run("test a ... FAILED", "test result: FAILED. 0 passed; 1 failed;");
        let lines = "test a ... ok\n---- a stdout ----\nSKIPPED a: no time";
        assert!(summary.take_alone(&run(lines, "test result: ok. 1 passed; 0 failed;")));
        assert_eq!(summary.to_string(), "0 passed, 0 failed, 1 skipped");
        assert_eq!(summary.flaky, [""; 0]);
    }

    #[test]
    fn what_fails_again_or_is_not_found_has_failed() {
        let failed = || run("test a - should panic ... FAILED", "test result: FAILED. 1 failed;");
        assert_eq!(failed().failures, ["a"]);
        let crashed =
            TestSummary { crashed: true, ..run("test a ... ok", "test result: ok. 1 passed;") };
        for (alone, told) in [
            (run("test a ... FAILED", "test result: FAILED. 0 passed; 1 failed;"), true),
            // A test of the same name in another suite passes.
            (run("test a ... ok\ntest a ... FAILED", "test result: FAILED. 1 failed;"), true),
            (run("", "test result: ok. 0 passed; 0 failed;"), false),
            (run("test a ... ok", ""), false),
            (crashed, false),
        ] {
            let mut summary = failed();
            assert_eq!(summary.take_alone(&alone), told, "{alone:?}");
            assert_eq!((summary.failed, summary.failures.len()), (1, 1));
        }
        // Documentation tests are not run again.
        let lines = "test x ... FAILED\ntest src/lib.rs - f (line 3) ... FAILED";
        let mut summary = run(lines, "test result: FAILED. 0 passed; 2 failed;");
        let twice = run("test x ... ok\ntest x ... ok", "test result: ok. 2 passed; 0 failed;");
        assert!(!summary.take_alone(&twice) && summary.failed == 2);
    }

    #[test]
    fn on_host_tests_match_by_full_name() {
        let said = "---- b stdout ----\nON THE HOST";
        let failed = |name: &str| format!("test {name} ... FAILED\n{said}");
        let of = |lines: &str| run(lines, "test result: FAILED. 1 failed;").is_all_on_host();
        assert!(of(&failed("b")));
        assert!(!of(&failed("manager::b")));
        assert!(!of(&format!("test b ... ok\n{}", failed("b"))), "two of one name");
        assert!(!of(&format!("test pure ... FAILED\n{}", failed("b"))));
    }

    /// Goal: tests of a hung suite that have not begun are not forgotten.
    #[test]
    fn a_hung_suite_without_all_its_tests_has_crashed() {
        for (tests, may_be_flaky) in [(2, true), (3, false)] {
            let mut summary = TestSummary::default();
            for line in [
                &format!("running {tests} tests"),
                "test a ... ok",
                "test b has been running for over 60 seconds",
            ] {
                summary.add_line(line);
            }
            assert!(summary.end_hung_suite() && !summary.end_hung_suite());
            assert_eq!((summary.passed, summary.failed), (1, 1));
            assert_eq!(summary.may_be_flaky(), may_be_flaky, "{tests}");
        }
    }

    #[test]
    fn many_failures_or_a_crash_are_no_accident() {
        let many = "test a ... FAILED\n".repeat(FLAKY_MAX + 1);
        assert!(!run(&many, "test result: FAILED. 0 passed; 9 failed;").may_be_flaky());
        assert!(!run("test a ... FAILED", "").may_be_flaky(), "no closing line");
        assert!(!run("test a ... ok", "test result: ok. 2 passed; 0 failed;").may_be_flaky());
        let mut ended = run("test a ... FAILED", "test result: FAILED. 0 passed; 1 failed;");
        assert!(ended.may_be_flaky());
        ended.crashed = true;
        assert!(!ended.may_be_flaky());
        assert_eq!(beginning("running away tests"), None);
    }
}
