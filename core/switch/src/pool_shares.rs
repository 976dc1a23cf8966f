// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The division of the pool's frames among the queues.
//!
//! A pool that one queue may fill leaves nothing for the others, and fixed parts leave most of it
//! unused. So each queue may hold as much as is left free (dynamic thresholds: A. Choudhury and
//! E. Hahne, "Dynamic queue length thresholds for shared-memory packet switches", ToN 6(2), 1998):
//! the fuller the pool, the shorter the longest queue. Beyond that, a quarter of the frames stays
//! for the rings of devices, and an eighth is divided among the vifs with a guarantee, which may
//! hold their part however full the pool is.

/// The division of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolShares {
    /// Frames that the queues may hold together, without the reserve.
    shared: u32,
    /// Frames that the queues of vifs with a guarantee may hold beyond that, in equal parts.
    pub(crate) reserve: u32,
}

impl PoolShares {
    /// Returns the division of a pool of so many frames.
    pub(crate) const fn of(frames: u32) -> Self {
        let reserve = frames / 8;
        Self { shared: frames - frames / 4 - reserve, reserve }
    }

    /// Returns the number of frames that a queue may still take. It holds `held` of all `queued`
    /// frames, and may always hold `floor`.
    #[inline]
    pub(crate) const fn left(self, queued: u32, held: u32, floor: u32) -> u32 {
        let shared = self.shared.saturating_sub(queued).saturating_sub(held);
        let own = floor.saturating_sub(held);
        if shared > own { shared } else { own }
    }
}
