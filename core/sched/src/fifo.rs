// SPDX-License-Identifier: Apache-2.0 OR MIT
//! First in, first out, over all classes: what a plain interface does. The bound of each class
//! still holds, so one class cannot take all the room.

use weir_units::Instant;

use crate::discipline::{Discipline, Pick};
use crate::flat::Flat;
use crate::ring::Ring;
use crate::{ClassConfig, ClassQueues, LinkConfig};

/// Serves packets in the order of their arrival. Honours no weight, minimum or limit.
pub type Fifo = Flat<ArrivalOrder>;

/// The discipline of [`Fifo`].
#[derive(Clone, Debug)]
pub struct ArrivalOrder {
    /// The class of each packet queued.
    order: Ring,
}

impl Discipline for ArrivalOrder {
    type State = ();

    const LIMITS: bool = false;

    const PAUSES: bool = false;

    fn new(_link: &LinkConfig) -> Self {
        Self { order: Ring::new() }
    }

    fn configure(&mut self, _class: u32, _config: &ClassConfig, queues: &mut ClassQueues) {
        self.order.reserve(queues.capacity());
    }

    fn remove(&mut self, class: u32, _queues: &mut ClassQueues) {
        self.order.remove(class);
    }

    fn reserve(&mut self, packets: usize) {
        self.order.reserve(packets);
    }

    #[inline]
    fn enqueued(&mut self, class: u32, _bytes: u32) {
        self.order.push(class);
    }

    fn activate(&mut self, _now: Instant, _class: u32, _head: u32, _queues: &mut ClassQueues) {}

    fn deactivate(&mut self, _class: u32, _queues: &mut ClassQueues) {}

    #[inline]
    fn pick(&mut self, _now: Instant, _queues: &mut ClassQueues) -> Pick {
        self.order.front().map_or(Pick::Nobody, Pick::Class)
    }

    #[inline]
    fn sent(
        &mut self,
        _now: Instant,
        _class: u32,
        _bytes: u32,
        _head: Option<u32>,
        _queues: &mut ClassQueues,
    ) {
        self.order.pop();
    }

    fn dropped(&mut self, _class: u32, _head: u32) {
        self.order.pop();
    }
}
