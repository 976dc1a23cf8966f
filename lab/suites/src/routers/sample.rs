// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Samples of a router of the lab, and rates: means over samples, and the parts of a sum.

use weir_control::Sample;
use weir_experiment::prelude::*;
use weir_units::CpuShare;

/// A measured sample, with the settings of about that time.
#[derive(Clone, Debug)]
pub(crate) struct RouterSample {
    /// The counts of the sample.
    pub(crate) sample: Sample,
    /// The cap, on average.
    pub(crate) cap: CpuShare,
    /// The limit.
    pub(crate) limit: Option<PacketRate>,
    /// The reason of the last decision in it.
    pub(crate) reason: Option<String>,
}

impl RouterSample {
    /// Packets a second, exactly.
    pub(crate) fn rate(&self) -> f64 {
        rate(std::slice::from_ref(&self.sample), |one| one.packets)
    }
}

/// Divides `all` among routers by these parts.
pub(crate) fn shares(all: f64, parts: &[u32]) -> Vec<f64> {
    let whole = f64::from(parts.iter().sum::<u32>()).max(1.0);
    parts.iter().map(|part| all * f64::from(*part) / whole).collect()
}

/// Returns the packets that `count` takes of each sample, by time, over all samples.
pub(super) fn rate(samples: &[Sample], count: impl Fn(&Sample) -> u64) -> f64 {
    let packets: u64 = samples.iter().map(count).sum();
    let nanos: u64 = samples.iter().map(|one| one.span.as_nanos()).sum();
    float(packets) / (float(nanos) / 1e9).max(f64::MIN_POSITIVE)
}

/// Returns the mean rate over samples.
pub(crate) fn mean(taken: &[RouterSample]) -> PacketRate {
    let packets = taken.iter().map(|one| one.sample.packets).sum();
    let span = taken.iter().fold(Nanos::ZERO, |sum, one| sum.saturating_add(one.sample.span));
    Sample { packets, span, ..Sample::default() }.rate()
}

/// Returns the mean share of a processor over the samples that have a meter; `None` if none has.
pub(super) fn mean_used(taken: &[RouterSample]) -> Option<CpuShare> {
    let shares = taken.iter().filter_map(|one| one.sample.used()).map(|used| used.as_ppm());
    let shares: Vec<u64> = shares.map(u64::from).collect();
    let mean = shares.iter().sum::<u64>().checked_div(shares.len() as u64)?;
    Some(CpuShare::from_ppm(u32::try_from(mean).unwrap_or(u32::MAX)))
}

/// Returns that part of a rate, at least one packet.
pub(crate) fn part(rate: PacketRate, percent: u64) -> PacketRate {
    PacketRate::from_pps((rate.as_pps() * percent / 100).max(1))
}

/// Rounds down to a packet, and up to one: NaN is one, too.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(crate) fn pps(rate: f64) -> PacketRate {
    PacketRate::from_pps((rate as u64).max(1))
}

#[cfg(test)]
impl RouterSample {
    /// A sample of that length under a cap, without a limit.
    pub(crate) fn of(span: Nanos, packets: u64, cap: CpuShare) -> Self {
        let sample = Sample { span, packets, ..Sample::default() };
        Self { sample, cap, limit: None, reason: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_all_of_it() {
        let shared = shares(78_000.0, &[10, 28, 40]);
        assert!((shared.iter().sum::<f64>() - 78_000.0).abs() < 1e-6);
        assert!((shared[1] - 28_000.0).abs() < 1e-6);
        assert!(shares(1.0, &[]).is_empty() && shares(1.0, &[0, 0]).iter().all(|one| *one < 1e-9));
    }

    #[test]
    fn a_rate_is_rounded_down_and_never_none() {
        assert_eq!(pps(1999.9), PacketRate::from_pps(1999));
        for none in [0.0, -5.0, f64::NAN] {
            assert_eq!(pps(none), PacketRate::from_pps(1), "{none}");
        }
    }

    #[test]
    fn a_mean_is_by_time_and_not_by_samples() {
        let sample = |millis, packets| {
            let span = Nanos::from_millis(millis);
            Sample { span, packets, ..Sample::default() }
        };
        let forwarded = |samples: &[Sample]| rate(samples, |one| one.packets);
        assert!((forwarded(&[sample(100, 100), sample(300, 500)]) - 1500.0).abs() < 1e-9);
        assert!(forwarded(&[]).abs() < 1e-9);
    }
}
