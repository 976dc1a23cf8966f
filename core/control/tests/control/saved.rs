// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls that a dead zone saves.

use weir_control::{Controller, DeadZone, FeedForward, FeedForwardConfig, Gains, Model, PiConfig};
use weir_units::PacketRate;

use crate::trial::{PROCESS, Trial, fine, off, percent};

/// Goal: in ten minutes at one set-point the dead zone saves nearly every call of the actuator:
/// 10 % of the set-point for the text's dead-beat, half a per cent of the cap for Weir's
/// controller. It costs no more than its own width.
#[test]
fn a_dead_zone_saves_calls() {
    let set_point = PacketRate::from_pps(50_000);
    let gains = Gains::dead_beat(Model::PUBLISHED);
    let pi = |dead_zone| -> Box<dyn Controller> {
        let config = PiConfig { gains, range: fine(), dead_zone };
        Box::new(weir_control::Pi::new(config, set_point, percent(20)))
    };
    let weir = |dead_zone| -> Box<dyn Controller> {
        let config = FeedForwardConfig { range: fine(), dead_zone };
        Box::new(FeedForward::new(config, set_point, percent(20)))
    };
    let calls = |controller| {
        let mut trial = Trial::new(PROCESS, controller, percent(20));
        let rates = trial.run(600);
        let mean = rates.iter().sum::<f64>() / 600.0;
        (trial.calls(), off(mean, 50_000).abs())
    };
    let (without, _) = calls(pi(DeadZone::OFF));
    let (with, error) = calls(pi(DeadZone::PUBLISHED));
    assert!(without > 500 && with <= 6, "{with} calls for {without}");
    assert!(error < 0.10, "{error}");
    let (without, _) = calls(weir(DeadZone::OFF));
    let (with, error) = calls(weir(DeadZone::from_ppm(5000)));
    assert!(without > 500 && with * 5 < without, "{with} calls for {without}");
    assert!(error < 0.01, "{error}");
}
