// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers that a slice's frames have on a port: a VLAN tag, the number of a parallel internet.
//!
//! `dst | src | [802.1Q tag] | 0x88b5 | number | type | payload`: three bytes behind the addresses
//! and the tag say which parallel internet a frame belongs to (Rzym and Wajda, JTIT 2/2014, section
//! 5.1, which has 8 bits "next to the Ethernet frame header" and leaves the rest open). The type
//! 0x88b5 is one that IEEE 802 gives to local experiments, so that a switch on the way forwards the
//! frame by its addresses. The frame's own type follows the number, so the header can be taken off
//! without a table.
//!
//! `dst | src | [802.1Q tag] | type | number | payload`: the bare byte ([`PihForm::Byte`]), as the
//! text's smallest frame suggests (79 bytes are 14 + 1 + 40 + 20 + 4). Nothing in the frame tells
//! that the byte is there, so a link has it in every frame or in none.

use core::fmt;

use weir_policy::{PihForm, Port, Slice};

use crate::frame::{Ethernet, TPID_CUSTOMER, TPID_SERVICE, word};
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::vlan;

/// The headers that frames of a slice carry on a port, but not at a vif: a VLAN tag, the number of
/// a parallel internet, both or none.
///
/// They are one word, since they are compared for every frame: the VLAN in the lower 16 bits, the
/// number of the internet in the next eight, then its form; 0 for none of these.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct PortHeaders(u32);

/// The number of a parallel internet, in the form of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pih {
    /// The number.
    pub number: u8,
    /// How frames carry it.
    pub form: PihForm,
}

impl PortHeaders {
    /// No header.
    pub const NONE: Self = Self(0);

    /// Makes the headers of a VLAN's tag, 0 for no tag, and of the number of a parallel internet,
    /// `None` for no such header.
    #[inline]
    #[must_use]
    pub const fn new(vlan: u16, pih: Option<Pih>) -> Self {
        let [low, high] = vlan.to_le_bytes();
        let [number, form] = match pih {
            None => [0, 0],
            Some(Pih { number, form: PihForm::Header }) => [number, FORM_HEADER],
            Some(Pih { number, form: PihForm::Byte }) => [number, FORM_BYTE],
        };
        Self(u32::from_le_bytes([low, high, number, form]))
    }

    /// Returns the VLAN of the 802.1Q tag; 0 for no tag.
    #[inline]
    #[must_use]
    pub const fn vlan(self) -> u16 {
        let [low, high, ..] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// Returns the parallel internet; `None` without such a header.
    #[inline]
    #[must_use]
    pub const fn pih(self) -> Option<Pih> {
        let [_, _, number, form] = self.0.to_le_bytes();
        match form {
            FORM_HEADER => Some(Pih { number, form: PihForm::Header }),
            FORM_BYTE => Some(Pih { number, form: PihForm::Byte }),
            _ => None,
        }
    }

    /// Returns the headers of a slice on a port.
    #[must_use]
    pub const fn of(port: &Port, slice: &Slice) -> Self {
        let vlan = match slice.vlan {
            Some(vlan) => vlan,
            None => 0,
        };
        let pih = match slice.pih {
            Some(number) => Some(Pih { number, form: port.pih }),
            None => None,
        };
        Self::new(vlan, pih)
    }

    /// Returns the length of the headers in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u16 {
        let tag = if self.vlan() == 0 { 0 } else { vlan::TAG };
        match self.pih() {
            None => tag,
            Some(pih) => tag + pih.form.bytes() as u16,
        }
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
        let frame = match self.pih() {
            None => frame,
            Some(pih) => pih.push(pool, frame)?,
        };
        match self.vlan() {
            0 => Ok(frame),
            vlan => vlan::push(pool, frame, vlan),
        }
    }

    /// Takes the headers off a frame that has them.
    ///
    /// # Errors
    /// [`Reason::Truncated`] if the frame is shorter.
    #[inline]
    pub fn pop<P: FramePool>(self, pool: &mut P, frame: Frame) -> Result<Frame, Reason> {
        let frame = if self.vlan() == 0 { frame } else { vlan::pop(pool, frame)? };
        match self.pih() {
            None => Ok(frame),
            Some(pih) => pih.pop(pool, frame),
        }
    }
}

impl fmt::Debug for PortHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PortHeaders");
        shown.field("vlan", &self.vlan()).field("pih", &self.pih()).finish()
    }
}

impl Pih {
    /// Returns the parallel internet that has a bridge of this number
    /// ([`weir_policy::Policy::bridge_of`]).
    #[inline]
    pub(crate) const fn of_bridge(bridge: u16) -> Option<Self> {
        let [_, number] = bridge.to_be_bytes();
        if Port::is_by_five_tuple(bridge) {
            None
        } else if bridge >= PihForm::Byte.bridges() {
            Some(Self { number, form: PihForm::Byte })
        } else if bridge >= PihForm::Header.bridges() {
            Some(Self { number, form: PihForm::Header })
        } else {
            None
        }
    }

    /// Returns the number of its bridge.
    #[inline]
    pub(crate) const fn bridge(self) -> u16 {
        self.form.bridges() + self.number as u16
    }

    fn push<P: FramePool>(self, pool: &mut P, frame: Frame) -> Result<Frame, Reason> {
        if frame.len < ETHERNET {
            return Err(Reason::Truncated);
        }
        let bytes = u16::from(self.form.bytes());
        let (offset, len) = (frame.offset.checked_sub(bytes), frame.len.checked_add(bytes));
        let (Some(offset), Some(len)) = (offset, len) else { return Err(Reason::NoHeadroom) };
        let longer = Frame { id: frame.id, offset, len };
        let Some(head) = pool.data(longer).first_chunk_mut::<15>() else {
            return Err(Reason::Truncated);
        };
        match self.form {
            PihForm::Header => {
                head.copy_within(3..15, 0);
                [head[12], head[13]] = ETHERTYPE_PIH.to_be_bytes();
            }
            PihForm::Byte => head.copy_within(1..15, 0),
        }
        head[14] = self.number;
        Ok(longer)
    }

    fn pop<P: FramePool>(self, pool: &mut P, frame: Frame) -> Result<Frame, Reason> {
        let bytes = u16::from(self.form.bytes());
        if frame.len < ETHERNET + bytes {
            return Err(Reason::Truncated);
        }
        let Some(head) = pool.data(frame).first_chunk_mut::<15>() else {
            return Err(Reason::Truncated);
        };
        match self.form {
            // The frame's own type is in its place.
            PihForm::Header => head.copy_within(0..12, 3),
            PihForm::Byte => head.copy_within(0..14, 1),
        }
        Ok(Frame { id: frame.id, offset: frame.offset + bytes, len: frame.len - bytes })
    }
}

/// Reads the number behind an Ethernet header. Returns the parallel internet, and the Ethernet
/// header as it would be without the number, but with the payload's offset behind it. `None` for a
/// frame without a number.
///
/// # Errors
/// [`Reason::PihShort`] if it does not fit the frame, [`Reason::NestedTag`] if a tag or another
/// such header follows.
#[inline]
pub fn read_pih(
    frame: &[u8],
    ethernet: &Ethernet,
    form: PihForm,
) -> Result<Option<(Pih, Ethernet)>, Reason> {
    let has_header = ethernet.ethertype == ETHERTYPE_PIH;
    match form {
        PihForm::Header if !has_header => return Ok(None),
        PihForm::Byte if has_header => return Err(Reason::NestedTag),
        PihForm::Header | PihForm::Byte => {}
    }
    let number = *frame.get(ethernet.payload).ok_or(Reason::PihShort)?;
    let ethertype = match form {
        PihForm::Header => word(frame, ethernet.payload + 1).ok_or(Reason::PihShort)?,
        PihForm::Byte => ethernet.ethertype,
    };
    if matches!(ethertype, TPID_CUSTOMER | TPID_SERVICE | ETHERTYPE_PIH) {
        return Err(Reason::NestedTag);
    }
    let payload = ethernet.payload + usize::from(form.bytes());
    Ok(Some((Pih { number, form }, Ethernet { ethertype, payload, ..*ethernet })))
}

/// The codes of [`PihForm`] in [`PortHeaders`].
const FORM_HEADER: u8 = 1;
const FORM_BYTE: u8 = 2;

/// IEEE 802 local experimental type 1.
pub const ETHERTYPE_PIH: u16 = 0x88b5;
/// Bytes of an Ethernet header.
const ETHERNET: u16 = 14;
