// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weir's default controller: a limit at ingress holds the rate, the cap is a ceiling above it.
//!
//! *Role*: holds a rate exactly, and drops excess packets before they cost anything. The XTC text
//! drops them only in the router, which pays for their receipt (§7.3). *Synopsis*:
//! [`Combined::new`].
//!
//! *The limit* is the set-point, trimmed by feedback for packets that the router loses, or makes,
//! behind the limiter. The trim follows the least of four consecutive errors of the same sign. A
//! delay that moves packets into the next sample therefore does not change the trim; nor does a
//! backlog from before the limit, or from a ceiling that was too low. Where the offered rate is not
//! metered, the limit is the plain set-point.
//!
//! *The ceiling* is the cost of the set-point plus a headroom. It rises at once where it makes the
//! rate fall short, and the log says when there is no headroom left. While the rate is held, the
//! ceiling does not rise, whatever CPU time the router burns beside its packets. A router that
//! drops packets in order to get more CPU time is bounded by the range and by
//! [`CombinedConfig::cost_most`] alone.
//!
//! The cost of a packet depends on the set-point: at a hundredth of a router's capacity it is up to
//! six times as high, since each packet wakes the router. After a change of the set-point, the
//! ceiling therefore falls to six times what the new set-point would cost at the old cost of a
//! packet. Ten samples later it falls to the highest cost among these samples plus the headroom.
//!
//! | parameter | default | why |
//! |---|---|---|
//! | headroom | 25 % | if 15 % of the cap are lost, 1.25 · 0.85 = 1.06 of the need remains |
//! | least headroom | 5 % of a processor | one sample of 100 ms needed 4.4 % more |
//! | tolerance | 0.5 %, and two packets | half of the 1 % within which the rate is to be held |
//!
//! *Cost*: a few multiplications a sample. *Limits*: it needs a limiter at ingress;
//! [`crate::FeedForward`] works without one.

use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::action::LastRequest;
use crate::number::{float, whole};
use crate::{Action, ActionReason, CapRange, Controller, Estimate, Sample, Settings};

/// The configuration of [`Combined`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CombinedConfig {
    /// The range of the ceiling.
    pub range: CapRange,
    /// The headroom of the ceiling above the cost of the set-point, in parts per million of that
    /// cost.
    pub headroom_ppm: u32,
    /// The least headroom.
    pub headroom_least: CpuShare,
    /// The largest error that moves neither limit nor ceiling, in parts per million of the
    /// set-point. An error of up to [`Self::TOLERANCE_PACKETS`] in a sample moves nothing either.
    pub tolerance_ppm: u32,
    /// The CPU time of a packet with which the router was admitted; it bounds the ceiling. `None`:
    /// only the range bounds it.
    pub cost_most: Option<Nanos>,
}

impl CombinedConfig {
    /// Packets by which a sample may be off because of its timing: one in flight at each end.
    pub const TOLERANCE_PACKETS: u32 = 2;

    /// Returns a headroom of 25 %, at least 5 % of a processor, a tolerance of 0.5 %, and any cost.
    #[must_use]
    pub const fn new(range: CapRange) -> Self {
        Self {
            range,
            headroom_ppm: 250_000,
            headroom_least: CpuShare::from_percent(5),
            tolerance_ppm: 5000,
            cost_most: None,
        }
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Combined {
    config: CombinedConfig,
    set_point: PacketRate,
    limit: PacketRate,
    /// The limit divided by the set-point.
    trim: f64,
    cap: CpuShare,
    /// Microseconds of CPU time per packet, estimated high rather than low; `None` before it is
    /// known.
    micros: Option<f64>,
    /// The ceiling divided by the one with plain headroom: learned from shortfalls.
    shortfall_factor: f64,
    /// Samples since the set-point or the cap was changed from outside.
    age: u32,
    /// The least of consecutive errors of the same sign, and their number.
    lasting: f64,
    lasting_for: u32,
    /// Packets that may wait behind the limit. When they leave, the rate exceeds the limit although
    /// the router makes no packets.
    waiting: f64,
    last_request: LastRequest,
}

impl Combined {
    /// Starts from a cap in force, which is the ceiling until the first sample.
    #[must_use]
    pub fn new(config: CombinedConfig, set_point: PacketRate, start: CpuShare) -> Self {
        let cap = config.range.clamp(start);
        let mut fresh = Self {
            config,
            set_point,
            limit: set_point,
            trim: 1.0,
            cap,
            micros: None,
            shortfall_factor: 1.0,
            age: 0,
            lasting: 0.0,
            lasting_for: 0,
            waiting: 0.0,
            last_request: LastRequest::default(),
        };
        fresh.begin();
        fresh
    }

    /// Forgets the errors so far, since the packets from now on came under another limit.
    fn begin(&mut self) {
        (self.age, self.lasting_for) = (0, 0);
        self.waiting = self.waiting_most();
    }

    fn waiting_most(&self) -> f64 {
        float(self.set_point.as_pps()) * WAITING_SECONDS
    }

    /// Returns true if the limit held the rate: at least 99 % as many packets were offered as the
    /// limit lets in.
    fn limits(&self, sample: &Sample) -> bool {
        let part = |rate: PacketRate| u128::from(rate.as_pps()) * 100;
        let limit = u128::from(self.limit.as_pps()) * 99;
        sample.offered_rate().is_some_and(|offered| part(offered) >= limit)
    }

    /// Returns true if the rate is below the set-point by more than the tolerance although enough
    /// packets are offered and let in. (A limit that was lowered for made packets is thus raised
    /// before the ceiling.) Where the offered rate is not metered, a ceiling that is nearly used up
    /// counts as enough demand.
    fn falls_short(&self, sample: &Sample) -> bool {
        let comes = match sample.offered {
            Some(_) => self.limits(sample) || (sample.loses() && self.near(sample)),
            None => self.near(sample),
        };
        let short_of = |rate| Self::relative_to(rate, sample) < 0.0 && self.counts(rate, sample);
        comes && short_of(self.set_point) && short_of(self.limit)
    }

    /// Returns true if the rate falls short because of the ceiling.
    fn is_starved(&self, sample: &Sample) -> bool {
        self.falls_short(sample) && sample.bound_by(self.cap)
    }

    /// Returns true if the largest cap is used up. Packets beyond the limit then come from a
    /// backlog.
    fn is_full(&self, sample: &Sample) -> bool {
        self.cap >= self.nearest(f64::MAX) && self.near(sample)
    }

    /// Returns true if nine tenths of the ceiling were used.
    fn near(&self, sample: &Sample) -> bool {
        let used = sample.used().unwrap_or(CpuShare::ZERO);
        u64::from(used.as_ppm()) * 10 >= u64::from(self.cap.as_ppm()) * 9
    }

    /// Returns the packets of the sample in excess of `rate`.
    fn beyond(rate: PacketRate, sample: &Sample) -> f64 {
        let rate = float(rate.as_pps()).max(1.0);
        float(sample.packets) - rate * float(sample.span.as_nanos()) / 1e9
    }

    /// Returns the relative excess of the sample's rate over `rate`.
    fn relative_to(rate: PacketRate, sample: &Sample) -> f64 {
        let expected = float(rate.as_pps()).max(1.0) * float(sample.span.as_nanos()).max(1.0);
        Self::beyond(rate, sample) * 1e9 / expected
    }

    /// Returns true if the sample is off `rate` by more than the tolerance.
    fn counts(&self, rate: PacketRate, sample: &Sample) -> bool {
        let relative = Self::relative_to(rate, sample).abs();
        let expected = float(rate.as_pps()).max(1.0) * float(sample.span.as_nanos()) / 1e9;
        relative > f64::from(self.config.tolerance_ppm) / 1e6
            && relative * expected > f64::from(CombinedConfig::TOLERANCE_PACKETS)
    }

    fn follow(&mut self, sample: &Sample) {
        // Without the offered rate, a limit that is too low looks like low demand: it would fall
        // with every burst and never rise again.
        if sample.offered.is_none() {
            return;
        }
        let relative = Self::relative_to(self.set_point, sample);
        let late = self.comes_late(sample) || (relative > 0.0 && self.is_full(sample));
        let counts = self.counts(self.set_point, sample) && !late;
        if !counts || (relative < 0.0 && !self.limits(sample)) {
            self.lasting_for = 0;
            return;
        }
        let same = self.lasting_for > 0 && relative * self.lasting > 0.0;
        let less = relative.abs() < self.lasting.abs();
        self.lasting = if !same || less { relative } else { self.lasting };
        self.lasting_for = if same { self.lasting_for + 1 } else { 1 };
        if self.lasting_for == LASTING {
            self.trim = (self.trim - self.lasting).clamp(TRIM_LEAST, TRIM_MOST);
            self.lasting_for = 0;
            self.limit = self.limited();
        }
    }

    /// Returns true if the excess of the sample over the limit comes from a backlog. A sample
    /// without excess ends the backlog.
    fn comes_late(&mut self, sample: &Sample) -> bool {
        let beyond = match self.counts(self.limit, sample) {
            true => Self::beyond(self.limit, sample),
            false => 0.0,
        };
        self.waiting = if beyond > 0.0 { self.waiting - beyond } else { 0.0 };
        self.waiting > 0.0
    }

    /// Adds the packets that the sample lacks under its ceiling to the backlog.
    fn add_to_backlog(&mut self, sample: &Sample) {
        let more = self.waiting.max(0.0) - Self::beyond(self.limit, sample);
        self.waiting = more.clamp(0.0, self.waiting_most());
    }

    fn limited(&self) -> PacketRate {
        PacketRate::from_pps(whole(float(self.set_point.as_pps()) * self.trim))
    }

    /// Learns the cost of a packet: follows a rise fast and a fall slowly.
    fn learn(&mut self, sample: &Sample) {
        let Some(used) = sample.used() else { return };
        // With few packets, the router's work beside them would make a packet look expensive.
        let enough = sample.rate().as_pps() >= self.set_point.as_pps() / 4;
        if sample.packets == 0 || !enough {
            return;
        }
        let seconds = float(sample.span.as_nanos()) / 1e9;
        let micros = f64::from(used.as_ppm()) * seconds / float(sample.packets);
        let known = *self.micros.get_or_insert(micros);
        let gain = match micros > known {
            // The known cost or this sample may belong to the set-point before: take the sample's.
            _ if self.age < STALE => 1.0,
            // Take the highest cost of the fresh samples: a ceiling that is used up means delay.
            true if self.age < FRESH => 1.0,
            true => RISE_GAIN,
            false => FALL_GAIN,
        };
        let learned = known + gain * (micros - known);
        // While the rate is held, a router may burn CPU time without need: learn only as far as the
        // ceiling need not rise.
        let short = self.falls_short(sample);
        let learned =
            if short { learned } else { learned.min(self.cost_within(self.cap).max(known)) };
        self.micros = Some(learned);
    }

    /// Returns the ceiling that the set-point needs with its headroom, in parts per million of a
    /// processor.
    fn needed(&self, micros: f64) -> f64 {
        let plain = float(self.limit.as_pps()) * micros;
        (plain * self.headroom_factor()).max(plain + f64::from(self.config.headroom_least.as_ppm()))
    }

    /// Returns the highest cost of a packet for which `cap` is enough.
    fn cost_within(&self, cap: CpuShare) -> f64 {
        let cap = f64::from(cap.as_ppm());
        let plain = (cap / self.headroom_factor())
            .min(cap - f64::from(self.config.headroom_least.as_ppm()));
        plain.max(0.0) / float(self.limit.as_pps()).max(1.0)
    }

    fn headroom_factor(&self) -> f64 {
        (1.0 + f64::from(self.config.headroom_ppm) / 1e6) * self.shortfall_factor
    }

    /// Returns the nearest cap of the range that the admitted cost allows.
    fn nearest(&self, ppm: f64) -> CpuShare {
        let most = self.config.cost_most.map_or(f64::INFINITY, |cost| {
            float(self.set_point.as_pps()) * float(cost.as_nanos()) / 1000.0
        });
        self.config.range.nearest(ppm.min(most))
    }

    /// Returns the ceiling for the set-point, or the old ceiling before a cost is known.
    fn ceiling(&self) -> CpuShare {
        let in_force = f64::from(self.cap.as_ppm());
        self.nearest(self.micros.map_or(in_force, |micros| self.needed(micros)))
    }

    fn step_ceiling(&mut self, sample: &Sample, starved: bool) -> ActionReason {
        if starved {
            let most = self.nearest(f64::MAX);
            if self.cap >= most {
                self.cap = most;
                return ActionReason::NoHeadroom;
            }
            let raised = self.nearest(f64::from(self.cap.as_ppm()) * RAISE);
            // The cost of packets may not explain the shortfall: another process may run under the
            // same cap, or bursts may not fit into the slices of the budget.
            self.shortfall_factor = (self.shortfall_factor * RAISE).min(SHORTFALL_FACTOR_MAX);
            self.cap = self.ceiling().max(raised);
            return ActionReason::CeilingRaised;
        }
        let forgotten = float(sample.span.as_nanos()) / SHORTFALL_MEMORY_NANOS;
        self.shortfall_factor = 1.0 + (self.shortfall_factor - 1.0) * (1.0 - forgotten).max(0.0);
        let wanted = self.ceiling();
        let far = f64::from(wanted.as_ppm()) * LOWER < f64::from(self.cap.as_ppm());
        if wanted > self.cap {
            self.cap = wanted;
            ActionReason::CeilingRaised
        } else if far && self.age >= FRESH {
            self.cap = wanted;
            ActionReason::CeilingLowered
        } else {
            ActionReason::Limit
        }
    }

    fn act(&mut self, at: Instant, reason: ActionReason) -> Action {
        self.last_request.act(at, self.cap, Some(self.limit), reason)
    }
}

impl Controller for Combined {
    fn name(&self) -> &'static str {
        "combined"
    }

    fn set_point(&self) -> PacketRate {
        self.set_point
    }

    fn step(&mut self, now: Instant, sample: &Sample) -> Action {
        if sample.span == Nanos::ZERO {
            return self.act(now, ActionReason::NoDemand);
        }
        self.learn(sample);
        let starved = self.is_starved(sample);
        let mut reason = self.step_ceiling(sample, starved);
        // A rate under a starved ceiling, or from before the limit, says nothing about the limit.
        if starved {
            self.add_to_backlog(sample);
        } else if self.age > 0 {
            self.follow(sample);
        }
        self.age = self.age.saturating_add(1);
        if reason == ActionReason::Limit && !self.limits(sample) {
            reason = ActionReason::NoDemand;
        }
        self.act(now, reason)
    }

    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action {
        // Losses behind the limit at one rate say nothing about those at another.
        let (old, new) = (float(self.set_point.as_pps()), float(set_point.as_pps()));
        if (new - old).abs() > SAME_POINT * old {
            self.trim = 1.0;
        }
        self.set_point = set_point;
        self.limit = self.limited();
        self.begin();
        // The ceiling falls at once as well: its purpose is that no router takes more than its
        // share.
        let roomy = self.micros.map(|micros| self.nearest(self.needed(micros) * ROOM));
        let roomy = roomy.map_or(self.cap, |roomy| roomy.min(self.cap));
        self.cap = self.ceiling().max(roomy);
        self.act(now, ActionReason::Limit)
    }

    fn adopt(&mut self, _: Instant, in_force: Settings, sample: Option<&Sample>) {
        self.cap = self.config.range.clamp(in_force.cap);
        self.begin();
        self.last_request.forget();
        // A controller that knows a cost has learned this sample already.
        if let Some(sample) = sample.filter(|_| self.micros.is_none()) {
            self.learn(sample);
        }
    }

    fn estimate(&self) -> Option<Estimate> {
        self.micros.map(|micros| Estimate::Cost(Nanos::new(whole(micros * 1000.0))))
    }
}

/// Consecutive errors of the same sign before the limit follows: a pause of the machine makes one
/// sample lack packets and the next have too many.
const LASTING: u32 = 4;
/// The backlog of a router's queues, in seconds of its set-point; measured: 951 packets at 61 kp/s.
const WAITING_SECONDS: f64 = 0.1;
/// Samples of which the first may belong to another set-point.
const STALE: u32 = 2;
/// Samples after which the cost of a packet at this set-point is known. In a measurement, a ceiling
/// that was set after two samples remained nine tenths used for good.
const FRESH: u32 = 10;
/// Factor of the cost at another set-point: measured 4 µs at capacity, 25 µs at 1 % of it.
const ROOM: f64 = 6.0;
/// The least trim: a router that makes packets (multicast) is held to its rate by a limit of down
/// to half of the set-point.
const TRIM_LEAST: f64 = 0.5;
/// The largest trim: a router that drops a few packets by its own rules gets a little more. A
/// router that drops more than 5 % does so on purpose.
const TRIM_MOST: f64 = 1.05;
/// A change of the set-point by less than this part is the same operating point.
const SAME_POINT: f64 = 0.05;
const RISE_GAIN: f64 = 0.5;
const FALL_GAIN: f64 = 0.02;
/// Factor on the ceiling when a router falls short under it.
const RAISE: f64 = 1.25;
/// More than ten times the plain ceiling does not help a router.
const SHORTFALL_FACTOR_MAX: f64 = 10.0;
/// Time constant with which extra ceiling is taken back: ten minutes. At that pace a router that
/// needs the extra falls short by no more than the tolerance before it gets it again.
const SHORTFALL_MEMORY_NANOS: f64 = 600e9;
/// Factor by which a ceiling exceeds its target before it is lowered: it must not follow noise.
const LOWER: f64 = 1.1;
