// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps on the files of control groups that undo a change: processes leave a group, a group is
//! removed, a controller is disabled.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::HostError;
use crate::process::Identity;

/// Moves every process of a group to another and removes the group. Does nothing if it is gone.
///
/// # Errors
/// It is still there: processes keep starting in it, or groups are below it.
pub(crate) fn dissolve(group: &Path, to: &Path) -> Result<(), HostError> {
    let mut last = io::Error::from_raw_os_error(libc::EBUSY);
    for _ in 0..DISSOLVE_TRIES {
        for pid in fs::read_to_string(group.join(PROCESSES)).unwrap_or_default().lines() {
            // It may have ended; what is left shows by the group that does not go.
            let _ = write(&to.join(PROCESSES), pid);
        }
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = error,
        }
        thread::sleep(DISSOLVE_POLL);
    }
    Err(HostError::io("remove the control group", group, last))
}

/// Takes the CPU controller away from the groups below the root of a tree of version 2, unless one
/// of them uses it by now: then it is theirs, and stays for the whole host.
///
/// # Errors
/// The kernel refused for another reason than that it is used.
pub(crate) fn disable(root: &Path) -> Result<(), HostError> {
    let groups = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    if groups.filter(|path| path.is_dir()).any(|group| uses_cpu(&group)) {
        return Ok(());
    }
    let busy = [libc::EBUSY, libc::ENOENT, libc::ENODEV].map(Some);
    match write(&root.join(SUBTREE), "-cpu") {
        Err(error) if !busy.contains(&error.raw_os_error()) => {
            Err(HostError::io("take the controller cpu from the groups of", root, error))
        }
        _ => Ok(()),
    }
}

/// Returns true if anything but the kernel's defaults is set in a group, or groups below it have
/// the controller.
fn uses_cpu(group: &Path) -> bool {
    let text = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    let is_set = |(name, default): (&str, &str)| {
        text(name).split_whitespace().next().is_some_and(|word| word != default)
    };
    text(SUBTREE).split_whitespace().any(|word| word == "cpu")
        || DEFAULTS_V2.into_iter().any(is_set)
}

/// Moves a process to a group. Does nothing if either is gone.
///
/// # Errors
/// The kernel refused.
pub(crate) fn move_back(process: &Identity, to: &Path) -> Result<(), HostError> {
    if !process.is_alive() {
        return Ok(());
    }
    match write(&to.join(PROCESSES), &process.pid.to_string()) {
        Err(error)
            if ![libc::ESRCH, libc::ENOENT, libc::ENODEV]
                .map(Some)
                .contains(&error.raw_os_error()) =>
        {
            Err(HostError::io("move a process back to", to, error))
        }
        _ => Ok(()),
    }
}

/// Writes a text in one call, as these files require; never makes a file.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).truncate(true).open(path)?.write_all(text.as_bytes())
}

/// Lists and takes the processes of a group.
pub(crate) const PROCESSES: &str = "cgroup.procs";
/// Lists the controllers of the groups below.
pub(crate) const SUBTREE: &str = "cgroup.subtree_control";
/// Version 2: quota and period.
pub(crate) const MAX_V2: &str = "cpu.max";
/// Version 2: the weight.
pub(crate) const WEIGHT_V2: &str = "cpu.weight";
/// Version 2: the settings of a group that nobody configured.
const DEFAULTS_V2: [(&str, &str); 5] = [
    (MAX_V2, "max"),
    (WEIGHT_V2, "100"),
    ("cpu.idle", "0"),
    ("cpu.uclamp.min", "0.00"),
    ("cpu.uclamp.max", "max"),
];

/// The most attempts: a process that has ended is in its group until its parent has waited for it.
const DISSOLVE_TRIES: u32 = 50;
const DISSOLVE_POLL: Duration = Duration::from_millis(10);
