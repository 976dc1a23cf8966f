// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the kernel's own forwarding runs: in the soft interrupt of whoever sent, or on a thread
//! of a device's own, which can be pinned.

use std::fs;

use weir_host::run::{Command, Host, Platform};

use crate::TrialError;
use crate::star::Star;

/// The tenants' links of a star, whose receive work a processor of its own does while this lives.
#[derive(Debug)]
pub(crate) struct NapiOn {
    star: Star,
}

impl NapiOn {
    /// Moves the work of the switch node's ends of the tenants' links to processor `cpu`.
    pub(crate) fn cpu(star: &Star, cpu: u32) -> Result<Self, TrialError> {
        let moved = Self { star: star.clone() };
        moved.set_threaded(true)?;
        let names: Vec<String> = star.tenants.iter().map(|t| format!("napi/{t}-")).collect();
        let threads = threads(&names);
        if threads.len() < names.len() {
            let (found, wanted) = (threads.len(), names.len());
            let message = format!("{found} of {wanted} receive threads (napi/DEVICE-ID) found");
            return Err(TrialError::Node(message));
        }
        for thread in threads {
            let (cpu, thread) = (cpu.to_string(), thread.to_string());
            Host::default().run(&Command::new("taskset", ["-pc", &cpu, &thread]))?;
        }
        Ok(moved)
    }

    /// Gives the work back to soft interrupts.
    pub(crate) fn undo(self) -> Result<(), TrialError> {
        self.set_threaded(false)
    }

    fn set_threaded(&self, threaded: bool) -> Result<(), TrialError> {
        let value = u8::from(threaded);
        let script: String = self
            .star
            .tenants
            .iter()
            .map(|tenant| format!("echo {value} > /sys/class/net/{tenant}/threaded\n"))
            .collect();
        // `ip netns exec` mounts the namespace's own /sys; the name is not the command's namespace.
        let namespace = self.star.namespace("sw");
        let words = ["netns", "exec", &namespace, "sh", "-ec", &script];
        Host::default().run(&Command::new("ip", words))?;
        Ok(())
    }
}

/// The ids of the kernel threads whose name begins as one of `names` does; the kernel keeps 15
/// characters of a name.
fn threads(names: &[String]) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = |id: &u32| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        names.iter().any(|begin| name.starts_with(begin.as_str()))
    };
    ids.filter(named).collect()
}
