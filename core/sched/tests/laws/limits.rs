// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When packets leave: upper limits, exact waits, work conservation, pacing.

use weir_sched::{ClassConfig, ClassId, Dequeue, LinkConfig, QueueConfig, WaitReason};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::audit::Audit;
use crate::random::Random;
use crate::storm::{ANY, Answer, Climate, Manner, Seed, run, storm};
use crate::subject::{Order, Subject};

/// Goal: at the instant named a packet comes, and 1 ns before none. Method: storms in which each
/// wait is waited for, checked by `Audit::pull_patiently`.
pub(crate) fn waits_are_exact(subject: &Subject) {
    let mut limited = 0;
    for seed in 0..300 {
        let _seed = Seed(seed, subject.name);
        let steps = storm(seed, Climate { clock_goes_back: false, ..ANY });
        let link = LinkConfig { rate: None, ..crate::storm::link() };
        let manner = Manner { patient: true, ..Manner::default() };
        for answer in run(subject, &steps, &link, manner) {
            let wait =
                matches!(answer, Answer::Pulled(Dequeue::Wait { why: WaitReason::UpperLimit, .. }));
            limited += usize::from(wait);
        }
        let paced = run_paced_storm(subject, seed);
        assert!(paced > 0, "nothing was sent");
    }
    assert_eq!(limited > 100, subject.promises.max_rate, "{limited} waits for a limit");
}

/// Runs the storm on a link with a rate, behind its clock; returns the packets sent.
fn run_paced_storm(subject: &Subject, seed: u64) -> usize {
    let steps = storm(seed, Climate { clock_goes_back: false, ..ANY });
    let manner = Manner { patient: true, ..Manner::default() };
    let answers = run(&subject.paced(), &steps, &crate::storm::link(), manner);
    let sent = |answer: &&Answer| matches!(answer, Answer::Pulled(Dequeue::Send { .. }));
    answers.iter().filter(sent).count()
}

/// Goal: `sent ≤ burst + rate · T` in every window, whatever else goes on; what was sent elsewhere
/// is charged too. Method: a limited class with random pauses, others beside it; the worst window
/// by a running minimum.
pub(crate) fn no_window_exceeds_the_limit(subject: &Subject) {
    if !subject.promises.max_rate {
        return;
    }
    for seed in 0..40 {
        let _seed = Seed(seed, subject.name);
        let mut random = Random::new(seed);
        let (rate, burst) = (random.between(100, 4000), random.between(1518, 9000));
        // A packet that was held leaves with those that its limit allows by then.
        let held = if subject.phases.is_some() { 1518 } else { 0 };
        let mut audit = Audit::new(subject, &link());
        let limited = audit.add(at(0), &limited(rate, burst));
        let other = audit.add(at(0), &ClassConfig { weight: 3, ..unlimited() });
        // In bits · 1000: at `rate` Mbit/s a nanosecond is worth `rate` of these.
        let (mut sent, mut least, mut charged) = (0, i128::MAX, 0);
        let mut now = 0;
        for _ in 0..4000 {
            now += random.below(400);
            if random.one_in(200) {
                now += random.below(100_000);
            }
            if random.one_in(100) {
                let bytes = random.below(3000);
                audit.charge(at(now), limited, bytes);
                charged += i128::from(bytes) * 8000;
            }
            let class = if random.one_in(3) { other } else { limited };
            audit.offer(at(now), class, (random.length(), 0), false);
            if let Dequeue::Send { class, packet, .. } = audit.pull(at(now))
                && class == limited
            {
                let earned = i128::from(now) * i128::from(rate);
                least = least.min(sent - earned);
                sent += i128::from(packet.bytes()) * 8000;
                let most = sent - earned - least;
                assert!(most <= i128::from(burst + held) * 8000, "{most} in a window");
                // A charge may come on top of a bucket just emptied.
                let total = sent + charged - earned;
                assert!(total <= i128::from(burst + held + 6000) * 8000, "{total} with charges");
            }
        }
        assert!(sent > 8000 * 3000, "the limited class sent {sent}");
    }
}

/// Goal: a backlogged class at its limit gets all of it. Method: pulled at the instants named, in
/// any window `sent ≥ rate · T` less one packet.
pub(crate) fn the_limit_is_reached(subject: &Subject) {
    if !subject.promises.max_rate {
        return;
    }
    for rate in [10, 333, 997, 4000] {
        let mut random = Random::new(rate);
        let mut audit = Audit::new(subject, &link());
        let class = audit.add(at(0), &limited(rate, 3036));
        let (mut now, mut sent, mut most) = (0, 0, i128::MIN);
        for _ in 0..2000 {
            while audit.queued(class) < 3 {
                audit.offer(at(now), class, (random.length(), 0), false);
            }
            match audit.pull(at(now)) {
                Dequeue::Send { packet, .. } => {
                    sent += i128::from(packet.bytes()) * 8000;
                    let ahead = sent - i128::from(now) * i128::from(rate);
                    most = most.max(ahead);
                    // A nanosecond's worth for the instant that is rounded up.
                    let behind = most - ahead;
                    assert!(behind <= 1518 * 8000 + i128::from(rate), "{behind} behind");
                }
                Dequeue::Wait { until, .. } => now = until.as_nanos(),
                answer => panic!("{answer:?} from a backlogged class"),
            }
        }
        assert!(sent > 500 * 8000 * 300);
    }
}

/// Goal: without limits, whoever may send does: no wait, at whatever rate the link pulls. Method:
/// storms without limits, on a link that the scheduler believes to be slow; on one without a rate
/// for the scheduler that knows it.
pub(crate) fn work_is_conserved(subject: &Subject) {
    let mut link = crate::storm::link();
    if !subject.promises.conserves_work {
        link.rate = None;
    }
    for seed in 0..100 {
        let _seed = Seed(seed, subject.name);
        let climate = Climate { limits: false, changes: link.rate.is_some(), ..ANY };
        for answer in run(subject, &storm(seed, climate), &link, Manner::default()) {
            assert!(!matches!(answer, Answer::Pulled(Dequeue::Wait { .. })), "{answer:?}");
        }
    }
}

/// Goal: the bound on idleness that WRR states, and no wait at all for the others. Method: a link
/// that sends four times as fast as configured. A wait ends when the last packet would have left
/// at the configured rate; at that rate the link never idles.
pub(crate) fn a_turn_idles_for_one_packet_at_most(subject: &Subject) {
    for faster in [1, 4] {
        let mut random = Random::new(faster);
        let mut audit = Audit::new(subject, &link());
        let classes: Vec<ClassId> =
            (1..4).map(|weight| audit.add(at(0), &ClassConfig { weight, ..unlimited() })).collect();
        let (mut now, mut last_end, mut held, mut packets) = (0, 0, 0, 0);
        while packets < 2000 {
            let class = classes[random.index(3)];
            if random.one_in(2) || audit.backlog().packets == 0 {
                audit.offer(at(now), class, (random.length(), 0), false);
            }
            match audit.pull(at(now)) {
                Dequeue::Send { packet, .. } => {
                    packets += 1;
                    // 1 byte a nanosecond as configured.
                    last_end = now + u64::from(packet.bytes());
                    now += u64::from(packet.bytes()) / faster;
                }
                Dequeue::Wait { until, why } => {
                    assert_eq!(until.as_nanos(), last_end, "waits for the last packet, no more");
                    assert!(faster > 1, "idles at the configured rate: {why:?}");
                    held += u32::from(why == WaitReason::TurnHeld);
                    now = until.as_nanos();
                }
                Dequeue::Idle => now += 50,
                answer @ Dequeue::Dropped { .. } => panic!("{answer:?}"),
            }
        }
        assert_eq!(held > 0, faster > 1 && subject.promises.order == Order::Rounds, "{held}");
    }
}

/// Goal: behind the link's clock, no more than `rate · (T + catch_up)` and a packet leave in any
/// window, and lateness within `catch_up` costs nothing. Method: a flood, pulled up to 8 µs late
/// with 10 µs to catch up, at a rate at which no packet ends on a nanosecond.
pub(crate) fn a_paced_link_is_never_faster_nor_idle(subject: &Subject) {
    let rate = 7_300_000_003;
    let catch_up = Nanos::from_micros(10);
    let link = LinkConfig { rate: Some(BitRate::from_bps(rate)), catch_up, ..link() };
    let mut random = Random::new(3);
    let mut audit = Audit::new(&subject.paced(), &link);
    let classes = [1, 2].map(|weight| audit.add(at(0), &ClassConfig { weight, ..unlimited() }));
    // In bits · 10⁹.
    let unit = 8_000_000_000;
    let (mut now, mut sent, mut least) = (5000, 0, i128::MAX);
    let begin = i128::from(now) * i128::from(rate);
    for _ in 0..20_000 {
        for class in classes {
            while audit.queued(class) < 3 {
                audit.offer(at(now), class, (random.length(), 0), false);
            }
        }
        match audit.pull(at(now)) {
            Dequeue::Send { packet, .. } => {
                let due = i128::from(now) * i128::from(rate);
                least = least.min(sent - due);
                sent += i128::from(packet.bytes()) * unit;
                let most = sent - due - least;
                assert!(most <= i128::from(rate) * 10_000 + 1518 * unit, "{most} in a window");
                let behind = due - begin - sent;
                assert!(behind <= i128::from(rate) * 8_001, "{behind} behind");
            }
            Dequeue::Wait { until, .. } => now = until.as_nanos() + random.below(8000),
            answer => panic!("{answer:?} under a flood"),
        }
    }
}

fn limited(mbps: u64, burst: u64) -> ClassConfig {
    let max_rate = Some(BitRate::from_mbps(mbps));
    ClassConfig { max_rate, burst: ByteCount::new(burst), ..unlimited() }
}

fn unlimited() -> ClassConfig {
    let queue =
        QueueConfig { packets: 50, bytes: ByteCount::new(100_000), codel: None, flows: None };
    ClassConfig { queue, ..ClassConfig::default() }
}

fn link() -> LinkConfig {
    let rate = Some(BitRate::from_mbps(8000));
    LinkConfig { rate, catch_up: Nanos::ZERO, classes_max: 16, packets_max: 1000 }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}
