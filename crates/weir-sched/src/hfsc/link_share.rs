// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link-sharing criterion: from the root down, the child with the least virtual time (§IV-C).
//!
//! A child's virtual time advances by `bytes / weight` with *all* its service, real-time included,
//! so weights divide the whole and a guarantee is a floor under that, not on top.

use super::Hfsc;
use super::tree::{NONE, Node, ROOT};

impl Hfsc {
    /// Enters `node`, and the classes above it, among those that have something to send.
    pub(super) fn share_insert(&mut self, mut node: u32) {
        loop {
            let this = &mut self.nodes[node as usize];
            if this.shares || this.parked {
                return;
            }
            let branch = &mut self.branches[this.parent];
            // What a class did not use while it was away is gone: it begins with the others.
            if is_before(this.virtual_time, branch.virtual_now)
                || this.virtual_time.wrapping_sub(branch.virtual_now) > lead_max(this.weight)
            {
                this.virtual_time = branch.virtual_now;
                this.virtual_part = 0;
            }
            this.shares = true;
            branch.shares.insert(this.slot, this.virtual_time);
            if branch.node == NONE {
                return;
            }
            node = branch.node;
        }
    }

    /// The leaf that may send at `now` with the least virtual time at each level.
    pub(super) fn share_pick(&mut self, now: u64) -> Option<u32> {
        let mut at = ROOT;
        loop {
            let Some(top) = self.branches[at].shares.top() else {
                if at == ROOT {
                    return None;
                }
                // Nothing below may send.
                let node = self.branches[at].node;
                at = self.nodes[node as usize].parent;
                self.share_remove(node);
                continue;
            };
            if !self.fits(top, now) {
                self.share_remove(top);
                self.park(top);
                continue;
            }
            match self.nodes[top as usize].branch {
                NONE => return Some(top),
                branch => at = branch,
            }
        }
    }

    /// Charges `bytes` sent at `now` to `leaf` and all above it.
    pub(super) fn account(&mut self, mut node: u32, now: u64, bytes: u32) {
        let mut backlogged = !self.is_empty(node);
        loop {
            let this = &mut self.nodes[node as usize];
            if this.limit != NONE {
                self.limits[this.limit].charge(now, u64::from(bytes));
            }
            let branch = &mut self.branches[this.parent];
            if let Some(least) = branch.shares.least(branch.virtual_now) {
                branch.virtual_now = later(branch.virtual_now, least);
            }
            this.spend(bytes);
            let lead = this.virtual_time.wrapping_sub(branch.virtual_now);
            let most = u64::from(LEAD_BYTES.max(bytes)) << VIRTUAL_BITS;
            let weight = u64::from(this.weight);
            if lead <= u64::MAX / 2 && u128::from(lead) * u128::from(weight) > u128::from(most) {
                this.virtual_time = branch.virtual_now.wrapping_add(most / weight);
            }
            if backlogged && this.shares {
                branch.shares.set(this.slot, this.virtual_time);
            } else if core::mem::take(&mut this.shares) {
                branch.shares.remove(this.slot);
            }
            // When this class's turn comes again, that child will be served: until then it is read.
            let next = branch.shares.top();
            if branch.node == NONE {
                return;
            }
            (node, backlogged) = (branch.node, next.is_some());
            if let Some(next) = next {
                core::hint::black_box(self.nodes[next as usize].step_bytes);
                self.queues.touch_head(crate::ClassId(next));
            }
        }
    }

    /// Gives `node` another weight; its lead stays the same in bytes. It is in no heap.
    pub(super) fn reweigh(&mut self, node: u32, weight: u32) {
        let this = &mut self.nodes[node as usize];
        let virtual_now = self.branches[this.parent].virtual_now;
        let lead = this.virtual_time.wrapping_sub(virtual_now);
        if this.weight > 0 && lead <= u64::MAX / 2 {
            let lead = u128::from(lead) * u128::from(this.weight) / u128::from(weight);
            let lead = u64::try_from(lead).unwrap_or(0);
            this.virtual_time = virtual_now.wrapping_add(lead.min(lead_max(weight)));
        }
        (this.virtual_part, this.step_bytes, this.step, this.step_part) = (0, 0, 0, 0);
        this.weight = weight;
    }

    fn share_remove(&mut self, node: u32) {
        let this = &mut self.nodes[node as usize];
        if core::mem::take(&mut this.shares) {
            self.branches[this.parent].shares.remove(this.slot);
        }
    }
}

/// Whether `a` lies before `b` on the circle of 2⁶⁴, the shorter way round.
const fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) > u64::MAX / 2
}

/// The later of two virtual times, without a branch.
const fn later(a: u64, b: u64) -> u64 {
    a.wrapping_add(b.wrapping_sub(a) & (b.wrapping_sub(a) >> 63).wrapping_sub(1))
}

impl Node {
    /// Moves virtual time by `bytes / weight`.
    #[inline]
    fn spend(&mut self, bytes: u32) {
        if self.step_bytes != bytes {
            let (scaled, weight) = (u64::from(bytes) << VIRTUAL_BITS, u64::from(self.weight));
            self.step_bytes = bytes;
            self.step = scaled / weight;
            // Less than the weight, which is 32 bits wide.
            self.step_part = u32::try_from(scaled % weight).unwrap_or(0);
        }
        // Both are less than 2²⁰.
        let part = self.virtual_part + self.step_part;
        let carry = part >= self.weight;
        self.virtual_part = if carry { part - self.weight } else { part };
        self.virtual_time = self.virtual_time.wrapping_add(self.step + u64::from(carry));
    }
}

/// Most that a class which was away may be ahead: one packet of any length, or [`LEAD_BYTES`].
fn lead_max(weight: u32) -> u64 {
    (u64::from(crate::Packet::MAX_BYTES) << VIRTUAL_BITS) / u64::from(weight)
}

/// Virtual time of a byte at weight 1. A packet of one byte at the greatest weight, 10⁶, still
/// moves virtual time by 1; and 2³¹ bytes, the longest packet, by 2⁵¹, a fraction of the circle.
const VIRTUAL_BITS: u32 = 20;

/// Most that real-time service may put a class ahead of its siblings. Without a bound, a class that
/// used nothing but its guarantee for an hour would get nothing else for the next (§II: no
/// punishment); 64 KiB are 43 full frames, more than the bursts of real-time service between which
/// a class's share must be remembered.
const LEAD_BYTES: u32 = 64 << 10;
