// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Upper limits of the flat schedulers: a token bucket for each class, and a heap of the classes
//! that wait for theirs.

use alloc::vec::Vec;

use weir_units::Instant;

use crate::heap::MinHeap;
use crate::{ClassConfig, TokenBucket};

/// Upper limits by class. A class that its limit keeps from sending is *parked*: not active in the
/// discipline until the exact instant at which its next packet conforms.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    limits: Vec<Option<Limit>>,
    /// Classes with a limit: without any, no packet pays for this.
    limited: usize,
    /// By the instant that was known when they were parked. A charge from elsewhere makes the true
    /// one later; [`Limits::next`] corrects it at the top of the heap.
    parked: MinHeap<Instant>,
}

#[derive(Clone, Debug)]
struct Limit {
    /// In bits, so that no rate is rounded.
    bucket: TokenBucket,
    parked: bool,
}

impl Limits {
    pub(crate) const fn new() -> Self {
        Self { limits: Vec::new(), limited: 0, parked: MinHeap::new() }
    }

    /// Takes over a class's limit. Returns true if the class was parked and no longer is, since its
    /// limit has changed.
    pub(crate) fn configure(&mut self, now: Instant, class: u32, config: &ClassConfig) -> bool {
        let index = class as usize;
        if self.limits.len() <= index {
            self.limits.resize_with(index + 1, || None);
            self.parked.reserve(index + 1);
        }
        let slot = &mut self.limits[index];
        let burst = config.burst.get().saturating_mul(BITS).min(TokenBucket::BURST_MAX);
        let old = slot.as_ref().map(|limit| (limit.bucket.rate(), limit.bucket.burst()));
        if old == config.max_rate.map(|rate| (rate.as_bps(), burst)) {
            return false;
        }
        let was_parked = slot.as_mut().is_some_and(|limit| core::mem::take(&mut limit.parked));
        self.limited -= usize::from(slot.is_some());
        match (slot.as_mut(), config.max_rate) {
            (Some(limit), Some(rate)) => limit.bucket.set_rate(now, rate.as_bps(), burst),
            (None, Some(rate)) => {
                let bucket = TokenBucket::new(rate.as_bps(), burst, now);
                *slot = Some(Limit { bucket, parked: false });
            }
            (_, None) => *slot = None,
        }
        self.limited += usize::from(slot.is_some());
        if was_parked {
            self.parked.remove(class);
        }
        was_parked
    }

    /// Forgets a class. Returns whether it was parked.
    pub(crate) fn remove(&mut self, class: u32) -> bool {
        let Some(limit) = self.limits.get_mut(class as usize).and_then(Option::take) else {
            return false;
        };
        self.limited -= 1;
        if limit.parked {
            self.parked.remove(class);
        }
        limit.parked
    }

    /// Parks the class unless its next packet conforms. Returns whether it did.
    #[inline]
    pub(crate) fn hold(&mut self, now: Instant, class: u32, bytes: u32) -> bool {
        let Some(Some(limit)) = self.limits.get_mut(class as usize) else { return false };
        let Err(until) = limit.bucket.ready(now, u64::from(bytes) * BITS) else { return false };
        limit.parked = true;
        self.parked.push(until, class);
        true
    }

    /// Tells whether any class has a limit.
    #[inline]
    pub(crate) const fn any(&self) -> bool {
        self.limited > 0
    }

    /// Takes bytes from the class's bucket, below zero if need be.
    #[inline]
    pub(crate) fn charge(&mut self, now: Instant, class: u32, bytes: u64) {
        if !self.any() {
            return;
        }
        if let Some(Some(limit)) = self.limits.get_mut(class as usize) {
            limit.bucket.take(now, bytes.saturating_mul(BITS));
        }
    }

    /// Takes out the next class whose wait may be over; returns it with the instant from which it
    /// may be.
    #[inline]
    pub(crate) fn release(&mut self, now: Instant) -> Option<(Instant, u32)> {
        let (until, _) = self.parked.peek()?;
        if until > now {
            return None;
        }
        let (_, class) = self.parked.pop()?;
        if let Some(Some(limit)) = self.limits.get_mut(class as usize) {
            limit.parked = false;
        }
        Some((until, class))
    }

    /// Returns when the first parked class can send, given the length of a class's next packet.
    pub(crate) fn next(&mut self, now: Instant, bytes: impl Fn(u32) -> u32) -> Option<Instant> {
        loop {
            let (known, class) = self.parked.peek()?;
            let limit = self.limits.get(class as usize).and_then(Option::as_ref)?;
            match limit.bucket.ready(now, u64::from(bytes(class)) * BITS) {
                Err(until) if until > known => self.parked.replace_top(until),
                _ => return Some(known),
            }
        }
    }
}

/// Bits in a byte.
const BITS: u64 = 8;
