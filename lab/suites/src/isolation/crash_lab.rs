// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lab in which `weir` is killed at chosen moments, and the counts of what it leaves on the host.

use std::thread;

use weir_experiment::prelude::*;
use weir_experiment::weir_program::{EndedProgram, WeirProgram};
use weir_platform::Undo;

use super::leftovers::HostBefore;
use crate::demo::TENANTS;

/// A lab, the program in its switch node, and the host before.
pub(super) struct CrashLab {
    pub(super) rig: Testbed,
    pub(super) program: WeirProgram,
    before: HostBefore,
}

/// The counts of one part, one sample for each crash; 0 for what went well, 1 for what did not.
#[derive(Default)]
pub(super) struct CrashCounts {
    /// 1 for each time that something was ended, or killed, while it ran.
    times: Vec<f64>,
    /// Left-overs before each cleaning: they prove that left-overs are found.
    before: Vec<f64>,
    /// Left-overs after each cleaning or end.
    left: Vec<f64>,
    failed_starts: Vec<f64>,
    failed_ends: Vec<f64>,
}

/// The sign after which the time to a kill begins to run, and the milliseconds until then.
pub(super) type CrashMoment<'a> = (&'a dyn Fn() -> bool, u64);

impl CrashLab {
    pub(super) fn up() -> Result<Self> {
        let star = StarTopology::new(LAB, 2, BitRate::from_mbps(100));
        let mut rig = Testbed::up(&star)?;
        for node in TENANTS.iter().map(|tenant| tenant.name).chain(["sw", "wire"]) {
            // Should this process be killed too, then these are not in its own lab's journal.
            let name = format!("{DEMO_LAB}-{node}");
            rig.answer_for(&format!("namespace {name}"), Undo::DeleteNamespace(name))?;
        }
        let program = WeirProgram::new(rig.namespace("sw")?, rig.folder())?;
        let before = HostBefore::of(&program, LAB)?;
        Ok(Self { rig, program, before })
    }

    /// Kills a command at each of the moments. They are in pairs: after the second `weir clean`
    /// cleans, and after the first the next start has to.
    pub(super) fn kill_at(
        &self,
        rec: &mut Recording<'_>,
        part: &str,
        arguments: &[&str],
        moments: &[CrashMoment<'_>],
    ) -> Result {
        let mut counts = CrashCounts::default();
        for (index, (is_seen, delay_ms)) in moments.iter().enumerate() {
            let mut program = self.program.start(arguments)?;
            let seen = program.shows(LIMIT, |_| is_seen());
            let is_dirty = index % 2 == 1;
            if is_dirty {
                counts.started(seen);
            }
            if seen {
                thread::sleep(Duration::from_millis(*delay_ms));
            }
            if seen && program.is_alive() {
                program.kill()?;
                counts.ran(true);
            } else {
                // It has said why; a program that ended was not killed.
                let ended = program.end_within(Duration::ZERO)?;
                rec.say(&format!("{part}, moment {index}: {:?}: {}", ended.status, ended.said));
                counts.ended(false);
            }
            if is_dirty {
                self.clean(rec, &mut counts)?;
            }
        }
        counts.judge(rec, part, moments.len() as u64)
    }

    /// Counts and names the left-overs at this moment.
    pub(super) fn count_left(&self, rec: &mut Recording<'_>, counts: &mut CrashCounts) -> Result {
        let left = self.before.left()?;
        left.iter().for_each(|line| rec.say(&format!("left: {line}")));
        counts.left.push(float(left.len() as u64));
        Ok(())
    }

    /// `weir clean`, then what is left.
    fn clean(&self, rec: &mut Recording<'_>, counts: &mut CrashCounts) -> Result {
        counts.before.push(float(self.before.now()?.len() as u64));
        let ended = self.program.run(&["clean"], LIMIT)?;
        counts.ended(told(rec, "weir clean", &ended, ended.is_good()));
        self.count_left(rec, counts)
    }
}

/// Tells how a program ended that did not end well.
pub(super) fn told(
    rec: &mut Recording<'_>,
    what: &str,
    ended: &EndedProgram,
    is_good: bool,
) -> bool {
    if !is_good {
        rec.say(&format!("{what}: {:?}: {}", ended.status, ended.said));
    }
    is_good
}

impl CrashCounts {
    pub(super) fn ran(&mut self, is_running: bool) {
        self.times.push(f64::from(u8::from(is_running)));
    }

    pub(super) fn started(&mut self, is_good: bool) {
        self.failed_starts.push(f64::from(u8::from(!is_good)));
    }

    pub(super) fn ended(&mut self, is_good: bool) {
        self.failed_ends.push(f64::from(u8::from(!is_good)));
    }

    /// Keeps the series of the part and judges them; it was to be ended `times` times.
    pub(super) fn judge(self, rec: &mut Recording<'_>, part: &str, times: u64) -> Result {
        let none = Bound::equal(0.0);
        for (what, text, samples, bound) in [
            ("times", "times", self.times, Bound::equal(float(times))),
            ("before", "left-overs before cleaning", self.before, Bound::at_least(1.0)),
            ("left", "left-overs", self.left, none),
            ("starts", "starts that failed", self.failed_starts, none),
            ("ends", "commands that failed", self.failed_ends, none),
        ] {
            // Without a kill nothing is cleaned up.
            if !samples.is_empty() || what == "times" {
                let (id, series) = (format!("{part}/{what}"), Series::unordered("1", samples));
                rec.claim_samples(id, format!("{part}: {text}"), series, Rule::Sum, bound)?;
            }
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
