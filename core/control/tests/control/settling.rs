// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settling time and the accuracy of a set-point that is held by the cap alone.

use weir_control::plant::Plant;
use weir_control::{
    CapRange, DeadZone, FeedForward, FeedForwardConfig, Gains, Model, relative_rmse,
};
use weir_units::{Nanos, PacketRate};

use crate::trial::{
    NAMESPACE, PROCESS, Trial, fixed, means_of_ten, off, percent, pi, published_pi, settled, weir,
    whole,
};

/// Per cents of capacity.
const SET_POINTS: [u64; 6] = [10, 20, 35, 50, 70, 85];

/// Goal: Weir's controller settles within 5 samples from both sides, holds ten-second means within
/// 2 %, or within 1.5 times of what the noise of a fixed cap makes of them, and swings at most 1.2
/// times as much as a fixed cap. Seen: means within 1.1 % beside 1.0 % (process, from 1 %), 1.07
/// times the swing.
#[test]
fn feed_forward_settles_on_both_kinds_of_router() {
    for (kind, plant, capacity, band) in
        [("process", PROCESS, 100_000, 0.05), ("namespace", NAMESPACE, 1_100_000, 0.10)]
    {
        for part in SET_POINTS {
            let set_point = capacity / 100 * part;
            for start in [1, 100] {
                let label = format!("{kind}, {part} % from a cap of {start} %");
                let cap = percent(start);
                let mut trial = Trial::new(plant, weir(set_point, cap), cap);
                let rates = trial.run(605);
                let samples = settled(&rates[..20], set_point, band);
                assert!(samples <= 5, "{label}: {samples} samples, {:.0?}", &rates[..20]);
                let mut base = Trial::new(plant, fixed(plant, set_point), cap);
                base.aim(set_point);
                let base = base.run(605);
                let (held, noise) = (worst(&rates[5..], set_point), worst(&base[5..], set_point));
                assert!(held <= 0.02_f64.max(1.5 * noise), "{label}: {held:.4} beside {noise:.4}");
                let (swings, least) = (swing(&rates[5..]), swing(&base[5..]));
                assert!(swings <= 1.2 * least, "{label}: swings {swings:.4}, fixed {least:.4}");
                assert!(least > 0.005, "{label}: there is noise: {least:.4}");
            }
        }
    }
}

/// Goal: sampled ten times a second, a second swings at most 0.6 times as much as under a fixed
/// cap, and all but the first two are within 6 %, though single samples swing more: by less than
/// half.
#[test]
fn feed_forward_makes_seconds_good_that_it_samples_more_often() {
    for set_point in [10_000, 30_000, 60_000] {
        let cap = percent(20);
        let noisy = Plant { noise_ppm: 150_000, ..PROCESS };
        let samples = |mut trial: Trial| {
            trial.aim(set_point);
            trial.every(Nanos::from_millis(100)).run(3000)
        };
        let seconds = |rates: &[f64]| -> Vec<f64> {
            rates.chunks(10).map(|parts| parts.iter().sum::<f64>() / 10.0).collect()
        };
        let held = samples(Trial::new(noisy, weir(set_point, cap), cap));
        let fixed = samples(Trial::new(noisy, fixed(noisy, set_point), cap));
        let (swings, least) = (swing(&held[20..]), swing(&fixed[20..]));
        assert!(swings < 1.5 * least, "{set_point}: samples {swings:.4}, fixed {least:.4}");
        let (held, fixed) = (seconds(&held), seconds(&fixed));
        let (swings, least) = (swing(&held[2..]), swing(&fixed[2..]));
        assert!(swings < 0.6 * least, "{set_point}: {swings:.4}, fixed {least:.4}");
        let samples = settled(&held, set_point, 0.06);
        assert!(samples <= 2, "{set_point}: {samples}, {held:.0?}");
    }
}

/// The mean over ten samples that is farthest from the set-point.
fn worst(rates: &[f64], set_point: u64) -> f64 {
    means_of_ten(rates, set_point).iter().fold(0.0, |worst, mean| mean.abs().max(worst))
}

/// Goal: a change of the set-point is a change of the rate, up and down, within 5 samples.
#[test]
fn feed_forward_follows_its_set_point_both_ways() {
    let cap = percent(20);
    let mut trial = Trial::new(PROCESS, weir(50_000, cap), cap);
    let mut before = trial.run(30)[29];
    for set_point in [80_000, 20_000, 60_000, 10_000, 85_000, 50_000] {
        trial.aim(set_point);
        let rates = trial.run(20);
        assert!(settled(&rates, set_point, 0.05) <= 5, "{set_point}: {rates:.0?}");
        // What is left of the rate before is the router's own; beyond that, a sixth.
        let left = 0.0915 * (before - crate::trial::pps(PacketRate::from_pps(set_point))).abs();
        let far = rates.iter().map(|rate| off(*rate, set_point).abs()).fold(0.0, f64::max);
        let own = left / crate::trial::pps(PacketRate::from_pps(set_point));
        assert!(far > 0.01 && far < own + 0.15, "{set_point}: goes {far:.3} astray at most");
        before = rates[19];
    }
}

/// Goal: where caps are whole per cents, as on Xen, and a set-point lies between two of them, the
/// two in turn hold its mean within 1 %, and each mean over ten seconds within 4 %; a rounded cap
/// would be off by up to 14 %.
#[test]
fn feed_forward_holds_between_coarse_caps() {
    let range = CapRange::new(percent(1)..=percent(100), percent(1)).expect("in order");
    let still = Plant { noise_ppm: 0, ..PROCESS };
    for set_point in [11_500, 15_000, 24_400, 48_000] {
        let pps = PacketRate::from_pps(set_point);
        let controller = FeedForward::new(FeedForwardConfig::new(range), pps, percent(20));
        let mut trial = Trial::new(still, Box::new(controller), percent(20));
        let rates = trial.run(100);
        // Ten samples of two caps cannot be divided finer than that.
        for mean in means_of_ten(&rates[5..], set_point) {
            assert!(mean.abs() <= 0.04, "{set_point}: a mean off by {mean:.4}");
        }
        let mean = off(rates[5..].iter().sum::<f64>() / 95.0, set_point);
        assert!(mean.abs() <= 0.01, "{set_point}: all in all off by {mean:.4}");
        let mut caps: Vec<_> = trial.actions[5..].iter().map(|action| action.cap).collect();
        caps.sort_unstable();
        caps.dedup();
        assert!((1..=2).contains(&caps.len()), "{set_point}: {caps:?}");
    }
}

/// Goal: what the text simulated: on the model that they are for, its PI comes to rest within 10
/// samples (§6), and the dead-beat after one (F(z) = 1/z, §7.2.1), from both sides.
#[test]
fn published_gains_settle_on_their_own_model_as_published() {
    for (gains, within) in
        [(published_pi(Model::PUBLISHED), 10), (Gains::dead_beat(Model::PUBLISHED), 1)]
    {
        for step in [10.0, -10.0] {
            let (mut y, mut u, mut before) = (0.0, 0.0, 0.0);
            let mut errors: Vec<f64> = Vec::new();
            for _ in 0..40 {
                let error = step - y;
                u += (gains.kp() + gains.ki()) * error - gains.kp() * before;
                before = error;
                y = Model::PUBLISHED.next(y, u);
                errors.push((step - y) / step);
            }
            let last = errors.iter().rposition(|error| error.abs() > 0.02).map_or(0, |at| at + 1);
            assert!(last < within, "{last} samples and one: {errors:.3?}");
            let overshoot = errors.iter().copied().fold(0.0, f64::min);
            // The poles are those of 8 %; the zero of the loop, which the design leaves out of
            // account, is at 0.183 and takes a little of it.
            assert!(overshoot > -0.10, "{overshoot}");
        }
    }
}

/// Goal: published controllers hold what the text says that they hold, on a router like its own:
/// set-points from 20 kp/s on, within their dead zone of 10 %.
#[test]
fn published_controllers_hold_their_range() {
    for (name, gains) in
        [("pi", published_pi(Model::PUBLISHED)), ("dead-beat", Gains::dead_beat(Model::PUBLISHED))]
    {
        for set_point in [20_000, 40_000, 60_000, 80_000] {
            let controller = pi(gains, DeadZone::PUBLISHED, set_point);
            let mut trial = Trial::new(PROCESS, controller, percent(20));
            let rates = trial.run(120);
            let samples = settled(&rates, set_point, 0.125);
            assert!(samples <= 20, "{name} at {set_point}: {samples} samples");
        }
    }
}

/// Goal: without a dead zone the dead-beat swings more than Weir's controller, which is quiet
/// between changes; both swing more than a fixed cap.
#[test]
fn dead_beat_pays_for_its_speed() {
    let mut swings = Vec::new();
    for controller in [
        fixed(PROCESS, 50_000),
        weir(50_000, percent(20)),
        pi(Gains::dead_beat(Model::PUBLISHED), DeadZone::OFF, 50_000),
    ] {
        let mut trial = Trial::new(PROCESS, controller, percent(20));
        trial.aim(50_000);
        swings.push(swing(&trial.run(1000)[20..]));
    }
    assert!(swings[0] < swings[1] && swings[1] < swings[2], "{swings:.4?}");
}

/// Goal: the two routers are what they are said to be.
#[test]
fn routers_are_as_noisy_as_said() {
    for (plant, least, most) in [(PROCESS, 0.008, 0.016), (NAMESPACE, 0.015, 0.020)] {
        let plant = Plant { lag_ppm: 0, ..plant };
        let mut trial = Trial::new(plant, fixed(plant, 30_000), percent(10));
        trial.aim(30_000);
        let swing = swing(&trial.run(1000));
        assert!((least..most).contains(&swing), "{swing}");
    }
}

fn swing(rates: &[f64]) -> f64 {
    let rates: Vec<_> = rates.iter().map(|rate| PacketRate::from_pps(whole(*rate))).collect();
    relative_rmse(&rates).expect("there are packets")
}
