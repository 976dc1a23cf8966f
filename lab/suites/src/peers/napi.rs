// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The place of the devices' receive work: the soft interrupt of the sender, or a thread of each
//! device, which can be pinned.

use std::collections::BTreeSet;
use std::fs;

use weir_experiment::prelude::*;
use weir_experiment::senders::worker_cpu;
use weir_platform::run::{Command, Host, Platform};

/// Moves the receive work of the switch's devices towards tenants to the worker's processor. It
/// ends with the devices.
pub(crate) fn receive_on_worker_cpu(star: &StarTopology) -> Result {
    let (cpu, before) = (worker_cpu().to_string(), threads());
    let on = |name| format!("echo 1 > /sys/class/net/{name}/threaded\n");
    let script: String = star.tenants.iter().map(on).collect();
    // `ip netns exec` mounts the namespace's own /sys; the name is not the command's namespace.
    let words = ["netns", "exec", &star.namespace("sw"), "sh", "-ec", &script];
    Host::default().run(&Command::new("ip", words))?;
    let new: Vec<u32> = threads().difference(&before).copied().collect();
    if new.len() < star.tenants.len() {
        let (found, wanted) = (new.len(), star.tenants.len());
        let message = format!("{found} of {wanted} receive threads (napi/DEVICE-ID) found");
        return Err(ExperimentError::Node(message));
    }
    for thread in new.iter().map(u32::to_string) {
        Host::default().run(&Command::new("taskset", ["-pc", &cpu, &thread]))?;
        // Weir's worker has the same nice value.
        Host::default().run(&Command::new("renice", ["-n", "-20", "-p", &thread]))?;
    }
    Ok(())
}

/// The kernel threads that receive for a device.
fn threads() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let name = |id| fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    ids.filter(|id| name(*id).starts_with("napi/")).collect()
}
