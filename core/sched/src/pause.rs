// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classes whose packets are held back, because their receiver has no room.
//!
//! **Idea.** To its scheduler a paused class is one without packets. So no scheduler has to know of
//! pauses: the queue that it sees is empty, and the backlog is kept beside it. One packet may leave
//! after the pause begins, since the scheduler counts on the head of a backlogged class.

use crate::packets::ClassQueue;

/// The state of a class whose packets may be held back.
#[derive(Clone, Debug, Default)]
pub(crate) enum Pause {
    #[default]
    Running,
    /// The packet at the head is the last to leave.
    Pausing,
    /// The backlog is kept here, and the queue that the scheduler sees is empty.
    Paused(ClassQueue),
}

impl Pause {
    /// Returns the queue that packets wait in, and whether it is the one kept here.
    pub(crate) fn queue<'a>(&'a mut self, shown: &'a mut ClassQueue) -> (&'a mut ClassQueue, bool) {
        match self {
            Self::Paused(queue) => (queue, true),
            _ => (shown, false),
        }
    }

    /// Keeps the backlog, and shows an empty queue in its place, through which no packet passes.
    pub(crate) fn hide(&mut self, queue: &mut ClassQueue) {
        let ClassQueue { sent_packets, sent_bytes, .. } = *queue;
        let shown = ClassQueue { sent_packets, sent_bytes, managed: true, ..ClassQueue::absent() };
        *self = Self::Paused(core::mem::replace(queue, shown));
    }

    /// Ends the pause, and shows the kept queue again. Returns true if one was kept.
    pub(crate) fn end(&mut self, queue: &mut ClassQueue) -> bool {
        let Self::Paused(kept) = core::mem::take(self) else { return false };
        let ClassQueue { sent_packets, sent_bytes, .. } = *queue;
        *queue = ClassQueue { sent_packets, sent_bytes, ..kept };
        true
    }
}
