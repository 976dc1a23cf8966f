// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cap of processes and guests: the CPU quota of a control group, version 1 or 2.
//!
//! The group is one that Weir makes ([`make`], [`join`]) or that of a guest ([`CgroupCap::adopt`]).
//! The kernel throttles threads when they return to user mode. So since Linux 6.18 the kernel's own
//! threads, which forward for a namespace, are never throttled.
//!
//! Source: Linux, Documentation/admin-guide/cgroup-v2.rst (`cpu.max`, `cpu.stat`) and
//! Documentation/scheduler/sched-bwc.rst (`cpu.cfs_quota_us`).

mod threads;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weir_control::CapRange;
use weir_units::{CpuShare, Nanos};

use super::actuator::{Actuator, CapError};
use super::quota::{QUOTA_US_MIN, Quota, QuotaShape};
use crate::control_group::{MAX_V2, PROCESSES, SUBTREE, WEIGHT_V2, write};
use crate::error::HostError;
use crate::host::Change;
use crate::journal::{Journal, JournalEntry};
use crate::process::Identity;
use crate::purpose::ChangePurpose;
use crate::run::Command;
use crate::undo::Undo;

pub use threads::{GROUPS_MAX, threads_in};

/// The version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
    V1,
    /// `cpu.max`.
    V2,
}

/// A tree of control groups that has the CPU controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupTree {
    /// The mount point.
    pub root: PathBuf,
    /// Its version.
    pub version: Version,
    /// Version 2: true if its groups need `+cpu` in the root's `cgroup.subtree_control` first.
    pub enable: bool,
}

impl CgroupTree {
    /// Finds the tree that caps processes on this host.
    ///
    /// # Errors
    /// There is none; the text says what was found instead.
    pub fn find() -> Result<Self, HostError> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        Self::among(&mounts, |path| fs::read_to_string(path).unwrap_or_default())
    }

    /// Finds the tree in a text of mounts; `read` gives the text of a file. It is of version 2 if
    /// that has the controller; a controller is in the tree of one version at a time.
    fn among(mounts: &str, read: impl Fn(&Path) -> String) -> Result<Self, HostError> {
        let has_cpu = |text: &str| text.split_whitespace().any(|word| word == "cpu");
        let mut without = None;
        for line in mounts.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[_, place, kind, options, ..] = words.as_slice() else { continue };
            let root = PathBuf::from(place);
            match kind {
                "cgroup2" if has_cpu(&read(&root.join("cgroup.controllers"))) => {
                    let enable = !has_cpu(&read(&root.join("cgroup.subtree_control")));
                    return Ok(Self { root, version: Version::V2, enable });
                }
                "cgroup2" => without = Some(root),
                "cgroup" if options.split(',').any(|option| option == "cpu") => {
                    return Ok(Self { root, version: Version::V1, enable: false });
                }
                _ => {}
            }
        }
        Err(HostError::Refused(match without {
            Some(root) => format!(
                "control groups: {} has no controller cpu, and no tree of version 1 is mounted",
                root.display()
            ),
            None => "control groups: no tree is mounted (/sys/fs/cgroup)".to_owned(),
        }))
    }

    /// Returns the group `name` of this tree, one level below its root.
    #[must_use]
    pub fn group(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the group of this tree that a process is in.
    fn group_of(&self, process: Identity) -> Result<PathBuf, HostError> {
        let pid = process.pid;
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        match own_group(&text, self.version).filter(|_| process.is_alive()) {
            Some(own) => Ok(self.root.join(own.trim_start_matches('/'))),
            None => Err(HostError::Refused(format!("process {pid}: not there any more"))),
        }
    }
}

/// Plans the group `name`: for a dry run, or for [`crate::host::apply`].
///
/// # Errors
/// The name is no plain path component; a group of that name is there already.
pub fn make(tree: &CgroupTree, name: &str) -> Result<Vec<Change>, HostError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = (1..=NAME_LEN_MAX).contains(&name.len());
    if !fits || !name.chars().all(plain) || name.starts_with('.') {
        return Err(HostError::Refused(format!(
            "control group {name:?}: a name is 1 to {NAME_LEN_MAX} letters, digits, '-', '_' or \
             '.', and does not begin with '.'"
        )));
    }
    let group = tree.group(name);
    if group.exists() {
        return Err(HostError::Refused(format!(
            "control group {}: there is one already",
            group.display()
        )));
    }
    let mut changes = Vec::new();
    if tree.enable {
        let path = tree.root.join(SUBTREE);
        changes.push(Change {
            purpose: ChangePurpose::Other,
            what: "control groups: let groups cap their CPU time".to_owned(),
            run: vec![Command::new("sh", ["-c", &format!("echo +cpu > {}", path.display())])],
            undo: Undo::DisableCpu(tree.root.clone()),
        });
    }
    changes.push(Change {
        purpose: ChangePurpose::Other,
        what: format!("{name}: a control group"),
        run: vec![Command::new("mkdir", [group.display().to_string()])],
        undo: Undo::Dissolve { group, to: tree.root.clone() },
    });
    Ok(changes)
}

/// Plans a group for each name, all made by one command. Each group has a change of its own; a
/// change before them may enable CPU caps for groups.
///
/// # Errors
/// A name is refused as [`make`] refuses it.
pub fn make_all(tree: &CgroupTree, names: &[String]) -> Result<Vec<Change>, HostError> {
    let (mut changes, mut groups) = (Vec::new(), Vec::new());
    for name in names {
        for mut change in make(tree, name)? {
            if let Undo::Dissolve { group, .. } = &change.undo {
                groups.push(group.display().to_string());
                change.run.clear();
                changes.push(change);
            } else if changes.is_empty() {
                changes.push(change);
            }
        }
    }
    if let Some(last) = changes.last_mut() {
        last.run = vec![Command::new("mkdir", groups)];
    }
    Ok(changes)
}

/// Moves a process, with all its threads, into a group; the undo is in the journal.
///
/// # Errors
/// The process is gone, the journal cannot be written, or the kernel refused.
pub fn join(
    journal: &mut Journal,
    tree: &CgroupTree,
    group: &Path,
    process: Identity,
) -> Result<(), HostError> {
    join_all(journal, tree, &[(group.to_owned(), process)])
}

/// Moves each process into its group, with one sync of the journal.
///
/// # Errors
/// A move fails as [`join`] does; others may have been made before it.
pub fn join_all(
    journal: &mut Journal,
    tree: &CgroupTree,
    moves: &[(PathBuf, Identity)],
) -> Result<(), HostError> {
    let mut new = Vec::new();
    for (group, process) in moves {
        let (process, to) = (*process, tree.group_of(*process)?);
        if to != *group {
            let what = format!("process {}: in {}", process.pid, group.display());
            new.push((group, process, what, Undo::Move { process, to }));
        }
    }
    journal.record_all(new.iter().map(|(_, _, what, undo)| JournalEntry {
        purpose: ChangePurpose::Other,
        what,
        undo,
    }))?;
    new.iter().try_for_each(|(group, process, ..)| enter(group, *process))
}

/// Moves a process, with all its threads, into the group of another one. No undo is recorded: this
/// is for a process that ends with its caller.
///
/// # Errors
/// One of them is gone, or the kernel refused.
pub fn follow(tree: &CgroupTree, process: Identity, other: Identity) -> Result<(), HostError> {
    enter(&tree.group_of(other)?, process)
}

/// Sets the weight of a group that Weir made, relative to the groups beside it: 100 is the kernel's
/// default.
///
/// # Errors
/// The group is gone, or the kernel refused.
pub fn weigh(tree: &CgroupTree, group: &Path, weight: u32) -> Result<(), HostError> {
    let (name, text) = match tree.version {
        Version::V1 => (WEIGHT_V1, shares(weight).to_string()),
        Version::V2 => (WEIGHT_V2, weight.to_string()),
    };
    let path = group.join(name);
    write(&path, &text).map_err(|error| HostError::io("write the weight into", path, error))
}

/// Returns a weight as `cpu.shares` of version 1, where a group has 1024 by itself.
fn shares(weight: u32) -> u64 {
    (u64::from(weight) * 1024 / 100).clamp(SHARES_MIN, SHARES_MAX)
}

fn enter(group: &Path, process: Identity) -> Result<(), HostError> {
    write(&group.join(PROCESSES), &process.pid.to_string())
        .map_err(|error| HostError::io("move a process into", group, error))
}

/// The cap of a control group.
#[derive(Debug)]
pub struct CgroupCap {
    group: PathBuf,
    version: Version,
    shape: QuotaShape,
    /// True if the group is Weir's own: its weight follows its cap, and quota that it leaves over
    /// in a period may be used later.
    owned: bool,
}

impl CgroupCap {
    /// Caps a group whose weight is its owner's.
    #[must_use]
    pub const fn new(group: PathBuf, version: Version, shape: QuotaShape) -> Self {
        Self { group, version, shape, owned: false }
    }

    /// Caps a group that Weir made, with a [`weight`] that follows its cap, and up to [`BURST_US`]
    /// more in a period after one that left as much over. Nothing of this needs an undo, since the
    /// group is removed as a whole.
    #[must_use]
    pub const fn own(group: PathBuf, version: Version, shape: QuotaShape) -> Self {
        Self { group, version, shape, owned: true }
    }

    /// Caps a group that somebody else made, such as that of a guest. The limit in force is
    /// recorded in the journal, to be restored.
    ///
    /// # Errors
    /// It is no group with a CPU quota, or the journal cannot be written.
    pub fn adopt(
        journal: &mut Journal,
        group: PathBuf,
        version: Version,
        shape: QuotaShape,
    ) -> Result<Self, HostError> {
        for name in files(version) {
            let path = group.join(name);
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| HostError::io("read the quota", &path, error))?;
            let what = format!("{}: the quota it had", path.display());
            journal.record(&what, Undo::Write { path, text: text.trim().to_owned() })?;
        }
        Ok(Self::new(group, version, shape))
    }

    /// Returns the CPU time that the group's threads, including those that ended, used since it was
    /// made.
    ///
    /// # Errors
    /// The group is gone; version 1: the file is in another tree, `cpuacct`.
    pub fn used(&self) -> Result<Nanos, CapError> {
        let path = self.group.join("cpu.stat");
        let text = self.read(&path)?;
        let field = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
        let micros = field.and_then(|text| text.trim().parse::<u64>().ok());
        let nanos = micros.map(|micros| Nanos::new(micros.saturating_mul(1000)));
        nanos.ok_or_else(|| no_cap(&path, &text))
    }

    /// Writes the weight that follows from a cap, if the group is Weir's own. A cap of zero gives
    /// the kernel's default weight.
    fn weigh(&self, cap: CpuShare) -> Result<(), CapError> {
        let name = match self.version {
            Version::V1 => WEIGHT_V1,
            Version::V2 => WEIGHT_V2,
        };
        match self.owned {
            true => self.write(name, &weight(self.version, cap).to_string()),
            false => Ok(()),
        }
    }

    fn carry_over(&self) {
        let name = match self.version {
            Version::V1 => BURST_V1,
            Version::V2 => BURST_V2,
        };
        if self.owned {
            // Linux before 5.14 has no such file, and the cap holds without it.
            let _absent = self.write(name, &BURST_US.to_string());
        }
    }

    fn read(&self, path: &Path) -> Result<String, CapError> {
        fs::read_to_string(path).map_err(|error| self.failed("read", path, error))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), CapError> {
        let path = self.group.join(name);
        write(&path, text)
            .map_err(|error| self.failed(&format!("write {text:?} into"), &path, error))
    }

    fn failed(&self, action: &str, path: &Path, error: io::Error) -> CapError {
        let gone = [Some(libc::ENOENT), Some(libc::ENODEV)].contains(&error.raw_os_error());
        if gone && !self.group.exists() {
            return CapError::Gone { what: format!("control group {}", self.group.display()) };
        }
        CapError::Refused {
            what: format!("{action} {}", path.display()),
            answer: error.to_string(),
        }
    }

    /// Writes quota and period one by one, as version 1 takes them. The value that lowers the share
    /// goes first, so that the share never exceeds the larger of the old and the new.
    fn write_v1(&self, new: Quota) -> Result<(), CapError> {
        let period_first = match self.quota()? {
            // Without a quota the period binds nobody.
            None => true,
            Some(old) => {
                let both = |quota_us, period_us| Quota { quota_us, period_us }.share();
                both(old.quota_us, new.period_us) <= both(new.quota_us, old.period_us)
            }
        };
        let [quota, period] = [new.quota_us, new.period_us].map(|us| us.to_string());
        let mut writes = [(QUOTA_V1, quota), (PERIOD_V1, period)];
        if period_first {
            writes.reverse();
        }
        writes.iter().try_for_each(|(name, text)| self.write(name, text))
    }

    fn quota(&self) -> Result<Option<Quota>, CapError> {
        let texts = files(self.version).iter().map(|name| self.read(&self.group.join(name)));
        let texts = texts.collect::<Result<Vec<_>, _>>()?.join(" ");
        parse(&texts).ok_or_else(|| no_cap(&self.group, &texts))
    }
}

impl Actuator for CgroupCap {
    fn name(&self) -> &'static str {
        match self.version {
            Version::V1 => "cgroup v1",
            Version::V2 => "cgroup v2",
        }
    }

    fn range(&self) -> CapRange {
        self.shape.range()
    }

    fn period(&self) -> Nanos {
        self.shape.longest()
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        Ok(self.quota()?.map(Quota::share))
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        let quota = self.shape.of(cap);
        // The weight comes first: without its cap it is no promise, but a cap without its weight
        // would be in force.
        self.weigh(quota.share())?;
        self.carry_over();
        match self.version {
            Version::V1 => self.write_v1(quota)?,
            Version::V2 => {
                self.write(MAX_V2, &format!("{} {}", quota.quota_us, quota.period_us))?
            }
        }
        Ok(quota.share())
    }

    fn release(&mut self) -> Result<(), CapError> {
        let (name, text) = match self.version {
            Version::V1 => (QUOTA_V1, "-1"),
            Version::V2 => (MAX_V2, "max"),
        };
        match self.write(name, text) {
            Err(CapError::Gone { .. }) => return Ok(()),
            other => other?,
        }
        // A weight that stays binds nobody, and goes with the group.
        let _stays = self.weigh(CpuShare::ZERO);
        Ok(())
    }
}

/// Returns the weight of a group with that cap, in the kernel's units. It is in proportion to the
/// cap, so that each group gets its part where all caps together are more than the host has. It is
/// never below the kernel's default, since other work on the host should not take from a router
/// what its cap allows.
#[must_use]
pub fn weight(version: Version, cap: CpuShare) -> u64 {
    let (own, most) = match version {
        Version::V1 => (1024, SHARES_MAX),
        Version::V2 => (100, 10_000),
    };
    let ppm = u64::from(cap.as_ppm());
    (own * ppm / u64::from(WEIGHT_OF.as_ppm())).clamp(own, most)
}

fn files(version: Version) -> &'static [&'static str] {
    match version {
        Version::V1 => &[QUOTA_V1, PERIOD_V1],
        Version::V2 => &[MAX_V2],
    }
}

/// Reads `10000 100000`, `max 100000` or `-1 100000`. The outer `None` is for any other text, the
/// inner one for no quota.
#[allow(clippy::option_option)]
fn parse(text: &str) -> Option<Option<Quota>> {
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?, words.next()?);
    let period_us = period.parse().ok().filter(|us| *us > 0)?;
    if matches!(quota, "max" | "-1") {
        return Some(None);
    }
    Some(Some(Quota { quota_us: quota.parse().ok()?, period_us }))
}

/// Returns the path in the line of `/proc/PID/cgroup` for the CPU controller, behind its colons.
fn own_group(text: &str, version: Version) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let own = match version {
            Version::V1 => controllers.split(',').any(|one| one == "cpu"),
            Version::V2 => number == "0" && controllers.is_empty(),
        };
        own.then_some(path)
    })
}

fn no_cap(path: &Path, text: &str) -> CapError {
    let shown: String = text.chars().take(80).collect();
    CapError::Refused { what: format!("read {}", path.display()), answer: format!("{shown:?}") }
}

const QUOTA_V1: &str = "cpu.cfs_quota_us";
const PERIOD_V1: &str = "cpu.cfs_period_us";
const BURST_V2: &str = "cpu.max.burst";
const BURST_V1: &str = "cpu.cfs_burst_us";
const WEIGHT_V1: &str = "cpu.shares";
/// The bounds of `cpu.shares`.
const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 262_144;
/// The cap whose weight is the kernel's own: ten of them fill a processor.
const WEIGHT_OF: CpuShare = CpuShare::from_percent(10);

/// The time in microseconds that a group of Weir's own may use beyond its quota in a period, if it
/// left as much over before. It is the least quota, since the kernel takes no burst above the
/// quota. Without it, a router under a ceiling is late by a whole period whenever a single period
/// falls short. A router that uses all of its quota leaves nothing over.
///
/// Source: Linux, Documentation/scheduler/sched-bwc.rst, section Burst feature.
pub const BURST_US: u64 = QUOTA_US_MIN;

/// The longest name of a group. Groups are folders, whose names have at most 255 bytes; the rest is
/// for text around the name.
pub const NAME_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests;
