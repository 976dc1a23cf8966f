// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the actuators of this host by trying them.

use std::path::Path;

use serde::Serialize;
use weir_units::Nanos;

use super::cgroup::{CgroupTree, Version};
use super::xl_text::{self, XenScheduler};
use crate::cpu::{self, Class, CpuRequest};
use crate::run::{Command, Platform};

/// One way to cap a router's CPU time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Means {
    /// For example `cgroup v2`.
    pub name: &'static str,
    /// The things that it can cap.
    pub caps: &'static str,
    /// The place where it acts; or the reason why it cannot.
    pub there: Result<String, String>,
}

/// All of them, in the order in which a router of each kind would be given one.
pub fn probe(on: &dyn Platform) -> Vec<Means> {
    let tree = CgroupTree::find();
    let cgroup = |version: Version| match &tree {
        Ok(tree) if tree.version == version => Ok(tree.root.display().to_string()),
        Ok(tree) => Err(format!("the controller cpu is at {}", tree.root.display())),
        Err(error) => Err(error.to_string()),
    };
    vec![
        Means { name: "cgroup v2", caps: PROCESSES, there: cgroup(Version::V2) },
        Means { name: "cgroup v1", caps: PROCESSES, there: cgroup(Version::V1) },
        Means {
            name: "deadline budget",
            caps: "routers that the kernel forwards for",
            there: deadline(),
        },
        Means { name: "xl", caps: "guests of Xen", there: xen(on) },
    ]
}

/// A thread that forwards can be made (veth with NAPI threads) wherever there is `threaded`; what
/// may be missing is the right to a budget.
fn deadline() -> Result<String, String> {
    if !Path::new("/sys/class/net/lo/threaded").exists() {
        return Err("the kernel has no NAPI threads (Linux 5.12)".to_owned());
    }
    let [runtime, period] = [Nanos::from_micros(20), Nanos::from_millis(2)];
    let class = Class::Deadline { runtime, deadline: period, period };
    cpu::probe(CpuRequest { cpu: None, class })
        .map(|_| "NAPI threads".to_owned())
        .map_err(|error| error.to_string())
}

fn xen(on: &dyn Platform) -> Result<String, String> {
    if !Path::new("/proc/xen/capabilities").exists() && !Path::new("/sys/hypervisor/type").exists()
    {
        return Err("no Xen here".to_owned());
    }
    let info = on.run(&Command::line("xl info")).map_err(|error| error.to_string())?;
    match xl_text::scheduler(&info) {
        Some(with @ (XenScheduler::Credit | XenScheduler::Credit2)) => Ok(with.to_string()),
        Some(other) => Err(format!("scheduler {other} has no caps: boot with sched=credit2")),
        None => Err("`xl info` names no scheduler".to_owned()),
    }
}

const PROCESSES: &str = "processes and guests";
