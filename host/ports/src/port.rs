// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations of every port.

use std::io;

use weir_switch::{Frame, Tally};

use crate::pool::Pool;

/// A way in and out for frames. Nothing here blocks or allocates.
///
/// A frame handed over with [`Self::transmit`] is the port's: it is sent, in order, and its chunk
/// freed afterwards. A caller asks [`Self::transmit_room`] first, hands over at most that many,
/// then calls [`Self::flush`] once for the whole batch.
pub trait FramePort {
    /// The name of the device or file.
    fn name(&self) -> &str;

    /// Appends up to `max` received frames to `out`, never beyond its capacity; how many.
    fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize;

    /// Frees what was sent; how many frames can be handed over now.
    fn transmit_room(&mut self, pool: &mut Pool) -> usize;

    /// Hands a frame over.
    ///
    /// # Errors
    /// The port cannot take it; the frame is still the caller's.
    fn transmit(&mut self, pool: &mut Pool, frame: Frame) -> Result<(), Frame>;

    /// Gets the device going on what was handed over; how many frames it could not take yet. They
    /// stay here in order, and the caller flushes again soon (some 10 µs) even if it has no more.
    ///
    /// # Errors
    /// The device is down or gone; the frames stay.
    fn flush(&mut self, pool: &mut Pool) -> io::Result<usize>;

    /// Frames handed over that the device has not taken.
    fn pending(&mut self) -> usize;

    /// Returns whether the device must have a queueing discipline (`tc qdisc add dev DEV root
    /// pfifo`), so that it stops when full instead of dropping.
    fn needs_qdisc(&self) -> bool {
        false
    }

    /// Counters since the port was opened. The kernel is asked nothing that takes time.
    fn statistics(&mut self) -> PortStatistics;
}

/// The counters of a port since it was opened.
///
/// `transmitted` is what was handed over; lost of that are `transmit_invalid` and
/// `device_dropped` (which includes `transmit_refused`), all of which should be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Frames given to the caller.
    pub received: Tally,
    /// Frames taken from the caller.
    pub transmitted: Tally,
    /// Frames that arrived and were lost: did not fit a chunk, or were malformed.
    pub receive_dropped: u64,
    /// Frames that arrived and were lost because the receive ring or buffer was full.
    pub receive_ring_full: u64,
    /// Frames that arrived and were lost because no chunk was ready: the pool was empty.
    pub receive_no_chunk: u64,
    /// Frames taken that the kernel found malformed.
    pub transmit_invalid: u64,
    /// Frames that the device dropped as they were handed to it.
    pub transmit_refused: u64,
    /// Frames that the device dropped on transmission (its `tx_dropped`), whoever sent, as it said
    /// when its [`crate::DeviceAnswers`] were asked last.
    pub device_dropped: u64,
    /// Frames taken and not yet known to be sent.
    pub transmit_outstanding: u64,
}

impl PortStatistics {
    /// Counts frames that are given to the caller.
    pub(crate) fn count_received(&mut self, frames: &[Frame]) {
        self.received.packets += frames.len() as u64;
        self.received.bytes += frames.iter().map(|frame| u64::from(frame.len)).sum::<u64>();
    }
}
