// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actuator of a control loop is a trait of `weir-control`; this crate implements it.

pub use weir_control::{Actuator, CapError, PERIODS_LEAST, check_period};

use crate::error::HostError;

impl From<HostError> for CapError {
    fn from(error: HostError) -> Self {
        Self::Refused { what: "ask the host".to_owned(), answer: error.to_string() }
    }
}
