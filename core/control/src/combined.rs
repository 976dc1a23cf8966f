// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weir's default: the rate is held by a limit at ingress, the cap is a ceiling above it.
//!
//! *Role*: holds a rate exactly, and drops what is beyond it before it costs anything, where the
//! text's packets are carried up to the router first (§7.3). *Synopsis*: [`Combined::new`].
//! *Behaviour*: the limit is the set-point, trimmed by feedback for packets that are lost, or made,
//! behind it: by the least of four errors in a row that have the same sign, so that what comes a
//! little late, in the sample after, moves nothing; nor does what a router had let wait, before the
//! limit or under a ceiling that was too low. Where nobody meters what comes, it is the plain
//! set-point. The cap is what the set-point costs and a headroom. It is raised at once where the
//! rate falls short under it, and the log says where there is no more to get; while the rate is
//! held it is not, whatever the router burns beside its packets. A router that drops its packets to
//! be given more is bounded by the range and by [`CombinedConfig::cost_most`] alone.
//!
//! At another set-point a packet costs something else: at a hundredth of a router's capacity up to
//! six times as much, since each one wakes it. So the ceiling comes down to six times what the new
//! set-point would cost at the old price, and to its headroom above the dearest of ten samples when
//! these have told the new.
//!
//! | parameter | default | why |
//! |---|---|---|
//! | headroom | 25 % | less 15 % of the cap it is still 1.25 · 0.85 = 1.06 of what is needed |
//! | least headroom | 5 % of a processor | 4.4 % were needed more in one sample of 100 ms |
//! | tolerance | 0.5 %, and two packets | half of the 1 % within which the rate is to be held |
//!
//! *Cost*: a few multiplications a sample. *What it does not do*: work where ingress cannot be
//! limited; [`crate::FeedForward`] does.

use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::action::Told;
use crate::number::{float, whole};
use crate::{Action, CapRange, Controller, Estimate, Reason, Sample, Settings};

/// What a [`Combined`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CombinedConfig {
    /// Where the ceiling may go.
    pub range: CapRange,
    /// What the ceiling has above what the set-point costs, in parts per million of it.
    pub headroom_ppm: u32,
    /// The least of that.
    pub headroom_least: CpuShare,
    /// Errors that neither limit nor ceiling follows, in parts per million of the set-point; of
    /// [`Self::TOLERANCE_PACKETS`] in a sample it follows none either.
    pub tolerance_ppm: u32,
    /// The CPU time a packet that the router was admitted with: its ceiling is not above what the
    /// set-point is worth at that. `None`: the range alone bounds it.
    pub cost_most: Option<Nanos>,
}

impl CombinedConfig {
    /// Packets that a sample may miss, or have too many, by when it was taken: one that was about
    /// to pass, at each of its ends.
    pub const TOLERANCE_PACKETS: u32 = 2;

    /// A headroom of 25 %, at least 5 % of a processor, a tolerance of 0.5 %, any cost.
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
    /// Limit by set-point.
    trim: f64,
    cap: CpuShare,
    /// Microseconds of CPU time a packet, rather too high than too low; `None` before it is known.
    micros: Option<f64>,
    /// The ceiling by what it would be with the plain headroom: what this router was seen to need.
    extra: f64,
    /// Samples since the set-point, or who set the cap, was another.
    age: u32,
    /// The least error of samples in a row that are off to the same side, and how many they are.
    lasting: f64,
    lasting_for: u32,
    /// Packets that may wait behind the limit: that they come out does not mean that they are made.
    waiting: f64,
    told: Told,
}

impl Combined {
    /// Starts from a cap that is in force, which becomes the ceiling until the first sample.
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
            extra: 1.0,
            age: 0,
            lasting: 0.0,
            lasting_for: 0,
            waiting: 0.0,
            told: Told::default(),
        };
        fresh.begin();
        fresh
    }

    /// What comes from now on came under another limit, or none.
    fn begin(&mut self) {
        (self.age, self.lasting_for) = (0, 0);
        self.waiting = self.waiting_most();
    }

    fn waiting_most(&self) -> f64 {
        float(self.set_point.as_pps()) * WAITING_SECONDS
    }

    /// Whether the limit was what held the rate: all that it lets in came.
    fn limits(&self, sample: &Sample) -> bool {
        let part = |rate: PacketRate| u128::from(rate.as_pps()) * 100;
        let limit = u128::from(self.limit.as_pps()) * 99;
        sample.offered_rate().is_some_and(|offered| part(offered) >= limit)
    }

    /// Whether the rate is below the set-point by more than the tolerance, and not because less
    /// comes, or is let in: a limit that was lowered for packets that are made no more is raised,
    /// not the ceiling. Where that is not metered, because the ceiling is nearly used up.
    fn falls_short(&self, sample: &Sample) -> bool {
        let comes = match sample.offered {
            Some(_) => self.limits(sample) || (sample.loses() && self.near(sample)),
            None => self.near(sample),
        };
        let short_of = |rate| Self::relative_to(rate, sample) < 0.0 && self.counts(rate, sample);
        comes && short_of(self.set_point) && short_of(self.limit)
    }

    /// Whether it falls short because of the ceiling.
    fn is_starved(&self, sample: &Sample) -> bool {
        self.falls_short(sample) && sample.bound_by(self.cap)
    }

    /// Whether the largest cap is used up: what comes beyond the limit then can only have waited.
    fn is_full(&self, sample: &Sample) -> bool {
        self.cap >= self.nearest(f64::MAX) && self.near(sample)
    }

    /// Whether nine tenths of the ceiling were used.
    fn near(&self, sample: &Sample) -> bool {
        let used = sample.used().unwrap_or(CpuShare::ZERO);
        u64::from(used.as_ppm()) * 10 >= u64::from(self.cap.as_ppm()) * 9
    }

    /// The sample's packets beyond this rate.
    fn beyond(rate: PacketRate, sample: &Sample) -> f64 {
        let rate = float(rate.as_pps()).max(1.0);
        float(sample.packets) - rate * float(sample.span.as_nanos()) / 1e9
    }

    /// The sample's rate by this one, minus 1.
    fn relative_to(rate: PacketRate, sample: &Sample) -> f64 {
        let expected = float(rate.as_pps()).max(1.0) * float(sample.span.as_nanos()).max(1.0);
        Self::beyond(rate, sample) * 1e9 / expected
    }

    /// Whether the sample is off `rate` by more than is tolerated.
    fn counts(&self, rate: PacketRate, sample: &Sample) -> bool {
        let relative = Self::relative_to(rate, sample).abs();
        let expected = float(rate.as_pps()).max(1.0) * float(sample.span.as_nanos()) / 1e9;
        relative > f64::from(self.config.tolerance_ppm) / 1e6
            && relative * expected > f64::from(CombinedConfig::TOLERANCE_PACKETS)
    }

    fn follow(&mut self, sample: &Sample) {
        // Without it nobody knows whether the limit is too low or too little comes: what went down
        // with every burst would never come up again.
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

    /// Whether what the sample has beyond the limit had waited; once it has nothing, nothing waits.
    fn comes_late(&mut self, sample: &Sample) -> bool {
        let beyond = match self.counts(self.limit, sample) {
            true => Self::beyond(self.limit, sample),
            false => 0.0,
        };
        self.waiting = if beyond > 0.0 { self.waiting - beyond } else { 0.0 };
        self.waiting > 0.0
    }

    /// What a sample under a ceiling that is too low lacks may wait.
    fn let_wait(&mut self, sample: &Sample) {
        let more = self.waiting.max(0.0) - Self::beyond(self.limit, sample);
        self.waiting = more.clamp(0.0, self.waiting_most());
    }

    fn limited(&self) -> PacketRate {
        PacketRate::from_pps(whole(float(self.set_point.as_pps()) * self.trim))
    }

    /// Learns what a packet costs: more at once, less slowly.
    fn learn(&mut self, sample: &Sample) {
        let Some(used) = sample.used() else { return };
        // Work that no packet pays for would make a single packet look dear.
        let enough = sample.rate().as_pps() >= self.set_point.as_pps() / 4;
        if sample.packets == 0 || !enough {
            return;
        }
        let seconds = float(sample.span.as_nanos()) / 1e9;
        let micros = f64::from(used.as_ppm()) * seconds / float(sample.packets);
        let known = *self.micros.get_or_insert(micros);
        let gain = match micros > known {
            // What was known is of another set-point, or the sample is.
            _ if self.age < STALE => 1.0,
            // The dearest of them: what is used up in a sample is a delay.
            true if self.age < FRESH => 1.0,
            true => RISE_GAIN,
            false => FALL_GAIN,
        };
        let learned = known + gain * (micros - known);
        // While the rate is held, what is used may be burnt as well as needed: it is learned as far
        // as the ceiling need not rise for it.
        let short = self.falls_short(sample);
        let learned = if short { learned } else { learned.min(self.worth(self.cap).max(known)) };
        self.micros = Some(learned);
    }

    /// What the set-point needs, headroom and all, in parts per million of a processor.
    fn needed(&self, micros: f64) -> f64 {
        let plain = float(self.limit.as_pps()) * micros;
        (plain * self.factor()).max(plain + f64::from(self.config.headroom_least.as_ppm()))
    }

    /// The dearest packet for which a cap is enough.
    fn worth(&self, cap: CpuShare) -> f64 {
        let cap = f64::from(cap.as_ppm());
        let plain = (cap / self.factor()).min(cap - f64::from(self.config.headroom_least.as_ppm()));
        plain.max(0.0) / float(self.limit.as_pps()).max(1.0)
    }

    fn factor(&self) -> f64 {
        (1.0 + f64::from(self.config.headroom_ppm) / 1e6) * self.extra
    }

    /// The nearest of the range, up to what was admitted.
    fn nearest(&self, ppm: f64) -> CpuShare {
        let most = self.config.cost_most.map_or(f64::INFINITY, |cost| {
            float(self.set_point.as_pps()) * float(cost.as_nanos()) / 1000.0
        });
        self.config.range.nearest(ppm.min(most))
    }

    /// The ceiling for the set-point; the old one before anything is known.
    fn ceiling(&self) -> CpuShare {
        let in_force = f64::from(self.cap.as_ppm());
        self.nearest(self.micros.map_or(in_force, |micros| self.needed(micros)))
    }

    fn step_ceiling(&mut self, sample: &Sample, starved: bool) -> Reason {
        if starved {
            let most = self.nearest(f64::MAX);
            if self.cap >= most {
                self.cap = most;
                return Reason::NoHeadroom;
            }
            let raised = self.nearest(f64::from(self.cap.as_ppm()) * RAISE);
            // What is known of the cost may not explain it: another process under the same cap,
            // bursts that the budget's slices do not let through.
            self.extra = (self.extra * RAISE).min(EXTRA_MOST);
            self.cap = self.ceiling().max(raised);
            return Reason::CeilingRaised;
        }
        let forgotten = float(sample.span.as_nanos()) / EXTRA_NANOS;
        self.extra = 1.0 + (self.extra - 1.0) * (1.0 - forgotten).max(0.0);
        let wanted = self.ceiling();
        let far = f64::from(wanted.as_ppm()) * LOWER < f64::from(self.cap.as_ppm());
        if wanted > self.cap {
            self.cap = wanted;
            Reason::CeilingRaised
        } else if far && self.age >= FRESH {
            self.cap = wanted;
            Reason::CeilingLowered
        } else {
            Reason::Limit
        }
    }

    fn act(&mut self, at: Instant, reason: Reason) -> Action {
        self.told.act(at, self.cap, Some(self.limit), reason)
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
            return self.act(now, Reason::NoDemand);
        }
        self.learn(sample);
        let starved = self.is_starved(sample);
        let mut reason = self.step_ceiling(sample, starved);
        // A rate that the ceiling holds down, or from before the limit, says nothing about it.
        if starved {
            self.let_wait(sample);
        } else if self.age > 0 {
            self.follow(sample);
        }
        self.age = self.age.saturating_add(1);
        if reason == Reason::Limit && !self.limits(sample) {
            reason = Reason::NoDemand;
        }
        self.act(now, reason)
    }

    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action {
        // What is lost or made behind the limit at one rate says nothing about it at another.
        let (old, new) = (float(self.set_point.as_pps()), float(set_point.as_pps()));
        if (new - old).abs() > SAME_POINT * old {
            self.trim = 1.0;
        }
        self.set_point = set_point;
        self.limit = self.limited();
        self.begin();
        // Down at once as well: what the ceiling is for is that nobody takes more than he may.
        let roomy = self.micros.map(|micros| self.nearest(self.needed(micros) * ROOM));
        let roomy = roomy.map_or(self.cap, |roomy| roomy.min(self.cap));
        self.cap = self.ceiling().max(roomy);
        self.act(now, Reason::Limit)
    }

    fn adopt(&mut self, _: Instant, in_force: Settings, sample: Option<&Sample>) {
        self.cap = self.config.range.clamp(in_force.cap);
        self.begin();
        self.told.forget();
        // One that knows something was given the sample before: it is not to be learned twice.
        if let Some(sample) = sample.filter(|_| self.micros.is_none()) {
            self.learn(sample);
        }
    }

    fn estimate(&self) -> Option<Estimate> {
        self.micros.map(|micros| Estimate::Cost(Nanos::new(whole(micros * 1000.0))))
    }
}

/// Samples that are off to the same side before the limit follows: what a pause of the machine
/// holds up is missing in one sample and too much in the next.
const LASTING: u32 = 4;
/// What may wait in a router's queues, in seconds of its set-point; at 61 kp/s 951 packets did.
const WAITING_SECONDS: f64 = 0.1;
/// Samples of which the first may be of another set-point.
const STALE: u32 = 2;
/// Samples after which the cost of a packet at this set-point is known: after two of them a ceiling
/// was set of which then nine tenths and more were used, for good.
const FRESH: u32 = 10;
/// What a packet may cost more at another set-point: measured 4 µs at capacity, 25 µs at 1 % of it.
const ROOM: f64 = 6.0;
/// A router that makes packets (multicast) is held to its rate all the same, down to half.
const TRIM_LEAST: f64 = 0.5;
/// A router that drops some by its own rules gets a little more; who drops more means it.
const TRIM_MOST: f64 = 1.05;
/// Of the set-point: a smaller change is the same operating point.
const SAME_POINT: f64 = 0.05;
const RISE_GAIN: f64 = 0.5;
const FALL_GAIN: f64 = 0.02;
/// Of the ceiling, when a router falls short under it.
const RAISE: f64 = 1.25;
/// A router that needs more than ten times what it pays for is not helped by more.
const EXTRA_MOST: f64 = 10.0;
/// Ten minutes: what a router needed for a while is taken back slowly, and it falls short by no
/// more than the tolerance before it gets it again.
const EXTRA_NANOS: f64 = 600e9;
/// How far a ceiling is above what is wanted before it is lowered: it must not follow noise.
const LOWER: f64 = 1.1;
