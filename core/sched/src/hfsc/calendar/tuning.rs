// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The width of a calendar's buckets, chosen by how the last width has fitted.

/// Records how the width has fitted since it was last changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tuning {
    pub(super) pushes: u32,
    /// Keys beyond the window: the buckets are too narrow.
    pub(super) beyond: u32,
    /// Entries for which the list was full: the buckets are too wide.
    pub(super) crowded: u32,
    /// The greatest distance of a key from the start of the window.
    pub(super) farthest: u64,
}

impl Tuning {
    /// Tells whether enough was recorded to judge the width of `buckets` buckets; `shift` is 0
    /// while the width is unknown.
    #[inline]
    pub(super) const fn is_ripe(&self, shift: u32, buckets: usize) -> bool {
        let period = if shift == 0 { FIRST_TUNING } else { 2 * buckets };
        self.pushes as usize > period
    }

    /// Returns the width, as a power of 2, that `buckets` buckets should have; they have `shift`
    /// now.
    pub(super) fn width(&self, shift: u32, buckets: usize) -> u32 {
        let Self { pushes, beyond, crowded, farthest } = *self;
        let turn = u64::BITS - (buckets as u64).leading_zeros() - 1;
        let fitting = (u64::BITS - farthest.leading_zeros()).saturating_sub(turn);
        let wanted = if shift == 0 || beyond > pushes / 8 {
            fitting
        } else {
            shift - u32::from(crowded > pushes / 8)
        };
        wanted.clamp(1, SHIFT_MAX)
    }
}

/// The width is unknown until this many entries were seen.
const FIRST_TUNING: usize = 256;

/// Buckets of 2⁴⁰ ns are 18 minutes wide.
const SHIFT_MAX: u32 = 40;
