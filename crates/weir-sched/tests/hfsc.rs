// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HFSC: what its curves promise, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test; the lint spares only functions marked so")]

mod support;

use support::testbed::{Testbed, frame_nanos};
use weir_sched::{ClassConfig, ClassId, Dequeue, Hfsc, Packet, Scheduler, WaitReason};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// Goal: equal weights share equally whatever the packet sizes. Method: two flooding classes, one
/// with 64-byte and one with 1500-byte packets, 1 s at 1 Gb/s. The bound is that of start-time fair
/// queueing for equal weights: one longest packet of each.
#[test]
fn two_flooding_classes_share_within_a_packet_of_each() {
    let mut bench = Testbed::new(BitRate::from_mbps(1000));
    let a = bench.add(None, &ClassConfig::default());
    let b = bench.add(None, &ClassConfig::default());
    bench.flood(a, 64);
    bench.flood(b, 1500);
    bench.run(Nanos::from_secs(1));
    let (a, b) = (bench.sent(a), bench.sent(b));
    assert!(a.abs_diff(b) <= 1564, "{a} and {b} bytes");
    assert!(a + b >= 125_000_000 - 1500, "the link was kept busy: {} bytes", a + b);
}

/// Goal: weights hold at every level, and what one leaf leaves goes to its siblings first. Method:
/// two slices 3:1; in the first, leaves 2:1:1 of which the last offers nothing.
#[test]
fn what_a_leaf_leaves_goes_to_its_siblings() {
    let weight = |weight| ClassConfig { weight, ..ClassConfig::default() };
    let mut bench = Testbed::new(BitRate::from_mbps(1000));
    let slices = [bench.add(None, &weight(3)), bench.add(None, &weight(1))];
    let leaves: Vec<ClassId> =
        [2, 1, 1].into_iter().map(|w| bench.add(Some(slices[0]), &weight(w))).collect();
    let alone = bench.add(Some(slices[1]), &weight(7));
    for leaf in [leaves[0], leaves[1], alone] {
        bench.flood(leaf, 1000);
    }
    bench.run(Nanos::from_secs(1));
    // 125 MB: 3/4 to the first slice, of it 2/3 and 1/3; a packet or two of each level's rounding.
    for (leaf, expected) in
        [(leaves[0], 62_500_000), (leaves[1], 31_250_000), (leaves[2], 0), (alone, 31_250_000u64)]
    {
        let sent = bench.sent(leaf);
        assert!(sent.abs_diff(expected) <= 3000, "{leaf:?}: {sent}, expected {expected}");
    }
}

/// Goal: `min_rate` is a floor whatever the weights. Method: 10 % against ten floods of weight
/// 1000, in every window of 10 ms.
#[test]
fn a_minimum_holds_against_floods_of_any_weight() {
    let mut bench = Testbed::new(BitRate::from_mbps(100));
    let min_rate = BitRate::from_mbps(10);
    let guarded = bench.add(None, &ClassConfig { min_rate, ..ClassConfig::default() });
    bench.flood(guarded, 1500);
    for _ in 0..10 {
        let class = bench.add(None, &ClassConfig { weight: 1000, ..ClassConfig::default() });
        bench.flood(class, 64);
    }
    let mut before = 0;
    for window in 0..100 {
        bench.run(Nanos::from_millis(10));
        let sent = bench.sent(guarded) - before;
        before += sent;
        assert!(sent + 1500 >= 12_500, "window {window}: {sent} bytes");
    }
    assert!(before + 1500 >= 1_250_000, "{before} bytes in 1 s");
}

/// Goal: the upper limit holds in every window and is reached. Method: 1 Mb/s to 10 Gb/s, 10 s of
/// flooding beside another flood; windows from every packet to every later one by the bucket's own
/// recursion (the most that any window ending here has above the rate).
#[test]
fn an_upper_limit_holds_in_every_window_and_is_reached() {
    for mbps in [1, 10, 100, 999, 10_000] {
        let rate = BitRate::from_mbps(mbps);
        let burst = ByteCount::new(2 * 1518);
        let mut bench = Testbed::new(BitRate::from_mbps(40_000));
        let limited = ClassConfig { max_rate: Some(rate), burst, ..ClassConfig::default() };
        let limited = bench.add(None, &limited);
        let other = bench.add(None, &ClassConfig::default());
        bench.flood(limited, 1500);
        bench.flood(other, 1500);
        bench.watch(limited, rate);
        let time = Nanos::from_millis(if mbps > 1000 { 1000 } else { 10_000 });
        bench.run(time);
        assert!(bench.worst_excess() <= u128::from(burst.get()), "{mbps} Mb/s");
        let sent = bench.sent(limited);
        let expected = rate.bytes_in_floor(time).get();
        assert!(sent + 1500 >= expected, "{mbps} Mb/s: {sent} of {expected}");
    }
}

/// Goal: when everything is limited, the wait is exact. Method: each answer `Wait` is probed one
/// nanosecond before and at its end; limits on a leaf and on the class above it.
#[test]
fn a_wait_for_an_upper_limit_is_exact() {
    let limited = |mbps, burst| ClassConfig {
        max_rate: Some(BitRate::from_mbps(mbps)),
        burst: ByteCount::new(burst),
        ..ClassConfig::default()
    };
    let mut hfsc = Hfsc::new(&support::testbed::unpaced());
    let start = Instant::ZERO;
    let slice = hfsc.add_class(start, None, &limited(7, 3000)).unwrap();
    let leaf = hfsc.add_class(start, Some(slice), &limited(5, 1000)).unwrap();
    let free = hfsc.add_class(start, Some(slice), &ClassConfig::default()).unwrap();
    let mut now = start;
    for id in 0..200 {
        hfsc.enqueue(now, leaf, Packet::new(id, 700 + id, now)).unwrap();
        hfsc.enqueue(now, free, Packet::new(id, 300 + id, now)).unwrap();
    }
    let mut waits = 0;
    loop {
        match hfsc.dequeue(now) {
            Dequeue::Send { .. } => (),
            Dequeue::Wait { until, why } => {
                assert_eq!(why, WaitReason::UpperLimit);
                let before = Instant::from_nanos(until.as_nanos() - 1);
                assert_eq!(hfsc.dequeue(before), Dequeue::Wait { until, why });
                assert_eq!(hfsc.clone().dequeue(before), Dequeue::Wait { until, why });
                assert!(matches!(hfsc.clone().dequeue(until), Dequeue::Send { .. }));
                now = until;
                waits += 1;
            }
            other => {
                assert_eq!(other, Dequeue::Idle);
                break;
            }
        }
    }
    assert!(waits > 300, "it was mostly waiting: {waits}");
}

/// Goal: low delay beside a flood, whatever the flood's guarantee and weight. Method: 5 to 45 % of
/// 1 Gb/s from a class that is promised that rate and a frame of delay, arriving at every phase,
/// beside a flood promised the rest to 95 %. By the paper the start of a packet waits one frame for
/// its own deadline less its own length, and one for what is on the wire; two are the bound asked.
#[test]
fn a_well_behaved_class_waits_two_frames_at_most_beside_a_flood() {
    let link = BitRate::from_mbps(1000);
    let frame = frame_nanos(link, 1518);
    for share in [5, 30, 45] {
        let mut bench = Testbed::new(link);
        let calm = ClassConfig {
            min_rate: BitRate::from_mbps(share * 10),
            delay: Some(Nanos::new(frame)),
            ..ClassConfig::default()
        };
        let calm = bench.add(None, &calm);
        let flood = ClassConfig {
            min_rate: BitRate::from_mbps(1000 - share * 10 - 50),
            weight: 1000,
            ..ClassConfig::default()
        };
        let flood = bench.add(None, &flood);
        bench.flood(flood, 1518);
        bench.arrive_every(calm, 1518, frame * 100 / share + 7);
        bench.run(Nanos::from_secs(1));
        assert!(bench.delays(calm).len() > 1000);
        let worst = bench.delays(calm).iter().max().copied().unwrap();
        assert!(worst <= 2 * frame, "{share} %: {worst} ns, frame {frame} ns");
    }
}
