// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits of the cyclic scheduler itself, against a timetable that changes.
//!
//! Each owner has one queue in order of arrival, so that the model knows which packet is next, and
//! which the scheduler holds. A byte takes a number of thirds of a nanosecond, in which the model
//! counts the link's time, so that frames end between nanoseconds.

use std::collections::VecDeque;

use weir_sched::{
    ClassConfig, ClassId, Cyclic, Dequeue, Fifo, LinkConfig, Packet, PhaseCounters, Scheduler,
    WaitReason,
};
use weir_units::{BitRate, Instant, Nanos};

use crate::in_phases;
use crate::random::Random;
use crate::storm::Seed;
use crate::timetable::{Timetable, TimetableGate, TimetablePhase};

/// Goal: the instant of a wait is exactly the first gate that can carry a packet that may be next
/// there, and a frame leaves exactly when it fits the gate that is open: through changes of the
/// cycle and the rate, cycles of one gate, owners that leave, phases too short for a packet or the
/// guard, and gates that go over the end of a cycle. Gates are met and missed as the model counts.
/// Method: random calls at random instants; each answer against the model in [`GateRun`].
#[test]
fn a_wait_names_the_first_gate_through_changes() {
    let mut seen = GateCases::default();
    for seed in 0..2_000 {
        let _seed = Seed(seed, "cyclic");
        let mut random = Random::new(seed);
        let mut run = GateRun::new(&mut random);
        for _ in 0..200 {
            run.act(&mut random);
        }
        let PhaseCounters { met, missed, .. } = run.phases;
        run.seen[6..].copy_from_slice(&[met, missed]);
        for (sum, cases) in seen.iter_mut().zip(run.seen) {
            *sum += cases;
        }
    }
    let [waits, never, far, changes, endless, exact, met, missed] = seen;
    assert!(waits > 50_000 && never > 500 && far > 5_000, "{seen:?}");
    assert!(changes > 10_000 && endless > 1_000 && exact > 300, "{seen:?}");
    assert!(met > 10_000 && missed > 10_000, "{seen:?}");
}

/// How often each case came: waits for a gate, those of them for a packet that fits no phase, past
/// a gate that is too short, and with a cycle to come; frames in a gate without an end, and those
/// that end with their gate; gates met, and missed.
type GateCases = [u64; 8];

/// A cycle, its timetable, and what each owner has queued.
struct GateRun {
    scheduler: Cyclic<Fifo>,
    owners: Vec<ClassId>,
    classes: Vec<ClassId>,
    queues: Vec<VecDeque<u64>>,
    /// By owner: since when it has had packets.
    since: Vec<u64>,
    /// By owner: its first packet is out of its queue.
    held: Vec<bool>,
    /// The owner to whom time is lent first.
    borrower: usize,
    timetable: Timetable,
    now: u64,
    /// Thirds of a nanosecond that a byte takes.
    byte: u64,
    /// When the link is free, in thirds of a nanosecond.
    free: u64,
    /// The gate at the last call, from its start, and whether it was used.
    gate: TimetableGate,
    is_met: bool,
    phases: PhaseCounters,
    /// Missed gates that the scheduler need not have counted.
    uncounted: u64,
    seen: GateCases,
}

impl GateRun {
    fn new(random: &mut Random) -> Self {
        let byte = byte_time(random);
        let rate = Some(rate(byte));
        let link = LinkConfig { rate, catch_up: Nanos::ZERO, classes_max: 16, packets_max: 1000 };
        let mut scheduler = Cyclic::new(&link, false, Fifo::new);
        let config = ClassConfig::default();
        let mut add = |owner| scheduler.add_class(at(0), owner, &config).unwrap();
        let owners: Vec<ClassId> = (0..OWNERS).map(|_| add(None)).collect();
        let classes = owners.iter().map(|owner| add(Some(*owner))).collect();
        let guard = Nanos::new([0, 0, 300, 1000][random.index(4)]);
        let timetable = Timetable::new(phases(random), guard, random.one_in(3));
        // Cycles count from time 0, but all is closed until the first call.
        let now = random.below(20_000);
        scheduler.set_cycle(at(now), &in_phases::cycle(&timetable, &owners)).unwrap();
        Self {
            scheduler,
            owners,
            classes,
            queues: vec![VecDeque::new(); OWNERS],
            since: vec![0; OWNERS],
            held: vec![false; OWNERS],
            borrower: 0,
            gate: timetable.gate(now),
            timetable,
            now,
            byte,
            free: 0,
            is_met: false,
            phases: PhaseCounters::default(),
            uncounted: 0,
            seen: GateCases::default(),
        }
    }

    fn act(&mut self, random: &mut Random) {
        match random.below(80) {
            0..4 => self.change(random),
            4 => self.replace_owner(random.index(OWNERS)),
            5 => {
                self.byte = byte_time(random);
                self.scheduler.set_link_rate(at(self.now), Some(rate(self.byte)));
                self.free = self.busy_until() * THIRDS;
            }
            6..18 => {
                let bytes = self.length(random);
                self.enqueue(random.index(OWNERS), bytes);
            }
            18..25 => self.now += random.below(3_000),
            25 => self.now += random.below(200_000),
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
        let PhaseCounters { met, missed, late } = self.scheduler.phase_counters();
        let expected = &self.phases;
        assert_eq!((met, late), (expected.met, expected.late), "met at {}", self.now);
        let least = expected.missed - self.uncounted;
        assert!((least..=expected.missed).contains(&missed), "missed at {}: {missed}", self.now);
        (self.phases.missed, self.uncounted) = (missed, 0);
    }

    /// The length of a packet; one in three just fills the rest of the gate or a phase, or is a
    /// byte too long for it.
    fn length(&self, random: &mut Random) -> u32 {
        let (phases, rest) = (self.timetable.phases(), self.gate.end.saturating_sub(self.now));
        let time = if random.one_in(2) { rest } else { phases[random.index(phases.len())].length };
        let filling = time.min(2_500) * THIRDS / self.byte + random.below(2);
        match random.below(3) {
            0 => u32::try_from(filling).unwrap(),
            1 => random.length(),
            _ => u32::try_from(random.between(64, 400)).unwrap(),
        }
    }

    fn change(&mut self, random: &mut Random) {
        self.pass();
        let free = self.busy_until().max(self.now);
        self.timetable.change(self.now, free, phases(random));
        self.timetable.guard = Nanos::new([0, 0, 300, 1000][random.index(4)]);
        self.timetable.borrow = random.one_in(3);
        let cycle = in_phases::cycle(&self.timetable, &self.owners);
        self.scheduler.set_cycle(at(self.now), &cycle).unwrap();
        let gate = self.timetable.gate(self.now);
        if gate.owner == self.gate.owner {
            self.gate.end = gate.end;
        } else {
            (self.gate, self.is_met) = (gate, false);
        }
    }

    /// An owner leaves with its packets; one without phases takes its place.
    fn replace_owner(&mut self, owner: usize) {
        self.pass();
        let (now, mut orphans) = (at(self.now), VecDeque::new());
        let mut orphan = |packet: Packet| orphans.push_back(packet.bytes().into());
        self.scheduler.remove_class(now, self.classes[owner], &mut orphan).unwrap();
        self.scheduler.remove_class(now, self.owners[owner], &mut |_| unreachable!()).unwrap();
        assert_eq!(orphans, self.queues[owner], "an owner hands its packets back");
        self.queues[owner].clear();
        self.held[owner] = false;
        self.timetable.close(owner);
        let TimetableGate { owner: of, end, .. } = self.timetable.gate(self.now);
        (self.gate.owner, self.gate.end) = (of, end);
        let config = ClassConfig::default();
        self.owners[owner] = self.scheduler.add_class(now, None, &config).unwrap();
        let parent = Some(self.owners[owner]);
        self.classes[owner] = self.scheduler.add_class(now, parent, &config).unwrap();
    }

    fn enqueue(&mut self, owner: usize, bytes: u32) {
        let packet = Packet::new(0, bytes, at(self.now));
        let answer = self.scheduler.enqueue(at(self.now), self.classes[owner], packet);
        assert_eq!(answer, Ok(()));
        if self.queues[owner].is_empty() {
            self.since[owner] = self.now;
        }
        self.queues[owner].push_back(bytes.into());
    }

    /// Moves the model's gate to the present, and counts those that were not used. Gates before the
    /// last two cycles may go uncounted.
    fn pass(&mut self) {
        let recent = self.now.saturating_sub(2 * self.timetable.length());
        while self.now >= self.gate.end {
            let is_missed = !self.is_met && self.had_packets();
            self.phases.missed += u64::from(is_missed);
            self.uncounted += u64::from(is_missed && self.gate.start < recent);
            self.gate = self.timetable.gate(self.gate.end);
            self.is_met = false;
        }
    }

    /// Tells whether the owner of the gate has packets since it opened.
    fn had_packets(&self) -> bool {
        let had =
            |owner: usize| !self.queues[owner].is_empty() && self.since[owner] <= self.gate.start;
        self.gate.owner.is_some_and(had)
    }

    /// Pulls once; returns the end of a wait that ends.
    fn pull(&mut self) -> Option<u64> {
        self.pass();
        if !self.is_met && self.had_packets() {
            self.phases.met += 1;
            self.phases.late = Nanos::new(self.now - self.gate.start);
        }
        // A fraction of a nanosecond is not carried into another gate.
        if !self.is_met {
            self.free = self.busy_until() * THIRDS;
        }
        self.is_met = true;
        let gate = self.gate;
        match self.scheduler.dequeue(at(self.now)) {
            Dequeue::Send { class, packet, .. } => {
                let owner = self.classes.iter().position(|own| *own == class).unwrap();
                assert!(self.now >= self.busy_until(), "the link is busy at {}", self.now);
                assert!(self.timetable.may_use(owner, gate) && self.fits(owner), "{gate:?}");
                self.free = self.end(packet.bytes().into());
                assert_eq!(self.queues[owner].pop_front(), Some(packet.bytes().into()));
                self.held[owner] = false;
                self.hold_those_asked_before(owner);
                self.seen[4] += u64::from(gate.end == u64::MAX);
                self.seen[5] += u64::from(gate.end == self.busy_until());
                None
            }
            Dequeue::Wait { until, why: WaitReason::LinkBusy } => {
                assert_eq!(until.as_nanos(), self.busy_until());
                Some(until.as_nanos())
            }
            Dequeue::Wait { until, why: WaitReason::PhaseClosed } => {
                assert!(self.now >= self.busy_until());
                for owner in self.waiting() {
                    self.held[owner] |= self.timetable.may_use(owner, gate);
                    let fits = self.timetable.may_use(owner, gate) && self.fits(owner);
                    assert!(!fits, "{owner} could send at {} in {gate:?}", self.now);
                }
                let first = self.first_gate(|owner| self.known(owner));
                assert_eq!(until.as_nanos(), first.unwrap_or(u64::MAX), "at {}", self.now);
                let is_far = first.is_none() || first > self.first_gate(|_| Nanos::ZERO);
                let cases = [true, first.is_none(), is_far, self.timetable.changes_after(self.now)];
                for (seen, case) in self.seen.iter_mut().zip(cases) {
                    *seen += u64::from(case);
                }
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
    fn hold_those_asked_before(&mut self, sender: usize) {
        if self.gate.owner == Some(sender) {
            return;
        }
        let turns = (self.borrower..OWNERS).chain(0..self.borrower);
        let before = turns.take_while(|owner| *owner != sender).chain(self.gate.owner);
        for owner in before.filter(|owner| !self.queues[*owner].is_empty()).collect::<Vec<_>>() {
            self.held[owner] = true;
            assert!(!self.fits(owner), "{sender} sends before {owner}");
        }
        self.borrower = sender + 1;
    }

    fn waiting(&self) -> impl Iterator<Item = usize> + use<> {
        let waiting = (0..OWNERS).filter(|owner| !self.queues[*owner].is_empty());
        waiting.collect::<Vec<_>>().into_iter()
    }

    /// Tells whether an owner's first packet could leave before the end of the gate.
    fn fits(&self, owner: usize) -> bool {
        let ends = |bytes: &u64| self.end(*bytes).div_ceil(THIRDS) <= self.gate.end;
        let is_open = self.now.saturating_add(self.timetable.guard.as_nanos()) <= self.gate.end;
        is_open && self.queues[owner].front().is_some_and(ends)
    }

    /// The end of a frame that begins now, in thirds of a nanosecond.
    fn end(&self, bytes: u64) -> u64 {
        let is_on_time = self.now == self.busy_until();
        let start = if is_on_time { self.free } else { self.now * THIRDS };
        start + bytes * self.byte
    }

    /// When the link is free, rounded up to a nanosecond.
    fn busy_until(&self) -> u64 {
        self.free.div_ceil(THIRDS)
    }

    /// The time of an owner's next packet as far as the scheduler knows.
    fn known(&self, owner: usize) -> Nanos {
        let known = self.queues[owner].front().filter(|_| self.held[owner]);
        known.map_or(Nanos::ZERO, |bytes| Nanos::new((bytes * self.byte).div_ceil(THIRDS)))
    }

    fn first_gate(&self, time: impl Fn(usize) -> Nanos) -> Option<u64> {
        let first = |owner| self.timetable.first(self.now, owner, time(owner));
        self.waiting().filter_map(first).min()
    }
}

/// Phases of two owners at least, or of one; many shorter than a long frame. The last may be
/// nobody's.
fn phases(random: &mut Random) -> Vec<TimetablePhase> {
    let phase = |owner, length| TimetablePhase { owner, length };
    if random.one_in(6) {
        return vec![phase(Some(random.index(OWNERS)), random.between(50, 1_000))];
    }
    let mut owners = vec![Some(0), Some(1)];
    for _ in 0..random.below(5) {
        let at = random.index(owners.len() + 1);
        owners.insert(at, Some(random.index(OWNERS)));
    }
    if random.one_in(2) {
        owners.push(None);
    }
    owners.into_iter().map(|owner| phase(owner, random.between(50, 2_500))).collect()
}

/// Thirds of a nanosecond that a byte takes.
fn byte_time(random: &mut Random) -> u64 {
    [3, 3, 4, 8][random.index(4)]
}

/// The rate at which a byte takes so many thirds of a nanosecond.
fn rate(byte: u64) -> BitRate {
    BitRate::from_mbps(8_000 * THIRDS / byte)
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const OWNERS: usize = 3;
const THIRDS: u64 = 3;
