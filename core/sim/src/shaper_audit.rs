// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laws of the smooth window, checked on every packet from outside.
//!
//! The audit sees arrivals, releases and the position of the window, and keeps sums of its own. It
//! knows the laws, and nothing of how a shaper keeps them. Each check is O(1), so that a run of 10⁹
//! packets can be audited.
//!
//! The *byte law* speaks of every window of time. It holds for all windows that end with a packet
//! exactly if the worst of them keeps it, and the worst follows from the worst of the packet
//! before: it goes on from there, or begins with this packet. This is how a leaky bucket is
//! measured (J.-Y. Le Boudec, P. Thiran, *Network Calculus*, section 1.2).

use weir_sched::SmoothConfig;
use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate, ByteCount, Instant, Nanos};

use crate::Seed;
use crate::shaper::{ShapedPacket, ShapedSource, Shaper, watch_shaped};

/// A law of the smooth window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ShaperLaw {
    /// In any time `τ` at most `rate · (τ + credit)` and one packet leave, but for the nanosecond
    /// to which a release is rounded.
    Bytes,
    /// Packets leave in the order of their arrival, none before its own.
    Order,
    /// No delay is shorter than the window's begin. None is longer than its end, once the packets
    /// of a later window have left, unless the credit is used up.
    Window,
    /// No packet waits for longer than `delay_max + width`, and one is refused only if it would.
    Refusal,
    /// Under open overload the window goes to `delay_max`, if the longest packet takes no longer
    /// than `delay_max + width` at the rate.
    Overload,
}

impl ShaperLaw {
    /// All laws.
    pub const ALL: [Self; 5] =
        [Self::Bytes, Self::Order, Self::Window, Self::Refusal, Self::Overload];

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Order => "order",
            Self::Window => "window",
            Self::Refusal => "refusal",
            Self::Overload => "overload",
        }
    }
}

/// Checks every packet of a shaper.
#[derive(Clone, Debug)]
pub struct ShaperAudit {
    config: SmoothConfig,
    /// Bits by which the worst window before this packet exceeds the rate, in 10⁻⁹ bits.
    excess: u128,
    last: Instant,
    last_bytes: u32,
    window: Nanos,
    /// The time by which all packets of earlier windows have left, if they were on time.
    settled: Instant,
    violations: [u64; ShaperLaw::ALL.len()],
    packets: u64,
    refused: u64,
    late: u64,
    /// The shaper's own count of late packets.
    told_late: Option<u64>,
    overloads: u64,
}

impl ShaperAudit {
    /// Makes an audit of a shaper with these parameters that has sent nothing.
    #[must_use]
    pub const fn new(config: SmoothConfig) -> Self {
        Self {
            config,
            excess: 0,
            last: Instant::ZERO,
            last_bytes: 0,
            window: Nanos::ZERO,
            settled: Instant::ZERO,
            violations: [0; ShaperLaw::ALL.len()],
            packets: 0,
            refused: 0,
            late: 0,
            told_late: None,
            overloads: 0,
        }
    }

    /// Checks a packet.
    pub fn check(&mut self, packet: &ShapedPacket) {
        let window = packet.window.unwrap_or(Nanos::ZERO);
        if window != self.window {
            self.settled = self.settled.max(packet.arrived + self.window);
            self.window = window;
        }
        self.packets += 1;
        let horizon = packet.arrived + self.config.longest();
        let Some(left) = packet.left else {
            self.refused += 1;
            let used_up = self.excess_at(horizon) + self.moment() > self.credit_bits();
            return self.hold(ShaperLaw::Refusal, used_up);
        };
        self.hold(ShaperLaw::Order, left >= self.last && left >= packet.arrived);
        self.hold(ShaperLaw::Refusal, left <= horizon);
        let excess = self.excess_at(left);
        self.hold(ShaperLaw::Bytes, excess <= self.credit_bits());
        let begins = packet.arrived + window;
        self.hold(ShaperLaw::Window, left >= begins);
        if left > begins + self.config.width {
            self.late += 1;
            let used_up = excess + 2 * self.moment() > self.credit_bits();
            self.hold(ShaperLaw::Window, used_up || begins < self.settled);
        }
        (self.excess, self.last, self.last_bytes) = (excess, left, packet.bytes);
    }

    /// Checks that the window is where open overload must have put it by now.
    pub fn check_overload(&mut self, window: Option<Nanos>) {
        self.overloads += 1;
        self.hold(ShaperLaw::Overload, window == Some(self.config.delay_max));
    }

    /// Returns the number of violations of a law.
    #[must_use]
    pub const fn violations(&self, law: ShaperLaw) -> u64 {
        self.violations[law as usize]
    }

    /// Returns the number of packets checked, of those refused, of those that left after their
    /// window, and of overloads that lasted long enough to judge the window.
    #[must_use]
    pub const fn counts(&self) -> [u64; 4] {
        [self.packets, self.refused, self.late, self.overloads]
    }

    /// Returns the difference between the shaper's own count of late packets and the audit's;
    /// `None` if the shaper has no such count, or [`audit_random`] was not used.
    #[must_use]
    pub fn miscounted(&self) -> Option<u64> {
        self.told_late.map(|told| told.abs_diff(self.late))
    }

    /// Returns the excess that the worst window would have if it ended at `at`.
    fn excess_at(&self, at: Instant) -> u128 {
        let passed = u128::from(at.saturating_since(self.last).as_nanos());
        let before =
            self.excess + u128::from(self.last_bytes) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
        before.saturating_sub(passed * u128::from(self.config.rate.as_bps()))
    }

    /// Returns the excess that the credit and the rounding of a release allow.
    fn credit_bits(&self) -> u128 {
        let time = u128::from(self.config.credit.as_nanos()) + 1;
        time * u128::from(self.config.rate.as_bps())
    }

    /// Returns the bits that pass in a nanosecond, in 10⁻⁹ bits.
    fn moment(&self) -> u128 {
        self.config.rate.as_bps().into()
    }

    fn hold(&mut self, law: ShaperLaw, holds: bool) {
        self.violations[law as usize] += u64::from(!holds);
    }
}

/// Sends `packets` random packets through a shaper that `make` makes from random parameters, the
/// last fifth of them in open overload.
pub fn audit_random<S: Shaper>(
    seed: u64,
    packets: u64,
    make: impl FnOnce(SmoothConfig) -> S,
) -> ShaperAudit {
    let mut seed = Seed::new(seed);
    let config = random_config(&mut seed);
    let mut shaper = make(config.clone());
    let mut audit = ShaperAudit::new(config.clone());
    let mut arrivals = RandomArrivals::new(&config, seed, packets);
    let mut begun = None;
    watch_shaped(&mut shaper, &mut arrivals, Instant::FAR_FUTURE, |packet| {
        audit.check(packet);
        if audit.packets > packets - packets / 5 {
            begun.get_or_insert(packet.arrived);
        }
        if audit.packets == packets {
            let lasted = packet.arrived.saturating_since(begun.unwrap_or(packet.arrived));
            let interval = config.interval.max(config.delay_max.saturating_add(config.delay_max));
            // A link that sends a packet for longer than it may wait idles in between.
            let fits = config.rate.time_for_ceil(LONGEST) <= config.longest();
            if fits && lasted.as_nanos() >= OVERLOAD_INTERVALS * interval.as_nanos() {
                audit.check_overload(packet.window);
            }
        }
    });
    audit.told_late = shaper.late();
    audit
}

/// Draws parameters from the range that a policy accepts.
fn random_config(seed: &mut Seed) -> SmoothConfig {
    let rate = 100_000 << seed.between(0, 16);
    let interval = seed.between(100, 2000);
    let delay_max = seed.between(5, 500);
    SmoothConfig {
        rate: BitRate::from_bps(seed.between(rate, 2 * rate)),
        credit: Nanos::from_millis(seed.between(0, 200)),
        width: Nanos::from_micros(seed.between(100, 10_000)),
        interval: Nanos::from_millis(interval),
        delay_max: Nanos::from_millis(delay_max),
    }
}

/// Arrivals that change their kind every so often: even, Poisson, in bursts, after a pause, at
/// once, in answer to releases; below the rate, at it, far above.
#[derive(Debug)]
struct RandomArrivals {
    rate: BitRate,
    /// True if Poisson arrivals above the rate leave no idle time that counts.
    poisson_floods: bool,
    seed: Seed,
    left: u64,
    overload: u64,
    phase: u64,
    kind: u64,
    /// Offered load of the phase, in tenths of the rate.
    load: u64,
    due: Instant,
    bytes: u32,
}

impl RandomArrivals {
    fn new(config: &SmoothConfig, seed: Seed, packets: u64) -> Self {
        let (overload, due, rate) = (packets / 5, Instant::ZERO, config.rate);
        // A pause of Poisson arrivals is idle time once the backlog has left, and a quarter of an
        // interval of it ends the interval: the window moves back, as it should.
        let pause = config.delay_max.as_nanos() + config.interval.as_nanos() / 4;
        let poisson_floods = rate.time_for_ceil(LONGEST).as_nanos() * POISSON_PAUSE <= pause;
        let (phase, kind, load, bytes) = (0, 0, 10, 64);
        Self { rate, poisson_floods, seed, left: packets, overload, phase, kind, load, due, bytes }
    }

    /// Draws the time between this packet and the next.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    fn gap(&mut self) -> Nanos {
        let even = self.rate.time_for_ceil(ByteCount::new(u64::from(self.bytes) * 10)).as_nanos()
            / self.load;
        Nanos::new(match self.kind {
            0 => even,
            1 => self.seed.exponential(even as f64) as u64,
            2 if self.seed.one_in(30) => even * 30,
            _ => 0,
        })
    }

    fn change(&mut self) {
        self.phase = self.seed.between(1, 3000).min(self.left.max(1));
        if self.left <= self.overload {
            let kind = self.seed.between(0, 1);
            self.kind = if self.poisson_floods { kind } else { 0 };
            self.load = self.seed.between(14, 40);
            return;
        }
        // Arrivals at one instant come only in short phases: nearly all of them are refused.
        self.kind = self.seed.between(0, 9).min(4);
        self.load = self.seed.between(1, 20);
        match self.kind {
            3 => self.phase = self.phase.min(300),
            4 => self.kind = self.seed.between(0, 2),
            _ => {}
        }
        if self.seed.one_in(8) {
            self.due += Nanos::from_millis(self.seed.between(1, 5000));
        }
    }
}

impl ShapedSource for RandomArrivals {
    fn due(&self) -> Instant {
        if self.left == 0 { Instant::FAR_FUTURE } else { self.due }
    }

    fn offer(&mut self, _: Instant) -> Option<u32> {
        if self.phase == 0 || self.left == self.overload {
            self.change();
        }
        self.phase -= 1;
        self.left -= 1;
        let bytes = match self.seed.between(0, 2) {
            0 => 64,
            1 => 1518,
            _ => self.seed.between(64, 1518),
        };
        self.bytes = u32::try_from(bytes).unwrap_or(1518);
        Some(self.bytes)
    }

    fn outcome(&mut self, now: Instant, leaves: Option<Instant>) {
        let answers = self.kind == 2 && self.load > 15;
        let gap = self.gap();
        self.due = match leaves.filter(|_| answers) {
            Some(leaves) => leaves + gap,
            None => now + gap,
        };
    }
}

/// The longest packet.
const LONGEST: ByteCount = ByteCount::new(1518);
/// Intervals of open overload after which the window has reached `delay_max`.
const OVERLOAD_INTERVALS: u64 = 12;
/// The longest packets' times that a pause of Poisson arrivals at 1.4 times the rate outlasts once
/// in some 10¹⁰ packets: a mean gap is 0.37 of the longest.
const POISSON_PAUSE: u64 = 9;
