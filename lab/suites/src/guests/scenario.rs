// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loads of the guests as data: `lab/scenarios/iip/guests.toml`.

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_tester::FramePattern;

use super::hop::HopKind;
use super::internet::ParallelInternet;
use super::lab::LabMiddle;
use crate::reproduce::scenario::unit;

/// All sweeps, and what they have in common.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuestScenario {
    /// Length of a trial.
    #[serde(deserialize_with = "unit")]
    pub(crate) trial: Nanos,
    /// The greatest load of each stream, Mbit/s of frames with FCS.
    mbps_max: u64,
    /// The greatest load of the three streams, packets a second.
    pps_max: u64,
    /// Loads of a size.
    loads: u64,
    repeats: u32,
    quick: QuickGuests,
    sweep: Vec<GuestSweep>,
}

/// The differences of a quick run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickGuests {
    #[serde(deserialize_with = "unit")]
    trial: Nanos,
    pps_max: u64,
    repeats: u32,
    /// Other sizes are left out.
    sizes: Vec<FramePattern>,
}

/// Loads of some sizes through one lab.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuestSweep {
    /// Its name, which begins those of its series.
    pub(crate) name: String,
    middle: MiddleName,
    /// True if the node sends in phases.
    #[serde(default)]
    cycle: bool,
    /// Frames with FCS and header.
    pub(crate) sizes: Vec<FramePattern>,
    /// Runs of each load; as the scenario says if absent.
    repeats: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MiddleName {
    Native,
    Bridge,
    Route,
    Nat,
}

impl GuestScenario {
    /// The scenario, or its quick form.
    pub(crate) fn load(quick: bool) -> Result<Self> {
        let wrong = |what| ExperimentError::Scenario { name: "guests".to_owned(), what };
        let mut scenario: Self = toml::from_str(TEXT).map_err(|error| wrong(error.to_string()))?;
        if quick {
            let QuickGuests { trial, pps_max, repeats, sizes } = scenario.quick.clone();
            (scenario.trial, scenario.pps_max, scenario.repeats) = (trial, pps_max, repeats);
            for sweep in &mut scenario.sweep {
                sweep.repeats = None;
                sweep.sizes.retain(|size| sizes.contains(size));
            }
        }
        let known = |sweep: &GuestSweep| SWEEPS.contains(&sweep.name.as_str());
        let missing = SWEEPS.len() != scenario.sweep.len();
        if missing || !scenario.sweep.iter().all(known) || scenario.loads == 0 {
            return Err(wrong(format!("it needs loads, and the sweeps {}", SWEEPS.join(", "))));
        }
        Ok(scenario)
    }

    /// A sweep by its name.
    pub(crate) fn sweep(&self, name: &str) -> Result<GuestSweep> {
        let found = self.sweep.iter().find(|sweep| sweep.name == name);
        found.cloned().ok_or_else(|| ExperimentError::Scenario {
            name: "guests".to_owned(),
            what: format!("no sweep {name:?}"),
        })
    }

    /// Loads of a size, packets a second of each stream.
    pub(crate) fn loads(&self, size: &FramePattern) -> Vec<u64> {
        let most = self.greatest(size);
        let squares = self.loads * self.loads;
        (1..=self.loads).map(|step| (most * step * step / squares).max(1)).collect()
    }

    /// The greatest load of a size, packets a second of each stream.
    pub(crate) fn greatest(&self, size: &FramePattern) -> u64 {
        let streams = ParallelInternet::ALL.len() as u64;
        size.frames_at(self.mbps_max * 1_000_000).min(self.pps_max / streams)
    }

    /// Runs of each load of a sweep.
    pub(crate) fn repeats(&self, sweep: &GuestSweep) -> u32 {
        sweep.repeats.unwrap_or(self.repeats)
    }
}

impl GuestSweep {
    /// The forwarder between source and sink.
    pub(crate) const fn middle(&self) -> LabMiddle {
        let cycle = self.cycle;
        match self.middle {
            MiddleName::Native => LabMiddle::Native,
            MiddleName::Bridge => LabMiddle::Node { hop: HopKind::Bridge, cycle },
            MiddleName::Route => LabMiddle::Node { hop: HopKind::Route, cycle },
            MiddleName::Nat => LabMiddle::Node { hop: HopKind::Nat, cycle },
        }
    }

    /// Keeps these sizes only.
    pub(crate) fn with_sizes(mut self, sizes: &[&str]) -> Self {
        self.sizes.retain(|size| sizes.contains(&size_key(size).as_str()));
        self
    }
}

/// The name of a size in series and tables.
pub(crate) fn size_key(size: &FramePattern) -> String {
    match size {
        FramePattern::Uniform { .. } => "random".to_owned(),
        other => other.to_string(),
    }
}

const TEXT: &str = include_str!("../../../scenarios/iip/guests.toml");
/// The names of all sweeps.
pub(crate) const SWEEPS: [&str; 6] = ["native", "fixed", "random", "no-phases", "route", "nat"];

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 330 Mbit/s of 1024 bytes are 40 283 packets a second; of small frames the bound of
    /// all three counts.
    #[test]
    fn loads_end_at_the_text_s_and_at_the_machine_s() {
        let scenario = GuestScenario::load(false).unwrap();
        let loads = |bytes| scenario.loads(&FramePattern::Fixed(bytes));
        let most = 330_000_000 / 8 / 1024;
        assert_eq!(loads(1024).last().copied(), Some(most.min(scenario.pps_max / 3)));
        assert_eq!(loads(128).last().copied(), Some(scenario.pps_max / 3));
        assert_eq!(loads(128).len() as u64, scenario.loads);
    }

    #[test]
    fn a_quick_run_has_fewer_sizes_of_each_sweep() {
        let scenario = GuestScenario::load(true).unwrap();
        for name in SWEEPS {
            let sizes = scenario.sweep(name).unwrap().sizes;
            assert!((1..=3).contains(&sizes.len()), "{name}: {sizes:?}");
        }
        assert!(scenario.sweep("other").is_err());
    }
}
