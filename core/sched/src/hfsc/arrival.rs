// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Enqueueing: a packet joins the queue of a leaf, which may become backlogged by it.

use weir_units::Instant;

use super::Hfsc;
use super::tree::ClassNode;
use crate::slab::NONE;
use crate::{ClassId, ClassQueues, DropReason, Packet};

/// Appends a packet to a queue, and says whether the queue was empty.
type Push = fn(&mut ClassQueues<ClassNode>, ClassId, Packet) -> Result<bool, DropReason>;

impl Hfsc {
    /// Appends a packet to a leaf's queue.
    #[inline(always)]
    pub(super) fn join(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
    ) -> Result<(), DropReason> {
        let Some(branch) = self.branch_of_leaf(class) else {
            return self.join_by(now, class, packet, ClassQueues::push_managed);
        };
        let Some(begins) = self.classes.push_plain(class, packet) else {
            return self.join_by(now, class, packet, ClassQueues::push_managed);
        };
        let now = self.advance(now);
        self.joined(now, (branch, class), packet, begins);
        Ok(())
    }

    /// Appends a packet to a leaf's queue by `push`, for the rare cases.
    #[inline(never)]
    pub(super) fn join_by(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
        push: Push,
    ) -> Result<(), DropReason> {
        let now = self.advance(now);
        let Some(branch) = self.branch_of_leaf(class) else {
            self.classes.refuse(class, packet);
            return Err(DropReason::NoSuchQueue);
        };
        let begins = push(&mut self.classes, class, packet)?;
        self.joined(now, (branch, class), packet, begins);
        Ok(())
    }

    /// Returns the branch that a leaf hangs from; `None` if there is no such leaf.
    #[inline(always)]
    fn branch_of_leaf(&self, class: ClassId) -> Option<u32> {
        let node = self.classes.state(class)?;
        (node.branch == NONE).then_some(node.parent)
    }

    #[inline(always)]
    fn joined(&mut self, now: u64, (branch, leaf): (u32, ClassId), packet: Packet, begins: bool) {
        if self.branches[branch].largest < packet.bytes() {
            self.enlarge(branch, packet.bytes());
        }
        if begins {
            self.begin(leaf.0, now);
        }
    }

    /// Holds the packets of a leaf back.
    pub(super) fn pause_leaf(&mut self, class: ClassId) {
        if self.branch_of_leaf(class).is_some() {
            self.classes.pause(class);
        }
    }

    /// Lets the packets of a leaf leave again; the leaf may become backlogged by that.
    pub(super) fn resume_leaf(&mut self, now: Instant, class: ClassId) {
        let now = self.advance(now);
        if self.classes.resume(class) {
            self.begin(class.0, now);
        }
    }

    /// Enters a leaf that has become backlogged.
    #[inline(never)]
    fn begin(&mut self, leaf: u32, now: u64) {
        self.claim_start(leaf, now);
        self.share_insert(leaf);
        self.quiet_until = 0;
    }
}
