// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of the programs and of the queues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use weir_kernel_plan::{HANDLE, INBOUND_CLASS, LeafObject, OTHERS_CLASS};
use weir_platform::inspect::tc_json;
use weir_platform::run::{Command, Platform};

use crate::error::KernelPlaneError;

/// Packets and bytes, as they are on the wire.
pub type CountPair = [u64; 2];

/// The counters of one slice, router or vif.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Frames from the vif.
    pub send: DirectionCounts,
    /// Frames towards the vif.
    pub receive: DirectionCounts,
    /// Frames of the vif that came to the tree of its port.
    pub port: DirectionCounts,
    /// Frames for the vif that came to the tree for frames from its port.
    pub inbound: CountPair,
}

/// The counters of one owner in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
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
    /// Frames among them that active queue management dropped (`fq_codel`).
    pub early: u64,
    /// Packets and bytes among `dropped` that active queue management dropped.
    pub dropped_early: CountPair,
    /// True if the queue is bounded in packets, else in bytes.
    pub in_packets: bool,
    /// Frames and bytes that wait.
    pub backlog: CountPair,
    /// Packets and bytes dropped, as they would have been on the wire, since the vif was entered.
    pub dropped: CountPair,
    /// Packets and bytes that left it, wait or were dropped, since the vif was entered.
    pub offered: CountPair,
}

/// The counters of one vif.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// The number of the vif.
    pub owner: u16,
    /// Counters of the programs.
    pub programs: OwnerCounts,
    /// Counters of its queue at the port.
    pub send: LeafCounts,
    /// Counters of the queue at its own device, if it has one.
    pub receive: Option<LeafCounts>,
    /// Counters of its queue in the tree for frames from the port, if there is one.
    pub inbound: Option<LeafCounts>,
}

/// The counters of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneCounts {
    /// By the vif's device.
    pub members: BTreeMap<String, MemberCounts>,
    /// The trees that are there, by device.
    pub trees: BTreeMap<String, LeafCounts>,
    /// By the port's device.
    pub ports: BTreeMap<String, PortCounts>,
}

/// The counters of one port, beside those of its vifs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Frames that came from beyond it with the address of a vif; dropped.
    pub moved: CountPair,
    /// Copies for a vif that its bridge flooded to it, since that vif was silent; dropped. The vif
    /// has a copy of its own.
    pub flooded: CountPair,
    /// Frames that no vif of the port sent (the host's own), as they came to its tree.
    pub others: CountPair,
    /// Counters of their queue in that tree.
    pub host: LeafCounts,
}

impl PortCounts {
    /// Name of the drop reason of `moved`.
    pub const MOVED: &str = "moved";
    /// Name of the drop reason of `flooded`.
    pub const FLOODED: &str = "flooded";
}

/// The counters of a queue at the time when it was made again. The new queue counts from zero.
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
    /// Returns true if it is of one of these vifs, or of the class for others: that of a vif's own
    /// device, or that of the host's frames at a port.
    pub(crate) fn is_among(&self, owners: &BTreeSet<u16>) -> bool {
        self.minor == OTHERS_CLASS || owners.contains(&(self.minor & !INBOUND_CLASS))
    }

    /// Returns true if it is that of the queue of this class.
    pub(crate) fn is_of(&self, device: &str, minor: u16) -> bool {
        self.device == device && self.minor == minor
    }
}

impl LeafCounts {
    /// Returns the packets and bytes that were dropped of those `offered`. The queue's own counters
    /// begin at `base`, if it was made again.
    pub(crate) fn dropped_of(&self, offered: CountPair, base: Option<&LeafBase>) -> CountPair {
        let (begun, before) =
            base.map_or_else(Default::default, |base| (base.offered, base.dropped));
        let waiting = [self.waiting_packets(offered), self.backlog[1]];
        let own = |at: usize| {
            let gone = self.sent[at].saturating_add(waiting[at]);
            offered[at].saturating_sub(begun[at]).saturating_sub(gone)
        };
        // Frames on their way from the program to the queue are in neither.
        let own = if self.drops == 0 { [0, 0] } else { [own(0), own(1)] };
        [before[0] + own[0], before[1] + own[1]]
    }

    /// Returns the packets that wait, of those `offered`. The queue counts a super-frame as one
    /// packet, so they are computed from its bytes and the mean length of a packet.
    fn waiting_packets(&self, [packets, bytes]: CountPair) -> u64 {
        let [frames, waiting] = self.backlog;
        let by_bytes = u128::from(waiting) * u128::from(packets);
        let by_bytes = by_bytes.div_ceil(u128::from(bytes.max(1)));
        u64::try_from(by_bytes).unwrap_or(u64::MAX).max(frames)
    }

    /// Returns the packets and bytes that it accounts for: those that left, wait or were dropped.
    pub(crate) fn offered_of(&self, base: Option<&LeafBase>) -> CountPair {
        let (begun, before) =
            base.map_or_else(Default::default, |base| (base.offered, base.dropped));
        let own = |at: usize| {
            let new = self.dropped[at].saturating_sub(before[at]);
            begun[at] + self.sent[at] + self.backlog[at] + new
        };
        [own(0), own(1)]
    }
}

/// The counters reported last, by queue. They keep later reports from decreasing.
#[derive(Debug, Default)]
pub(crate) struct ReportedCounters(Mutex<BTreeMap<(u16, VifQueue), LeafCounts>>);

/// A queue of a vif.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VifQueue {
    /// The queue at its port.
    Send,
    /// The queue at its own device.
    Receive,
    /// The queue in the tree for frames from its port.
    Inbound,
    /// A queue of no vif: that of the host's own frames at the port whose device has this number.
    Host(u32),
}

impl ReportedCounters {
    /// Fills in what a queue `dropped` so far, or what was reported before if that is more. The
    /// queue counts a super-frame as one packet, so the increase is divided between the reasons in
    /// the ratio of the queue's own new drops.
    pub(crate) fn raise(
        &self,
        of: (u16, VifQueue),
        dropped: CountPair,
        queue: LeafCounts,
    ) -> LeafCounts {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.get(&of).copied().unwrap_or_default();
        // A queue that was made again counts from zero.
        let goes_on = queue.drops >= last.drops && queue.early >= last.early;
        let begun = if goes_on { (last.drops, last.early) } else { (0, 0) };
        let (mut drops, mut early) = (queue.drops - begun.0, queue.early - begun.1);
        if drops == 0 {
            (drops, early) = (queue.drops, queue.early);
        }
        let part = |count: u64| {
            let part = u128::from(count) * u128::from(early) / u128::from(drops.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let dropped = [0, 1].map(|at| dropped[at].max(last.dropped[at]));
        let dropped_early =
            [0, 1].map(|at| last.dropped_early[at] + part(dropped[at] - last.dropped[at]));
        let now = LeafCounts { dropped, dropped_early, offered: last.offered, ..queue };
        all.insert(of, now);
        now
    }

    /// Fills in what a queue was offered, or what was reported before if that is more. The
    /// difference was mistaken for drops while on its way to the queue; it counts as waiting.
    pub(crate) fn raise_offered(&self, of: (u16, VifQueue), mut queue: LeafCounts) -> LeafCounts {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.entry(of).or_default();
        for at in [0, 1] {
            let missing = last.offered[at].saturating_sub(queue.offered[at]);
            queue.offered[at] += missing;
            queue.backlog[at] += missing;
        }
        last.offered = queue.offered;
        queue
    }

    /// Returns the counters reported last of a queue.
    pub(crate) fn last(&self, of: (u16, VifQueue)) -> LeafCounts {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&of).copied().unwrap_or_default()
    }

    /// Forgets all but these vifs and the ports with these devices: the number of a vif or device
    /// that is gone may become another's, whose counters begin at zero.
    pub(crate) fn keep(&self, owners: &BTreeSet<u16>, ports: &BTreeSet<u32>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(owner, queue), _| match queue {
            VifQueue::Host(port) => ports.contains(port),
            _ => owners.contains(owner),
        });
    }
}

impl PlaneCounts {
    /// Returns the base of a queue that is made again now; `None` if it is neither a vif's nor that
    /// of the host's own frames at a port.
    pub(crate) fn base_of(&self, leaf: &LeafObject) -> Option<LeafBase> {
        let LeafObject { device, minor, .. } = leaf;
        let (offered, queue) = if *minor == OTHERS_CLASS
            && let Some(port) = self.ports.get(device)
        {
            (port.others, port.host)
        } else if *minor == OTHERS_CLASS {
            let member = self.members.get(device)?;
            (member.programs.receive.passed, member.receive.unwrap_or_default())
        } else if let Some(owner) = inbound_owner(*minor) {
            let member = self.members.values().find(|member| member.owner == owner)?;
            (member.programs.inbound, member.inbound.unwrap_or_default())
        } else {
            let member = self.members.values().find(|member| member.owner == *minor)?;
            (member.programs.port.passed, member.send)
        };
        let (device, minor) = (device.clone(), *minor);
        Some(LeafBase { device, minor, offered, dropped: queue.dropped })
    }
}

/// Returns the vif of a class in the tree for frames from a port.
fn inbound_owner(minor: u16) -> Option<u16> {
    (minor & INBOUND_CLASS != 0).then_some(minor & !INBOUND_CLASS)
}

impl DirectionCounts {
    /// Names of the drop reasons, limits aside: `enum reason` of `bpf/bridge_counts.h`, then those
    /// of the tables `unknown_slice` and `flooded`.
    pub const REASONS: [&str; 10] = [
        "spoofed_mac",
        "foreign_slice",
        "unexpected_tag",
        "nested_tag",
        "bad_source",
        "reserved_group",
        "moved",
        "macs_full",
        "unknown_slice",
        "flooded",
    ];
    /// The reasons of `enum reason`.
    const IN_ROW: usize = Self::REASONS.len() - 2;

    /// `struct counts` of `bpf/bridge_counts.h`.
    pub(crate) const BYTES: usize = (1 + Self::IN_ROW + 6) * 16;

    /// Sums the rows of all processors.
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

    /// Adds the counters of the tables `unknown_slice` and `flooded`.
    pub(crate) const fn with_tables(mut self, [unknown, flooded]: [CountPair; 2]) -> Self {
        self.dropped[Self::IN_ROW] = unknown;
        self.dropped[Self::IN_ROW + 1] = flooded;
        self
    }
}

/// Sums the rows of all processors, each of `N` pairs.
pub(crate) fn sum_of_pairs<const N: usize>(rows: &[Vec<u8>]) -> [CountPair; N] {
    let mut sums = [[0_u64; 2]; N];
    for row in rows {
        for (at, sum) in sums.as_flattened_mut().iter_mut().enumerate() {
            *sum = sum.wrapping_add(u64::from_ne_bytes(bytes_at(row, 8 * at)));
        }
    }
    sums
}

/// Returns `N` bytes of a table's key or value from `at` on; zeros if it has fewer.
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
    /// Drops of `fq_codel` because the queue was full.
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
            ..LeafCounts::default()
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
    use weir_kernel_plan::LeafKind;

    /// Goal: frames that a vif received before it had a queue do not count as dropped.
    #[test]
    fn a_queue_that_comes_later_counts_from_its_start() {
        let receive = DirectionCounts { passed: [90, 9_000], ..DirectionCounts::default() };
        let programs = OwnerCounts { receive, ..OwnerCounts::default() };
        let member = MemberCounts { owner: 16, programs, ..MemberCounts::default() };
        let members = BTreeMap::from([("t0".to_owned(), member)]);
        let counts = PlaneCounts { members, ..PlaneCounts::default() };
        let kind = LeafKind::Bfifo { bytes: 1 << 18 };
        let leaf = LeafObject { device: "t0".to_owned(), minor: OTHERS_CLASS, kind };
        let base = counts.base_of(&leaf);
        let queue = LeafCounts { sent: [6, 600], drops: 1, ..LeafCounts::default() };
        assert_eq!(queue.dropped_of([100, 10_000], base.as_ref()), [4, 400]);
    }

    /// Goal: a super-frame that waits is not taken for dropped packets: the queue counts it as one.
    #[test]
    fn super_frames_that_wait_were_not_dropped() {
        let (sent, frame) = ([70, 70 * 1514], 45 * 1514);
        let queue = LeafCounts { sent, drops: 3, backlog: [2, 2 * frame], ..LeafCounts::default() };
        let offered = [170, 170 * 1514];
        assert_eq!(queue.dropped_of(offered, None), [10, 10 * 1514]);
        // Frames of several lengths, each counted as one.
        let queue = LeafCounts { backlog: [40, 40 * 60], ..queue };
        assert_eq!(queue.dropped_of(offered, None)[0], 60);
    }

    /// Goal: drops that were reported never fall, neither all nor those for a reason, and those of
    /// another vif begin anew.
    #[test]
    fn drops_that_were_reported_never_fall() {
        let reported = ReportedCounters::default();
        let now = |at, drops, early, dropped| {
            let queue = LeafCounts { drops, early, ..LeafCounts::default() };
            let LeafCounts { dropped, dropped_early, .. } = reported.raise(at, dropped, queue);
            [dropped, dropped_early]
        };
        let [up, own, other] =
            [(16, VifQueue::Send), (16, VifQueue::Receive), (17, VifQueue::Send)];
        assert_eq!(now(up, 10, 10, [100, 5_000]), [[100, 5_000]; 2]);
        assert_eq!(now(up, 20, 10, [150, 4_000]), [[150, 5_000], [100, 5_000]]);
        assert_eq!(now(up, 30, 15, [170, 6_000]), [[170, 6_000], [110, 5_500]]);
        // The queue was made again.
        assert_eq!(now(up, 1, 1, [180, 6_000]), [[180, 6_000], [120, 5_500]]);
        assert_eq!(now(own, 1, 0, [3, 300]), [[3, 300], [0, 0]]);
        assert_eq!(now(other, 1, 0, [3, 300]), [[3, 300], [0, 0]]);
        let (host, gone) = ((OTHERS_CLASS, VifQueue::Host(3)), (OTHERS_CLASS, VifQueue::Host(4)));
        assert_eq!(
            [now(host, 1, 0, [5, 500])[0], now(gone, 1, 0, [6, 600])[0]],
            [[5, 500], [6, 600]]
        );
        reported.keep(&BTreeSet::from([17]), &BTreeSet::from([3]));
        assert_eq!(
            [now(host, 1, 0, [4, 400])[0], now(gone, 1, 0, [1, 100])[0]],
            [[5, 500], [1, 100]]
        );
        assert_eq!(now(up, 1, 0, [1, 100]), [[1, 100], [0, 0]]);
        assert_eq!(now(own, 0, 0, [0, 0]), [[0, 0]; 2]);
        assert_eq!(now(other, 1, 0, [2, 200]), [[3, 300], [0, 0]]);
    }

    /// Goal: what a queue was offered never falls: what was dropped there is found to have waited
    /// before, and all that it was offered still left, waits or was dropped.
    #[test]
    fn what_a_queue_was_offered_never_falls() {
        let reported = ReportedCounters::default();
        let now = |sent, backlog, dropped| {
            let queue = LeafCounts {
                sent: [sent, 100 * sent],
                backlog: [backlog, 100 * backlog],
                ..LeafCounts::default()
            };
            let queue = reported.raise((16, VifQueue::Send), [dropped, 100 * dropped], queue);
            let offered = queue.offered_of(None);
            reported.raise_offered((16, VifQueue::Send), LeafCounts { offered, ..queue })
        };
        assert_eq!(now(80, 20, 10).offered, [110, 11_000]);
        assert_eq!(now(84, 22, 10).offered, [116, 11_600]);
        let later = now(85, 17, 10);
        assert_eq!((later.offered, later.backlog), ([116, 11_600], [21, 2_100]));
        assert_eq!(now(100, 10, 10).offered, [120, 12_000]);
    }

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

    /// Goal: the manual explains every reason, in order, and no other; a port has none of its own.
    #[test]
    fn the_manual_lists_the_reasons() {
        let page = include_str!("../../../docs/kernel.md");
        let section = page.split("\n## Drop reasons\n").nth(1).unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        assert_eq!(rows.map(|(name, _)| name).collect::<Vec<_>>(), DirectionCounts::REASONS);
        for own in [PortCounts::MOVED, PortCounts::FLOODED] {
            assert!(DirectionCounts::REASONS.contains(&own), "{own}");
        }
    }

    #[test]
    fn the_rows_of_all_processors_are_summed() {
        let row: Vec<u8> = (0..30_u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(row.len(), DirectionCounts::BYTES);
        let sum = DirectionCounts::sum(&[row.clone(), row]);
        assert_eq!((sum.passed, sum.dropped[0]), ([0, 2], [4, 6]));
        assert_eq!(sum.policed[5], [56, 58]);
        assert_eq!((sum.dropped[7], sum.dropped[8]), ([32, 34], [0, 0]));
        assert_eq!(sum.with_tables([[1, 60], [2, 0]]).dropped[8..], [[1, 60], [2, 0]]);
    }
}
