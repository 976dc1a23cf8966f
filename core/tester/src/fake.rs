// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device under test whose capacity is known: what searches are judged by.
//!
//! A fluid model. The DUT forwards up to its capacity and keeps a queue in front of it; what finds
//! the queue full is lost. Its noises are those of a real machine: each trial has a capacity of its
//! own, the DUT stands still now and then (exponentially distributed gaps), and single packets are
//! lost at random. All draws come from a seed, so that every run is the same.

use weir_units::Nanos;

use crate::measurer::{LatencySummary, Measurer, RecoveryRequest, TrialRequest, TrialResult};
use crate::outcome::{Outcome, OutcomeError};

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
    random: u64,
    trials: u32,
}

impl FakeDut {
    /// A DUT of `capacity_pps` packets a second with a queue of `queue` packets. Equal seeds give
    /// equal trials.
    pub fn new(capacity_pps: u32, queue: u32, noise: DutNoise, seed: u64) -> Self {
        let (capacity_pps, queue) = (f64::from(capacity_pps), f64::from(queue));
        // Neighbouring seeds must not give neighbouring draws; zero is the one state that stays.
        let random = mixed(seed).max(1);
        Self { capacity_pps, queue, noise, random, trials: 0 }
    }

    /// Number of trials so far.
    pub const fn trials(&self) -> u32 {
        self.trials
    }

    /// The outcome of a load of `pps` packets a second for `duration`.
    pub fn measure(&mut self, pps: u64, duration: Nanos) -> Result<Outcome, OutcomeError> {
        let seconds = seconds(duration);
        let intended = packets(float(pps) * seconds);
        self.trials = self.trials.saturating_add(1);
        let (lost, _backlog) = self.run(float(pps), seconds);
        let forwarded = intended.saturating_sub(packets(lost).min(intended));
        let stray = self.poisson(float(forwarded) * self.noise.stray).min(forwarded);
        Outcome::new(intended, intended, forwarded - stray)
    }

    /// Packets lost during `seconds`, and the largest backlog.
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

    /// Seconds until the next event of a rate; infinite of none.
    fn exponential(&mut self, per_s: f64) -> f64 {
        if per_s <= 0.0 { f64::INFINITY } else { -(1.0 - self.uniform()).ln() / per_s }
    }

    /// A count of events with this mean, at most [`EVENTS_MAX`].
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
            None => self.measure(request.pps, request.duration)?,
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
        Ok(TrialResult { outcome, latency, ..TrialResult::default() })
    }

    /// A queue that the overload filled never overflows once less comes than leaves.
    fn recovery(&mut self, _request: &RecoveryRequest) -> Result<Nanos, OutcomeError> {
        Ok(Nanos::default())
    }

    fn reset(&mut self, _request: &TrialRequest) -> Result<Option<Nanos>, OutcomeError> {
        Ok(None)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
const fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn seconds(duration: Nanos) -> f64 {
    float(duration.as_nanos()) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "counts of a trial stay below 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

/// The whole packets of an amount that is not negative; what is beyond saturates.
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
