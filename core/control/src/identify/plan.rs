// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of a training: caps to set under loads.

use alloc::vec::Vec;
use core::fmt;

use weir_units::{CpuShare, Nanos, PacketRate};

use crate::noise::Noise;

/// Every cap under every load, several times (§5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingPlan {
    caps: Vec<CpuShare>,
    offered: Vec<PacketRate>,
    repetitions: u16,
    run: Nanos,
}

/// One run of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingStep {
    /// The cap to set.
    pub cap: CpuShare,
    /// Packets a second to send.
    pub offered: PacketRate,
    /// The number of the repetition, from 0.
    pub repetition: u16,
    /// The length of the run.
    pub run: Nanos,
}

/// Why a plan cannot be run, or would teach nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Fewer than 2 or more than 64 caps.
    Caps(usize),
    /// Caps that do not rise, or begin at zero.
    CapOrder {
        /// The place of the first one, from 0.
        index: usize,
    },
    /// No load, or more than 16.
    Offered(usize),
    /// No repetition, or more than 100.
    Repetitions(u16),
    /// Runs of no time.
    Run,
}

impl TrainingPlan {
    /// Rising `caps`, 2 to 64; loads, 1 to 16; 1 to 100 repetitions of runs that take some time.
    ///
    /// # Errors
    /// The value that is out of these bounds.
    pub fn new(
        caps: Vec<CpuShare>,
        offered: Vec<PacketRate>,
        repetitions: u16,
        run: Nanos,
    ) -> Result<Self, PlanError> {
        if !(2..=CAPS_MAX).contains(&caps.len()) {
            return Err(PlanError::Caps(caps.len()));
        }
        let mut before = CpuShare::ZERO;
        for (index, cap) in caps.iter().enumerate() {
            if *cap <= before {
                return Err(PlanError::CapOrder { index });
            }
            before = *cap;
        }
        if !(1..=OFFERED_MAX).contains(&offered.len()) {
            return Err(PlanError::Offered(offered.len()));
        }
        if !(1..=REPETITIONS_MAX).contains(&repetitions) {
            return Err(PlanError::Repetitions(repetitions));
        }
        if run == Nanos::ZERO {
            return Err(PlanError::Run);
        }
        Ok(Self { caps, offered, repetitions, run })
    }

    /// The text's under one load: caps of 5, 10, … 100 %, runs of 30 s.
    ///
    /// # Errors
    /// The number of repetitions is out of its bounds.
    pub fn published(offered: PacketRate, repetitions: u16) -> Result<Self, PlanError> {
        let caps = (1..=20).map(|step| CpuShare::from_percent(5 * step)).collect();
        Self::new(caps, Vec::from([offered]), repetitions, Nanos::from_secs(30))
    }

    /// All runs, in an order that depends on the seed alone: caps are mixed within each repetition,
    /// so that a machine that warms up or is disturbed does not look like an effect of the cap, and
    /// so that the cap jumps, which is what shows how fast a rate follows.
    #[must_use]
    pub fn steps(&self, seed: u64) -> Vec<TrainingStep> {
        let mut noise = Noise::new(seed);
        let mut steps = Vec::new();
        for repetition in 0..self.repetitions {
            for offered in &self.offered {
                let mut caps = self.caps.clone();
                for last in (1..caps.len()).rev() {
                    caps.swap(last, noise.below(last + 1));
                }
                let step = |cap| TrainingStep { cap, offered: *offered, repetition, run: self.run };
                steps.extend(caps.into_iter().map(step));
            }
        }
        steps
    }

    /// Returns the time of all runs together, without that between them.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        let runs = self.caps.len() * self.offered.len() * usize::from(self.repetitions);
        let runs = u64::try_from(runs).unwrap_or(u64::MAX);
        Nanos::new(self.run.as_nanos().saturating_mul(runs))
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caps(count) => write!(f, "{count} caps, must be 2 to {CAPS_MAX}"),
            Self::CapOrder { index } => {
                write!(f, "cap {index} is not above the one before it, or is 0%")
            }
            Self::Offered(count) => write!(f, "{count} loads, must be 1 to {OFFERED_MAX}"),
            Self::Repetitions(count) => {
                write!(f, "{count} repetitions, must be 1 to {REPETITIONS_MAX}")
            }
            Self::Run => write!(f, "runs of 0s, must be longer"),
        }
    }
}

impl core::error::Error for PlanError {}

const CAPS_MAX: usize = 64;
const OFFERED_MAX: usize = 16;
const REPETITIONS_MAX: u16 = 100;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn percent(caps: &[u32]) -> Vec<CpuShare> {
        caps.iter().map(|percent| CpuShare::from_percent(*percent)).collect()
    }

    #[test]
    fn every_cap_comes_under_every_load_in_every_repetition() {
        let loads = vec![PacketRate::from_pps(20_000), PacketRate::from_pps(100_000)];
        let caps = percent(&[5, 10, 20, 40]);
        let plan = TrainingPlan::new(caps, loads, 3, Nanos::from_secs(2)).unwrap();
        let steps = plan.steps(1);
        assert_eq!(steps.len(), 24);
        assert_eq!(plan.duration(), Nanos::from_secs(48));
        let mut sorted = steps.clone();
        sorted.sort_by_key(|step| (step.repetition, step.offered, step.cap));
        sorted.dedup();
        assert_eq!(sorted.len(), 24);
        assert_ne!(sorted, steps, "they are mixed");
        assert_eq!(plan.steps(1), steps);
        assert_ne!(plan.steps(2), steps);
    }

    #[test]
    fn plans_out_of_bounds_are_refused() {
        let load = || vec![PacketRate::from_pps(1)];
        let run = Nanos::from_secs(1);
        let plan = |caps: &[u32], loads, repetitions, run| {
            TrainingPlan::new(percent(caps), loads, repetitions, run).unwrap_err()
        };
        assert_eq!(plan(&[1], load(), 1, run), PlanError::Caps(1));
        assert_eq!(plan(&[0, 1], load(), 1, run), PlanError::CapOrder { index: 0 });
        assert_eq!(plan(&[2, 2], load(), 1, run), PlanError::CapOrder { index: 1 });
        assert_eq!(plan(&[1, 2], vec![], 1, run), PlanError::Offered(0));
        assert_eq!(plan(&[1, 2], load(), 0, run), PlanError::Repetitions(0));
        assert_eq!(plan(&[1, 2], load(), 101, run), PlanError::Repetitions(101));
        assert_eq!(plan(&[1, 2], load(), 1, Nanos::ZERO), PlanError::Run);
        let published = TrainingPlan::published(PacketRate::from_pps(100_000), 1).unwrap();
        assert_eq!(published.duration(), Nanos::from_secs(600));
    }
}
