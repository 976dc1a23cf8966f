// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a node's worker did between two instants: how much of it in the kernel, how many frames a
//! turn.

use std::fs;
use std::path::Path;

use crate::node::NodeProcess;
use crate::{TrialError, UPLINK};

/// The worker's counters at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    /// In its own code and in the kernel's, in the kernel's ticks.
    ticks: [u64; 2],
    /// In which something moved.
    turns: u64,
    /// Through the uplink.
    sent: u64,
    zero_copy: bool,
}

/// What it did between two of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// Of its time, the part that the kernel spent for it.
    pub(super) in_kernel: f64,
    /// Frames sent by each turn in which something moved.
    pub(super) frames_a_turn: f64,
    /// Whether the uplink's frames leave without a copy.
    pub(super) zero_copy: bool,
}

impl Worker {
    /// Reads the counters.
    ///
    /// # Errors
    /// The node does not answer, or its worker's thread is not found.
    pub(super) fn now(node: &NodeProcess) -> Result<Self, TrialError> {
        let status = node.status()?;
        let uplink = status.port(UPLINK).or_else(|| status.ports.first());
        Ok(Self {
            ticks: ticks(node.pid())?,
            turns: status.worker.busy_turns,
            sent: uplink.map_or(0, |port| port.send.sent.packets),
            zero_copy: uplink.is_some_and(|port| port.driver.ends_with("zero-copy")),
        })
    }

    /// What happened since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Spent {
        let [user, kernel] =
            [0, 1].map(|at| crate::float(self.ticks[at].saturating_sub(earlier.ticks[at])));
        let turns = crate::float(self.turns.saturating_sub(earlier.turns));
        let sent = crate::float(self.sent.saturating_sub(earlier.sent));
        Spent {
            in_kernel: kernel / (user + kernel).max(1.0),
            frames_a_turn: sent / turns.max(1.0),
            zero_copy: self.zero_copy,
        }
    }
}

/// Fields 14 and 15 of the worker's own `stat`: a process has other threads, too.
fn ticks(pid: u32) -> Result<[u64; 2], TrialError> {
    let tasks = format!("/proc/{pid}/task");
    let folder = fs::read_dir(&tasks).map_err(|error| TrialError::io(&tasks, error))?;
    let mut threads = folder.filter_map(|task| task.ok().map(|task| task.path()));
    let named =
        |task: &Path| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == THREAD);
    let found = threads.find(|task| named(task)).and_then(|task| {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        two_times(&stat)
    });
    found.ok_or_else(|| TrialError::Node(format!("{tasks}: no thread '{THREAD}'")))
}

/// Behind the name, which may hold anything, stand the fields from the third on.
fn two_times(stat: &str) -> Option<[u64; 2]> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?])
}

/// What a node calls its worker.
const THREAD: &str = "weir-worker";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_fields_14_and_15_whatever_the_name_is() {
        let stat = "12 (a) b) R 1 1 1 0 -1 4194560 92 0 0 0 1234 567 0 0 20 0 1 0 8 9";
        assert_eq!(two_times(stat), Some([1234, 567]));
        assert_eq!(two_times("12 (a) R 1"), None);
    }

    #[test]
    fn shares_are_of_what_was_spent_in_between() {
        let earlier = Worker { ticks: [100, 100], turns: 10, sent: 1000, zero_copy: false };
        let now = Worker { ticks: [150, 250], turns: 30, sent: 1640, zero_copy: false };
        let spent = now.since(&earlier);
        assert!((spent.in_kernel - 0.75).abs() < 1e-9, "{spent:?}");
        assert!((spent.frames_a_turn - 32.0).abs() < 1e-9, "{spent:?}");
    }
}
