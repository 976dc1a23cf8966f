// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A limit of flooded frames: broadcast, multicast and unknown destinations.
//!
//! Frames from a vif are counted, by its `storm` key. For a frame from a port, its copies are
//! counted, since the work and the chunks of a broadcast grow with the vifs that it reaches.

use weir_policy::Vif;
use weir_sched::TokenBucket;
use weir_units::Instant;

/// The limit of one interface; by default there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Storm(Option<TokenBucket>);

impl Storm {
    /// Returns the limit of a vif; none if its policy names none.
    #[must_use]
    pub(crate) fn of_vif(now: Instant, vif: &Vif) -> Self {
        Self(vif.storm.map(|limit| {
            let burst = (limit.as_pps() / 10).max(BURST_LEAST);
            TokenBucket::new(limit.as_pps(), burst, now)
        }))
    }

    /// Returns the limit of a port whose broadcasts reach up to `vifs` vifs.
    #[must_use]
    pub(crate) fn of_port(now: Instant, vifs: u64) -> Self {
        let burst = (PORT_COPIES / 100).max(vifs.saturating_mul(2));
        Self(Some(TokenBucket::new(PORT_COPIES, burst, now)))
    }

    /// Changes the limit. Tokens that are spent stay spent.
    pub(crate) fn set(&mut self, now: Instant, mut limit: Self) {
        if let (Some(fresh), Some(before)) = (&mut limit.0, &self.0) {
            let left = before.available(now);
            fresh.take(now, fresh.available(now).saturating_sub(left));
        }
        *self = limit;
    }

    /// Takes `count` tokens if there are as many. Returns whether there were.
    pub(crate) fn admit(&mut self, now: Instant, count: u64) -> bool {
        self.0.as_mut().is_none_or(|bucket| bucket.try_take(now, count).is_ok())
    }
}

/// Least burst: a guest that starts announces each of its addresses at once.
const BURST_LEAST: u64 = 16;
/// Copies a second that a port's broadcasts may make: an eighth of what one core switches. A port
/// with 100 vifs still takes 2000 broadcasts a second.
const PORT_COPIES: u64 = 200_000;
