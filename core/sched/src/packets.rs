// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packets of all queues of a scheduler: a slab of cells, and lists through it.
//!
//! Memory for a packet is reserved before it comes: the slab grows only when a queue is added or a
//! bound raised. A cell that no packet ever lay in is never touched, so that it takes no memory of
//! the machine.

use alloc::vec::Vec;

use crate::{Backlog, Packet};

/// All that came in and all that went out. Packets and bytes of one way do not lie side by side:
/// the compiler would add to both with one wide instruction, and reading a wide value that was just
/// written takes ten cycles, where a number takes one.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct PacketSums {
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// The packets of all queues.
#[derive(Clone, Debug)]
pub(crate) struct PacketSlab {
    /// The cells that were in use at some time. Room for all of `limit` is reserved.
    pub(crate) cells: Vec<PacketCell>,
    /// Packets that the slab may hold.
    limit: usize,
    /// Head of the list of free ones among `cells`.
    free: u32,
    pub(crate) sums: PacketSums,
}

/// 48 bytes, in this order for the reason given at [`PacketSums`].
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct ClassQueue {
    /// The cell of the packet that leaves next; [`NIL`] if the queue is empty.
    pub(crate) head: u32,
    /// Length of the packet at the head: disciplines choose without a look at the packet.
    pub(crate) head_bytes: u32,
    pub(crate) sent_packets: u64,
    pub(crate) tail: u32,
    pub(crate) packets: u32,
    pub(crate) sent_bytes: u64,
    /// Zero marks a class that does not exist, or that has a queue for each flow: `managed` is set
    /// for the latter.
    pub(crate) packets_max: u32,
    /// Never above `bytes_max`, or above an earlier, larger value of it.
    pub(crate) bytes: u32,
    pub(crate) bytes_max: u32,
    pub(crate) managed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PacketCell {
    pub(crate) packet: Packet,
    /// The cell behind it in its queue, or among the free ones; [`NIL`] for none.
    pub(crate) next: u32,
    /// Length of the packet there, so that taking one does not read the one behind it. Zero behind
    /// the last, of no meaning in a free cell.
    pub(crate) next_bytes: u32,
}

impl PacketSlab {
    pub(crate) const fn new() -> Self {
        let sums = PacketSums { packets_in: 0, packets_out: 0, bytes_in: 0, bytes_out: 0 };
        Self { cells: Vec::new(), limit: 0, free: NIL, sums }
    }

    /// Returns the number of packets that it may hold.
    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// Tells whether it holds as many packets as it may.
    pub(crate) const fn is_full(&self) -> bool {
        self.free == NIL && self.cells.len() >= self.limit
    }

    /// Makes room for `limit` packets; never shrinks. Only cells that were in use are moved: a
    /// reallocation would copy, and so touch, the others too.
    pub(crate) fn grow(&mut self, limit: usize) {
        if limit > self.limit {
            self.limit = limit;
            let mut cells = Vec::with_capacity(limit);
            cells.append(&mut self.cells);
            self.cells = cells;
        }
    }

    /// Appends a packet. False if there is no room.
    #[inline(always)]
    pub(crate) fn link(&mut self, queue: &mut ClassQueue, packet: Packet) -> bool {
        let new = self.free;
        let Some(cell) = self.cells.get_mut(new as usize) else {
            return self.link_untouched(queue, packet);
        };
        self.free = cell.next;
        *cell = PacketCell { packet, next: NIL, next_bytes: 0 };
        self.append(queue, packet.bytes(), new);
        true
    }

    /// Appends a packet in a cell that was never in use. False if there is no room.
    #[cold]
    #[inline(never)]
    fn link_untouched(&mut self, queue: &mut ClassQueue, packet: Packet) -> bool {
        let Some(new) = self.touch(packet) else { return false };
        self.append(queue, packet.bytes(), new);
        true
    }

    /// Appends a filled cell, whose packet has `bytes` bytes, and counts it.
    #[inline(always)]
    fn append(&mut self, queue: &mut ClassQueue, bytes: u32, new: u32) {
        let tail = core::mem::replace(&mut queue.tail, new);
        if queue.packets == 0 {
            queue.head = new;
            queue.head_bytes = bytes;
        } else if let Some(tail) = self.cells.get_mut(tail as usize) {
            tail.next = new;
            tail.next_bytes = bytes;
        }
        queue.packets += 1;
        // Not above a bound of 32 bits.
        queue.bytes = queue.bytes.wrapping_add(bytes);
        self.count_in(bytes);
    }

    #[inline(always)]
    fn count_in(&mut self, bytes: u32) {
        self.sums.packets_in += 1;
        self.sums.bytes_in += u64::from(bytes);
    }

    /// Puts a packet into a cell that was never in use, in no list and not counted; `None` if there
    /// is no room.
    fn touch(&mut self, packet: Packet) -> Option<u32> {
        let new = u32::try_from(self.cells.len()).ok()?;
        if self.cells.len() >= self.limit {
            return None;
        }
        self.cells.push(PacketCell { packet, next: NIL, next_bytes: 0 });
        Some(new)
    }

    /// Takes the packet at the head. Returns it with the length of the one behind it.
    #[inline(always)]
    pub(crate) fn unlink(&mut self, queue: &mut ClassQueue) -> Option<(Packet, Option<u32>)> {
        debug_assert_eq!(queue.head == NIL, queue.packets == 0, "an empty queue has no head");
        let head = queue.head;
        let cell = self.cells.get_mut(head as usize)?;
        let (packet, next_bytes) = (cell.packet, cell.next_bytes);
        let next = core::mem::replace(&mut cell.next, self.free);
        self.free = head;
        (queue.head, queue.head_bytes) = (next, next_bytes);
        queue.packets -= 1;
        queue.bytes = queue.bytes.wrapping_sub(packet.bytes());
        self.sums.packets_out += 1;
        self.sums.bytes_out += u64::from(packet.bytes());
        Some((packet, (next != NIL).then_some(next_bytes)))
    }

    /// Puts a packet into a free cell, in no list; `None` if there is no room.
    #[inline]
    pub(crate) fn take_cell(&mut self, packet: Packet) -> Option<u32> {
        let new = self.free;
        let new = match self.cells.get_mut(new as usize) {
            Some(cell) => {
                self.free = cell.next;
                *cell = PacketCell { packet, next: NIL, next_bytes: 0 };
                new
            }
            None => self.touch(packet)?,
        };
        self.count_in(packet.bytes());
        Some(new)
    }

    /// Takes the packet out of a cell that is in no list.
    #[inline]
    pub(crate) fn free_cell(&mut self, at: u32) -> Option<Packet> {
        let cell = self.cells.get_mut(at as usize)?;
        let packet = cell.packet;
        cell.next = core::mem::replace(&mut self.free, at);
        self.sums.packets_out += 1;
        self.sums.bytes_out += u64::from(packet.bytes());
        Some(packet)
    }

    /// Returns the length of the packet in a cell, and the cell behind it.
    #[inline]
    pub(crate) fn peek(&self, at: u32) -> (u32, u32) {
        self.cells.get(at as usize).map_or((0, NIL), |cell| (cell.packet.bytes(), cell.next))
    }
}

impl ClassQueue {
    pub(crate) const fn absent() -> Self {
        Self {
            head: NIL,
            head_bytes: 0,
            sent_packets: 0,
            tail: NIL,
            packets: 0,
            sent_bytes: 0,
            packets_max: 0,
            bytes_max: 0,
            bytes: 0,
            managed: false,
        }
    }

    /// Checks the bound of bytes.
    #[inline(always)]
    pub(crate) fn fits(&self, bytes: u32) -> bool {
        self.bytes.checked_add(bytes).is_some_and(|bytes| bytes <= self.bytes_max)
    }

    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { packets: u64::from(self.packets), bytes: u64::from(self.bytes) }
    }
}

/// No cell.
pub(crate) const NIL: u32 = u32::MAX;
