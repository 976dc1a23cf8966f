// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device under test whose capacity is known: what searches are judged by.
//!
//! A fluid model. The DUT forwards up to its capacity and keeps a queue in front of it; what finds
//! the queue full is lost. Its noises are those of a real machine: each trial has a capacity of its
//! own, the DUT stands still now and then (exponentially distributed gaps), and single packets are
//! lost at random. All draws come from a seed, so that every run is the same.

use weir_units::Nanos;

use crate::gaps::{RecoveryTime, ResetTime, reset_time};
use crate::measurer::{
    LatencySummary, Measurer, RecoveryRequest, ResetRequest, TrialRequest, TrialResult,
};
use crate::outcome::{Outcome, OutcomeError};
use crate::scale::{duration_of, float, packets_in, scaled, seconds};

/// The noises of a fake DUT. The default is none at all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DutNoise {
    /// The capacity of a trial is drawn evenly from so much around the mean: 0.005 is ± 0.5 %.
    pub jitter: f64,
    /// Standstills a second, on average.
    pub stalls_per_s: f64,
    /// Length of a standstill, s.
    pub stall_s: f64,
    /// The part of the packets that is lost at random.
    pub stray: f64,
}

/// A fake DUT.
#[derive(Clone, Debug)]
pub struct FakeDut {
    capacity_pps: f64,
    queue: f64,
    noise: DutNoise,
    outages: DutOutages,
    /// Packets a second that the tester in front of it sends at most.
    tester_pps: u64,
    random: u64,
    trials: u32,
}

/// For how long a fake DUT forwards nothing after an overload and a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DutOutages {
    /// After an overload.
    pub recovery: Nanos,
    /// After a reset; `None`: it cannot be reset.
    pub reset: Option<Nanos>,
}

impl FakeDut {
    /// Returns a DUT of `capacity_pps` packets a second with a queue of `queue` packets. Equal
    /// seeds give equal trials.
    pub fn new(capacity_pps: u32, queue: u32, noise: DutNoise, seed: u64) -> Self {
        let (capacity_pps, queue) = (f64::from(capacity_pps), f64::from(queue));
        // Neighbouring seeds must not give neighbouring draws; zero is the one state that stays.
        let random = mixed(seed).max(1);
        let outages = DutOutages::default();
        Self { capacity_pps, queue, noise, outages, tester_pps: u64::MAX, random, trials: 0 }
    }

    /// Has it forward nothing for a time after an overload and a reset.
    #[must_use]
    pub const fn with_outages(self, outages: DutOutages) -> Self {
        Self { outages, ..self }
    }

    /// Has a tester in front of it that sends so many packets a second at most.
    #[must_use]
    pub const fn with_tester_limit(self, tester_pps: u64) -> Self {
        Self { tester_pps, ..self }
    }

    /// Returns the number of trials so far.
    pub const fn trials(&self) -> u32 {
        self.trials
    }

    /// Returns the outcome of a load of `pps` packets a second for `duration`.
    pub fn measure(&mut self, pps: u64, duration: Nanos) -> Result<Outcome, OutcomeError> {
        let seconds = seconds(duration);
        let intended = packets(float(pps) * seconds);
        self.trials = self.trials.saturating_add(1);
        let (lost, _backlog) = self.run(float(pps), seconds);
        let forwarded = intended.saturating_sub(packets(lost).min(intended));
        let stray = self.poisson(float(forwarded) * self.noise.stray).min(forwarded);
        Outcome::new(intended, intended, forwarded - stray)
    }

    /// Returns the packets lost during `seconds`, and the largest backlog.
    fn run(&mut self, pps: f64, seconds: f64) -> (f64, f64) {
        let spread = self.noise.jitter * (2.0 * self.uniform() - 1.0);
        let capacity = self.capacity_pps * (1.0 + spread);
        let (mut lost, mut backlog, mut most) = (0.0, 0.0, 0.0_f64);
        let mut flow = |queue: f64, rate: f64, time: f64| {
            let grown = backlog + rate * time;
            lost += (grown - queue).max(0.0);
            backlog = grown.clamp(0.0, queue);
            most = most.max(backlog);
        };
        let mut left = seconds;
        while left > 0.0 {
            let gap = self.exponential(self.noise.stalls_per_s).min(left);
            flow(self.queue, pps - capacity, gap);
            left -= gap;
            let stall = self.noise.stall_s.min(left);
            if stall <= 0.0 {
                break;
            }
            flow(self.queue, pps, stall);
            left -= stall;
        }
        // Rounding must not turn a rate equal to the capacity into a loss.
        (if lost < 0.5 { 0.0 } else { lost }, most)
    }

    fn uniform(&mut self) -> f64 {
        // xorshift64 (Marsaglia 2003); the upper 32 bits are the good ones.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let upper = u32::try_from(self.random >> 32).unwrap_or(0);
        f64::from(upper) / 4_294_967_296.0
    }

    /// Draws the seconds until the next event of a rate; infinite if the rate is zero.
    fn exponential(&mut self, per_s: f64) -> f64 {
        if per_s <= 0.0 { f64::INFINITY } else { -(1.0 - self.uniform()).ln() / per_s }
    }

    /// Draws a count of events with this mean, at most [`EVENTS_MAX`].
    fn poisson(&mut self, mean: f64) -> u64 {
        let mut at = 0.0;
        for count in 0..EVENTS_MAX {
            at += self.exponential(mean);
            if at > 1.0 {
                return count;
            }
        }
        EVENTS_MAX
    }

    fn latency(&self, backlog: f64) -> LatencySummary {
        let service_ns = 1e9 / self.capacity_pps;
        let ns = |packets_ahead: f64| packets((packets_ahead + 1.0) * service_ns);
        let (least, most) = (ns(0.0), ns(backlog));
        LatencySummary {
            packets: 1,
            min_ns: least,
            mean_ns: u64::midpoint(least, most),
            median_ns: u64::midpoint(least, most),
            p99_ns: most,
            max_ns: most,
        }
    }
}

impl Measurer for FakeDut {
    type Error = OutcomeError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, OutcomeError> {
        let noise = self.random;
        let outcome = match request.burst {
            None => {
                let sent = self.measure(request.pps.min(self.tester_pps), request.duration)?;
                let asked = packets_in(request.pps, request.duration).max(sent.intended);
                Outcome::new(asked, sent.offered, sent.forwarded)?
            }
            Some(burst) => {
                let seconds = float(burst) / float(request.pps.max(1));
                let (lost, _backlog) = self.run(float(request.pps), seconds);
                Outcome::new(burst, burst, burst.saturating_sub(packets(lost)))?
            }
        };
        // The backlog of the same draws.
        let mut again = Self { random: noise, ..self.clone() };
        let (_lost, backlog) = again.run(float(request.pps), seconds(request.duration));
        let latency = Some(self.latency(backlog));
        let tester_missing = outcome.unsent;
        Ok(TrialResult { outcome, latency, tester_missing, ..TrialResult::default() })
    }

    /// Loses packets until the DUT has recovered, and then none: a queue that the overload filled
    /// never overflows once less comes than leaves.
    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, OutcomeError> {
        let (over, pps) = (request.over, request.pps);
        let sent = packets_in(pps, over.saturating_add(request.duration)).min(PACKETS_KEPT);
        let overloads = float(request.over_pps) > self.capacity_pps;
        let end = over.saturating_add(self.outages.recovery).as_nanos();
        let arrives = |at: u64| !overloads || duration_of(at, pps).as_nanos() >= end;
        let arrived: Vec<bool> = (0..sent).map(arrives).collect();
        Ok(RecoveryTime::of(&arrived, (sent, pps, over), (0, 0)))
    }

    fn reset(&mut self, request: &ResetRequest) -> Result<Option<ResetTime>, OutcomeError> {
        let Some(away) = self.outages.reset else { return Ok(None) };
        let whole = request.duration.saturating_add(request.patience);
        let from = request.duration.as_nanos() / 2;
        let silent = from..from.saturating_add(away.as_nanos());
        // A lower rate sees the gap, too, to the distance of two packets.
        let most = scaled(PACKETS_KEPT, 1_000_000_000, whole.as_nanos());
        let pps = request.pps.min(most);
        let times = (0..packets_in(pps, whole)).map(|at| duration_of(at, pps).as_nanos());
        let arrivals: Vec<u64> = times.filter(|time| !silent.contains(time)).collect();
        Ok(Some(reset_time(&arrivals, (0, from, whole.as_nanos()), pps)))
    }
}

/// Applies the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
const fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the whole packets of an amount that is not negative; what is beyond saturates.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates"
)]
fn packets(amount: f64) -> u64 {
    (amount + 1e-6).floor() as u64
}

/// Random events of one trial at most: more cost time and change nothing.
const EVENTS_MAX: u64 = 100_000;
/// Packets of recovery and reset at most, as many as a measurer on the wire keeps.
const PACKETS_KEPT: u64 = 2_000_000;
