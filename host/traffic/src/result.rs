// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was sent and received, as plain data for JSON. Bytes are layer 2 without FCS unless said
//! otherwise; times are ns of `CLOCK_MONOTONIC`, the same on all ends of one machine.

use serde::{Deserialize, Serialize};

use super::histogram::Delays;
use super::spec::{Mac, ReceiveSpec, SendSpec};

/// What a sender did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendResult {
    /// What was asked.
    pub spec: SendSpec,
    /// From when to when.
    pub span: Span,
    /// Each stream, in the order of the specification.
    pub streams: Vec<Sent>,
}

/// What a receiver saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiveResult {
    /// What was asked.
    pub spec: ReceiveSpec,
    /// From when to when.
    pub span: Span,
    /// `native`, `generic` or `sockets`.
    pub mode: String,
    /// Each stream of which a packet arrived, by number.
    pub streams: Vec<Received>,
    /// Each source of which a frame arrived, by address and VLAN. Empty for sockets.
    pub sources: Vec<Source>,
    /// Each TCP connection that was accepted, in that order. Empty for a sink.
    pub connections: Vec<Connection>,
    /// All that arrived.
    pub totals: Totals,
    /// The arrivals that were asked for, in order.
    pub records: Vec<Record>,
}

/// From when to when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First instant.
    pub start_ns: u64,
    /// Last instant.
    pub end_ns: u64,
    /// Wall time of the first instant, ns since 1970.
    pub start_unix_ns: u64,
}

/// One stream, as sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Its number.
    pub stream: u16,
    /// Packets handed to the device or socket; the next sequence number.
    pub packets: u64,
    /// Their layer-2 bytes; for TCP the bytes of the records that the kernel took.
    pub bytes: u64,
    /// Packets that the kernel refused (no buffer): not sent, not numbered.
    pub refused: u64,
    /// Time of sending that was given up, because the sender was kept from it for too long; with a
    /// rate of all streams together that of all.
    pub skipped_ns: u64,
    /// By time.
    pub series: Series,
}

/// One stream, as received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// Its number.
    pub stream: u16,
    /// Packets, duplicates and stale ones included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What the sequence numbers say.
    pub order: Order,
    /// Times on the way.
    pub delays: Delays,
    /// Arrival of the first packet.
    pub first_ns: u64,
    /// Arrival of the last packet.
    pub last_ns: u64,
    /// By time of arrival.
    pub series: Series,
}

/// What the sequence numbers of a stream say (RFC 4737). What was lost before the first and after
/// the last arrival is for the reader to add, who knows what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Sequence number of the first packet that arrived.
    pub first: u64,
    /// Highest sequence number + 1.
    pub next: u64,
    /// Numbers after the first that never arrived.
    pub lost: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Packets whose number had arrived before.
    pub duplicated: u64,
    /// Packets more than 1024 below the highest number: reordered or duplicated, nobody knows.
    pub stale: u64,
}

/// One source: a MAC address in a VLAN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Source address.
    pub mac: Mac,
    /// VLAN of the frames; untagged if absent.
    pub vlan: Option<u16>,
    /// Packets: a super-frame counts as its segments.
    pub packets: u64,
    /// Bytes: a super-frame counts the headers of all of its segments.
    pub bytes: u64,
    /// Frames that stood for several packets.
    pub super_frames: u64,
    /// By time of arrival.
    pub series: Series,
}

/// One accepted TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The other end.
    pub peer: String,
    /// Stream number of its records; absent if it sent none.
    pub stream: Option<u16>,
    /// Payload bytes.
    pub bytes: u64,
}

/// All that arrived, and what could not be counted in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Frames too short for the headers that they claim; payloads without a header at a socket.
    pub malformed: u64,
    /// Measured packets of a stream beyond `streams_max`.
    pub stream_unknown: u64,
    /// Frames of sources beyond `sources_max`.
    pub sources_full: u64,
    /// Packets that were to be recorded beyond `packets_max`.
    pub records_full: u64,
    /// Packets that the kernel dropped because a socket's buffer was full.
    pub socket_dropped: u64,
}

/// The arrival of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When.
    pub time_ns: u64,
    /// Its number.
    pub sequence: u64,
    /// Its size.
    pub bytes: u64,
    /// Its time on the way; 0 if it was stamped later than it arrived.
    pub delay_ns: u64,
}

/// Packets and bytes in cells of equal width, from `origin_ns` on. Cells of all series of one width
/// begin at multiples of it, so they lie side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Begin of the first cell.
    pub origin_ns: u64,
    /// Width of a cell.
    pub cell_ns: u64,
    /// Packets of each cell.
    pub packets: Vec<u64>,
    /// Bytes of each cell.
    pub bytes: Vec<u64>,
    /// Packets that came before the first cell or after the last one that there is room for.
    pub outside: u64,
}

impl Series {
    /// An empty series whose first cell holds `start_ns`.
    #[must_use]
    pub fn new(start_ns: u64, cell_ns: u64) -> Self {
        let cell_ns = cell_ns.max(1);
        Self { origin_ns: start_ns - start_ns % cell_ns, cell_ns, ..Self::default() }
    }

    /// Counts packets at `now_ns`.
    pub fn add(&mut self, now_ns: u64, packets: u64, bytes: u64) {
        let Some((in_cell, bytes_in_cell)) = self.cell_at(now_ns) else {
            self.outside += packets;
            return;
        };
        *in_cell += packets;
        *bytes_in_cell += bytes;
    }

    /// Sets the count of the cell that holds `now_ns`.
    pub fn set(&mut self, now_ns: u64, packets: u64, bytes: u64) {
        if let Some((in_cell, bytes_in_cell)) = self.cell_at(now_ns) {
            (*in_cell, *bytes_in_cell) = (packets, bytes);
        }
    }

    /// Adds empty cells until the series reaches `end_ns`, so that silence shows as zeros.
    pub fn extend_to(&mut self, end_ns: u64) {
        self.cell_at(end_ns.saturating_sub(1));
    }

    /// Sums of packets and bytes over windows of `cells` cells from the cell that holds `from_ns`
    /// on: full windows only.
    #[must_use]
    pub fn windows(&self, from_ns: u64, cells: usize) -> Vec<(u64, u64)> {
        let first = from_ns.saturating_sub(self.origin_ns).div_ceil(self.cell_ns.max(1));
        let first = usize::try_from(first).unwrap_or(usize::MAX).min(self.packets.len());
        let width = cells.max(1);
        let packets = self.packets[first..].chunks_exact(width);
        let bytes = self.bytes[first..].chunks_exact(width);
        packets.zip(bytes).map(|(p, b)| (p.iter().sum(), b.iter().sum())).collect()
    }

    fn cell_at(&mut self, now_ns: u64) -> Option<(&mut u64, &mut u64)> {
        let index = now_ns.checked_sub(self.origin_ns)? / self.cell_ns.max(1);
        let index = usize::try_from(index).ok().filter(|index| *index < CELLS_MAX)?;
        if index >= self.packets.len() {
            self.packets.resize(index + 1, 0);
            self.bytes.resize(index + 1, 0);
        }
        Some((self.packets.get_mut(index)?, self.bytes.get_mut(index)?))
    }
}

/// 10 minutes of 10 ms cells: 1 MiB a series.
pub const CELLS_MAX: usize = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_begin_at_multiples_of_their_width() {
        let mut series = Series::new(25, 10);
        series.add(29, 1, 100);
        series.add(45, 2, 200);
        series.add(49, 1, 50);
        assert_eq!(series.origin_ns, 20);
        assert_eq!((&series.packets[..], &series.bytes[..]), (&[1, 0, 3][..], &[100, 0, 250][..]));
    }

    #[test]
    fn what_has_no_cell_is_counted_apart() {
        let mut series = Series::new(100, 10);
        series.add(99, 3, 1);
        series.add(100 + 10 * CELLS_MAX as u64, 4, 1);
        assert_eq!((series.outside, series.packets.len()), (7, 0));
        series.add(99 + 10 * CELLS_MAX as u64, 5, 1);
        assert_eq!((series.outside, series.packets.len()), (7, CELLS_MAX));
    }

    #[test]
    fn windows_are_full_and_begin_at_a_cell() {
        let mut series = Series::new(0, 10);
        for cell in 0..7 {
            series.add(cell * 10, 1, cell);
        }
        assert_eq!(series.windows(5, 2), [(2, 1 + 2), (2, 3 + 4), (2, 5 + 6)]);
        assert_eq!(series.windows(1_000, 2), []);
        series.extend_to(90);
        assert_eq!(series.packets.len(), 9);
    }
}
