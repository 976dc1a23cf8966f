// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes by an identity that is never reused: process id and start time.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use crate::proc_stat::Stat;

use crate::error::HostError;

/// A process, told apart from a later one with the same id by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl Identity {
    /// The calling process.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn own() -> Result<Self, HostError> {
        let pid = std::process::id();
        Self::of(pid)
            .ok_or_else(|| HostError::Refused(format!("/proc/{pid}/stat: no such process")))
    }

    /// The process that has this id now; none if there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let start_ticks = Stat::of(pid)?.start_ticks;
        Some(Self { pid, start_ticks })
    }

    /// Whether it still runs. A zombie does not: it makes no more changes.
    pub fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| {
            stat.start_ticks == self.start_ticks && !matches!(stat.state, 'Z' | 'X')
        })
    }

    fn signal(&self, signal: i32) {
        if let (true, Ok(pid)) = (self.is_alive(), libc::pid_t::try_from(self.pid)) {
            // SAFETY: kill takes two numbers; the identity was compared just now, and an id is
            // reused only after the whole id space was gone through.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// Has all threads allocate from one heap. By default glibc gives each thread that allocates one of
/// its own, up to eight for each processor; threads that come and go, as those that wait for
/// requests, then leave a little in each, and the process grows for hours. For a process whose hot
/// path does not allocate the lock costs nothing. Call it before other threads start.
pub fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and is called before there are other threads; that it
    // refuses would leave things as they are.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Ends the processes: SIGTERM, then SIGKILL to what is left after `patience`.
///
/// # Errors
/// One is still there `patience` after SIGKILL (it hangs in the kernel).
pub fn end_all(processes: &[Identity], patience: Duration) -> Result<(), HostError> {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        for process in processes {
            process.signal(signal);
        }
        let until = Instant::now() + patience;
        while processes.iter().any(Identity::is_alive) {
            if Instant::now() >= until {
                break;
            }
            thread::sleep(POLL);
        }
    }
    match processes.iter().find(|process| process.is_alive()) {
        Some(left) => Err(HostError::Refused(format!(
            "process {} does not end: still there {} ms after SIGKILL",
            left.pid,
            patience.as_millis()
        ))),
        None => Ok(()),
    }
}

/// Asks a child to end: SIGTERM. It has not been waited for, so its id is its own.
pub fn terminate(child: &std::process::Child) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: kill takes two numbers; a child that was not waited for keeps its id.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Whether this process has the rights of root (effective user 0).
pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The processes that were started with this entry (`NAME=value`) in their environment.
pub fn with_environment(entry: &str) -> Vec<Identity> {
    let has = |pid: &u32| {
        let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        text.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    let found = all().into_iter().filter(has).filter_map(Identity::of);
    found.filter(Identity::is_alive).collect()
}

/// The ids of all processes.
pub(crate) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// How often an ending process is looked at.
const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_identity_outlives_its_process_and_is_not_taken_over() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        assert!(!Identity { start_ticks: own.start_ticks + 1, ..own }.is_alive());
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert!(identity.is_alive());
        end_all(&[identity], Duration::from_secs(2)).unwrap();
        assert!(!identity.is_alive());
        child.wait().unwrap();
        assert_eq!(Identity::of(child.id()), None);
    }
}
