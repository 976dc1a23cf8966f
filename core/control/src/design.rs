// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gains of a PI controller from a model: by pole placement, or dead-beat by cancellation.
//!
//! The loop of a [`Model`] and a PI controller has the characteristic polynomial
//! z² + z[(Kp + Ki)b − (a + 1)] + (a − Kp·b) (§6, Equation 3). Its two roots, the poles, say how
//! fast the loop comes to rest; choosing them gives the gains.

use core::f64::consts::PI;
use core::fmt;

use weir_units::Nanos;

use crate::Model;
use crate::number::float;

/// Gains of u(k) = u(k−1) + (Kp + Ki)·e(k) − Kp·e(k−1) (§6, Equation 2), in decades of cap a
/// thousand packets a second of error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    kp: f64,
    ki: f64,
}

/// Two poles in the unit circle, real or a conjugate pair, kept as their sum and product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Poles {
    sum: f64,
    product: f64,
}

/// The wanted response of a loop to a step of its set-point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// The time until it stays within 2 % of the new set-point.
    pub settling: Nanos,
    /// The sampling period.
    pub period: Nanos,
    /// The largest overshoot, as a fraction of the step: from 0 to below 1.
    pub overshoot: f64,
}

/// A design that is not possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DesignError {
    /// A pole on or outside of the unit circle: the loop would never come to rest.
    Unstable {
        /// The largest distance of a pole from the origin.
        radius: f64,
    },
    /// The settling time or the period is zero.
    Settling(Response),
    /// The overshoot is not from 0 to below 1.
    Overshoot(Response),
}

impl Gains {
    /// Returns the gains that give the loop these poles: Kp = (a − p₁p₂) ÷ b and Kp + Ki = (1 + a −
    /// p₁ − p₂) ÷ b.
    ///
    /// ```
    /// use weir_control::{Gains, Model, Poles};
    ///
    /// // What the text prints: poles at 0.2445 ± 0.3766i.
    /// let gains = Gains::place(Model::PUBLISHED, Poles::pair(0.2445, 0.3766)?);
    /// assert!((gains.kp() - -1.747e-3).abs() < 1e-6);
    /// assert!((gains.ki() - 11.311e-3).abs() < 1e-6);
    /// # Ok::<(), weir_control::DesignError>(())
    /// ```
    #[must_use]
    pub fn place(model: Model, poles: Poles) -> Self {
        let kp = (model.a() - poles.product) / model.b();
        Self { kp, ki: (1.0 + model.a() - poles.sum) / model.b() - kp }
    }

    /// Returns the gains that make the whole loop a delay of one sample, F(z) = 1/z, by cancelling
    /// the plant's pole: Kp = a ÷ b, Ki = (1 − a) ÷ b (§7.2.1).
    ///
    /// ```
    /// use weir_control::{Gains, Model};
    ///
    /// let gains = Gains::dead_beat(Model::PUBLISHED);
    /// assert!((gains.kp() - 1.452e-3).abs() < 1e-6);
    /// assert!((gains.ki() - 14.419e-3).abs() < 1e-6);
    /// ```
    #[must_use]
    pub fn dead_beat(model: Model) -> Self {
        Self { kp: model.a() / model.b(), ki: (1.0 - model.a()) / model.b() }
    }

    /// Returns the proportional gain.
    #[must_use]
    pub const fn kp(self) -> f64 {
        self.kp
    }

    /// Returns the integral gain.
    #[must_use]
    pub const fn ki(self) -> f64 {
        self.ki
    }

    /// Returns the poles of the loop with a router of this model, which need not be the model of
    /// the design.
    ///
    /// # Errors
    /// The loop is not stable.
    pub fn poles_with(self, model: Model) -> Result<Poles, DesignError> {
        let sum = model.a() + 1.0 - (self.kp + self.ki) * model.b();
        Poles::checked(sum, model.a() - self.kp * model.b())
    }
}

impl Poles {
    /// Returns the conjugate pair `re` ± `im`·i.
    ///
    /// # Errors
    /// They are not inside of the unit circle.
    pub fn pair(re: f64, im: f64) -> Result<Self, DesignError> {
        Self::checked(2.0 * re, re * re + im * im)
    }

    /// Returns two real poles.
    ///
    /// # Errors
    /// They are not inside of the unit circle.
    pub fn real(first: f64, second: f64) -> Result<Self, DesignError> {
        Self::checked(first + second, first * second)
    }

    /// Returns the poles of a second-order loop with this response: radius e^(−4 ÷ samples), and
    /// the angle at which π·ln radius ÷ angle = ln overshoot (J. Hellerstein and others, "Feedback
    /// Control of Computing Systems", 2004, the text's source). Zeros are ignored, as in that book:
    /// a loop with a zero overshoots a little more and settles a little later.
    ///
    /// The published poles are those of 5 samples and 8 %, though the text does not say so:
    ///
    /// ```
    /// use weir_control::{Poles, Response};
    /// use weir_units::Nanos;
    ///
    /// let (settling, period) = (Nanos::from_secs(5), Nanos::from_secs(1));
    /// let poles = Poles::from_response(Response { settling, period, overshoot: 0.08 })?;
    /// let published = Poles::pair(0.2445, 0.3766)?;
    /// assert!((poles.radius() - published.radius()).abs() < 0.001);
    /// assert!((poles.sum() - published.sum()).abs() < 0.001);
    /// # Ok::<(), weir_control::DesignError>(())
    /// ```
    ///
    /// # Errors
    /// A value of the response is out of range: see [`Response`].
    pub fn from_response(response: Response) -> Result<Self, DesignError> {
        let Response { settling, period, overshoot } = response;
        if settling == Nanos::ZERO || period == Nanos::ZERO {
            return Err(DesignError::Settling(response));
        }
        if !(0.0..1.0).contains(&overshoot) {
            return Err(DesignError::Overshoot(response));
        }
        let log_radius = -4.0 * float(period.as_nanos()) / float(settling.as_nanos());
        let radius = libm::exp(log_radius);
        // Without overshoot the logarithm is −∞ and the angle 0: a double real pole.
        let angle = (PI * log_radius / libm::log(overshoot)).min(PI);
        Self::checked(2.0 * radius * libm::cos(angle), radius * radius)
    }

    /// Returns the largest distance of a pole from the origin: the part of an error that is left
    /// after one sample.
    #[must_use]
    pub fn radius(self) -> f64 {
        radius(self.sum, self.product)
    }

    /// Returns the sum of both poles.
    #[must_use]
    pub const fn sum(self) -> f64 {
        self.sum
    }

    /// Returns the product of both poles.
    #[must_use]
    pub const fn product(self) -> f64 {
        self.product
    }

    fn checked(sum: f64, product: f64) -> Result<Self, DesignError> {
        let radius = radius(sum, product);
        if radius < 1.0 { Ok(Self { sum, product }) } else { Err(DesignError::Unstable { radius }) }
    }
}

/// Returns the larger distance of the two poles from the origin; infinite if it is not a number, so
/// that it is never inside of the unit circle.
fn radius(sum: f64, product: f64) -> f64 {
    let quarter = sum * sum / 4.0 - product;
    let radius =
        if quarter < 0.0 { libm::sqrt(product) } else { sum.abs() / 2.0 + libm::sqrt(quarter) };
    if radius.is_nan() { f64::INFINITY } else { radius }
}

impl fmt::Display for DesignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unstable { radius } => {
                write!(f, "a pole at distance {radius:.4} from the origin, must be below 1")
            }
            Self::Settling(Response { settling, period, .. }) => {
                write!(
                    f,
                    "settling within {settling} at a period of {period}: both must be above 0"
                )
            }
            Self::Overshoot(Response { overshoot, .. }) => {
                write!(f, "overshoot is {overshoot}, must be from 0 to below 1")
            }
        }
    }
}

impl core::error::Error for DesignError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the poles of a loop are those that were placed. Method: poles all over the unit
    /// circle, models from slow to fast.
    #[test]
    fn poles_are_found_where_they_were_placed() {
        for (re, im) in [(0.0, 0.0), (0.2445, 0.3766), (0.9, 0.1), (-0.5, 0.5), (0.0, 0.99)] {
            for (a, b) in [(0.0915, 63.0051), (0.0, 1e-3), (0.9, 1e4), (-0.5, 5.0)] {
                let (model, poles) = (Model::new(a, b).unwrap(), Poles::pair(re, im).unwrap());
                let found = Gains::place(model, poles).poles_with(model).unwrap();
                assert!((found.sum() - poles.sum()).abs() < 1e-9);
                assert!((found.product() - poles.product()).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn dead_beat_leaves_the_plant_and_a_pole_at_the_origin() {
        // The plant's pole is cancelled by the controller's zero; what is left is 1/z.
        let model = Model::PUBLISHED;
        let poles = Gains::dead_beat(model).poles_with(model).unwrap();
        assert!((poles.sum() - model.a()).abs() < 1e-12 && poles.product().abs() < 1e-12);
    }

    #[test]
    fn gains_for_another_router_may_not_be_stable() {
        // Three times the gain throws the dead-beat loop out of the unit circle.
        let faster = Model::new(0.0915, 3.0 * 63.0051).unwrap();
        let poles = Gains::dead_beat(Model::PUBLISHED).poles_with(faster);
        assert!(matches!(poles, Err(DesignError::Unstable { radius }) if radius > 1.0));
    }

    #[test]
    fn wishes_that_cannot_be_fulfilled_are_refused() {
        let second = Nanos::from_secs(1);
        let response = |settling, period, overshoot| Response { settling, period, overshoot };
        for bad in [1.0, -0.1, f64::NAN, f64::INFINITY] {
            let wish = response(second, second, bad);
            assert!(matches!(Poles::from_response(wish), Err(DesignError::Overshoot(_))));
        }
        for (settling, period) in [(Nanos::ZERO, second), (second, Nanos::ZERO)] {
            let wish = response(settling, period, 0.1);
            assert_eq!(Poles::from_response(wish), Err(DesignError::Settling(wish)));
        }
        for (re, im) in [(1.0, 0.0), (0.8, 0.7), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
            assert!(Poles::pair(re, im).is_err(), "{re} {im}");
        }
        assert!(Poles::real(0.5, -1.0).is_err());
        let wish = response(Nanos::from_secs(4), second, 0.0);
        let poles = Poles::from_response(wish).unwrap();
        assert!((poles.radius() - libm::exp(-1.0)).abs() < 1e-6, "a double real pole");
    }
}
