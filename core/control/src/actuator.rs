// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actuator of a loop: what sets a router's cap, and how it refuses.
//!
//! The cap is the share of a processor that a router may use (§4.2). Host code implements
//! [`Actuator`] for CPU quotas of control groups, deadline budgets of kernel threads and Xen's
//! schedulers; tests implement it for simulated routers.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use weir_units::{CpuShare, Nanos};

use crate::CapRange;

/// Sets the cap of one router.
pub trait Actuator: Send {
    /// Its name, as in `cgroup v2`.
    fn name(&self) -> &'static str;

    /// The caps that it can set.
    fn range(&self) -> CapRange;

    /// The longest time over which it evens out a cap of its range. Within less time a router may
    /// use none of its share, or more than it.
    fn period(&self) -> Nanos;

    /// Reads the cap that is in force now from whoever enforces it; `None`: no cap.
    ///
    /// # Errors
    /// The router is gone, or what enforces the cap does not answer.
    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError>;

    /// Sets the cap of its range that is nearest to `cap`, and returns the granted cap: less than
    /// requested where no more is left.
    ///
    /// # Errors
    /// The cap was refused, or one of the errors of [`Actuator::in_force`]. The cap before stays in
    /// force.
    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError>;

    /// Adapts the cap in force to what the router did in the last sampling period. The loop calls
    /// it once in each period in which it sets no cap.
    ///
    /// # Errors
    /// The errors of [`Actuator::set`].
    fn refresh(&mut self) -> Result<(), CapError> {
        Ok(())
    }

    /// Takes the cap away. Harmless without a cap, or without a router.
    ///
    /// # Errors
    /// The cap is still in force.
    fn release(&mut self) -> Result<(), CapError>;
}

impl<A: Actuator + ?Sized> Actuator for Box<A> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn range(&self) -> CapRange {
        (**self).range()
    }

    fn period(&self) -> Nanos {
        (**self).period()
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        (**self).in_force()
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        (**self).set(cap)
    }

    fn refresh(&mut self) -> Result<(), CapError> {
        (**self).refresh()
    }

    fn release(&mut self) -> Result<(), CapError> {
        (**self).release()
    }
}

/// Why a cap could not be read, set or released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapError {
    /// The capped router is gone.
    Gone {
        /// The missing thing, as in `thread napi/v0-983`.
        what: String,
    },
    /// The cap does not fit beside the caps of others.
    NoRoom {
        /// The requester, as in `router vr1`.
        what: String,
        /// The requested cap.
        asked: CpuShare,
        /// The sum of the others' caps.
        others: CpuShare,
        /// The largest sum of all.
        bound: CpuShare,
    },
    /// The enforcer of caps refused, or its answer is no cap.
    Refused {
        /// The attempt, as in `write 10000 into …/cpu.cfs_quota_us`.
        what: String,
        /// The answer.
        answer: String,
    },
    /// The sampling period is too short for the actuator.
    TooSoon {
        /// The actuator.
        name: &'static str,
        /// The sampling period.
        sampling: Nanos,
        /// The shortest possible.
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

impl core::error::Error for CapError {}

/// Checks that a router can be sampled every `sampling` with this actuator.
///
/// # Errors
/// The period is shorter than [`PERIODS_LEAST`] periods of the actuator: samples would show its
/// slices and not its cap.
pub fn check_period<A: Actuator + ?Sized>(actuator: &A, sampling: Nanos) -> Result<(), CapError> {
    let least = Nanos::new(actuator.period().as_nanos().saturating_mul(PERIODS_LEAST));
    match sampling >= least {
        true => Ok(()),
        false => Err(CapError::TooSoon { name: actuator.name(), sampling, least }),
    }
}

/// Least number of actuator periods in a sample: at most a third of a sample then falls into its
/// neighbour.
pub const PERIODS_LEAST: u64 = 3;
