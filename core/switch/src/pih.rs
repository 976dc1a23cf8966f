// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers that a slice's frames have on a port: a VLAN tag, the number of a parallel internet.
//!
//! `dst | src | [802.1Q tag] | 0x88b5 | number | type | payload`: three bytes behind the addresses
//! and the tag say which parallel internet a frame belongs to (Rzym and Wajda, JTIT 2/2014, section
//! 5.1, which has 8 bits "next to the Ethernet frame header" and leaves the rest open). The type
//! 0x88b5 is one that IEEE 802 gives to local experiments, so that a switch on the way forwards the
//! frame by its addresses. The frame's own type follows the number: the header is taken off without
//! a table.

use weir_policy::Slice;

use crate::frame::{Ethernet, TPID_CUSTOMER, TPID_SERVICE, word};
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::vlan;

/// The headers that frames of a slice carry on a port, but not at a vif.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortHeaders {
    /// The VLAN of an 802.1Q tag; 0 for none.
    pub vlan: u16,
    /// The number of the parallel internet; `None` for no such header.
    pub pih: Option<u8>,
}

impl PortHeaders {
    /// No header.
    pub const NONE: Self = Self { vlan: 0, pih: None };

    /// The headers of a slice.
    #[must_use]
    pub const fn of(slice: &Slice) -> Self {
        let vlan = match slice.vlan {
            Some(vlan) => vlan,
            None => 0,
        };
        Self { vlan, pih: slice.pih }
    }

    /// Their bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u16 {
        let tag = if self.vlan == 0 { 0 } else { vlan::TAG };
        if self.pih.is_none() { tag } else { tag + PIH }
    }

    /// Puts the headers before a frame that has none.
    ///
    /// # Errors
    /// [`Reason::NoHeadroom`] if there is no room, [`Reason::Truncated`] if the frame has no
    /// addresses and type.
    #[inline]
    pub fn push<P: FramePool>(self, pool: &mut P, frame: Frame) -> Result<Frame, Reason> {
        if pool.room_before(frame) < usize::from(self.bytes()) {
            return Err(Reason::NoHeadroom);
        }
        let frame = match self.pih {
            None => frame,
            Some(number) => push(pool, frame, number)?,
        };
        if self.vlan == 0 { Ok(frame) } else { vlan::push(pool, frame, self.vlan) }
    }

    /// Takes the headers off a frame that has them.
    ///
    /// # Errors
    /// [`Reason::Truncated`] if the frame is shorter.
    #[inline]
    pub fn pop<P: FramePool>(self, pool: &mut P, frame: Frame) -> Result<Frame, Reason> {
        let frame = if self.vlan == 0 { frame } else { vlan::pop(pool, frame)? };
        if self.pih.is_none() { Ok(frame) } else { pop(pool, frame) }
    }
}

/// Reads the header behind an Ethernet header: the number, and the Ethernet header as it is without
/// it, but for the offset of its payload. `None` for a frame without one.
///
/// # Errors
/// [`Reason::PihShort`] if it does not fit the frame, [`Reason::NestedTag`] if a tag or another
/// such header follows.
#[inline]
pub fn read_pih(frame: &[u8], ethernet: &Ethernet) -> Result<Option<(u8, Ethernet)>, Reason> {
    if ethernet.ethertype != ETHERTYPE_PIH {
        return Ok(None);
    }
    let number = frame.get(ethernet.payload).ok_or(Reason::PihShort)?;
    let ethertype = word(frame, ethernet.payload + 1).ok_or(Reason::PihShort)?;
    if matches!(ethertype, TPID_CUSTOMER | TPID_SERVICE | ETHERTYPE_PIH) {
        return Err(Reason::NestedTag);
    }
    let payload = ethernet.payload + usize::from(PIH);
    Ok(Some((*number, Ethernet { ethertype, payload, ..*ethernet })))
}

fn push<P: FramePool>(pool: &mut P, frame: Frame, number: u8) -> Result<Frame, Reason> {
    if frame.len < 14 {
        return Err(Reason::Truncated);
    }
    let (offset, len) = (frame.offset.checked_sub(PIH), frame.len.checked_add(PIH));
    let (Some(offset), Some(len)) = (offset, len) else { return Err(Reason::NoHeadroom) };
    let longer = Frame { id: frame.id, offset, len };
    let Some(head) = pool.data(longer).first_chunk_mut::<15>() else {
        return Err(Reason::Truncated);
    };
    head.copy_within(3..15, 0);
    [head[12], head[13]] = ETHERTYPE_PIH.to_be_bytes();
    head[14] = number;
    Ok(longer)
}

fn pop<P: FramePool>(pool: &mut P, frame: Frame) -> Result<Frame, Reason> {
    let Some(head) = pool.data(frame).first_chunk_mut::<17>() else {
        return Err(Reason::Truncated);
    };
    head.copy_within(0..12, 3);
    Ok(Frame { id: frame.id, offset: frame.offset + PIH, len: frame.len - PIH })
}

/// IEEE 802 local experimental type 1.
pub const ETHERTYPE_PIH: u16 = 0x88b5;
/// Bytes of the header.
const PIH: u16 = 3;
