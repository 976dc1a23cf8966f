// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the actuators of this host by trying them.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use weir_units::Nanos;

use super::cgroup::{CgroupTree, Version};
use super::xl_text::{self, XenScheduler};
use crate::cpu::{self, CpuRequest, SchedulingClass};
use crate::run::{Command, Platform};

/// One way to cap a router's CPU time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActuatorProbe {
    /// For example `cgroup v2`.
    pub name: &'static str,
    /// The things that it can cap.
    pub caps: &'static str,
    /// The place where it acts, or the reason why it is missing.
    pub there: Result<String, MissingActuator>,
}

/// The reason why a way to cap cannot act on this host. It is serialized as its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingActuator {
    /// No tree of control groups has the CPU controller; with the reason.
    NoController(String),
    /// The CPU controller is in the tree of the other version, mounted there.
    OtherVersion(PathBuf),
    /// The kernel has no NAPI threads.
    NoNapiThreads,
    /// The kernel grants no deadline budget; with its answer.
    NoBudget(String),
    /// The host does not run on Xen.
    NoXen,
    /// `xl info` failed; with the reason.
    NoInfo(String),
    /// `xl info` names no scheduler.
    NoScheduler,
    /// Xen's scheduler has no caps.
    NoCaps(XenScheduler),
}

impl fmt::Display for MissingActuator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoController(why) | Self::NoBudget(why) | Self::NoInfo(why) => f.write_str(why),
            Self::OtherVersion(at) => write!(f, "the controller cpu is at {}", at.display()),
            Self::NoNapiThreads => f.write_str("the kernel has no NAPI threads (Linux 5.12)"),
            Self::NoXen => f.write_str("no Xen here"),
            Self::NoScheduler => f.write_str("`xl info` names no scheduler"),
            Self::NoCaps(other) => {
                write!(f, "scheduler {other} has no caps: boot with sched=credit2")
            }
        }
    }
}

impl Serialize for MissingActuator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Tries all actuators, in the order of preference.
pub fn probe(on: &dyn Platform) -> Vec<ActuatorProbe> {
    let tree = CgroupTree::find();
    let cgroup = |version: Version| match &tree {
        Ok(tree) if tree.version == version => Ok(tree.root.display().to_string()),
        Ok(tree) => Err(MissingActuator::OtherVersion(tree.root.clone())),
        Err(error) => Err(MissingActuator::NoController(error.to_string())),
    };
    vec![
        ActuatorProbe { name: "cgroup v2", caps: PROCESSES, there: cgroup(Version::V2) },
        ActuatorProbe { name: "cgroup v1", caps: PROCESSES, there: cgroup(Version::V1) },
        ActuatorProbe {
            name: "deadline budget",
            caps: "routers that the kernel forwards for",
            there: deadline(),
        },
        ActuatorProbe { name: "xl", caps: "guests of Xen", there: xen(on) },
    ]
}

/// Tries to get a deadline budget. A thread that forwards (veth with NAPI threads) can be made
/// wherever there is `threaded`, but the right to a budget may be missing.
fn deadline() -> Result<String, MissingActuator> {
    if !Path::new("/sys/class/net/lo/threaded").exists() {
        return Err(MissingActuator::NoNapiThreads);
    }
    let [runtime, period] = [Nanos::from_micros(20), Nanos::from_millis(2)];
    let class = SchedulingClass::Deadline { runtime, deadline: period, period };
    cpu::probe(CpuRequest { cpu: None, class })
        .map(|_| "NAPI threads".to_owned())
        .map_err(|error| MissingActuator::NoBudget(error.to_string()))
}

fn xen(on: &dyn Platform) -> Result<String, MissingActuator> {
    if !Path::new("/proc/xen/capabilities").exists() && !Path::new("/sys/hypervisor/type").exists()
    {
        return Err(MissingActuator::NoXen);
    }
    let info = on
        .run(&Command::line("xl info"))
        .map_err(|error| MissingActuator::NoInfo(error.to_string()))?;
    match xl_text::scheduler(&info) {
        Some(with @ (XenScheduler::Credit | XenScheduler::Credit2)) => Ok(with.to_string()),
        Some(other) => Err(MissingActuator::NoCaps(other)),
        None => Err(MissingActuator::NoScheduler),
    }
}

const PROCESSES: &str = "processes and guests";
