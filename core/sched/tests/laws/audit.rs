// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An auditor around a scheduler: keeps its own books and compares after every call.

use std::collections::{BTreeMap, VecDeque};

use weir_sched::{
    Backlog, ClassConfig, ClassCounters, ClassId, Dequeue, DropReason, LinkConfig, Packet,
    Scheduler, WaitReason,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::in_phases::RATE_MIN;
use crate::subject::{Phases, Subject};

/// A scheduler whose every answer is checked against a model of plain queues: packets leave their
/// class in order, none is lost or made, bounds hold, counters add up, a wait ends later.
pub(crate) struct Audit {
    scheduler: Box<dyn Scheduler>,
    classes: BTreeMap<ClassId, Class>,
    /// The latest instant given.
    pub(crate) latest: Instant,
    next_id: u32,
    paced: bool,
    /// The phases that the scheduler is inside, if it is: each owner may hold one packet, out of
    /// the queue of its class, which has room for another then.
    phases: Option<Phases>,
    rate: Option<BitRate>,
}

/// The packets that an owner of phases holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldBy {
    Nobody,
    Class(ClassId),
    /// A queue above its bound has no room, whether a packet is out of it or not.
    Unknown,
}

#[derive(Debug)]
struct Class {
    config: ClassConfig,
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
        let (latest, paced) = (Instant::ZERO, subject.paced);
        let (phases, rate) = (subject.phases.clone(), link.rate);
        Self { scheduler, classes: BTreeMap::new(), latest, next_id: 0, paced, phases, rate }
    }

    pub(crate) fn add(&mut self, now: Instant, config: &ClassConfig) -> ClassId {
        self.latest = self.latest.max(now);
        let class = self.scheduler.add_class(now, None, config).unwrap();
        let free = (0..).map(ClassId).find(|class| !self.classes.contains_key(class));
        assert_eq!(Some(class), free, "the least free index");
        let class_state = Class {
            config: config.clone(),
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
        state.config = config.clone();
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
        let held = self.held_packets(class);
        let answer = self.scheduler.enqueue(now, class, packet);
        let shared = self.scheduler.flow_counters(class).shared > 0;
        let Some(state) = self.classes.get_mut(&class) else {
            assert_eq!(answer, Err(DropReason::NoSuchQueue));
            return false;
        };
        let is_right = match held.is_empty() {
            true => state.permits(packet, answer, shared, None),
            false => held.iter().any(|held| state.permits(packet, answer, shared, Some(*held))),
        };
        assert!(is_right, "{answer:?} of {bytes} bytes to {class:?}, {held:?} held");
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
        let held = self.held();
        let answer = self.scheduler.dequeue(now);
        if let (Dequeue::Send { class, .. } | Dequeue::Dropped { class, .. }, Some(phases)) =
            (answer, &self.phases)
            && let HeldBy::Class(first) = held[phases.owner(class)]
        {
            let is_sent = matches!(answer, Dequeue::Send { .. });
            assert!(is_sent && first == class, "{answer:?} before what was held of {first:?}");
        }
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
                assert!(state.config.queue.codel.is_some(), "without active queue management");
                count(&mut state.counters.dropped, packet.bytes());
                self.check(class);
            }
            Dequeue::Wait { until, why } => {
                assert!(until > self.latest, "a wait until {until:?} ends at {:?}", self.latest);
                assert!(self.backlog().packets > 0, "nothing to wait for");
                if let Some(phases) = &self.phases {
                    self.check_gates(phases, until, why);
                }
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
        if self.phases.is_some() {
            return self.pull_in_phase(until, why);
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

    /// Pulls at the end of a wait inside phases. After the limit of a class a packet leaves, or is
    /// held since it is too long for the rest of the gate.
    fn pull_in_phase(&mut self, until: Instant, why: WaitReason) -> Dequeue {
        assert!(until < Instant::FAR_FUTURE, "no gate comes for {:?}", self.backlog());
        let held = self.held();
        let answer = self.pull(until);
        if let (WaitReason::UpperLimit, Dequeue::Wait { .. }) = (why, answer) {
            let is_unknown = held.contains(&HeldBy::Unknown);
            assert!(is_unknown || self.held() != held, "{answer:?} at the end of a limit");
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

    /// Not an instant seen, but by a cycle: it has no effect on those that do not know the rate.
    pub(crate) fn set_link_rate(&mut self, now: Instant, rate: BitRate) {
        self.scheduler.set_link_rate(now, Some(rate));
        if self.phases.is_some() {
            self.latest = self.latest.max(now);
            self.rate = Some(rate.max(RATE_MIN));
        }
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
            state.by_flow = state.config.queue.flows.is_some() || !state.queue.is_empty();
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
        let told = u64::from(self.scheduler.room(class));
        let is_right = told == state.room() || self.holds(class);
        assert!(is_right, "room of {class:?}: {told}, not {}", state.room());
        self.check_total();
    }

    fn check_total(&self) {
        assert_eq!(self.scheduler.backlog(), self.backlog(), "everything queued");
        self.held();
    }

    /// Checks that inside phases nothing could leave before the end of a wait: not now, and at no
    /// gate before. A packet that is held is known to the scheduler, others' lengths are not.
    fn check_gates(&self, phases: &Phases, until: Instant, why: WaitReason) {
        let timetable = &phases.timetable;
        let (now, until) = (self.latest.as_nanos(), until.as_nanos());
        let gate = timetable.gate(now);
        let guard = timetable.guard.as_nanos();
        match why {
            WaitReason::LinkBusy => {
                assert!(until <= gate.end, "a frame until {until} in {gate:?}");
                return;
            }
            WaitReason::UpperLimit => {
                assert!(until + guard <= gate.end, "no frame begins at {until} in {gate:?}");
            }
            WaitReason::PhaseClosed => {}
            WaitReason::TurnHeld => panic!("a turn is held at {now}"),
        }
        let (mut least, mut most, mut is_limited) = (u64::MAX, u64::MAX, false);
        for (owner, held) in self.held().into_iter().enumerate() {
            let queued = |(class, _): &(&ClassId, &Class)| phases.owner(**class) == owner;
            let own = || self.classes.iter().filter(queued).filter(|(_, c)| !c.queue.is_empty());
            if own().count() == 0 {
                continue;
            }
            let (short, long) = self.times(held, own().map(|(_, class)| class));
            let first = |time| timetable.first(now, owner, time).unwrap_or(u64::MAX);
            (least, most) = (least.min(first(short)), most.min(first(long)));
            if !timetable.may_use(owner, gate) {
                continue;
            }
            is_limited |= !matches!(held, HeldBy::Class(_));
            match held {
                HeldBy::Nobody => {
                    let free = own().find(|(_, class)| class.config.max_rate.is_none());
                    assert!(free.is_none(), "{why:?} at {now} in {gate:?}, yet {free:?} may send");
                }
                HeldBy::Class(class) => {
                    let fits = now + long.as_nanos().max(guard) <= gate.end;
                    assert!(!fits, "{why:?} at {now}, yet what is held of {class:?} fits {gate:?}");
                }
                HeldBy::Unknown => {}
            }
        }
        if why == WaitReason::UpperLimit {
            assert!(is_limited, "at {now} nobody is at a limit");
        } else {
            let is_right = least <= until && until <= most;
            assert!(is_right, "waits at {now} until {until}, not for {least} or {most}");
        }
    }

    /// The times on the link of an owner's next packet as far as the scheduler knows it: the least,
    /// and the most.
    fn times<'a>(&self, held: HeldBy, classes: impl Iterator<Item = &'a Class>) -> (Nanos, Nanos) {
        let rate = self.rate.unwrap();
        let time = |packet: &Packet| rate.time_for_ceil(ByteCount::new(packet.bytes().into()));
        match held {
            HeldBy::Nobody => (Nanos::ZERO, Nanos::ZERO),
            HeldBy::Class(class) => {
                let times = self.held_packets(class);
                let times = times.iter().map(time);
                (times.clone().min().unwrap(), times.max().unwrap())
            }
            HeldBy::Unknown => {
                (Nanos::ZERO, classes.flat_map(|class| &class.queue).map(time).max().unwrap())
            }
        }
    }

    /// Whose packet each owner holds: one at most.
    fn held(&self) -> Vec<HeldBy> {
        let owners = self.phases.as_ref().map_or(0, |phases| phases.owners);
        let mut held = vec![HeldBy::Nobody; owners];
        let Some(phases) = &self.phases else { return held };
        for (class, state) in &self.classes {
            let held = &mut held[phases.owner(*class)];
            if self.holds(*class) {
                assert!(
                    !matches!(held, HeldBy::Class(_)),
                    "{class:?} and {held:?} hold a packet of one owner"
                );
                *held = HeldBy::Class(*class);
            } else if *held == HeldBy::Nobody && state.queue.len() > state.packets() {
                *held = HeldBy::Unknown;
            }
        }
        held
    }

    /// Tells whether a packet of a class is seen to be out of its queue: there is room for one
    /// packet more than in the model.
    pub(crate) fn holds(&self, class: ClassId) -> bool {
        let state = &self.classes[&class];
        let told = u64::from(self.scheduler.room(class));
        self.phases.is_some() && !state.queue.is_empty() && told == state.room() + 1
    }

    /// The packets of a class of which one is held; none if none is.
    fn held_packets(&self, class: ClassId) -> Vec<Packet> {
        match self.classes.get(&class) {
            Some(state) if self.holds(class) => {
                let among = if state.by_flow { state.queue.len() } else { 1 };
                state.queue.iter().take(among).copied().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Class {
    fn packets(&self) -> usize {
        self.config.queue.packets as usize
    }

    /// Packets that the queue can take if none is held.
    fn room(&self) -> u64 {
        self.packets().saturating_sub(self.queue.len()) as u64
    }

    /// Tells whether an answer to an offer is right, if one of the packets is out of the queue.
    fn permits(
        &self,
        packet: Packet,
        answer: Result<(), DropReason>,
        shared: bool,
        out: Option<Packet>,
    ) -> bool {
        let sum = |packets: u64, bytes: u64, packet: &Packet| {
            (packets + 1, bytes + u64::from(packet.bytes()))
        };
        let inside = || self.queue.iter().filter(|queued| Some(queued.id) != out.map(|out| out.id));
        let (packets, bytes) = inside().fold((0, 0), |(n, b), packet| sum(n, b, packet));
        let (most, most_bytes) = (self.packets() as u64, self.config.queue.bytes.get());
        let expected = if packets >= most {
            Err(DropReason::QueuePackets)
        } else if bytes + u64::from(packet.bytes()) > most_bytes {
            Err(DropReason::QueueBytes)
        } else {
            Ok(())
        };
        if self.config.queue.flows.is_none() || expected.is_err() || answer.is_ok() {
            return answer == expected;
        }
        // Packets that share a flow for want of a state count as one's.
        let own = inside().filter(|queued| queued.flow() == packet.flow() || shared);
        let (own, own_bytes) = own.fold((0, 0), |(n, b), packet| sum(n, b, packet));
        own > most - packets || own_bytes > most_bytes - bytes
    }

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
