// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reset tests of a suite (RFC 2544, section 26.6), made when all other tests of all sizes are
//! done: a DUT that does not come back from a reset costs no other result.

use crate::bounds::GoalResult;
use crate::gaps::ResetTime;
use crate::measurer::{Measurer, ResetRequest};
use crate::schedule::{SizeTest, SuiteSchedule};
use crate::suite::{BenchmarkProgress, NO_THROUGHPUT, SizeResult, SuiteResult};
use weir_units::Nanos;

/// Resets the DUT once for each size of `suite` at its throughput. Calls `size_done` after each.
/// A size stays marked as incomplete until its reset is answered, or left out for a reason.
pub(crate) fn run_resets<M: Measurer>(
    measurer: &mut M,
    schedule: SuiteSchedule<'_>,
    suite: &mut SuiteResult,
    progress: &mut dyn FnMut(BenchmarkProgress),
    size_done: &mut dyn FnMut(&M, &SuiteResult),
) -> Result<(), M::Error> {
    let (of, each) = (suite.sizes.len(), schedule.test(SizeTest::Reset).as_nanos());
    let (duration, patience) = (schedule.limits.overload, schedule.limits.reset_patience);
    let test = SizeTest::Reset.name();
    let mut away: Option<&str> = None;
    for done in 0..of {
        let Some(size) = suite.sizes.get_mut(done) else { break };
        let pps = size.goals.first().map_or(0, GoalResult::throughput);
        let without = (pps == 0).then_some(NO_THROUGHPUT);
        if let Some(why) = away.or(without) {
            size.notes.push(format!("reset left out: {why}"));
        } else {
            let left = Nanos::new(each.saturating_mul((of - done) as u64));
            progress(BenchmarkProgress { done, of, test, pps, left });
            let profile = size.profile.clone();
            let request = ResetRequest { profile, pps, duration, patience };
            let answer = measurer.reset(&request)?;
            away = match answer {
                Some(ResetTime::NotBack(_)) => Some(NOT_BACK),
                Some(ResetTime::NoLink(_)) => Some(NO_LINK),
                _ => None,
            };
            add(size, answer);
        }
        size.ended_in = None;
        size_done(measurer, suite);
    }
    Ok(())
}

fn add(size: &mut SizeResult, answer: Option<ResetTime>) {
    match answer {
        Some(ResetTime::Back(time)) => size.reset_ns = Some(time.as_nanos()),
        Some(ResetTime::NotBack(time)) => size.not_back_ns = Some(time.as_nanos()),
        Some(ResetTime::Failed(why)) => size.notes.push(format!("reset failed: {why}")),
        Some(ResetTime::NoLink(why)) => size.notes.push(format!("reset left out: {why}")),
        None => size.notes.push("reset left out: the device cannot be reset".to_owned()),
    }
}

const NOT_BACK: &str = "the device did not come back from the reset before";
const NO_LINK: &str = "the device gave no link for the reset before";
