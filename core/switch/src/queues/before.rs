// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that wait before a tree: they count as queued, and their queue must have room when they
//! come to it.

use weir_policy::Direction;
use weir_sched::Backlog;

use super::{Queues, tree_index};
use crate::pih::PortHeaders;
use crate::pool::Frame;
use crate::tree::TreeKind;

impl Queues {
    /// Counts a frame of a vif, or towards it, that waits for its release.
    pub(crate) fn held_before_tree(&mut self, vif: usize, direction: Direction, frame: Frame) {
        self.hold(frame, PortHeaders::NONE);
        let state = &mut self.vifs[vif];
        match direction {
            Direction::Send => state.sending += 1,
            Direction::Receive => state.receiving += 1,
        }
    }

    /// Tells whether a vif's queue in a tree takes a packet of `bytes` bytes, where it holds
    /// `bytes_max` at most. An empty queue takes any packet, since a bound lowered below its length
    /// would hold it for ever.
    pub(crate) fn has_room(&self, vif: usize, kind: TreeKind, bytes: u32, bytes_max: u64) -> bool {
        let state = &self.vifs[vif];
        let class = match kind {
            TreeKind::Send => state.send,
            TreeKind::Local => state.local,
            TreeKind::Receive => state.receive,
        };
        let tree = &self.trees[tree_index(state.port.into(), kind)];
        let queued = tree.class_backlog(class);
        let fits = queued.bytes + u64::from(bytes) <= bytes_max;
        tree.room(class) > 0 && (fits || queued.packets == 0)
    }

    /// Returns the frames that are held for a vif, and the accounted bytes of those in queues.
    pub(crate) fn held(&self, vif: usize, direction: Direction) -> Backlog {
        let state = &self.vifs[vif];
        let mut bytes = self.backlog(vif, direction).bytes;
        if direction == Direction::Send {
            let local = &self.trees[tree_index(state.port.into(), TreeKind::Local)];
            bytes += local.class_backlog(state.local).bytes;
        }
        Backlog { packets: self.waiting(vif, direction).into(), bytes }
    }
}
