// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Service curves in exact integers: a line is the instant at which it reaches the service so far.
//!
//! The paper keeps a runtime curve as a polygon through (time, bytes) and takes the minimum of two
//! polygons when a class becomes active again (§IV-B, Fig. 7). Here every line of the curve is kept
//! by its inverse at the present service `c`: the instant `D⁻¹(c)`, with the exact fraction of a
//! nanosecond. The minimum of two parallel lines is then the later of two instants, `n` bytes of
//! service move the instant by `n / rate`, and no rounding error or overflow builds up over time.

use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate, ByteCount, Nanos, mul_add_div};

/// A rate as a fraction in lowest terms: `nanos` for `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slope {
    nanos: u64,
    bytes: u64,
}

/// A line of slope `s`: it reaches the service so far at `whole + part / s.bytes` nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    whole: u64,
    part: u64,
}

/// A real-time service curve of one or two pieces (§III-A, Fig. 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServiceCurve {
    first: Slope,
    second: Slope,
    /// Distance of the second line from the origin, in time: before it if concave, else after it.
    offset: u64,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    /// One piece.
    Linear,
    /// Steep first: the lower envelope of two lines. Low delay.
    Concave,
    /// Flat first: the upper envelope of two lines. Yields at first, so that others have a low
    /// delay.
    Convex,
}

/// Time that a packet takes on both lines of a curve.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    first: (u64, u64),
    second: (u64, u64),
}

/// The deadline curve of one class, and with it the eligible curve (§IV-B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runtime {
    pub(super) first: Line,
    /// The second line, moved to the origin: [`ServiceCurve::offset`] is applied when it is read.
    /// Meaningless where the curve has one piece.
    pub(super) second: Line,
}

impl Slope {
    /// Makes the slope of `rate`; `None` for zero.
    pub(super) fn of_rate(rate: BitRate) -> Option<Self> {
        Self::reduced(BIT_NANOS_PER_BYTE_SECOND, rate.as_bps().min(BPS_MAX))
    }

    /// Makes the slope of `bytes` in `nanos`; `None` if one of them is zero.
    pub(super) fn reduced(nanos: u64, bytes: u64) -> Option<Self> {
        if nanos == 0 || bytes == 0 {
            return None;
        }
        let divisor = greatest_common_divisor(nanos, bytes);
        Some(Self { nanos: nanos / divisor, bytes: bytes / divisor })
    }

    /// Returns the time for `count` bytes: whole nanoseconds and the rest in units of 1 /
    /// `self.bytes`.
    pub(super) fn time_for(self, count: u64) -> (u64, u64) {
        mul_add_div(count, self.nanos, 0, self.bytes)
    }

    /// Returns the bytes that pass in `nanos`, rounded up.
    fn bytes_in_ceil(self, nanos: u64) -> u64 {
        let (whole, rest) = mul_add_div(nanos, self.bytes, 0, self.nanos);
        whole.saturating_add(u64::from(rest > 0))
    }
}

impl Line {
    /// Makes a line that reaches the service so far at `nanos`.
    pub(super) const fn at(nanos: u64) -> Self {
        Self { whole: nanos, part: 0 }
    }

    /// Moves the line to `now` if it lies before: the minimum with the same line begun at `now` and
    /// the service so far.
    pub(super) fn raise(&mut self, now: u64) {
        if self.whole < now {
            *self = Self::at(now);
        }
    }

    /// Returns the line after `count` more bytes of service.
    #[must_use]
    pub(super) fn after(self, slope: Slope, count: u64) -> Self {
        self.plus(slope, slope.time_for(count))
    }

    /// Returns the line moved by `time` (of [`Slope::time_for`]).
    #[must_use]
    #[inline]
    fn plus(self, slope: Slope, time: (u64, u64)) -> Self {
        let (whole, part) = time;
        let part = part + self.part;
        let carry = part >= slope.bytes;
        Self {
            whole: self.whole.saturating_add(whole).saturating_add(u64::from(carry)),
            part: if carry { part - slope.bytes } else { part },
        }
    }

    /// Returns the instant, rounded up to whole nanoseconds.
    pub(super) const fn ceil(self) -> u64 {
        self.whole.saturating_add((self.part > 0) as u64)
    }

    /// Returns the instant less `time` (of [`Slope::time_for`]), rounded up; at least zero.
    pub(super) const fn before_ceil(self, time: (u64, u64)) -> u64 {
        let whole = self.whole.saturating_add((self.part > time.1) as u64);
        whole.saturating_sub(time.0)
    }

    /// Makes a line at the same distance from `now` in bytes, at another slope.
    #[must_use]
    pub(super) fn rescaled(self, now: u64, from: Slope, to: Slope) -> Self {
        if from == to {
            return self;
        }
        let at = self.ceil();
        let bytes = from.bytes_in_ceil(at.abs_diff(now));
        if at > now {
            Self::at(now).after(to, bytes)
        } else {
            Self::at(now.saturating_sub(to.time_for(bytes).0))
        }
    }
}

impl ServiceCurve {
    /// Makes the curve of `min_rate`; with a delay, `bytes` within `delay` come first (both above
    /// zero). `None` for a rate of zero: no guarantee.
    pub(super) fn new(min_rate: BitRate, delay: Option<(Nanos, ByteCount)>) -> Option<Self> {
        let second = Slope::of_rate(min_rate)?;
        let linear = Self { first: second, second, offset: 0, shape: Shape::Linear };
        let Some((delay, bytes)) = delay else { return Some(linear) };
        let first = Slope::reduced(delay.as_nanos(), bytes.get())?;
        let (whole, _) = second.time_for(bytes.get());
        let delay = delay.as_nanos();
        // Rounded so that the second line is up to a nanosecond late, never early: the sum of the
        // curves stays below the link.
        Some(if whole > delay {
            Self { first, second, offset: whole - delay, shape: Shape::Concave }
        } else if whole < delay {
            Self { first, second, offset: delay - whole, shape: Shape::Convex }
        } else {
            linear
        })
    }

    /// Tells whether the curve has one piece only.
    #[inline]
    pub(super) fn is_linear(&self) -> bool {
        self.shape == Shape::Linear
    }

    /// Returns the time that `count` bytes take on both lines.
    pub(super) fn steps(&self, count: u32) -> Steps {
        let [first, second] = [self.first, self.second].map(|line| line.time_for(count.into()));
        Steps { first, second }
    }
}

impl Runtime {
    /// Starts a busy period at `now`: takes the minimum with the curve begun at `now` (eq. 7).
    pub(super) fn activate(&mut self, curve: &ServiceCurve, now: u64) {
        match curve.shape {
            Shape::Linear => self.first.raise(now),
            Shape::Concave => {
                self.first.raise(now);
                self.second.raise(now);
            }
            Shape::Convex => {
                let reached = self.second.ceil().saturating_add(curve.offset);
                if reached.min(self.first.ceil()) <= now {
                    *self = Self { first: Line::at(now), second: Line::at(now) };
                }
            }
        }
    }

    /// Returns the eligible time of the packet at the head: `E⁻¹(c)`, rounded up (eqs 10 and 11).
    #[inline]
    pub(super) fn eligible(&self, curve: &ServiceCurve) -> u64 {
        match curve.shape {
            Shape::Linear => self.first.ceil(),
            Shape::Concave => {
                self.first.ceil().max(self.second.ceil().saturating_sub(curve.offset))
            }
            Shape::Convex => self.second.ceil(),
        }
    }

    /// Returns the deadline of the packet at the head, which takes `steps`: `D⁻¹(c + bytes)`,
    /// rounded up (eq. 8).
    #[inline]
    pub(super) fn deadline(&self, curve: &ServiceCurve, steps: Steps) -> u64 {
        let first = self.first.plus(curve.first, steps.first).ceil();
        match curve.shape {
            Shape::Linear => first,
            Shape::Concave => {
                let second = self.second.plus(curve.second, steps.second).ceil();
                first.max(second.saturating_sub(curve.offset))
            }
            Shape::Convex => {
                let second = self.second.plus(curve.second, steps.second).ceil();
                first.min(second.saturating_add(curve.offset))
            }
        }
    }

    /// Accounts for a packet that takes `steps` and was served by the real-time criterion.
    #[inline]
    pub(super) fn serve(&mut self, curve: &ServiceCurve, steps: Steps) {
        self.first = self.first.plus(curve.first, steps.first);
        if curve.shape != Shape::Linear {
            self.second = self.second.plus(curve.second, steps.second);
        }
    }

    /// Gives up `nanos` of the claim on the past.
    pub(super) fn forgive(&mut self, nanos: u64) {
        self.first.whole = self.first.whole.saturating_add(nanos);
        self.second.whole = self.second.whole.saturating_add(nanos);
    }

    /// Exchanges the curve: the lag, or the lead, of the class stays the same in bytes.
    pub(super) fn change(&mut self, now: u64, from: &ServiceCurve, to: &ServiceCurve) {
        // Where the second line was not kept, it lay where the first did.
        let second = if from.is_linear() { self.first } else { self.second };
        self.first = self.first.rescaled(now, from.first, to.first);
        self.second = second.rescaled(now, from.second, to.second);
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Two fractions below this add up without overflow; 2⁶² bits a second are as good as no limit.
const BPS_MAX: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a class that gets a second piece keeps its lead of 1000 bytes, and its rate. Method:
    /// by hand, 1 ns a byte; fractions of the first line, of 1999 parts, are not the second's.
    #[test]
    fn a_second_line_counts_in_its_own_fractions() {
        let curve = |delay| ServiceCurve::new(BitRate::from_mbps(8_000), delay).unwrap();
        let linear = curve(None);
        let concave = curve(Some((Nanos::new(1_000), ByteCount::new(1_999))));
        let mut runtime = Runtime { first: Line::at(1_000), second: Line::default() };
        runtime.change(0, &linear, &concave);
        assert_eq!((runtime.first.ceil(), runtime.second.ceil()), (501, 1_000));
        (0..400).for_each(|_| runtime.serve(&concave, concave.steps(1)));
        assert_eq!((runtime.first.ceil(), runtime.second.ceil()), (701, 1_400));
    }
}
