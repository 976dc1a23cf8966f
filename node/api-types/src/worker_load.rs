// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load of a node's worker between two statuses: what a CPU model is fitted to, and what the
//! node compares with that model. Both must count alike, so it is done here once.

use crate::status::{Amount, NodeStatus};

/// Counters of a worker and of what it forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCounts {
    /// The status's time, nanoseconds of the node's clock.
    pub now_ns: u64,
    uptime_ns: u64,
    packets: u64,
    bytes: u64,
    cpu_ns: u64,
    busy_ns: u64,
}

/// The load of a worker over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Its length, nanoseconds.
    pub span_ns: u64,
    /// Frames forwarded.
    pub packets: u64,
    /// Their bytes, with checksums.
    pub bytes: u64,
    /// Processor time of the worker, nanoseconds.
    pub cpu_ns: u64,
}

impl WorkerCounts {
    /// The counters of a status; `None` without a worker: the kernel forwards, and nobody meters
    /// what that takes.
    #[must_use]
    pub fn of(status: &NodeStatus) -> Option<Self> {
        let worker = status.worker?;
        // A frame between two vifs counts twice, and costs more than one to the port.
        let each = status.vifs.iter().flat_map(|vif| [vif.send.sent, vif.receive.sent]);
        let sum = each.fold(Amount::default(), |sum, one| sum.plus(one));
        Some(Self {
            now_ns: status.now_ns,
            uptime_ns: status.uptime_ns,
            packets: sum.packets,
            bytes: sum.bytes,
            cpu_ns: worker.cpu_ns,
            busy_ns: worker.busy_ns,
        })
    }

    /// The load from here to `end`; `None` if a counter began anew, as after a removed vif.
    #[must_use]
    pub fn load_until(&self, end: &Self) -> Option<WorkerLoad> {
        let packets = end.packets.checked_sub(self.packets)?;
        let bytes = end.bytes.checked_sub(self.bytes)?;
        end.uptime_ns.checked_sub(self.uptime_ns)?;
        // A worker that spins takes time while nothing moves, one that was preempted looks busy.
        let cpu = end.cpu_ns.checked_sub(self.cpu_ns)?;
        let busy = end.busy_ns.checked_sub(self.busy_ns)?;
        Some(WorkerLoad {
            span_ns: end.now_ns.saturating_sub(self.now_ns),
            packets,
            bytes: bytes.saturating_add(packets.saturating_mul(CHECKSUM)),
            cpu_ns: cpu.min(busy),
        })
    }
}

/// The frame check sequence, which the switch does not count.
const CHECKSUM: u64 = 4;
