// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any scheduler behind a link's clock.

use weir_units::{BitRate, ByteCount, Instant};

use crate::{
    Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, Dequeue, DropReason, FlowCounters,
    LinkClock, LinkConfig, Packet, Scheduler, WaitReason,
};

/// Hands out packets no faster than the link sends them: [`WaitReason::LinkBusy`] while it is
/// sending. Without a rate it adds nothing.
#[derive(Clone, Debug)]
pub struct Paced<S> {
    inner: S,
    clock: Option<LinkClock>,
    link: LinkConfig,
    /// End of the idle time that the last answer announced, if it did.
    idle: Option<Instant>,
    latest: Instant,
}

impl<S: Scheduler> Paced<S> {
    /// Puts `inner` behind a clock of the link's rate.
    #[must_use]
    pub fn new(inner: S, link: &LinkConfig) -> Self {
        let clock = link.rate.map(|rate| LinkClock::new(rate, link.catch_up));
        let idle = Some(Instant::FAR_FUTURE);
        Self { inner, clock, link: link.clone(), idle, latest: Instant::ZERO }
    }

    /// Returns the scheduler behind the clock.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns when the link has sent all it was given; `None` without a rate.
    #[must_use]
    pub fn busy_until(&self) -> Option<Instant> {
        self.clock.as_ref().map(LinkClock::busy_until)
    }

    #[inline]
    fn observe(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Notes that packets to send may be there from `now` on.
    #[inline]
    fn wake(&mut self, now: Instant) {
        if let (Some(until), Some(clock)) = (self.idle, &mut self.clock) {
            clock.idle_until(until.min(now));
        }
    }
}

impl<S: Scheduler> Scheduler for Paced<S> {
    fn add_class(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        self.inner.add_class(now, parent, config)
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        let now = self.observe(now);
        self.wake(now);
        self.inner.change_class(now, class, config)
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.inner.remove_class(now, class, orphan)
    }

    #[inline]
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        let now = self.observe(now);
        if self.inner.backlog().packets == 0 {
            self.idle = Some(now);
        }
        self.inner.enqueue(now, class, packet)?;
        self.wake(now);
        Ok(())
    }

    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        let now = self.observe(now);
        if self.inner.backlog().packets == 0 {
            self.idle = Some(now);
        }
        self.inner.requeue(now, class, packet)?;
        self.wake(now);
        Ok(())
    }

    #[inline]
    fn touch(&self, class: ClassId) {
        self.inner.touch(class);
    }

    #[inline]
    fn dequeue(&mut self, now: Instant) -> Dequeue {
        let now = self.observe(now);
        self.wake(now);
        if let Some(Err(until)) = self.clock.as_ref().map(|clock| clock.ready(now)) {
            if self.inner.backlog().packets == 0 {
                return Dequeue::Idle;
            }
            return Dequeue::Wait { until, why: WaitReason::LinkBusy };
        }
        let answer = self.inner.dequeue(now);
        self.idle = match answer {
            Dequeue::Send { packet, .. } => {
                if let Some(clock) = &mut self.clock {
                    clock.sent(now, ByteCount::new(packet.bytes().into()));
                }
                None
            }
            Dequeue::Dropped { .. } => None,
            Dequeue::Wait { until, .. } => Some(until),
            Dequeue::Idle => Some(Instant::FAR_FUTURE),
        };
        answer
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        self.inner.charge(now, class, bytes);
    }

    fn pause(&mut self, class: ClassId) {
        self.inner.pause(class);
    }

    fn resume(&mut self, now: Instant, class: ClassId) {
        let now = self.observe(now);
        self.inner.resume(now, class);
        self.wake(now);
    }

    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        let now = self.observe(now);
        self.inner.set_link_rate(now, rate);
        self.clock = match (self.clock.take(), rate) {
            (Some(mut clock), Some(rate)) => {
                clock.set_rate(rate);
                Some(clock)
            }
            (_, rate) => rate.map(|rate| LinkClock::new(rate, self.link.catch_up)),
        };
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        self.inner.class_backlog(class)
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.inner.head_arrived(class)
    }

    fn room(&self, class: ClassId) -> u32 {
        self.inner.room(class)
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        self.inner.counters(class)
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        self.inner.flow_counters(class)
    }
}
