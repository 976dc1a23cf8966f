// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The combined controller: the rate is the limit's.

use weir_control::plant::Plant;
use weir_control::{ActionReason, Combined, CombinedConfig, Controller, Sample};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::trial::{NAMESPACE, PROCESS, Trial, combined, fine, off, percent, pps, whole};

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
/// needs, within ten samples of the first, and is then held for ten minutes.
#[test]
fn a_router_that_needs_more_room_gets_it() {
    let set_point = 50_000;
    let mut trial = Trial::new(PROCESS, combined(set_point, percent(100)), percent(100));
    trial.aim(set_point);
    let mut trial = trial.every(TENTH);
    let rates = trial.run(6000);
    let least = rates[..20].iter().fold(f64::INFINITY, |least, rate| rate.min(least));
    assert!(off(least, set_point) < -0.01, "it fell short at first: {least}");
    for rate in &rates[20..] {
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

/// A router that gets a part of what its limit lets in through, and burns all the CPU time that it
/// is given, all of it metered.
fn spin(controller: &mut dyn Controller, mut cap: CpuShare, part: f64, samples: u32) -> CpuShare {
    let mut limit = pps(controller.set_point());
    let mut now = Instant::ZERO;
    for _ in 0..samples {
        now += TENTH;
        let sample = Sample {
            span: TENTH,
            packets: whole(limit * part / 10.0),
            offered: Some(20_000),
            cpu: Some(Nanos::new(u64::from(cap.as_ppm()) * 100)),
        };
        let action = controller.step(now, &sample);
        (cap, limit) = (action.cap, action.limit.map_or(f64::INFINITY, pps));
    }
    cap
}

/// Goal: a router whose rate is held is not given more because it burns what it has.
#[test]
fn a_router_that_spins_is_not_given_more() {
    let set_point = 50_000;
    let plant = Plant { knee: 50, ..PROCESS };
    let mut trial = Trial::new(plant, combined(set_point, percent(100)), percent(100)).every(TENTH);
    trial.aim(set_point);
    trial.run(20);
    let before = trial.cap;
    assert!(before < percent(21), "15.25 % and 5: {before}");
    let cap = spin(&mut *trial.controller, before, 1.0, 6000);
    assert!(cap <= before, "{cap} after {before}");
}

/// Goal: one that spins from its first sample on, or drops its packets to be given more, is bounded
/// by the cost that it was admitted with, and the log says that there is no more.
#[test]
fn an_admitted_cost_bounds_the_ceiling() {
    let config =
        CombinedConfig { cost_most: Some(Nanos::new(4000)), ..CombinedConfig::new(fine()) };
    for part in [1.0, 0.5] {
        let set_point = PacketRate::from_pps(50_000);
        let mut controller = Combined::new(config, set_point, percent(100));
        let cap = spin(&mut controller, percent(100), part, 600);
        assert_eq!(cap, percent(20), "50 kp/s of 4 us, {part}");
        let sample = Sample {
            span: TENTH,
            packets: 2500,
            offered: Some(20_000),
            cpu: Some(Nanos::from_millis(20)),
        };
        let action = controller.step(Instant::from_nanos(100_000_000_000), &sample);
        assert_eq!((action.cap, action.reason), (percent(20), ActionReason::NoHeadroom));
    }
}

/// Goal: where nobody meters what comes, bursts do not lower the limit for good: it is the
/// set-point. A ceiling that is used up under a rate that falls short is raised all the same.
#[test]
fn without_a_meter_of_what_comes_nothing_is_trimmed() {
    let mut controller = combined(50_000, percent(30));
    let mut now = Instant::ZERO;
    let mut step = |packets: u64, cpu: u64| {
        now += TENTH;
        let cpu = Some(Nanos::from_millis(cpu));
        controller.step(now, &Sample { span: TENTH, packets, offered: None, cpu })
    };
    for _ in 0..1000 {
        assert_eq!(step(5100, 15).limit, Some(PacketRate::from_pps(50_000)));
        assert_eq!(step(4900, 15).limit, Some(PacketRate::from_pps(50_000)));
    }
    let cap = step(5000, 15).cap;
    assert!(cap < percent(21), "{cap}");
    let action = step(4000, 19);
    assert_eq!(action.reason, ActionReason::CeilingRaised);
    assert!(action.cap > cap, "{action:?}");
}

/// Goal: what a router makes at one set-point is not taken from it at another.
#[test]
fn a_trim_is_forgotten_with_its_set_point() {
    let mut controller = combined(1000, percent(20));
    let mut limit = 1000.0;
    let mut now = Instant::ZERO;
    for _ in 0..50 {
        now += TENTH;
        let sample = Sample {
            span: TENTH,
            packets: whole(limit / 10.0) + 10,
            offered: Some(10_000),
            cpu: Some(Nanos::from_micros(300)),
        };
        limit = controller.step(now, &sample).limit.map_or(f64::INFINITY, pps);
    }
    assert!((850.0..=950.0).contains(&limit), "100 a second more than come: {limit}");
    let mut aim = |pps| controller.change_set_point(now, PacketRate::from_pps(pps)).limit;
    let near = aim(1040).map_or(f64::INFINITY, pps);
    assert!(near < 990.0, "within a twentieth it is kept: {near}");
    assert_eq!(aim(100_000), Some(PacketRate::from_pps(100_000)));
}

/// Goal: what had waited is not what a router makes. Packets from before the limit, and those that
/// a ceiling kept from passing, come out beyond it for half a second, or for as long as the largest
/// cap is used up, and it stays at the set-point; one that goes on with room left is trimmed.
#[test]
fn what_had_waited_trims_nothing() {
    let most = CpuShare::from_percent(20);
    let config = CombinedConfig {
        range: weir_control::CapRange::new(CpuShare::from_percent(1)..=most, fine().grain())
            .unwrap(),
        ..CombinedConfig::new(fine())
    };
    let mut controller = Combined::new(config, PacketRate::from_pps(50_000), most);
    let mut now = Instant::ZERO;
    let mut limit = |cpu_ms, parts: &[f64]| {
        let mut action = None;
        for part in parts {
            now += TENTH;
            let sample = Sample {
                span: TENTH,
                packets: whole(5000.0 * part),
                offered: Some(10_000),
                cpu: Some(Nanos::from_millis(cpu_ms)),
            };
            action = controller.step(now, &sample).limit.map(pps).or(action);
        }
        action
    };
    let set_point = Some(50_000.0);
    assert_eq!(limit(12, &[1.5, 1.04, 1.04, 1.04, 1.04, 1.04]), set_point, "before the limit");
    assert_eq!(limit(20, &[1.0, 0.8, 0.9]), set_point, "kept by the ceiling");
    assert_eq!(limit(12, &[1.05, 1.05, 1.05, 1.05]), set_point, "come out with room left");
    assert_eq!(limit(20, &[1.1; 20]), set_point, "come out of the largest cap");
    assert!(limit(12, &[1.1; 20]) < set_point, "made");
}

/// Goal: a trim heals. What a router lost or made behind the limit for a while says nothing about
/// it afterwards: ten samples later its rate is held within 1 % again.
#[test]
fn a_trim_heals_with_its_router() {
    for part in [0.97, 1.10] {
        let mut controller = combined(50_000, percent(100));
        let (mut limit, mut now) = (50_000.0, Instant::ZERO);
        let mut rate = |part: f64, samples: u32| {
            for _ in 0..samples {
                now += TENTH;
                let sample = Sample {
                    span: TENTH,
                    packets: whole(limit * part / 10.0),
                    offered: Some(10_000),
                    cpu: Some(Nanos::from_millis(10)),
                };
                limit = controller.step(now, &sample).limit.map_or(f64::INFINITY, pps);
            }
            limit * part
        };
        let trimmed = rate(part, 100) / part;
        assert!(off(trimmed, 50_000).abs() > 0.02, "{part}: it was trimmed: {trimmed}");
        let healed = rate(1.0, 10);
        assert!(off(healed, 50_000).abs() < 0.01, "{part}: {healed}");
    }
}

/// Goal: a sample is learned once. A switch back to a controller that knows its router hands it
/// the sample that it has seen, which is no second proof of a cost.
#[test]
fn a_sample_is_learned_once() {
    let mut controller = combined(50_000, percent(100));
    let sample = |micros| Sample {
        span: TENTH,
        packets: 5000,
        offered: Some(5000),
        cpu: Some(Nanos::from_micros(micros)),
    };
    let now = Instant::ZERO + TENTH;
    controller.step(now, &sample(20_000));
    controller.step(now + TENTH, &sample(15_000));
    let known = controller.estimate();
    let in_force = weir_control::Settings::capped(percent(100));
    controller.adopt(now + TENTH, in_force, Some(&sample(15_000)));
    assert_eq!(controller.estimate(), known);
    let mut fresh = combined(50_000, percent(100));
    fresh.adopt(now, in_force, Some(&sample(15_000)));
    let cost = weir_control::Estimate::Cost(Nanos::new(3000));
    assert_eq!(fresh.estimate(), Some(cost), "who knows nothing learns from it");
}
