// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate of each guest without a cap, under the load of all that follows.

use weir_control::Sample;
use weir_experiment::mean;
use weir_experiment::prelude::*;
use weir_units::CpuShare;

use super::bench::GuestBench;

/// Measures it, all guests at once.
pub(super) fn measure(
    trial: &mut Recording<'_>,
    id: &str,
    bench: &mut GuestBench<'_>,
) -> Result<Vec<PacketRate>, ExperimentError> {
    bench.samples(SETTLING)?;
    let before = bench.xen.times()?;
    let seen = bench.samples(SAMPLES)?;
    let after = bench.xen.times()?;
    let mut capacity = Vec::new();
    for (index, samples) in seen.iter().enumerate() {
        let name = bench.guests[index].name.to_owned();
        let rate = mean(&rates(samples));
        let used = CpuShare::of_floor(after[index].saturating_sub(before[index]), span(samples));
        trial.say(&format!("{id}: {name} forwards {rate:.0} pps without a cap, of CPU {used}"));
        let series = format!("{id}/{name}/free");
        trial.keep(&format!("{series}-offered"), Series::sampled("pps", 1.0, offered(samples)))?;
        let (text, rates) = (format!("{name} forwards"), rates(samples));
        let rates = Series::sampled("pps", 1.0, rates);
        trial.claim_samples(series, text, rates, Rule::Min, Bound::at_least(1.0))?;
        capacity.push(PacketRate::from_pps(whole(rate)));
    }
    Ok(capacity)
}

/// Packets forwarded a second, in each sample.
pub(super) fn rates(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| float(sample.rate().as_pps())).collect()
}

/// Packets offered a second, in each sample.
fn offered(samples: &[Sample]) -> Vec<f64> {
    let offered = samples.iter().map(|sample| sample.offered_rate().unwrap_or(PacketRate::ZERO));
    offered.map(|rate| float(rate.as_pps())).collect()
}

fn span(samples: &[Sample]) -> Nanos {
    samples.iter().fold(Nanos::ZERO, |sum, sample| sum.saturating_add(sample.span))
}

/// Rounds a rate, which is no less than 0 and far below 2⁵³.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, checked")]
pub(super) fn whole(rate: f64) -> u64 {
    rate.clamp(0.0, 1e15).round() as u64
}

/// The first second after the senders began.
const SETTLING: usize = 1;
const SAMPLES: usize = 4;
