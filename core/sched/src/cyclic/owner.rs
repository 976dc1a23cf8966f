// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An owner of phases: a scheduler of its own, and the one packet that was taken out of it too
//! early.

use alloc::vec::Vec;

use weir_units::{ByteCount, Instant};

use crate::{
    Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, Dequeue, Packet, Scheduler,
};

#[derive(Clone, Debug)]
pub(super) struct PhaseOwner<S> {
    pub(super) scheduler: S,
    /// The class that stands for the owner below a hierarchical scheduler.
    pub(super) root: Option<ClassId>,
    /// The class of [`super::Cyclic`] for each class of `scheduler`.
    outer: Vec<ClassId>,
    /// A packet that did not fit the rest of a phase: a scheduler cannot be asked for the length of
    /// its next packet, nor take one back.
    held: Option<HeldPacket>,
    pub(super) packets: u64,
    /// The instant since which packets have been here without a pause.
    pub(super) since: Instant,
}

#[derive(Clone, Copy, Debug)]
struct HeldPacket {
    class: ClassId,
    packet: Packet,
    mark: bool,
}

impl<S: Scheduler> PhaseOwner<S> {
    /// Makes an owner without classes. Its own configuration holds where `scheduler` has levels.
    pub(super) fn new(
        now: Instant,
        mut scheduler: S,
        nested: bool,
        config: &ClassConfig,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let root = if nested { Some(scheduler.add_class(now, None, config)?) } else { None };
        let (outer, held, packets, since) = (Vec::new(), None, 0, now);
        Ok(Self { scheduler, root, outer, held, packets, since })
    }

    pub(super) fn change(&mut self, now: Instant, config: &ClassConfig) -> Result<(), ConfigError> {
        config.check()?;
        self.root.map_or(Ok(()), |root| self.scheduler.change_class(now, root, config))
    }

    /// Adds a class below another of this owner, or below the owner itself.
    pub(super) fn add(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
        outer: ClassId,
    ) -> Result<ClassId, ConfigError> {
        let class = self.scheduler.add_class(now, parent.or(self.root), config)?;
        let index = class.0 as usize;
        if self.outer.len() <= index {
            self.outer.resize(index + 1, UNKNOWN);
        }
        self.outer[index] = outer;
        Ok(class)
    }

    /// Removes a class; the packet that is held goes first to `orphan` if it is of this class.
    pub(super) fn remove(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        let mut gone = 0;
        let mut count = |packet| {
            gone += 1;
            orphan(packet);
        };
        // A class that is refused keeps its packet.
        let held = self.held.filter(|held| held.class == class);
        let mut first = held.map(|held| held.packet);
        let removed = self.scheduler.remove_class(now, class, &mut |packet| {
            if let Some(first) = first.take() {
                count(first);
            }
            count(packet);
        });
        removed?;
        if let Some(first) = first {
            count(first);
        }
        if held.is_some() {
            self.held = None;
        }
        self.packets -= gone;
        Ok(())
    }

    /// Takes the packet that is to be sent next, in terms of the owner's classes; or returns why
    /// there is none. A caller gives a packet back with [`PhaseOwner::hold`], or counts it with
    /// [`PhaseOwner::left`].
    #[inline]
    pub(super) fn next(&mut self, now: Instant) -> Dequeue {
        match self.held.take() {
            Some(HeldPacket { class, packet, mark }) => Dequeue::Send { class, packet, mark },
            None => self.scheduler.dequeue(now),
        }
    }

    /// Keeps a packet for a later gate.
    #[inline]
    pub(super) fn hold(&mut self, class: ClassId, packet: Packet, mark: bool) {
        self.held = Some(HeldPacket { class, packet, mark });
    }

    /// Counts a packet that leaves. Returns the class of [`super::Cyclic`] for its class.
    #[inline]
    pub(super) fn left(&mut self, class: ClassId) -> ClassId {
        self.packets -= 1;
        self.outer.get(class.0 as usize).copied().unwrap_or(UNKNOWN)
    }

    /// Returns the length of the packet that is held; `None` without one.
    pub(super) fn held_bytes(&self) -> Option<ByteCount> {
        self.held.map(|held| ByteCount::new(held.packet.bytes().into()))
    }

    pub(super) fn class_backlog(&self, class: ClassId) -> Backlog {
        let held = self.held_backlog(class);
        let queued = self.scheduler.class_backlog(class);
        Backlog { packets: queued.packets + held.packets, bytes: queued.bytes + held.bytes }
    }

    pub(super) fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        let held = self.held.filter(|held| held.class == class);
        held.map(|held| held.packet.arrived).or_else(|| self.scheduler.head_arrived(class))
    }

    /// Returns the counters of a class: a packet that is held was not sent yet.
    pub(super) fn counters(&self, class: ClassId) -> ClassCounters {
        let mut counters = self.scheduler.counters(class);
        let held = self.held_backlog(class);
        counters.sent.packets -= held.packets;
        counters.sent.bytes -= held.bytes;
        let is_marked = self.held.is_some_and(|held| held.class == class && held.mark);
        counters.marked -= u64::from(is_marked);
        counters
    }

    fn held_backlog(&self, class: ClassId) -> Backlog {
        let held = self.held.filter(|held| held.class == class);
        held.map_or_else(Backlog::default, |held| Backlog {
            packets: 1,
            bytes: held.packet.bytes().into(),
        })
    }
}

const UNKNOWN: ClassId = ClassId(u32::MAX);
