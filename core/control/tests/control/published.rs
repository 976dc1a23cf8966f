// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers of the text (§5.2, §6, §7.2.1), to the printed digits.

use weir_control::{Gains, Model, Poles, Response};
use weir_units::Nanos;

/// The published a and b with the published poles give the published gains.
#[test]
fn published_poles_give_the_published_pi() {
    let gains = Gains::place(Model::PUBLISHED, Poles::pair(0.2445, 0.3766).unwrap());
    // The text prints its poles to four digits: half of the last one moves their product by
    // 2 · (0.2445 + 0.3766) · 0.00005, their sum by 2 · 0.00005, each divided by b in the gains.
    assert!((gains.kp() - -1.747e-3).abs() < 6.3e-5 / 63.0 + HALF_DIGIT, "{}", gains.kp());
    assert!((gains.ki() - 11.311e-3).abs() < 1.7e-4 / 63.0 + HALF_DIGIT, "{}", gains.ki());
}

/// And back: the published gains have their poles where the published ones are.
#[test]
fn published_pi_has_the_published_poles() {
    let gains = Gains::place(Model::PUBLISHED, Poles::pair(0.2445, 0.3766).unwrap());
    let poles = gains.poles_with(Model::PUBLISHED).unwrap();
    assert!((poles.sum() / 2.0 - 0.2445).abs() < 1e-9);
    assert!((poles.radius() - 0.449).abs() < 5e-4);
}

/// Kp = a ÷ b and Ki = (1 − a) ÷ b.
#[test]
fn published_model_gives_the_published_dead_beat() {
    let gains = Gains::dead_beat(Model::PUBLISHED);
    assert!((gains.kp() - 1.452e-3).abs() < HALF_DIGIT, "{}", gains.kp());
    assert!((gains.ki() - 14.419e-3).abs() < HALF_DIGIT, "{}", gains.ki());
}

/// The text does not say from which settling time and overshoot its poles are: 5 samples and 8 %
/// give its gains to within half a per cent.
#[test]
fn published_pi_follows_from_five_samples_and_eight_per_cent() {
    let (settling, period) = (Nanos::from_secs(5), Nanos::from_secs(1));
    let poles = Poles::from_response(Response { settling, period, overshoot: 0.08 }).unwrap();
    let gains = Gains::place(Model::PUBLISHED, poles);
    assert!((gains.kp() / -1.747e-3 - 1.0).abs() < 0.005, "{}", gains.kp());
    assert!((gains.ki() / 11.311e-3 - 1.0).abs() < 0.005, "{}", gains.ki());
}

/// Half of the last digit of a gain in the text, with what its own rounding of a and b adds.
const HALF_DIGIT: f64 = 0.6e-6;
