// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of the programs and of the queues.

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_kernel_plan::HANDLE;
use weir_platform::run::{Command, Platform, json};

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
}

/// The counters of one owner in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WayCounts {
    /// Frames that passed.
    pub passed: CountPair,
    /// Frames with a source address that is not allowed.
    pub spoofed: CountPair,
    /// Frames of another slice.
    pub foreign: CountPair,
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
    /// Frames and bytes that wait.
    pub backlog: CountPair,
}

impl WayCounts {
    /// `struct counts` of `bpf/bridge.bpf.c`.
    pub(crate) const BYTES: usize = 9 * 16;

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
        let policed = std::array::from_fn(|index| pair(3 + index));
        Self { passed: pair(0), spoofed: pair(1), foreign: pair(2), policed }
    }
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
}

impl QdiscCounts {
    const fn counts(&self) -> LeafCounts {
        LeafCounts {
            sent: [self.packets, self.bytes],
            drops: self.drops,
            backlog: [self.qlen, self.backlog],
        }
    }
}

/// Reads the queues of Weir's trees: by device and number of the class, 0 for a whole tree.
pub(crate) fn queues(
    on: &dyn Platform,
) -> Result<BTreeMap<(String, u16), LeafCounts>, KernelPlaneError> {
    let list: Vec<QdiscCounts> = json(on, &Command::line("tc -s -j qdisc show"))?;
    let tree = format!("{HANDLE:x}:");
    let minor = |qdisc: &QdiscCounts| match &qdisc.parent {
        None => (qdisc.handle == tree).then_some(0),
        Some(parent) => u16::from_str_radix(parent.strip_prefix(&tree)?, 16).ok(),
    };
    let leaf = |qdisc: &QdiscCounts| Some(((qdisc.dev.clone(), minor(qdisc)?), qdisc.counts()));
    Ok(list.iter().filter_map(leaf).collect())
}
