// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events in order of time; events of one instant in the order in which they were scheduled.
//!
//! **Problem.** A binary heap needs a sequence number to keep the order of events of one instant,
//! and slows down as it grows.
//!
//! **Idea.** Time never goes back: an event is scheduled no earlier than the last one taken. A
//! *radix heap* of two levels (Ahuja, Mehlhorn, Orlin, Tarjan, *Faster Algorithms for the Shortest
//! Path Problem*, Journal of the ACM 37(2), 1990) uses this. One queue holds the events due at the
//! last instant taken. Each bucket belongs to a digit and a value: the highest digit in which an
//! event's instant differs from that one, and the instant's value there. When no event is due, the
//! earliest instant of the lowest bucket in use becomes the last one, and the bucket's events move
//! into the queue and the buckets below it. A digit has four bits. An event alone in its bucket is
//! taken at once.
//!
//! **Order.** Events of one instant are always in one place. They are appended to it and spread in
//! their order, so they keep it without a number.

use std::collections::VecDeque;

use weir_units::Instant;

use crate::SimError;

/// A bounded queue of events.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    /// Events due at the last instant taken, or scheduled too late for an earlier one.
    due: VecDeque<(Instant, E)>,
    /// By digit, then by its value: see [`place`].
    buckets: Vec<Bucket<E>>,
    /// The digits in use, a bit for each.
    digits: u16,
    /// The values in use of each digit, one bit for each value.
    values: [u16; DIGITS],
    last: u64,
    length: usize,
    capacity: usize,
}

#[derive(Clone, Debug)]
struct Bucket<E> {
    events: Vec<(Instant, E)>,
    earliest: Instant,
}

impl<E> EventQueue<E> {
    /// Makes an empty queue for at most `capacity` events.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            due: VecDeque::new(),
            buckets: Vec::new(),
            digits: 0,
            values: [0; DIGITS],
            last: 0,
            length: 0,
            capacity,
        }
    }

    /// Schedules an event. One for an instant before the last one taken is due at once, after those
    /// that already are.
    ///
    /// # Errors
    /// The queue is full.
    #[inline]
    pub fn push(&mut self, at: Instant, event: E) -> Result<(), SimError> {
        if self.length >= self.capacity {
            return Err(SimError::EventsFull { capacity: self.capacity });
        }
        self.length += 1;
        self.put(at, event);
        Ok(())
    }

    /// Takes the earliest event that is due at `now`; `None` if none is.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, E)> {
        if self.due.is_empty() {
            let lowest = self.lowest()?;
            let bucket = self.buckets.get_mut(lowest).filter(|bucket| bucket.earliest <= now)?;
            self.last = bucket.earliest.as_nanos();
            bucket.earliest = Instant::FAR_FUTURE;
            // Most events are alone in their bucket, and need not move.
            let alone = if bucket.events.len() == 1 { bucket.events.pop() } else { None };
            self.leave(lowest);
            if alone.is_some() {
                self.length -= 1;
                return alone;
            }
            self.spread(lowest);
        }
        let first = self.due.pop_front_if(|(at, _)| *at <= now)?;
        self.length -= 1;
        Some(first)
    }

    /// Returns the instant of the earliest event; `None` if there is none.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        if let Some((at, _)) = self.due.front() {
            return Some(*at);
        }
        self.buckets.get(self.lowest()?).map(|bucket| bucket.earliest)
    }

    /// Returns how many events are scheduled.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Says whether no event is scheduled.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[inline(always)]
    fn put(&mut self, at: Instant, event: E) {
        if at.as_nanos() <= self.last {
            self.due.push_back((at, event));
            return;
        }
        if self.buckets.is_empty() {
            self.make_buckets();
        }
        let place = place(at.as_nanos(), self.last);
        let bucket = &mut self.buckets[place];
        bucket.earliest = bucket.earliest.min(at);
        bucket.events.push((at, event));
        self.digits |= 1 << (place / VALUES);
        self.values[place / VALUES] |= 1 << (place % VALUES);
    }

    #[cold]
    fn make_buckets(&mut self) {
        let empty = || Bucket { events: Vec::new(), earliest: Instant::FAR_FUTURE };
        self.buckets.resize_with(DIGITS * VALUES, empty);
    }

    /// Returns the bucket with the earliest events.
    fn lowest(&self) -> Option<usize> {
        if self.digits == 0 {
            return None;
        }
        let digit = self.digits.trailing_zeros() as usize;
        Some(digit * VALUES + self.values[digit].trailing_zeros() as usize)
    }

    /// Notes that a bucket is empty.
    fn leave(&mut self, place: usize) {
        let values = &mut self.values[place / VALUES];
        *values &= !(1 << (place % VALUES));
        if *values == 0 {
            self.digits &= !(1 << (place / VALUES));
        }
    }

    /// Moves the events of the lowest bucket, whose earliest instant is the last one now.
    fn spread(&mut self, lowest: usize) {
        let Some(bucket) = self.buckets.get_mut(lowest) else { return };
        let mut events = std::mem::take(&mut bucket.events);
        for (at, event) in events.drain(..) {
            self.put(at, event);
        }
        // The bucket keeps its memory. Its events went to lower ones.
        if let Some(bucket) = self.buckets.get_mut(lowest) {
            debug_assert!(bucket.events.is_empty(), "events go to lower buckets");
            bucket.events = events;
        }
    }
}

/// Returns the bucket of an instant after `last`: the highest digit in which they differ, and the
/// digit's value.
#[expect(clippy::cast_possible_truncation, reason = "a digit")]
const fn place(at: u64, last: u64) -> usize {
    let digit = (u64::BITS - 1 - (at ^ last).leading_zeros()) / DIGIT_BITS;
    digit as usize * VALUES + (at >> (digit * DIGIT_BITS)) as usize % VALUES
}

const DIGIT_BITS: u32 = 4;
const DIGITS: usize = (u64::BITS / DIGIT_BITS) as usize;
const VALUES: usize = 1 << DIGIT_BITS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn events_of_one_instant_keep_their_order() {
        let mut queue = EventQueue::new(5);
        for (at, event) in [(7, 'c'), (3, 'a'), (7, 'd'), (3, 'b'), (7, 'e')] {
            queue.push(Instant::from_nanos(at), event).unwrap();
        }
        let full = queue.push(Instant::ZERO, 'x');
        assert_eq!(full, Err(SimError::EventsFull { capacity: 5 }));
        assert_eq!(queue.pop_due(Instant::from_nanos(2)), None);
        let mut order = String::new();
        while let Some((_, event)) = queue.pop_due(Instant::FAR_FUTURE) {
            order.push(event);
        }
        assert_eq!((order.as_str(), queue.len()), ("abcde", 0));
    }

    /// Goal: any sequence of pushes and pops comes out as from a list sorted by instant and, within
    /// one instant, by order of scheduling.
    #[test]
    fn a_long_mix_comes_out_like_a_sorted_list() {
        let mut seed = Seed::new(3);
        let (mut queue, mut list) = (EventQueue::new(10_000), Vec::new());
        let mut now = 0;
        for number in 0..20_000_u64 {
            assert_eq!(queue.next(), list.iter().map(|(at, _)| *at).min());
            let until = Instant::from_nanos(now + seed.between(0, 1 << 20));
            let until = if seed.one_in(4) { until } else { Instant::FAR_FUTURE };
            if seed.one_in(2) && list.len() < 10_000 {
                let range = 1 << seed.between(0, 40);
                let at = Instant::from_nanos(now + seed.between(0, range));
                queue.push(at, number).unwrap();
                list.push((at, number));
            } else if let Some(first) = queue.pop_due(until) {
                assert!(first.0 <= until);
                let least = list.iter().enumerate().min_by_key(|(_, event)| **event);
                let at = least.map(|(at, _)| at).unwrap();
                assert_eq!(list.remove(at), first);
                now = first.0.as_nanos();
            }
            assert_eq!(queue.len(), list.len());
        }
        assert!(now > 1 << 40, "the run reached the high buckets");
    }
}
