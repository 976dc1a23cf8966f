// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario of real-time classes, as `lab/scenarios/jitter/timely.toml` has it.

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_policy::Text;
use weir_units::CpuShare;

/// The scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimelyScenario {
    pub(super) pairs: u32,
    pub(super) run: Text<Nanos>,
    pub(super) weights: [u32; 2],
    pub(crate) alone: AloneCase,
    pub(crate) sender: SenderCase,
    pub(super) server: ServerCase,
    pub(super) bulk: BulkCase,
    pub(super) ping: PingCase,
    pub(crate) shares: SharesCase,
    pub(super) many: ManyCase,
}

/// A machine alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AloneCase {
    pub(crate) every: Vec<Text<Nanos>>,
    pub(super) work: Text<Nanos>,
    pub(super) cpu: Text<CpuShare>,
    pub(super) activations: u32,
    pub(super) late: Text<Nanos>,
}

/// Machines that send on time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SenderCase {
    pub(super) cpu: Text<CpuShare>,
    pub(super) error: Text<Nanos>,
    pub(super) better: u32,
    pub(super) better_each: u32,
    pub(crate) case: Vec<WorkerCase>,
}

/// Activations by the clock.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerCase {
    pub(crate) every: Text<Nanos>,
    pub(crate) work: Text<Nanos>,
}

/// A machine that answers requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerCase {
    pub(super) apart: [Text<Nanos>; 2],
    pub(super) period: Text<Nanos>,
    pub(super) work: Text<Nanos>,
    pub(super) cpu: Text<CpuShare>,
    pub(super) late: Text<Nanos>,
    pub(super) better: u32,
    pub(super) web_bytes: u32,
}

/// A machine that sends as much as it can.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkCase {
    pub(super) pairs: u32,
    pub(super) period: Text<Nanos>,
    pub(super) cpu: Text<CpuShare>,
    pub(super) rate: f64,
}

/// A machine that is pinged.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PingCase {
    pub(super) every: Text<Nanos>,
    pub(super) period: Text<Nanos>,
    pub(super) cpu: Text<CpuShare>,
    pub(super) late: Text<Nanos>,
}

/// Shares of a core.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharesCase {
    pub(super) every: Text<Nanos>,
    pub(super) work: Text<Nanos>,
    pub(super) cpu: Text<CpuShare>,
    pub(crate) window: Text<Nanos>,
    pub(super) windows: u32,
    pub(super) first: f64,
    pub(super) first_within: f64,
    pub(super) apart: f64,
    pub(super) rest_within: f64,
}

/// Many machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManyCase {
    pub(super) machines: Vec<usize>,
    pub(super) realtime: usize,
    pub(super) every: Text<Nanos>,
    pub(super) work: Text<Nanos>,
    pub(super) cpu: Text<CpuShare>,
    pub(super) error: Text<Nanos>,
    pub(super) within: f64,
}

impl TimelyScenario {
    /// Reads the scenario.
    ///
    /// # Errors
    /// It is none; its text is part of the program, so that a test would say so.
    pub(crate) fn read() -> Result<Self> {
        toml::from_str(TEXT).map_err(|error| ExperimentError::Node(format!("timely.toml: {error}")))
    }

    /// Returns the pairs and the length of each run.
    pub(super) fn runs(&self, quick: bool) -> (u32, Nanos) {
        if quick { (1, QUICK.min(self.run.0)) } else { (self.pairs, self.run.0) }
    }
}

const TEXT: &str = include_str!("../../../scenarios/jitter/timely.toml");

/// The length of a run that only shows that the experiment works.
const QUICK: Nanos = Nanos::from_millis(1000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenario_is_read() {
        let scenario = TimelyScenario::read().unwrap();
        assert_eq!(scenario.runs(true), (1, Nanos::from_secs(1)));
        assert_eq!(scenario.runs(false), (5, Nanos::from_secs(3)));
    }
}
