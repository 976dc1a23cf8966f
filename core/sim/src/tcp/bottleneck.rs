// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The place where packets wait: a trait for what is examined, and a plain queue to compare with.
//!
//! The network offers each packet as it comes, asks [`Bottleneck::next`] when there may be
//! something to send, and calls [`Bottleneck::release`] then until it gives nothing more. Loss is
//! told by the lists that both calls take.

use std::collections::VecDeque;

use weir_sched::LinkClock;
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// A packet on its way through a bottleneck, without its contents, which the network keeps by `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The network's handle of the packet.
    pub id: u32,
    /// The number of its connection or probe.
    pub flow: usize,
    /// True if it goes from the server to its client ([`super::TcpPath::both_ways`]).
    pub backwards: bool,
    /// Length in bytes as the link counts them.
    pub bytes: u32,
    /// The time at which it was offered.
    pub offered: Instant,
}

/// A queue, a shaper, a scheduler: whatever stands between the senders and the wire.
pub trait Bottleneck {
    /// Takes a packet. Packets that are dropped for it, this one or others, are appended to `lost`.
    fn offer(&mut self, now: Instant, packet: Crossing, lost: &mut Vec<Crossing>);

    /// Returns the packet whose transmission begins now, and the time at which it ends. Packets
    /// that are dropped instead are appended to `lost`.
    fn release(&mut self, now: Instant, lost: &mut Vec<Crossing>) -> Option<(Crossing, Instant)>;

    /// Returns the next instant at which [`Bottleneck::release`] may give a packet; `None` if
    /// nothing waits.
    fn next(&self) -> Option<Instant>;
}

impl<B: Bottleneck + ?Sized> Bottleneck for Box<B> {
    fn offer(&mut self, now: Instant, packet: Crossing, lost: &mut Vec<Crossing>) {
        (**self).offer(now, packet, lost);
    }

    fn release(&mut self, now: Instant, lost: &mut Vec<Crossing>) -> Option<(Crossing, Instant)> {
        (**self).release(now, lost)
    }

    fn next(&self) -> Option<Instant> {
        (**self).next()
    }
}

/// One queue in order of arrival before a link: tail drop at bounds of packets and bytes. With a
/// bound of 1000 packets it is a `pfifo` below HTB; with one of bytes, a `bfifo` below TBF.
#[derive(Clone, Debug)]
pub struct FifoLink {
    queue: VecDeque<Crossing>,
    bytes: u64,
    packets_max: usize,
    bytes_max: u64,
    rate: BitRate,
    clock: LinkClock,
}

impl FifoLink {
    /// Makes an empty queue before a link of that rate.
    #[must_use]
    pub fn new(rate: BitRate, packets_max: usize, bytes_max: ByteCount) -> Self {
        let clock = LinkClock::new(rate, Nanos::ZERO);
        let queue = VecDeque::new();
        Self { queue, bytes: 0, packets_max, bytes_max: bytes_max.get(), rate, clock }
    }
}

impl Bottleneck for FifoLink {
    fn offer(&mut self, now: Instant, packet: Crossing, lost: &mut Vec<Crossing>) {
        let bytes = self.bytes + u64::from(packet.bytes);
        if self.queue.len() >= self.packets_max || bytes > self.bytes_max {
            return lost.push(packet);
        }
        if self.queue.is_empty() {
            self.clock.idle_until(now);
        }
        self.bytes = bytes;
        self.queue.push_back(packet);
    }

    fn release(&mut self, now: Instant, _: &mut Vec<Crossing>) -> Option<(Crossing, Instant)> {
        self.clock.ready(now).ok()?;
        let packet = self.queue.pop_front()?;
        self.bytes -= u64::from(packet.bytes);
        let bytes = ByteCount::new(packet.bytes.into());
        self.clock.sent(now, bytes);
        Some((packet, now + self.rate.time_for_ceil(bytes)))
    }

    fn next(&self) -> Option<Instant> {
        (!self.queue.is_empty()).then(|| self.clock.busy_until())
    }
}
