// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One of Weir's schedulers as a bottleneck.

use weir_sched::{AnyScheduler, ClassId, Dequeue, LinkConfig, Paced, Packet, Scheduler};
use weir_units::{BitRate, ByteCount, Instant};

use super::bottleneck::{Bottleneck, Crossing};

/// A scheduler that sends as fast as a link does, and a map from flows to its classes.
pub struct ScheduledLink<S = Paced<AnyScheduler>> {
    scheduler: S,
    rate: BitRate,
    class_of: Box<dyn Fn(usize) -> ClassId>,
    /// The packets inside, by id: ids are dense.
    inside: Vec<Option<Crossing>>,
    next: Option<Instant>,
}

impl ScheduledLink {
    /// Puts a scheduler that has its classes before a link of that rate.
    #[must_use]
    pub fn new(
        scheduler: AnyScheduler,
        (link, rate): (&LinkConfig, BitRate),
        class_of: Box<dyn Fn(usize) -> ClassId>,
    ) -> Self {
        let scheduler = Paced::new(scheduler, &LinkConfig { rate: Some(rate), ..link.clone() });
        Self::of(scheduler, rate, class_of)
    }

    /// Returns the scheduler.
    #[must_use]
    pub const fn scheduler(&self) -> &AnyScheduler {
        self.scheduler.inner()
    }
}

impl<S: Scheduler> ScheduledLink<S> {
    /// Makes a link of a scheduler that has its classes, and knows the link's rate itself.
    #[must_use]
    pub fn of(scheduler: S, rate: BitRate, class_of: Box<dyn Fn(usize) -> ClassId>) -> Self {
        Self { scheduler, rate, class_of, inside: Vec::new(), next: None }
    }

    fn forget(&mut self, packet: Packet) -> Option<Crossing> {
        self.inside.get_mut(packet.id as usize)?.take()
    }
}

impl<S: Scheduler> Bottleneck for ScheduledLink<S> {
    fn offer(&mut self, now: Instant, packet: Crossing, lost: &mut Vec<Crossing>) {
        let number = u32::try_from(packet.flow).unwrap_or(0);
        // Like a hash of addresses, this puts neighbouring flows far apart.
        let hash = number.wrapping_mul(0x9e37_79b9) >> 16;
        let queued = Packet::new(packet.id, packet.bytes, now).of_flow(hash);
        match self.scheduler.enqueue(now, (self.class_of)(packet.flow), queued) {
            Ok(()) => {
                let id = packet.id as usize;
                if self.inside.len() <= id {
                    self.inside.resize(id + 1, None);
                }
                self.inside[id] = Some(packet);
                self.next = Some(now);
            }
            Err(_) => lost.push(packet),
        }
    }

    fn release(&mut self, now: Instant, lost: &mut Vec<Crossing>) -> Option<(Crossing, Instant)> {
        loop {
            match self.scheduler.dequeue(now) {
                Dequeue::Send { packet, .. } => {
                    self.next = Some(now);
                    let bytes = ByteCount::new(packet.bytes().into());
                    let crossed = self.forget(packet)?;
                    return Some((crossed, now + self.rate.time_for_ceil(bytes)));
                }
                Dequeue::Dropped { packet, .. } => lost.extend(self.forget(packet)),
                Dequeue::Wait { until, .. } => {
                    self.next = Some(until);
                    return None;
                }
                Dequeue::Idle => {
                    self.next = None;
                    return None;
                }
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        self.next
    }
}
