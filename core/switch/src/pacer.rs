// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet rate for one router, held by pacing: packets that come too early wait in a short queue.
//!
//! A policer would drop them instead. A TCP window arrives as a burst, so a policer would drop most
//! of it. The flow would then wait for its retransmission time-out, 200 ms where a round trip takes
//! 0.2 ms, and never reach the rate.
//!
//! There is a queue for each interface that packets come from, served by start-time fair queueing
//! that counts packets instead of bytes (P. Goyal, H. M. Vin, H. Cheng, ToN 5(5), 1997). An
//! interface that sends less than an equal part of the rate waits for one packet at most, whatever
//! others send. When all queues together are full, the longest drops its first packet. The pacer
//! drops packets in no other case.
//!
//! Behind a limiter of equal rate, arrivals equal departures and a backlog never drains. After a
//! while without drops, each packet is therefore charged 255/256 of a token.
//!
//! The frames of a queue are linked through the switch's table of [`FrameLink`], so that nothing is
//! allocated.

use weir_policy::{Policy, Queue, RouterId};
use weir_sched::TokenBucket;
use weir_units::{Instant, Nanos, PacketRate};

use crate::frames::{FrameLink, NO_FRAME};

/// The queues in front of one router's vifs, and the token bucket that their packets pass.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// A token is one of the [`PARTS`] of a packet.
    bucket: TokenBucket,
    /// The end of the time after a drop in which each packet is charged a whole token.
    exact_until: Instant,
    queues: [PacerQueue; QUEUES],
    /// The start tag of the packet that passed last.
    served: u64,
    held: u32,
    most: u32,
    /// When the queues last became empty.
    emptied: Instant,
    /// Further packets that might have passed then.
    left: u64,
}

/// Packets that came from one interface. Interfaces beyond [`QUEUES`] share.
#[derive(Clone, Copy, Debug)]
struct PacerQueue {
    head: u32,
    tail: u32,
    len: u32,
    /// The start tag of the first packet; while the queue is empty, of the next packet to arrive.
    start: u64,
}

impl Pacer {
    /// Makes an empty pacer for `most` packets in all, but at least one for each queue.
    pub(crate) fn new(now: Instant, rate: PacketRate, most: u32) -> Self {
        let empty = PacerQueue { head: NO_FRAME, tail: NO_FRAME, len: 0, start: 0 };
        Self {
            bucket: TokenBucket::new(parts(rate.as_pps()), parts(idle_burst(rate.as_pps())), now),
            exact_until: now,
            queues: [empty; QUEUES],
            served: 0,
            held: 0,
            most: most.max(LEAST),
            emptied: now,
            left: 0,
        }
    }

    /// Changes rate and bound from `now` on. Packets that wait stay.
    pub(crate) fn change(&mut self, now: Instant, rate: PacketRate, most: u32) {
        self.bucket.set_rate(now, parts(rate.as_pps()), parts(late_burst(rate.as_pps())));
        self.most = most.max(LEAST);
    }

    /// Returns the rate in packets a second.
    pub(crate) const fn rate(&self) -> PacketRate {
        PacketRate::from_pps(self.bucket.rate() / PARTS)
    }

    /// Takes a frame that came from `iface`; returns the frame that was dropped for it, if one was.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        iface: u32,
        id: u32,
        links: &mut [FrameLink],
    ) -> Option<u32> {
        if self.held == 0 {
            self.begin(now);
        }
        let given_up = if self.held < self.most { None } else { self.give_up(iface, id, links) };
        if given_up.is_some() {
            self.refuse(now);
        }
        if given_up == Some(id) {
            return given_up;
        }
        let served = self.served;
        let queue = &mut self.queues[place(iface)];
        match links.get_mut(queue.tail as usize).filter(|_| queue.len > 0) {
            Some(last) => last.next = id,
            None => {
                queue.head = id;
                queue.start = queue.start.max(served);
            }
        }
        if let Some(link) = links.get_mut(id as usize) {
            link.since = now;
        }
        queue.tail = id;
        queue.len += 1;
        self.held += 1;
        given_up
    }

    /// Begins a busy period. Tokens of the idle time before it are not saved up, beyond the idle
    /// burst. Tokens that a late worker had left when the queues became empty are kept, less one
    /// for each packet that might have passed since: a short queue holds less than the arrivals of
    /// 10 ms, so it empties before the worker has used these tokens.
    fn begin(&mut self, now: Instant) {
        let rate = self.rate().as_pps();
        let gone = u128::from(now.saturating_since(self.emptied).as_nanos()) * u128::from(rate);
        let gone = u64::try_from(gone / 1_000_000_000).unwrap_or(u64::MAX);
        let most = idle_burst(rate).max(self.left.saturating_sub(gone));
        self.bucket.set_rate(now, parts(rate), parts(most));
        self.bucket.set_rate(now, parts(rate), parts(late_burst(rate)));
    }

    /// Notes that a packet for these queues was dropped, here or earlier on its way.
    pub(crate) fn refuse(&mut self, now: Instant) {
        self.exact_until = now + EXACT_FOR;
    }

    /// Makes room for a frame from `iface`: drops the first frame of the longest queue, or the new
    /// frame itself if its own queue would be the longest. Returns the dropped frame.
    fn give_up(&mut self, iface: u32, id: u32, links: &[FrameLink]) -> Option<u32> {
        let own = self.queues[place(iface)].len;
        let longest = self.queues.iter_mut().max_by_key(|queue| queue.len)?;
        if longest.len <= own.saturating_add(1) {
            return Some(id);
        }
        let first = longest.take(links);
        self.held -= u32::from(first.is_some());
        first
    }

    /// Takes the next frame that may pass now.
    pub(crate) fn pop(&mut self, now: Instant, links: &[FrameLink]) -> Option<u32> {
        let one = if now < self.exact_until { PARTS } else { PARTS - 1 };
        if self.held == 0 || self.bucket.try_take(now, one).is_err() {
            return None;
        }
        let waiting = self.queues.iter_mut().filter(|queue| queue.len > 0);
        let queue = waiting.min_by_key(|queue| (queue.start, queue.len))?;
        self.served = queue.start;
        queue.start += 1;
        let first = queue.take(links);
        self.held -= 1;
        if self.held == 0 {
            (self.emptied, self.left) = (now, self.bucket.available(now) / PARTS);
        }
        first
    }

    /// Takes any frame that waits, regardless of the rate.
    pub(crate) fn take(&mut self, links: &[FrameLink]) -> Option<u32> {
        let queue = self.queues.iter_mut().find(|queue| queue.len > 0)?;
        self.held -= 1;
        queue.take(links)
    }

    /// Returns the time at which [`Self::pop`] may give a frame; in the past if it may now. All
    /// pacers round such times up to one grid, so that a worker can sleep in between, however many
    /// pacers there are.
    pub(crate) fn next(&self) -> Instant {
        if self.held == 0 {
            return Instant::FAR_FUTURE;
        }
        match self.bucket.ready(Instant::ZERO, PARTS) {
            Ok(()) => Instant::ZERO,
            Err(due) => {
                let turns = due.as_nanos().div_ceil(TURN_NS);
                turns.checked_mul(TURN_NS).map_or(Instant::FAR_FUTURE, Instant::from_nanos)
            }
        }
    }

    /// Returns the number of frames from `iface` that would be taken now: the free room, or what
    /// `iface` has left of an eighth of the bound if that is more, since a full pacer drops from
    /// the longest queue.
    pub(crate) fn room(&self, iface: u32) -> u32 {
        let own = (self.most / 8).saturating_sub(self.queues[place(iface)].len);
        self.most.saturating_sub(self.held).max(own)
    }

    /// Returns the time that the first packet of any queue has waited.
    pub(crate) fn wait(&self, now: Instant, links: &[FrameLink]) -> Nanos {
        let waiting = self.queues.iter().filter(|queue| queue.len > 0);
        let since = waiting.filter_map(|queue| links.get(queue.head as usize));
        let oldest = since.map(|link| link.since).min();
        oldest.map_or(Nanos::ZERO, |since| now.saturating_since(since))
    }
}

impl PacerQueue {
    fn take(&mut self, links: &[FrameLink]) -> Option<u32> {
        let first = self.head;
        let next = links.get(first as usize)?.next;
        self.len -= 1;
        self.head = if self.len == 0 { NO_FRAME } else { next };
        Some(first)
    }
}

/// Returns the number of packets that may wait for `router` at a rate: 50 ms of the rate, and at
/// most half of the room of its vifs, so that packets from elsewhere find some.
///
/// A worker may be late by a part of the 50 ms, and TCP hands over 64 KiB of each flow at once,
/// which is 138 packets of the XTC text's size. With 10 ms, a router with eight flows lost a
/// twelfth of its packets and reached half of its rate. A flood delays packets of its own interface
/// by these 50 ms, and those of other interfaces not at all.
pub(crate) fn depth(policy: &Policy, router: RouterId, rate: PacketRate) -> u32 {
    let vifs = policy.vifs.iter().filter(|vif| vif.router == Some(router));
    let room = vifs.map(|vif| receive_room(&vif.receive_queue)).min().unwrap_or(0) / 2;
    let worth = u32::try_from(rate.as_pps() / 20).unwrap_or(u32::MAX);
    worth.clamp(DEPTH_LEAST, DEPTH_MOST).min(room)
}

/// Returns the number of packets that a receive queue has room for: its bound in the policy. A
/// queue whose bound is the default of queues with flows counts only the frames that the pool is
/// sure to have for it.
fn receive_room(queue: &Queue) -> u32 {
    match queue.packets {
        Queue::FLOWS_PACKETS_DEFAULT => queue.frames(),
        packets => packets,
    }
}

fn place(iface: u32) -> usize {
    iface as usize % QUEUES
}

const fn parts(packets: u64) -> u64 {
    packets.saturating_mul(PARTS)
}

/// Returns the number of packets that may pass at once after an idle time: 1 ms of the rate, a
/// hundredth of a sample of 100 ms.
fn idle_burst(rate: u64) -> u64 {
    (rate / 1000).max(1)
}

/// Returns the number of packets that may pass at once because the worker came late during a busy
/// period: 10 ms of the rate, and at least four, so that a late wake-up loses nothing at a low
/// rate. Less would leave routers below their rates on a machine whose host takes its processors
/// away for milliseconds.
fn late_burst(rate: u64) -> u64 {
    // Plus the packet that was nearly due when the 10 ms began.
    rate.div_ceil(100).max(4) + 1
}

/// Step of the grid. A worker that woke for each packet would never sleep above 20 kp/s, and the
/// kernel suspends a real-time thread that never sleeps, for tens of milliseconds at a time. Each
/// step also wakes each limited router: at 9 kp/s two packets in 200 µs cost a process 16 µs each,
/// half of it for waking up. A sample of 100 ms may have a step more or less, 0.5 % of a rate. With
/// the 0.4 % by which packets are undercharged ([`PARTS`]) that is 0.9 %, of the 1 % allowed.
const TURN_NS: u64 = 500_000;
/// Queues of a pacer. A router's packets come from a few interfaces.
const QUEUES: usize = 16;
/// Some windows of TCP.
const DEPTH_LEAST: u32 = 256;
/// 50 ms of 80 kp/s, a quarter of a small pool.
const DEPTH_MOST: u32 = 4096;
/// Parts of a packet. Charging one part less, 0.4 %, drains 50 ms of packets in 13 s.
const PARTS: u64 = 256;
/// The time after a drop for which packets are charged in full: several times as long as a worker
/// takes to count drops that happened earlier on a packet's way.
const EXACT_FOR: Nanos = Nanos::from_millis(100);
/// Least bound of any pacer: a packet from each interface.
const LEAST: u32 = 16;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    use weir_units::Nanos;

    use super::*;

    /// A pacer, and the frames that go through it.
    struct Rig {
        pacer: Pacer,
        links: Vec<FrameLink>,
        free: Vec<u32>,
        /// The sender of each frame.
        from: Vec<u32>,
        now: Instant,
    }

    impl Rig {
        fn new(rate: u64, most: u32) -> Self {
            let frames = 4096;
            Self {
                pacer: Pacer::new(Instant::ZERO, PacketRate::from_pps(rate), most),
                links: vec![FrameLink::NONE; frames],
                free: (0..4096).collect(),
                from: vec![0; frames],
                now: Instant::ZERO,
            }
        }

        /// Hands in a frame; returns the sender that lost one, if any did.
        fn push(&mut self, iface: u32) -> Option<u32> {
            let id = self.free.pop().expect("fewer wait than there are");
            self.from[id as usize] = iface;
            let given_up = self.pacer.push(self.now, iface, id, &mut self.links)?;
            self.free.push(given_up);
            Some(self.from[given_up as usize])
        }

        fn pop(&mut self) -> Option<u32> {
            let id = self.pacer.pop(self.now, &self.links)?;
            self.free.push(id);
            Some(self.from[id as usize])
        }

        fn flood(&mut self, iface: u32) {
            while self.push(iface).is_none() {}
        }
    }

    /// 50 ms, but for the bounds, the least of which is what the vifs have room for.
    #[test]
    fn a_queue_is_as_deep_as_rate_and_room_say() {
        use weir_policy::{Port, Router, Slice, Vif};
        use weir_units::BitRate;
        let mut policy = Policy::new("node");
        let port = policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
        let slice = policy.add_slice(Slice::new("gold"));
        let router = policy.add_router(Router::new("vr1", slice));
        let mut vif = Vif { router: Some(router), ..Vif::new("a", slice, port) };
        vif.receive_queue.packets = 16_384;
        policy.add_vif(vif);
        let of = |policy: &Policy, rate| depth(policy, router, PacketRate::from_pps(rate));
        let rates = [1, 5_000, 20_000, 80_000, 1_000_000];
        assert_eq!(rates.map(|rate| of(&policy, rate)), [256, 256, 1000, 4000, 4096]);
        policy.vifs[0].receive_queue.packets = 256;
        assert_eq!(rates.map(|rate| of(&policy, rate)), [128; 5]);
        // A queue of flows that was given 4096 packets, and one that was given nothing.
        policy.vifs[0].receive_queue.kind = weir_policy::QueueKind::Flows;
        policy.vifs[0].receive_queue.packets = 4096;
        assert_eq!(rates.map(|rate| of(&policy, rate)), [256, 256, 1000, 2048, 2048]);
        policy.vifs[0].receive_queue.packets = Queue::FLOWS_PACKETS_DEFAULT;
        assert_eq!(rates.map(|rate| of(&policy, rate)), [128; 5]);
    }

    /// Goal: under a flood each tenth of a second has its packets, but for a turn of the grid at
    /// either end, though the worker is away for 9 ms in the middle of each; behind a long queue,
    /// and behind the 128 packets for which a default vif leaves room; refused here or before.
    #[test]
    fn a_flood_passes_at_exactly_the_rate() {
        let rates = [100, 997, 2_500, 100_000, 1_000_000];
        let of = |rate| [(rate, 128, true), (rate, 2048, true), (rate, 2048, false)];
        for (rate, most, here) in rates.map(of).concat() {
            let mut rig = Rig::new(rate, most);
            rig.flood(0);
            // Uses up the tokens that an idle limit has saved.
            while rig.pop().is_some() {
                rig.push(0);
            }
            let mut all = 0;
            for tenth in 1..=20 {
                let end = Instant::from_nanos(tenth * 100_000_000);
                let away = Instant::from_nanos(tenth * 100_000_000 - 50_000_000);
                let mut passed = 0;
                loop {
                    let next = rig.pacer.next().max(rig.now);
                    let is_away = rig.now < away && next >= away;
                    let next = if is_away { next + Nanos::from_millis(9) } else { next };
                    if next >= end {
                        break;
                    }
                    rig.now = next;
                    // The order of a worker: transmit everything that is due, then receive.
                    passed += core::iter::from_fn(|| rig.pop()).count() as u64;
                    if here {
                        rig.flood(0);
                        continue;
                    }
                    while rig.pacer.room(0) > 0 {
                        rig.push(0);
                    }
                    rig.pacer.refuse(rig.now);
                }
                let (due, turn) = (rate / 10, rate * TURN_NS / 1_000_000_000 + 1);
                assert!(due.abs_diff(passed) <= turn, "{passed} of {due} behind {most}");
                all += passed;
            }
            let (due, turn) = (2 * rate, rate * TURN_NS / 1_000_000_000 + 1);
            assert!(due.abs_diff(all) <= turn, "{all} of {due} in all, behind {most}");
        }
    }

    /// Goal: behind a limit of the same rate nothing waits for ever, however low it is. Method:
    /// frames that fill the queue at once, then arrivals at the rate.
    #[test]
    fn what_once_had_to_wait_is_made_up_for() {
        for rate in [100, 300, 10_000] {
            let mut rig = Rig::new(rate, 500);
            rig.flood(0);
            let (mut held, mut passed) = (Vec::new(), 0);
            // Each 255 packets make up for one.
            let packets = 500 * 256 + 1000;
            for packet in 0..packets {
                rig.now = Instant::from_nanos(packet * 1_000_000_000 / rate);
                rig.push(0);
                passed += core::iter::from_fn(|| rig.pop()).count() as u64;
                if packet % 10_000 == 0 {
                    held.push(rig.pacer.held);
                }
            }
            assert!(held[0] > 450 && rig.pacer.held <= 1, "{rate}: {held:?}");
            assert!(held.windows(2).all(|pair| pair[1] <= pair[0]), "{rate}: {held:?}");
            assert!((packets + 500).abs_diff(passed) <= 50, "{passed}: none is lost");
        }
    }

    /// Goal: the extra packets of undercharging are spread evenly, and do not pass at once.
    #[test]
    fn a_limit_that_refuses_nothing_is_even() {
        let mut rig = Rig::new(510, 500);
        for _ in 0..400 {
            rig.push(0);
        }
        while rig.pop().is_some() {}
        let mut counts = vec![];
        for tenth in 1..=200_u64 {
            let end = Instant::from_nanos(tenth * 100_000_000);
            let mut passed = 0;
            while rig.pacer.next() < end {
                rig.now = rig.pacer.next().max(rig.now);
                while rig.pop().is_some() {
                    rig.push(0);
                    passed += 1;
                }
            }
            counts.push(passed);
        }
        // 51 and a fifth, after the start.
        counts.remove(0);
        assert!(counts.iter().all(|count| (51..=52).contains(count)), "{counts:?}");
        let sum = counts.iter().sum::<u64>();
        assert!(sum.abs_diff(199 * 51 + 199 / 5) <= 1, "{sum}");
    }

    /// Goal: an idle limit saves up no more than a millisecond's packets.
    #[test]
    fn an_idle_limit_lets_no_burst_pass() {
        let mut rig = Rig::new(10_000, 2048);
        rig.now = Instant::from_nanos(5_000_000_000);
        rig.flood(0);
        assert_eq!(core::iter::from_fn(|| rig.pop()).count(), 10);
        // While somebody waits, 10 ms of lateness are made up for and no more, with the packet that
        // was nearly due when they began.
        rig.now += Nanos::from_millis(50);
        assert_eq!(core::iter::from_fn(|| rig.pop()).count(), 101);
    }

    /// Goal: tokens that a late worker left are for packets that wait, and are no burst for later.
    #[test]
    fn what_a_late_worker_left_is_gone_after_a_while() {
        let mut rig = Rig::new(100_000, 128);
        rig.flood(0);
        rig.now += Nanos::from_millis(9);
        assert_eq!(core::iter::from_fn(|| rig.pop()).count(), 128);
        rig.now += Nanos::from_millis(2);
        rig.flood(0);
        let more = core::iter::from_fn(|| rig.pop()).count();
        assert_eq!(more, 128, "of 900, less 200 for the while and 128 that passed");
        rig.now += Nanos::from_millis(9);
        rig.flood(0);
        assert_eq!(core::iter::from_fn(|| rig.pop()).count(), 100, "a millisecond's");
    }

    /// Goal: a sender below its part waits for one packet, whatever comes from elsewhere, and loses
    /// none. Method: a flood, its answers at a third of the rate, and 0.1 kp/s each way.
    #[test]
    fn who_sends_little_goes_first() {
        let rate = 1000;
        let mut rig = Rig::new(rate, 256);
        let mut longest = Nanos::ZERO;
        let mut waiting: [VecDeque<Instant>; 4] = Default::default();
        let mut lost = [0; 4];
        for step in 0..20_000_u64 {
            rig.now = Instant::from_nanos(step * 100_000);
            let comes = [true, step % 30 == 0, step % 100 == 0, step % 100 == 50];
            for (iface, _) in (0u32..).zip(comes).filter(|(_, comes)| *comes) {
                waiting[iface as usize].push_back(rig.now);
                if let Some(loser) = rig.push(iface) {
                    lost[loser as usize] += 1;
                    waiting[loser as usize].pop_front();
                }
            }
            while let Some(iface) = rig.pop() {
                let since = waiting[iface as usize].pop_front().expect("it came");
                if iface > 0 {
                    longest = longest.max(rig.now - since);
                }
            }
        }
        assert!(lost[0] > 10_000 && lost[1..] == [0, 0, 0], "{lost:?}");
        assert!(longest <= Nanos::from_micros(2100), "{longest}");
    }

    /// Goal: thirty-two windows of two packets, of which each comes again a round trip after it
    /// passed or a time-out after it was lost, keep the limit busy: each tenth of a second has its
    /// packets within 1 %, where a policer lets a quarter through.
    #[test]
    fn windows_keep_the_limit_busy() {
        for rate in [2_000, 20_000, 100_000] {
            let mut rig = Rig::new(rate, 256);
            let trip = Nanos::from_micros(200);
            let mut comes: VecDeque<Instant> = vec![Instant::ZERO; 64].into();
            let mut passed = [0u64; 20];
            while rig.now < Instant::from_nanos(2_000_000_000) {
                while comes.front().is_some_and(|at| *at <= rig.now) {
                    comes.pop_front();
                    assert_eq!(rig.push(0), None, "they fit");
                }
                while rig.pop().is_some() {
                    let tenth = rig.now.as_nanos() / 100_000_000;
                    passed[tenth as usize] += 1;
                    comes.push_back(rig.now + trip);
                }
                let next = comes.front().copied().unwrap_or(Instant::FAR_FUTURE);
                rig.now = rig.pacer.next().min(next).max(rig.now + Nanos::new(1));
            }
            for tenth in &passed[1..] {
                assert!(tenth.abs_diff(rate / 10) <= rate / 1000, "{tenth} of {}", rate / 10);
            }
        }
    }

    #[test]
    fn another_rate_holds_at_once_and_what_waits_stays() {
        let mut rig = Rig::new(1000, 256);
        rig.flood(3);
        while rig.pop().is_some() {}
        rig.pacer.change(rig.now, PacketRate::from_pps(100_000), 256);
        rig.now += Nanos::from_millis(1);
        assert_eq!(core::iter::from_fn(|| rig.pop()).count(), 100);
        assert_eq!(rig.pacer.room(3), 101);
        let left = core::iter::from_fn(|| rig.pacer.take(&rig.links)).count();
        assert_eq!((left, rig.pacer.next()), (155, Instant::FAR_FUTURE));
        rig.pacer.change(rig.now, PacketRate::ZERO, 256);
        rig.flood(0);
        while rig.pop().is_some() {}
        assert_eq!(rig.pacer.next(), Instant::FAR_FUTURE, "nothing ever passes");
        assert_eq!((rig.pacer.room(0), rig.pacer.room(1)), (0, 32));
    }
}
