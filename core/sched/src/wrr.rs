// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weighted round robin by the packet, after Algorithm 1 of the Netback text.

use alloc::vec::Vec;

use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::discipline::{Discipline, Pick};
use crate::flat::Flat;
use crate::minimum::Minimums;
use crate::ring::Ring;
use crate::{ClassConfig, ClassQueues, LinkClock, LinkConfig, WaitReason};

/// Serves active classes in turn. A turn is a count of packets: the class's weight over its mean
/// packet size, divided by the least such quotient. Honours weight, minimum and upper limit. The
/// work per packet is constant, and logarithmic among classes with a minimum.
///
/// The turn stays with its class until its last packet has left the wire, so that a packet that
/// arrives meanwhile is still served in it. Where the wire is faster than the configured rate, up
/// to one packet's time per turn is not used. The turn ends when the count is used up, or when the
/// queue is empty and the wire free. (As printed in the text, the inner loop would wait for ever
/// there.) Counts are fractions: a rest below one packet is carried into the class's next turn, and
/// forgotten when its queue runs empty.
///
/// A class below its minimum is served before the others, out of turn.
pub type Wrr = Flat<PacketRounds>;

/// The discipline of [`Wrr`].
#[derive(Clone, Debug)]
pub struct PacketRounds {
    classes: Vec<Class>,
    /// Listed classes, the one whose turn it is in front; inactive ones leave when they get to the
    /// front.
    ring: Ring,
    /// Packets left in the turn of the class in front; `None` between turns.
    turn: Option<u64>,
    /// The class just picked is below its minimum, and it is not its turn.
    out_of_turn: bool,
    minimums: Minimums,
    wire: Option<LinkClock>,
    catch_up: Nanos,
    active: usize,
    /// The least rate of packets (weight over mean size) in this round, as far as it is known
    /// from the round before and from the turns since.
    least: u64,
    /// The least rate of packets from this round's turns alone.
    next_least: u64,
    /// Turns until the round is over.
    round: usize,
    /// A listed class has another weight than when this round was counted.
    reweighed: bool,
}

#[derive(Clone, Debug, Default)]
struct Class {
    weight: u32,
    active: bool,
    listed: bool,
    /// Fraction of a packet, in 2⁻¹⁶.
    carry: u64,
    /// Running mean of the lengths queued, in 1/256 bytes; zero before the first.
    mean: u64,
}

impl Class {
    /// Returns weight over mean packet size, in an arbitrary unit.
    fn packet_rate(&self) -> u64 {
        // 20 bits of weight and 43 more: no overflow, and 2⁻¹⁷ exact for the longest frames.
        (u64::from(self.weight) << 43) / self.mean.max(MEAN_UNIT)
    }
}

impl PacketRounds {
    fn open_turn(&mut self, class: u32) {
        if self.round == 0 {
            self.round = self.ring.len();
            self.least = self.next_least;
            self.next_least = u64::MAX;
        }
        let state = &mut self.classes[class as usize];
        let rate = state.packet_rate();
        self.least = self.least.min(rate).max(1);
        self.next_least = self.next_least.min(rate).max(1);
        let count = (u128::from(rate) << CARRY_BITS) / u128::from(self.least);
        let count = u64::try_from(count).unwrap_or(u64::MAX).saturating_add(state.carry);
        state.carry = count & ((1 << CARRY_BITS) - 1);
        // At least one, since no class is below the least.
        self.turn = Some(count >> CARRY_BITS);
    }

    fn end_turn(&mut self, class: u32) {
        self.turn = None;
        self.round = self.round.saturating_sub(1);
        let state = &mut self.classes[class as usize];
        if state.active {
            self.ring.rotate();
        } else {
            state.carry = 0;
            state.listed = false;
            self.ring.pop();
        }
    }

    /// Computes the least rate anew after a change of weights, and has the turn under way opened
    /// again with its new count. By the earlier least rate, a turn would be longer by the factor by
    /// which the weights have grown.
    fn count_anew(&mut self) {
        let classes = &self.classes;
        let active = self.ring.iter().map(|class| &classes[class as usize]);
        let rates = active.filter(|class| class.active).map(Class::packet_rate);
        self.least = rates.min().unwrap_or(u64::MAX).max(1);
        self.next_least = self.least;
        self.round = self.ring.len();
        self.turn = None;
        self.reweighed = false;
    }

    /// Returns the reason to wait for the busy wire; `None` if nothing is queued.
    fn why_busy(&self, queues: &ClassQueues) -> Option<WaitReason> {
        let holder = self.ring.front().filter(|_| self.turn.is_some());
        let emptied = holder.is_some_and(|class| !self.classes[class as usize].active);
        match queues.total().packets {
            0 => None,
            _ if emptied => Some(WaitReason::TurnHeld),
            _ => Some(WaitReason::LinkBusy),
        }
    }
}

impl Discipline for PacketRounds {
    type State = ();

    fn new(link: &LinkConfig) -> Self {
        Self {
            classes: Vec::new(),
            ring: Ring::new(),
            turn: None,
            out_of_turn: false,
            minimums: Minimums::new(),
            wire: link.rate.map(|rate| LinkClock::new(rate, link.catch_up)),
            catch_up: link.catch_up,
            active: 0,
            least: u64::MAX,
            next_least: u64::MAX,
            round: 0,
            reweighed: false,
        }
    }

    fn configure(&mut self, class: u32, config: &ClassConfig, _queues: &mut ClassQueues) {
        let index = class as usize;
        if self.classes.len() <= index {
            self.classes.resize_with(index + 1, Class::default);
            self.ring.reserve(index + 1);
        }
        let state = &mut self.classes[index];
        self.reweighed |= state.listed && state.weight != config.weight;
        state.weight = config.weight;
        self.minimums.configure(class, config.min_rate, state.active);
    }

    fn remove(&mut self, class: u32, _queues: &mut ClassQueues) {
        let state = &mut self.classes[class as usize];
        (state.carry, state.mean) = (0, 0);
        self.minimums.configure(class, BitRate::ZERO, false);
    }

    fn set_link_rate(&mut self, _now: Instant, rate: Option<BitRate>) {
        self.wire = match (self.wire.take(), rate) {
            (Some(mut wire), Some(rate)) => {
                wire.set_rate(rate);
                Some(wire)
            }
            (_, rate) => rate.map(|rate| LinkClock::new(rate, self.catch_up)),
        };
    }

    #[inline]
    fn enqueued(&mut self, class: u32, bytes: u32) {
        let state = &mut self.classes[class as usize];
        let length = u64::from(bytes) * MEAN_UNIT;
        state.mean = match state.mean {
            0 => length,
            mean if length > mean => mean + (length - mean) / MEAN_OVER,
            mean => mean - (mean - length) / MEAN_OVER,
        };
    }

    #[inline]
    fn activate(&mut self, now: Instant, class: u32, _head: u32, _queues: &mut ClassQueues) {
        if let (0, Some(wire)) = (self.active, &mut self.wire) {
            wire.idle_until(now);
        }
        self.active += 1;
        let state = &mut self.classes[class as usize];
        state.active = true;
        let rate = state.packet_rate();
        self.least = self.least.min(rate).max(1);
        self.next_least = self.next_least.min(rate).max(1);
        if !state.listed {
            state.listed = true;
            self.ring.push(class);
        }
        self.minimums.activate(now, class);
    }

    fn deactivate(&mut self, class: u32, _queues: &mut ClassQueues) {
        self.active -= 1;
        self.classes[class as usize].active = false;
        if self.turn.is_some() && self.ring.front() == Some(class) {
            self.end_turn(class);
        }
    }

    // Every packet passes these two. Without the attribute the compiler calls them where `dequeue`
    // is inlined in several loops, and a packet takes a sixth more instructions.
    #[inline(always)]
    fn pick(&mut self, now: Instant, queues: &mut ClassQueues) -> Pick {
        if let Some(Err(until)) = self.wire.as_ref().map(|wire| wire.ready(now)) {
            return self.why_busy(queues).map_or(Pick::Nobody, |why| Pick::Wait(until, why));
        }
        let classes = &self.classes;
        let active = |class: u32| classes[class as usize].active;
        if let Some(class) = self.minimums.first_below(now, active) {
            self.out_of_turn = self.turn.is_none() || self.ring.front() != Some(class);
            return Pick::Class(class);
        }
        self.out_of_turn = false;
        if self.reweighed {
            self.count_anew();
        }
        // Each step returns, opens a turn with a packet in it, or shortens the ring.
        while let Some(class) = self.ring.front() {
            let active = self.classes[class as usize].active;
            match self.turn {
                Some(1..) if active => return Pick::Class(class),
                None if active => self.open_turn(class),
                _ => self.end_turn(class),
            }
        }
        Pick::Nobody
    }

    #[inline(always)]
    fn sent(
        &mut self,
        now: Instant,
        class: u32,
        bytes: u32,
        head: Option<u32>,
        _queues: &mut ClassQueues,
    ) {
        let length = ByteCount::new(bytes.into());
        if let Some(wire) = &mut self.wire {
            wire.sent(now, length);
        }
        self.minimums.sent(now, class, length);
        if let (false, Some(left)) = (self.out_of_turn, &mut self.turn) {
            *left = left.saturating_sub(1);
        }
        if head.is_none() {
            self.active -= 1;
            self.classes[class as usize].active = false;
        }
    }
}

const CARRY_BITS: u32 = 16;
/// One byte of a mean.
const MEAN_UNIT: u64 = 256;
/// A packet moves the mean by 1/32 of the difference: it follows a change of sizes in about 100
/// packets, and 31 of 32 parts of a lone odd size are ignored.
const MEAN_OVER: u64 = 32;
