// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weir's own controller of a cap, which needs no training.
//!
//! *Role*: holds a rate by the cap alone. *Synopsis*: [`FeedForward::new`]. *Behaviour*: cap =
//! set-point × CPU time of a packet × trim. The metered CPU time of a packet is the feed-forward.
//! The trim integrates the error that remains. Both are running estimates, which start with the
//! first sample, are quick after a change and quiet between changes (`cost.rs`). So there is no
//! gain to choose and no operating point to stay near to.
//!
//! - *Compensation*: packets that the last second lacks, or has too many, are added to the goal of
//!   the next sample, as far as that sample lies in the same second: none with samples of a second,
//!   nine tenths with samples of 100 ms. So a mean over seconds is more exact than any one sample.
//! - *Anti-windup*: it learns from a sample only if the cap was binding ([`Sample::bound_by`]), or
//!   if the rate reached the set-point without using the cap up. Without metered CPU time every cap
//!   counts as binding: the cap then rises to the largest while demand is missing, and falls with
//!   the first sample that shows demand.
//! - *Coarse caps*: the remainder of rounding is carried to the next sample, so that caps of 3 and
//!   4 % in turn make 3.4 %.
//! - *Bumpless*: it takes an adopted cap as the cost of the present rate.
//!
//! *Cost*: at most two logarithms and an exponential a sample. *What it does not do*: hold a rate
//! finer than the cap is enforced; [`crate::Combined`] does.

use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::action::LastRequest;
use crate::cost::{Cost, ln_micros};
use crate::number::{float, whole};
use crate::{Action, ActionReason, CapRange, Controller, DeadZone, Estimate, Sample, Settings};

/// The configuration of [`FeedForward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedForwardConfig {
    /// The range of the cap.
    pub range: CapRange,
    /// The largest relative change of the cap that is not worth a call of the actuator.
    pub dead_zone: DeadZone,
}

impl FeedForwardConfig {
    /// Returns `range` with a dead zone of half a per cent of the cap: a quarter of the 2 % within
    /// which a mean is to be held.
    #[must_use]
    pub const fn new(range: CapRange) -> Self {
        Self { range, dead_zone: DeadZone::from_ppm(5000) }
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct FeedForward {
    config: FeedForwardConfig,
    set_point: PacketRate,
    cap: CpuShare,
    cost: Option<Cost>,
    /// The remainder of rounding, in parts per million.
    carry: f64,
    /// Packets that the last second lacks; negative if it has too many.
    shortfall: f64,
    /// The usual length of a sample in seconds: a mean, since a late sample is followed by a short
    /// one.
    span_s: f64,
    /// True until the first sample at this set-point. Part of that sample ran at the old rate, so
    /// it leaves no shortfall.
    is_first: bool,
    last_request: LastRequest,
}

impl FeedForward {
    /// Starts from a cap in force; the first sample shows the cost of a packet.
    #[must_use]
    pub fn new(config: FeedForwardConfig, set_point: PacketRate, start: CpuShare) -> Self {
        let cap = config.range.clamp(start);
        Self {
            config,
            set_point,
            cap,
            cost: None,
            carry: 0.0,
            shortfall: 0.0,
            span_s: MEAN_WINDOW_S,
            is_first: true,
            last_request: LastRequest::default(),
        }
    }

    /// Updates the shortfall of the last second by a sample; `bound` is true if the cap was
    /// binding. Packets that no cap held back do not count.
    fn count_shortfall(&mut self, sample: &Sample, bound: bool) {
        let seconds = float(sample.span.as_nanos()) / 1e9;
        let wanted = float(self.set_point.as_pps()) * seconds;
        let missing = wanted + self.shortfall - float(sample.packets);
        let recent = (1.0 - seconds / MEAN_WINDOW_S).max(0.0);
        let is_first = core::mem::replace(&mut self.is_first, false);
        let counts = bound && !is_first && sample.cpu.is_some();
        let most = float(self.set_point.as_pps()) * SHORTFALL_MOST_S;
        self.shortfall = if counts { (missing * recent).clamp(-most, most) } else { 0.0 };
        let gain = if is_first { 1.0 } else { SPAN_GAIN };
        self.span_s += gain * (seconds - self.span_s);
    }

    /// Returns the correction of the next sample, in packets a second.
    fn compensation(&self) -> f64 {
        let most = float(self.set_point.as_pps()) * COMPENSATION_MOST;
        (self.shortfall / self.span_s).clamp(-most, most)
    }

    /// Drops the shortfall; the next sample counts as the first at its set-point.
    fn forget_shortfall(&mut self) {
        (self.shortfall, self.is_first) = (0.0, true);
    }

    /// Learns from a sample, and returns the reason for moving the cap.
    fn learn(&mut self, sample: &Sample) -> ActionReason {
        let seconds = float(sample.span.as_nanos()) / 1e9;
        let used = sample.used().filter(|used| *used > CpuShare::ZERO);
        let ln = |share: CpuShare| ln_micros(f64::from(share.as_ppm()), sample.packets, seconds);
        let (metered, effective) = (used.map(ln), ln(self.cap));
        let bound = sample.bound_by(self.cap);
        let before_compensation = self.compensation();
        self.count_shortfall(sample, bound);
        let Some(cost) = &mut self.cost else {
            self.cost = Cost::first(metered, bound.then_some(effective));
            return ActionReason::FeedForward;
        };
        let (before_metered, before_trim) = (cost.metered(), cost.trim());
        match metered {
            _ if bound => cost.learn(metered, effective),
            Some(metered) if sample.rate() >= self.set_point => {
                cost.learn_unbound(metered, effective);
            }
            _ => return ActionReason::NoDemand,
        }
        // The reason is the largest of the three changes, as parts of the cap.
        let (metered, trim) = (cost.metered() - before_metered, cost.trim() - before_trim);
        let compensation =
            (self.compensation() - before_compensation) / float(self.set_point.as_pps()).max(1.0);
        if compensation.abs() > metered.abs().max(trim.abs()) {
            ActionReason::Compensation
        } else if metered.abs() >= trim.abs() {
            ActionReason::FeedForward
        } else {
            ActionReason::Trim
        }
    }

    /// Requests the cap for the set-point, or the present cap while the cost of a packet is
    /// unknown.
    fn aim(&mut self, at: Instant, reason: ActionReason) -> Action {
        let Some(cost) = &self.cost else { return self.act(at, self.cap, reason) };
        let rate = float(self.set_point.as_pps()) + self.compensation();
        let wanted = rate * libm::exp(cost.effective());
        let range = self.config.range;
        let (least, most) = (f64::from(range.least().as_ppm()), f64::from(range.most().as_ppm()));
        let clamped = wanted.clamp(least, most);
        let old = f64::from(self.cap.as_ppm());
        let in_dead_zone = (clamped - old).abs() <= self.config.dead_zone.fraction() * clamped;
        let cap = if in_dead_zone { self.cap } else { range.nearest(clamped + self.carry) };
        let half = f64::from(range.grain().as_ppm()) / 2.0;
        self.carry = (self.carry + clamped - f64::from(cap.as_ppm())).clamp(-half, half);
        let reason = match reason {
            ActionReason::NoDemand => ActionReason::NoDemand,
            _ if wanted > most => ActionReason::CapMost,
            _ if wanted < least => ActionReason::CapLeast,
            _ if in_dead_zone => ActionReason::DeadZone,
            reason => reason,
        };
        self.act(at, cap, reason)
    }

    fn act(&mut self, at: Instant, cap: CpuShare, reason: ActionReason) -> Action {
        self.cap = cap;
        self.last_request.act(at, cap, None, reason)
    }

    /// Doubles the cap of a router that uses it up and yet forwards nothing. Without demand, or
    /// with a set-point of zero, requests the usual cap.
    fn probe(&mut self, at: Instant, sample: &Sample) -> Action {
        self.forget_shortfall();
        let idle = !sample.bound_by(self.cap) || sample.offered == Some(0);
        if idle || self.set_point == PacketRate::ZERO {
            return self.aim(at, ActionReason::NoDemand);
        }
        let doubled = self.config.range.nearest(f64::from(self.cap.as_ppm()) * 2.0);
        self.act(at, doubled, ActionReason::Probe)
    }
}

impl Controller for FeedForward {
    fn name(&self) -> &'static str {
        "feed-forward"
    }

    fn set_point(&self) -> PacketRate {
        self.set_point
    }

    fn step(&mut self, now: Instant, sample: &Sample) -> Action {
        if sample.packets == 0 || sample.span == Nanos::ZERO {
            return self.probe(now, sample);
        }
        let reason = self.learn(sample);
        self.aim(now, reason)
    }

    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action {
        let (old, new) = (float(self.set_point.as_pps()), float(set_point.as_pps()));
        self.set_point = set_point;
        if (new - old).abs() > SAME_POINT * old {
            self.forget_shortfall();
            if let Some(cost) = &mut self.cost {
                cost.restart();
            }
        }
        self.aim(now, ActionReason::FeedForward)
    }

    fn adopt(&mut self, _: Instant, in_force: Settings, sample: Option<&Sample>) {
        let cap = self.config.range.clamp(in_force.binding(sample));
        let same = cap == self.cap;
        self.cap = cap;
        self.carry = 0.0;
        self.forget_shortfall();
        self.last_request.forget();
        // Its own cap, for example after a refused change: the estimate still holds.
        if same && self.cost.is_some() {
            return;
        }
        let is_usable = |sample: &&Sample| sample.packets > 0 && sample.span > Nanos::ZERO;
        if let Some(sample) = sample.filter(is_usable) {
            self.cost = None;
            self.learn(sample);
            self.forget_shortfall();
        }
    }

    fn rest(&mut self, now: Instant) -> Option<Action> {
        self.forget_shortfall();
        Some(self.aim(now, ActionReason::FeedForward))
    }

    fn estimate(&self) -> Option<Estimate> {
        let nanos = libm::exp(self.cost.as_ref()?.effective()) * 1000.0;
        Some(Estimate::Cost(Nanos::new(whole(nanos))))
    }
}

/// The window, in seconds, over which the mean rate is held.
const MEAN_WINDOW_S: f64 = 1.0;
/// The largest shortfall, in seconds at the set-point: a larger one, as under the largest cap,
/// would overshoot afterwards.
const SHORTFALL_MOST_S: f64 = 0.1;
/// Gain of the mean length of samples: about the last four count.
const SPAN_GAIN: f64 = 0.25;
/// The largest compensation, as a part of the set-point. Between half the set-point and 1.5 times
/// it, the cost of a packet still predicts the rate. The rest waits for the next sample.
const COMPENSATION_MOST: f64 = 0.5;
/// A change of the set-point by less than this part is the same operating point.
const SAME_POINT: f64 = 0.05;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn controller(set_point: u64) -> FeedForward {
        let percent = CpuShare::from_percent;
        let range = CapRange::new(percent(1)..=percent(100), CpuShare::from_ppm(100)).unwrap();
        let set_point = PacketRate::from_pps(set_point);
        FeedForward::new(FeedForwardConfig::new(range), set_point, percent(100))
    }

    fn sample(packets: u64, cpu_percent: u64) -> Sample {
        let (span, cpu) = (Nanos::from_secs(1), Some(Nanos::from_millis(10 * cpu_percent)));
        Sample { span, packets, offered: None, cpu }
    }

    /// Goal: the first sample is enough. Method: uncapped, 100 kp/s cost 50 %: 20 kp/s cost 10 %.
    #[test]
    fn the_first_sample_gives_the_cap() {
        let mut controller = controller(20_000);
        let action = controller.step(Instant::ZERO, &sample(100_000, 50));
        assert_eq!((action.cap, action.changed), (CpuShare::from_percent(10), true));
        assert_eq!(action.reason, ActionReason::FeedForward);
        assert_eq!(controller.estimate(), Some(Estimate::Cost(Nanos::from_micros(5))));
        let action = controller.step(Instant::ZERO, &sample(20_000, 10));
        assert_eq!((action.changed, action.reason), (false, ActionReason::DeadZone));
    }

    #[test]
    fn another_set_point_moves_the_cap_before_any_sample() {
        let mut controller = controller(20_000);
        controller.step(Instant::ZERO, &sample(100_000, 50));
        let action = controller.change_set_point(Instant::ZERO, PacketRate::from_pps(60_000));
        assert_eq!(
            (action.cap, action.reason),
            (CpuShare::from_percent(30), ActionReason::FeedForward)
        );
        let action = controller.change_set_point(Instant::ZERO, PacketRate::from_pps(900_000));
        assert_eq!((action.cap, action.reason), (CpuShare::ONE, ActionReason::CapMost));
        let action = controller.change_set_point(Instant::ZERO, PacketRate::ZERO);
        assert_eq!(
            (action.cap, action.reason),
            (CpuShare::from_percent(1), ActionReason::CapLeast)
        );
    }

    #[test]
    fn lack_of_demand_teaches_nothing() {
        let mut controller = controller(20_000);
        controller.step(Instant::ZERO, &sample(100_000, 50));
        for _ in 0..100 {
            let action = controller.step(Instant::ZERO, &sample(1000, 2));
            assert_eq!(
                (action.cap, action.reason),
                (CpuShare::from_percent(10), ActionReason::NoDemand)
            );
        }
        let action = controller.step(Instant::ZERO, &sample(0, 0));
        assert_eq!(
            (action.cap, action.reason),
            (CpuShare::from_percent(10), ActionReason::NoDemand)
        );
    }

    #[test]
    fn a_router_that_forwards_nothing_with_all_its_cap_gets_more() {
        let mut controller = controller(20_000);
        controller.adopt(Instant::ZERO, Settings::capped(CpuShare::from_percent(1)), None);
        let action = controller.step(Instant::ZERO, &sample(0, 1));
        assert_eq!((action.cap, action.reason), (CpuShare::from_percent(2), ActionReason::Probe));
    }

    /// Goal: what was learned while others cut the cap to half does not stay once it is whole, on
    /// both sides of the set-point. Method: 5 µs a packet, 25 kp/s offered to a set-point of 20.
    #[test]
    fn a_cap_that_was_cut_leaves_no_trim() {
        let mut controller = controller(20_000);
        let mut run = |granted: &dyn Fn(u32) -> u32| {
            let granted = u64::from(granted(controller.cap.as_ppm()));
            let packets = (granted / 5).min(25_000);
            let cpu = Some(Nanos::from_micros(packets * 5));
            let offered = Some(25_000);
            let sample = Sample { span: Nanos::from_secs(1), packets, offered, cpu };
            controller.step(Instant::ZERO, &sample);
            packets
        };
        let cut: Vec<u64> = (0..20).map(|_| run(&|cap| cap.min(50_000))).collect();
        assert_eq!(cut.last(), Some(&10_000), "the others leave half");
        let whole: Vec<u64> = (0..20).map(|_| run(&|cap| cap)).collect();
        assert!(whole.iter().skip(10).all(|held| held.abs_diff(20_000) < 400), "{whole:?}");
    }

    /// Goal: the next sample compensates packets that a sample lacks or has too many, as far as
    /// both lie in one second, and only if the cap was binding.
    #[test]
    fn what_a_sample_lacks_is_made_good_within_the_second() {
        let after = |span_ms: u64, packets: u64, cpu_us: Option<u64>| {
            let mut controller = controller(20_000);
            let span = Nanos::from_millis(span_ms);
            let sample = |packets, cpu: Option<u64>| Sample {
                span,
                packets,
                offered: None,
                cpu: cpu.map(Nanos::from_micros),
            };
            // The first sample, uncapped: its excess is not compensated.
            controller.step(Instant::ZERO, &sample(100 * span_ms, Some(500 * span_ms)));
            assert!(
                controller.shortfall.abs() < 1e-6 && controller.cap == CpuShare::from_percent(10)
            );
            controller.step(Instant::ZERO, &sample(packets, cpu_us));
            controller.shortfall
        };
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-6, "{found}");
        // 10 % of the processor are in force, and used.
        near(after(100, 1900, Some(10_000)), 90.0);
        near(after(100, 2100, Some(10_000)), -90.0);
        near(after(500, 9500, Some(50_000)), 250.0);
        near(after(1000, 19_000, Some(100_000)), 0.0);
        near(after(100, 1900, Some(2_000)), 0.0);
        near(after(100, 1900, None), 0.0);
    }

    /// Goal: the shortfall of a late sample is compensated in a sample of the usual length; the
    /// part above half of the set-point waits. A set-point that is nearly the same changes nothing.
    #[test]
    fn a_late_sample_is_compensated_in_packets() {
        let mut controller = controller(20_000);
        let sample = |span_ms, packets| Sample {
            span: Nanos::from_millis(span_ms),
            packets,
            offered: None,
            cpu: Some(Nanos::from_micros(100 * span_ms)),
        };
        controller.step(Instant::ZERO, &sample(100, 2000));
        controller.step(Instant::ZERO, &sample(100, 2000));
        controller.step(Instant::ZERO, &sample(300, 5000));
        assert!((controller.shortfall - 700.0).abs() < 1e-6, "{}", controller.shortfall);
        assert!((controller.compensation() - 700.0 / 0.15).abs() < 1e-6, "once late");
        controller.step(Instant::ZERO, &sample(100, 2700));
        assert!(controller.shortfall.abs() < 1e-6, "{}", controller.shortfall);
        controller.step(Instant::ZERO, &sample(100, 100));
        assert!((controller.compensation() - 10_000.0).abs() < 1e-6);
        let before = controller.shortfall;
        controller.change_set_point(Instant::ZERO, PacketRate::from_pps(20_100));
        assert!((controller.shortfall - before).abs() < 1e-6);
        let rest = controller.rest(Instant::ZERO).unwrap();
        assert!(controller.shortfall.abs() < 1e-6 && rest.changed);
    }

    /// Goal: a shortfall that no cap can compensate, as under the largest one, stays bounded, so
    /// that the rate does not overshoot afterwards.
    #[test]
    fn no_shortfall_winds_up() {
        for (packets, most) in [(1000, 2000.0), (6000, -2000.0)] {
            let mut controller = controller(20_000);
            for _ in 0..50 {
                let cpu = Some(Nanos::new(u64::from(controller.cap.as_ppm()) * 100));
                let span = Nanos::from_millis(100);
                let sample = Sample { span, packets, offered: None, cpu };
                controller.step(Instant::ZERO, &sample);
            }
            let shortfall = controller.shortfall;
            assert!((shortfall - most).abs() < 1e-6, "{packets}: {shortfall}");
        }
    }

    #[test]
    fn coarse_caps_in_turn_make_the_cap_between() {
        let percent = CpuShare::from_percent;
        let range = CapRange::new(percent(1)..=percent(100), percent(1)).unwrap();
        let config = FeedForwardConfig::new(range);
        let mut controller = FeedForward::new(config, PacketRate::from_pps(34_000), percent(10));
        // 1 µs a packet: 34 kp/s need 3.4 %.
        let mut cap = controller.step(Instant::ZERO, &sample(100_000, 10)).cap;
        let mut sum = 0;
        for _ in 0..100 {
            let packets = u64::from(cap.as_ppm());
            let cpu = Some(Nanos::new(packets * 1000));
            cap = controller.step(Instant::ZERO, &Sample { cpu, ..sample(packets, 0) }).cap;
            assert!((percent(3)..=percent(4)).contains(&cap));
            sum += cap.as_ppm();
        }
        assert!((3.38..=3.42).contains(&(f64::from(sum) / 1e6)), "{sum}");
    }
}
