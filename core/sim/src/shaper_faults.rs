// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smooth window written down a second time, as its law reads, and broken on purpose.
//!
//! Without a fault it equals the shaper that ships, packet by packet. With one it must be caught by
//! the law that the fault breaks: a battery that passes it would prove nothing.

use weir_sched::SmoothConfig;
use weir_units::{Instant, Nanos};

use crate::shaper::Shaper;
use crate::shaper_audit::ShaperLaw;

/// A fault of a [`FaultyShaper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShaperFault {
    /// None.
    None,
    /// Packets leave ahead of the rate without a bound.
    ForgetsCredit,
    /// The credit is 1 µs longer.
    LendsMore,
    /// A packet ahead of its turn does not push back the next.
    ForgetsDebt,
    /// A packet may pass the one before.
    ForgetsOrder,
    /// The window ends 1 µs later.
    WidensWindow,
    /// The window begins 1 µs earlier.
    BeginsEarly,
    /// Everything is taken.
    RefusesNothing,
    /// Packets are refused 1 µs before they must be.
    RefusesEarly,
    /// The window never moves.
    StaysPut,
}

impl ShaperFault {
    /// Each fault with the law that must catch it.
    pub const CAUGHT_BY: [(Self, ShaperLaw); 9] = [
        (Self::ForgetsCredit, ShaperLaw::Bytes),
        (Self::LendsMore, ShaperLaw::Bytes),
        (Self::ForgetsDebt, ShaperLaw::Bytes),
        (Self::ForgetsOrder, ShaperLaw::Order),
        (Self::WidensWindow, ShaperLaw::Window),
        (Self::BeginsEarly, ShaperLaw::Window),
        (Self::RefusesNothing, ShaperLaw::Refusal),
        (Self::RefusesEarly, ShaperLaw::Refusal),
        (Self::StaysPut, ShaperLaw::Overload),
    ];
}

/// The smooth window in plain arithmetic, with a fault. All times are in nanoseconds, the clock in
/// nanoseconds times the rate, so that nothing is rounded.
#[derive(Clone, Debug)]
pub struct FaultyShaper {
    fault: ShaperFault,
    rate: i128,
    credit: i128,
    width: i128,
    interval: i128,
    delay_max: i128,
    clock: i128,
    position: i128,
    previous: i128,
    start: i128,
    bits: i128,
    refused: i128,
    packets: i128,
    delays: i128,
    lead: i128,
    lead_before: i128,
    idle: i128,
}

impl FaultyShaper {
    /// A shaper that has sent nothing.
    #[must_use]
    pub fn new(config: &SmoothConfig, fault: ShaperFault) -> Self {
        let nanos = |time: Nanos| i128::from(time.as_nanos());
        Self {
            fault,
            rate: config.rate.as_bps().into(),
            credit: nanos(config.credit),
            width: nanos(config.width),
            interval: nanos(config.interval),
            delay_max: nanos(config.delay_max),
            clock: 0,
            position: 0,
            previous: 0,
            start: 0,
            bits: 0,
            refused: 0,
            packets: 0,
            delays: 0,
            lead: i128::MAX,
            lead_before: 0,
            idle: 0,
        }
    }

    fn is(&self, fault: ShaperFault) -> bool {
        self.fault == fault
    }

    fn begin(&mut self, now: i128) {
        (self.start, self.bits, self.packets, self.delays) = (now, 0, 0, 0);
        (self.refused, self.lead, self.idle) = (0, i128::MAX, 0);
    }

    fn close(&mut self, now: i128) {
        let lasted = now - self.start;
        let least = SETTLE_LEAST.max(2 * self.position);
        let whole = self.interval.max(least);
        let turn = div_ceil(self.clock, self.rate);
        let idle = self.idle + (now - turn.max(self.start)).max(0);
        let early = lasted > least && idle > self.interval / 4;
        if lasted < whole && !early {
            return;
        }
        self.idle = idle;
        if self.packets > 0 && lasted <= 2 * whole && !self.is(ShaperFault::StaysPut) {
            self.steer(lasted);
        }
        let lead = if self.packets > 0 { self.lead } else { 0 };
        self.begin(now);
        self.lead_before = lead;
    }

    fn steer(&mut self, lasted: i128) {
        let refused = div_ceil(self.refused * SECOND, self.rate).min(lasted);
        let grown = (self.lead - self.lead_before).max(0);
        let over = if self.idle > 0 {
            refused - self.idle.min(lasted)
        } else {
            refused + self.lead + grown
        };
        if over.abs() * 200 <= lasted {
            return;
        }
        let mean = (self.delays / self.packets - self.width).max(0).max(self.position);
        let from = if over > 0 { mean } else { self.position };
        self.position = (from + (mean + self.width) * over / lasted).clamp(0, self.delay_max);
    }
}

impl Shaper for FaultyShaper {
    fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
        let now = i128::from(now.as_nanos());
        self.close(now);
        let turn = div_ceil(self.clock, self.rate);
        let more = |wrong: bool| if wrong { MOMENT } else { 0 };
        let early = more(self.is(ShaperFault::BeginsEarly)).min(self.position);
        let first = now + self.position - early;
        let last = now + self.position + self.width + more(self.is(ShaperFault::WidensWindow));
        let mut leaves = turn.max(now).clamp(first, last);
        if !self.is(ShaperFault::ForgetsCredit) {
            let credit = self.credit + more(self.is(ShaperFault::LendsMore));
            leaves = leaves.max(turn - credit);
        }
        if !self.is(ShaperFault::ForgetsOrder) {
            leaves = leaves.max(self.previous);
        }
        let longest = self.delay_max + self.width - more(self.is(ShaperFault::RefusesEarly));
        if leaves > now + longest && !self.is(ShaperFault::RefusesNothing) {
            self.refused += i128::from(bytes) * 8;
            return None;
        }
        self.lead = self.lead.min((turn - leaves).max(0));
        self.idle += (leaves - turn.max(self.start)).max(0);
        let kept = if self.is(ShaperFault::ForgetsDebt) || leaves > turn {
            leaves * self.rate
        } else {
            self.clock
        };
        self.clock = kept + i128::from(bytes) * 8 * SECOND;
        self.previous = leaves;
        self.bits += i128::from(bytes) * 8;
        self.packets += 1;
        self.delays += leaves - now;
        Some(Instant::from_nanos(u64::try_from(leaves).unwrap_or(0)))
    }

    fn window(&self) -> Option<Nanos> {
        Some(Nanos::new(u64::try_from(self.position).unwrap_or(0)))
    }
}

fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1) / divisor
}

const SECOND: i128 = 1_000_000_000;
const SETTLE_LEAST: i128 = 50_000_000;
const MOMENT: i128 = 1000;

#[cfg(test)]
mod tests {
    use weir_sched::SmoothShaper;

    use super::*;
    use crate::shaper_audit::audit_random;

    const SEEDS: u64 = 60;
    const PACKETS: u64 = 20_000;

    fn shipped(config: SmoothConfig) -> SmoothShaper {
        SmoothShaper::new(config, Instant::ZERO)
    }

    /// Goal: the laws hold, and were reached. Method: random parameters and arrivals; packets are
    /// refused and late in most runs.
    #[test]
    fn the_laws_hold_over_random_arrivals() {
        let mut reached = [0; 4];
        for seed in 0..SEEDS {
            let audit = audit_random(seed, PACKETS, shipped);
            for law in ShaperLaw::ALL {
                assert_eq!(audit.violations(law), 0, "{} with seed {seed}", law.name());
            }
            assert_eq!(audit.miscounted(), Some(0), "late packets with seed {seed}");
            let counts = audit.counts();
            reached = [0, 1, 2, 3].map(|at| reached[at] + counts[at]);
        }
        let [packets, refused, late, overloads] = reached;
        assert_eq!(packets, SEEDS * PACKETS);
        assert!(overloads > SEEDS / 10, "{reached:?}");
        assert!(refused > packets / 100 && late > packets / 100, "{reached:?}");
    }

    /// Goal: each law has teeth. Method: each fault alone; without one, nothing is caught.
    #[test]
    fn every_fault_is_caught_by_its_law() {
        let caught = |fault, law| {
            let of = |seed| {
                let audit = audit_random(seed, PACKETS, |config| FaultyShaper::new(&config, fault));
                audit.violations(law)
            };
            (0..SEEDS).map(of).sum::<u64>()
        };
        for (fault, law) in ShaperFault::CAUGHT_BY {
            assert!(caught(fault, law) > 0, "{fault:?} passes the law of {}", law.name());
            assert_eq!(caught(ShaperFault::None, law), 0, "{}", law.name());
        }
    }

    /// Goal: the shaper that ships is the law as it reads. Method: both take the same packets.
    #[test]
    fn the_shipped_shaper_equals_the_law_as_it_reads() {
        struct Both(SmoothShaper, FaultyShaper);
        impl Shaper for Both {
            fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
                let left = self.0.admit(now, bytes);
                assert_eq!(left, self.1.admit(now, bytes), "at {now}");
                assert_eq!(Some(self.0.position()), self.1.window(), "at {now}");
                left
            }
        }
        for seed in 0..SEEDS {
            audit_random(seed, PACKETS, |config| {
                let second = FaultyShaper::new(&config, ShaperFault::None);
                Both(shipped(config), second)
            });
        }
    }
}
