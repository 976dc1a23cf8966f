// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The factor by which guarantees may exceed what there is.

use core::fmt;

/// The factor by which guarantees may exceed the capacity, in thousandths: 1000 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Overbooking(u32);

impl Overbooking {
    /// No overbooking: guarantees fit in the capacity.
    pub const NONE: Self = Self(1000);
    /// The largest factor: 100.
    pub const MAX: Self = Self(100_000);

    /// Makes a factor of `thousandths`, clipped to 1000 ..= 100 000.
    #[must_use]
    pub fn from_thousandths(thousandths: u32) -> Self {
        Self(thousandths.clamp(Self::NONE.0, Self::MAX.0))
    }

    /// Thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// Returns the largest sum of guarantees that a capacity of `amount` allows, rounded down.
    #[must_use]
    pub fn of_floor(self, amount: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.0) / 1000;
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Overbooking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
