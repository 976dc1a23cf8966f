// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The place of the devices' receive work: the soft interrupt of the sender, or a thread of each
//! device, which can be pinned.

use std::collections::BTreeSet;
use std::fs;

use weir_experiment::prelude::*;
use weir_platform::run::{Command, Host, Platform};

/// Devices whose receive work a processor of its own does. It ends with the devices.
#[derive(Debug)]
pub(crate) struct NapiOn<'a> {
    /// Namespace of the devices.
    pub(crate) namespace: &'a str,
    /// Their names.
    pub(crate) devices: &'a [&'a str],
    /// The processor.
    pub(crate) cpu: u32,
}

impl NapiOn<'_> {
    /// Moves the work.
    pub(crate) fn up(self) -> Result<(), ExperimentError> {
        let Self { namespace, devices, cpu } = self;
        let before = threads();
        let lines = devices.iter().map(|name| format!("echo 1 > /sys/class/net/{name}/threaded\n"));
        // `ip netns exec` mounts the namespace's own /sys; the name is not the command's namespace.
        let script: String = lines.collect();
        Host::default()
            .run(&Command::new("ip", ["netns", "exec", namespace, "sh", "-ec", &script]))?;
        let new: Vec<u32> = threads().difference(&before).copied().collect();
        if new.len() < devices.len() {
            let (found, wanted) = (new.len(), devices.len());
            let message = format!("{found} of {wanted} receive threads (napi/DEVICE-ID) found");
            return Err(ExperimentError::Node(message));
        }
        for thread in new {
            let (cpu, thread) = (cpu.to_string(), thread.to_string());
            Host::default().run(&Command::new("taskset", ["-pc", &cpu, &thread]))?;
            // As Weir's worker has it.
            Host::default().run(&Command::new("renice", ["-n", "-20", "-p", &thread]))?;
        }
        Ok(())
    }
}

/// The kernel threads that receive for a device.
fn threads() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let receives = |id: &u32| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        name.starts_with("napi/")
    };
    ids.filter(receives).collect()
}
