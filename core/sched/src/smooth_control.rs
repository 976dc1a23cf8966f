// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control of the smooth window: its parameters, the measures of an interval, and the laws that
//! move it.

use core::fmt;

use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// Parameters of a [`SmoothShaper`](crate::SmoothShaper).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmoothConfig {
    /// The rate that is held.
    pub rate: BitRate,
    /// Time by which packets may leave ahead of the rate.
    pub credit: Nanos,
    /// Width of the window: the variation of the delay that is allowed within an interval.
    pub width: Nanos,
    /// Time after which the window may move.
    pub interval: Nanos,
    /// Largest position of the window.
    pub delay_max: Nanos,
}

impl SmoothConfig {
    /// Returns the defaults at a rate: 100 ms of credit, a window of 3 ms that moves each second,
    /// up to 200 ms.
    #[must_use]
    pub const fn new(rate: BitRate) -> Self {
        Self {
            rate,
            credit: Nanos::from_millis(100),
            width: Nanos::from_millis(3),
            interval: Nanos::from_secs(1),
            delay_max: Nanos::from_millis(200),
        }
    }

    /// Returns the longest delay of a packet that is not refused.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        self.delay_max.saturating_add(self.width)
    }

    /// Returns the most bytes that wait at once, but for one packet.
    #[must_use]
    pub fn backlog_max(&self) -> ByteCount {
        self.rate.bytes_in_floor(self.longest().saturating_add(self.credit))
    }
}

/// Moves the window of a [`SmoothShaper`](crate::SmoothShaper) at the end of an interval.
pub trait WindowControl: Clone + fmt::Debug {
    /// Returns the next position, from the last one and an interval that lasted for `lasted` and
    /// released at least a packet. A position above `delay_max` is clipped to it.
    fn next(
        &mut self,
        position: Nanos,
        lasted: Nanos,
        measured: &IntervalMeasures,
        config: &SmoothConfig,
    ) -> Nanos;
}

/// The sums of one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalMeasures {
    /// When it began.
    pub start: Instant,
    /// Bytes released.
    pub bytes: ByteCount,
    /// Packets released.
    pub packets: u64,
    /// Bytes refused.
    pub refused: ByteCount,
    /// Sum of the delays of all packets.
    pub delays: Nanos,
    /// The least time by which a packet left ahead of the rate.
    pub lead: Nanos,
    /// `lead` of the interval before.
    pub lead_before: Nanos,
    /// Time at the rate that was lost, since no packet was there to use it.
    pub idle: Nanos,
}

impl IntervalMeasures {
    /// Makes an interval that begins now.
    #[must_use]
    pub const fn begin(start: Instant, lead_before: Nanos) -> Self {
        let (bytes, refused, none) = (ByteCount::ZERO, ByteCount::ZERO, Nanos::ZERO);
        let (delays, lead, idle) = (none, Nanos::MAX, none);
        Self { start, bytes, packets: 0, refused, delays, lead, lead_before, idle }
    }

    /// Counts a packet that leaves after `delay`, where its turn at the rate is at `turn`.
    pub(crate) fn release(
        &mut self,
        bytes: ByteCount,
        delay: Nanos,
        (leaves, turn): (Instant, Instant),
    ) {
        self.bytes += bytes;
        self.packets += 1;
        self.delays = self.delays.saturating_add(delay);
        self.lead = self.lead.min(turn.saturating_since(leaves));
        self.lose(turn, leaves);
    }

    /// Counts the time at the rate that was lost between `turn` and `until`. Time before the
    /// interval does not count.
    pub(crate) fn lose(&mut self, turn: Instant, until: Instant) {
        let lost = until.saturating_since(turn.max(self.start));
        self.idle = self.idle.saturating_add(lost);
    }

    /// Returns the lead that an interval after this one begins with: none if this one sent nothing.
    pub(crate) const fn standing_lead(&self) -> Nanos {
        if self.packets > 0 { self.lead } else { Nanos::ZERO }
    }

    /// Counts a packet that was refused.
    pub(crate) fn refuse(&mut self, bytes: ByteCount) {
        self.refused += bytes;
    }

    /// Returns the time that the released bytes take at a rate.
    #[must_use]
    pub fn served(&self, rate: BitRate) -> Nanos {
        rate.time_for_ceil(self.bytes)
    }

    /// Returns the mean delay.
    #[must_use]
    pub fn mean_delay(&self) -> Nanos {
        Nanos::new(self.delays.as_nanos().checked_div(self.packets).unwrap_or(0))
    }

    /// Returns by how much the sender exceeded its rate in `lasted`, as time at the rate; negative
    /// if it used less.
    ///
    /// The debt alone tells: the least that was borrowed, its growth since the interval before, and
    /// what was refused. Where time of the rate was lost, that time is what was used less. Bytes
    /// counted between two instants would be off by a burst of all clients at either end.
    fn over_use(&self, lasted: Nanos, rate: BitRate) -> i128 {
        let refused = i128::from(rate.time_for_ceil(self.refused).min(lasted).as_nanos());
        if self.idle > Nanos::ZERO {
            return refused - i128::from(self.idle.min(lasted).as_nanos());
        }
        let grown = self.lead.saturating_sub(self.lead_before);
        i128::from(self.lead.saturating_add(grown).as_nanos()) + refused
    }

    /// Returns the text's credit error: by how much time of the rate the bytes released, borrowed
    /// and refused exceed an interval.
    fn credit_error(&self, lasted: Nanos, rate: BitRate) -> i128 {
        let refused = rate.time_for_ceil(self.refused).min(lasted);
        let used = [self.served(rate), self.lead, refused];
        let used: i128 = used.iter().map(|time| i128::from(time.as_nanos())).sum();
        used - i128::from(lasted.as_nanos())
    }
}

/// Moves the window in proportion to the delay and to the over-use: a controller of the logarithm
/// of the delay.
///
/// The throughput of a closed loop is inverse to its delay, so a fixed ratio of the one answers to
/// a fixed ratio of the other, whatever the rate, the size and the number of clients. One gain
/// serves all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogarithmicControl;

impl WindowControl for LogarithmicControl {
    fn next(
        &mut self,
        position: Nanos,
        lasted: Nanos,
        measured: &IntervalMeasures,
        config: &SmoothConfig,
    ) -> Nanos {
        let whole = i128::from(lasted.as_nanos()).max(1);
        let over = measured.over_use(lasted, config.rate);
        if over.abs() * DEAD_BAND <= whole {
            return position;
        }
        // A window that packets do not keep to is where their mean delay is.
        let mean = measured.mean_delay().saturating_sub(config.width);
        let end = i128::from(position.max(mean).saturating_add(config.width).as_nanos());
        let step = end.saturating_mul(over) / whole;
        let from = if over > 0 { position.max(mean) } else { position };
        nanos(i128::from(from.as_nanos()) + step).min(config.delay_max)
    }
}

/// The text's controller: PID on the credit error of each interval, in time at the rate.
///
/// Its gains are in seconds of delay for a second of error, in thousandths. The sum of errors is
/// kept within what moves the window from one end to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearPid {
    /// Proportional gain.
    pub proportional: i64,
    /// Integral gain.
    pub integral: i64,
    /// Derivative gain.
    pub derivative: i64,
    sum: i128,
    last: i128,
}

impl LinearPid {
    /// Makes a controller of these gains, in thousandths.
    #[must_use]
    pub const fn new(proportional: i64, integral: i64, derivative: i64) -> Self {
        Self { proportional, integral, derivative, sum: 0, last: 0 }
    }
}

impl Default for LinearPid {
    /// Gains that settle one client of 8 KB at 2 Mb/s without overshoot: the slope of its
    /// throughput there is a credit error of 1 s in 32 ms of delay.
    fn default() -> Self {
        Self::new(8, 16, 2)
    }
}

impl WindowControl for LinearPid {
    fn next(
        &mut self,
        _: Nanos,
        lasted: Nanos,
        measured: &IntervalMeasures,
        config: &SmoothConfig,
    ) -> Nanos {
        let error = measured.credit_error(lasted, config.rate);
        let (integral, most) = (i128::from(self.integral), i128::from(config.delay_max.as_nanos()));
        let bound = (most * THOUSAND).checked_div(integral).unwrap_or(0);
        self.sum = (self.sum + error).clamp(0, bound.max(0));
        let change = error - core::mem::replace(&mut self.last, error);
        let part = |of: i128, gain: i64| of.saturating_mul(gain.into()) / THOUSAND;
        let moved = part(error, self.proportional)
            + part(self.sum, self.integral)
            + part(change, self.derivative);
        nanos(moved).min(config.delay_max)
    }
}

fn nanos(count: i128) -> Nanos {
    Nanos::new(u64::try_from(count.max(0)).unwrap_or(u64::MAX))
}

/// An over-use or under-use of 1/200 moves nothing.
const DEAD_BAND: i128 = 200;
const THOUSAND: i128 = 1000;
