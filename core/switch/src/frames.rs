// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queued frames by their chunk: where each lies, and the lists that they are chained in.
//!
//! A chunk of the pool holds one frame, so tables by chunk can hold all that the switch knows of a
//! queued frame; nothing is allocated when a frame is queued. A frame is in at most
//! one list at a time, so one link each is enough.

use alloc::boxed::Box;

use weir_units::Instant;

use crate::ids::NO_IFACE;
use crate::pih::PortHeaders;
use crate::pool::Frame;
use crate::types::IfaceId;

/// The queued frames, by their chunk.
#[derive(Default)]
pub(crate) struct FrameTable {
    slots: Box<[FrameSlot]>,
    links: Box<[FrameLink]>,
}

/// The place of a queued frame in its chunk. Eight to a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub(crate) struct FrameSlot {
    offset: u16,
    pub(crate) len: u16,
    /// The headers that it carries.
    pub(crate) headers: PortHeaders,
}

/// The links of a queued frame: its list, its destination, its wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLink {
    /// The next frame of the same list.
    pub(crate) next: u32,
    /// The vif that it goes to, while it is local traffic in a queue or waits in a pacer;
    /// [`NO_IFACE`] otherwise. It may have left meanwhile.
    pub(crate) to: u32,
    /// When it began to wait in a pacer.
    pub(crate) since: Instant,
}

/// A list of frames through [`FrameLink::next`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameList {
    head: u32,
    tail: u32,
}

impl FrameTable {
    /// Makes room for so many chunks, if there is less.
    pub(crate) fn grow(&mut self, chunks: usize) {
        lengthen(&mut self.slots, chunks, FrameSlot::EMPTY);
        lengthen(&mut self.links, chunks, FrameLink::NONE);
    }

    /// Chunks that there is room for.
    #[inline]
    pub(crate) fn chunks(&self) -> usize {
        self.slots.len()
    }

    /// Returns the place of a chunk's frame; an empty frame for a chunk without room.
    #[inline]
    pub(crate) fn slot(&self, id: u32) -> FrameSlot {
        self.slots.get(id as usize).copied().unwrap_or(FrameSlot::EMPTY)
    }

    /// Notes where a frame lies, and its headers.
    #[inline]
    pub(crate) fn put(&mut self, frame: Frame, headers: PortHeaders) {
        if let Some(slot) = self.slots.get_mut(frame.id as usize) {
            *slot = FrameSlot { offset: frame.offset, len: frame.len, headers };
        }
    }

    /// Returns the links of all chunks, for a pacer, which chains frames of its own.
    #[inline]
    pub(crate) fn links(&self) -> &[FrameLink] {
        &self.links
    }

    /// Returns the links of all chunks, to be changed.
    #[inline]
    pub(crate) fn links_mut(&mut self) -> &mut [FrameLink] {
        &mut self.links
    }

    /// Notes which vif a frame goes to.
    #[inline]
    pub(crate) fn set_destination(&mut self, id: u32, to: IfaceId) {
        if let Some(link) = self.links.get_mut(id as usize) {
            link.to = to.0;
        }
    }

    /// Forgets which vif a frame goes to, and returns it; the vif may have left.
    #[inline]
    pub(crate) fn take_destination(&mut self, id: u32) -> IfaceId {
        let link = self.links.get_mut(id as usize);
        IfaceId(link.map_or(NO_IFACE, |link| core::mem::replace(&mut link.to, NO_IFACE)))
    }

    /// Appends a frame to a list.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut FrameList, id: u32) {
        let last = self.links.get_mut(list.tail as usize).filter(|_| list.head != NO_FRAME);
        match last {
            Some(last) => last.next = id,
            None => list.head = id,
        }
        list.tail = id;
    }

    /// Takes the first frame of a list.
    #[inline]
    pub(crate) fn pop(&mut self, list: &mut FrameList) -> Option<(FrameSlot, Frame)> {
        let id = list.head;
        let slot = *self.slots.get(id as usize)?;
        if id == list.tail {
            *list = FrameList::EMPTY;
        } else {
            list.head = self.links.get(id as usize).map_or(NO_FRAME, |link| link.next);
        }
        Some((slot, slot.frame(id)))
    }
}

impl FrameList {
    pub(crate) const EMPTY: Self = Self { head: NO_FRAME, tail: NO_FRAME };

    /// Tells whether no frame is in the list.
    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.head == NO_FRAME
    }
}

impl FrameSlot {
    const EMPTY: Self = Self { offset: 0, len: 0, headers: PortHeaders::NONE };

    /// Returns the frame of a chunk.
    #[inline]
    pub(crate) const fn frame(self, id: u32) -> Frame {
        Frame { id, offset: self.offset, len: self.len }
    }

    /// Returns the frame's length as a vif sees it, without the headers.
    #[inline]
    pub(crate) fn own_length(self) -> u16 {
        self.len.saturating_sub(self.headers.bytes())
    }
}

impl FrameLink {
    pub(crate) const NONE: Self = Self { next: NO_FRAME, to: NO_IFACE, since: Instant::ZERO };
}

fn lengthen<T: Copy>(slice: &mut Box<[T]>, length: usize, empty: T) {
    if length > slice.len() {
        let mut longer = core::mem::take(slice).into_vec();
        longer.resize(length, empty);
        *slice = longer.into_boxed_slice();
    }
}

/// No frame.
pub(crate) const NO_FRAME: u32 = u32::MAX;
