// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repeats an experiment whose only failures are timing failures and that lost CPU time to the
//! hypervisor.
//!
//! An experiment is repeated if a claim failed, a processor lost at least [`DISTURBED_MS`] and a
//! quarter of the time in one window of [`crate::stolen`], the attempt took at most
//! [`REPEATED_WITHIN`], and it was not the last of [`ATTEMPTS`]. The last attempt counts, disturbed
//! or not. Nothing is discarded: the samples of an attempt that does not count stay in the result
//! as `attempt-N/SERIES`, and a note lists failed cases with their values and bounds. A failure and
//! lost CPU time in one attempt do not prove that one is the cause of the other: a case that fails
//! in every note is a defect.
//!
//! Timing failures are failures of claims that depend on when something happens. A claim that
//! something is exact (a refused token, the order of packets, an unchanged file) is about the
//! outcome: an attempt that broke one counts, whatever CPU time it lost. Of exact claims only those
//! of [`LATE`] depend on time as well: a packet is lost if nobody takes it from its ring in time.
//! Claims that have a margin but do not depend on time ([`NEVER_LATE`], [`ASKED`]) count as exact.

use std::time::{Duration, Instant};

use weir_result::{ATTEMPT, Case, Comparison, ResultFile, quantity};

use crate::stolen::{self, StealWatch, StealWindow};
use crate::{Recording, Result};

impl Recording<'_> {
    /// Records an experiment, and repeats it under the conditions of this module; `what` is its
    /// name in the notes.
    pub fn attempt(&mut self, what: &str, record: impl Fn(&mut Self) -> Result) -> Result {
        let mut number = 1;
        loop {
            let (clean, begun) = (self.result.clone(), Instant::now());
            let watch = StealWatch::begin();
            record(self)?;
            let (took, stolen) = (begun.elapsed(), watch.end());
            let cases = self.result.cases().get(clean.cases().len()..).unwrap_or_default();
            let broken: Vec<&Case> = cases.iter().filter(|case| !case.holds()).collect();
            let late = !broken.is_empty() && broken.iter().all(|case| may_be_late(case));
            let attempt = Attempt { number, late, took, worst: stolen::worst_dense(&stolen) };
            if !attempt.is_made_again() {
                return Ok(());
            }
            let note = attempt.note(self.id(), what, &listed(&broken));
            let seen = std::mem::replace(&mut self.result, clean);
            set_aside(&mut self.result, &seen, number)?;
            self.say(&note);
            self.result.add_note(note);
            self.uncounted += 1;
            number += 1;
        }
    }
}

/// Keeps the series and notes of `seen` that `result` lacks, named by their attempt.
fn set_aside(result: &mut ResultFile, seen: &ResultFile, number: u32) -> Result {
    for (name, series) in seen.series() {
        if !result.series().contains_key(name) {
            result.add_series(&format!("{ATTEMPT}{number}/{name}"), series.clone())?;
        }
    }
    for note in seen.notes().get(result.notes().len()..).unwrap_or_default() {
        result.add_note(format!("attempt {number}: {note}"));
    }
    Ok(())
}

/// Returns true for a case that only a stalled processor can break.
fn may_be_late(case: &Case) -> bool {
    if NEVER_LATE.iter().any(|part| case.id().starts_with(part)) || case.id().ends_with(ASKED) {
        return false;
    }
    let exact = case.bound().op == Comparison::Equal;
    !exact || case.id().rsplit('/').next().is_some_and(|part| LATE.contains(&part))
}

/// Lists the first [`TOLD_MAX`] broken cases, since an experiment may have hundreds.
fn listed(broken: &[&Case]) -> String {
    let mut text: Vec<String> = broken.iter().take(TOLD_MAX).map(|case| told(case)).collect();
    if let Some(more) = broken.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        text.push(format!("and {more} more"));
    }
    text.join("; ")
}

/// Returns the name, value and bound of a case.
fn told(case: &Case) -> String {
    let [value, bound] = [case.value(), case.bound().value].map(|of| quantity(of, case.unit()));
    format!("{} {value} ({} {bound})", case.id(), case.bound().op)
}

/// One attempt at a row, a part of one or an experiment.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// The first is 1.
    number: u32,
    /// Cases failed, and a stalled processor can explain each of them.
    late: bool,
    took: Duration,
    worst: StealWindow,
}

impl Attempt {
    fn is_made_again(&self) -> bool {
        let disturbed = self.worst.stolen_ms >= DISTURBED_MS;
        self.late && disturbed && self.number < ATTEMPTS && self.took <= REPEATED_WITHIN
    }

    fn note(&self, row: &str, what: &str, broken: &str) -> String {
        let Self { number, worst: StealWindow { stolen_ms, span_ms }, .. } = self;
        format!(
            "{row}, {what}: attempt {number} of {ATTEMPTS} does not count; meanwhile the machine's \
             host took {stolen_ms:.0} ms of {span_ms:.0} from a processor; did not hold: {broken}"
        )
    }
}

/// Names of exact claims that fail if a ring is not emptied in time: packets lost, the time that
/// this loss stands for, and packets that a device dropped.
const LATE: [&str; 3] = ["lost", "blocked", "device"];

/// Prefixes of cases of the table `node` that count bytes, descriptors and answers, not time.
const NEVER_LATE: [&str; 4] = ["node.3/", "node.4/", "node.8/report/", "node.8/deb/"];

/// The end of the names of claims that enough was asked for.
const ASKED: &str = "/asked";

/// Most broken cases in a note.
const TOLD_MAX: usize = 10;

/// Most attempts at one row.
const ATTEMPTS: u32 = 3;

/// Milliseconds lost in one window that count as a disturbance: three ticks. The pauses of 8 ms
/// that a host makes now and then stay below it, even two of them, wherever the ticks fall.
const DISTURBED_MS: f64 = 30.0;

/// Longest attempt that is repeated.
const REPEATED_WITHIN: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use weir_result::{Bound, Claim, Origin, Rule, Series};

    use super::*;

    const BROKEN: Attempt = Attempt {
        number: 1,
        late: true,
        took: Duration::from_secs(40),
        worst: StealWindow { stolen_ms: 270.0, span_ms: 380.0 },
    };

    /// Goal: only what is short, broken and disturbed is made again, and not for ever.
    #[test]
    fn what_is_made_again() {
        assert!(BROKEN.is_made_again());
        assert!(Attempt { number: ATTEMPTS - 1, ..BROKEN }.is_made_again());
        for kept in [
            Attempt { late: false, ..BROKEN },
            Attempt { number: ATTEMPTS, ..BROKEN },
            Attempt { worst: StealWindow { stolen_ms: 20.0, span_ms: 100.0 }, ..BROKEN },
            Attempt { took: Duration::from_secs(1320), ..BROKEN },
        ] {
            assert!(!kept.is_made_again(), "{kept:?}");
        }
    }

    /// Goal: a defect that shows now and then is not tried away on a bad day of the host.
    #[test]
    fn what_cannot_be_late_counts() {
        let mut result = ResultFile::new(Origin::default());
        let mut late = |id: &str, bound| {
            result.add_series(id, Series::count("packet", 3)).unwrap();
            may_be_late(result.judge(Claim::new(id, id, Rule::Sum, bound).of(&[id])).unwrap())
        };
        assert!(late("node.1/lost", Bound::equal(0.0)) && late("node.2/p99", Bound::at_most(1.0)));
        for exact in ["node.1/order", "node.4/refused", "node.8/undo/bytes", "lost/named"] {
            assert!(!late(exact, Bound::equal(0.0)), "{exact}");
        }
        for counted in ["node.3/memory", "node.8/report/a/least", "node.8/explain/a/asked"] {
            assert!(!late(counted, Bound::at_most(1.0)), "{counted}");
        }
    }

    /// Goal: an attempt that does not count can be looked at as long as the result is kept.
    #[test]
    fn nothing_is_thrown_away() {
        let mut seen = ResultFile::new(Origin::default());
        seen.add_series("node.1/other", Series::count("1", 1)).unwrap();
        let mut result = seen.clone();
        seen.add_series("node.1/lost", Series::count("packet", 152)).unwrap();
        let claim = Claim::new("node.1/lost", "lost", Rule::Sum, Bound::equal(0.0));
        let case = told(seen.judge(claim.of(&["node.1/lost"])).unwrap());
        set_aside(&mut result, &seen, 1).unwrap();
        assert_eq!(result.series()["attempt-1/node.1/lost"], seen.series()["node.1/lost"]);
        assert_eq!((result.series().len(), result.cases().len()), (2, 0));
        let note = BROKEN.note("node.1", "live changes", &case);
        let words = "node.1, live changes: attempt 1 of 3 does not count; meanwhile the machine's \
                     host took 270 ms of 380 from a processor; did not hold: node.1/lost 152 \
                     packet (= 0 packet)";
        assert_eq!(note, words);
    }
}
