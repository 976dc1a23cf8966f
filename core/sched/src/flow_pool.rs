// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flows of all classes of a scheduler: one pool, a hash table to find them, lists of them.
//!
//! A flow has a state only while it is in a list of its class. So the pool may be far smaller than
//! all classes times all flows, and a flow that comes back after a pause starts anew. Each class is
//! guaranteed a part of the pool; the rest goes to whoever comes first.
//!
//! The table is chained, through the flows themselves. Its key is the class and the flow's number,
//! which is a perturbed hash already; multiplying spreads the classes (Knuth, *The Art of Computer
//! Programming* 3, §6.4).

use alloc::vec::Vec;

use crate::codel::CodelState;
use crate::packets::{NIL, PacketSlab};

/// All flows of a scheduler. It grows only as a class is configured.
#[derive(Clone, Debug)]
pub(crate) struct FlowPool {
    /// The states that were in use at some time. Room for all of `limit` is reserved, and memory
    /// that no flow ever used is never touched.
    flows: Vec<FlowState>,
    /// Flows that may have a state at a time.
    limit: usize,
    /// The first flow of each chain, plus one; a power of two of them. Zeros, so that a chain that
    /// no flow was ever in takes no memory.
    chains: Vec<u32>,
    /// The first free one of `flows`, linked by `next`.
    free: u32,
    free_count: u32,
    /// Free flows that are guaranteed to classes.
    promised: u32,
    /// Sum of what the classes ask for.
    wanted: usize,
}

/// A class's part of the pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowAllowance {
    /// Flows that the class adds to the pool, its own among them.
    asked: u32,
    /// States that it may have at any time, beside its own flow.
    guaranteed: u32,
    /// States that it has.
    used: u32,
}

/// One flow of a class: a queue, its deficit, its `CoDel`.
#[derive(Clone, Debug)]
pub(crate) struct FlowState {
    /// First and last cell of its packets; meaningless without packets.
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
    /// Bytes that it may send in this turn.
    pub(crate) deficit: i32,
    /// The flow behind it in its list, or among the free ones.
    next: u32,
    /// The flow behind it in its chain.
    chained: u32,
    class: u32,
    number: u32,
    pub(crate) listed: bool,
    pub(crate) codel: CodelState,
}

/// A list of flows in order of service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowList {
    head: u32,
    tail: u32,
}

impl FlowPool {
    pub(crate) const fn new() -> Self {
        Self {
            flows: Vec::new(),
            limit: 0,
            chains: Vec::new(),
            free: NIL,
            free_count: 0,
            promised: 0,
            wanted: 0,
        }
    }

    /// Reserves `asked` flows and one own flow for a class. The pool grows and never shrinks.
    pub(crate) fn reserve(&mut self, allowance: &mut FlowAllowance, asked: u32) {
        self.promised -= allowance.unused();
        self.wanted -= allowance.asked as usize;
        *allowance =
            FlowAllowance { asked: asked + 1, guaranteed: asked.div_ceil(4), ..*allowance };
        self.promised += allowance.unused();
        self.wanted += allowance.asked as usize;
        // States that other classes borrowed must not be missing for the new guarantee.
        let missing = self.promised.saturating_sub(self.free_count) as usize;
        self.grow(self.wanted.max(self.limit + missing));
    }

    /// Forgets the allowance of a class whose flows were released.
    pub(crate) fn leave(&mut self, allowance: FlowAllowance) {
        debug_assert_eq!(allowance.used, 0, "its flows were released");
        self.promised -= allowance.unused();
        self.wanted -= allowance.asked as usize;
    }

    fn grow(&mut self, wanted: usize) {
        if wanted <= self.limit {
            return;
        }
        self.free_count += u32::try_from(wanted - self.limit).unwrap_or(NIL);
        self.limit = wanted;
        self.flows.reserve(wanted - self.flows.len());
        let chains = wanted.next_power_of_two();
        if chains == self.chains.len() {
            return;
        }
        self.chains = alloc::vec![0; chains];
        for index in 0..self.flows.len() {
            if self.flows[index].number != OWN {
                self.chain(u32::try_from(index).unwrap_or(NIL));
            }
        }
    }

    /// Returns the flow of a class with that number, if it has a state.
    #[inline]
    pub(crate) fn find(&self, class: u32, number: u32) -> Option<u32> {
        let mut at = self.chains.get(self.chain_of(class, number))?.wrapping_sub(1);
        while let Some(flow) = self.flows.get(at as usize) {
            if flow.number == number && flow.class == class {
                return Some(at);
            }
            at = flow.chained;
        }
        None
    }

    /// Tells whether a class may have one more state.
    #[inline]
    pub(crate) const fn has_free(&self, allowance: FlowAllowance) -> bool {
        allowance.used < allowance.guaranteed || self.free_count > self.promised
    }

    /// Gives a class a state for a flow without one; `None` if it has its part and every state that
    /// is guaranteed to no class is taken.
    #[inline]
    pub(crate) fn take(
        &mut self,
        allowance: &mut FlowAllowance,
        class: u32,
        number: u32,
    ) -> Option<u32> {
        if !self.has_free(*allowance) {
            return None;
        }
        let at = self.take_any(class, number)?;
        self.promised -= u32::from(allowance.used < allowance.guaranteed);
        allowance.used += 1;
        self.chain(at);
        Some(at)
    }

    /// Gives a class its own flow.
    pub(crate) fn take_own(&mut self, class: u32) -> Option<u32> {
        if self.free_count <= self.promised {
            self.grow(self.limit + 1);
        }
        self.take_any(class, OWN)
    }

    #[inline]
    fn take_any(&mut self, class: u32, number: u32) -> Option<u32> {
        let taken = FlowState { class, number, ..FlowState::FREE };
        let mut at = self.free;
        if let Some(flow) = self.flows.get_mut(at as usize) {
            self.free = flow.next;
            *flow = taken;
        } else if self.flows.len() < self.limit {
            at = u32::try_from(self.flows.len()).ok()?;
            self.flows.push(taken);
        } else {
            return None;
        }
        self.free_count -= 1;
        Some(at)
    }

    /// Frees the state of a flow in no list.
    pub(crate) fn release(&mut self, allowance: &mut FlowAllowance, at: u32) {
        let FlowState { class, number, chained, .. } = self.flows[at as usize];
        if number != OWN {
            let chain = self.chain_of(class, number);
            let mut before = self.chains[chain].wrapping_sub(1);
            if before == at {
                self.chains[chain] = chained.wrapping_add(1);
            } else {
                while self.flows[before as usize].chained != at {
                    before = self.flows[before as usize].chained;
                }
                self.flows[before as usize].chained = chained;
            }
            allowance.used -= 1;
            self.promised += u32::from(allowance.used < allowance.guaranteed);
        }
        let next = core::mem::replace(&mut self.free, at);
        self.free_count += 1;
        self.flows[at as usize] = FlowState { next, ..FlowState::FREE };
    }

    /// Appends a flow to a list.
    #[inline]
    pub(crate) fn append(&mut self, list: &mut FlowList, at: u32) {
        self.flows[at as usize].next = NIL;
        self.flows[at as usize].listed = true;
        match list.head {
            NIL => list.head = at,
            _ => self.flows[list.tail as usize].next = at,
        }
        list.tail = at;
    }

    /// Takes the first flow out of a list.
    #[inline]
    pub(crate) fn pop(&mut self, list: &mut FlowList) {
        if let Some(flow) = self.flows.get_mut(list.head as usize) {
            flow.listed = false;
            list.head = flow.next;
        }
    }

    fn chain(&mut self, at: u32) {
        let flow = &self.flows[at as usize];
        let chain = self.chain_of(flow.class, flow.number);
        let first = core::mem::replace(&mut self.chains[chain], at + 1);
        self.flows[at as usize].chained = first.wrapping_sub(1);
    }

    #[inline]
    fn chain_of(&self, class: u32, number: u32) -> usize {
        let key = u64::from(class) << 32 | u64::from(number);
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        usize::try_from(spread).unwrap_or(0) & self.chains.len().wrapping_sub(1)
    }
}

impl core::ops::Index<u32> for FlowPool {
    type Output = FlowState;
    #[inline]
    fn index(&self, at: u32) -> &FlowState {
        &self.flows[at as usize]
    }
}

impl core::ops::IndexMut<u32> for FlowPool {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut FlowState {
        &mut self.flows[at as usize]
    }
}

impl FlowAllowance {
    /// Returns the number of states that are guaranteed and free.
    const fn unused(self) -> u32 {
        self.guaranteed.saturating_sub(self.used)
    }
}

impl FlowList {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL };

    /// Returns the flow that is first.
    #[inline]
    pub(crate) const fn first(self) -> Option<u32> {
        if self.head == NIL { None } else { Some(self.head) }
    }
}

impl FlowState {
    /// Appends the packet in a cell.
    #[inline]
    pub(crate) fn append(&mut self, cell: u32, bytes: u32, slab: &mut PacketSlab) {
        match slab.cells.get_mut(self.tail as usize).filter(|_| self.packets > 0) {
            Some(last) => last.next = cell,
            None => self.head = cell,
        }
        self.tail = cell;
        self.packets += 1;
        self.bytes = self.bytes.wrapping_add(bytes);
    }

    const FREE: Self = Self {
        head: NIL,
        tail: NIL,
        packets: 0,
        bytes: 0,
        deficit: 0,
        next: NIL,
        chained: NIL,
        class: NIL,
        number: OWN,
        listed: false,
        codel: CodelState::new(),
    };
}

/// The number of a class's own flow, which no packet names.
const OWN: u32 = u32::MAX;
