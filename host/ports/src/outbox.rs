// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transmit queue of a device that is written to by system calls.

use std::collections::VecDeque;

use weir_switch::{Frame, FramePool};

use crate::pool::Pool;
use crate::port::PortStatistics;

/// A bounded queue, first in, first out. Nothing is allocated after [`Self::new`].
#[derive(Debug)]
pub(crate) struct Outbox {
    frames: VecDeque<Frame>,
}

impl Outbox {
    /// Makes a queue with room for at least `limit` frames.
    pub(crate) fn new(limit: u32) -> Self {
        Self { frames: VecDeque::with_capacity(limit as usize) }
    }

    /// Takes a frame, counted as transmitted.
    ///
    /// # Errors
    /// There is no room; the frame is still the caller's.
    pub(crate) fn push(&mut self, frame: Frame, counted: &mut PortStatistics) -> Result<(), Frame> {
        if self.room() == 0 {
            return Err(frame);
        }
        self.frames.push_back(frame);
        counted.transmitted.packets += 1;
        counted.transmitted.bytes += u64::from(frame.len);
        Ok(())
    }

    /// Frees the first `count` frames, which the device has taken or will never take.
    pub(crate) fn done(&mut self, count: usize, pool: &mut Pool) {
        for frame in self.frames.drain(..count.min(self.frames.len())) {
            pool.free(frame.id);
        }
    }

    /// Frees all frames.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.done(usize::MAX, pool);
    }

    /// Returns how many more frames the queue can take.
    pub(crate) fn room(&self) -> usize {
        self.frames.capacity() - self.frames.len()
    }

    /// Returns the frames, the oldest first.
    pub(crate) const fn frames(&self) -> &VecDeque<Frame> {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_stays_with_the_caller() {
        let mut pool = Pool::new(8, 2048).unwrap();
        let (mut outbox, mut counted) = (Outbox::new(2), PortStatistics::default());
        let room = outbox.room();
        for _ in 0..room {
            let frame = Frame { id: pool.alloc().unwrap(), offset: 0, len: 60 };
            outbox.push(frame, &mut counted).unwrap();
        }
        let more = Frame { id: pool.alloc().unwrap(), offset: 0, len: 60 };
        assert_eq!(outbox.push(more, &mut counted), Err(more));
        assert_eq!(counted.transmitted.packets, room as u64);
        outbox.done(1, &mut pool);
        assert_eq!((outbox.room(), outbox.frames().len()), (1, room - 1));
        outbox.clear(&mut pool);
        pool.free(more.id);
        assert_eq!(pool.free_frames(), 8);
    }
}
