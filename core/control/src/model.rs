// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first-order model of a capped router.

use core::fmt;

/// y(k+1) = a·y(k) + b·u(k): y the forwarded rate in thousand packets a second, u the log10 of the
/// cap, both as offsets from an operating point (§5.2, Equation 1).
///
/// `a` says how much of a rate is left after one sample, `b` how many thousand packets a second a
/// tenfold cap adds within one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    a: f64,
    b: f64,
}

/// Why numbers are no model of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ModelError {
    /// `a` is not within −1 and 1, so that the router's rate would grow by itself.
    Unstable {
        /// The value.
        a: f64,
    },
    /// `b` is not positive and finite, so that more CPU would not mean more packets.
    Gain {
        /// The value.
        b: f64,
    },
}

impl Model {
    /// The model of the text (§5.2), identified on its hardware under 100 kp/s of 64 bytes.
    pub const PUBLISHED: Self = Self { a: 0.0915, b: 63.0051 };

    /// A model with |`a`| < 1 and `b` > 0, in thousand packets a second a decade of cap.
    ///
    /// # Errors
    /// One of the two is out of its range, or no number.
    pub fn new(a: f64, b: f64) -> Result<Self, ModelError> {
        if !(a > -1.0 && a < 1.0) {
            return Err(ModelError::Unstable { a });
        }
        if !(B_LEAST..=B_MOST).contains(&b) {
            return Err(ModelError::Gain { b });
        }
        Ok(Self { a, b })
    }

    /// The share of a rate that is left after one sample.
    #[must_use]
    pub const fn a(self) -> f64 {
        self.a
    }

    /// Thousand packets a second that one decade of cap adds within one sample.
    #[must_use]
    pub const fn b(self) -> f64 {
        self.b
    }

    /// Thousand packets a second that one decade of cap adds in the end: b ÷ (1 − a).
    #[must_use]
    pub fn static_gain(self) -> f64 {
        self.b / (1.0 - self.a)
    }

    /// y(k+1) from y(k) and u(k), as offsets from the operating point.
    #[must_use]
    pub fn next(self, y: f64, u: f64) -> f64 {
        self.a * y + self.b * u
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unstable { a } => write!(f, "a is {a}, must be within -1 and 1"),
            Self::Gain { b } => {
                write!(f, "b is {b} kp/s a decade of cap, must be from {B_LEAST} to {B_MOST}")
            }
        }
    }
}

impl core::error::Error for ModelError {}

/// A thousandth of a packet a second: no router is that slow.
const B_LEAST: f64 = 1e-6;
/// A thousand million packets a second: no router is that fast.
const B_MOST: f64 = 1e6;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn what_is_no_model_is_refused_with_value_and_bound() {
        for a in [1.0, -1.0, 2.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Model::new(a, 1.0), Err(ModelError::Unstable { .. })), "{a}");
        }
        for b in [0.0, -1.0, 1e7, f64::NAN, f64::INFINITY] {
            assert!(matches!(Model::new(0.5, b), Err(ModelError::Gain { .. })), "{b}");
        }
        let error = Model::new(1.5, 1.0).unwrap_err();
        assert_eq!(error.to_string(), "a is 1.5, must be within -1 and 1");
    }

    #[test]
    fn the_static_gain_is_where_the_model_comes_to_rest() {
        let model = Model::PUBLISHED;
        let rest = (0..60).fold(0.0, |y, _| model.next(y, 1.0));
        assert!((rest - model.static_gain()).abs() < 1e-9, "{rest}");
    }
}
