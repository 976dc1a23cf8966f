// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of ports joined in memory: what one sends the other receives, over a bounded queue.
//!
//! For tests and benches, and the one kind of port whose senders are held back completely: while
//! the queue is full `transmit_room` is zero, and nothing is ever dropped.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_switch::{Frame, FramePool};

use crate::pool::Pool;
use crate::port::{FramePort, PortStatistics};

/// One end of a pair. Both ends use the same pool.
#[derive(Debug)]
pub struct MemoryPort {
    name: String,
    inbox: Queue,
    outbox: Queue,
    capacity: usize,
    /// Frames since the last flush.
    staged: Vec<Frame>,
    counted: PortStatistics,
}

type Queue = Arc<Mutex<VecDeque<Frame>>>;

impl MemoryPort {
    /// Returns two ends, each of which holds up to `capacity` frames (at least 1) for the other.
    #[must_use]
    pub fn pair(names: [&str; 2], capacity: usize) -> (Self, Self) {
        let capacity = capacity.max(1);
        let queue = || Arc::new(Mutex::new(VecDeque::with_capacity(capacity)));
        let (there, back) = (queue(), queue());
        let end = |name: &str, inbox: &Queue, outbox: &Queue| Self {
            name: name.to_owned(),
            inbox: Arc::clone(inbox),
            outbox: Arc::clone(outbox),
            capacity,
            staged: Vec::with_capacity(capacity),
            counted: PortStatistics::default(),
        };
        (end(names[0], &back, &there), end(names[1], &there, &back))
    }

    /// Returns the chunks that wait on their way to this end, and those it has not flushed.
    pub fn close(mut self, pool: &mut Pool) {
        self.staged.drain(..).for_each(|frame| pool.free(frame.id));
        lock(&self.inbox).drain(..).for_each(|frame| pool.free(frame.id));
    }

    /// Returns the number of frames that wait to be received here.
    #[must_use]
    pub fn waiting(&self) -> usize {
        lock(&self.inbox).len()
    }
}

impl FramePort for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, _pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize {
        let first = out.len();
        let mut inbox = lock(&self.inbox);
        let count = max.min(out.capacity() - first).min(inbox.len());
        out.extend(inbox.drain(..count));
        drop(inbox);
        self.counted.count_received(&out[first..]);
        count
    }

    fn transmit_room(&mut self, _pool: &mut Pool) -> usize {
        let waiting = lock(&self.outbox).len();
        self.capacity.saturating_sub(waiting + self.staged.len())
    }

    fn transmit(&mut self, _pool: &mut Pool, frame: Frame) -> Result<(), Frame> {
        if self.staged.len() == self.capacity {
            return Err(frame);
        }
        self.staged.push(frame);
        self.counted.transmitted.packets += 1;
        self.counted.transmitted.bytes += u64::from(frame.len);
        Ok(())
    }

    fn flush(&mut self, _pool: &mut Pool) -> io::Result<usize> {
        let mut outbox = lock(&self.outbox);
        let room = self.capacity - outbox.len();
        let count = room.min(self.staged.len());
        outbox.extend(self.staged.drain(..count));
        Ok(self.staged.len())
    }

    fn pending(&mut self) -> usize {
        self.staged.len()
    }

    fn statistics(&mut self) -> PortStatistics {
        let outstanding = lock(&self.outbox).len() + self.staged.len();
        PortStatistics { transmit_outstanding: outstanding as u64, ..self.counted }
    }
}

/// Locks a queue. It is consistent even after a panic of the lock's holder.
fn lock(queue: &Queue) -> MutexGuard<'_, VecDeque<Frame>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_held_back_and_nothing_is_lost() {
        let mut pool = Pool::new(64, 2048).unwrap();
        let (mut a, mut b) = MemoryPort::pair(["a", "b"], 8);
        let (mut sent, mut got) = (0_u8, Vec::new());
        let mut out = Vec::with_capacity(16);
        while got.len() < 100 {
            let room = a.transmit_room(&mut pool);
            assert!(room <= 8);
            for _ in 0..room.min(100 - usize::from(sent)) {
                let frame = pool.copy_in(&[sent; 60]).unwrap();
                a.transmit(&mut pool, frame).unwrap();
                sent += 1;
            }
            assert_eq!(a.flush(&mut pool).unwrap(), 0);
            assert!(b.receive(&mut pool, 3, &mut out) <= 3);
            for frame in out.drain(..) {
                got.push(pool.data(frame)[0]);
                pool.free(frame.id);
            }
        }
        assert_eq!(got, (0..100).collect::<Vec<_>>());
        assert_eq!(pool.free_frames(), 64);
        assert_eq!(a.statistics().transmitted, b.statistics().received);
    }

    #[test]
    fn frames_beyond_the_room_stay_with_the_sender() {
        let mut pool = Pool::new(8, 2048).unwrap();
        let (mut a, b) = MemoryPort::pair(["a", "b"], 2);
        let frames = [1, 2, 3].map(|byte| pool.copy_in(&[byte; 60]).unwrap());
        assert_eq!(a.transmit(&mut pool, frames[0]), Ok(()));
        assert_eq!(a.transmit(&mut pool, frames[1]), Ok(()));
        assert_eq!(a.transmit(&mut pool, frames[2]), Err(frames[2]));
        a.flush(&mut pool).unwrap();
        assert_eq!((b.waiting(), a.transmit_room(&mut pool)), (2, 0));
        pool.free(frames[2].id);
        b.close(&mut pool);
        assert_eq!(pool.free_frames(), 8);
    }
}
