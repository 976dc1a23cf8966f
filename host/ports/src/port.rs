// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations of every port, and their order.
//!
//! Frames live in a [`Pool`] and never move: a port and its caller only pass the ownership of a
//! frame back and forth. [`FramePort::receive`] gives frames to the caller,
//! [`FramePort::transmit`] gives them to the port, which returns their chunks to the pool once the
//! device has sent them.

use std::io;

use weir_switch::{Frame, Tally};

use crate::pool::Pool;

/// Receives and transmits frames. Nothing here blocks or allocates.
///
/// **To transmit: ask [`Self::transmit_room`], call [`Self::transmit`] for at most that many
/// frames, then [`Self::flush`] once for the whole batch.** The port owns a transmitted frame: it
/// sends frames in order and frees each chunk afterwards.
pub trait FramePort {
    /// Returns the name of the device or file.
    fn name(&self) -> &str;

    /// Appends up to `max` received frames to `out`, never beyond its capacity. Returns how many.
    fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize;

    /// Frees the frames that were sent. Returns how many the port can take now.
    fn transmit_room(&mut self, pool: &mut Pool) -> usize;

    /// Queues a frame for the device.
    ///
    /// # Errors
    /// The port cannot take it; the frame is still the caller's.
    fn transmit(&mut self, pool: &mut Pool, frame: Frame) -> Result<(), Frame>;

    /// Makes the device send the queued frames. Returns how many it could not take yet: they stay
    /// queued in order, and the caller flushes again soon (some 10 µs) even without a new frame.
    ///
    /// # Errors
    /// The device is down or gone; the frames stay queued.
    fn flush(&mut self, pool: &mut Pool) -> io::Result<usize>;

    /// Returns the number of queued frames that the device has not taken.
    fn pending(&mut self) -> usize;

    /// Returns whether the device must have a queueing discipline (`tc qdisc add dev DEV root
    /// pfifo`), so that it stops when full instead of dropping.
    fn needs_qdisc(&self) -> bool {
        false
    }

    /// Bounds the bytes that are handed to the device and not yet known to be sent. With frames of
    /// up to 1518 bytes, the bound is exceeded by less than a frame. A port that does not learn
    /// when frames are sent ignores the bound, and returns false.
    fn bound_outstanding(&mut self, _bytes: Option<u64>) -> bool {
        false
    }

    /// Returns the counters since the port was opened. Makes no system call that takes long.
    fn statistics(&mut self) -> PortStatistics;
}

/// The counters of a port since it was opened.
///
/// Of `transmitted`, the frames in `transmit_invalid` and `device_dropped` (which includes
/// `transmit_refused`) were lost; all three should be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Frames given to the caller.
    pub received: Tally,
    /// Frames taken from the caller.
    pub transmitted: Tally,
    /// Frames that arrived and were lost because they did not fit a chunk or were malformed.
    pub receive_dropped: u64,
    /// Frames that arrived and were lost because the receive ring or buffer was full.
    pub receive_ring_full: u64,
    /// Frames that arrived and were lost because no chunk was ready: the pool was empty.
    pub receive_no_chunk: u64,
    /// Frames taken that the kernel found malformed.
    pub transmit_invalid: u64,
    /// Frames that the device dropped when they were given to it.
    pub transmit_refused: u64,
    /// Frames of any sender that the device dropped on transmission (its `tx_dropped`), as of the
    /// last refresh of its [`crate::DeviceProperties`].
    pub device_dropped: u64,
    /// Frames taken and not yet known to be sent.
    pub transmit_outstanding: u64,
    /// The bytes of these frames; 0 where the port does not learn when they were sent.
    pub outstanding_bytes: u64,
}

impl PortStatistics {
    /// Counts frames that are given to the caller.
    pub(crate) fn count_received(&mut self, frames: &[Frame]) {
        self.received.packets += frames.len() as u64;
        self.received.bytes += frames.iter().map(|frame| u64::from(frame.len)).sum::<u64>();
    }
}
