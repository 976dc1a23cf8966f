// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns frames that a packet socket or a tap has read into frames of the wire.

use weir_switch::{Frame, FramePool};

use crate::pool::Pool;
use crate::segment::{Layout, Segments, VnetHeader};

/// Assembles a super-frame and hands out its segments, over several calls if there is no room for
/// all at once. Allocates only when it is made.
#[derive(Debug)]
pub(crate) struct Intake {
    /// The bytes of the super-frame.
    assembly: Vec<u8>,
    /// Its layout, and the index of the next segment; `None` if no segment is left.
    held: Option<(Layout, usize)>,
    /// Frames that were lost here: malformed, or ordinary ones longer than a chunk.
    dropped: u64,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self { assembly: Vec::with_capacity(SUPER_FRAME_MAX), held: None, dropped: 0 }
    }

    /// Takes a frame that was read: its first bytes are in `frame`, those that did not fit the
    /// chunk in `rest`. An ordinary frame goes to `out`; a super-frame is held for [`Self::drain`].
    pub(crate) fn take(
        &mut self,
        header: &VnetHeader,
        frame: Frame,
        rest: &[u8],
        pool: &mut Pool,
        out: &mut Vec<Frame>,
    ) {
        if !header.is_super_frame() {
            if rest.is_empty() && header.complete(pool.data(frame)).is_ok() {
                out.push(frame);
            } else {
                self.dropped += 1;
                pool.free(frame.id);
            }
            return;
        }
        self.assembly.clear();
        self.assembly.extend_from_slice(pool.data(frame));
        let room = SUPER_FRAME_MAX - self.assembly.len();
        self.assembly.extend_from_slice(&rest[..rest.len().min(room)]);
        pool.free(frame.id);
        match Layout::read(&self.assembly, header) {
            Ok(layout) if layout.longest() <= pool.frame_max() as usize => {
                self.held = Some((layout, 0));
            }
            _ => self.dropped += 1,
        }
    }

    /// Appends segments of the held super-frame to `out`, up to `most` frames in all. Returns true
    /// if no segment is left.
    pub(crate) fn drain(&mut self, pool: &mut Pool, most: usize, out: &mut Vec<Frame>) -> bool {
        let Some((layout, mut next)) = self.held else { return true };
        let Some(segments) = Segments::new(&self.assembly, layout) else { return true };
        while next < layout.count() {
            if out.len() >= most {
                break;
            }
            let length = u16::try_from(segments.length(next)).unwrap_or(u16::MAX);
            let Some(frame) = pool.frame(length) else { break };
            segments.write(next, pool.data(frame));
            out.push(frame);
            next += 1;
        }
        self.held = (next < layout.count()).then_some((layout, next));
        self.held.is_none()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Counts a frame that the caller could not use.
    pub(crate) fn drop_one(&mut self) {
        self.dropped += 1;
    }
}

/// The longest super-frame without BIG TCP: an IP packet of 65 535 bytes, Ethernet header, tag.
pub(crate) const SUPER_FRAME_MAX: usize = 65_535 + 18;
