// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995).
//!
//! **Problem.** Round robin by packets gives more to the class with the longer packets. Sorting by
//! virtual finish times is fair, but its work grows with the number of classes.
//!
//! **Algorithm.** The active classes form a ring. The class that comes to the front gets a
//! *quantum* of bytes, in proportion to its weight, on top of the *deficit* that its last turn
//! left. It sends packets as long as the next one fits; then it goes to the end of the ring and
//! keeps the rest. A class that runs empty leaves the ring and loses its deficit.
//!
//! **Quantum.** The least weight gets the longest packet seen, the others in proportion. So every
//! turn sends a packet, and the work a packet is constant (§3 of the paper). A change of that
//! length or of the least weight begins a new *generation*; a class computes its quantum anew when
//! its turn finds it to be of an earlier one.
//!
//! See `docs/algorithms/drr.md`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_units::Instant;

use crate::discipline::{Discipline, Pick};
use crate::flat::Flat;
use crate::ring::Ring;
use crate::{ClassConfig, ClassId, ClassQueues, LinkConfig};

/// Serves active classes in turn, in proportion to their weights by the byte, at constant work a
/// packet. Honours weight and upper limit; no minimum.
pub type Drr = Flat<DeficitRounds>;

/// The discipline of [`Drr`].
#[derive(Clone, Debug)]
pub struct DeficitRounds {
    /// The active classes, the one whose turn it is in front; each at most once. A class that was
    /// deactivated stays until it comes to the front.
    ring: Ring,
    /// The class in front if it has got its quantum for this turn, else [`NONE`].
    turn: u32,
    /// Deficit left in that turn. It is kept here, so that a packet within a turn costs no access
    /// to the class.
    turn_deficit: u64,
    /// The weight of each class, zero while it does not exist.
    weights: Vec<u32>,
    /// Number of classes by weight.
    weight_counts: BTreeMap<u32, usize>,
    /// The longest packet seen: the quantum of the least weight.
    packet_max: u32,
    /// Counts changes of `packet_max` and of the least weight.
    generation: u32,
}

/// State of a class in [`DeficitRounds`].
#[derive(Clone, Debug)]
pub struct DeficitTurn {
    /// Bytes that the class gets each turn.
    quantum: u64,
    /// Deficit left of the class's last turn, less than its packet at the head and so less than
    /// 2²⁰; otherwise [`INACTIVE`] or [`UNLISTED`].
    deficit: u32,
    /// The generation in which the quantum was computed.
    generation: u32,
}

/// Not in the ring, without a quantum.
impl Default for DeficitTurn {
    fn default() -> Self {
        Self { quantum: 0, deficit: UNLISTED, generation: 0 }
    }
}

impl DeficitRounds {
    fn least_weight(&self) -> u32 {
        self.weight_counts.first_key_value().map_or(1, |(weight, _)| *weight)
    }

    fn set_weight(&mut self, class: u32, weight: u32) {
        let least = self.least_weight();
        let old = core::mem::replace(&mut self.weights[class as usize], weight);
        if weight > 0 {
            *self.weight_counts.entry(weight).or_default() += 1;
        }
        if let Some(count) = self.weight_counts.get_mut(&old) {
            *count -= 1;
            if *count == 0 {
                self.weight_counts.remove(&old);
            }
        }
        if self.least_weight() != least {
            self.generation = self.generation.wrapping_add(1);
        }
    }

    /// Gives the first active class its quantum; false if there is none.
    #[inline]
    fn open_turn(&mut self, queues: &mut ClassQueues<DeficitTurn>) -> bool {
        while let Some(class) = self.ring.front() {
            let turn = &mut queues[class];
            if turn.deficit == INACTIVE {
                turn.deficit = UNLISTED;
                self.ring.pop();
                continue;
            }
            if turn.generation != self.generation {
                self.renew_quantum(class, turn);
            }
            self.turn_deficit = u64::from(turn.deficit).saturating_add(turn.quantum);
            self.turn = class;
            return true;
        }
        false
    }

    /// Ends the turn, if there is one, and finds the next class with enough of a deficit.
    #[inline(never)]
    fn next_turn(&mut self, queues: &mut ClassQueues<DeficitTurn>) -> Pick {
        loop {
            if self.turn != NONE {
                // The packet at the head is longer, and its length has 20 bits.
                queues[self.turn].deficit = u32::try_from(self.turn_deficit).unwrap_or(0);
                self.ring.rotate();
                self.turn = NONE;
            }
            if !self.open_turn(queues) {
                return Pick::Nobody;
            }
            let head = queues.head_bytes(ClassId(self.turn)).unwrap_or(0);
            if u64::from(head) <= self.turn_deficit {
                return Pick::Class(self.turn);
            }
        }
    }

    #[cold]
    fn renew_quantum(&self, class: u32, turn: &mut DeficitTurn) {
        let (weight, least) = (u64::from(self.weights[class as usize]), self.least_weight());
        turn.quantum = u64::from(self.packet_max) * weight / u64::from(least);
        turn.generation = self.generation;
    }
}

impl Discipline for DeficitRounds {
    type State = DeficitTurn;

    fn new(_link: &LinkConfig) -> Self {
        Self {
            ring: Ring::new(),
            turn: NONE,
            turn_deficit: 0,
            weights: Vec::new(),
            weight_counts: BTreeMap::new(),
            packet_max: PACKET_MAX_USUAL,
            generation: 0,
        }
    }

    fn configure(
        &mut self,
        class: u32,
        config: &ClassConfig,
        queues: &mut ClassQueues<DeficitTurn>,
    ) {
        let index = class as usize;
        if self.weights.len() <= index {
            self.weights.resize(index + 1, 0);
            self.ring.reserve(index + 1);
        }
        self.set_weight(class, config.weight);
        queues[class].generation = self.generation.wrapping_sub(1);
    }

    fn remove(&mut self, class: u32, queues: &mut ClassQueues<DeficitTurn>) {
        self.set_weight(class, 0);
        // A class added later may get this index and must not find itself in the ring.
        if core::mem::replace(&mut queues[class].deficit, UNLISTED) != UNLISTED {
            self.ring.remove(class);
        }
    }

    #[inline]
    fn enqueued(&mut self, _class: u32, bytes: u32) {
        if bytes > self.packet_max {
            self.packet_max = bytes;
            self.generation = self.generation.wrapping_add(1);
        }
    }

    #[inline]
    fn activate(
        &mut self,
        _now: Instant,
        class: u32,
        _head: u32,
        queues: &mut ClassQueues<DeficitTurn>,
    ) {
        if core::mem::take(&mut queues[class].deficit) == UNLISTED {
            self.ring.push(class);
        }
    }

    fn deactivate(&mut self, class: u32, queues: &mut ClassQueues<DeficitTurn>) {
        queues[class].deficit = INACTIVE;
        if self.turn == class {
            self.turn = NONE;
        }
    }

    #[inline]
    fn pick(&mut self, _now: Instant, queues: &mut ClassQueues<DeficitTurn>) -> Pick {
        // `NONE` is no class and has no head.
        match queues.head_bytes(ClassId(self.turn)) {
            Some(head) if u64::from(head) <= self.turn_deficit => Pick::Class(self.turn),
            _ => self.next_turn(queues),
        }
    }

    #[inline]
    fn sent(
        &mut self,
        _now: Instant,
        class: u32,
        bytes: u32,
        head: Option<u32>,
        queues: &mut ClassQueues<DeficitTurn>,
    ) {
        self.turn_deficit = self.turn_deficit.saturating_sub(u64::from(bytes));
        if head.is_none() {
            queues[class].deficit = UNLISTED;
            self.ring.pop();
            self.turn = NONE;
        }
    }
}

/// Deficit of a class in the ring that is not active: it is removed when it comes to the front.
const INACTIVE: u32 = UNLISTED - 1;

/// Deficit of a class that is not in the ring.
const UNLISTED: u32 = u32::MAX;

/// No class.
const NONE: u32 = u32::MAX;

/// An Ethernet frame with a VLAN tag, without FCS: from the start no quantum is less.
const PACKET_MAX_USUAL: u32 = 1518;
