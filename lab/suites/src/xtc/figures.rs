// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What rows of XTC keep and judge alike.

use weir_experiment::prelude::*;
use weir_units::CpuShare;

use crate::routers::{Flowed, RouterSample};

/// Judges single series, of routers of one kind.
pub(super) struct Judge<'t, 'a> {
    pub(super) rec: &'t mut Recording<'a>,
    pub(super) kind: &'static str,
}

impl Judge<'_, '_> {
    /// Keeps `series` as `id` and claims that `rule` keeps `bound` on it.
    pub(super) fn one(
        &mut self,
        id: String,
        text: &str,
        rule: Rule,
        bound: Bound,
        series: Series,
    ) -> Result<(), ExperimentError> {
        self.rec.keep(&id, series)?;
        let text = format!("{}: {text}", self.kind);
        self.rec.claim(&id, text, rule, bound, &[&id])
    }
}

/// Keeps what was metered in each period: rate, what came, cap in force, CPU time used, and the
/// limit where there was one.
pub(super) fn keep_taken(
    rec: &mut Recording<'_>,
    prefix: &str,
    taken: &[RouterSample],
) -> Result<(), ExperimentError> {
    let nanos: u64 = taken.iter().map(|one| one.sample.span.as_nanos()).sum();
    let interval_s = float(nanos) / 1e9 / float(taken.len().max(1) as u64);
    let mut keep = |name: &str, unit: &str, value: fn(&RouterSample) -> f64| {
        let samples = taken.iter().map(value).collect();
        rec.keep(&format!("{prefix}/{name}"), Series::sampled(unit, interval_s, samples))
    };
    keep("rate", "packet/s", RouterSample::rate)?;
    keep("offered", "packet/s", |one| {
        one.sample.offered_rate().map_or(0.0, |rate| float(rate.as_pps()))
    })?;
    keep("cap", "1", |one| share(one.cap))?;
    keep("used", "1", |one| one.sample.used().map_or(0.0, share))?;
    if taken.iter().any(|one| one.limit.is_some()) {
        keep("limit", "packet/s", |one| one.limit.map_or(0.0, |l| float(l.as_pps())))?;
    }
    if let Some(reason) = taken.last().and_then(|one| one.reason) {
        let place = rec.name(prefix);
        rec.result.add_note(format!("{place}: last decision: {reason}"));
    }
    Ok(())
}

/// Claims that the meter of each router and its sink, which share nothing, counted the same; UDP
/// only, which flows one way.
pub(super) fn judge_meter(
    rec: &mut Recording<'_>,
    id: &str,
    flowed: &Flowed,
) -> Result<(), ExperimentError> {
    let error = |(metered, arrived): (&u64, u64)| {
        let off = float(metered.abs_diff(arrived));
        off / float(arrived.max(1))
    };
    let errors = flowed.metered.iter().zip(flowed.arrived()).map(error).collect();
    let text = "packets that meter and sink counted differently";
    rec.claim_samples(
        id,
        text,
        Series::unordered("1", errors),
        Rule::Max,
        Bound::at_most(METER_ERROR),
    )
}

/// A share of a processor as a number.
pub(super) fn share(share: CpuShare) -> f64 {
    f64::from(share.as_ppm()) / 1e6
}

/// Of what arrived: what a sink drops between its last look and its end.
const METER_ERROR: f64 = 0.001;
