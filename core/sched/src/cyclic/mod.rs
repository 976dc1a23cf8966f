// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cyclic scheduler: every owner has its phases of the link, and nobody else sends in them.
//!
//! Parallel internets share a link by time (Rzym and Wajda, JTIT 2/2014, section 5.2): a cycle is
//! divided into phases, and a phase that its owner does not use stays empty. So nothing that one
//! owner does can be seen in the delay of another. The price is capacity: a frame must fit the rest
//! of its phase, so a phase of length P carries ⌊P/t⌋ frames of t each, and an owner that is alone
//! has its phases and no more. See `docs/algorithms/cyclic.md`.
//!
//! The classes at the top are the owners, each with a scheduler of its own for the classes below;
//! owners hold no packets themselves. With `borrow`, time that an owner leaves goes to the others
//! in turn: the work-conserving variant, in which an owner can see the load of the others.

mod config;
mod gates;
mod owner;
mod serve;

use alloc::vec::Vec;

use weir_units::{BitRate, ByteCount, Instant, Nanos};

pub use self::config::{CycleConfig, Phase, PhaseCounters};
use self::gates::{CycleGates, GateList};
use self::owner::PhaseOwner;
use crate::bits::Bits;
use crate::{
    Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, Dequeue, DropReason, FlowCounters,
    LinkClock, LinkConfig, Packet, Scheduler, WaitReason,
};

/// Gives the link to one owner after another, by the clock.
#[derive(Clone, Debug)]
pub struct Cyclic<S> {
    make: fn(&LinkConfig) -> S,
    nested: bool,
    /// The link as owners see it: without a rate.
    link: LinkConfig,
    clock: LinkClock,
    /// When the last frame has left. If it was begun late, `clock` ends earlier, so that the link
    /// catches up.
    sent: Instant,
    gates: CycleGates,
    guard: Nanos,
    borrow: bool,
    owners: Vec<Option<PhaseOwner<S>>>,
    /// By class.
    places: Vec<Option<Place>>,
    backlog: Backlog,
    /// The owners that have packets.
    waiting: Bits,
    /// The owner that borrows next, if it has any.
    borrower: usize,
    phases: PhaseCounters,
    /// End of the idle time that the last answer announced, if it did.
    idle: Option<Instant>,
    latest: Instant,
}

/// Where a class is: the slot of its owner, and the class there; none for the owner itself.
type Place = (u32, Option<ClassId>);

impl<S: Scheduler> Cyclic<S> {
    /// Makes a link that is closed to all until it has a cycle. Owners get schedulers from `make`;
    /// `nested` says that these have levels, so that the limits of an owner hold there.
    #[must_use]
    pub fn new(link: &LinkConfig, nested: bool, make: fn(&LinkConfig) -> S) -> Self {
        let rate = link.rate.unwrap_or(NO_RATE);
        // Owners are asked when the link is free: a clock of their own would be beside the link's.
        let link = LinkConfig { rate: None, ..link.clone() };
        Self {
            make,
            nested,
            clock: LinkClock::new(rate, link.catch_up),
            link,
            sent: Instant::ZERO,
            gates: CycleGates::new(),
            guard: Nanos::ZERO,
            borrow: false,
            owners: Vec::new(),
            places: Vec::new(),
            backlog: Backlog::default(),
            waiting: Bits::default(),
            borrower: 0,
            phases: PhaseCounters::default(),
            idle: Some(Instant::FAR_FUTURE),
            latest: Instant::ZERO,
        }
    }

    /// Sets the cycle: the first at once, as if it had been repeated since time 0; another from the
    /// end of the cycle in which the link is at `now`. `guard` and `borrow` hold at once.
    ///
    /// # Errors
    /// [`ConfigError`] for phases longer than the cycle, or of a class that is no owner; nothing
    /// has changed then.
    pub fn set_cycle(&mut self, now: Instant, cycle: &CycleConfig) -> Result<(), ConfigError> {
        let now = self.observe(now);
        let owner = |phase: &Phase| match self.place(phase.owner) {
            Some((owner, None)) => Ok(owner),
            Some(_) => Err(ConfigError::WrongKind(phase.owner)),
            None => Err(ConfigError::NoSuchClass(phase.owner)),
        };
        let gates = GateList::new(cycle.length, &cycle.phases, owner)?;
        self.wake(now);
        self.gate(now);
        let free = self.clock.busy_until().max(self.sent).max(now).as_nanos();
        self.gates.replace(now.as_nanos(), free, gates);
        (self.guard, self.borrow) = (cycle.guard, cycle.borrow);
        Ok(())
    }

    /// Returns how punctually the caller came.
    #[must_use]
    pub const fn phase_counters(&self) -> PhaseCounters {
        self.phases
    }

    #[inline]
    fn observe(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// Notes that packets to send may be there from `now` on.
    #[inline]
    fn wake(&mut self, now: Instant) {
        if let Some(until) = self.idle {
            self.clock.idle_until(until.min(now));
        }
    }

    fn place(&self, class: ClassId) -> Option<Place> {
        self.places.get(class.0 as usize).copied().flatten()
    }

    /// Returns the owner of a class that may hold packets, and its class there.
    #[inline]
    fn find(&self, class: ClassId) -> Option<(&PhaseOwner<S>, ClassId)> {
        let (owner, inner) = self.place(class)?;
        Some((self.owners.get(owner as usize)?.as_ref()?, inner?))
    }

    fn owner_mut(&mut self, slot: u32) -> Option<&mut PhaseOwner<S>> {
        self.owners.get_mut(slot as usize)?.as_mut()
    }
}

impl<S: Scheduler> Scheduler for Cyclic<S> {
    fn add_class(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        let now = self.observe(now);
        let free = self.places.iter().position(Option::is_none);
        let index = free.unwrap_or(self.places.len());
        let class = match u32::try_from(index) {
            Ok(class) if class < self.link.classes_max => ClassId(class),
            _ => return Err(ConfigError::TooManyClasses(self.link.classes_max)),
        };
        let place = match parent {
            None => (self.add_owner(now, config)?, None),
            Some(parent) => {
                let (slot, above) = self.place(parent).ok_or(ConfigError::NoSuchClass(parent))?;
                let owner = self.owner_mut(slot).ok_or(ConfigError::NoSuchClass(parent))?;
                (slot, Some(owner.add(now, above, config, class)?))
            }
        };
        if index == self.places.len() {
            self.places.push(None);
        }
        self.places[index] = Some(place);
        Ok(class)
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        let now = self.observe(now);
        self.wake(now);
        let (slot, inner) = self.place(class).ok_or(ConfigError::NoSuchClass(class))?;
        let owner = self.owner_mut(slot).ok_or(ConfigError::NoSuchClass(class))?;
        match inner {
            Some(inner) => owner.scheduler.change_class(now, inner, config),
            None => owner.change(now, config),
        }
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        let now = self.observe(now);
        let (slot, inner) = self.place(class).ok_or(ConfigError::NoSuchClass(class))?;
        self.gate(now);
        match inner {
            Some(inner) => {
                let mut gone = Backlog::default();
                let owner = self.owner_mut(slot).ok_or(ConfigError::NoSuchClass(class))?;
                owner.remove(now, inner, &mut |packet| {
                    gone.packets += 1;
                    gone.bytes += u64::from(packet.bytes());
                    orphan(packet);
                })?;
                self.left(slot as usize, gone);
            }
            None if self.has_classes(slot) => return Err(ConfigError::WrongKind(class)),
            None => {
                self.owners[slot as usize] = None;
                self.gates.close(now.as_nanos(), slot);
            }
        }
        self.places[class.0 as usize] = None;
        Ok(())
    }

    #[inline]
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.queue(now, class, packet, S::enqueue)
    }

    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.queue(now, class, packet, S::requeue)
    }

    #[inline]
    fn touch(&self, class: ClassId) {
        if let Some((owner, inner)) = self.find(class) {
            owner.scheduler.touch(inner);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant) -> Dequeue {
        let now = self.observe(now);
        self.wake(now);
        let answer = self.serve(now);
        self.idle = match answer {
            Dequeue::Send { .. } | Dequeue::Dropped { .. } => None,
            Dequeue::Wait { why: WaitReason::LinkBusy, .. } => self.idle,
            Dequeue::Wait { until, .. } => Some(until),
            Dequeue::Idle => Some(Instant::FAR_FUTURE),
        };
        answer
    }

    /// Charges the class and, below a scheduler with levels, its owner.
    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        let now = self.observe(now);
        let Some((slot, inner)) = self.place(class) else { return };
        let Some(owner) = self.owner_mut(slot) else { return };
        if let Some(class) = inner.or(owner.root) {
            owner.scheduler.charge(now, class, bytes);
        }
    }

    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        self.observe(now);
        self.clock.set_rate(rate.unwrap_or(NO_RATE));
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        self.find(class).map_or_else(Backlog::default, |(owner, inner)| owner.class_backlog(inner))
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.find(class).and_then(|(owner, inner)| owner.head_arrived(inner))
    }

    fn room(&self, class: ClassId) -> u32 {
        self.find(class).map_or(0, |(owner, inner)| owner.scheduler.room(inner))
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        let found = self.find(class);
        found.map_or_else(ClassCounters::default, |(owner, inner)| owner.counters(inner))
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        let found = self.find(class);
        found.map_or_else(FlowCounters::default, |(owner, inner)| {
            owner.scheduler.flow_counters(inner)
        })
    }
}

/// A link without a rate: a packet takes no time.
const NO_RATE: BitRate = BitRate::from_bps(u64::MAX);
