// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow queues with `CoDel` (RFC 8290): a queue for each flow of a class.
//!
//! **Problem.** In one queue every packet waits behind all that came before, so a tenant's ping
//! waits for its own downloads.
//!
//! **Idea.** Deficit round robin over the flows gives each an equal part. A flow that becomes
//! active goes before those that have had a turn, for one quantum, so a flow that sends little
//! waits for no other. `CoDel` keeps each flow's own queue short.
//!
//! **The head is chosen one packet ahead.** Every scheduler asks for the length of a class's next
//! packet before it decides, so the choice must stand: a class shows the *staged* packet, and
//! chooses the next one when that leaves. A sparse flow waits for one more packet of its own class,
//! and no scheduler sees a difference.
//!
//! **Bounds** follow Choudhury and Hahne (ToN 6(2), 1998), as the shares of the frame pool do: a
//! flow may hold [`ALPHA`] times as much as is left free. One greedy flow then leaves a third of
//! the queue, so that packets of others find room; only `CoDel` drops a packet that was accepted.
//!
//! **A change of configuration** may leave packets whose flow is not known, since their queue told
//! no flows apart. All packets that a change brings here leave first, in order, and none is refused
//! or judged by `CoDel`: so no packet passes an earlier one of its flow.
//!
//! **A pool without a free state** makes a flow share the class's *own* flow. Later packets of a
//! flow follow its packets that wait there; any other flow gets a state as soon as one is free.
//!
//! See `docs/algorithms/flow-queues.md`.

use weir_units::{Instant, Nanos};

use crate::codel::{CodelState, CodelVerdict};
use crate::flow_pool::{FlowAllowance, FlowList, FlowPool};
use crate::packets::{ClassQueue, NIL, PacketSlab};
use crate::{CodelConfig, DropReason, FlowCounters, Packet, QueueConfig};

/// The flows of one class.
#[derive(Clone, Debug)]
pub(crate) struct FlowQueue {
    class: u32,
    packets_max: u32,
    bytes_max: u32,
    codel: Option<CodelConfig>,
    l4s: Option<Nanos>,
    /// Its part of the pool.
    allowance: FlowAllowance,
    /// Flows that became active; `old` has those that have had a turn.
    fresh: FlowList,
    old: FlowList,
    /// The flow whose packet is at the head of the class; [`NIL`] without a packet, and for one
    /// that was in the class before its flows.
    staged: u32,
    /// Packets that leave before the packets of all flows.
    earlier: EarlierPackets,
    /// The flow that takes the packets of all flows that the pool has no state for.
    own: u32,
    /// Packets in the own flow, by [`bucket`] of their flow's number: later packets of the flow
    /// follow them.
    own_packets: [u32; BUCKETS],
    /// Bytes of a turn: the length of the longest packet seen, so that each turn sends a packet.
    quantum: u32,
    counters: FlowCounters,
}

/// A list of packets that a change of configuration brought into the class, in order.
#[derive(Clone, Copy, Debug)]
struct EarlierPackets {
    head: u32,
    tail: u32,
    packets: u32,
}

/// The parts of the table of queues that flows are made of.
pub(crate) struct FlowParts<'a> {
    pub(crate) queue: &'a mut ClassQueue,
    pub(crate) slab: &'a mut PacketSlab,
    pub(crate) pool: &'a mut FlowPool,
}

impl FlowQueue {
    /// Makes a class without packets; `None` if the pool gives no flow, which `reserve` excludes.
    pub(crate) fn new(class: u32, config: &QueueConfig, pool: &mut FlowPool) -> Option<Self> {
        let mut queue = Self {
            class,
            packets_max: 0,
            bytes_max: 0,
            codel: None,
            l4s: None,
            allowance: FlowAllowance::default(),
            fresh: FlowList::EMPTY,
            old: FlowList::EMPTY,
            staged: NIL,
            earlier: EarlierPackets { head: NIL, tail: NIL, packets: 0 },
            own: NIL,
            own_packets: [0; BUCKETS],
            quantum: QUANTUM_LEAST,
            counters: FlowCounters::default(),
        };
        queue.configure(config, pool);
        queue.own = pool.take_own(class)?;
        Some(queue)
    }

    /// Changes bounds and parameters; packets stay where they are.
    pub(crate) fn configure(&mut self, config: &QueueConfig, pool: &mut FlowPool) {
        let flows = config.flows.map_or(1, |flows| flows.flows.max(1));
        pool.reserve(&mut self.allowance, flows);
        self.packets_max = config.packets.max(1);
        self.bytes_max = u32::try_from(config.bytes.get()).unwrap_or(u32::MAX);
        self.codel = config.codel;
        self.l4s = config.flows.and_then(|flows| flows.l4s);
    }

    pub(crate) const fn packets_max(&self) -> u32 {
        self.packets_max
    }

    pub(crate) const fn counters(&self) -> FlowCounters {
        self.counters
    }

    /// Appends a packet to its flow.
    ///
    /// # Errors
    /// The bound that it would break.
    pub(crate) fn push(
        &mut self,
        packet: Packet,
        parts: &mut FlowParts<'_>,
    ) -> Result<(), DropReason> {
        let FlowParts { queue, slab, pool } = parts;
        let known = self.flow_of(packet, pool);
        let held = known.map_or((0, 0), |flow| (pool[flow].packets, pool[flow].bytes));
        self.check(packet, queue, held)?;
        let Some(cell) = slab.take_cell(packet) else { return Err(DropReason::AllQueues) };
        let new = || pool.take(&mut self.allowance, self.class, packet.flow());
        let flow = known.or_else(new).unwrap_or(self.own);
        if flow == self.own {
            self.own_packets[bucket(packet)] += 1;
            self.counters.shared += 1;
        }
        let state = &mut pool[flow];
        state.append(cell, packet.bytes(), slab);
        let (listed, was_empty) = (state.listed, queue.packets == 0);
        queue.packets += 1;
        queue.bytes = queue.bytes.wrapping_add(packet.bytes());
        self.quantum = self.quantum.max(packet.bytes());
        if !listed {
            self.begin(flow, pool);
        }
        if was_empty {
            self.stage(parts);
        }
        Ok(())
    }

    /// Appends a packet that lost its queue by a change of configuration, whatever the bounds of
    /// this class. It leaves before the packets of all flows. Returns false if the slab has no
    /// room.
    pub(crate) fn requeue(&mut self, packet: Packet, parts: &mut FlowParts<'_>) -> bool {
        let Some(cell) = parts.slab.take_cell(packet) else { return false };
        self.earlier.push(cell, parts.slab);
        let was_empty = parts.queue.packets == 0;
        parts.queue.packets += 1;
        parts.queue.bytes = parts.queue.bytes.wrapping_add(packet.bytes());
        if was_empty {
            self.stage(parts);
        }
        true
    }

    /// Takes the packet at the head, with the verdict of its flow's `CoDel`, and chooses the next.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        parts: &mut FlowParts<'_>,
    ) -> Option<(Packet, CodelVerdict)> {
        let FlowParts { queue, slab, pool } = parts;
        if queue.packets == 0 {
            return None;
        }
        let packet = slab.free_cell(queue.head)?;
        queue.packets -= 1;
        queue.bytes = queue.bytes.wrapping_sub(packet.bytes());
        let mut verdict = CodelVerdict::Send;
        if let Some(codel) = self.codel.as_ref().filter(|_| self.staged != NIL) {
            let flow = &mut pool[self.staged];
            verdict = flow.codel.verdict(codel, now, packet, flow.bytes.into());
            if verdict == CodelVerdict::Drop {
                flow.deficit = flow.deficit.saturating_add_unsigned(packet.bytes());
            }
        }
        let waited = now.saturating_since(packet.arrived);
        let is_late = self.l4s.is_some_and(|most| packet.is_scalable() && waited > most);
        if is_late && verdict != CodelVerdict::Drop {
            verdict = CodelVerdict::Mark;
        }
        self.stage(parts);
        Some((packet, verdict))
    }

    /// Takes over the packets of a queue in order of arrival: they leave before the packets of all
    /// flows.
    pub(crate) fn take_over(&mut self, queue: &ClassQueue, slab: &PacketSlab) {
        debug_assert_eq!(self.counters.active, 0, "the class had no flows");
        let (_, head) = slab.peek(queue.head);
        let packets = queue.packets.saturating_sub(1);
        self.earlier = EarlierPackets { head, tail: queue.tail, packets };
        self.staged = NIL;
    }

    /// Puts the packets back into one queue, in the order in which they would have left, and frees
    /// what the class has of the pool.
    pub(crate) fn hand_back(mut self, mut parts: FlowParts<'_>) {
        let (count, first) = (parts.queue.packets, parts.queue.head);
        let (first_bytes, mut last) = (parts.queue.head_bytes, first);
        for _ in 1..count {
            self.stage(&mut parts);
            let next = parts.queue.head;
            if let Some(cell) = parts.slab.cells.get_mut(last as usize) {
                (cell.next, cell.next_bytes) = (next, parts.queue.head_bytes);
            }
            last = next;
        }
        if let Some(cell) = parts.slab.cells.get_mut(last as usize).filter(|_| count > 0) {
            (cell.next, cell.next_bytes) = (NIL, 0);
        }
        self.release(&mut parts);
        let queue = parts.queue;
        (queue.head, queue.head_bytes, queue.tail) = (first, first_bytes, last);
    }

    /// Takes out all packets, and frees what the class has of the pool.
    pub(crate) fn empty(mut self, mut parts: FlowParts<'_>, orphan: &mut dyn FnMut(Packet)) {
        self.codel = None;
        while let Some((packet, _)) = self.pop(Instant::ZERO, &mut parts) {
            orphan(packet);
        }
        self.release(&mut parts);
    }

    /// Gives back the flows, which have no packets left but the staged one.
    fn release(&mut self, parts: &mut FlowParts<'_>) {
        let FlowParts { pool, .. } = parts;
        for list in [&mut self.fresh, &mut self.old] {
            while let Some(at) = list.first() {
                debug_assert_eq!(pool[at].packets, 0, "its packets were taken out");
                pool.pop(list);
                if at != self.own {
                    pool.release(&mut self.allowance, at);
                }
            }
        }
        pool.release(&mut self.allowance, self.own);
        pool.leave(self.allowance);
    }

    /// Returns the flow that a packet joins: its own state, or the class's own flow, where packets
    /// of its number wait or the pool has no state left. `None` if it is to get a new state.
    fn flow_of(&self, packet: Packet, pool: &FlowPool) -> Option<u32> {
        let state = pool.find(self.class, packet.flow());
        let must_share = || self.own_packets[bucket(packet)] > 0 || !pool.has_free(self.allowance);
        state.or_else(|| must_share().then_some(self.own))
    }

    /// Checks the bounds of the class, and the flow's part of what is free.
    fn check(
        &self,
        packet: Packet,
        queue: &ClassQueue,
        (held_packets, held_bytes): (u32, u32),
    ) -> Result<(), DropReason> {
        let packets = u64::from(self.packets_max.saturating_sub(queue.packets));
        let bytes = u64::from(self.bytes_max.saturating_sub(queue.bytes));
        if packets == 0 {
            return Err(DropReason::QueuePackets);
        }
        if u64::from(packet.bytes()) > bytes || u64::from(held_bytes) > ALPHA * bytes {
            return Err(DropReason::QueueBytes);
        }
        if u64::from(held_packets) > ALPHA * packets {
            return Err(DropReason::QueuePackets);
        }
        Ok(())
    }

    /// Chooses the packet at the head: an earlier packet, or the first of the first flow whose
    /// deficit is positive.
    ///
    /// Each flow that is passed over has had its turn or is empty, and the one behind it got a
    /// quantum, at least a packet's length, as it was moved to the end: constant work a packet.
    fn stage(&mut self, parts: &mut FlowParts<'_>) {
        let FlowParts { queue, slab, pool } = parts;
        if let Some((cell, bytes)) = self.earlier.pop(slab) {
            (queue.head, queue.head_bytes, self.staged) = (cell, bytes, NIL);
            return;
        }
        loop {
            let (list, is_fresh) = match self.fresh.first() {
                Some(_) => (&mut self.fresh, true),
                None => (&mut self.old, false),
            };
            let Some(at) = list.first() else {
                debug_assert_eq!(queue.packets, 0, "each flow with a packet is in a list");
                (queue.head, queue.head_bytes, self.staged) = (NIL, 0, NIL);
                return;
            };
            let flow = &mut pool[at];
            if flow.packets == 0 {
                pool.pop(list);
                self.counters.sparse -= u32::from(is_fresh);
                // It goes behind the others once, or it could come back as a fresh flow at once and
                // starve them (RFC 8290 §4.2).
                if is_fresh && self.old.first().is_some() {
                    pool.append(&mut self.old, at);
                } else {
                    self.counters.active -= 1;
                    if at != self.own {
                        pool.release(&mut self.allowance, at);
                    }
                }
            } else if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add_unsigned(self.quantum);
                pool.pop(list);
                self.counters.sparse -= u32::from(is_fresh);
                pool.append(&mut self.old, at);
            } else {
                let cell = flow.head;
                let (bytes, next) = slab.peek(cell);
                flow.head = next;
                flow.packets -= 1;
                flow.bytes -= bytes;
                flow.deficit = flow.deficit.saturating_sub_unsigned(bytes);
                if at == self.own
                    && let Some(cell) = slab.cells.get(cell as usize)
                {
                    self.own_packets[bucket(cell.packet)] -= 1;
                }
                (queue.head, queue.head_bytes, self.staged) = (cell, bytes, at);
                return;
            }
        }
    }

    /// Makes a flow active, with a new state.
    fn begin(&mut self, flow: u32, pool: &mut FlowPool) {
        pool[flow].codel = CodelState::new();
        pool[flow].deficit = i32::try_from(self.quantum).unwrap_or(i32::MAX);
        pool.append(&mut self.fresh, flow);
        self.counters.started += 1;
        self.counters.active += 1;
        self.counters.sparse += 1;
    }
}

impl EarlierPackets {
    fn push(&mut self, cell: u32, slab: &mut PacketSlab) {
        match slab.cells.get_mut(self.tail as usize).filter(|_| self.packets > 0) {
            Some(last) => last.next = cell,
            None => self.head = cell,
        }
        self.tail = cell;
        self.packets += 1;
    }

    /// Takes out the first packet; returns its cell and its length.
    #[inline]
    fn pop(&mut self, slab: &PacketSlab) -> Option<(u32, u32)> {
        if self.packets == 0 {
            return None;
        }
        let cell = self.head;
        let (bytes, next) = slab.peek(cell);
        self.head = next;
        self.packets -= 1;
        Some((cell, bytes))
    }
}

/// Returns the counter of [`FlowQueue::own_packets`] for a packet's flow.
#[inline]
const fn bucket(packet: Packet) -> usize {
    packet.flow() as usize % BUCKETS
}

/// One counter serves all flow numbers of a bucket. While one of them has packets in the class's
/// own flow, the others join it there: one flow in 128. The counters cost a class 512 bytes; one
/// for each number would cost 4096.
const BUCKETS: usize = 128;

/// A flow may hold this many times as much as is left free.
const ALPHA: u64 = 2;

/// An Ethernet frame with a VLAN tag, without FCS.
const QUANTUM_LEAST: u32 = 1518;
