// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A switch of controller does not show in the rate.

use weir_control::plant::Plant;
use weir_control::{
    CapRange, Controller, DeadZone, Design, Gains, Guard, Model, PiConfig, SelfTuning,
    SelfTuningConfig,
};
use weir_units::PacketRate;

use crate::trial::{Trial, combined, fine, fixed, off, percent, pi, published_pi, weir};

const SET_POINT: u64 = 50_000;
/// Without noise, so that all that moves is the switch's doing. With a sharp knee: a ceiling over a
/// soft one has to find its room first.
const STILL: Plant = Plant { knee: 50, ..Plant::LIKE_TABLE_1 };

fn controllers() -> Vec<Box<dyn Controller>> {
    let pi = |gains| pi(gains, DeadZone::OFF, SET_POINT);
    vec![
        weir(SET_POINT, percent(70)),
        pi(published_pi(Model::PUBLISHED)),
        pi(Gains::dead_beat(Model::PUBLISHED)),
        tuning(fine()),
        fixed(STILL, SET_POINT),
        combined(SET_POINT, percent(70)),
    ]
}

fn tuning(range: CapRange) -> Box<dyn Controller> {
    let gains = Gains::dead_beat(Model::PUBLISHED);
    let config = SelfTuningConfig {
        pi: PiConfig { gains, range, dead_zone: DeadZone::OFF },
        design: Design::DeadBeat,
        first: Model::PUBLISHED,
        guard: Guard::DEFAULT,
    };
    Box::new(SelfTuning::new(config, PacketRate::from_pps(SET_POINT), percent(70)))
}

/// Goal: from each controller to each, at rest: the rate moves at most 2 %. From a limit with a
/// ceiling to a cap alone, too: there the cap must come down in the moment in which the limit goes.
#[test]
fn every_switch_moves_the_rate_at_most_two_per_cent() {
    for from in 0..6 {
        for to in 0..6 {
            let mut trial = Trial::new(STILL, controllers().swap_remove(from), percent(20));
            trial.aim(SET_POINT);
            let rates = trial.run(60);
            assert!(off(rates[59], SET_POINT).abs() < 0.01, "{from} at rest: {}", rates[59]);
            trial.switch(controllers().swap_remove(to));
            let name = trial.controller.name();
            let rates = trial.run(30);
            for rate in &rates {
                let off = off(*rate, SET_POINT);
                assert!(off.abs() <= 0.02, "{from} to {to} ({name}): {off:.4}");
            }
        }
    }
}

/// Goal: under a disturbance the cap in force is another than that of the map: feedback goes on
/// from it, and a fixed cap keeps it.
#[test]
fn a_switch_keeps_what_was_learned_of_a_disturbance() {
    let disturbed = Plant { stolen_ppm: 150_000, ..STILL };
    for to in 0..5 {
        let mut trial = Trial::new(disturbed, weir(SET_POINT, percent(70)), percent(70));
        trial.run(60);
        trial.switch(controllers().swap_remove(to));
        for rate in trial.run(30) {
            assert!(off(rate, SET_POINT).abs() <= 0.02, "to {to}: {rate}");
        }
    }
}
