// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every actuator can be asked, and how it says no.

use std::fmt;

use weir_control::CapRange;
use weir_units::{CpuShare, Nanos};

use crate::error::HostError;

/// What holds one router below a share of a processor.
///
/// What the host had to be changed for it is in a journal before it is changed, and is undone with
/// it; a cap itself needs no entry of its own: going back takes it away.
pub trait Actuator: Send {
    /// What it is, as in `cgroup v2`.
    fn name(&self) -> &'static str;

    /// The caps that it can set.
    fn range(&self) -> CapRange;

    /// The longest time over which it evens out a cap of its range: in less, a router may use none
    /// of its share or more than that.
    fn period(&self) -> Nanos;

    /// What is in force now, read from whoever enforces it; `None`: no cap.
    ///
    /// # Errors
    /// The router is not there any more, or what enforces the cap does not answer.
    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError>;

    /// Puts a cap into force, after it was put into the range, and gives the one that holds now:
    /// less than was asked where no more is left.
    ///
    /// # Errors
    /// As [`Actuator::in_force`]; or it was refused. What was in force before still is.
    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError>;

    /// To be called once in every sampling period in which no cap is set: for actuators that have
    /// to follow what a router does below its cap.
    ///
    /// # Errors
    /// As [`Actuator::set`].
    fn tend(&mut self) -> Result<(), CapError> {
        Ok(())
    }

    /// Takes the cap away. Harmless where there is none, or no router.
    ///
    /// # Errors
    /// It is still in force.
    fn release(&mut self) -> Result<(), CapError>;
}

/// Why a cap is not what it should be.
#[derive(Debug)]
pub enum CapError {
    /// What was capped is not there any more.
    Gone {
        /// As in `thread napi/v0-983`.
        what: String,
    },
    /// It does not fit beside the caps of others.
    NoRoom {
        /// What does not fit, as in `router vr1`.
        what: String,
        /// What it asked for.
        asked: CpuShare,
        /// What the others have.
        others: CpuShare,
        /// What all may have together.
        bound: CpuShare,
    },
    /// What enforces caps refused this one, or says something that is no cap.
    Refused {
        /// What was tried, as in `write 10000 into …/cpu.cfs_quota_us`.
        what: String,
        /// Its answer.
        answer: String,
    },
    /// A sampling period that is too short for the actuator.
    TooSoon {
        /// The actuator.
        name: &'static str,
        /// The sampling period.
        sampling: Nanos,
        /// The shortest.
        least: Nanos,
    },
}

impl fmt::Display for CapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { what } => write!(f, "{what}: not there any more"),
            Self::NoRoom { what, asked, others, bound } => write!(
                f,
                "{what}: a cap of {asked} does not fit beside {others} of others, must be at most \
                 {bound} together"
            ),
            Self::Refused { what, answer } => write!(f, "cannot {what}: {answer}"),
            Self::TooSoon { name, sampling, least } => write!(
                f,
                "sampling period {sampling}: must be at least {least}, {PERIODS_LEAST} periods of \
                 {name}"
            ),
        }
    }
}

impl std::error::Error for CapError {}

impl From<HostError> for CapError {
    fn from(error: HostError) -> Self {
        Self::Refused { what: "ask the host".to_owned(), answer: error.to_string() }
    }
}

/// Whether a router can be sampled every `sampling` with this actuator.
///
/// # Errors
/// The period is shorter than [`PERIODS_LEAST`] of the actuator's: samples would show its slices
/// and not its cap.
pub fn check_period(actuator: &dyn Actuator, sampling: Nanos) -> Result<(), CapError> {
    let least = Nanos::new(actuator.period().as_nanos().saturating_mul(PERIODS_LEAST));
    match sampling >= least {
        true => Ok(()),
        false => Err(CapError::TooSoon { name: actuator.name(), sampling, least }),
    }
}

/// Periods of the actuator in a sample: what falls into the neighbouring sample is then at most a
/// third.
pub const PERIODS_LEAST: u64 = 3;
