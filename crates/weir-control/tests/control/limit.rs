// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The combined controller: the rate is the limit's (row 3).

use weir_control::plant::Plant;
use weir_units::{Nanos, PacketRate};

use crate::trial::{NAMESPACE, PROCESS, Trial, combined, off, percent, whole};

const TENTH: Nanos = Nanos::from_millis(100);

/// Goal: from 1 to 100 % of capacity, samples of 100 ms, within 1 % from the second sample on, no
/// more than 2 % beyond, on both kinds of router.
#[test]
fn every_set_point_is_held_from_the_second_sample_on() {
    let process = Plant { knee: 50, offered: PacketRate::from_pps(120_000), ..PROCESS };
    let namespace = Plant { knee: 50, offered: PacketRate::from_pps(1_200_000), ..NAMESPACE };
    for (plant, capacity) in [(process, 100_000), (namespace, 1_000_000)] {
        for part in [1, 2, 5, 10, 25, 50, 75, 90, 99, 100] {
            let set_point = capacity / 100 * part;
            let controller = combined(set_point, percent(100));
            let mut trial = Trial::new(plant, controller, percent(100)).every(TENTH);
            trial.aim(set_point);
            let rates = trial.run(300);
            for (index, rate) in rates.iter().enumerate() {
                let off = off(*rate, set_point);
                assert!(off <= 0.02, "{part} %, {index}: {off:.4} beyond");
                assert!(index == 0 || off.abs() <= 0.01, "{part} %, {index}: off by {off:.4}");
            }
            assert!(part > 50 || trial.cap < percent(98), "{part} %: the ceiling came down");
        }
    }
}

/// Goal: steps of the set-point, up and down, are there within two samples.
#[test]
fn steps_are_there_at_once() {
    let controller = combined(50_000, percent(100));
    let mut trial =
        Trial::new(Plant { knee: 50, ..PROCESS }, controller, percent(100)).every(TENTH);
    trial.run(50);
    for set_point in [5_000, 90_000, 20_000, 21_000, 1_000, 60_000] {
        trial.aim(set_point);
        let rates = trial.run(50);
        for (index, rate) in rates.iter().enumerate().skip(1) {
            assert!(off(*rate, set_point).abs() <= 0.01, "{set_point}, {index}: {rate}");
        }
    }
}

/// Goal: a router with a soft knee, which loses 5 % at the plain headroom, gets the ceiling that it
/// needs, within ten samples, and is then held for ten minutes.
#[test]
fn a_router_that_needs_more_room_gets_it() {
    let set_point = 50_000;
    let mut trial = Trial::new(PROCESS, combined(set_point, percent(100)), percent(100));
    trial.aim(set_point);
    let mut trial = trial.every(TENTH);
    let rates = trial.run(6000);
    let least = rates[..10].iter().fold(f64::INFINITY, |least, rate| rate.min(least));
    assert!(off(least, set_point) < -0.01, "it fell short at first: {least}");
    for rate in &rates[10..] {
        assert!(off(*rate, set_point).abs() <= 0.01, "{rate}");
    }
}

/// Goal: a router that loses 3 % by itself gets that much more, one that makes 10 % more is held
/// back, and one that drops half is not fed without end.
#[test]
fn the_limit_follows_what_happens_behind_it() {
    for (part, most) in [(0.97, 0.005), (1.10, 0.005), (0.5, 0.49)] {
        let mut controller = combined(50_000, percent(100));
        let mut limit = 50_000.0;
        let mut rate = 0.0;
        let mut now = weir_units::Instant::ZERO;
        for _ in 0..30 {
            rate = limit * part;
            let sample = weir_control::Sample {
                span: TENTH,
                packets: whole(rate / 10.0),
                offered: Some(10_000),
                cpu: Some(Nanos::from_millis(10)),
            };
            now += TENTH;
            let action = controller.step(now, &sample);
            limit = action.limit.map_or(f64::INFINITY, crate::trial::pps);
        }
        assert!(off(rate, 50_000).abs() < most, "{part}: {rate}");
        assert!(limit <= 52_500.0, "{part}: {limit}");
    }
}
