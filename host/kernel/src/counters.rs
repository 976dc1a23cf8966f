// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of the programs and of the queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_kernel_plan::HANDLE;
use weir_platform::inspect::tc_json;
use weir_platform::run::{Command, Platform};

use crate::error::KernelPlaneError;

/// Packets and bytes, as they are on the wire.
pub type CountPair = [u64; 2];

/// The counters of one slice, router or vif.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Frames from the vif.
    pub send: WayCounts,
    /// Frames towards the vif.
    pub receive: WayCounts,
    /// Frames of the vif that came to the tree of its port.
    pub port: WayCounts,
    /// Frames for the vif that came to the tree of what its port brings.
    pub inbound: CountPair,
}

/// The counters of one owner in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WayCounts {
    /// Frames that passed.
    pub passed: CountPair,
    /// Frames dropped by reason: [`Self::REASONS`].
    pub dropped: [CountPair; Self::REASONS.len()],
    /// Frames beyond a limit: packets and bits of vif, router, slice.
    pub policed: [CountPair; 6],
}

/// The counters of a class's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// Packets and bytes that left it.
    pub sent: CountPair,
    /// Frames dropped; a super-frame is one.
    pub drops: u64,
    /// Frames among them that active queue management gave up (`fq_codel`).
    pub early: u64,
    /// True if the queue is bounded in packets, else in bytes.
    pub in_packets: bool,
    /// Frames and bytes that wait.
    pub backlog: CountPair,
    /// Packets and bytes dropped, as they would have been on the wire, since the vif was entered.
    pub dropped: CountPair,
}

/// The counters of a vif at the time when its queue was made again. The new queue counts from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeafBase {
    /// The device.
    pub(crate) device: String,
    /// The class's number.
    pub(crate) minor: u16,
    /// Packets and bytes that earlier queues were offered.
    pub(crate) offered: CountPair,
    /// Packets and bytes among them that were dropped.
    pub(crate) dropped: CountPair,
}

impl LeafBase {
    /// Returns true if it is that of the queue of this class.
    pub(crate) fn is_of(&self, device: &str, minor: u16) -> bool {
        self.device == device && self.minor == minor
    }
}

impl LeafCounts {
    /// The packets and bytes that were dropped of those `offered`. The queue's own counters begin
    /// at `base`, if it was made again.
    pub(crate) fn dropped_of(&self, offered: CountPair, base: Option<&LeafBase>) -> CountPair {
        let (begun, before) =
            base.map_or_else(Default::default, |base| (base.offered, base.dropped));
        let own = |at: usize| {
            let gone = self.sent[at].saturating_add(self.backlog[at]);
            offered[at].saturating_sub(begun[at]).saturating_sub(gone)
        };
        // Frames on their way from the program to the queue are in neither.
        let own = if self.drops == 0 { [0, 0] } else { [own(0), own(1)] };
        [before[0] + own[0], before[1] + own[1]]
    }
}

impl WayCounts {
    /// Names of the drop reasons, limits aside: `enum reason` of `bpf/bridge.bpf.c`, then the one
    /// of the table `unknown_slice`.
    pub const REASONS: [&str; 9] = [
        "spoofed_mac",
        "foreign_slice",
        "unexpected_tag",
        "nested_tag",
        "bad_source",
        "reserved_group",
        "moved",
        "macs_full",
        "unknown_slice",
    ];
    /// The reasons of `enum reason`.
    const IN_ROW: usize = Self::REASONS.len() - 1;

    /// `struct counts` of `bpf/bridge.bpf.c`.
    pub(crate) const BYTES: usize = (1 + Self::IN_ROW + 6) * 16;

    /// The sum of the rows of all processors.
    pub(crate) fn sum(rows: &[Vec<u8>]) -> Self {
        let mut words = [0_u64; Self::BYTES / 8];
        for row in rows {
            for (sum, word) in words.iter_mut().zip(row.chunks_exact(8)) {
                let word = word.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                *sum = sum.wrapping_add(word);
            }
        }
        let pair = |index: usize| [words[2 * index], words[2 * index + 1]];
        let dropped = std::array::from_fn(|index| match index < Self::IN_ROW {
            true => pair(1 + index),
            false => [0, 0],
        });
        let policed = std::array::from_fn(|index| pair(1 + Self::IN_ROW + index));
        Self { passed: pair(0), dropped, policed }
    }

    /// The counters with those of the table `unknown_slice`.
    pub(crate) const fn with_unknown_slice(mut self, count: CountPair) -> Self {
        self.dropped[Self::IN_ROW] = count;
        self
    }
}

/// The sum of the rows of all processors, each a pair.
pub(crate) fn sum_of_pairs(rows: &[Vec<u8>]) -> CountPair {
    let mut sum = [0_u64; 2];
    for row in rows {
        for (at, sum) in [0, 8].into_iter().zip(&mut sum) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(bytes_at(row, at)));
        }
    }
    sum
}

/// The bytes of a table's key or value from `at` on; zero beyond its end.
pub(crate) fn bytes_at<const N: usize>(value: &[u8], at: usize) -> [u8; N] {
    value.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

#[derive(Debug, Deserialize)]
struct QdiscCounts {
    dev: String,
    #[serde(default)]
    handle: String,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    drops: u64,
    #[serde(default)]
    backlog: u64,
    #[serde(default)]
    qlen: u64,
    #[serde(default)]
    kind: String,
    /// Drops of `fq_codel` for want of room.
    #[serde(default)]
    drop_overlimit: u64,
}

impl QdiscCounts {
    fn counts(&self) -> LeafCounts {
        let codel = self.kind == "fq_codel";
        LeafCounts {
            sent: [self.packets, self.bytes],
            drops: self.drops,
            early: if codel { self.drops.saturating_sub(self.drop_overlimit) } else { 0 },
            in_packets: codel,
            backlog: [self.qlen, self.backlog],
            dropped: [0, 0],
        }
    }
}

/// Reads the queues of Weir's trees: by device and number of the class, 0 for a whole tree.
pub(crate) fn queues(
    on: &dyn Platform,
) -> Result<BTreeMap<(String, u16), LeafCounts>, KernelPlaneError> {
    let list: Vec<QdiscCounts> = tc_json(on, &Command::line("tc -s -j qdisc show"))?;
    let tree = format!("{HANDLE:x}:");
    let minor = |qdisc: &QdiscCounts| match &qdisc.parent {
        None => (qdisc.handle == tree).then_some(0),
        Some(parent) => u16::from_str_radix(parent.strip_prefix(&tree)?, 16).ok(),
    };
    let leaf = |qdisc: &QdiscCounts| Some(((qdisc.dev.clone(), minor(qdisc)?), qdisc.counts()));
    Ok(list.iter().filter_map(leaf).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a queue dropped never falls, and jumps by no packet, when the queue is made again
    /// and counts from zero.
    #[test]
    fn drops_go_on_when_a_queue_is_made_again() {
        let queue = LeafCounts { sent: [70, 7_000], drops: 3, ..LeafCounts::default() };
        assert_eq!(queue.dropped_of([90, 9_000], None), [20, 2_000]);
        let base = LeafBase { offered: [90, 9_000], dropped: [20, 2_000], ..LeafBase::default() };
        let fresh = LeafCounts { sent: [5, 500], ..LeafCounts::default() };
        assert_eq!(fresh.dropped_of([95, 9_500], Some(&base)), [20, 2_000]);
        let later = LeafCounts { sent: [6, 600], drops: 1, ..LeafCounts::default() };
        assert_eq!(later.dropped_of([100, 10_000], Some(&base)), [24, 2_400]);
    }

    /// Goal: the manual explains every reason, in order, and no other.
    #[test]
    fn the_manual_lists_the_reasons() {
        let page = include_str!("../../../docs/kernel.md");
        let section = page.split("\n## Drop reasons\n").nth(1).unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        assert_eq!(rows.map(|(name, _)| name).collect::<Vec<_>>(), WayCounts::REASONS);
    }

    #[test]
    fn the_rows_of_all_processors_are_summed() {
        let row: Vec<u8> = (0..30_u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(row.len(), WayCounts::BYTES);
        let sum = WayCounts::sum(&[row.clone(), row]);
        assert_eq!((sum.passed, sum.dropped[0]), ([0, 2], [4, 6]));
        assert_eq!(sum.policed[5], [56, 58]);
        assert_eq!((sum.dropped[7], sum.dropped[8]), ([32, 34], [0, 0]));
        assert_eq!(sum.with_unknown_slice([1, 60]).dropped[8], [1, 60]);
    }
}
