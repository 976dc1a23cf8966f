// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Demand that goes away and comes back: nothing winds up meanwhile.

use weir_control::plant::Plant;
use weir_control::{ActionReason, DeadZone, Gains, Model, Sample};
use weir_units::PacketRate;

use crate::trial::{PROCESS, Trial, off, percent, pi, published_pi, settled, weir};

const QUIET: Plant = Plant { offered: PacketRate::from_pps(10_000), ..PROCESS };

/// Goal: after ten minutes without demand, Weir's controller holds the set-point from the third
/// sample on, since it learned nothing meanwhile.
#[test]
fn feed_forward_learns_nothing_without_demand() {
    let mut trial = Trial::new(PROCESS, weir(50_000, percent(20)), percent(20));
    trial.run(30);
    let cap = trial.cap;
    trial.router.plant = QUIET;
    trial.run(600);
    assert_eq!(trial.last_reason(), Some(ActionReason::NoDemand), "the scenario happened");
    assert_eq!(trial.cap, cap);
    trial.router.plant = PROCESS;
    let rates = trial.run(20);
    assert!(settled(&rates, 50_000, 0.05) <= 3, "{rates:.0?}");
}

/// Goal: the text's controllers unwind as fast as they settle, where CPU time is metered and where
/// it is not. An integral that went on for 600 samples would take as many to come back.
#[test]
fn published_controllers_do_not_wind_up() {
    for gains in [published_pi(Model::PUBLISHED), Gains::dead_beat(Model::PUBLISHED)] {
        for metered in [true, false] {
            // Without noise: what is looked for is where it comes to rest.
            let (busy, quiet) =
                (Plant { noise_ppm: 0, ..PROCESS }, Plant { noise_ppm: 0, ..QUIET });
            let mut trial = Trial::new(busy, pi(gains, DeadZone::OFF, 50_000), percent(20));
            trial.run(30);
            for (plant, count) in [(quiet, 600), (busy, 30)] {
                trial.router.plant = plant;
                if metered {
                    trial.run(count);
                } else {
                    blind(&mut trial, count);
                }
            }
            let last: Vec<f64> =
                trial.samples[630..].iter().map(|s| crate::trial::pps(s.rate())).collect();
            let samples = settled(&last, 50_000, 0.05);
            assert!(samples <= 12, "metered {metered}: {samples}, {last:.0?}");
        }
    }
}

/// Goal: a router without any demand is left alone, by each controller, for any time.
#[test]
fn no_packets_at_all_harm_nobody() {
    let none = Plant { offered: PacketRate::ZERO, ..PROCESS };
    for controller in [
        weir(50_000, percent(20)),
        pi(published_pi(Model::PUBLISHED), DeadZone::OFF, 50_000),
        crate::trial::combined(50_000, percent(20)),
    ] {
        let mut trial = Trial::new(none, controller, percent(20));
        trial.run(100);
        assert_eq!(
            trial.last_reason(),
            Some(ActionReason::NoDemand),
            "{}",
            trial.controller.name()
        );
        trial.router.plant = PROCESS;
        let rates = trial.run(40);
        assert!(off(rates[39], 50_000).abs() < 0.05, "{}", trial.controller.name());
    }
}

/// Runs like [`Trial::run`], with samples that have packets alone.
fn blind(trial: &mut Trial, count: usize) {
    for _ in 0..count {
        let span = weir_units::Nanos::from_secs(1);
        let sample = trial.router.run(trial.cap, None, span);
        trial.now += span;
        trial.samples.push(sample);
        let blind = Sample { cpu: None, offered: None, ..sample };
        trial.cap = trial.controller.step(trial.now, &blind).cap;
    }
}
