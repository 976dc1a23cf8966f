// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The upper-limit curve of a class: a line with a burst, and the exact instant at which it fits.
//!
//! Over every window of length `T` the class is served at most `rate · T + burst` bytes. Where
//! `burst` is less than one packet, a packet passes when the bucket is full.

use weir_units::{BitRate, ByteCount};

use super::curve::{Line, Slope};

/// An upper limit in force.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    slope: Slope,
    burst: u64,
    /// When the bucket is full again.
    full: Line,
    /// The packet length that `head_start` was computed for.
    bytes: u32,
    /// Time before the bucket is full at which a packet of `bytes` may leave.
    head_start: (u64, u64),
}

impl Limit {
    /// Makes a full bucket; `None` for a rate of zero, which the configuration's check refuses.
    pub(super) fn new(rate: BitRate, burst: ByteCount) -> Option<Self> {
        let slope = Slope::of_rate(rate)?;
        let burst = burst.get();
        let head_start = slope.time_for(burst);
        Some(Self { slope, burst, full: Line::default(), bytes: 0, head_start })
    }

    /// Tells whether rate and burst are equal.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.slope == other.slope && self.burst == other.burst
    }

    /// Returns the first instant at which `bytes` may leave.
    pub(super) fn fits_at(&mut self, bytes: u32) -> u64 {
        if bytes != self.bytes {
            self.bytes = bytes;
            self.head_start = self.slope.time_for(self.burst.saturating_sub(u64::from(bytes)));
        }
        self.full.before_ceil(self.head_start)
    }

    /// Charges `bytes` that left at `now`.
    pub(super) fn charge(&mut self, now: u64, bytes: u64) {
        self.full.raise(now);
        self.full = self.full.after(self.slope, bytes);
    }

    /// Takes over the charge of an earlier limit, in bytes.
    pub(super) fn inherit(&mut self, now: u64, earlier: &Self) {
        self.full = earlier.full.rescaled(now, earlier.slope, self.slope);
    }
}
