// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Strict priority: the highest level first, always.

use alloc::vec::Vec;

use weir_units::Instant;

use crate::discipline::{Discipline, Pick};
use crate::flat::Flat;
use crate::heap::MinHeap;
use crate::{ClassConfig, ClassQueues, LinkConfig};

/// Serves the active class of the highest level; classes of one level take turns by the packet.
/// The weight is the level. Honours upper limits, which is what keeps a level from starving those
/// below; no minimum.
pub type StrictPriority = Flat<HighestFirst>;

/// The discipline of [`StrictPriority`].
#[derive(Clone, Debug)]
pub struct HighestFirst {
    levels: Vec<u32>,
    /// Active classes, by level from the top and by when they were last served.
    active: MinHeap<Rank>,
    /// Number of the next rank.
    next: u64,
}

/// Levels below the top in the upper half, and in the lower half a number that grows with every
/// service, so that equal levels take turns.
type Rank = u128;

impl HighestFirst {
    fn rank(&mut self, class: u32) -> Rank {
        self.next += 1;
        let level = self.levels[class as usize];
        let below_top = ClassConfig::WEIGHT_MAX.saturating_sub(level);
        Rank::from(below_top) << 64 | Rank::from(self.next)
    }
}

impl Discipline for HighestFirst {
    type State = ();

    fn new(_link: &LinkConfig) -> Self {
        Self { levels: Vec::new(), active: MinHeap::new(), next: 0 }
    }

    fn configure(&mut self, class: u32, config: &ClassConfig, queues: &mut ClassQueues) {
        let index = class as usize;
        if self.levels.len() <= index {
            self.levels.resize(index + 1, 0);
            self.active.reserve(index + 1);
        }
        let changed = core::mem::replace(&mut self.levels[index], config.weight) != config.weight;
        if changed && !queues.is_empty(crate::ClassId(class)) && self.active.remove(class) {
            let rank = self.rank(class);
            self.active.push(rank, class);
        }
    }

    fn remove(&mut self, _class: u32, _queues: &mut ClassQueues) {}

    fn activate(&mut self, _now: Instant, class: u32, _head: u32, _queues: &mut ClassQueues) {
        let rank = self.rank(class);
        self.active.push(rank, class);
    }

    fn deactivate(&mut self, class: u32, _queues: &mut ClassQueues) {
        match self.active.peek() {
            Some((_, top)) if top == class => _ = self.active.pop(),
            _ => _ = self.active.remove(class),
        }
    }

    #[inline]
    fn pick(&mut self, _now: Instant, _queues: &mut ClassQueues) -> Pick {
        self.active.peek().map_or(Pick::Nobody, |(_, class)| Pick::Class(class))
    }

    #[inline]
    fn sent(
        &mut self,
        _now: Instant,
        class: u32,
        _bytes: u32,
        head: Option<u32>,
        _queues: &mut ClassQueues,
    ) {
        if head.is_some() {
            let rank = self.rank(class);
            self.active.replace_top(rank);
        } else {
            self.active.pop();
        }
    }
}
