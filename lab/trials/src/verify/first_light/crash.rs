// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node and a demonstration that are killed, ended or not confirmed: nothing stays behind.

use std::time::Duration;

use weir_platform::{StateDir, Undo};
use weir_result::{Bound, Claim, Rule, Series};
use weir_testbed::{Lab, Topology};
use weir_units::BitRate;

use super::leftovers::Before;
use super::{Row, crash_demo, crash_node};
use crate::demo::TENANTS;
use crate::place::Place;
use crate::program::Program;
use crate::{Star, Trial, TrialError};

/// What the parts of the row work with.
pub(super) struct Ground {
    /// The lab in whose switch node everything runs.
    pub(super) star: Star,
    /// `weir`, as an operator runs it.
    pub(super) program: Program,
    /// The host before.
    pub(super) before: Before,
}

/// What one part counts, a sample each time.
#[derive(Default)]
pub(super) struct Counts {
    /// 1 for each time that something was ended, or killed, while it ran.
    pub(super) times: Vec<f64>,
    /// What was there before each cleaning: the proof that left-overs are seen.
    pub(super) before: Vec<f64>,
    /// Left-overs found after each cleaning or end.
    pub(super) left: Vec<f64>,
    /// 0 for each start after a kill that worked, 1 for one that did not.
    pub(super) failed_starts: Vec<f64>,
    /// 0 for each command that ended as it should, 1 for one that did not.
    pub(super) failed_ends: Vec<f64>,
}

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    let star = Star::new(LAB, 2, BitRate::from_mbps(100));
    let mut place = Place::take(LAB, &StateDir::from_env())?;
    for node in TENANTS.iter().map(|tenant| tenant.name).chain(["sw", "wire"]) {
        // Should this process be killed too, then these are not in its own lab's journal.
        let name = format!("{DEMO_LAB}-{node}");
        place.answer_for(&format!("namespace {name}"), Undo::DeleteNamespace(name))?;
    }
    let topology = Topology::parse(&star.topology())
        .map_err(|problems| TrialError::Node(problems.to_string()))?;
    let lab = Lab::up(topology, place.state())?;
    let program = Program::new(lab.namespace("sw")?, place.folder())?;
    let before = Before::of(&program, LAB)?;
    let ground = Ground { star, program, before };
    crash_node::show(trial, row, &ground)?;
    crash_demo::show(trial, row, &ground)?;
    lab.down()?;
    Ok(())
}

impl Ground {
    /// Counts what is left now, and says what it is.
    pub(super) fn count_left(
        &self,
        trial: &mut Trial<'_>,
        counts: &mut Counts,
    ) -> Result<(), TrialError> {
        let left = self.before.left()?;
        for line in &left {
            trial.say(&format!("left: {line}"));
        }
        counts.left.push(crate::float(left.len() as u64));
        Ok(())
    }

    /// `weir clean`, then what is left.
    pub(super) fn clean(
        &self,
        trial: &mut Trial<'_>,
        counts: &mut Counts,
    ) -> Result<(), TrialError> {
        counts.before.push(crate::float(self.before.now()?.len() as u64));
        let ended = self.program.run(&["clean"], LIMIT)?;
        counts.failed_ends.push(f64::from(u8::from(!ended.is_good())));
        if !ended.is_good() {
            trial.say(&format!("weir clean: {:?}: {}", ended.status, ended.said));
        }
        self.count_left(trial, counts)
    }
}

impl Counts {
    /// Keeps the series of the part and judges them; it was to be ended `times` times.
    pub(super) fn judge(
        self,
        trial: &mut Trial<'_>,
        row: &Row,
        part: &str,
        times: u32,
    ) -> Result<(), TrialError> {
        let none = Bound::equal(0.0);
        let series = [
            ("times", "times", self.times, Bound::equal(f64::from(times))),
            ("before", "left-overs before cleaning", self.before, Bound::at_least(1.0)),
            ("left", "left-overs", self.left, none),
            ("starts", "starts that failed", self.failed_starts, none),
            ("ends", "commands that failed", self.failed_ends, none),
        ];
        for (what, text, samples, bound) in series {
            // Without a kill nothing is cleaned up.
            if samples.is_empty() && what != "times" {
                continue;
            }
            let name = row.id(&format!("{part}/{what}-each"));
            trial.keep(&name, Series::unordered("1", samples))?;
            let id = row.id(&format!("{part}/{what}"));
            let claim = Claim::new(id, format!("{part}: {text}"), Rule::Sum, bound);
            trial.judge(claim.of(&[name]))?;
        }
        Ok(())
    }
}

/// The lab of this row; the killed demonstrations have one of a name that begins alike.
const LAB: &str = "crash";

/// The lab of the demonstrations.
pub(super) const DEMO_LAB: &str = "crash-demo";

/// What any command here may take: ten times what it takes on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
