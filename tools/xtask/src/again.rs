// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a few failed tests again, alone.
//!
//! Many tests run in parallel on a machine with two processors, and some of them judge time. One
//! that fails in parallel and passes alone is *flaky*: it is named at the end and does not fail the
//! run. One that fails alone has failed, unless the machine's host took processors meanwhile. Then
//! the failed tests run again, up to three times in all, if all of them have real packets or
//! processes. If the host took [`LOST`] or more of the processors each time, they are not judged,
//! and are named with the part that was taken.

use crate::stolen::DISTURBED;
use crate::summary::TestSummary;

/// Runs the failed tests again. `alone` runs tests by their names, and returns their summary and
/// the part of the processors' time that the machine's host took meanwhile.
pub(crate) fn again(
    summary: &mut TestSummary,
    mut alone: impl FnMut(&[String]) -> (TestSummary, f64),
) {
    if !summary.may_be_flaky() {
        return;
    }
    let mut least_stolen = f64::INFINITY;
    for _ in 0..ATTEMPTS {
        println!("\nfailed tests run again, alone");
        let (run, stolen) = alone(&summary.failures);
        least_stolen = least_stolen.min(stolen);
        let is_told = summary.take_alone(&run);
        let is_late = stolen >= DISTURBED && summary.is_all_on_host();
        if !is_told || !is_late || summary.failures.is_empty() {
            return;
        }
    }
    if least_stolen >= LOST {
        summary.leave_out(least_stolen);
    }
}

/// The most attempts that a failed test gets.
const ATTEMPTS: u32 = 3;

/// If the host took this part of the processors each time, tests that failed each time are not
/// judged: a wait of a minute for a condition may then be in vain.
const LOST: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "---- a stdout ----\nON THE HOST";

    /// Repeats the failed test `a` once for each entry of `stolen`; the last attempt passes if it
    /// `holds`. Returns the outcome and the number of attempts.
    fn made(first: &str, stolen: &[f64], holds: bool) -> (String, usize) {
        let closing = "test result: FAILED. 0 passed; 1 failed;";
        let mut summary = TestSummary::of_run(&format!("test a ... FAILED\n{first}"), closing);
        let mut count = 0;
        again(&mut summary, |failures| {
            assert_eq!(failures, ["a"]);
            count += 1;
            let alone = if holds && count == stolen.len() {
                TestSummary::of_run("test a ... ok", "test result: ok. 1 passed; 0 failed;")
            } else {
                TestSummary::of_run("test a ... FAILED", closing)
            };
            (alone, stolen[count - 1])
        });
        (summary.to_string(), count)
    }

    #[test]
    fn the_first_attempt_that_is_left_alone_decides() {
        let failed = |count| ("0 passed, 1 failed, 0 skipped".to_owned(), count);
        assert_eq!(made(HOST, &[0.01], false), failed(1));
        assert_eq!(made(HOST, &[0.8, 0.01], false), failed(2));
        assert_eq!(made("", &[0.8], false), failed(1), "a pure one");
        // It was disturbed, but could have held.
        assert_eq!(made(HOST, &[0.8, 0.1, 0.8], false), failed(3));
        let not_judged = ("0 passed, 0 failed, 1 skipped".to_owned(), 3);
        assert_eq!(made(HOST, &[0.8, 0.5, 0.8], false), not_judged);
        let held = |count| ("1 passed, 0 failed, 0 skipped".to_owned(), count);
        assert_eq!(made("", &[0.01], true), held(1));
        assert_eq!(made(HOST, &[0.8, 0.8, 0.8], true), held(3));
    }

    #[test]
    fn a_crash_is_not_made_again() {
        let mut summary = TestSummary::of_run("test a ... FAILED", "");
        again(&mut summary, |_| panic!("made again"));
        assert_eq!(summary.failed, 0);
        assert_eq!(summary.failures, ["a"]);
    }
}
