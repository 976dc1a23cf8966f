// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time and wake-ups of the two threads of a guest, as the kernel counts them
//! (`/proc/PID/task/TID`, proc_pid_schedstat and proc_pid_status).

use std::fs;
use std::path::{Path, PathBuf};

use weir_experiment::prelude::*;

/// The work of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadUse {
    /// Time that it had a processor, ns.
    pub(crate) cpu_ns: u64,
    /// Times that it gave its processor up to wait, and so was woken.
    pub(crate) wakeups: u64,
}

/// The two threads of a running guest.
#[derive(Clone, Debug)]
pub(super) struct GuestThreads([PathBuf; 2]);

impl GuestThreads {
    /// Finds them; `None` until both have begun.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let mut found = [None, None];
        for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let at = [RECEIVE, FORWARD].iter().position(|known| *known == name.trim_end());
            at.into_iter().for_each(|at| found[at] = Some(entry.path()));
        }
        let [Some(receive), Some(forward)] = found else { return None };
        Some(Self([receive, forward]))
    }

    /// Reads both: that which receives, that which forwards.
    pub(super) fn read(&self) -> Result<[ThreadUse; 2]> {
        let [receive, forward] = &self.0;
        Ok([read(receive)?, read(forward)?])
    }
}

impl ThreadUse {
    /// Returns what was done since `earlier`.
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            wakeups: self.wakeups.saturating_sub(earlier.wakeups),
        }
    }
}

fn read(thread: &Path) -> Result<ThreadUse> {
    let file = |name: &str| {
        let path = thread.join(name);
        fs::read_to_string(&path).map_err(|error| ExperimentError::io(path, error))
    };
    let cpu_ns = running_ns(&file("schedstat")?);
    let wakeups = switches(&file("status")?);
    let read = cpu_ns.zip(wakeups).map(|(cpu_ns, wakeups)| ThreadUse { cpu_ns, wakeups });
    read.ok_or_else(|| ExperimentError::Node(format!("{}: not as expected", thread.display())))
}

/// The first field: ns on a processor.
fn running_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

fn switches(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line?.trim().parse().ok()
}

/// The names of the threads.
pub(super) const RECEIVE: &str = "receive";
pub(super) const FORWARD: &str = "forward";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        assert_eq!(running_ns("123 456 7\n"), Some(123));
        let status = "Name:\treceive\nvoluntary_ctxt_switches:\t42\n\
                      nonvoluntary_ctxt_switches:\t7\n";
        assert_eq!((switches(status), switches("Name:\tx\n")), (Some(42), None));
        let (now, then) =
            (ThreadUse { cpu_ns: 9, wakeups: 5 }, ThreadUse { cpu_ns: 4, wakeups: 5 });
        assert_eq!(now.since(then), ThreadUse { cpu_ns: 5, wakeups: 0 });
    }

    #[test]
    fn threads_are_found_by_their_names() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        std::thread::scope(|scope| {
            for name in [RECEIVE, FORWARD] {
                let named = std::thread::Builder::new().name(name.to_owned());
                let wait = || {
                    let _ended = ended.lock().unwrap().recv();
                };
                named.spawn_scoped(scope, wait).unwrap();
            }
            let limit = std::time::Instant::now() + Duration::from_secs(60);
            while GuestThreads::of(std::process::id()).is_none() {
                assert!(std::time::Instant::now() < limit, "the threads were not found");
                std::thread::yield_now();
            }
            let threads = GuestThreads::of(std::process::id()).unwrap();
            assert!(threads.read().unwrap().iter().all(|thread| thread.cpu_ns > 0));
            drop(end);
        });
    }
}
