// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenario files of the experiments, run in virtual time: `weir-lab sim run FILE`.
//!
//! The files are those of the laboratory, and each kind is run by the code that judges it there.
//! A scenario may need parts of a machine that virtual time does not have: a kernel's bridge, a
//! disk, TCP through the switch, shared processors. Such a scenario is refused, and the part named.

use weir_experiment::prelude::*;

use crate::conformance::planes::SIM;
use crate::conformance::{ConformanceScenario, Laboratory, nothing_beside};
use crate::jitter::scenario::ShapedScenario;
use crate::jitter::smooth;
use crate::reproduce::Scenario;

use super::router_scenario::RouterScenario;
use super::{native, routers};

/// A scenario that can be run in virtual time.
#[derive(Clone, Debug)]
pub enum SimScenario {
    /// An isolation experiment: `lab/scenarios/conformance`.
    Conformance(Box<ConformanceScenario>),
    /// A figure of senders on a link: `lab/scenarios/netback`.
    Figure(Box<Scenario>),
    /// A sender through shapers: `lab/scenarios/jitter`.
    Shaped(Box<ShapedScenario>),
    /// Virtual routers behind domain 0: `lab/scenarios/sim`.
    Routers(Box<RouterScenario>),
}

impl SimScenario {
    /// Reads a file, whose kind follows from its keys; `file` is for errors.
    ///
    /// # Errors
    /// It is no TOML, no scenario of a kind that virtual time has, or something in it is wrong.
    pub fn read(file: &str, text: &str) -> Result<Self> {
        let wrong = |what: String| ExperimentError::Scenario { name: file.to_owned(), what };
        let table: toml::Table = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let has = |key: &str| table.contains_key(key);
        if has("group") || has("variant") {
            return Ok(Self::Conformance(Box::new(ConformanceScenario::parse(file, text)?)));
        }
        if has("panel") {
            return Ok(Self::Figure(Box::new(Scenario::parse(file, text)?)));
        }
        if has("sender") {
            return Ok(Self::Shaped(Box::new(ShapedScenario::parse(file, text)?)));
        }
        if has("host") && has("case") {
            return Ok(Self::Routers(Box::new(RouterScenario::parse(file, text)?)));
        }
        let kinds = "virtual time has scenarios with `group` (docs/conformance.md), with `panel` \
                     and with `sender` (docs/reproduce.md), with `host` and `case` \
                     (docs/simulator.md)";
        let what = match has("node") && has("link") {
            true => format!("the topology of a lab, without traffic; {kinds}"),
            false => format!("a scenario of no such kind; {kinds}"),
        };
        Err(wrong(what))
    }

    /// Runs and judges it. Series and cases are named as on the laboratory.
    ///
    /// # Errors
    /// It needs something that virtual time has not, or the simulation cannot go on.
    pub fn run(self, rec: &mut Recording<'_>, name: &str) -> Result {
        match self {
            Self::Conformance(scenario) => {
                let mut beside = nothing_beside;
                let sim = rec.sim.clone();
                let mut place = Laboratory::new(&SIM, name, &mut beside, sim);
                scenario.run(rec, &mut place).map(drop)
            }
            Self::Figure(scenario) => {
                let scenario = if rec.quick { scenario.quickly() } else { *scenario };
                native::record_figure(rec, scenario, name).map(drop)
            }
            Self::Shaped(scenario) => {
                if rec.sim.captures.is_some() {
                    let what = "a capture of packets through shapers".to_owned();
                    let needs = "frames: they have lengths alone".to_owned();
                    return Err(ExperimentError::Missing { what, needs });
                }
                if rec.sim.seed != 0 {
                    let what = format!("seed {}", rec.sim.seed);
                    let needs = "something random: a sender through shapers has nothing".to_owned();
                    return Err(ExperimentError::Missing { what, needs });
                }
                smooth::record(rec, name, &scenario)?;
                smooth::judge(rec, name, &scenario)
            }
            Self::Routers(scenario) => routers::record(rec, &scenario),
        }
    }
}
