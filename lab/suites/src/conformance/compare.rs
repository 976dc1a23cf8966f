// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the shares of one run of the suite with those of others: virtual time with the wire.
//!
//! A stream's share is its part of the bits on a link that was to be full. A rate has no share, so
//! the bits of a stream behind a limit are compared themselves. Runs on the wire differ from each
//! other by what the machine does meanwhile, so each stream's median over the runs counts.

use std::collections::BTreeMap;

use weir_experiment::{Recording, Result};
use weir_result::{Bound, Case, Claim, ResultFile, Rule, Series};

/// Keeps, for each stream that all results have, its share in `rec` and its median share in
/// `others`, and claims that each ratio of the two is 1 to within [`SHARE_DIFFERENCE`].
pub fn compare(rec: &mut Recording<'_>, others: &[ResultFile]) -> Result {
    let here = shares(&rec.result);
    let there: Vec<_> = others.iter().map(shares).collect();
    let (mut ours, mut medians) = (Vec::new(), Vec::new());
    for (stream, share) in here {
        let all: Option<Vec<f64>> = there.iter().map(|one| one.get(&stream).copied()).collect();
        let median = all.and_then(|all| Rule::Median.apply(&[&all]).ok());
        let Some(median) = median else { continue };
        let percent = 100.0 * (share / median - 1.0);
        rec.say(&format!("{stream}: {percent:+.2} % of the median of {}", others.len()));
        ours.push(share);
        medians.push(median);
    }
    let names = ["conformance.compared/here", "conformance.compared/there"];
    rec.keep(names[0], Series::unordered("1", ours))?;
    rec.keep(names[1], Series::unordered("1", medians))?;
    for (part, rule, bound) in [
        ("least", Rule::LeastRatio, Bound::at_least(1.0 - SHARE_DIFFERENCE)),
        ("most", Rule::GreatestRatio, Bound::at_most(1.0 + SHARE_DIFFERENCE)),
    ] {
        let name = format!("share beside the median of the others, {part} of all streams");
        let claim = Claim::new(format!("conformance.compared/{part}"), name, rule, bound);
        rec.verdict(claim.of(&names))?;
    }
    Ok(())
}

/// Returns the share, or the bits behind a limit, of each stream that a case is about.
fn shares(result: &ResultFile) -> BTreeMap<String, f64> {
    let mut shares = BTreeMap::new();
    for case in result.cases() {
        let mean = |name: &String| {
            let samples = result.series().get(name).map_or(&[][..], |series| &series.samples);
            let judged = samples.get(case.claim().skip..).unwrap_or_default();
            (name.clone(), weir_experiment::mean(judged))
        };
        let means: Vec<_> = case.series().iter().map(mean).collect();
        let all: f64 = means.iter().map(|(_, mean)| mean).sum();
        let whole = if is_full(case) { all } else { 1.0 };
        if (is_full(case) || is_limit(case)) && all > 0.0 {
            shares.extend(means.into_iter().map(|(name, mean)| (name, mean / whole)));
        }
    }
    shares
}

/// Says whether a case is about the streams that fill a link.
fn is_full(case: &Case) -> bool {
    case.id().ends_with("/utilization") && case.series().len() > 1
}

/// Says whether a case is about the bits of a stream behind a limit.
fn is_limit(case: &Case) -> bool {
    case.id().ends_with("/at-least") && case.series().len() == 1
}

/// Greatest difference of a share, as a part of it.
pub const SHARE_DIFFERENCE: f64 = 0.01;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use weir_result::Origin;

    use super::*;

    /// A result with two streams on a full link, of which the first has `part`.
    fn run(part: f64) -> ResultFile {
        let mut result = ResultFile::new(Origin::default());
        for (name, bits) in [("x/t0", part), ("x/t1", 100.0 - part)] {
            result.add_series(name, Series::sampled("bit/s", 1.0, vec![7.0, bits, bits])).unwrap();
        }
        let bound = Bound::at_least(98.0);
        let claim = Claim::new("x/utilization", "full", Rule::LeastTotal, bound);
        result.judge(claim.of(&["x/t0", "x/t1"]).skip(1)).unwrap();
        result
    }

    fn holds(here: f64, there: [f64; 3]) -> bool {
        let mut silent = |_: &str| {};
        let mut rec = Recording::new(run(here), true, &mut silent);
        compare(&mut rec, &there.map(run)).unwrap();
        rec.result.check().unwrap();
        rec.result.holds()
    }

    #[test]
    fn the_median_of_the_others_counts() {
        assert!(holds(50.0, [50.2, 30.0, 49.9]));
        assert!(!holds(50.0, [50.6, 30.0, 50.7]));
    }
}
