// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The work of a node's worker between two instants: its share in the kernel, and its frames a
//! turn.

use weir_experiment::UPLINK;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_platform::process::Stat;

/// The worker's counters at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerCounters {
    /// In its own code and in the kernel's, in the kernel's ticks.
    ticks: [u64; 2],
    /// In which something moved.
    turns: u64,
    /// Through the uplink.
    sent: u64,
    zero_copy: bool,
}

/// The work of a worker between two samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerTime {
    /// The kernel's share of its time.
    pub(super) in_kernel: f64,
    /// Frames sent by each turn in which something moved.
    pub(super) frames_a_turn: f64,
    /// True if the uplink's frames leave without a copy.
    pub(super) zero_copy: bool,
}

impl WorkerCounters {
    /// Reads the counters.
    pub(super) fn now(node: &NodeProcess) -> Result<Self> {
        let status = node.status()?;
        let uplink = status.port(UPLINK).or_else(|| status.ports.first());
        Ok(Self {
            ticks: ticks(node.pid())?,
            turns: status.worker.unwrap_or_default().busy_turns,
            sent: uplink.map_or(0, |port| port.send.sent.packets),
            zero_copy: uplink.is_some_and(|port| port.driver.ends_with("zero-copy")),
        })
    }

    /// Returns the work since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> WorkerTime {
        let [user, kernel] =
            [0, 1].map(|at| float(self.ticks[at].saturating_sub(earlier.ticks[at])));
        let turns = float(self.turns.saturating_sub(earlier.turns));
        let sent = float(self.sent.saturating_sub(earlier.sent));
        WorkerTime {
            in_kernel: kernel / (user + kernel).max(1.0),
            frames_a_turn: sent / turns.max(1.0),
            zero_copy: self.zero_copy,
        }
    }
}

/// Reads the ticks of the worker's own thread: a node has others, too.
fn ticks(node: u32) -> Result<[u64; 2]> {
    let stat = Stat::of_thread(node, THREAD);
    let missing = || ExperimentError::Node(format!("process {node} has no thread '{THREAD}'"));
    stat.map(|stat| [stat.user_ticks, stat.kernel_ticks]).ok_or_else(missing)
}

/// Name of a node's worker thread.
const THREAD: &str = "weir-worker";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_was_spent_in_between() {
        let earlier = WorkerCounters { ticks: [100, 100], turns: 10, sent: 1000, zero_copy: false };
        let now = WorkerCounters { ticks: [150, 250], turns: 30, sent: 1640, zero_copy: false };
        let spent = now.since(&earlier);
        assert!((spent.in_kernel - 0.75).abs() < 1e-9, "{spent:?}");
        assert!((spent.frames_a_turn - 32.0).abs() < 1e-9, "{spent:?}");
    }
}
