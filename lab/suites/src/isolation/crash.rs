// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node and a demonstration that are killed, ended or not confirmed: nothing stays behind.

use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_experiment::weir_program::WeirProgram;
use weir_platform::{StateDir, Undo};
use weir_testbed::{Lab, Topology};

use super::leftovers::HostBefore;
use super::{crash_demo, crash_node};
use crate::demo::TENANTS;

/// Shared equipment of the row's parts.
pub(super) struct Ground {
    /// The lab in whose switch node everything runs.
    pub(super) star: StarTopology,
    /// `weir`, as an operator runs it.
    pub(super) program: WeirProgram,
    /// The host before.
    pub(super) before: HostBefore,
}

/// Counts of one part, one sample for each crash.
#[derive(Default)]
pub(super) struct Counts {
    /// 1 for each time that something was ended, or killed, while it ran.
    pub(super) times: Vec<f64>,
    /// Number of left-overs before each cleaning: it proves that left-overs are found.
    pub(super) before: Vec<f64>,
    /// Left-overs found after each cleaning or end.
    pub(super) left: Vec<f64>,
    /// 0 for each start after a kill that worked, 1 for one that did not.
    pub(super) failed_starts: Vec<f64>,
    /// 0 for each command that ended as it should, 1 for one that did not.
    pub(super) failed_ends: Vec<f64>,
}

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let star = StarTopology::new(LAB, 2, BitRate::from_mbps(100));
    let mut place = RunFolder::take(LAB, &StateDir::from_env())?;
    for node in TENANTS.iter().map(|tenant| tenant.name).chain(["sw", "wire"]) {
        // Should this process be killed too, then these are not in its own lab's journal.
        let name = format!("{DEMO_LAB}-{node}");
        place.answer_for(&format!("namespace {name}"), Undo::DeleteNamespace(name))?;
    }
    let topology = Topology::parse(&star.topology())
        .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
    let lab = Lab::up(topology, place.state())?;
    let program = WeirProgram::new(lab.namespace("sw")?, place.folder())?;
    let before = HostBefore::of(&program, LAB)?;
    let ground = Ground { star, program, before };
    crash_node::show(rec, &ground)?;
    crash_demo::show(rec, &ground)?;
    lab.down()?;
    Ok(())
}

impl Ground {
    /// Counts and names the left-overs at this moment.
    pub(super) fn count_left(
        &self,
        rec: &mut Recording<'_>,
        counts: &mut Counts,
    ) -> Result<(), ExperimentError> {
        let left = self.before.left()?;
        for line in &left {
            rec.say(&format!("left: {line}"));
        }
        counts.left.push(float(left.len() as u64));
        Ok(())
    }

    /// `weir clean`, then what is left.
    pub(super) fn clean(
        &self,
        rec: &mut Recording<'_>,
        counts: &mut Counts,
    ) -> Result<(), ExperimentError> {
        counts.before.push(float(self.before.now()?.len() as u64));
        let ended = self.program.run(&["clean"], LIMIT)?;
        counts.failed_ends.push(f64::from(u8::from(!ended.is_good())));
        if !ended.is_good() {
            rec.say(&format!("weir clean: {:?}: {}", ended.status, ended.said));
        }
        self.count_left(rec, counts)
    }
}

impl Counts {
    /// Keeps the series of the part and judges them; it was to be ended `times` times.
    pub(super) fn judge(
        self,
        rec: &mut Recording<'_>,
        part: &str,
        times: u32,
    ) -> Result<(), ExperimentError> {
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
            let name = format!("{part}/{what}-each");
            rec.keep(&name, Series::unordered("1", samples))?;
            let id = format!("{part}/{what}");
            rec.claim(id, format!("{part}: {text}"), Rule::Sum, bound, &[name])?;
        }
        Ok(())
    }
}

/// The lab of this row; the killed demonstrations have one of a name that begins alike.
const LAB: &str = "crash";

/// The lab of the demonstrations.
pub(super) const DEMO_LAB: &str = "crash-demo";

/// Time limit of a command: ten times the usual on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
