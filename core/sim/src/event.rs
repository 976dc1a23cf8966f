// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events in order of time; events of one instant in the order in which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_units::Instant;

use crate::SimError;

/// A bounded queue of events.
///
/// A binary heap alone returns events of one instant in arbitrary order, and the run would depend
/// on it. So each event carries a number from a counter, which decides between equal instants.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
    scheduled: u64,
    capacity: usize,
}

#[derive(Clone, Debug)]
struct Scheduled<E> {
    at: Instant,
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// Makes an empty queue for at most `capacity` events.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { heap: BinaryHeap::new(), scheduled: 0, capacity }
    }

    /// Schedules an event.
    ///
    /// # Errors
    /// The queue is full.
    pub fn push(&mut self, at: Instant, event: E) -> Result<(), SimError> {
        if self.heap.len() >= self.capacity {
            return Err(SimError::EventsFull { capacity: self.capacity });
        }
        let number = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Reverse(Scheduled { at, number, event }));
        Ok(())
    }

    /// Takes the earliest event that is due at `now`; `None` if none is.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, E)> {
        if self.next()? > now {
            return None;
        }
        let Reverse(Scheduled { at, event, .. }) = self.heap.pop()?;
        Some((at, event))
    }

    /// Returns the instant of the earliest event; `None` if there is none.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(first)| first.at)
    }

    /// Returns how many events are scheduled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Says whether no event is scheduled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Scheduled<E> {}

#[cfg(test)]
mod tests {
    use super::*;

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
}
