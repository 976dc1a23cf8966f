// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues of all classes of a scheduler, with their bounds and counters.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::{Index, IndexMut};

use weir_units::Instant;

use crate::codel::{CodelState, CodelVerdict};
use crate::flow_pool::FlowPool;
use crate::flow_queue::{FlowParts, FlowQueue};
use crate::packets::{ClassQueue, NIL, PacketSlab, PacketSums};
use crate::pause::Pause;
use crate::prefetch::prefetch;
use crate::{
    Backlog, ClassCounters, ClassId, CodelConfig, ConfigError, DropReason, FlowCounters, Packet,
    QueueConfig,
};

/// Many bounded queues over one slab of packets.
///
/// A scheduler decides which queue is next and leaves the rest to this type.
///
/// Each queue is a linked list through the slab. No packet allocates: the slab grows only when a
/// queue is added or its bound is raised, up to `packets_max`. Memory: 24 bytes a packet and 168 a
/// class. Where flows have queues of their own, each flow takes 76 bytes and each class 640 more.
///
/// Each queue has a state `S` beside it, which belongs to the scheduler; [`Index`] returns it. The
/// state's first 16 bytes are in the cache line that every packet touches anyhow.
#[derive(Clone, Debug)]
pub struct ClassQueues<S = ()> {
    classes: Vec<Class<S>>,
    ledgers: Vec<Ledger>,
    slab: PacketSlab,
    flows: FlowPool,
    /// Freed indexes of classes, the least first.
    free_classes: BinaryHeap<Reverse<u32>>,
    classes_max: u32,
    packets_max: u32,
    /// Sum of the bounds of all queues, in packets: what the slab should hold.
    bounds: u64,
}

/// The packet that [`ClassQueues::pop`] found at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// This packet leaves.
    Send {
        /// The packet.
        packet: Packet,
        /// Set if `CoDel` asks for a mark.
        mark: bool,
        /// The length of the packet behind it, if there is one.
        next: Option<u32>,
    },
    /// `CoDel` dropped this packet. The queue is not empty: `CoDel` never drops its last packet.
    Dropped(Packet),
    /// The queue is empty, or does not exist.
    Empty,
}

/// State of a queue that every packet touches.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Class<S> {
    queue: ClassQueue,
    state: S,
}

/// A state's first 16 bytes are in the queue's line.
const _: () = assert!(core::mem::offset_of!(Class<u64>, state) == 48);

/// State of a queue that few packets touch.
#[derive(Clone, Debug, Default)]
struct Ledger {
    refused: Backlog,
    dropped: Backlog,
    marked: u64,
    codel: Option<Box<(CodelState, CodelConfig)>>,
    flows: Option<Box<FlowQueue>>,
    pause: Pause,
}

impl<S: Clone + Default> ClassQueues<S> {
    /// Makes a table without queues. It will hold at most `classes_max` queues, and `packets_max`
    /// packets in all of them together.
    #[must_use]
    pub fn new(classes_max: u32, packets_max: u32) -> Self {
        Self {
            classes: Vec::new(),
            ledgers: Vec::new(),
            slab: PacketSlab::new(),
            flows: FlowPool::new(),
            free_classes: BinaryHeap::new(),
            classes_max,
            packets_max,
            bounds: 0,
        }
    }

    /// Adds an empty queue with the default state, under the least free index.
    ///
    /// # Errors
    /// [`ConfigError::TooManyClasses`].
    pub fn add(&mut self, config: &QueueConfig) -> Result<ClassId, ConfigError> {
        let index = match self.free_classes.pop() {
            Some(Reverse(index)) => index,
            None => {
                let index = u32::try_from(self.classes.len()).unwrap_or(NIL);
                if index >= self.classes_max {
                    return Err(ConfigError::TooManyClasses(self.classes_max));
                }
                self.classes.push(Class { queue: ClassQueue::absent(), state: S::default() });
                self.ledgers.push(Ledger::default());
                index
            }
        };
        self.configure(index as usize, config);
        Ok(ClassId(index))
    }

    /// Replaces a queue's bounds. Packets stay, in order, even above a new bound.
    ///
    /// # Errors
    /// [`ConfigError::NoSuchClass`].
    pub fn change(&mut self, class: ClassId, config: &QueueConfig) -> Result<(), ConfigError> {
        self.check(class)?;
        self.configure(class.0 as usize, config);
        Ok(())
    }

    /// Removes a queue; its packets go to `orphan`, in order, and its counters are forgotten.
    ///
    /// # Errors
    /// [`ConfigError::NoSuchClass`].
    pub fn remove(
        &mut self,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.check(class)?;
        let this = &mut self.classes[class.0 as usize];
        let mut ledger = core::mem::take(&mut self.ledgers[class.0 as usize]);
        ledger.end_pause(&mut this.queue);
        self.bounds -= u64::from(ledger.packets_max(&this.queue));
        let Self { slab, flows: pool, .. } = self;
        match ledger.flows {
            Some(flows) => {
                let parts = FlowParts { queue: &mut this.queue, slab, pool };
                flows.empty(parts, orphan);
            }
            None => {
                while let Some((packet, _)) = slab.unlink(&mut this.queue) {
                    orphan(packet);
                }
            }
        }
        *this = Class { queue: ClassQueue::absent(), state: S::default() };
        self.free_classes.push(Reverse(class.0));
        Ok(())
    }

    /// Appends a packet. Returns whether the queue was empty before.
    ///
    /// # Errors
    /// The bound that refused it; the refusal is counted, unless no such queue exists.
    #[inline]
    pub fn push(&mut self, class: ClassId, packet: Packet) -> Result<bool, DropReason> {
        self.push_plain(class, packet).map_or_else(|| self.push_managed(class, packet), Ok)
    }

    /// Appends a packet if its queue has room, is not divided into flows and is not paused. Returns
    /// whether the queue was empty before. After `None` call [`ClassQueues::push_managed`], which
    /// appends the packet or gives the reason of the refusal. The two are apart so that the
    /// compiler keeps the rare cases out of the caller's fast path.
    #[inline(always)]
    pub fn push_plain(&mut self, class: ClassId, packet: Packet) -> Option<bool> {
        let Class { queue, .. } = self.classes.get_mut(class.0 as usize)?;
        let fits = queue.fits(packet.bytes());
        let was_empty = queue.packets == 0;
        // A queue of flows and a paused queue have a bound of 0 here, so they take no packet.
        let taken = fits && queue.packets < queue.packets_max && self.slab.link(queue, packet);
        taken.then_some(was_empty)
    }

    /// Appends a packet that was accepted before and whose queue was removed. The bounds of this
    /// queue do not hold for the packet: the slab grows if need be. Where the class has flows, the
    /// packet leaves before their packets. Returns whether the queue was empty before.
    ///
    /// # Errors
    /// There is no such queue, or the table holds all packets that it may.
    pub fn requeue(&mut self, class: ClassId, packet: Packet) -> Result<bool, DropReason> {
        if !self.exists(class) {
            return Err(DropReason::NoSuchQueue);
        }
        if self.room(class) == 0 || self.slab.is_full() {
            // A packet beyond its queue's bound would take a cell that another queue counts on.
            self.grow();
        }
        let Self { slab, flows: pool, .. } = self;
        let queue = &mut self.classes[class.0 as usize].queue;
        let Ledger { flows, refused, pause, .. } = &mut self.ledgers[class.0 as usize];
        let (queue, is_paused) = pause.queue(queue);
        let was_empty = !is_paused && queue.packets == 0;
        let taken = match flows {
            Some(flows) => flows.requeue(packet, &mut FlowParts { queue, slab, pool }),
            None => slab.link(queue, packet),
        };
        if taken {
            return Ok(was_empty);
        }
        refused.count(u64::from(packet.bytes()));
        Err(DropReason::AllQueues)
    }

    /// Lets no packet of a class leave until [`Self::resume`], except the one at the head, which
    /// the scheduler may already have chosen. Once that packet has left, the queue looks empty to
    /// the scheduler.
    pub fn pause(&mut self, class: ClassId) {
        if !self.exists(class) {
            return;
        }
        let queue = &mut self.classes[class.0 as usize].queue;
        let ledger = &mut self.ledgers[class.0 as usize];
        if matches!(ledger.pause, Pause::Running) {
            ledger.pause = Pause::Pausing;
            // `take` passes a managed queue on to `pop`, which completes the pause when the packet
            // at the head leaves.
            queue.managed = true;
            if queue.packets == 0 {
                ledger.pause.hide(queue);
            }
        }
    }

    /// Lets packets of a class leave again. Returns true if the class becomes backlogged by it: it
    /// looked empty, and has a packet.
    pub fn resume(&mut self, class: ClassId) -> bool {
        if !self.exists(class) {
            return false;
        }
        let queue = &mut self.classes[class.0 as usize].queue;
        self.ledgers[class.0 as usize].end_pause(queue) && queue.packets > 0
    }

    /// Counts a packet as offered to the class and refused.
    pub fn refuse(&mut self, class: ClassId, packet: Packet) {
        if self.exists(class) {
            self.ledgers[class.0 as usize].refused.count(u64::from(packet.bytes()));
        }
    }

    /// Takes the packet at the head. Returns it with the length of the one behind it; `None` if the
    /// queue is empty or managed (by `CoDel`, flows or a pause): call [`ClassQueues::pop`] then.
    ///
    /// The rare cases have a function of their own so that this answer stays in registers. In
    /// memory it would be written in pieces and read as a whole, which stalls the processor.
    #[inline(always)]
    pub fn take(&mut self, class: ClassId) -> Option<(Packet, Option<u32>)> {
        let Class { queue, .. } = self.classes.get_mut(class.0 as usize)?;
        if queue.managed {
            return None;
        }
        let (packet, next) = self.slab.unlink(queue)?;
        queue.sent_packets += 1;
        queue.sent_bytes += u64::from(packet.bytes());
        Some((packet, next))
    }

    /// Takes the packet at the head, or lets `CoDel` drop it.
    #[inline(never)]
    pub fn pop(&mut self, now: Instant, class: ClassId) -> Popped {
        let index = class.0 as usize;
        let (Some(Class { queue, .. }), Some(ledger)) =
            (self.classes.get_mut(index), self.ledgers.get_mut(index))
        else {
            return Popped::Empty;
        };
        let taken = match &mut ledger.flows {
            Some(flows) => {
                let (slab, pool) = (&mut self.slab, &mut self.flows);
                let taken = flows.pop(now, &mut FlowParts { queue, slab, pool });
                let next = (queue.packets > 0).then_some(queue.head_bytes);
                taken.map(|(packet, verdict)| (packet, verdict, next))
            }
            None => self.slab.unlink(queue).map(|(packet, next)| {
                let behind = u64::from(queue.bytes);
                let verdict = ledger.codel.as_mut().map_or(CodelVerdict::Send, |codel| {
                    codel.0.verdict(&codel.1, now, packet, behind)
                });
                (packet, verdict, next)
            }),
        };
        let Some((packet, verdict, mut next)) = taken else { return Popped::Empty };
        let (mark, bytes) = (verdict == CodelVerdict::Mark, u64::from(packet.bytes()));
        if verdict == CodelVerdict::Drop {
            ledger.dropped.count(bytes);
            return Popped::Dropped(packet);
        }
        ledger.marked += u64::from(mark);
        queue.sent_packets += 1;
        queue.sent_bytes += bytes;
        if matches!(ledger.pause, Pause::Pausing) {
            ledger.pause.hide(queue);
            next = None;
        }
        Popped::Send { packet, mark, next }
    }

    /// Returns the length of the packet at the head, `None` without one.
    #[inline]
    #[must_use]
    pub fn head_bytes(&self, class: ClassId) -> Option<u32> {
        let Class { queue, .. } = self.classes.get(class.0 as usize)?;
        (queue.packets > 0).then_some(queue.head_bytes)
    }

    /// Prefetches the queue and the first 16 bytes of the state, so that they are in the cache when
    /// a packet needs them. The caller does not wait for the memory.
    #[inline]
    pub fn touch(&self, class: ClassId) {
        prefetch(&self.classes, class.0 as usize);
    }

    /// Tells whether the queue has no packet that may leave, or does not exist.
    #[inline]
    #[must_use]
    pub fn is_empty(&self, class: ClassId) -> bool {
        self.queue(class).is_none_or(|queue| queue.packets == 0)
    }

    /// Tells whether the class exists.
    #[must_use]
    pub fn exists(&self, class: ClassId) -> bool {
        self.queue(class).is_some_and(|queue| queue.packets_max > 0 || queue.managed)
    }

    /// Checks that the class exists.
    ///
    /// # Errors
    /// [`ConfigError::NoSuchClass`].
    pub fn check(&self, class: ClassId) -> Result<(), ConfigError> {
        if self.exists(class) { Ok(()) } else { Err(ConfigError::NoSuchClass(class)) }
    }

    /// Returns the backlog of all queues.
    #[must_use]
    pub const fn total(&self) -> Backlog {
        let PacketSums { packets_in, packets_out, bytes_in, bytes_out } = self.slab.sums;
        Backlog { packets: packets_in - packets_out, bytes: bytes_in - bytes_out }
    }

    /// Returns the backlog of one class; zero for an unknown class.
    #[must_use]
    pub fn backlog(&self, class: ClassId) -> Backlog {
        self.queue_with_paused_packets(class).map_or_else(Backlog::default, ClassQueue::backlog)
    }

    /// Returns when the packet at the head of a class arrived; `None` without one.
    #[must_use]
    pub fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        let queue = self.queue_with_paused_packets(class).filter(|queue| queue.packets > 0)?;
        self.slab.cells.get(queue.head as usize).map(|cell| cell.packet.arrived)
    }

    /// Returns the number of packets that the class can still take, by its own bound of packets and
    /// the table's.
    #[must_use]
    pub fn room(&self, class: ClassId) -> u32 {
        let Some(queue) = self.queue_with_paused_packets(class) else { return 0 };
        let free = self.slab.limit() as u64 - self.total().packets;
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let ledger = self.ledgers.get(class.0 as usize);
        let bound = ledger.map_or(0, |ledger| ledger.packets_max(queue));
        bound.saturating_sub(queue.packets).min(free)
    }

    /// Returns the class's counters; zero for an unknown class.
    #[must_use]
    pub fn counters(&self, class: ClassId) -> ClassCounters {
        let (Some(queue), Some(ledger)) = (self.queue(class), self.ledgers.get(class.0 as usize))
        else {
            return ClassCounters::default();
        };
        let sent = Backlog { packets: queue.sent_packets, bytes: queue.sent_bytes };
        // Derived instead of counted for each packet: an accepted packet has left or is still
        // queued.
        let enqueued = sent.plus(ledger.dropped).plus(self.backlog(class));
        ClassCounters {
            offered: ledger.refused.plus(enqueued),
            refused: ledger.refused,
            enqueued,
            dropped: ledger.dropped,
            sent,
            marked: ledger.marked,
        }
    }

    /// Returns the counters of a class's flows; zero for one that has none.
    #[must_use]
    pub fn flow_counters(&self, class: ClassId) -> FlowCounters {
        let flows = self.ledgers.get(class.0 as usize).and_then(|ledger| ledger.flows.as_ref());
        flows.map_or_else(FlowCounters::default, |flows| flows.counters())
    }

    /// Returns the number of packets that the slab has room for; it grows with the bounds of the
    /// queues.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slab.limit()
    }

    /// Returns the state of a class, `None` for one that was never added.
    #[inline]
    #[must_use]
    pub fn state(&self, class: ClassId) -> Option<&S> {
        self.classes.get(class.0 as usize).map(|class| &class.state)
    }

    /// Returns the length of the packet at the head, and the state; `None` without a packet.
    #[inline(always)]
    #[must_use]
    pub fn head(&self, class: ClassId) -> Option<(u32, &S)> {
        let Class { queue, state } = self.classes.get(class.0 as usize)?;
        (queue.packets > 0).then_some((queue.head_bytes, state))
    }

    /// Returns the length of the packet at the head, and the state to change; `None` without a
    /// packet.
    #[inline(always)]
    pub fn head_mut(&mut self, class: ClassId) -> Option<(u32, &mut S)> {
        let Class { queue, state } = self.classes.get_mut(class.0 as usize)?;
        (queue.packets > 0).then_some((queue.head_bytes, state))
    }

    #[inline(always)]
    fn queue(&self, class: ClassId) -> Option<&ClassQueue> {
        self.classes.get(class.0 as usize).map(|class| &class.queue)
    }

    /// Returns the queue with all its packets, including those that a pause hides.
    fn queue_with_paused_packets(&self, class: ClassId) -> Option<&ClassQueue> {
        match self.ledgers.get(class.0 as usize).map(|ledger| &ledger.pause) {
            Some(Pause::Paused(queue)) => Some(queue),
            _ => self.queue(class),
        }
    }

    fn configure(&mut self, index: usize, config: &QueueConfig) {
        let (shown, ledger) = (&mut self.classes[index].queue, &mut self.ledgers[index]);
        let mut pause = core::mem::take(&mut ledger.pause);
        let (queue, _) = pause.queue(shown);
        let bound = config.packets.max(1);
        self.bounds = self.bounds - u64::from(ledger.packets_max(queue)) + u64::from(bound);
        queue.bytes_max = u32::try_from(config.bytes.get()).unwrap_or(u32::MAX);
        queue.managed = config.codel.is_some() || config.flows.is_some();
        let Self { slab, flows: pool, .. } = self;
        match (config.flows.is_some(), ledger.flows.take()) {
            (true, None) => {
                queue.packets_max = 0;
                let class = u32::try_from(index).unwrap_or(NIL);
                let mut flows = FlowQueue::new(class, config, pool).map(Box::new);
                if let Some(flows) = &mut flows {
                    flows.take_over(queue, slab);
                }
                ledger.flows = flows;
            }
            (true, Some(mut flows)) => {
                flows.configure(config, pool);
                ledger.flows = Some(flows);
            }
            (false, flows) => {
                queue.packets_max = bound;
                if let Some(flows) = flows {
                    flows.hand_back(FlowParts { queue, slab, pool });
                }
            }
        }
        match (&mut ledger.codel, config.codel.filter(|_| config.flows.is_none())) {
            (Some(codel), Some(config)) => codel.1 = config,
            (codel, config) => {
                *codel = config.map(|config| Box::new((CodelState::new(), config)));
            }
        }
        if !matches!(pause, Pause::Running) {
            shown.managed = true;
        }
        ledger.pause = pause;
        self.grow();
    }

    fn grow(&mut self) {
        // A queue may hold more than its bound, if the bound was lowered. Its packets must not take
        // the room of other queues, so room for all that is queued is added.
        let wanted = (self.bounds + self.total().packets).min(u64::from(self.packets_max));
        self.slab.grow(usize::try_from(wanted).unwrap_or(usize::MAX));
    }

    /// Appends a packet to its flow or to a paused queue. A plain queue that refused it in
    /// [`Self::push_plain`] refuses it here too: the refusal is counted, and its bound returned.
    ///
    /// # Errors
    /// The bound that refused it.
    #[inline(never)]
    pub fn push_managed(&mut self, class: ClassId, packet: Packet) -> Result<bool, DropReason> {
        let Some(Class { queue, .. }) = self.classes.get_mut(class.0 as usize) else {
            return Err(DropReason::NoSuchQueue);
        };
        let Ledger { flows, refused, pause, .. } = &mut self.ledgers[class.0 as usize];
        let (queue, is_paused) = pause.queue(queue);
        let was_empty = !is_paused && queue.packets == 0;
        let refusal = if let Some(flows) = flows {
            let (slab, pool) = (&mut self.slab, &mut self.flows);
            match flows.push(packet, &mut FlowParts { queue, slab, pool }) {
                Ok(()) => return Ok(was_empty),
                Err(reason) => reason,
            }
        } else if queue.packets_max == 0 {
            return Err(DropReason::NoSuchQueue);
        } else if queue.packets >= queue.packets_max {
            DropReason::QueuePackets
        } else if self.slab.is_full() {
            DropReason::AllQueues
        } else if is_paused && queue.fits(packet.bytes()) && self.slab.link(queue, packet) {
            return Ok(false);
        } else {
            DropReason::QueueBytes
        };
        refused.count(u64::from(packet.bytes()));
        Err(refusal)
    }
}

impl Ledger {
    /// Ends a pause: shows the packets that it hid. Returns true if it had hidden the queue.
    fn end_pause(&mut self, queue: &mut ClassQueue) -> bool {
        let was_hidden = self.pause.end(queue);
        queue.managed = self.codel.is_some() || self.flows.is_some();
        was_hidden
    }

    /// Returns the bound of the class's queue in packets.
    fn packets_max(&self, queue: &ClassQueue) -> u32 {
        self.flows.as_ref().map_or(queue.packets_max, |flows| flows.packets_max())
    }
}

/// The state of a class that was added at some time.
impl<S> Index<u32> for ClassQueues<S> {
    type Output = S;
    #[inline]
    fn index(&self, class: u32) -> &S {
        &self.classes[class as usize].state
    }
}

impl<S> IndexMut<u32> for ClassQueues<S> {
    #[inline]
    fn index_mut(&mut self, class: u32) -> &mut S {
        &mut self.classes[class as usize].state
    }
}

impl Backlog {
    /// Counts one packet of that length.
    #[inline]
    pub(crate) fn count(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    /// Returns the sum.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec;
    use weir_units::{ByteCount, Nanos};

    fn bound(packets: u32, bytes: u64) -> QueueConfig {
        QueueConfig { packets, bytes: ByteCount::new(bytes), codel: None, flows: None }
    }

    fn packet(id: u32, bytes: u32) -> Packet {
        Packet::new(id, bytes, Instant::ZERO)
    }

    fn drain(table: &mut ClassQueues, class: ClassId) -> Vec<u32> {
        let mut ids = vec![];
        while let Popped::Send { packet, .. } = table.pop(Instant::ZERO, class) {
            ids.push(packet.id);
        }
        ids
    }

    #[test]
    fn each_bound_refuses_with_its_reason() {
        let mut table = ClassQueues::<()>::new(3, 5);
        let a = table.add(&bound(2, 10_000)).unwrap();
        let b = table.add(&bound(9, 100)).unwrap();
        assert_eq!(table.push(a, packet(1, 60)), Ok(true));
        assert_eq!(table.push(a, packet(2, 60)), Ok(false));
        assert_eq!(table.push(a, packet(3, 60)), Err(DropReason::QueuePackets));
        assert_eq!(table.push(b, packet(4, 60)), Ok(true));
        assert_eq!(table.push(b, packet(5, 41)), Err(DropReason::QueueBytes));
        assert_eq!(table.push(b, packet(6, 40)), Ok(false));
        assert_eq!(table.push(b, packet(7, 0)), Ok(false));
        assert_eq!((table.room(a), table.room(b)), (0, 0), "five packets are all there may be");
        assert_eq!(table.push(b, packet(8, 0)), Err(DropReason::AllQueues));
        assert_eq!(table.push(ClassId(2), packet(9, 1)), Err(DropReason::NoSuchQueue));
        assert_eq!(table.total(), Backlog { packets: 5, bytes: 220 });
        assert_eq!(table.counters(b).refused, Backlog { packets: 2, bytes: 41 });
        assert_eq!(drain(&mut table, a), [1, 2]);
        assert_eq!(drain(&mut table, b), [4, 6, 7]);
    }

    #[test]
    fn the_least_free_index_is_taken_next() {
        let mut table = ClassQueues::<()>::new(3, 100);
        for expected in 0..3 {
            assert_eq!(table.add(&bound(1, 100)), Ok(ClassId(expected)));
        }
        assert_eq!(table.add(&bound(1, 100)), Err(ConfigError::TooManyClasses(3)));
        for class in [2, 0] {
            table.remove(ClassId(class), &mut |_| ()).unwrap();
        }
        assert_eq!(table.push(ClassId(0), packet(1, 1)), Err(DropReason::NoSuchQueue));
        let again = table.remove(ClassId(0), &mut |_| ());
        assert_eq!(again, Err(ConfigError::NoSuchClass(ClassId(0))));
        assert_eq!(table.add(&bound(1, 100)), Ok(ClassId(0)));
        assert_eq!(table.add(&bound(1, 100)), Ok(ClassId(2)));
    }

    #[test]
    fn a_lower_bound_keeps_what_is_queued_and_removal_hands_it_back() {
        let mut table = ClassQueues::<()>::new(2, 100);
        let class = table.add(&bound(4, 1000)).unwrap();
        for id in 0..4 {
            table.push(class, packet(id, 10)).unwrap();
        }
        table.change(class, &bound(2, 5)).unwrap();
        assert_eq!(table.room(class), 0);
        assert_eq!(table.backlog(class), Backlog { packets: 4, bytes: 40 });
        let mut orphans = vec![];
        table.remove(class, &mut |packet| orphans.push(packet.id)).unwrap();
        assert_eq!(orphans, [0, 1, 2, 3]);
        assert_eq!(table.total(), Backlog::default());
    }

    /// Goal: after every operation the stored length of the next packet is that of the packet at
    /// the head. Method: 40 000 operations on four queues, with bounds of one packet and of nine,
    /// one of them managed, each removed and added again at times; packets of five lengths, zero
    /// too; each queue is compared with a list.
    #[test]
    fn cached_head_length_matches_the_head_packet() {
        let codel =
            crate::CodelConfig { target: Nanos::new(10), interval: Nanos::new(100), ecn: false };
        let config = |class| QueueConfig {
            codel: (class == 3).then_some(codel),
            ..bound(if class == 0 { 1 } else { 9 }, 1 << 30)
        };
        let mut table = ClassQueues::<()>::new(4, 25);
        let mut model: [VecDeque<Packet>; 4] = Default::default();
        (0..4).for_each(|class| assert_eq!(table.add(&config(class)), Ok(ClassId(class))));
        let (mut seed, mut dropped) = (1_u64, 0);
        for round in 0..40_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (class, now) =
                ((seed >> 33) as u32 % 4, Instant::from_nanos(30 * u64::from(round)));
            let (id, queued) = (ClassId(class), &mut model[class as usize]);
            match seed >> 60 {
                0..8 => {
                    let packet = Packet::new(round, (seed >> 50) as u32 % 5 * 300, now);
                    if table.push(id, packet).is_ok() {
                        queued.push_back(packet);
                    }
                }
                8 => {
                    table
                        .remove(id, &mut |packet| assert_eq!(queued.pop_front(), Some(packet)))
                        .unwrap();
                    assert_eq!((queued.len(), table.add(&config(class))), (0, Ok(id)));
                }
                9..12 if class != 3 => {
                    let left = queued.pop_front();
                    let next = queued.front().map(|packet| packet.bytes());
                    assert_eq!(table.take(id), left.map(|left| (left, next)));
                }
                _ => {
                    let left = queued.pop_front();
                    let behind = queued.front().map(|packet| packet.bytes());
                    match table.pop(now, id) {
                        Popped::Send { packet, next, .. } => {
                            assert_eq!((Some(packet), next), (left, behind));
                        }
                        Popped::Dropped(packet) => {
                            assert!(Some(packet) == left && behind.is_some());
                            dropped += 1;
                        }
                        Popped::Empty => assert_eq!(left, None),
                    }
                }
            }
            let head = model[class as usize].front().map(|packet| packet.bytes());
            assert_eq!(table.head_bytes(id), head);
        }
        assert!(dropped > 100, "managed: {dropped}");
    }

    #[test]
    fn codel_drops_are_counted_and_never_empty_a_queue() {
        let mut table = ClassQueues::<()>::new(1, 100);
        let target = Nanos::new(10);
        let codel = crate::CodelConfig { target, interval: Nanos::new(100), ecn: false };
        let class = table.add(&QueueConfig { codel: Some(codel), ..bound(50, 50_000) }).unwrap();
        for id in 0..50 {
            table.push(class, packet(id, 100)).unwrap();
        }
        let (mut sent, mut dropped, mut now) = (0, 0, 0);
        loop {
            now += 40;
            match table.pop(Instant::from_nanos(now), class) {
                Popped::Send { .. } => sent += 1,
                Popped::Dropped(_) => {
                    dropped += 1;
                    assert!(!table.is_empty(class));
                }
                Popped::Empty => break,
            }
        }
        assert!(dropped > 5 && sent > 5, "both happen: {dropped} {sent}");
        let counters = table.counters(class);
        assert_eq!(counters.dropped, Backlog { packets: dropped, bytes: dropped * 100 });
        assert_eq!(counters.sent, Backlog { packets: sent, bytes: sent * 100 });
        assert_eq!(counters.enqueued.packets, sent + dropped);
    }
}
