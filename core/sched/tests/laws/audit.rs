// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An auditor around a scheduler: keeps its own books and compares after every call.

use std::collections::{BTreeMap, VecDeque};

use weir_sched::{
    Backlog, ClassConfig, ClassCounters, ClassId, Dequeue, DropReason, LinkConfig, Packet,
    QueueConfig, Scheduler, WaitReason,
};
use weir_units::{BitRate, ByteCount, Instant};

use crate::subject::Subject;

/// A scheduler whose every answer is checked against a model of plain queues: packets leave their
/// class in order, none is lost or made, bounds hold, counters add up, a wait ends later.
pub(crate) struct Audit {
    scheduler: Box<dyn Scheduler>,
    classes: BTreeMap<ClassId, Class>,
    /// The latest instant given.
    pub(crate) latest: Instant,
    next_id: u32,
    paced: bool,
    /// A packet of a class may be out of its queue, which has room for another then.
    phased: bool,
}

struct Class {
    config: QueueConfig,
    /// Set if packets may pass those of other flows: since it had flows, it was never empty.
    by_flow: bool,
    queue: VecDeque<Packet>,
    counters: ClassCounters,
    /// Packets that may leave while it is paused: one, if it had any.
    paused: Option<u32>,
}

impl Audit {
    pub(crate) fn new(subject: &Subject, link: &LinkConfig) -> Self {
        let scheduler = (subject.make)(link);
        let (latest, paced, phased) = (Instant::ZERO, subject.paced, subject.phased);
        Self { scheduler, classes: BTreeMap::new(), latest, next_id: 0, paced, phased }
    }

    pub(crate) fn add(&mut self, now: Instant, config: &ClassConfig) -> ClassId {
        self.latest = self.latest.max(now);
        let class = self.scheduler.add_class(now, None, config).unwrap();
        let free = (0..).map(ClassId).find(|class| !self.classes.contains_key(class));
        assert_eq!(Some(class), free, "the least free index");
        let class_state = Class {
            config: config.queue.clone(),
            by_flow: config.queue.flows.is_some(),
            queue: VecDeque::new(),
            counters: ClassCounters::default(),
            paused: None,
        };
        self.classes.insert(class, class_state);
        self.check(class);
        class
    }

    pub(crate) fn change(&mut self, now: Instant, class: ClassId, config: &ClassConfig) {
        self.latest = self.latest.max(now);
        self.scheduler.change_class(now, class, config).unwrap();
        let state = self.classes.get_mut(&class).unwrap();
        state.config = config.queue.clone();
        state.by_flow |= config.queue.flows.is_some();
        self.check(class);
    }

    pub(crate) fn remove(&mut self, now: Instant, class: ClassId) {
        self.latest = self.latest.max(now);
        let mut orphans = VecDeque::new();
        self.scheduler.remove_class(now, class, &mut |packet| orphans.push_back(packet)).unwrap();
        let removed = self.classes.remove(&class).unwrap();
        if removed.by_flow {
            let sorted = |queue: &VecDeque<Packet>| {
                let mut queue = Vec::from(queue.clone());
                queue.sort_by_key(|packet| packet.flow());
                queue
            };
            assert_eq!(sorted(&orphans), sorted(&removed.queue), "in order within each flow");
        } else {
            assert_eq!(orphans, removed.queue, "a removed class hands its packets back, in order");
        }
        assert_eq!(self.scheduler.class_backlog(class), Backlog::default());
        assert_eq!(self.scheduler.counters(class), ClassCounters::default());
        assert_eq!(self.scheduler.room(class), 0);
        self.check_total();
    }

    /// Offers a packet; it is taken exactly if both bounds of the class allow. With flows, one that
    /// the class has room for may be refused, if its flow holds more than what is free.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        class: ClassId,
        (bytes, flow): (u32, u32),
        ecn: bool,
    ) -> bool {
        self.latest = self.latest.max(now);
        let packet = Packet::new(self.next_id, bytes, self.latest).of_flow(flow);
        let packet = if ecn { packet.ecn_capable() } else { packet };
        self.next_id += 1;
        let answer = self.scheduler.enqueue(now, class, packet);
        let Some(state) = self.classes.get_mut(&class) else {
            assert_eq!(answer, Err(DropReason::NoSuchQueue));
            return false;
        };
        let held: u64 = state.queue.iter().map(|packet| u64::from(packet.bytes())).sum();
        let expected = if state.queue.len() >= state.config.packets as usize {
            Err(DropReason::QueuePackets)
        } else if held + u64::from(bytes) > state.config.bytes.get() {
            Err(DropReason::QueueBytes)
        } else {
            Ok(())
        };
        if state.config.flows.is_some() && expected.is_ok() && answer.is_err() {
            // Packets that share a flow for want of a state count as one's.
            let shared = self.scheduler.flow_counters(class).shared > 0;
            let own = state.queue.iter().filter(|held| held.flow() == packet.flow() || shared);
            let (packets, held_here) = own.fold((0, 0), |(packets, bytes), held| {
                (packets + 1, bytes + u64::from(held.bytes()))
            });
            let free = u64::from(state.config.packets) - state.queue.len() as u64;
            assert!(packets > free || held_here > state.config.bytes.get() - held, "{answer:?}");
        } else if self.phased && answer.is_ok() {
            let longest = state.queue.iter().map(|packet| u64::from(packet.bytes())).max();
            let queued = held + u64::from(bytes) - longest.unwrap_or(0);
            assert!(
                state.queue.len() <= state.config.packets as usize
                    && queued <= state.config.bytes.get(),
                "{bytes} bytes taken beside {held}, of which one packet at most is out"
            );
        } else if self.phased && expected.is_err() {
            // Where both bounds are reached, the packet that is out may be the one too many.
            assert!(answer.is_err());
        } else {
            assert_eq!(answer, expected, "of {bytes} bytes to {class:?}");
        }
        count(&mut state.counters.offered, bytes);
        if answer.is_ok() {
            count(&mut state.counters.enqueued, bytes);
            state.queue.push_back(packet);
        } else {
            count(&mut state.counters.refused, bytes);
        }
        self.check(class);
        answer.is_ok()
    }

    /// Pulls once.
    pub(crate) fn pull(&mut self, now: Instant) -> Dequeue {
        self.latest = self.latest.max(now);
        let answer = self.scheduler.dequeue(now);
        match answer {
            Dequeue::Send { class, packet, mark } => {
                assert!(!mark || packet.is_ecn_capable(), "only a packet that can carry a mark");
                let state = self.take(class, packet);
                assert!(state.paused != Some(0), "{class:?} is paused");
                state.paused = state.paused.map(|_| 0);
                state.counters.marked += u64::from(mark);
                count(&mut state.counters.sent, packet.bytes());
                self.check(class);
            }
            Dequeue::Dropped { class, packet, reason } => {
                assert_eq!(reason, DropReason::Codel);
                let state = self.take(class, packet);
                assert!(state.config.codel.is_some(), "without active queue management");
                count(&mut state.counters.dropped, packet.bytes());
                self.check(class);
            }
            Dequeue::Wait { until, .. } => {
                assert!(until > self.latest, "a wait until {until:?} ends at {:?}", self.latest);
                assert!(self.backlog().packets > 0, "nothing to wait for");
            }
            Dequeue::Idle => assert_eq!(self.free_to_leave(), 0, "idle with packets queued"),
        }
        answer
    }

    /// Pulls once; where the answer is a wait, checks that it is exact, and pulls at its end.
    pub(crate) fn pull_patiently(&mut self, now: Instant) -> Dequeue {
        let first = self.pull(now);
        let Dequeue::Wait { until, why } = first else { return first };
        let before = Instant::from_nanos(until.as_nanos() - 1);
        if before > self.latest {
            assert_eq!(self.pull(before), Dequeue::Wait { until, why }, "1 ns before its end");
        }
        if self.phased {
            // At a gate another limit may hold, or the frame not fit; never for good.
            assert!(until < Instant::FAR_FUTURE, "no gate comes for {:?}", self.backlog());
            return self.pull(until);
        }
        let answer = self.pull(until);
        match answer {
            Dequeue::Send { .. } | Dequeue::Dropped { .. } => {}
            // A link that is free again may find every class at its limit.
            Dequeue::Wait { until: later, why: WaitReason::UpperLimit } => {
                assert!(why != WaitReason::UpperLimit, "no packet at {until:?} but at {later:?}");
            }
            // WRR behind a clock has one of its own, which knows of more idle times.
            Dequeue::Wait { .. } if self.paced && why == WaitReason::LinkBusy => {}
            _ => panic!("{answer:?} at the end of a wait for {why:?}"),
        }
        answer
    }

    /// Pauses a class of a scheduler that can, or resumes it.
    pub(crate) fn pause(&mut self, now: Instant, class: ClassId, pauses: bool) {
        let Some(state) = self.classes.get_mut(&class) else { return };
        if pauses {
            self.scheduler.pause(class);
            state.paused = state.paused.or_else(|| Some(u32::from(!state.queue.is_empty())));
        } else {
            self.latest = self.latest.max(now);
            self.scheduler.resume(now, class);
            state.paused = None;
        }
        self.check(class);
    }

    /// Packets of classes that are not paused, and those that may leave of others.
    fn free_to_leave(&self) -> usize {
        let of = |class: &Class| match class.paused {
            Some(left) => left as usize,
            None => class.queue.len(),
        };
        self.classes.values().map(of).sum()
    }

    pub(crate) fn charge(&mut self, now: Instant, class: ClassId, bytes: u64) {
        self.latest = self.latest.max(now);
        self.scheduler.charge(now, class, ByteCount::new(bytes));
    }

    /// Not an instant seen: it has no effect on those that do not know the rate.
    pub(crate) fn set_link_rate(&mut self, now: Instant, rate: BitRate) {
        self.scheduler.set_link_rate(now, Some(rate));
    }

    /// The backlog of the model.
    pub(crate) fn backlog(&self) -> Backlog {
        let mut total = Backlog::default();
        for class in self.classes.values() {
            let backlog = class.backlog();
            total.packets += backlog.packets;
            total.bytes += backlog.bytes;
        }
        total
    }

    pub(crate) fn queued(&self, class: ClassId) -> usize {
        self.classes[&class].queue.len()
    }

    pub(crate) fn is_backlogged(&self, class: ClassId) -> bool {
        self.queued(class) > 0
    }

    pub(crate) fn head(&self, class: ClassId) -> Option<Packet> {
        self.classes[&class].queue.front().copied()
    }

    fn take(&mut self, class: ClassId, packet: Packet) -> &mut Class {
        let state = self.classes.get_mut(&class).unwrap();
        if state.by_flow {
            let at = state.queue.iter().position(|queued| queued.flow() == packet.flow());
            let first = at.and_then(|at| state.queue.remove(at));
            assert_eq!(first, Some(packet), "the first of its flow in {class:?}");
            state.by_flow = state.config.flows.is_some() || !state.queue.is_empty();
        } else {
            assert_eq!(state.queue.pop_front(), Some(packet), "the head of {class:?}");
        }
        state
    }

    /// Compares the class's counters, backlog and room, and the identities between them.
    fn check(&self, class: ClassId) {
        let state = &self.classes[&class];
        let counters = self.scheduler.counters(class);
        assert_eq!(counters, state.counters, "counters of {class:?}");
        let backlog = self.scheduler.class_backlog(class);
        assert_eq!(backlog, state.backlog(), "backlog of {class:?}");
        assert_eq!(counters.offered, sum(&[counters.refused, counters.enqueued]));
        assert_eq!(counters.enqueued, sum(&[counters.sent, counters.dropped, backlog]));
        let head = self.scheduler.head_arrived(class);
        if state.by_flow {
            let arrivals = state.queue.iter().map(|packet| packet.arrived);
            assert!(head.is_none_or(|head| arrivals.clone().any(|at| at == head)));
            assert_eq!(head.is_some(), arrivals.count() > 0, "a head of {class:?}");
        } else {
            let front = state.queue.front().map(|packet| packet.arrived);
            assert_eq!(head, front, "the head of {class:?}");
        }
        let room = u64::from(state.config.packets).saturating_sub(backlog.packets);
        let told = u64::from(self.scheduler.room(class));
        let is_held = self.phased && backlog.packets > 0 && told == room + 1;
        assert!(told == room || is_held, "room of {class:?}: {told}, not {room}");
        self.check_total();
    }

    fn check_total(&self) {
        assert_eq!(self.scheduler.backlog(), self.backlog(), "everything queued");
    }
}

impl Class {
    fn backlog(&self) -> Backlog {
        let bytes = self.queue.iter().map(|packet| u64::from(packet.bytes())).sum();
        Backlog { packets: self.queue.len() as u64, bytes }
    }
}

fn count(counter: &mut Backlog, bytes: u32) {
    counter.packets += 1;
    counter.bytes += u64::from(bytes);
}

fn sum(parts: &[Backlog]) -> Backlog {
    parts.iter().fold(Backlog::default(), |sum, part| Backlog {
        packets: sum.packets + part.packets,
        bytes: sum.bytes + part.bytes,
    })
}
