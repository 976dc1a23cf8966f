// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sampler of a loop: the difference of two readings is a sample, or has a fault.
//!
//! *Problem*: counters wrap at 32 or 64 bits, start again with the router, stand still with their
//! meter, or are read too late. A controller that took such a difference for a rate would move the
//! cap. *Idea*: a difference is a sample only if its time and its rate are plausible.

use core::fmt;

use weir_units::{Instant, Nanos, PacketRate};

use crate::Sample;
use crate::meter::Reading;

/// The configuration of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerConfig {
    /// The time from one reading to the next.
    pub period: Nanos,
    /// A rate that no router of this node reaches: a higher one is a fault.
    pub rate_most: PacketRate,
}

/// Makes samples from readings.
#[derive(Clone, Debug)]
pub struct Sampler {
    config: SamplerConfig,
    last: Option<Reading>,
}

/// Why a reading gives no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFault {
    /// It is the first reading: there is nothing to compare it with.
    First,
    /// There is no reading: the router, or its meter, is not there.
    Absent,
    /// It is the last reading again, or older than two periods: the meter stands still.
    Stale {
        /// The age of the reading.
        age: Nanos,
    },
    /// It is older than the last reading, or from the future: a clock was set.
    ClockJump,
    /// It came less than a quarter of a period after the last reading.
    TooSoon {
        /// The time between.
        span: Nanos,
    },
    /// It came more than three periods after the last reading: a mean over that is out of date.
    Gap {
        /// The time between.
        span: Nanos,
    },
    /// A counter went back, and did not wrap at 32 or 64 bits: the router started again.
    Reset,
    /// It has more packets than any router of this node forwards.
    Impossible {
        /// The implausible rate.
        rate: PacketRate,
        /// The bound.
        most: PacketRate,
    },
}

impl Sampler {
    /// Makes a sampler that has seen no reading.
    #[must_use]
    pub const fn new(config: SamplerConfig) -> Self {
        Self { config, last: None }
    }

    /// Returns the sampling period.
    #[must_use]
    pub const fn period(&self) -> Nanos {
        self.config.period
    }

    /// Forgets the last reading: the next one counts as the first.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Returns the sample between the last reading and this one.
    ///
    /// # Errors
    /// The reason why there is no sample. The next reading is compared with this one, unless it is
    /// stale or came too soon.
    pub fn sample(&mut self, now: Instant, reading: Reading) -> Result<Sample, SampleFault> {
        let period = self.config.period;
        if reading.at > now {
            self.last = Some(reading);
            return Err(SampleFault::ClockJump);
        }
        let age = now - reading.at;
        if age > times(period, STALE_PERIODS) || self.last.is_some_and(|last| last.at == reading.at)
        {
            return Err(SampleFault::Stale { age });
        }
        let Some(last) = self.last else {
            self.last = Some(reading);
            return Err(SampleFault::First);
        };
        let span = reading.at - last.at;
        if reading.at > last.at && times(span, SOON_PARTS) < period {
            return Err(SampleFault::TooSoon { span });
        }
        self.last = Some(reading);
        if reading.at < last.at {
            return Err(SampleFault::ClockJump);
        }
        if span > times(period, GAP_PERIODS) {
            return Err(SampleFault::Gap { span });
        }
        self.difference(last, reading, span)
    }

    fn difference(
        &self,
        last: Reading,
        reading: Reading,
        span: Nanos,
    ) -> Result<Sample, SampleFault> {
        let packets = match self.growth(last.packets, reading.packets, span) {
            Growth::By(packets) => packets,
            Growth::Reset => return Err(SampleFault::Reset),
            Growth::Impossible(packets) => {
                let rate = Sample { span, packets, ..Sample::default() }.rate();
                return Err(SampleFault::Impossible { rate, most: self.config.rate_most });
            }
        };
        // For these two, an unknown value is better than a wrong one.
        let offered = last.offered.zip(reading.offered).and_then(|(old, new)| {
            let Growth::By(offered) = self.growth(old, new, span) else { return None };
            Some(offered)
        });
        let cpu = last.cpu.zip(reading.cpu).and_then(|(old, new)| {
            let cpu = Nanos::new(new.as_nanos().checked_sub(old.as_nanos())?);
            (cpu <= times(span, PROCESSORS_MOST)).then_some(cpu)
        });
        Ok(Sample { span, packets, offered, cpu })
    }

    /// Returns by how much a counter grew in `span`.
    fn growth(&self, old: u64, new: u64, span: Nanos) -> Growth {
        let possible = |packets: &u64| {
            Sample { span, packets: *packets, ..Sample::default() }.rate() <= self.config.rate_most
        };
        if let Some(packets) = new.checked_sub(old) {
            return if possible(&packets) {
                Growth::By(packets)
            } else {
                Growth::Impossible(packets)
            };
        }
        // The counter went back: take the first wrap that gives a plausible rate, or else a reset.
        // Some kernels and tools count in 32 bits.
        let narrow = (old <= WIDTH_32 && new <= WIDTH_32).then(|| new + (WIDTH_32 + 1) - old);
        let wide = new.wrapping_sub(old);
        [narrow, Some(wide)].into_iter().flatten().find(possible).map_or(Growth::Reset, Growth::By)
    }
}

/// The growth of a counter.
enum Growth {
    By(u64),
    Reset,
    Impossible(u64),
}

impl fmt::Display for SampleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => write!(f, "first reading"),
            Self::Absent => write!(f, "no reading: the router or its meter is not there"),
            Self::Stale { age } => write!(f, "stale reading, {age} old"),
            Self::ClockJump => write!(f, "a clock was set: reading out of order"),
            Self::TooSoon { span } => write!(f, "reading only {span} after the one before"),
            Self::Gap { span } => write!(f, "reading {span} after the one before"),
            Self::Reset => write!(f, "counters went back: the router began anew"),
            Self::Impossible { rate, most } => {
                write!(f, "impossible reading: {rate}, must be at most {most}")
            }
        }
    }
}

impl core::error::Error for SampleFault {}

const fn times(time: Nanos, count: u64) -> Nanos {
    Nanos::new(time.as_nanos().saturating_mul(count))
}

const WIDTH_32: u64 = u32::MAX as u64;
const STALE_PERIODS: u64 = 2;
const GAP_PERIODS: u64 = 3;
/// Parts of a period: in less than one of them, a count of packets is mostly chance.
const SOON_PARTS: u64 = 4;
/// CPU time of more processors than this is a fault of the meter.
const PROCESSORS_MOST: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn meter() -> Sampler {
        let period = Nanos::from_millis(100);
        Sampler::new(SamplerConfig { period, rate_most: PacketRate::from_pps(10_000_000) })
    }

    fn reading(at_ms: u64, packets: u64) -> Reading {
        Reading { at: Instant::from_nanos(at_ms * MS), packets, ..Reading::default() }
    }

    fn read(meter: &mut Sampler, at_ms: u64, packets: u64) -> Result<u64, SampleFault> {
        let now = Instant::from_nanos(at_ms * MS);
        meter.sample(now, reading(at_ms, packets)).map(|sample| sample.packets)
    }

    #[test]
    fn samples_are_differences() {
        let mut meter = meter();
        assert_eq!(read(&mut meter, 0, 500), Err(SampleFault::First));
        assert_eq!(read(&mut meter, 100, 1500), Ok(1000));
        assert_eq!(read(&mut meter, 210, 1500), Ok(0));
    }

    #[test]
    fn a_wrap_is_none_and_a_reset_is_one() {
        let mut meter = meter();
        let edge = u64::from(u32::MAX);
        assert_eq!(read(&mut meter, 0, edge - 99), Err(SampleFault::First));
        assert_eq!(read(&mut meter, 100, 900), Ok(1000), "32 bits");
        assert_eq!(read(&mut meter, 200, u64::MAX - 99), Err(impossible(u64::MAX)));
        assert_eq!(read(&mut meter, 300, 900), Ok(1000), "64 bits");
        assert_eq!(read(&mut meter, 400, 100), Err(SampleFault::Reset));
        assert_eq!(read(&mut meter, 500, 200), Ok(100), "and goes on");
    }

    fn impossible(rate: u64) -> SampleFault {
        let rate = PacketRate::from_pps(rate);
        SampleFault::Impossible { rate, most: PacketRate::from_pps(10_000_000) }
    }

    #[test]
    fn times_that_cannot_be_are_named() {
        let mut meter = meter();
        read(&mut meter, 1000, 0).unwrap_err();
        let now = |ms: u64| Instant::from_nanos(ms * MS);
        let stale = meter.sample(now(1100), reading(1000, 10));
        assert_eq!(stale, Err(SampleFault::Stale { age: Nanos::from_millis(100) }));
        let old = meter.sample(now(1500), reading(1200, 10));
        assert_eq!(old, Err(SampleFault::Stale { age: Nanos::from_millis(300) }));
        let future = meter.sample(now(1100), reading(2000, 10));
        assert_eq!(future, Err(SampleFault::ClockJump));
        assert_eq!(
            read(&mut meter, 1200, 20),
            Err(SampleFault::ClockJump),
            "before the future one"
        );
        let soon = Nanos::from_millis(10);
        assert_eq!(read(&mut meter, 1210, 30), Err(SampleFault::TooSoon { span: soon }));
        assert_eq!(read(&mut meter, 1300, 120), Ok(100), "since the last one that counted");
        let gap = Nanos::from_millis(700);
        assert_eq!(read(&mut meter, 2000, 130), Err(SampleFault::Gap { span: gap }));
    }

    #[test]
    fn what_is_wrong_beside_the_packets_is_left_out() {
        let mut meter = meter();
        let with = |at, offered, cpu| Reading {
            offered: Some(offered),
            cpu: Some(Nanos::from_millis(cpu)),
            ..reading(at, 0)
        };
        let now = |ms: u64| Instant::from_nanos(ms * MS);
        meter.sample(now(0), with(0, 100, 500)).unwrap_err();
        let sample = meter.sample(now(100), with(100, 300, 520)).unwrap();
        assert_eq!((sample.offered, sample.cpu), (Some(200), Some(Nanos::from_millis(20))));
        let sample = meter.sample(now(200), with(200, 5, 10)).unwrap();
        assert_eq!((sample.offered, sample.cpu), (None, None));
    }
}
