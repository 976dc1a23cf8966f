// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guarantees, limits and queue of one vif, router or slice in one direction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

use crate::bounds::{BYTES_MAX, CATCH_UP_DEFAULT};

/// A direction, always the tenant's.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the vif towards ports and other vifs.
    Send,
    /// Towards the vif.
    Receive,
}

/// Guarantees and limits of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Share of the capacity beyond all guarantees, relative to siblings; 1 to
    /// [`Share::PRIORITY_MAX`].
    pub priority: u32,
    /// Guaranteed rate on the port that a packet leaves by; zero for none. At a router or slice
    /// zero stands for the sum of its members: see [`crate::Guarantees`].
    pub min_rate: BitRate,
    /// Upper limit; `None` for the port's own rate.
    pub rate: Option<BitRate>,
    /// Guaranteed share of the node's packet capacity; zero for none.
    pub min_pps: PacketRate,
    /// Upper limit of packets; `None` for none.
    pub max_pps: Option<PacketRate>,
    /// Bytes that may exceed `rate` at once after a pause.
    pub burst: ByteCount,
    /// Packets that may exceed `max_pps` at once after a pause, [`Share::BURST_PACKETS`] to
    /// [`Share::BURST_PACKETS_MAX`]; `None` for what [`Share::packets_at_once`] derives.
    pub burst_packets: Option<u32>,
}

/// The kind of the queue of a vif and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "queue-kind")]
pub enum QueueKind {
    /// In one queue, in order of arrival.
    Fifo,
    /// In a queue for each flow, sparse flows first (RFC 8290).
    Flows,
}

/// The bounds of a vif's queue in one direction. Packets and bytes are both bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// One queue, or one for each flow.
    pub kind: QueueKind,
    /// Most packets held, 1 to [`Queue::PACKETS_MAX`].
    pub packets: u32,
    /// Most bytes held.
    pub bytes: ByteCount,
    /// Active queue management, or `None` for tail drop alone.
    pub codel: Option<Codel>,
    /// Delay above which packets of L4S senders are marked (RFC 9331); only with flows. `None`
    /// treats them like any other packet.
    pub l4s: Option<Nanos>,
}

/// Parameters of the smooth window, which enforces a vif's `rate` in the place of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmoothWindow {
    /// Time by which packets may leave ahead of the rate.
    pub credit: Nanos,
    /// Variation of the delay that is allowed within an interval.
    pub width: Nanos,
    /// Time after which the window may move.
    pub interval: Nanos,
    /// Largest delay at which the window may begin.
    pub delay_max: Nanos,
}

/// Parameters of `CoDel` (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Standing delay that is tolerated.
    pub target: Nanos,
    /// Time within which the delay must once fall below the target.
    pub interval: Nanos,
    /// Mark packets that can carry ECN instead of dropping them.
    pub ecn: bool,
}

impl Direction {
    /// Both directions, for loops.
    pub const ALL: [Self; 2] = [Self::Send, Self::Receive];

    /// Returns the key of the direction: `send` or `receive`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

impl Share {
    /// Largest `priority`.
    pub const PRIORITY_MAX: u32 = 1_000_000;

    /// Returns the default burst: [`Self::burst_lasting`] for the lateness that a port compensates
    /// ([`crate::Port::CATCH_UP_DEFAULT`]), at most 1 GiB. If the worker is late by more than the
    /// burst lasts, the tenant loses the bytes that would have passed.
    #[must_use]
    pub fn default_burst(rate: Option<BitRate>, frame: ByteCount) -> ByteCount {
        Self::burst_lasting(rate, frame, CATCH_UP_DEFAULT).min(ByteCount::new(BYTES_MAX))
    }

    /// Returns the larger of 2 frames and the bytes that pass at `rate` in `time`. A sender with a
    /// burst of less than two frames would stay below its rate, since frames are not divided.
    #[must_use]
    pub fn burst_lasting(rate: Option<BitRate>, frame: ByteCount, time: Nanos) -> ByteCount {
        let frames = ByteCount::new(frame.get().saturating_mul(2));
        frames.max(rate.map_or(ByteCount::ZERO, |rate| rate.bytes_in_floor(time)))
    }

    /// Returns the number of packets that may exceed `max_pps` at once: `burst_packets`; without it
    /// the larger of [`Share::BURST_PACKETS`] and 1 ms at that rate.
    #[must_use]
    pub fn packets_at_once(&self) -> u64 {
        let at_rate = self.max_pps.map_or(0, |limit| limit.as_pps() / 1_000);
        self.burst_packets.map_or_else(|| at_rate.max(Self::BURST_PACKETS.into()), u64::from)
    }

    /// A batch of the worker. Packets of one batch carry one time stamp, so a smaller bucket would
    /// drop packets that arrived evenly spaced.
    pub const BURST_PACKETS: u32 = 64;
    /// The largest `burst_packets`.
    pub const BURST_PACKETS_MAX: u32 = 1_000_000;
}

impl Queue {
    /// Largest `packets`.
    pub const PACKETS_MAX: u32 = 65_536;
    /// The default of `packets`: 3 ms of 1500-byte frames at 1 Gb/s.
    pub const PACKETS_DEFAULT: u32 = 256;
    /// The default of `bytes`: 256 frames of 1536 bytes.
    pub const BYTES_DEFAULT: ByteCount = ByteCount::new(384 << 10);
    /// The default of `packets` with flows: 12 ms of 1500-byte frames at 1 Gb/s.
    pub const FLOWS_PACKETS_DEFAULT: u32 = 1024;
    /// The default of `bytes` with flows, as a time at the vif's rate.
    pub const FLOWS_TIME: Nanos = Nanos::from_millis(50);

    /// Returns the default bounds of a queue behind a smooth window, in packets and bytes. They
    /// count the packets in the window too, and are at least the defaults of any queue.
    ///
    /// The bound of packets is the number that the window holds at `rate` if each is a third as
    /// long as the longest `packet`. If all packets are of the longest, the window holds a third of
    /// the bound and leaves two thirds for the queue. The bound of bytes is twice what the window
    /// holds.
    #[must_use]
    pub fn behind(window: &SmoothWindow, rate: BitRate, packet: ByteCount) -> (u32, ByteCount) {
        let held = window.backlog_max(rate).get();
        let packets = held.saturating_add(packet.get()).saturating_mul(3) / packet.get().max(1);
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let bytes = held.saturating_mul(2).saturating_add(packet.get());
        let bytes = ByteCount::new(bytes.min(BYTES_MAX)).max(Self::BYTES_DEFAULT);
        (packets.clamp(Self::PACKETS_DEFAULT, Self::PACKETS_MAX), bytes)
    }

    /// Returns the number of frames that the pool must have for the queue at any time. A queue of
    /// flows may hold more if the pool has them: its bound of packets limits the delay and reserves
    /// nothing.
    #[must_use]
    pub fn frames(&self) -> u32 {
        match self.kind {
            QueueKind::Fifo => self.packets,
            QueueKind::Flows => self.packets.min(Self::PACKETS_DEFAULT),
        }
    }
}

/// No guarantee, no limit, priority 1, a burst of two frames of 1518 bytes.
impl Default for Share {
    fn default() -> Self {
        Self {
            priority: 1,
            min_rate: BitRate::ZERO,
            rate: None,
            min_pps: PacketRate::ZERO,
            max_pps: None,
            burst: Self::default_burst(None, ByteCount::new(1518)),
            burst_packets: None,
        }
    }
}

impl Codel {
    /// For tenants whose peers are near, as in a data centre: 250 µs and 5 ms.
    pub const LAN: Self =
        Self { target: Nanos::from_micros(250), interval: Nanos::from_millis(5), ecn: true };
}

/// One queue of 256 packets, 384 KiB, tail drop. A document's default is a queue for each flow.
impl Default for Queue {
    fn default() -> Self {
        Self {
            kind: QueueKind::Fifo,
            packets: Self::PACKETS_DEFAULT,
            bytes: Self::BYTES_DEFAULT,
            codel: None,
            l4s: None,
        }
    }
}

impl SmoothWindow {
    /// Returns the most bytes that wait at `rate`, apart from one packet.
    #[must_use]
    pub fn backlog_max(&self, rate: BitRate) -> ByteCount {
        rate.bytes_in_floor(self.delay_max.saturating_add(self.width).saturating_add(self.credit))
    }
}

/// A credit of 100 ms, and a window of 3 ms that may move each second, up to 200 ms.
impl Default for SmoothWindow {
    fn default() -> Self {
        Self {
            credit: Nanos::from_millis(100),
            width: Nanos::from_millis(3),
            interval: Nanos::from_secs(1),
            delay_max: Nanos::from_millis(200),
        }
    }
}

/// The values of RFC 8289 §4.3, with marking.
impl Default for Codel {
    fn default() -> Self {
        Self { target: Nanos::from_millis(5), interval: Nanos::from_millis(100), ecn: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a vif that sends through a smooth window at 100 Mb/s fits into the default pool.
    #[test]
    fn a_smooth_window_fits_into_the_default_pool() {
        let rate = BitRate::from_mbps(100);
        let packet = ByteCount::new(1518);
        let (packets, bytes) = Queue::behind(&SmoothWindow::default(), rate, packet);
        // 303 ms at 12 500 bytes a millisecond, in packets of 506 bytes.
        assert_eq!((packets, bytes.get()), (7488, 7_576_518));
        let text = |rate| {
            alloc::format!(
                "version = 1\n\
                 node = {{ frames = 16384 }}\n\
                 port = [{{ name = \"up0\", rate = \"10Gbit\" }}]\n\
                 slice = [{{ name = \"gold\" }}]\n\
                 vif = [{{ name = \"a\", slice = \"gold\", \
                     send = {{ rate = \"{rate}\", shaper = \"smooth\" }} }}]\n"
            )
        };
        assert!(crate::parse(&text("100Mbit")).is_ok());
        // The largest queue, the vif's receive queue and the rings of a port. The vif's rings have
        // memory of their own.
        let refused = crate::parse(&text("1Gbit")).unwrap_err();
        let needed = alloc::format!("{}", 65_536 + 256 + 1280);
        assert!(alloc::format!("{refused}").contains(&needed), "{refused}");
    }

    /// On a shared machine one wake-up in a thousand is 3 ms late. A bucket with a shorter burst is
    /// full before that time is over, and the tenant loses the rest.
    #[test]
    fn a_default_burst_outlasts_a_late_worker() {
        let burst = |mbps: Option<u64>| {
            let rate = mbps.map(BitRate::from_mbps);
            Share::default_burst(rate, ByteCount::new(1500)).get()
        };
        assert_eq!([None, Some(1), Some(1000)].map(burst), [3000, 3000, 625_000]);
        let late = BitRate::from_mbps(1000).bytes_in_floor(Nanos::from_millis(3));
        assert!(burst(Some(1000)) > late.get());
    }
}
