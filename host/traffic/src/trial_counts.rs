// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counts of trials: each packet forwarded, lost or unsent, and remarks on the frames that
//! arrived.

use std::collections::BTreeMap;

use weir_result::Delays;
use weir_tester::{LatencySummary, Outcome};

use super::error::TrafficError;
use super::result::{Received, SendResult, Sent};

/// The packets of all trials of a measurer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialTotals {
    /// The outcome by the counts of generator and sink.
    pub outcome: Outcome,
    /// Lost packets by the sequence numbers of those that arrived. It is counted independently, and
    /// equals `outcome.lost` if both counts are right.
    pub lost_by_sequence: u64,
    /// Lost packets that the receiving device of the tester had no room for.
    pub missed: u64,
    /// Copies of packets that had arrived before.
    pub duplicated: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Packets that arrived so late that they count as lost.
    pub stale: u64,
    /// Packets of streams whose frames arrived with another length than they were sent with.
    pub resized: u64,
    /// Trials within which the tester's link was lost. They were made again, and count nowhere.
    pub link_lost: u64,
}

impl TrialTotals {
    pub(super) fn add(&mut self, outcome: Outcome, lost_by_sequence: u64, missed: u64) {
        self.outcome = self.outcome.plus(outcome);
        self.lost_by_sequence += lost_by_sequence;
        self.missed += missed;
    }

    /// Adds what arrived of the streams that were sent. `is_fixed`: all frames have one length.
    pub(super) fn add_arrivals(
        &mut self,
        sent: &SendResult,
        received: &[Received],
        is_fixed: bool,
    ) {
        for (sent, received) in sent.streams.iter().zip(received) {
            self.duplicated += received.order.duplicated;
            self.reordered += received.order.reordered;
            self.stale += received.order.stale;
            self.resized += if is_resized(sent, received, is_fixed) { received.packets } else { 0 };
        }
    }

    /// Returns remarks that a reader needs beside the figures.
    pub fn notes(&self) -> Vec<String> {
        let Self { missed, duplicated, reordered, stale, resized, link_lost, .. } = *self;
        let notes = [
            (
                missed,
                "of the lost packets arrived at the receiving interface, which had no room for \
                 them: a limit of the tester, not of the device.",
            ),
            (
                resized,
                "frames arrived in trials in which frames had another length than they were sent \
                 with: the device cuts or extends them (RFC 2544, section 10). They count as \
                 forwarded.",
            ),
            (
                duplicated,
                "frames arrived again. Each counts once, with the latency of its first arrival.",
            ),
            (reordered, "frames arrived behind a later one."),
            (stale, "frames arrived more than 1024 frames late, and count as lost."),
            (
                link_lost,
                "trials lost the link at an interface of the tester. They do not count, and were \
                 made again.",
            ),
        ];
        let found = notes.into_iter().filter(|(count, _)| *count > 0);
        found.map(|(count, text)| format!("{count} {text}")).collect()
    }
}

/// Returns true if frames of a stream arrived with another length than they were sent with. A
/// device may add a tag to all frames, or remove it from all. If frames have several sizes, the sum
/// of their lengths is known only if none is missing.
fn is_resized(sent: &Sent, received: &Received, is_fixed: bool) -> bool {
    let packets = received.packets;
    let is_whole = sent.packets == packets && received.order.duplicated == 0;
    let each = sent.bytes.checked_div(sent.packets).unwrap_or(0);
    let expected = match (is_whole, is_fixed) {
        (true, _) => sent.bytes,
        (false, true) => each * packets,
        (false, false) => return false,
    };
    let off = expected.abs_diff(received.bytes);
    packets > 0 && TAGS.iter().all(|tag| off != tag * packets)
}

/// Returns the packets that the DUT forwarded. Duplicates do not count, and a packet that arrives
/// more than 1024 packets late counts as lost.
pub(super) fn unique(received: &Received) -> u64 {
    received.packets.saturating_sub(received.order.duplicated + received.order.stale)
}

pub(super) fn outcome(
    intended: u64,
    offered: u64,
    forwarded: u64,
) -> Result<Outcome, TrafficError> {
    Outcome::new(intended, offered, forwarded)
        .map_err(|error| TrafficError::Device(error.to_string()))
}

/// Counts the packets that are missing by the sequence numbers: before the first packet that
/// arrived, between two that arrived, and after the last.
pub(super) fn lost_by_sequence(sent: &SendResult, received: &[Received]) -> u64 {
    let streams = sent.streams.iter().zip(received);
    let missing = streams.map(|(sent, received)| match received.packets {
        0 => sent.packets,
        _ => {
            let order = &received.order;
            order.first + order.lost + sent.packets.saturating_sub(order.next)
        }
    });
    missing.sum()
}

/// Summarizes the delays of all streams.
pub(super) fn latency(received: &[Received]) -> Option<LatencySummary> {
    let mut all = Delays { min_ns: u64::MAX, ..Delays::default() };
    let mut steps = BTreeMap::new();
    for delays in received.iter().map(|one| &one.delays).filter(|delays| delays.count > 0) {
        all.count += delays.count;
        all.sum_ns = all.sum_ns.saturating_add(delays.sum_ns);
        all.min_ns = all.min_ns.min(delays.min_ns);
        all.max_ns = all.max_ns.max(delays.max_ns);
        delays.steps.iter().for_each(|(begin, count)| *steps.entry(*begin).or_insert(0) += count);
    }
    all.steps = steps.into_iter().collect();
    (all.count > 0).then(|| LatencySummary {
        packets: all.count,
        min_ns: all.min_ns,
        mean_ns: all.sum_ns / all.count,
        median_ns: all.quantile_ns(1, 2),
        p99_ns: all.quantile_ns(99, 100),
        max_ns: all.max_ns,
    })
}

/// Bytes that a tag adds to a frame: no tag, the number of a parallel internet, a VLAN tag.
const TAGS: [u64; 3] = [0, 3, 4];

#[cfg(test)]
mod tests {
    use weir_result::Order;

    use super::*;

    /// Goal: a device that cuts frames is told from one that removes their tag.
    #[test]
    fn frames_of_another_length_are_told() {
        let sent = Sent { packets: 100, bytes: 50_800, ..Sent::default() };
        let arrived = |packets: u64, bytes: u64, duplicated: u64| {
            let order = Order { duplicated, ..Order::default() };
            let received = Received { packets, bytes, order, ..Received::default() };
            is_resized(&sent, &received, true)
        };
        assert!(!arrived(100, 50_800, 0) && !arrived(90, 90 * 508, 0) && !arrived(0, 0, 0));
        assert!(!arrived(100, 50_400, 0) && !arrived(110, 110 * 508, 10));
        assert!(arrived(100, 40_800, 0) && arrived(90, 90 * 508 - 1, 0));
        // With several frame sizes, only the sum of the bytes is known.
        let mix = Sent { packets: 3, bytes: 61 + 2 * 590, ..Sent::default() };
        let of = |packets, bytes| Received { packets, bytes, ..Received::default() };
        assert!(
            !is_resized(&mix, &of(3, mix.bytes), false) && is_resized(&mix, &of(3, 900), false)
        );
        assert!(!is_resized(&mix, &of(2, 651), false), "which one is missing?");
    }
}
