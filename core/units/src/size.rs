// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of bytes.

use core::fmt;
use core::ops::{Add, AddAssign};

/// A number of bytes (octets).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(u64);

impl ByteCount {
    /// None.
    pub const ZERO: Self = Self(0);

    /// Makes a count of `count` bytes.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// Returns the count.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Saturates at `u64::MAX` bytes.
impl Add for ByteCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The largest unit that shows the value exactly: `16KiB`, `15kB`, `1518B`.
impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0B"),
            n if n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            n if n % 1_000_000 == 0 => write!(f, "{}MB", n / 1_000_000),
            n if n % 1024 == 0 => write!(f, "{}KiB", n >> 10),
            n if n % 1_000 == 0 => write!(f, "{}kB", n / 1_000),
            n => write!(f, "{n}B"),
        }
    }
}
