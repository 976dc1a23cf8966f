// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet joins the queue of a leaf, which may become backlogged by it.

use weir_units::Instant;

use super::Hfsc;
use super::slab::NONE;
use super::tree::ClassNode;
use crate::{ClassId, ClassQueues, DropReason, Packet};

impl Hfsc {
    /// Appends a packet to a leaf's queue by `push`, which says whether the queue was empty.
    #[inline(always)]
    pub(super) fn join(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
        push: impl FnOnce(&mut ClassQueues<ClassNode>, ClassId, Packet) -> Result<bool, DropReason>,
    ) -> Result<(), DropReason> {
        let now = self.advance(now);
        let Some(node) = self.classes.state(class) else {
            return Err(DropReason::NoSuchQueue);
        };
        let (branch, is_leaf) = (node.parent, node.branch == NONE);
        if !is_leaf {
            self.classes.refuse(class, packet);
            return Err(DropReason::NoSuchQueue);
        }
        let begins = push(&mut self.classes, class, packet)?;
        if self.branches[branch].largest < packet.bytes() {
            self.enlarge(branch, packet.bytes());
        }
        if begins {
            self.begin(class.0, now);
        }
        Ok(())
    }

    /// `leaf` has become backlogged.
    #[inline(never)]
    fn begin(&mut self, leaf: u32, now: u64) {
        self.claim_start(leaf, now);
        self.share_insert(leaf);
        self.quiet_until = 0;
    }
}
