// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part that all schedulers of one level share: queues, upper limits, and the loop around a
//! discipline.
//!
//! A class is *active* while it has packets and is not at its limit. [`Flat`] tells the discipline
//! when a class becomes active or stops being so; the discipline only chooses among active ones.

use core::fmt;

use weir_units::{BitRate, ByteCount, Instant};

use crate::limit::Limits;
use crate::{
    Backlog, ClassConfig, ClassCounters, ClassId, ClassQueues, ConfigError, Dequeue, Discipline,
    DropReason, FlowCounters, LinkConfig, Packet, Pick, Popped, Scheduler, WaitReason,
};

/// A scheduler of one level: the discipline `D` chooses the next class, the rest is here.
#[derive(Clone)]
pub struct Flat<D: Discipline> {
    queues: ClassQueues<D::State>,
    limits: Limits,
    /// The latest instant seen; it replaces an earlier one.
    latest: Instant,
    discipline: D,
}

impl<D: Discipline> Flat<D> {
    /// Makes a scheduler without classes.
    #[must_use]
    pub fn new(link: &LinkConfig) -> Self {
        Self {
            queues: ClassQueues::new(link.classes_max, link.packets_max),
            limits: Limits::new(),
            latest: Instant::ZERO,
            discipline: D::new(link),
        }
    }

    #[cfg(test)]
    pub(crate) const fn discipline_mut(&mut self) -> &mut D {
        &mut self.discipline
    }

    #[inline]
    fn observe(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn activate(&mut self, now: Instant, class: u32) {
        if let Some(head) = self.queues.head_bytes(ClassId(class)) {
            self.discipline.activate(now, class, head, &mut self.queues);
        }
    }

    #[inline(never)]
    fn enqueue_managed(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
    ) -> Result<(), DropReason> {
        let was_empty = self.queues.push_managed(class, packet)?;
        self.enqueued(now, class, packet, was_empty);
        Ok(())
    }

    #[inline(always)]
    fn enqueued(&mut self, now: Instant, class: ClassId, packet: Packet, was_empty: bool) {
        self.discipline.enqueued(class.0, packet.bytes());
        if was_empty {
            self.discipline.activate(now, class.0, packet.bytes(), &mut self.queues);
        }
    }

    /// Brings back the classes that fit their limit again.
    #[inline(never)]
    fn release(&mut self, now: Instant) {
        while let Some((since, class)) = self.limits.release(now) {
            self.activate(since, class);
        }
    }

    /// Answers `dequeue` while no class is active.
    #[cold]
    fn nobody(&mut self, now: Instant) -> Dequeue {
        let queues = &self.queues;
        let bytes = |class| queues.head_bytes(ClassId(class)).unwrap_or(0);
        let until = self.limits.next(now, bytes);
        let why = WaitReason::UpperLimit;
        until.map_or(Dequeue::Idle, |until| Dequeue::Wait { until, why })
    }

    /// Answers `dequeue` while some class has an upper limit.
    #[inline(never)]
    fn dequeue_limited(&mut self, now: Instant) -> Dequeue {
        self.release(now);
        // Each turn of the loop serves a class or parks one; a parked one does not come back.
        loop {
            let class = match self.discipline.pick(now, &mut self.queues) {
                Pick::Class(class) => class,
                Pick::Wait(until, why) => return Dequeue::Wait { until, why },
                Pick::Nobody => return self.nobody(now),
            };
            let head = self.queues.head_bytes(ClassId(class)).unwrap_or(0);
            if self.limits.hold(now, class, head) {
                self.discipline.deactivate(class, &mut self.queues);
                continue;
            }
            let answer = self.serve(now, class);
            if let Dequeue::Send { packet, .. } = answer {
                self.limits.charge(now, class, u64::from(packet.bytes()));
            }
            return answer;
        }
    }

    /// Serves the class picked.
    #[inline(always)]
    fn serve(&mut self, now: Instant, class: u32) -> Dequeue {
        let id = ClassId(class);
        let Some((packet, next)) = self.queues.take(id) else {
            return self.serve_managed(now, class);
        };
        self.discipline.sent(now, class, packet.bytes(), next, &mut self.queues);
        Dequeue::Send { class: id, packet, mark: false }
    }

    #[inline(never)]
    fn serve_managed(&mut self, now: Instant, class: u32) -> Dequeue {
        let id = ClassId(class);
        match self.queues.pop(now, id) {
            Popped::Send { packet, mark, next } => {
                self.discipline.sent(now, class, packet.bytes(), next, &mut self.queues);
                Dequeue::Send { class: id, packet, mark }
            }
            Popped::Dropped(packet) => {
                let head = self.queues.head_bytes(id).unwrap_or(0);
                self.discipline.dropped(class, head);
                Dequeue::Dropped { class: id, packet, reason: DropReason::Codel }
            }
            Popped::Empty => {
                debug_assert!(false, "an active class has a packet");
                self.discipline.deactivate(class, &mut self.queues);
                Dequeue::Idle
            }
        }
    }
}

impl<D: Discipline> Scheduler for Flat<D> {
    fn add_class(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        config.check()?;
        if parent.is_some() {
            return Err(ConfigError::Flat);
        }
        let now = self.observe(now);
        let class = self.queues.add(&config.queue)?;
        if D::LIMITS {
            self.limits.configure(now, class.0, config);
        }
        self.discipline.configure(class.0, config, &mut self.queues);
        Ok(class)
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        config.check()?;
        let now = self.observe(now);
        self.queues.change(class, &config.queue)?;
        let freed = D::LIMITS && self.limits.configure(now, class.0, config);
        self.discipline.configure(class.0, config, &mut self.queues);
        if freed {
            self.activate(now, class.0);
        }
        Ok(())
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.queues.check(class)?;
        self.observe(now);
        let parked = self.limits.remove(class.0);
        if !parked && !self.queues.is_empty(class) {
            self.discipline.deactivate(class.0, &mut self.queues);
        }
        self.discipline.remove(class.0, &mut self.queues);
        self.queues.remove(class, orphan)
    }

    // Always inlined, for the reason of `dequeue`.
    #[inline(always)]
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        let now = self.observe(now);
        let Some(was_empty) = self.queues.push_plain(class, packet) else {
            return self.enqueue_managed(now, class, packet);
        };
        self.enqueued(now, class, packet, was_empty);
        Ok(())
    }

    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        let now = self.observe(now);
        let was_empty = self.queues.requeue(class, packet)?;
        self.discipline.reserve(self.queues.capacity());
        self.enqueued(now, class, packet, was_empty);
        Ok(())
    }

    #[inline]
    fn touch(&self, class: ClassId) {
        self.queues.touch(class);
    }

    // A call and an answer through memory would be a tenth of what DRR does for a packet.
    #[inline(always)]
    fn dequeue(&mut self, now: Instant) -> Dequeue {
        let now = self.observe(now);
        if D::LIMITS && self.limits.any() {
            return self.dequeue_limited(now);
        }
        match self.discipline.pick(now, &mut self.queues) {
            Pick::Class(class) => self.serve(now, class),
            Pick::Wait(until, why) => Dequeue::Wait { until, why },
            Pick::Nobody => Dequeue::Idle,
        }
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        let now = self.observe(now);
        self.limits.charge(now, class.0, bytes.get());
    }

    fn pause(&mut self, class: ClassId) {
        if D::PAUSES {
            self.queues.pause(class);
        }
    }

    fn resume(&mut self, now: Instant, class: ClassId) {
        let now = self.observe(now);
        if self.queues.resume(class) {
            self.activate(now, class.0);
        }
    }

    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        let now = self.observe(now);
        self.discipline.set_link_rate(now, rate);
    }

    fn backlog(&self) -> Backlog {
        self.queues.total()
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        self.queues.backlog(class)
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.queues.head_arrived(class)
    }

    fn room(&self, class: ClassId) -> u32 {
        self.queues.room(class)
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        self.queues.counters(class)
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        self.queues.flow_counters(class)
    }
}

impl<D: Discipline + fmt::Debug> fmt::Debug for Flat<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the queues, which may hold a million packets.
        let mut shown = f.debug_struct("Flat");
        shown.field("backlog", &self.queues.total()).field("latest", &self.latest);
        shown.field("discipline", &self.discipline).finish_non_exhaustive()
    }
}
