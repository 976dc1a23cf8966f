// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classes on an exclusive processor (row 5), made as `docs/realtime.md` says.
//!
//! Wants control groups of version 2 with the controller `cpuset`, and two processors, of which
//! one is taken from all others for some seconds. With more, the sums of the case would fit on the
//! shared ones.

use std::fs;
use std::path::{Path, PathBuf};

use weir_experiment::clock;
use weir_experiment::host_changes::HostChanges;
use weir_experiment::prelude::*;
use weir_platform::cpu;
use weir_platform::host::Change;
use weir_platform::run::Command;
use weir_platform::{ChangePurpose, Undo};
use weir_policy::{RealtimeKind, RouterRealtime};
use weir_units::CpuShare;

use super::timely_lab::{TimelyLab, class};
use super::timely_process::TimelyMachine;

/// Shows that classes have an exclusive processor by its own sum, and only there.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let before = cpu::of_process();
    let (Some(tree), &[_, core]) = (tree(), &before[..]) else {
        rec.say("SKIPPED apart: needs cpuset of version 2, and two processors");
        return Ok(());
    };
    {
        let partition = Partition::make(&tree, core)?;
        let mut lab = TimelyLab::up()?;
        // Two shared processors would have no room for all three.
        for (percent, core) in [(50, Some(core)), (30, Some(core)), (80, None)] {
            start(&mut lab, percent, core)?;
        }
        lab.ask_for_classes()?;
        std::thread::sleep(LOOKS);
        let text = "apart: classes in force before their threads are there";
        let early = (lab.count_in_class() as u64).saturating_sub(1);
        rec.count("apart/early", text, early, Bound::equal(0.0))?;
        partition.take(&lab, 0)?;
        partition.take(&lab, 1)?;
        lab.wait_for_classes()?;
        let more = start(&mut lab, 20, Some(core))?;
        partition.take(&lab, more)?;
        let refusal = lab.apply().err().map(|error| error.to_string()).unwrap_or_default();
        rec.say(&refusal);
        let words = [format!("processor {core} add up to 100%"), "must be at most 9".to_owned()];
        let missing = words.iter().filter(|word| !refusal.contains(*word)).count();
        let text = "apart: router, sum and bound that the refusal does not name";
        rec.count("apart/refusal", text, missing as u64, Bound::equal(0.0))?;
    }
    // The kernel ends a group some time after it was removed.
    let back = clock::wait_for(GIVEN_BACK_WITHIN, POLL, || {
        Ok((cpu::of_process() == before).then_some(()))
    })?;
    let text = "apart: the processor given back";
    rec.count("apart/undone", text, u64::from(back.is_some()), Bound::equal(1.0))
}

/// Starts a machine that is activated every 10 ms.
fn start(lab: &mut TimelyLab, percent: u32, core: Option<u32>) -> Result<usize> {
    let every = Nanos::from_millis(10);
    let (work, to) = (Nanos::from_millis(1), ([127, 0, 0, 1], 9).into());
    // It runs to the end of the case: the kernel gives a thread that was moved no deadline until it
    // has run there.
    let worker = TimelyMachine::Worker { every, work, times: 6000, to };
    let base = class(RealtimeKind::Periodic, every, CpuShare::from_percent(percent));
    let machine = lab.start(worker, None, Some(RouterRealtime { core, ..base }))?;
    lab.begin(machine)?;
    Ok(machine)
}

/// A control group that has a processor for itself, until it is dropped.
struct Partition {
    group: PathBuf,
    _made: HostChanges,
}

impl Partition {
    fn make(tree: &Path, core: u32) -> Result<Self> {
        let group = tree.join(NAME);
        let made = HostChanges::make(NAME, || changes(tree, &group))?;
        let partition = group.join("cpuset.cpus.partition");
        write(&group.join("cpuset.cpus"), &core.to_string())?;
        write(&partition, "root")?;
        let has = fs::read_to_string(partition).unwrap_or_default();
        match has.trim() {
            "root" => Ok(Self { group, _made: made }),
            other => Err(ExperimentError::Node(format!("processor {core}: partition {other:?}"))),
        }
    }

    fn take(&self, lab: &TimelyLab, machine: usize) -> Result {
        let pid = lab.identity(machine)?.pid;
        write(&self.group.join("cgroup.procs"), &pid.to_string())
    }
}

/// The changes that make the group, with the controller where it is not yet.
fn changes(tree: &Path, group: &Path) -> Vec<Change> {
    let subtree = tree.join("cgroup.subtree_control");
    let set = |sign: &str| {
        let text = format!("echo {sign}cpuset > {}", subtree.display());
        Command::new("sh", ["-c", &text])
    };
    let change = |what: &str, run: Command, undo: Undo| {
        let (purpose, what) = (ChangePurpose::Other, format!("{}: {what}", group.display()));
        Change { purpose, what, run: vec![run], undo }
    };
    let mut all = Vec::new();
    if !has_cpuset(&subtree) {
        all.push(change("controller cpuset", set("+"), Undo::Run(vec![set("-")])));
    }
    let make = Command::new("mkdir", [&group.display().to_string()]);
    all.push(change("make it", make, Undo::Remove(group.to_owned())));
    all
}

/// The root of version 2, where it has the controller.
fn tree() -> Option<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    has_cpuset(&root.join("cgroup.controllers")).then_some(root)
}

fn has_cpuset(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().any(|word| word == "cpuset")
}

fn write(file: &Path, text: &str) -> Result {
    fs::write(file, text).map_err(|error| ExperimentError::io(file, error))
}

const NAME: &str = "weir-lab-apart";
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// Three looks of the node at its classes.
const LOOKS: Duration = Duration::from_millis(1500);
