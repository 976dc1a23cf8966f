// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cyclic scheduler by hand: a link of 8 Mb/s, so that a byte takes 1 µs.

#![expect(clippy::unwrap_used, reason = "tests; the lint spares only functions marked so")]

use weir_sched::{
    Backlog, ClassConfig, ClassId, ConfigError, CycleConfig, Cyclic, Dequeue, Fifo, LinkConfig,
    Packet, Phase, Scheduler, WaitReason, Wrr,
};
use weir_units::{BitRate, Instant, Nanos};

/// Lateness that is made up for.
const CATCH_UP: Nanos = Nanos::from_micros(50);

const fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// Owners with one class each.
struct Rig<S = Fifo> {
    scheduler: Cyclic<S>,
    owners: Vec<ClassId>,
    classes: Vec<ClassId>,
}

impl Rig {
    /// Phases of owners by number, in µs.
    fn new(owners: usize, length: u64, phases: &[(usize, u64)]) -> Self {
        Self::of(Fifo::new, owners, length, phases)
    }
}

impl<S: Scheduler> Rig<S> {
    /// Makes the rig with another kind of scheduler for the owners.
    fn of(make: fn(&LinkConfig) -> S, owners: usize, length: u64, phases: &[(usize, u64)]) -> Self {
        let link = LinkConfig {
            rate: Some(BitRate::from_mbps(8)),
            catch_up: CATCH_UP,
            classes_max: 16,
            packets_max: 64,
        };
        let mut rig = Self {
            scheduler: Cyclic::new(&link, false, make),
            owners: Vec::new(),
            classes: Vec::new(),
        };
        (0..owners).for_each(|_| rig.add_owner(0));
        rig.set(at(0), &rig.cycle(length, phases, false)).unwrap();
        rig
    }

    fn add_owner(&mut self, now: u64) {
        let config = ClassConfig::default();
        let owner = self.scheduler.add_class(at(now), None, &config).unwrap();
        self.owners.push(owner);
        self.classes.push(self.scheduler.add_class(at(now), Some(owner), &config).unwrap());
    }

    fn remove_owner(&mut self, now: u64, owner: usize) {
        for class in [self.classes[owner], self.owners[owner]] {
            self.scheduler.remove_class(at(now), class, &mut |_| ()).unwrap();
        }
    }

    fn cycle(&self, length: u64, phases: &[(usize, u64)], borrow: bool) -> CycleConfig {
        let phase = |(owner, length): &(usize, u64)| Phase {
            owner: self.owners[*owner],
            length: Nanos::from_micros(*length),
        };
        CycleConfig {
            length: Nanos::from_micros(length),
            phases: phases.iter().map(phase).collect(),
            guard: Nanos::ZERO,
            borrow,
        }
    }

    fn set(&mut self, now: Instant, cycle: &CycleConfig) -> Result<(), ConfigError> {
        self.scheduler.set_cycle(now, cycle)
    }

    fn queue(&mut self, now: u64, owner: usize, bytes: u32) {
        let packet = Packet::new(bytes, bytes, at(now));
        self.scheduler.enqueue(at(now), self.classes[owner], packet).unwrap();
    }

    /// Sends until `end` µs: when each frame began, its owner, its bytes.
    fn run(&mut self, from: u64, end: u64) -> Vec<(u64, usize, u32)> {
        let (mut now, mut sent) = (at(from), Vec::new());
        while now < at(end) {
            match self.scheduler.dequeue(now) {
                Dequeue::Send { class, packet, .. } => {
                    let owner = self.classes.iter().position(|one| *one == class).unwrap();
                    sent.push((now.as_nanos() / 1000, owner, packet.bytes()));
                }
                Dequeue::Wait { until, .. } => {
                    assert!(until > now, "a wait ends later than now");
                    now = until;
                }
                Dequeue::Idle => break,
                Dequeue::Dropped { .. } => unreachable!("nothing is managed here"),
            }
        }
        sent
    }
}

#[test]
fn a_frame_must_fit_the_rest_of_its_phase() {
    let mut rig = Rig::new(2, 300, &[(0, 150), (1, 150)]);
    for _ in 0..3 {
        rig.queue(0, 0, 100);
    }
    rig.queue(0, 1, 150);
    assert_eq!(rig.run(0, 700), [(0, 0, 100), (150, 1, 150), (300, 0, 100), (600, 0, 100)]);
    let closed = Dequeue::Wait { until: at(900), why: WaitReason::PhaseClosed };
    rig.queue(710, 0, 100);
    assert_eq!(rig.scheduler.dequeue(at(710)), closed, "40 of the 150 µs are left");
    // No frame begins within the guard, though it would fit.
    let cycle = rig.cycle(300, &[(0, 150), (1, 150)], false);
    rig.set(at(710), &CycleConfig { guard: Nanos::from_micros(60), ..cycle.clone() }).unwrap();
    rig.queue(720, 0, 50);
    assert_eq!(rig.run(720, 1300), [(900, 0, 100), (1200, 0, 50)]);
    // A frame that fits no phase waits for ever.
    rig.queue(1300, 0, 151);
    let never = Dequeue::Wait { until: Instant::FAR_FUTURE, why: WaitReason::PhaseClosed };
    assert_eq!(rig.run(1300, 1500), []);
    assert_eq!(rig.scheduler.dequeue(at(1510)), never);
}

#[test]
fn adjacent_phases_are_one_gate() {
    let mut rig = Rig::new(2, 300, &[(0, 50), (0, 50), (1, 100), (0, 100)]);
    for _ in 0..4 {
        rig.queue(0, 0, 90);
    }
    rig.queue(0, 1, 60);
    rig.queue(0, 1, 60);
    let sent = [(0, 0, 90), (100, 1, 60), (200, 0, 90), (290, 0, 90), (400, 1, 60), (500, 0, 90)];
    assert_eq!(rig.run(0, 700), sent, "two phases, and over the end of the cycle");
    let mut alone = Rig::new(1, 100, &[(0, 100)]);
    for _ in 0..4 {
        alone.queue(0, 0, 70);
    }
    assert_eq!(alone.run(0, 300), [(0, 0, 70), (70, 0, 70), (140, 0, 70), (210, 0, 70)]);
}

#[test]
fn a_held_packet_counts_and_is_handed_back() {
    let mut rig = Rig::new(2, 300, &[(0, 150), (1, 150)]);
    for bytes in [100, 101, 102] {
        rig.queue(0, 0, bytes);
    }
    assert_eq!(rig.run(0, 120), [(0, 0, 100)]);
    // 101 bytes did not fit and were taken out of the owner's scheduler.
    let class = rig.classes[0];
    let backlog = Backlog { packets: 2, bytes: 203 };
    assert_eq!(rig.scheduler.class_backlog(class), backlog);
    assert_eq!(rig.scheduler.backlog(), backlog);
    let counters = rig.scheduler.counters(class);
    assert_eq!((counters.sent.packets, counters.enqueued.packets), (1, 3));
    assert_eq!(rig.scheduler.head_arrived(class), Some(at(0)));
    let mut back = Vec::new();
    let owner = rig.owners[0];
    assert_eq!(
        rig.scheduler.remove_class(at(130), owner, &mut |_| ()),
        Err(ConfigError::WrongKind(owner))
    );
    rig.scheduler.remove_class(at(130), class, &mut |packet| back.push(packet.id)).unwrap();
    assert_eq!(back, [101, 102], "in order");
    rig.scheduler.remove_class(at(130), owner, &mut |_| ()).unwrap();
    assert_eq!(rig.scheduler.backlog(), Backlog::default());
    assert_eq!(rig.scheduler.dequeue(at(300)), Dequeue::Idle);
}

#[test]
fn a_change_waits_for_the_cycle_and_the_link() {
    let mut rig = Rig::new(2, 300, &[(0, 150), (1, 150)]);
    for owner in [0, 0, 0, 1, 1, 1] {
        rig.queue(0, owner, 100);
    }
    assert_eq!(rig.run(0, 20), [(0, 0, 100)]);
    let swapped = rig.cycle(200, &[(1, 100), (0, 100)], false);
    rig.set(at(20), &swapped).unwrap();
    // Owner 1 ends the old cycle and begins the new one: that is one gate.
    let sent = [(150, 1, 100), (250, 1, 100), (400, 0, 100), (500, 1, 100), (600, 0, 100)];
    assert_eq!(rig.run(100, 700), sent);
    // Gates in one piece: a frame is on the wire across the boundary at which a change would begin.
    let mut rig = Rig::new(2, 100, &[(0, 100)]);
    rig.queue(0, 0, 100);
    rig.queue(0, 1, 10);
    assert_eq!(rig.run(50, 60), [(50, 0, 100)]);
    let other = rig.cycle(100, &[(1, 100)], false);
    rig.set(at(60), &other).unwrap();
    assert_eq!(rig.run(60, 250), [(200, 1, 10)], "not at 100: the frame, begun late, ends at 150");
}

#[test]
fn a_wait_passes_gates_that_are_too_short_and_no_others() {
    let closed = |until| Dequeue::Wait { until: at(until), why: WaitReason::PhaseClosed };
    let mut rig = Rig::new(2, 300, &[(0, 150), (1, 150)]);
    rig.queue(0, 0, 10);
    rig.queue(0, 1, 200);
    assert_eq!(rig.run(0, 200), [(0, 0, 10)]);
    rig.queue(200, 0, 10);
    // The frame of 200 fits neither cycle's phase, but the gate of both: 450 to 700.
    let next = rig.cycle(300, &[(1, 100), (0, 200)], false);
    rig.set(at(310), &next).unwrap();
    assert_eq!(rig.run(310, 320), [(310, 0, 10)]);
    assert_eq!(rig.scheduler.dequeue(at(320)), closed(450));
    rig.queue(320, 0, 10);
    assert_eq!(rig.run(440, 700), [(440, 0, 10), (450, 1, 200)]);
    // Lent gates are passed over, too.
    let mut rig = Rig::new(3, 300, &[(0, 100), (1, 30), (2, 170)]);
    let lent = rig.cycle(300, &[(0, 100), (1, 30), (2, 170)], true);
    rig.set(at(0), &lent).unwrap();
    rig.queue(0, 0, 60);
    rig.queue(0, 0, 60);
    assert_eq!(rig.run(0, 60), [(0, 0, 60)]);
    assert_eq!(rig.scheduler.dequeue(at(60)), closed(130), "30 µs are too short");
    assert_eq!(rig.run(60, 200), [(130, 0, 60)]);
}

#[test]
fn a_cycle_of_one_gate_lasts_into_a_change_that_is_cycles_ahead() {
    let mut rig = Rig::new(2, 100, &[(0, 100)]);
    rig.queue(0, 0, 150);
    rig.queue(0, 0, 80);
    assert_eq!(rig.run(0, 10), [(0, 0, 150)]);
    // The link is busy until 150, so that the change is at 200: owner 0 may send until 250.
    let next = rig.cycle(150, &[(0, 50), (1, 100)], false);
    rig.set(at(60), &next).unwrap();
    assert_eq!(rig.run(60, 300), [(150, 0, 80)]);
}

#[test]
fn phases_of_an_owner_that_leaves_are_lent_as_one_gate() {
    let closed = |until| Dequeue::Wait { until: at(until), why: WaitReason::PhaseClosed };
    let phases = [(0, 100), (1, 50), (2, 50), (1, 40)];
    let mut rig = Rig::new(3, 300, &phases);
    let lent = rig.cycle(300, &phases, true);
    rig.set(at(0), &lent).unwrap();
    rig.queue(0, 0, 20);
    rig.queue(0, 0, 100);
    assert_eq!(rig.run(0, 20), [(0, 0, 20)]);
    assert_eq!(rig.scheduler.dequeue(at(20)), closed(300), "only its own gate is long enough");
    for owner in [1, 2] {
        rig.remove_owner(20, owner);
    }
    assert_eq!(rig.scheduler.dequeue(at(20)), closed(100), "nobody's from 100 to 300");
    assert_eq!(rig.run(20, 300), [(100, 0, 100)]);
}

#[test]
fn lateness_is_made_up_for_inside_its_gate_and_never_past_the_end() {
    let wait = |until, why| Dequeue::Wait { until: at(until), why };
    let mut rig = Rig::new(2, 200, &[(0, 100), (1, 100)]);
    (0..3).for_each(|_| rig.queue(0, 0, 30));
    (0..3).for_each(|_| rig.queue(0, 1, 40));
    let sends = |rig: &mut Rig, now, owner: usize| match rig.scheduler.dequeue(at(now)) {
        Dequeue::Send { class, .. } => assert_eq!(class, rig.classes[owner], "at {now}"),
        answer => panic!("{answer:?} at {now}"),
    };
    sends(&mut rig, 0, 0);
    sends(&mut rig, 50, 0);
    assert_eq!(rig.scheduler.dequeue(at(55)), wait(60, WaitReason::LinkBusy), "20 µs made up for");
    let closed = wait(100, WaitReason::PhaseClosed);
    assert_eq!(rig.scheduler.dequeue(at(75)), closed, "it would end at 105");
    sends(&mut rig, 100, 1);
    sends(&mut rig, 200, 0);
    // The caller comes 70 µs late, from the end of a frame on: not at the cost of this gate.
    sends(&mut rig, 300, 1);
    assert_eq!(rig.scheduler.dequeue(at(300)), wait(340, WaitReason::LinkBusy));
}

#[test]
fn borrowing_fills_what_an_owner_leaves() {
    let mut rig = Rig::new(3, 300, &[(0, 100), (1, 100), (2, 100)]);
    let cycle = rig.cycle(300, &[(0, 100), (1, 100), (2, 100)], true);
    rig.set(at(0), &cycle).unwrap();
    for _ in 0..4 {
        rig.queue(0, 1, 60);
        rig.queue(0, 2, 40);
    }
    // The first gate's owner has nothing. Owners 1 and 2 take turns in it; then each has its own,
    // whose rest goes to who fits.
    let sent = rig.run(0, 300);
    assert_eq!(sent[..4], [(0, 1, 60), (60, 2, 40), (100, 1, 60), (160, 2, 40)]);
    assert!(
        sent.iter().all(|(start, _, bytes)| start / 100 == (start + u64::from(*bytes) - 1) / 100)
    );
    assert_eq!(rig.run(300, 350), [(300, 1, 60)]);
    assert_eq!(rig.scheduler.backlog().packets, 1);
    let gate = Dequeue::Wait { until: at(400), why: WaitReason::PhaseClosed };
    assert_eq!(rig.scheduler.dequeue(at(370)), gate, "a borrower wakes at any owner's gate");
}

/// Goal: a live change of the link's rate reaches the owners' schedulers, those that are there and
/// those that come later. Method: WRR, which counts the time of its packets on the link itself.
#[test]
fn a_new_rate_holds_for_the_owners_too() {
    let mut rig = Rig::of(Wrr::new, 1, 1000, &[(0, 1000)]);
    (0..3).for_each(|_| rig.queue(0, 0, 100));
    assert_eq!(rig.run(0, 150), [(0, 0, 100), (100, 0, 100)]);
    // Ten times as fast once the frame on the link has left.
    rig.scheduler.set_link_rate(at(150), Some(BitRate::from_mbps(80)));
    (0..3).for_each(|_| rig.queue(150, 0, 100));
    let fast = [(200, 0, 100), (210, 0, 100), (220, 0, 100), (230, 0, 100)];
    assert_eq!(rig.run(150, 400), fast);
    rig.add_owner(400);
    let cycle = rig.cycle(1000, &[(1, 1000)], false);
    rig.set(at(400), &cycle).unwrap();
    (0..3).for_each(|_| rig.queue(1000, 1, 100));
    assert_eq!(rig.run(1000, 1500), [(1000, 1, 100), (1010, 1, 100), (1020, 1, 100)]);
}

#[test]
fn punctuality_is_counted() {
    let mut rig = Rig::new(2, 200, &[(0, 100), (1, 100)]);
    for _ in 0..8 {
        rig.queue(0, 0, 10);
        rig.queue(0, 1, 10);
    }
    let _sent = rig.scheduler.dequeue(at(7));
    let counters = rig.scheduler.phase_counters();
    assert_eq!((counters.met, counters.missed, counters.late), (1, 0, Nanos::from_micros(7)));
    // Owner 1 at 100, then nobody asks until within the gate that begins at 300.
    let _sent = rig.scheduler.dequeue(at(100));
    let _sent = rig.scheduler.dequeue(at(303));
    let counters = rig.scheduler.phase_counters();
    assert_eq!((counters.met, counters.missed, counters.late), (3, 1, Nanos::from_micros(3)));
}

#[test]
fn what_cannot_be_is_refused() {
    let mut rig = Rig::new(2, 300, &[(0, 150), (1, 150)]);
    let refused = |rig: &mut Rig, length, phases: &[(usize, u64)]| {
        let cycle = rig.cycle(length, phases, false);
        rig.set(at(0), &cycle).unwrap_err().to_string()
    };
    assert_eq!(refused(&mut rig, 0, &[]), "cycle is 0, must be 1 to 18446744073709551614");
    assert_eq!(refused(&mut rig, 5, &[(0, 0)]), "phase is 0, must be 1 to 5000");
    assert_eq!(refused(&mut rig, 5, &[(0, 4), (1, 2)]), "phases is 6000, must be 0 to 5000");
    let mut cycle = rig.cycle(300, &[], false);
    cycle.phases.push(Phase { owner: rig.classes[0], length: Nanos::new(1) });
    assert_eq!(rig.set(at(0), &cycle), Err(ConfigError::WrongKind(rig.classes[0])));
    cycle.phases[0].owner = ClassId(99);
    assert_eq!(rig.set(at(0), &cycle), Err(ConfigError::NoSuchClass(ClassId(99))));
}
