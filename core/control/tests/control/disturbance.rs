// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that takes 15 % of the assigned CPU, and packets that begin to cost more.

use weir_control::ActionReason;
use weir_control::plant::Plant;
use weir_units::{CpuShare, Nanos, PacketRate};

use crate::trial::{PROCESS, Trial, combined, fixed, off, percent, weir};

/// A disturbance: its name, and its effect on the router.
type Disturbance = (&'static str, fn(Plant) -> Plant);

/// A router that forwards all that comes as long as its budget is worth it: one whose budget is
/// handed out in slices that are shorter than its queue lasts.
const SHARP: Plant = Plant { knee: 50, ..PROCESS };

const DISTURBANCES: [Disturbance; 3] = [
    ("15 % of the cap, metered", |plant| Plant { stolen_ppm: 150_000, ..plant }),
    ("15 % of the cap, not metered", |plant| Plant {
        stolen_ppm: 150_000,
        stolen_metered: false,
        ..plant
    }),
    ("packets cost 100/85", |plant| Plant {
        cost: Nanos::new(plant.cost.as_nanos() * 100 / 85),
        ..plant
    }),
];

/// Goal: by the cap alone, the rate is back after at most 5 samples: from then on the mean of ten
/// is within 2 %, when the disturbance comes and when it goes. Proof that it came: Fixed Cap, with
/// the true map, loses 10 % and more in the same run.
#[test]
fn feed_forward_rejects_what_a_fixed_cap_cannot() {
    for (name, disturb) in DISTURBANCES {
        for set_point in [15_000, 35_000, 60_000] {
            let mut base = Trial::new(PROCESS, fixed(PROCESS, set_point), percent(20));
            base.aim(set_point);
            base.run(30);
            base.router.plant = disturb(PROCESS);
            let fallen = off(mean(&base.run(30)[2..]), set_point);
            assert!(fallen < -0.10, "{name} at {set_point}: a fixed cap loses {fallen:.3}");

            let mut trial = Trial::new(PROCESS, weir(set_point, percent(20)), percent(20));
            trial.run(60);
            for plant in [disturb(PROCESS), PROCESS] {
                trial.router.plant = plant;
                let rates = trial.run(60);
                let back = (0..=5)
                    .find(|first| off(mean(&rates[*first..first + 10]), set_point).abs() <= 0.02);
                assert!(back.is_some(), "{name} at {set_point}: {:.0?}", &rates[..15]);
                let first = off(rates[0], set_point).abs();
                assert!(first > 0.05, "{name} at {set_point}: it showed at first: {first:.3}");
            }
        }
    }
}

/// Goal: combined, the rate never leaves ± 2 % while the ceiling has room.
#[test]
fn combined_does_not_notice_while_there_is_headroom() {
    for (name, disturb) in DISTURBANCES {
        for set_point in [5_000, 35_000, 80_000] {
            let controller = combined(set_point, percent(100));
            let mut trial = Trial::new(SHARP, controller, percent(100));
            trial.aim(set_point);
            let mut trial_rates = trial.run(20);
            let ceiling = trial.cap;
            assert!(ceiling < CpuShare::from_percent(60), "{ceiling}");
            for plant in [disturb(SHARP), SHARP] {
                trial.router.plant = plant;
                trial_rates.extend(trial.run(40));
            }
            for (index, rate) in trial_rates.iter().enumerate().skip(2) {
                let off = off(*rate, set_point);
                assert!(off.abs() <= 0.02, "{name} at {set_point}, {index}: {off:.4}");
            }
        }
    }
}

/// Goal: where the ceiling cannot go higher, the log says so, and only there.
#[test]
fn combined_says_where_there_is_no_headroom() {
    let set_point = 90_000;
    let offered = PacketRate::from_pps(200_000);
    let plant = Plant { offered, ..SHARP };
    let mut trial = Trial::new(plant, combined(set_point, percent(100)), percent(100));
    trial.aim(set_point);
    trial.run(20);
    assert!(trial.actions.iter().all(|action| action.reason != ActionReason::NoHeadroom));
    // Half of the processor is gone, and with it what 90 kp/s need.
    trial.router.plant = Plant { cost: Nanos::new(13_000), ..plant };
    trial.run(20);
    assert_eq!(trial.last_reason(), Some(ActionReason::NoHeadroom));
    assert_eq!(trial.cap, percent(100));
    trial.router.plant = plant;
    let rates = trial.run(10);
    assert!(off(rates[9], set_point).abs() < 0.01, "{rates:.0?}");
    assert_ne!(trial.last_reason(), Some(ActionReason::NoHeadroom));
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}
