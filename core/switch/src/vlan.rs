// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pushes and pops one 802.1Q tag in place: the addresses move, the payload stays.

use crate::frame::TPID_CUSTOMER;
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;

/// Tags a frame with `vlan` (1 ..= 4094), using four bytes of the room before it.
///
/// # Errors
/// [`Reason::NoHeadroom`] if there is no room, [`Reason::Truncated`] if the frame has no addresses.
#[inline]
pub fn push<P: FramePool>(pool: &mut P, frame: Frame, vlan: u16) -> Result<Frame, Reason> {
    if frame.len < 14 {
        return Err(Reason::Truncated);
    }
    if pool.room_before(frame) < usize::from(TAG) {
        return Err(Reason::NoHeadroom);
    }
    let (offset, len) = (frame.offset.checked_sub(TAG), frame.len.checked_add(TAG));
    let (Some(offset), Some(len)) = (offset, len) else { return Err(Reason::NoHeadroom) };
    let tagged = Frame { id: frame.id, offset, len };
    let Some(head) = pool.data(tagged).first_chunk_mut::<16>() else {
        return Err(Reason::Truncated);
    };
    head.copy_within(4..16, 0);
    [head[12], head[13]] = TPID_CUSTOMER.to_be_bytes();
    [head[14], head[15]] = (vlan & 0x0fff).to_be_bytes();
    Ok(tagged)
}

/// Removes the tag of a frame that has one.
///
/// # Errors
/// [`Reason::Truncated`] if the frame is shorter than a tagged header.
#[inline]
pub fn pop<P: FramePool>(pool: &mut P, frame: Frame) -> Result<Frame, Reason> {
    let Some(head) = pool.data(frame).first_chunk_mut::<18>() else {
        return Err(Reason::Truncated);
    };
    head.copy_within(0..12, 4);
    Ok(Frame { id: frame.id, offset: frame.offset + TAG, len: frame.len - TAG })
}

/// Bytes of a tag.
pub(crate) const TAG: u16 = 4;
