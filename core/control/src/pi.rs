// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text's controller: proportional and integral, on the logarithm of the cap.
//!
//! *Role*: holds a rate by feedback alone, with gains from a model. *Synopsis*: [`Pi::new`];
//! [`crate::Gains::place`] gives the text's PI, [`crate::Gains::dead_beat`] its dead-beat.
//! *Behaviour*: u(k) = u(k−1) + (Kp + Ki)·e(k) − Kp·e(k−1) (§6, Equation 2), u = log10 of the cap
//! in percent, e in thousand packets a second.
//!
//! - *Anti-windup*: the only state is u, clamped to the range of caps, so that a long error leaves
//!   nothing to unwind. If the CPU time is metered, an error for lack of demand does not move u,
//!   and does not become e(k−1) either, since u contains no proportional part of it.
//! - *Dead zone* and *minimum cap* (§6, §7.2.2): [`DeadZone`], [`CapRange`].
//! - *Bumpless*: an adopted cap becomes u(k−1), and the error under it e(k−1).
//!
//! *Cost*: two logarithms and an exponential a sample. *What it does not do*: adapt to a router
//! other than the one that its gains were designed for; [`crate::SelfTuning`] does.

use weir_units::{CpuShare, Instant, PacketRate};

use crate::action::LastRequest;
use crate::controller::Previous;
use crate::number::{kpps, log_cap, ppm_of_log};
use crate::{Action, ActionReason, CapRange, Controller, DeadZone, Gains, Sample, Settings};

/// The configuration of [`Pi`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PiConfig {
    /// The gains.
    pub gains: Gains,
    /// The range of the cap.
    pub range: CapRange,
    /// The errors that do not move the cap.
    pub dead_zone: DeadZone,
}

/// The PI controller.
#[derive(Clone, Debug)]
pub struct Pi {
    config: PiConfig,
    set_point: PacketRate,
    /// u(k−1), not rounded to a cap, so that small errors add up until the cap moves by a step.
    log_cap: f64,
    /// e(k−1).
    previous: Previous,
    cap: CpuShare,
    last_request: LastRequest,
}

impl Pi {
    /// Starts from a cap in force.
    #[must_use]
    pub fn new(config: PiConfig, set_point: PacketRate, start: CpuShare) -> Self {
        let cap = config.range.clamp(start);
        let (log_cap, previous) = (log_cap(cap), Previous::default());
        Self { config, set_point, log_cap, previous, cap, last_request: LastRequest::default() }
    }

    /// Sets the gains from the next sample on.
    pub(crate) fn set_gains(&mut self, gains: Gains) {
        self.config.gains = gains;
    }

    /// Returns the cap in force.
    pub(crate) fn cap(&self) -> CpuShare {
        self.cap
    }

    pub(crate) fn range(&self) -> CapRange {
        self.config.range
    }

    fn hold(&mut self, at: Instant, reason: ActionReason) -> Action {
        self.last_request.act(at, self.cap, None, reason)
    }
}

impl Controller for Pi {
    fn name(&self) -> &'static str {
        "pi"
    }

    fn set_point(&self) -> PacketRate {
        self.set_point
    }

    fn step(&mut self, now: Instant, sample: &Sample) -> Action {
        let PiConfig { gains, range, dead_zone } = self.config;
        let error = kpps(self.set_point) - kpps(sample.rate());
        // Before the first sample the loop was at rest: no error. After a pause the last error is
        // unknown: it counts as equal to this one, so that only the integral part acts.
        let otherwise = if self.previous.is_empty() { 0.0 } else { error };
        let before = self.previous.error_or(now, sample.span, otherwise);
        if dead_zone.holds(self.set_point, sample.rate()) {
            // In the published controller e(k−1) is the error of the last sample, also if that
            // sample did not move the cap.
            self.previous.set(now, error);
            return self.hold(now, ActionReason::DeadZone);
        }
        if error > 0.0 && !sample.bound_by(self.cap) {
            self.previous.hold(now, sample.span);
            return self.hold(now, ActionReason::NoDemand);
        }
        self.previous.set(now, error);
        let wanted = self.log_cap + (gains.kp() + gains.ki()) * error - gains.kp() * before;
        let (least, most) = (log_cap(range.least()), log_cap(range.most()));
        self.log_cap = wanted.clamp(least, most);
        self.cap = range.nearest(ppm_of_log(self.log_cap));
        let reason = match wanted {
            wanted if wanted < least => ActionReason::CapLeast,
            wanted if wanted > most => ActionReason::CapMost,
            _ => ActionReason::Feedback,
        };
        self.hold(now, reason)
    }

    /// Leaves the cap as it is: feedback moves it with the first sample.
    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action {
        self.set_point = set_point;
        self.hold(now, ActionReason::Feedback)
    }

    fn adopt(&mut self, now: Instant, in_force: Settings, sample: Option<&Sample>) {
        self.cap = self.config.range.clamp(in_force.binding(sample));
        self.log_cap = log_cap(self.cap);
        self.last_request.forget();
        if let Some(sample) = sample {
            let error = kpps(self.set_point) - kpps(sample.rate());
            let missing = error > 0.0 && !sample.bound_by(self.cap);
            self.previous.set(now, if missing { 0.0 } else { error });
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_units::Nanos;

    use super::*;
    use crate::Model;

    fn pi(set_point: u64, dead_zone: DeadZone) -> Pi {
        let percent = CpuShare::from_percent;
        let range = CapRange::new(percent(1)..=percent(100), percent(1)).unwrap();
        let gains = Gains::dead_beat(Model::PUBLISHED);
        let config = PiConfig { gains, range, dead_zone };
        Pi::new(config, PacketRate::from_pps(set_point), percent(10))
    }

    fn sample(rate: u64) -> Sample {
        Sample { span: Nanos::from_secs(1), packets: rate, ..Sample::default() }
    }

    /// Goal: Equation 2 as printed. Method: by hand; 10 kp/s of error after one of 5 kp/s moves
    /// log10(10 %) = 1 by (Kp + Ki)·10 − Kp·5, and 1/63.0051 is Kp + Ki.
    #[test]
    fn two_samples_by_hand() {
        let mut pi = pi(50_000, DeadZone::OFF);
        let first = pi.step(Instant::from_nanos(1_000_000_000), &sample(45_000));
        let u = 1.0 + 5.0 / 63.0051;
        assert_eq!(first.cap, CpuShare::from_percent(12), "10^{u} = 12.0");
        let second = pi.step(Instant::from_nanos(2_000_000_000), &sample(40_000));
        let u = u + 10.0 / 63.0051 - 0.0915 / 63.0051 * 5.0;
        assert!((pi.log_cap - u).abs() < 1e-12);
        assert_eq!(
            (second.cap, second.reason),
            (CpuShare::from_percent(17), ActionReason::Feedback)
        );
    }

    #[test]
    fn the_dead_zone_keeps_the_cap_and_says_so() {
        let mut pi = pi(50_000, DeadZone::PUBLISHED);
        pi.step(Instant::ZERO, &sample(50_000));
        let action = pi.step(Instant::ZERO, &sample(46_000));
        assert_eq!((action.reason, action.changed), (ActionReason::DeadZone, false));
        let action = pi.step(Instant::ZERO, &sample(44_000));
        assert_eq!((action.reason, action.changed), (ActionReason::Feedback, true));
    }

    /// Goal: after any time at an end of the range, one sample on the other side moves the cap.
    #[test]
    fn nothing_is_wound_up_at_either_end() {
        for (stuck, freed, end) in [(0, 90_000, 100), (300_000, 0, 1)] {
            let mut pi = pi(50_000, DeadZone::OFF);
            let mut now = Instant::ZERO;
            for _ in 0..1000 {
                now += Nanos::from_secs(1);
                pi.step(now, &sample(stuck));
            }
            assert_eq!(pi.cap(), CpuShare::from_percent(end));
            now += Nanos::from_secs(1);
            pi.step(now, &sample(freed));
            assert_ne!(pi.cap(), CpuShare::from_percent(end), "leaves {end} % at once");
        }
    }

    #[test]
    fn lack_of_demand_does_not_move_the_cap() {
        let mut pi = pi(50_000, DeadZone::OFF);
        let idle = Sample { cpu: Some(Nanos::from_millis(20)), ..sample(10_000) };
        assert_eq!(pi.step(Instant::ZERO, &idle).reason, ActionReason::NoDemand);
        let busy = Sample { cpu: Some(Nanos::from_millis(99)), ..sample(10_000) };
        assert_eq!(pi.step(Instant::ZERO, &busy).reason, ActionReason::Feedback);
    }

    /// Goal: when demand comes back at the set-point, the cap stays where it was: errors for lack
    /// of demand leave neither an integral nor a proportional part in u.
    #[test]
    fn demand_that_comes_back_does_not_kick() {
        let idle = Sample { cpu: Some(Nanos::from_millis(20)), ..sample(10_000) };
        let busy = Sample { cpu: Some(Nanos::from_millis(99)), ..sample(50_000) };
        for adopts in [false, true] {
            let mut pi = pi(50_000, DeadZone::OFF);
            let mut now = Instant::ZERO;
            pi.step(now, &busy);
            let before = pi.log_cap;
            for _ in 0..100 {
                now += Nanos::from_secs(1);
                assert_eq!(pi.step(now, &idle).reason, ActionReason::NoDemand);
                if adopts {
                    pi.adopt(now, Settings::capped(CpuShare::from_percent(10)), Some(&idle));
                }
            }
            now += Nanos::from_secs(1);
            assert_eq!(pi.step(now, &busy).reason, ActionReason::Feedback);
            assert!((pi.log_cap - before).abs() < 1e-12, "{} after {before}", pi.log_cap);
        }
    }

    #[test]
    fn an_error_from_before_a_pause_does_not_kick() {
        let mut pi = pi(50_000, DeadZone::OFF);
        let in_force = Settings::capped(CpuShare::from_percent(20));
        pi.adopt(Instant::ZERO, in_force, Some(&sample(50_000)));
        pi.step(Instant::from_nanos(100_000_000_000), &sample(40_000));
        let integral_only = log_cap(CpuShare::from_percent(20)) + pi.config.gains.ki() * 10.0;
        assert!((pi.log_cap - integral_only).abs() < 1e-12);
    }
}
