// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits of the cyclic scheduler itself, against a timetable that changes.
//!
//! Each owner has one queue in order of arrival, so that the model knows which packet is next, and
//! which the scheduler holds. The link carries 8 Gbit/s: a byte takes a nanosecond.

use std::collections::VecDeque;

use weir_sched::{
    ClassConfig, ClassId, Cyclic, Dequeue, Fifo, LinkConfig, Packet, Scheduler, WaitReason,
};
use weir_units::{BitRate, Instant, Nanos};

use crate::in_phases;
use crate::random::Random;
use crate::storm::Seed;
use crate::timetable::{Timetable, TimetableGate, TimetablePhase};

/// Goal: the instant of a wait is exactly the first gate that can carry a packet that may be next
/// there, through changes of the cycle, phases too short for a packet or the guard, and gates that
/// go over the end of a cycle. Method: random calls at random instants; each wait against the model
/// in [`GateRun`].
#[test]
fn a_wait_names_the_first_gate_through_changes() {
    let mut waits = GateWaits::default();
    for seed in 0..2_000 {
        let _seed = Seed(seed, "cyclic");
        let mut random = Random::new(seed);
        let mut run = GateRun::new(&mut random);
        for _ in 0..200 {
            run.act(&mut random);
        }
        waits.exact += run.waits.exact;
        waits.never += run.waits.never;
        waits.far += run.waits.far;
        waits.changes += run.waits.changes;
    }
    let GateWaits { exact, never, far, changes } = waits;
    assert!(exact > 50_000 && never > 500 && far > 5_000, "{exact}, {never}, {far}");
    assert!(changes > 10_000, "{changes} waits before a change");
}

/// The waits for a gate that were compared.
#[derive(Default)]
struct GateWaits {
    exact: u32,
    /// Waits for a packet that fits no phase.
    never: u32,
    /// Waits past a gate, too short, of an owner with packets.
    far: u32,
    /// Waits with a cycle to come.
    changes: u32,
}

/// A cycle, its timetable, and what each owner has queued.
struct GateRun {
    scheduler: Cyclic<Fifo>,
    owners: Vec<ClassId>,
    classes: Vec<ClassId>,
    queues: Vec<VecDeque<u64>>,
    /// By owner: its first packet is out of its queue.
    held: Vec<bool>,
    /// The owner to whom time is lent first.
    borrower: usize,
    timetable: Timetable,
    now: u64,
    busy_until: u64,
    waits: GateWaits,
}

impl GateRun {
    fn new(random: &mut Random) -> Self {
        let rate = Some(BitRate::from_mbps(8000));
        let link = LinkConfig { rate, catch_up: Nanos::ZERO, classes_max: 16, packets_max: 1000 };
        let mut scheduler = Cyclic::new(&link, false, Fifo::new);
        let config = ClassConfig::default();
        let mut add = |owner| scheduler.add_class(at(0), owner, &config).unwrap();
        let owners: Vec<ClassId> = (0..OWNERS).map(|_| add(None)).collect();
        let classes = owners.iter().map(|owner| add(Some(*owner))).collect();
        let guard = Nanos::new([0, 0, 300, 1000][random.index(4)]);
        let timetable = Timetable::new(phases(random), guard, random.one_in(3));
        scheduler.set_cycle(at(0), &in_phases::cycle(&timetable, &owners)).unwrap();
        Self {
            scheduler,
            owners,
            classes,
            queues: vec![VecDeque::new(); OWNERS],
            held: vec![false; OWNERS],
            borrower: 0,
            timetable,
            now: 0,
            busy_until: 0,
            waits: GateWaits::default(),
        }
    }

    fn act(&mut self, random: &mut Random) {
        match random.below(40) {
            0 => {
                let free = self.busy_until.max(self.now);
                self.timetable.change(self.now, free, phases(random));
                let cycle = in_phases::cycle(&self.timetable, &self.owners);
                self.scheduler.set_cycle(at(self.now), &cycle).unwrap();
            }
            1..8 => {
                let owner = random.index(OWNERS);
                let packet = Packet::new(0, random.length(), at(self.now));
                let answer = self.scheduler.enqueue(at(self.now), self.classes[owner], packet);
                assert_eq!(answer, Ok(()));
                self.queues[owner].push_back(packet.bytes().into());
            }
            8..12 => self.now += random.below(3_000),
            _ => {
                if let Some(until) = self.pull()
                    && random.one_in(2)
                {
                    // On time, or at any instant before.
                    let early = if random.one_in(2) { random.below(until - self.now) } else { 0 };
                    self.now = until - early;
                }
            }
        }
    }

    /// Pulls once; returns the end of a wait that ends.
    fn pull(&mut self) -> Option<u64> {
        let gate = self.timetable.gate(self.now);
        let answer = self.scheduler.dequeue(at(self.now));
        match answer {
            Dequeue::Send { class, packet, .. } => {
                let owner = self.classes.iter().position(|own| *own == class).unwrap();
                self.busy_until = self.now + u64::from(packet.bytes());
                assert!(self.timetable.may_use(owner, gate) && self.busy_until <= gate.end);
                assert_eq!(self.queues[owner].pop_front(), Some(packet.bytes().into()));
                self.held[owner] = false;
                self.hold_those_asked_before(owner, gate);
                None
            }
            Dequeue::Wait { until, why: WaitReason::LinkBusy } => {
                assert_eq!(until.as_nanos(), self.busy_until);
                Some(self.busy_until)
            }
            Dequeue::Wait { until, why: WaitReason::PhaseClosed } => {
                assert!(self.now >= self.busy_until);
                for owner in self.waiting() {
                    self.held[owner] |= self.timetable.may_use(owner, gate);
                    let fits = self.timetable.may_use(owner, gate) && self.fits(owner, gate.end);
                    assert!(!fits, "{owner} could send at {} in {gate:?}", self.now);
                }
                let first = self.first_gate(|owner| self.known(owner));
                assert_eq!(until.as_nanos(), first.unwrap_or(u64::MAX), "at {}", self.now);
                self.waits.exact += 1;
                self.waits.never += u32::from(first.is_none());
                self.waits.far +=
                    u32::from(first.is_none() || first > self.first_gate(|_| Nanos::ZERO));
                self.waits.changes += u32::from(self.timetable.changes_after(self.now));
                first
            }
            Dequeue::Idle => {
                assert_eq!(self.waiting().count(), 0);
                None
            }
            answer => panic!("{answer:?}"),
        }
    }

    /// If time is lent, the gate's owner and those before in turn were asked, too, and had
    /// nothing that fits.
    fn hold_those_asked_before(&mut self, sender: usize, gate: TimetableGate) {
        if gate.owner == Some(sender) {
            return;
        }
        let turns = (self.borrower..OWNERS).chain(0..self.borrower);
        let before = turns.take_while(|owner| *owner != sender).chain(gate.owner);
        for owner in before.filter(|owner| !self.queues[*owner].is_empty()).collect::<Vec<_>>() {
            self.held[owner] = true;
            assert!(!self.fits(owner, gate.end), "{sender} sends before {owner}");
        }
        self.borrower = sender + 1;
    }

    fn waiting(&self) -> impl Iterator<Item = usize> + use<> {
        let waiting = (0..OWNERS).filter(|owner| !self.queues[*owner].is_empty());
        waiting.collect::<Vec<_>>().into_iter()
    }

    /// Tells whether an owner's first packet could leave before the end of the gate.
    fn fits(&self, owner: usize, end: u64) -> bool {
        let guard = self.timetable.guard.as_nanos();
        self.queues[owner].front().is_some_and(|bytes| self.now + guard.max(*bytes) <= end)
    }

    /// The time of an owner's next packet as far as the scheduler knows.
    fn known(&self, owner: usize) -> Nanos {
        let known = self.queues[owner].front().filter(|_| self.held[owner]);
        known.map_or(Nanos::ZERO, |bytes| Nanos::new(*bytes))
    }

    fn first_gate(&self, time: impl Fn(usize) -> Nanos) -> Option<u64> {
        let first = |owner| self.timetable.first(self.now, owner, time(owner));
        self.waiting().filter_map(first).min()
    }
}

/// Phases of two owners at least, many shorter than a long frame; the last may be nobody's.
fn phases(random: &mut Random) -> Vec<TimetablePhase> {
    let mut owners = vec![Some(0), Some(1)];
    for _ in 0..random.below(5) {
        let at = random.index(owners.len() + 1);
        owners.insert(at, Some(random.index(OWNERS)));
    }
    if random.one_in(2) {
        owners.push(None);
    }
    let phase = |owner| TimetablePhase { owner, length: random.between(50, 2_500) };
    owners.into_iter().map(phase).collect()
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const OWNERS: usize = 3;
