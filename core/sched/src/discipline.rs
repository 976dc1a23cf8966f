// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part that differs between schedulers of one level: the choice of the next class.

use core::fmt;

use weir_units::{BitRate, Instant};

use crate::{ClassConfig, ClassQueues, LinkConfig, WaitReason};

/// Chooses the next class among those that have packets and are not at their limit (*active* ones).
pub trait Discipline {
    /// State of a class, beside its queue.
    type State: Clone + Default + fmt::Debug;

    /// Returns the state for a link without classes.
    fn new(link: &LinkConfig) -> Self;

    /// Set if upper limits mean anything here.
    const LIMITS: bool = true;

    /// Set if a class may be passed over while its packets are kept back.
    const PAUSES: bool = true;

    /// Configures a class that was added (it has no packets) or changed (it may be active).
    fn configure(
        &mut self,
        class: u32,
        config: &ClassConfig,
        queues: &mut ClassQueues<Self::State>,
    );

    /// Forgets a class, which is not active any more.
    fn remove(&mut self, class: u32, queues: &mut ClassQueues<Self::State>);

    /// Changes the link's rate.
    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        let _ = (now, rate);
    }

    /// Makes room for `packets` packets, as many as the queues may hold.
    fn reserve(&mut self, packets: usize) {
        let _ = packets;
    }

    /// Notes that a packet was queued.
    fn enqueued(&mut self, class: u32, bytes: u32) {
        let _ = (class, bytes);
    }

    /// Notes that the class became active at `now`, which may lie in the past; `head` is the length
    /// of its first packet.
    fn activate(
        &mut self,
        now: Instant,
        class: u32,
        head: u32,
        queues: &mut ClassQueues<Self::State>,
    );

    /// Notes that the class is no longer active although it has packets: at its limit, or removed.
    fn deactivate(&mut self, class: u32, queues: &mut ClassQueues<Self::State>);

    /// Returns the class to serve, always an active one.
    fn pick(&mut self, now: Instant, queues: &mut ClassQueues<Self::State>) -> Pick;

    /// Notes that the class just picked sent a packet; `head` is the length of its next, if any.
    fn sent(
        &mut self,
        now: Instant,
        class: u32,
        bytes: u32,
        head: Option<u32>,
        queues: &mut ClassQueues<Self::State>,
    );

    /// Notes that `CoDel` dropped a packet of the class just picked; `head` is the length of its
    /// next.
    fn dropped(&mut self, class: u32, head: u32) {
        let _ = (class, head);
    }
}

/// The answer of [`Discipline::pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// This class.
    Class(u32),
    /// Nobody before this instant.
    Wait(Instant, WaitReason),
    /// No class is active.
    Nobody,
}
