// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weighted fair queueing, worst-case fair: WF²Q+ (Bennett and Zhang, IEEE/ACM ToN 5(5), 1997).
//!
//! **Idea.** A *fluid* link would serve all active classes at once, in proportion to their weights
//! (generalized processor sharing). The scheduler computes when that link would start and finish
//! the packet at the head of each class, and follows it as closely as whole packets allow: of the
//! packets whose start has come, it sends the one with the earliest finish. Without the condition
//! on starts, a heavy class could send a burst far ahead of its share.
//!
//! **Virtual time.** Starts and finishes are instants of a clock that runs by bytes sent. A packet
//! starts when the one before it in its class finishes (or now, in a class that was idle), and
//! finishes length · Σ weights ÷ weight later. If no start has come, the clock jumps to the
//! earliest one. So nothing of the fluid link needs to be simulated.
//!
//! See `docs/algorithms/wfq.md`.

use alloc::vec::Vec;

use weir_units::Instant;

use crate::discipline::{Discipline, Pick};
use crate::flat::Flat;
use crate::heap::MinHeap;
use crate::{ClassConfig, ClassQueues, LinkConfig};

/// Sends, of the packets that a fluid link would have begun, the one that it would finish first.
/// A class is never ahead of the fluid link by more than a packet, nor behind it by more than one.
/// Honours weight and upper limit; no minimum, though a class's part of all weights acts as one.
/// Logarithmic work a packet.
pub type Wfq = Flat<FairShares>;

/// The discipline of [`Wfq`].
#[derive(Clone, Debug)]
pub struct FairShares {
    classes: Vec<Class>,
    /// Active classes whose first packet the fluid link has not begun, by virtual start.
    waiting: MinHeap<u64>,
    /// Active classes whose first packet it has begun, by virtual finish.
    eligible: MinHeap<u64>,
    /// In 1/256 bytes.
    virtual_time: u64,
    /// The sum of the weights of all classes.
    weights: u64,
    /// The latest virtual finish. Virtual time starts from there after a pause in which no class
    /// was active.
    horizon: u64,
}

#[derive(Clone, Debug, Default)]
struct Class {
    /// Zero while the class does not exist.
    weight: u32,
    /// Remainder of the last division by the weight. It is carried into the next finish, so that
    /// shares are exact over time.
    remainder: u32,
    start: u64,
    finish: u64,
}

impl FairShares {
    /// Computes the virtual finish of the packet of `bytes` at the class's head, and returns its
    /// start and finish.
    #[inline]
    fn stamp(&mut self, class: u32, bytes: u32) -> (u64, u64) {
        let weights = self.weights;
        let class = &mut self.classes[class as usize];
        let (weight, carried) = (u64::from(class.weight.max(1)), u64::from(class.remainder));
        let scaled = u64::from(bytes) << FRACTION_BITS;
        let narrow = scaled.checked_mul(weights).and_then(|work| work.checked_add(carried));
        let (length, rest) = match narrow {
            Some(work) => (work / weight, work % weight),
            None => {
                let work = u128::from(scaled) * u128::from(weights) + u128::from(carried);
                let length = work / u128::from(weight);
                (u64::try_from(length).unwrap_or(u64::MAX), 0)
            }
        };
        class.remainder = u32::try_from(rest).unwrap_or(0);
        class.finish = class.start.saturating_add(length);
        self.horizon = self.horizon.max(class.finish);
        (class.start, class.finish)
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.eligible.is_empty()
    }

    /// Moves the origin of virtual time, long before it overflows.
    #[cold]
    fn rebase(&mut self) {
        let origin = self.virtual_time - REBASE_TO;
        let shift = |stamp: u64| stamp.saturating_sub(origin);
        for class in &mut self.classes {
            class.start = shift(class.start);
            class.finish = shift(class.finish);
        }
        self.waiting.shift(shift);
        self.eligible.shift(shift);
        self.virtual_time = shift(self.virtual_time);
        self.horizon = shift(self.horizon);
    }
}

impl Discipline for FairShares {
    type State = ();

    fn new(_link: &LinkConfig) -> Self {
        Self {
            classes: Vec::new(),
            waiting: MinHeap::new(),
            eligible: MinHeap::new(),
            virtual_time: 0,
            weights: 0,
            horizon: 0,
        }
    }

    fn configure(&mut self, class: u32, config: &ClassConfig, _queues: &mut ClassQueues) {
        let index = class as usize;
        if self.classes.len() <= index {
            self.classes.resize_with(index + 1, Class::default);
            self.waiting.reserve(index + 1);
            self.eligible.reserve(index + 1);
        }
        // The packet at the head keeps its stamps; the new weight holds from the next.
        let class = &mut self.classes[index];
        self.weights -= u64::from(class.weight);
        self.weights += u64::from(config.weight);
        if class.weight != config.weight {
            class.weight = config.weight;
            class.remainder = 0;
        }
    }

    fn remove(&mut self, class: u32, _queues: &mut ClassQueues) {
        let removed = core::mem::take(&mut self.classes[class as usize]);
        self.weights -= u64::from(removed.weight);
    }

    #[inline]
    fn activate(&mut self, _now: Instant, class: u32, head: u32, _queues: &mut ClassQueues) {
        if self.is_idle() {
            self.virtual_time = self.virtual_time.max(self.horizon);
        }
        let state = &mut self.classes[class as usize];
        if state.finish < self.virtual_time {
            state.remainder = 0;
        }
        state.start = state.finish.max(self.virtual_time);
        let (start, finish) = self.stamp(class, head);
        if start <= self.virtual_time {
            self.eligible.push(finish, class);
        } else {
            self.waiting.push(start, class);
        }
    }

    fn deactivate(&mut self, class: u32, _queues: &mut ClassQueues) {
        // The packet was not sent: its share is given back.
        let state = &mut self.classes[class as usize];
        (state.finish, state.remainder) = (state.start, 0);
        match self.eligible.peek() {
            Some((_, top)) if top == class => _ = self.eligible.pop(),
            _ => _ = self.eligible.remove(class) || self.waiting.remove(class),
        }
    }

    #[inline]
    fn pick(&mut self, _now: Instant, _queues: &mut ClassQueues) -> Pick {
        if self.eligible.is_empty() {
            let Some((start, _)) = self.waiting.peek() else { return Pick::Nobody };
            self.virtual_time = self.virtual_time.max(start);
        }
        while let Some((start, class)) = self.waiting.peek() {
            if start > self.virtual_time {
                break;
            }
            self.waiting.pop();
            self.eligible.push(self.classes[class as usize].finish, class);
        }
        self.eligible.peek().map_or(Pick::Nobody, |(_, class)| Pick::Class(class))
    }

    #[inline]
    fn sent(
        &mut self,
        _now: Instant,
        class: u32,
        bytes: u32,
        head: Option<u32>,
        _queues: &mut ClassQueues,
    ) {
        let length = u64::from(bytes) << FRACTION_BITS;
        self.virtual_time = self.virtual_time.saturating_add(length);
        if let Some(head) = head {
            let state = &mut self.classes[class as usize];
            state.start = state.finish;
            let (start, finish) = self.stamp(class, head);
            if start <= self.virtual_time {
                self.eligible.replace_top(finish);
            } else {
                self.eligible.pop();
                self.waiting.push(start, class);
            }
        } else {
            self.eligible.pop();
        }
        if self.virtual_time > REBASE_ABOVE {
            self.rebase();
        }
    }

    fn dropped(&mut self, class: u32, head: u32) {
        let (_, finish) = self.stamp(class, head);
        self.eligible.replace_top(finish);
    }
}

/// 1/256 byte is 1/16 000 of the shortest frame, and leaves 56 bits for bytes.
const FRACTION_BITS: u32 = 8;
/// The origin moves at a quarter of the range: the rest is room for stamps that lie ahead.
const REBASE_ABOVE: u64 = 1 << 62;
const REBASE_TO: u64 = 1 << 61;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dequeue, Packet, Scheduler};
    use weir_units::Nanos;

    /// Goal: moving the origin changes no decision. Method: the same packets with virtual time
    /// near its limit and far from it.
    #[test]
    fn moving_the_origin_changes_nothing() {
        let run = |origin: u64| {
            let link =
                LinkConfig { rate: None, catch_up: Nanos::ZERO, classes_max: 3, packets_max: 99 };
            let mut wfq = Wfq::new(&link);
            wfq.discipline_mut().virtual_time = origin;
            let mut order = Vec::new();
            for weight in [1, 2, 5] {
                let config = ClassConfig { weight, ..ClassConfig::default() };
                let class = wfq.add_class(Instant::ZERO, None, &config).unwrap();
                for id in 0..30 {
                    let packet = Packet::new(id, 100 + 7 * id, Instant::ZERO);
                    wfq.enqueue(Instant::ZERO, class, packet).unwrap();
                }
            }
            while let Dequeue::Send { class, packet, .. } = wfq.dequeue(Instant::ZERO) {
                order.push((class, packet.id));
            }
            (order, wfq.discipline_mut().virtual_time)
        };
        let (plain, _) = run(0);
        let (moved, end) = run(REBASE_ABOVE - 3_000_000);
        assert!(end < REBASE_ABOVE - 3_000_000, "the origin moved on the way");
        assert_eq!(moved, plain);
        assert_eq!(plain.len(), 90);
    }

    /// Goal: a finish beyond the range of virtual time stops nobody. Method: the sum of the weights
    /// of a million classes, the longest packets.
    #[test]
    fn a_finish_out_of_range_saturates() {
        let link =
            LinkConfig { rate: None, catch_up: Nanos::ZERO, classes_max: 1, packets_max: 99 };
        let mut wfq = Wfq::new(&link);
        let class = wfq.add_class(Instant::ZERO, None, &ClassConfig::default()).unwrap();
        wfq.discipline_mut().weights += 1_000_000 * u64::from(ClassConfig::WEIGHT_MAX);
        for id in 0..3 {
            let packet = Packet::new(id, 100_000, Instant::ZERO);
            wfq.enqueue(Instant::ZERO, class, packet).unwrap();
        }
        for id in 0..3 {
            let answer = wfq.dequeue(Instant::ZERO);
            assert!(
                matches!(answer, Dequeue::Send { packet, .. } if packet.id == id),
                "{answer:?}"
            );
        }
    }
}
