// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers beside each other that a node holds at parts of what they forward together.

use weir_control::Sample;
use weir_experiment::prelude::*;
use weir_policy::ControllerKind;

use super::held_lab::HeldLab;

impl HeldLab {
    /// Has the node hold each router in that way at a rate of these, in packets a second.
    pub(crate) fn hold_all(
        &self,
        controller: ControllerKind,
        wanted: &[f64],
    ) -> Result<(), ExperimentError> {
        let mut routers = wanted.iter().enumerate();
        routers.try_for_each(|(router, wanted)| self.hold_by(router, controller, pps(*wanted)))
    }

    /// What each router forwards in the mean of `count` periods from now on, in packets a second.
    pub(crate) fn rates(&mut self, count: usize) -> Result<Vec<f64>, ExperimentError> {
        Ok(self.watch_all(count)?.iter().map(|samples| rate(samples, |one| one.packets)).collect())
    }
}

/// What routers forward that share `all` by these parts.
pub(crate) fn shares(all: f64, parts: &[u32]) -> Vec<f64> {
    let whole = f64::from(parts.iter().sum::<u32>()).max(1.0);
    parts.iter().map(|part| all * f64::from(*part) / whole).collect()
}

/// Packets by time, over all samples, of those that `count` says.
pub(super) fn rate(samples: &[Sample], count: impl Fn(&Sample) -> u64) -> f64 {
    let packets: u64 = samples.iter().map(count).sum();
    let nanos: u64 = samples.iter().map(|one| one.span.as_nanos()).sum();
    float(packets) / (float(nanos) / 1e9).max(f64::MIN_POSITIVE)
}

/// To the packet below, at least one: what is no rate is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(crate) fn pps(rate: f64) -> PacketRate {
    PacketRate::from_pps((rate as u64).max(1))
}

#[cfg(test)]
mod tests {
    use weir_units::Nanos;

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
