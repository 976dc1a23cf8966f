// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deficit round robin (Shreedhar and Varghese 1995).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_units::Instant;

use crate::flat::{Discipline, Flat, Pick};
use crate::ring::Ring;
use crate::{ClassConfig, ClassId, LinkConfig, QueueTable};

/// Serves active classes in turn, each up to a quantum of bytes in proportion to its weight; what
/// it leaves unused because the next packet is longer, it keeps for its next turn. Constant work
/// a packet. Honours weight and upper limit; no minimum.
pub type Drr = Flat<DeficitRounds>;

/// The discipline of [`Drr`].
#[derive(Clone, Debug)]
pub struct DeficitRounds {
    classes: Vec<Class>,
    /// The active classes, the one whose turn it is in front. A class is in it at most once; it
    /// may be inactive, and is taken out when its turn comes.
    ring: Ring,
    /// The class in front if it has got its quantum for this turn, else [`NONE`].
    turn: u32,
    /// What is left of that turn: a packet in the middle of it needs no look at the class.
    turn_deficit: u64,
    /// How many classes have each weight: the least one gets a quantum of `packet_max`.
    weights: BTreeMap<u32, usize>,
    /// The longest packet seen. A quantum is never less, or a turn could pass without a packet
    /// and the work a packet would not be constant (§3 of the paper).
    packet_max: u32,
    /// Number of changes of `packet_max` and of the least weight: outdates quanta.
    generation: u32,
}

#[derive(Clone, Debug, Default)]
struct Class {
    deficit: u64,
    quantum: u64,
    generation: u32,
    /// Zero while the class does not exist.
    weight: u32,
    active: bool,
    listed: bool,
}

impl DeficitRounds {
    fn least_weight(&self) -> u32 {
        self.weights.first_key_value().map_or(1, |(weight, _)| *weight)
    }

    fn set_weight(&mut self, class: u32, weight: u32) {
        let least = self.least_weight();
        let old = core::mem::replace(&mut self.classes[class as usize].weight, weight);
        if weight > 0 {
            *self.weights.entry(weight).or_default() += 1;
        }
        if let Some(count) = self.weights.get_mut(&old) {
            *count -= 1;
            if *count == 0 {
                self.weights.remove(&old);
            }
        }
        self.classes[class as usize].generation = self.generation.wrapping_sub(1);
        if self.least_weight() != least {
            self.generation = self.generation.wrapping_add(1);
        }
    }

    /// Gives the first active class its quantum; false if there is none.
    #[inline]
    fn open_turn(&mut self) -> bool {
        while let Some(class) = self.ring.front() {
            let state = &self.classes[class as usize];
            if !state.active {
                self.unlist(class);
                continue;
            }
            if state.generation != self.generation {
                self.renew_quantum(class);
            }
            let state = &self.classes[class as usize];
            self.turn_deficit = state.deficit.saturating_add(state.quantum);
            self.turn = class;
            return true;
        }
        false
    }

    #[cold]
    fn renew_quantum(&mut self, class: u32) {
        let (least, packet_max) = (self.least_weight(), self.packet_max);
        let class = &mut self.classes[class as usize];
        class.quantum = u64::from(packet_max) * u64::from(class.weight) / u64::from(least);
        class.generation = self.generation;
    }

    /// Takes the class in front out of the list.
    #[inline]
    fn unlist(&mut self, class: u32) {
        self.ring.pop();
        self.turn = NONE;
        let class = &mut self.classes[class as usize];
        class.listed = false;
        class.active = false;
        class.deficit = 0;
    }
}

impl Discipline for DeficitRounds {
    fn new(_link: &LinkConfig) -> Self {
        Self {
            classes: Vec::new(),
            ring: Ring::new(),
            turn: NONE,
            turn_deficit: 0,
            weights: BTreeMap::new(),
            packet_max: PACKET_MAX_USUAL,
            generation: 0,
        }
    }

    fn configure(&mut self, class: u32, config: &ClassConfig, _queues: &QueueTable) {
        let index = class as usize;
        if self.classes.len() <= index {
            self.classes.resize_with(index + 1, Class::default);
            self.ring.reserve(index + 1);
        }
        self.set_weight(class, config.weight);
    }

    fn remove(&mut self, class: u32) {
        self.set_weight(class, 0);
    }

    #[inline]
    fn enqueued(&mut self, _class: u32, bytes: u32) {
        if bytes > self.packet_max {
            self.packet_max = bytes;
            self.generation = self.generation.wrapping_add(1);
        }
    }

    #[inline]
    fn activate(&mut self, _now: Instant, class: u32, _head: u32) {
        let state = &mut self.classes[class as usize];
        state.active = true;
        if !state.listed {
            state.listed = true;
            self.ring.push(class);
        }
    }

    fn deactivate(&mut self, class: u32) {
        if self.ring.front() == Some(class) {
            self.unlist(class);
        } else {
            let class = &mut self.classes[class as usize];
            class.active = false;
            class.deficit = 0;
        }
    }

    #[inline]
    fn pick(&mut self, _now: Instant, queues: &QueueTable) -> Pick {
        loop {
            if self.turn == NONE && !self.open_turn() {
                return Pick::Nobody;
            }
            let head = queues.head_bytes(ClassId(self.turn)).unwrap_or(0);
            if u64::from(head) <= self.turn_deficit {
                return Pick::Class(self.turn);
            }
            self.classes[self.turn as usize].deficit = self.turn_deficit;
            self.ring.rotate();
            self.turn = NONE;
        }
    }

    #[inline]
    fn sent(&mut self, _now: Instant, class: u32, bytes: u32, head: Option<u32>) {
        self.turn_deficit = self.turn_deficit.saturating_sub(u64::from(bytes));
        if head.is_none() {
            self.unlist(class);
        }
    }
}

/// No class.
const NONE: u32 = u32::MAX;

/// An Ethernet frame with a VLAN tag, without FCS.
const PACKET_MAX_USUAL: u32 = 1518;
