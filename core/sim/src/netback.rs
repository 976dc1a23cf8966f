// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen's native back end: the path of packets from guests' rings through domain 0 to a link.
//!
//! **Problem.** In the Netback text's measurements on Xen 4.0, guests starve each other without any
//! shortage of processor time. Its machine no longer exists, and a bridge of today has other
//! defects.
//!
//! **Model** (Linux 2.6.32, `drivers/xen/netback/netback.c`, `net_tx_action`). Each guest has a
//! ring; packets that find it full are lost in the guest. Domain 0 serves the rings in turn, a
//! packet each, and skips rings that must wait for their `rate` ([`XenBucket`]). Domain 0 takes
//! time for each packet and each byte. Then the packet crosses the bridge, which has no queue of
//! its own, into the queue of the network card. A packet that finds this queue full is dropped
//! *after* domain 0 has spent its time on it: the text's *buffer overflow in Domain 0*. The card
//! sends at the link's rate.
//!
//! **Consequence.** If more is offered than the link carries, the card's queue is full, and a place
//! in it goes to the first packet that comes after a frame has left. Shares therefore depend on the
//! phases of the senders relative to each other (Floyd and Jacobson, *On Traffic Phase Effects in
//! Packet-Switched Gateways*, 1992), which drift with the senders' timers.
//!
//! **A disk that blocks.** While a request of the block back end waits, domain 0 does nothing else.
//! The lengths of these waits, and of the times between them, are distributed exponentially.

use std::collections::VecDeque;

use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate, ByteCount, Instant, Nanos};

use crate::shaper::{Shaper, XenBucket};
use crate::{EventQueue, PacketCost, Seed, SimError};

/// The parameters of domain 0 and of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetbackConfig {
    /// The rate of the link; each frame occupies [`Self::FRAMING`] bytes more.
    pub link: BitRate,
    /// Processor time of domain 0 for a packet.
    pub cost: PacketCost,
    /// Packets in a guest's ring, at least 1.
    pub ring: usize,
    /// Packets in the card's queue, at least 1.
    pub queue: usize,
    /// The blocking work of a disk.
    pub disk: Option<BlockingDisk>,
}

/// Disk work in domain 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingDisk {
    /// The time of its beginning.
    pub from: Instant,
    /// The time of its end; a request that began before still blocks until it is done.
    pub to: Instant,
    /// The mean time between the end of a request and the next.
    pub between: Nanos,
    /// The mean time that a request blocks.
    pub blocks: Nanos,
}

/// A sender in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetbackSender {
    /// The guest, by position.
    pub guest: usize,
    /// The length of its frames, layer 2 without FCS.
    pub bytes: u16,
    /// The rate that it offers.
    pub rate: BitRate,
    /// The time of its beginning.
    pub start: Instant,
    /// The jitter of a guest's timer: the most by which an interval is longer or shorter, in parts
    /// per million.
    pub jitter_ppm: u32,
}

/// A frame that the link carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetbackFrame {
    /// The time at which its last bit left.
    pub at: Instant,
    /// Its sender, by position.
    pub sender: usize,
    /// Its number within the sender, from 0.
    pub number: u64,
    /// The time at which it was offered.
    pub offered: Instant,
    /// Its length.
    pub bytes: u16,
}

/// Counts of frames by their fate: each offered frame is sent, lost, dropped or waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetbackCounts {
    /// Offered by senders.
    pub offered: u64,
    /// Lost in guests whose ring was full.
    pub lost: u64,
    /// Dropped at the card's full queue, after domain 0 had served them.
    pub dropped: u64,
    /// Sent.
    pub sent: u64,
    /// In a ring, in domain 0, or in the card's queue.
    pub waiting: u64,
}

/// Domain 0 between guests and a link.
#[derive(Debug)]
pub struct NetbackModel {
    config: NetbackConfig,
    now: Instant,
    events: EventQueue<NetbackEvent>,
    guests: Vec<NetbackGuest>,
    senders: Vec<SenderState>,
    /// The guest whose turn is next.
    turn: usize,
    /// The frame that domain 0 works on.
    served: Option<NetbackFrame>,
    /// True while domain 0 waits for a request of the disk.
    is_blocked: bool,
    /// The card's queue; the frame at the head is being sent.
    queue: VecDeque<NetbackFrame>,
    draws: Seed,
    counts: NetbackCounts,
}

#[derive(Debug)]
struct NetbackGuest {
    bucket: Option<XenBucket>,
    ring: VecDeque<NetbackFrame>,
    /// The time from which the first frame of the ring may be served; `None` until the bucket is
    /// asked.
    ready: Option<Instant>,
}

#[derive(Debug)]
struct SenderState {
    sender: NetbackSender,
    draws: Seed,
    number: u64,
}

#[derive(Clone, Copy, Debug)]
enum NetbackEvent {
    Offer(usize),
    /// A guest's credit is refilled.
    Credit,
    Served,
    Sent,
    DiskBlocks,
    DiskDone,
}

impl NetbackConfig {
    /// Bytes of a frame's check, preamble and gap.
    pub const FRAMING: u64 = 24;

    /// Returns the parameters of a link with the queue lengths of Linux and Xen (`txqueuelen` and
    /// rings), without a disk. A packet of 1514 bytes costs 8.5 µs: the aggregate of table 2 of the
    /// XTC text, whose packets have other lengths, needs 8.55 µs of domain 0 for each. The two
    /// parts are chosen.
    #[must_use]
    pub const fn new(link: BitRate) -> Self {
        let cost = PacketCost { packet: Nanos::new(7_000), kib: Nanos::new(1_000) };
        Self { link, cost, ring: 256, queue: 1000, disk: None }
    }
}

impl NetbackModel {
    /// Makes domain 0 with a guest for each element of `rates`, which is the guest's `rate`, if it
    /// has one.
    ///
    /// # Errors
    /// The queue of events does not hold one for each sender.
    pub fn new(
        config: NetbackConfig,
        rates: &[Option<BitRate>],
        senders: &[NetbackSender],
        seed: u64,
    ) -> Result<Self, SimError> {
        let mut draws = Seed::new(seed);
        let guest = |rate: &Option<BitRate>| NetbackGuest {
            bucket: rate.map(|rate| XenBucket::new(rate, Nanos::MAX)),
            ring: VecDeque::new(),
            ready: None,
        };
        let mut model = Self {
            config,
            now: Instant::ZERO,
            events: EventQueue::new(senders.len() + OWN_EVENTS + rates.len()),
            guests: rates.iter().map(guest).collect(),
            senders: Vec::with_capacity(senders.len()),
            turn: 0,
            served: None,
            is_blocked: false,
            queue: VecDeque::new(),
            draws: Seed::new(draws.draw()),
            counts: NetbackCounts::default(),
        };
        for (at, sender) in senders.iter().enumerate() {
            let mut own = Seed::new(draws.draw());
            // Senders that begin at one instant do not send in step.
            let phase = Nanos::new(own.between(0, sender.interval()));
            model.events.push(sender.start + phase, NetbackEvent::Offer(at))?;
            model.senders.push(SenderState { sender: *sender, draws: own, number: 0 });
        }
        if let Some(disk) = config.disk {
            model.events.push(disk.from, NetbackEvent::DiskBlocks)?;
        }
        Ok(model)
    }

    /// Runs until `until`, and reports each frame that the link carried.
    ///
    /// # Errors
    /// Too many events are scheduled.
    pub fn run_until(
        &mut self,
        until: Instant,
        report: &mut dyn FnMut(NetbackFrame),
    ) -> Result<(), SimError> {
        while let Some((at, event)) = self.events.pop_due(until) {
            self.now = self.now.max(at);
            match event {
                NetbackEvent::Offer(sender) => self.offer(sender)?,
                NetbackEvent::Credit => {}
                NetbackEvent::Served => self.enqueue()?,
                NetbackEvent::Sent => {
                    if let Some(frame) = self.queue.pop_front() {
                        self.counts.sent += 1;
                        report(NetbackFrame { at: self.now, ..frame });
                    }
                    self.send()?;
                }
                NetbackEvent::DiskBlocks => self.block()?,
                NetbackEvent::DiskDone => self.unblock()?,
            }
            self.serve()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Returns the frames by their fate.
    #[must_use]
    pub fn counts(&self) -> NetbackCounts {
        let rings: usize = self.guests.iter().map(|guest| guest.ring.len()).sum();
        let waiting = rings + usize::from(self.served.is_some()) + self.queue.len();
        NetbackCounts { waiting: waiting as u64, ..self.counts }
    }

    fn offer(&mut self, at: usize) -> Result<(), SimError> {
        let Some(state) = self.senders.get_mut(at) else { return Ok(()) };
        let NetbackSender { guest, bytes, .. } = state.sender;
        let number = state.number;
        state.number += 1;
        let next = state.next_interval();
        self.counts.offered += 1;
        let frame = NetbackFrame { at: self.now, sender: at, number, offered: self.now, bytes };
        match self.guests.get_mut(guest) {
            Some(guest) if guest.ring.len() < self.config.ring.max(1) => {
                guest.ring.push_back(frame);
            }
            _ => self.counts.lost += 1,
        }
        self.events.push(self.now + next, NetbackEvent::Offer(at))
    }

    /// Has domain 0 take the next packet, if it is free and there is one.
    fn serve(&mut self) -> Result<(), SimError> {
        if self.served.is_some() || self.is_blocked {
            return Ok(());
        }
        let count = self.guests.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            let now = self.now;
            let Some(guest) = self.guests.get_mut(at) else { continue };
            let Some(first) = guest.ring.front().copied() else { continue };
            let ready = match (guest.ready, &mut guest.bucket) {
                (Some(ready), _) => ready,
                (None, None) => now,
                (None, Some(bucket)) => {
                    let ready = bucket.admit(now, first.bytes.into()).unwrap_or(now);
                    guest.ready = Some(ready);
                    if ready > now {
                        self.events.push(ready, NetbackEvent::Credit)?;
                    }
                    ready
                }
            };
            if ready > now {
                continue;
            }
            guest.ring.pop_front();
            guest.ready = None;
            self.turn = (at + 1) % count;
            self.served = Some(first);
            let cost = self.config.cost.of(first.bytes.into());
            return self.events.push(now + cost, NetbackEvent::Served);
        }
        Ok(())
    }

    /// Puts the packet that domain 0 has served into the card's queue.
    fn enqueue(&mut self) -> Result<(), SimError> {
        let Some(frame) = self.served.take() else { return Ok(()) };
        if self.queue.len() >= self.config.queue.max(1) {
            self.counts.dropped += 1;
            return Ok(());
        }
        self.queue.push_back(frame);
        if self.queue.len() == 1 { self.send() } else { Ok(()) }
    }

    /// Has the card begin to send the first frame of its queue.
    fn send(&mut self) -> Result<(), SimError> {
        let Some(frame) = self.queue.front() else { return Ok(()) };
        let bytes = ByteCount::new(u64::from(frame.bytes) + NetbackConfig::FRAMING);
        let time = self.config.link.time_for_ceil(bytes).max(Nanos::new(1));
        self.events.push(self.now + time, NetbackEvent::Sent)
    }

    fn block(&mut self) -> Result<(), SimError> {
        let Some(disk) = self.config.disk.filter(|disk| self.now < disk.to) else { return Ok(()) };
        self.is_blocked = true;
        let lasts = self.exponential(disk.blocks);
        self.events.push(self.now + lasts, NetbackEvent::DiskDone)
    }

    fn unblock(&mut self) -> Result<(), SimError> {
        self.is_blocked = false;
        let Some(disk) = self.config.disk else { return Ok(()) };
        let waits = self.exponential(disk.between);
        self.events.push(self.now + waits, NetbackEvent::DiskBlocks)
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2⁵³ ns")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn exponential(&mut self, mean: Nanos) -> Nanos {
        Nanos::new((self.draws.exponential(mean.as_nanos() as f64) as u64).max(1))
    }
}

impl NetbackSender {
    /// Returns the mean time between two of its frames in nanoseconds, at least 1.
    fn interval(&self) -> u64 {
        let bits = u128::from(self.bytes) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
        let nanos = bits / u128::from(self.rate.as_bps().max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX).max(1)
    }
}

impl SenderState {
    fn next_interval(&mut self) -> Nanos {
        let even = self.sender.interval();
        let most = u128::from(even) * u128::from(self.sender.jitter_ppm.min(MILLION)) / 1_000_000;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let drawn = self.draws.between(0, most.saturating_mul(2));
        Nanos::new((even - most).saturating_add(drawn).max(1))
    }
}

/// Room for the events that belong to no sender and no credit: a frame was served, a frame was
/// sent, the disk blocks or stops blocking.
const OWN_EVENTS: usize = 4;

const MILLION: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: BitRate = BitRate::from_mbps(100);

    fn sender(guest: usize, mbps: u64) -> NetbackSender {
        let (rate, start) = (BitRate::from_mbps(mbps), Instant::ZERO);
        NetbackSender { guest, bytes: 1514, rate, start, jitter_ppm: 1000 }
    }

    /// Runs a model; returns the bytes that the link carried for each sender, and the counts.
    fn run(
        config: NetbackConfig,
        rates: &[Option<BitRate>],
        senders: &[NetbackSender],
        seconds: u64,
        seed: u64,
    ) -> (Vec<u64>, NetbackCounts) {
        let mut model = NetbackModel::new(config, rates, senders, seed).unwrap();
        let mut bytes = vec![0; senders.len()];
        let mut newest = vec![None; senders.len()];
        let end = Instant::ZERO + Nanos::from_secs(seconds);
        let mut see = |frame: NetbackFrame| {
            bytes[frame.sender] += u64::from(frame.bytes);
            let before = newest[frame.sender].replace(frame.number);
            assert!(before.is_none_or(|before| before < frame.number), "in order");
        };
        model.run_until(end, &mut see).unwrap();
        (bytes, model.counts())
    }

    /// Goal: each frame is sent, lost, dropped or waits; the link is full and no fuller.
    #[test]
    fn frames_are_conserved() {
        let (bytes, counts) =
            run(NetbackConfig::new(LINK), &[None, None], &[sender(0, 100), sender(1, 100)], 10, 1);
        let NetbackCounts { offered, lost, dropped, sent, waiting } = counts;
        assert_eq!(offered, lost + dropped + sent + waiting);
        assert_eq!(lost, 0, "domain 0 is fast enough");
        assert!(dropped > 60_000 && waiting >= 999, "{counts:?}");
        let carried = bytes.iter().sum::<u64>() * 1538 / 1514;
        assert!(carried.abs_diff(125_000_000) < 2 * 1538, "{carried}");
    }

    /// By hand: 25 Mb/s are a credit of 156 250 bytes, which is 103 frames of 1514 bytes every
    /// 52 ms: 24.0 Mb/s, 0.960 of the rate.
    #[test]
    fn a_rate_is_never_reached() {
        let rate = BitRate::from_mbps(25);
        let (bytes, _) = run(NetbackConfig::new(LINK), &[Some(rate)], &[sender(0, 100)], 52, 1);
        let part = bytes[0] as f64 * 8.0 / 52.0 / 25e6;
        assert!((part - 103.0 * 1514.0 * 8.0 / 0.052 / 25e6).abs() < 0.001, "{part}");
    }

    /// Goal: if two guests each offer the link's rate, the phase between them decides their shares:
    /// at times one gets hardly anything, though rings are served in turn. A link with room for
    /// both serves both.
    #[test]
    fn phases_starve() {
        let least = |mbps: u64| {
            let both = [sender(0, mbps), sender(1, mbps)];
            let shares = (0..20).map(|seed| {
                let (bytes, _) = run(NetbackConfig::new(LINK), &[None, None], &both, 2, seed);
                bytes[0].min(bytes[1]) as f64 / bytes[0].max(bytes[1]) as f64
            });
            shares.reduce(f64::min).unwrap()
        };
        assert!(least(100) < 0.2, "{}", least(100));
        assert!(least(40) > 0.98, "{}", least(40));
    }

    /// Goal: a disk that blocks domain 0 takes throughput away while it works.
    #[test]
    fn a_disk_blocks_the_network() {
        let second = |at| Instant::ZERO + Nanos::from_secs(at);
        let [between, blocks] = [20, 60].map(Nanos::from_millis);
        let disk = BlockingDisk { from: second(0), to: second(10), between, blocks };
        let with = |disk| {
            let config = NetbackConfig { disk, ..NetbackConfig::new(LINK) };
            run(config, &[None], &[sender(0, 100)], 10, 3)
        };
        let (undisturbed, disturbed) = (with(None).0[0], with(Some(disk)).0[0]);
        assert!(disturbed * 10 < undisturbed * 8, "{disturbed} of {undisturbed}");
        assert!(disturbed > 0 && with(Some(disk)).1.lost > 0);
    }
}
