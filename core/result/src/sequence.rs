// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loss, reordering and duplication of a stream by its sequence numbers, in the terms of RFC 4737.
//!
//! A number above the next expected one opens a gap. The packets of the gap count as lost until
//! they arrive; then they count as reordered. `bpf/sink.bpf.c` counts in the same way.

use serde::{Deserialize, Serialize};

/// Loss and order of a stream by its sequence numbers (RFC 4737). Packets that were lost below the
/// lowest number that arrived or above the highest are not in it: only the sender knows of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Lowest sequence number that arrived.
    pub first: u64,
    /// Highest sequence number + 1.
    pub next: u64,
    /// Numbers between the lowest and the highest that never arrived.
    pub lost: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Packets whose number had arrived before.
    pub duplicated: u64,
    /// Packets more than 1024 below the highest number: reordered or duplicated, nobody knows.
    pub stale: u64,
}

/// Follows the sequence numbers of one stream, in 128 bytes whatever arrives.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    order: Order,
    started: bool,
    /// Bit n % [`WINDOW`]: number n arrived, for the numbers up to [`WINDOW`] below the highest.
    window: [u64; WORDS],
}

impl Sequence {
    /// Counts the arrival of `number`.
    pub fn add(&mut self, number: u64) {
        if !self.started {
            self.started = true;
            (self.order.first, self.order.next) = (number, number);
        }
        if number >= self.order.next {
            self.open_gap(number);
            self.order.next = number + 1;
        } else if self.order.next - number > WINDOW {
            self.order.stale += 1;
            return;
        } else if self.is_seen(number) {
            self.order.duplicated += 1;
        } else {
            self.order.reordered += 1;
            if number > self.order.first {
                self.order.lost -= 1;
            } else {
                // The first ones came out of order: what lies between is missing, too.
                self.order.lost += self.order.first - number - 1;
                self.order.first = number;
            }
        }
        *self.word(number) |= 1 << (number % 64);
    }

    /// Returns the counts so far.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The numbers from the next expected one up to `number` have not arrived.
    fn open_gap(&mut self, number: u64) {
        let gap = number - self.order.next;
        self.order.lost += gap;
        for missing in number - gap.min(WINDOW)..number {
            *self.word(missing) &= !(1 << (missing % 64));
        }
    }

    fn is_seen(&mut self, number: u64) -> bool {
        *self.word(number) & 1 << (number % 64) != 0
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.window[(number / 64 % WORDS as u64) as usize]
    }
}

const WORDS: usize = 16;
const WINDOW: u64 = WORDS as u64 * 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn order_of(numbers: impl IntoIterator<Item = u64>) -> Order {
        let mut sequence = Sequence::default();
        numbers.into_iter().for_each(|number| sequence.add(number));
        sequence.order()
    }

    #[test]
    fn losses_swaps_and_repeats_are_told_apart() {
        let order = order_of([5, 6, 9, 8, 10, 10, 8, 12]);
        let expected = Order {
            first: 5,
            next: 13,
            lost: 2, // 7 and 11
            reordered: 1,
            duplicated: 2,
            stale: 0,
        };
        assert_eq!(order, expected);
    }

    /// Goal: the lowest number, the lost ones above it and those that arrived are all numbers,
    /// whatever the order of the first ones.
    #[test]
    fn first_packets_out_of_order_are_counted_once() {
        let order = order_of([5, 3, 6]);
        assert_eq!((order.first, order.lost, order.reordered), (3, 1, 1));
        let order = order_of([5, 3, 6, 4, 0]);
        assert_eq!((order.first, order.lost, order.reordered), (0, 2, 3));
        let order = order_of([1, 0, 2]);
        assert_eq!((order.first, order.lost, order.reordered), (0, 0, 1));
    }

    #[test]
    fn far_below_nobody_knows() {
        assert_eq!(order_of([0, 1, 1024, 0]).stale, 1);
        assert_eq!(order_of([0, 1, 1024, 1]).duplicated, 1);
        assert_eq!(order_of([0, 2, 1024, 1]).reordered, 1);
    }

    /// A set that forgets nothing gives the same counts on 100 000 numbers that wander.
    #[test]
    fn it_agrees_with_a_set_of_all_numbers() {
        let mut random = 88_172_645_463_325_252_u64;
        let (mut sequence, mut seen, mut base) = (Sequence::default(), BTreeSet::new(), 2_000);
        let (mut first, mut highest, mut duplicated, mut reordered) = (None, 0, 0, 0);
        for _ in 0..100_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            base += random >> 60;
            let number = base - random % 900;
            sequence.add(number);
            first = Some(first.map_or(number, |first: u64| first.min(number)));
            if !seen.insert(number) {
                duplicated += 1;
            } else if number < highest {
                reordered += 1;
            }
            highest = highest.max(number);
        }
        let first = first.unwrap();
        let order = sequence.order();
        let arrived = seen.range(first..).count() as u64;
        assert_eq!((order.duplicated, order.reordered, order.stale), (duplicated, reordered, 0));
        assert_eq!(order.lost, highest + 1 - first - arrived);
    }
}
