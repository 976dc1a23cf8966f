// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running estimate of the cost of a packet, quick after a change and quiet between changes.
//!
//! **Parts.** The cost has a metered part, the CPU time of a packet, and a trim for the rest
//! (another process under the same cap, a budget that is not enforced as it was set). Both are kept
//! as logarithms, so that errors are relative.
//!
//! **Means.** Both are means since the last change of the router. The gain is 1, 2/3, 2/4, 2/5, …
//! down to [`QUIET_GAIN`]. That weights later samples more, since the first sample after a change
//! still contains time before it.
//!
//! **Changes.** The *surprise* of a sample is the difference to the estimate. A two-sided CUSUM of
//! the surprises detects a change (E. S. Page, "Continuous Inspection Schemes", Biometrika 41,
//! 1954): two large surprises, or many small ones, on the same side. The last two must both exceed
//! the usual noise: a single surprise is a pause of the machine, followed by none or by one on the
//! other side.

use crate::number::float;

/// The cost of a packet, as ln of its microseconds, which are millionths of a processor for one
/// packet a second.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    /// The metered part.
    metered: f64,
    /// The part of the cap beyond the metered one.
    trim: f64,
    /// Samples since the last change.
    age: u32,
    /// The usual size of a surprise.
    deviation: f64,
    /// The last surprise, in deviations.
    before: f64,
    /// The two sums of the CUSUM: surprises beyond [`CUSUM_SLACK`], in deviations.
    above: f64,
    below: f64,
    /// The side of the last change, as long as it is recent.
    last_side: f64,
}

impl Cost {
    /// Makes the estimate from a first sample: `metered` is the CPU time of a packet, if it is
    /// metered, and `effective` the cap divided by the rate, if the cap was binding.
    pub(crate) fn first(metered: Option<f64>, effective: Option<f64>) -> Option<Self> {
        let base = metered.or(effective)?;
        Some(Self {
            metered: base,
            trim: effective.map_or(0.0, |effective| effective - base),
            age: 1,
            deviation: DEVIATION_FIRST,
            before: 0.0,
            above: 0.0,
            below: 0.0,
            last_side: 0.0,
        })
    }

    /// Returns the ln of the microseconds of cap that a packet needs.
    pub(crate) fn effective(&self) -> f64 {
        self.metered + self.trim
    }

    /// Returns the ln of the microseconds of CPU time that a packet takes, as metered.
    pub(crate) fn metered(&self) -> f64 {
        self.metered
    }

    /// Returns the trim, as ln of a factor.
    pub(crate) fn trim(&self) -> f64 {
        self.trim
    }

    /// Learns from a sample in which the cap was binding.
    pub(crate) fn learn(&mut self, metered: Option<f64>, effective: f64) {
        // A router that forwards next to nothing says little about the cost of a packet, and one
        // wild sample does not prove that packets are a hundred times cheaper.
        let effective = near(self.effective(), effective);
        let metered = metered.map(|metered| near(self.metered, metered));
        let surprise = effective - self.effective();
        self.watch(surprise);
        let gain = (2.0 / (f64::from(self.age) + 2.0)).max(QUIET_GAIN);
        self.age = self.age.saturating_add(1);
        if let Some(metered) = metered {
            self.metered += gain * (metered - self.metered);
        }
        self.trim += gain * (effective - self.metered - self.trim);
    }

    /// Learns from a sample in which the cap was not binding and yet the rate was held: the metered
    /// part, and that a packet needs at most `carried`, the cap divided by the rate. So a trim that
    /// was learned while others cut the cap, or beside a process that has ended, does not stay.
    pub(crate) fn learn_unbound(&mut self, metered: f64, carried: f64) {
        self.metered += IDLE_GAIN * (near(self.metered, metered) - self.metered);
        let carried = near(self.effective(), carried);
        self.trim = self.trim.min(carried - self.metered);
    }

    /// Starts the means again at a new operating point, where the old ones may not hold.
    pub(crate) fn restart(&mut self) {
        self.age = 0;
        self.before = 0.0;
        self.above = 0.0;
        self.below = 0.0;
        self.last_side = 0.0;
    }

    /// Updates the CUSUM and the usual size of surprises; a change starts the means again.
    fn watch(&mut self, surprise: f64) {
        let relative = (surprise / self.deviation).clamp(-ALONE_MOST, ALONE_MOST);
        self.above = (self.above + relative - CUSUM_SLACK).max(0.0);
        self.below = (self.below - relative - CUSUM_SLACK).max(0.0);
        let before = core::mem::replace(&mut self.before, relative);
        let both_beyond = |side: f64| side * relative > CUSUM_SLACK && side * before > CUSUM_SLACK;
        let side = if self.above > CUSUM_ALARM && both_beyond(1.0) {
            1.0
        } else if self.below > CUSUM_ALARM && both_beyond(-1.0) {
            -1.0
        } else {
            0.0
        };
        if side != 0.0 && self.age > 0 {
            // A change back right after a change is an overshoot: half a step then.
            self.age = u32::from(side * self.last_side < 0.0);
            self.last_side = side;
            self.above = 0.0;
            self.below = 0.0;
        } else if self.age > RECENT {
            self.last_side = 0.0;
        }
        let size = surprise.abs().min(CLIPPED_AT * self.deviation);
        self.deviation += DEVIATION_GAIN * (DEVIATION_PER_MEAN * size - self.deviation);
        self.deviation = self.deviation.max(DEVIATION_LEAST);
    }
}

/// Returns `seen`, bounded to [`SURPRISE_MOST`] on either side of `known`.
fn near(known: f64, seen: f64) -> f64 {
    known + (seen - known).clamp(-SURPRISE_MOST, SURPRISE_MOST)
}

/// Returns the ln of the microseconds of a packet: `ppm` millionths of a processor for `packets` in
/// `seconds`.
pub(crate) fn ln_micros(ppm: f64, packets: u64, seconds: f64) -> f64 {
    libm::log((ppm * seconds).max(f64::MIN_POSITIVE) / float(packets.max(1)))
}

/// Gain of each of the two parts, so 0.19 together: on white noise the motion of the cap then adds
/// 0.19 ÷ (2 − 0.19) to the variance, that is 5 % to the relative RMSE.
const QUIET_GAIN: f64 = 0.1;
/// The metered cost of a router that is not held back is near the right one, but not equal.
const IDLE_GAIN: f64 = 0.2;
/// A relative noise of 2 % until more is known.
const DEVIATION_FIRST: f64 = 0.02;
/// Smaller surprises are rounding.
const DEVIATION_LEAST: f64 = 0.002;
/// About the last ten samples count.
const DEVIATION_GAIN: f64 = 0.1;
/// √(π ÷ 2): the deviation of normal noise by the mean of its absolute values.
const DEVIATION_PER_MEAN: f64 = 1.2533;
/// In deviations: one change must not make the next one look usual.
const CLIPPED_AT: f64 = 4.0;
/// In deviations: sees lasting shifts of one deviation and more.
const CUSUM_SLACK: f64 = 0.5;
/// In deviations: a false alarm 170 samples apart and more, since two in a row are needed, too.
const CUSUM_ALARM: f64 = 4.0;
/// In deviations: the bound on one surprise in the sums, so that one of the other side cancels it.
const ALONE_MOST: f64 = 4.0;
/// In samples: a change back within this time is an overshoot of the same change.
const RECENT: u32 = 5;
/// ln 4, up and down.
const SURPRISE_MOST: f64 = 1.386;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    /// Goal: a step of 15 % is found in two samples, and noise of 2 % moves the estimate
    /// less than 1.5 %.
    #[test]
    fn quick_after_a_change_and_quiet_between() {
        let mut noise = Noise::new(5);
        let mut cost = Cost::first(None, Some(0.0)).unwrap();
        let mut moved: f64 = 0.0;
        for sample in 0..300 {
            cost.learn(None, 0.02 * noise.centred());
            if sample > 50 {
                moved = moved.max(cost.effective().abs());
            }
        }
        assert!(moved < 0.015, "{moved}");
        let step = libm::log(1.0 / 0.85);
        cost.learn(None, step);
        cost.learn(None, step);
        assert!((cost.effective() - step).abs() < 0.02, "{}", cost.effective());
    }

    /// Goal: one sample that is a hundred times too fast, or too slow, moves the estimate by a
    /// factor of four at most, and two samples later it is back within a fifth.
    #[test]
    fn one_wild_sample_is_bounded_on_both_sides() {
        for (wild, metered) in [(-4.6, None), (4.6, None), (-4.6, Some(())), (4.6, Some(()))] {
            let mut cost = Cost::first(metered.map(|()| 0.0), Some(0.0)).unwrap();
            for _ in 0..50 {
                cost.learn(metered.map(|()| 0.0), 0.0);
            }
            cost.learn(metered.map(|()| wild), wild);
            assert!(cost.effective().abs() <= SURPRISE_MOST + 1e-9, "{}", cost.effective());
            assert!(cost.metered().abs() <= SURPRISE_MOST + 1e-9, "{}", cost.metered());
            cost.learn(metered.map(|()| 0.0), 0.0);
            cost.learn(metered.map(|()| 0.0), 0.0);
            assert!(cost.effective().abs() < 0.2, "{wild}: {}", cost.effective());
        }
    }

    #[test]
    fn small_surprises_on_one_side_add_up_to_a_change() {
        let mut cost = Cost::first(None, Some(0.0)).unwrap();
        for _ in 0..100 {
            cost.learn(None, 0.0);
        }
        // Three deviations: no single one is an alarm, two are.
        let step = 3.0 * cost.deviation;
        cost.learn(None, step);
        assert!(cost.age > 10);
        cost.learn(None, step);
        assert!(cost.age <= 1, "{}", cost.age);
    }

    /// Goal: one surprise, however large, is no change, even on top of a few small ones.
    #[test]
    fn one_surprise_alone_is_a_pause() {
        for residue in [0, 2] {
            for size in [0.1, -0.1, 1.0, -1.0] {
                let mut cost = Cost::first(None, Some(0.0)).unwrap();
                for _ in 0..100 {
                    cost.learn(None, 0.0);
                }
                for _ in 0..residue {
                    // Above its slack, and not yet an alarm.
                    let small = 0.9 * cost.deviation * f64::signum(size);
                    cost.learn(None, cost.effective() + small);
                }
                cost.learn(None, cost.effective() - 0.1 * cost.deviation * f64::signum(size));
                let age = cost.age;
                cost.learn(None, size);
                assert_eq!(cost.age, age + 1, "{size} after {residue}");
                let mut alone = cost.clone();
                alone.learn(None, alone.effective());
                assert_eq!(alone.age, age + 2, "{size} and nothing after {residue}");
                cost.learn(None, -size);
                assert_eq!(cost.age, age + 2, "{size} and back after {residue}");
            }
        }
    }

    /// Goal: a cap that carried the rate and did not bind bounds what a packet needs; one far above
    /// it says nothing.
    #[test]
    fn a_trim_gives_way_to_a_cap_that_carried_the_rate() {
        let mut cost = Cost::first(Some(1.0), Some(1.6)).unwrap();
        cost.learn_unbound(1.0, 2.0);
        assert!((cost.effective() - 1.6).abs() < 1e-9);
        cost.learn_unbound(1.0, 1.4);
        assert!((cost.effective() - 1.4).abs() < 1e-9);
        assert!((cost.metered() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_the_meter_misses_becomes_the_trim() {
        let mut cost = Cost::first(Some(1.0), Some(1.0)).unwrap();
        for _ in 0..40 {
            cost.learn(Some(1.0), 1.2);
        }
        assert!((cost.metered() - 1.0).abs() < 1e-9 && (cost.trim() - 0.2).abs() < 1e-3);
        assert!(Cost::first(None, None).is_none());
    }
}
