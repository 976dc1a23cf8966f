// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of sending and receiving, as plain data for JSON. Bytes are layer 2 without FCS unless
//! said otherwise; times are ns of `CLOCK_MONOTONIC`, the same on all ends of one machine.

use serde::{Deserialize, Serialize};
use weir_result::{Cells, Delays, Order};

use super::spec::{Mac, ReceiveSpec, SendSpec};

/// The result of a sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendResult {
    /// The specification.
    pub spec: SendSpec,
    /// The time of the run.
    pub span: Span,
    /// Each stream, in the order of the specification.
    pub streams: Vec<Sent>,
}

/// The result of a receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiveResult {
    /// The specification.
    pub spec: ReceiveSpec,
    /// The time of the run.
    pub span: Span,
    /// `native`, `generic` or `sockets`; `virtual time` in a simulation.
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

/// The time of a run.
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
    /// Time given up because the sender was late by more than it may catch up with. If all streams
    /// share one rate, this is the time of all of them.
    pub skipped_ns: u64,
    /// Packets and bytes by time.
    pub series: Cells,
}

/// Sums the packets and the bytes of all streams.
pub(super) fn totals(streams: &[Sent]) -> (u64, u64) {
    let sum = |of: fn(&Sent) -> u64| streams.iter().map(of).sum();
    (sum(|sent| sent.packets), sum(|sent| sent.bytes))
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
    /// The order of arrival, by sequence numbers.
    pub order: Order,
    /// One-way delays.
    pub delays: Delays,
    /// Arrival of the first packet.
    pub first_ns: u64,
    /// Arrival of the last packet.
    pub last_ns: u64,
    /// By time of arrival.
    pub series: Cells,
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
    pub series: Cells,
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
    /// The instant of arrival.
    pub time_ns: u64,
    /// Its sequence number.
    pub sequence: u64,
    /// Its length.
    pub bytes: u64,
    /// Its one-way delay; 0 if its time stamp is later than its arrival.
    pub delay_ns: u64,
}
