// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parts that several XTC rows share: the samples of a held router, and how they are kept.

use weir_control::relative_rmse;
use weir_experiment::prelude::*;
use weir_units::CpuShare;

use crate::routers::{Flowed, RouterSample};

/// A router held at a set-point by one controller.
pub(super) struct HeldSamples {
    pub(super) controller: &'static str,
    pub(super) percent: u64,
    pub(super) set_point: PacketRate,
    pub(super) taken: Vec<RouterSample>,
}

impl HeldSamples {
    /// Returns the set-point in packets a second.
    pub(super) fn wanted(&self) -> f64 {
        float(self.set_point.as_pps())
    }

    /// Returns the last ten samples, which come after those in which the controller may settle.
    pub(super) fn judged(&self) -> &[RouterSample] {
        &self.taken[self.taken.len().saturating_sub(MEAN_OF)..]
    }

    /// Returns the mean rate of the judged samples.
    pub(super) fn mean(&self) -> f64 {
        weir_experiment::mean(&self.judged().iter().map(RouterSample::rate).collect::<Vec<f64>>())
    }

    /// Returns the number of samples after which all are within `band` of the set-point.
    pub(super) fn settled(&self, band: f64) -> f64 {
        let outside = |one: &RouterSample| (one.rate() / self.wanted() - 1.0).abs() > band;
        float(self.taken.iter().rposition(outside).map_or(0, |last| last + 1) as u64)
    }

    /// Returns the text's relative RMSE; 0 if nothing was forwarded, which the mean shows.
    pub(super) fn deviation(&self) -> f64 {
        let rates: Vec<PacketRate> = self.judged().iter().map(|one| one.sample.rate()).collect();
        relative_rmse(&rates).unwrap_or(0.0)
    }
}

/// Keeps the samples of all set-points of a bench.
pub(super) fn keep(
    rec: &mut Recording<'_>,
    bench: &str,
    capacity: PacketRate,
    held: &[HeldSamples],
) -> Result<(), ExperimentError> {
    rec.keep(&format!("{bench}/capacity"), Series::count("packet/s", capacity.as_pps()))?;
    for held in held {
        let prefix = format!("{bench}/{}/{}%", held.controller, held.percent);
        let set_point = Series::count("packet/s", held.set_point.as_pps());
        rec.keep(&format!("{prefix}/set-point"), set_point)?;
        keep_taken(rec, &prefix, &held.taken)?;
    }
    Ok(())
}

/// Keeps what was metered in each period: the rate, the offered rate, the cap in force, the CPU
/// time used, and the limit if there was one.
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
    if let Some(reason) = taken.last().and_then(|one| one.reason.as_ref()) {
        let place = rec.name(prefix);
        rec.result.add_note(format!("{place}: last decision: {reason}"));
    }
    Ok(())
}

/// Claims that the meter of each router and its sink, which share nothing, counted the same. This
/// holds for UDP only, which flows one way.
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

/// A claim about series of a row: identifier, text, rule, bound, series.
pub(super) type ClaimLine<'a> = (&'a str, &'a str, Rule, Bound, &'a [&'a str]);

/// Keeps series, each under its name.
pub(super) fn keep_all<'a>(
    rec: &mut Recording<'_>,
    series: impl IntoIterator<Item = (&'a str, Series)>,
) -> Result<(), ExperimentError> {
    series.into_iter().try_for_each(|(name, series)| rec.keep(name, series))
}

/// Judges claims about series that are kept.
pub(super) fn claim_all(
    rec: &mut Recording<'_>,
    claims: &[ClaimLine<'_>],
) -> Result<(), ExperimentError> {
    let mut claims = claims.iter();
    claims
        .try_for_each(|(id, text, rule, bound, series)| rec.claim(id, text, *rule, *bound, series))
}

/// Returns a share of a processor as a number.
pub(super) fn share(share: CpuShare) -> f64 {
    f64::from(share.as_ppm()) / 1e6
}

/// The part of the arrivals that a sink may drop between its last look and its end.
const METER_ERROR: f64 = 0.001;

/// Samples in which a controller may settle, and those whose mean is judged.
pub(super) const SETTLE: usize = 5;
pub(super) const MEAN_OF: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn held(rates: &[u64]) -> HeldSamples {
        let taken = |packets| RouterSample::of(Nanos::from_secs(1), packets, CpuShare::ONE);
        let taken = rates.iter().copied().map(taken).collect();
        HeldSamples {
            controller: "weir",
            percent: 10,
            set_point: PacketRate::from_pps(1000),
            taken,
        }
    }

    #[test]
    fn a_run_has_settled_when_it_stays_within_its_band() {
        assert_eq!(held(&[2000, 1040, 1060, 1000, 990]).settled(0.05).to_bits(), 3_f64.to_bits());
        assert_eq!(held(&[1000; 12]).settled(0.05).to_bits(), 0_f64.to_bits());
        assert_eq!(held(&[1000, 1000, 0]).settled(0.05).to_bits(), 3_f64.to_bits(), "never");
    }

    #[test]
    fn mean_and_deviation_are_of_the_last_ten() {
        let mut rates = vec![5000; 5];
        rates.extend([900, 1100].repeat(5));
        let held = held(&rates);
        assert!((held.mean() - 1000.0).abs() < 1e-9 && (held.deviation() - 0.1).abs() < 1e-9);
    }
}
