// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HFSC on two cases that a person can work out on paper; `docs/algorithms/hfsc.md` does.
//!
//! The link carries 8 Gb/s: a byte takes a nanosecond.

use std::fmt::Write;

use weir_sched::{ClassConfig, ClassId, Dequeue, Hfsc, LinkClock, LinkConfig, Packet, Scheduler};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// One line a packet: when it begins, whose it is, its bytes.
fn transcript(classes: &[ClassConfig], packets: &[(u32, u32)]) -> String {
    let link = LinkConfig { rate: None, catch_up: Nanos::ZERO, classes_max: 9, packets_max: 99 };
    let mut hfsc = Hfsc::new(&link);
    for config in classes {
        hfsc.add_class(Instant::ZERO, None, config).unwrap();
    }
    for &(class, bytes) in packets {
        let packet = Packet::new(0, bytes, Instant::ZERO);
        hfsc.enqueue(Instant::ZERO, ClassId(class), packet).unwrap();
    }
    let mut clock = LinkClock::new(BitRate::from_mbps(8000), Nanos::ZERO);
    let (mut now, mut text) = (Instant::ZERO, String::new());
    loop {
        match hfsc.dequeue(now) {
            Dequeue::Send { class, packet, .. } => {
                let name = ["a", "b", "c"][class.0 as usize];
                writeln!(text, "{} {name} {}", now.as_nanos(), packet.bytes()).unwrap();
                clock.sent(now, ByteCount::new(packet.bytes().into()));
                now = clock.busy_until();
            }
            Dequeue::Wait { until, .. } => now = until,
            _ => return text,
        }
    }
}

#[test]
fn a_guarantee_beside_weights() {
    let weight = |weight| ClassConfig { weight, ..ClassConfig::default() };
    let guarded = ClassConfig { min_rate: BitRate::from_mbps(2000), ..ClassConfig::default() };
    let packets = [(0, 400), (0, 400), (0, 400), (1, 600), (1, 600), (1, 600), (2, 200), (2, 200)];
    let expected = "\
0 c 200
200 a 400
600 b 600
1200 c 200
1400 b 600
2000 a 400
2400 b 600
3000 a 400
";
    assert_eq!(transcript(&[weight(1), weight(3), guarded], &packets), expected);
}

#[test]
fn an_upper_limit_with_a_burst() {
    let max_rate = Some(BitRate::from_mbps(800));
    let limited = ClassConfig { max_rate, burst: ByteCount::new(300), ..ClassConfig::default() };
    let expected = "\
0 a 200
1000 a 200
3500 a 250
4500 a 100
";
    assert_eq!(transcript(&[limited], &[(0, 200), (0, 200), (0, 250), (0, 100)]), expected);
}
