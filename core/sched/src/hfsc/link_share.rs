// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link-sharing criterion: from the root down, the child with the least virtual time (§IV-C).
//!
//! A child's virtual time advances by `bytes / weight` with *all* its service, real-time included,
//! so weights divide the whole and a guarantee is a floor under that, not on top.

use super::Hfsc;
use super::tree::{ClassNode, ROOT};
use crate::slab::NONE;

impl Hfsc {
    /// Enters `node`, and the classes above it, among those that have something to send.
    pub(super) fn share_insert(&mut self, mut node: u32) {
        loop {
            let this = &mut self.classes[node];
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

    /// Returns the leaf that may send at `now` with the least virtual time at each level.
    #[inline]
    pub(super) fn share_pick(&mut self, now: u64) -> Option<u32> {
        let mut at = ROOT;
        loop {
            let Some(top) = self.branches[at].shares.top() else {
                if at == ROOT {
                    return None;
                }
                // Nothing below may send.
                let node = self.branches[at].node;
                at = self.classes[node].parent;
                self.share_remove(node);
                continue;
            };
            if let Some(until) = self.limited_until(top, now) {
                self.share_remove(top);
                self.park(top, until);
                continue;
            }
            match self.classes[top].branch {
                NONE => return Some(top),
                branch => at = branch,
            }
        }
    }

    /// Charges `bytes` sent at `now` to `leaf`, which has more to send if it is `backlogged`, and
    /// to all above it. `BY_CLAIM` is true if the real-time criterion chose it; the compiler knows
    /// the value.
    #[inline(always)]
    pub(super) fn account<const BY_CLAIM: bool>(
        &mut self,
        leaf: u32,
        now: u64,
        bytes: u32,
        backlogged: bool,
    ) {
        let (mut node, mut backlogged) = self.account_one::<BY_CLAIM>(leaf, now, bytes, backlogged);
        while node != NONE {
            (node, backlogged) = self.account_above::<BY_CLAIM>(node, now, bytes, backlogged);
        }
    }

    #[inline(never)]
    fn account_above<const BY_CLAIM: bool>(
        &mut self,
        node: u32,
        now: u64,
        bytes: u32,
        backlogged: bool,
    ) -> (u32, bool) {
        self.account_one::<BY_CLAIM>(node, now, bytes, backlogged)
    }

    /// Charges one class. Returns the class above, and whether that one has more to send.
    #[inline(always)]
    fn account_one<const BY_CLAIM: bool>(
        &mut self,
        node: u32,
        now: u64,
        bytes: u32,
        backlogged: bool,
    ) -> (u32, bool) {
        let this = &mut self.classes[node];
        let branch = &mut self.branches[this.parent];
        if this.limit != NONE {
            self.limits[this.limit].charge(now, u64::from(bytes));
        }
        if BY_CLAIM {
            if let Some(least) = branch.shares.least(branch.virtual_now) {
                branch.virtual_now = later(branch.virtual_now, least);
            }
            this.spend(bytes);
            this.bound_lead(branch.virtual_now, bytes);
        } else {
            // The class had the least virtual time, and is ahead by this packet at most.
            branch.virtual_now = later(branch.virtual_now, this.virtual_time);
            this.spend(bytes);
        }
        if backlogged && this.shares {
            branch.shares.set(this.slot, this.virtual_time);
        } else if core::mem::take(&mut this.shares) {
            branch.shares.remove(this.slot);
        }
        let (above, next) = (branch.node, branch.shares.top());
        if this.branch == NONE
            && let Some(next) = next
        {
            // That child is served when this branch's turn comes again. By then it is in the cache.
            self.touch_class(next);
        }
        (above, next.is_some())
    }

    /// Gives `node` another weight; its lead stays the same in bytes. `node` is not entered in
    /// `shares`.
    pub(super) fn reweigh(&mut self, node: u32, weight: u32) {
        let this = &mut self.classes[node];
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
        let this = &mut self.classes[node];
        if core::mem::take(&mut this.shares) {
            self.branches[this.parent].shares.remove(this.slot);
        }
    }
}

/// Tells whether `a` lies before `b` on the circle of 2⁶⁴, the shorter way round.
const fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) > u64::MAX / 2
}

/// Returns the later of two virtual times, without a branch.
const fn later(a: u64, b: u64) -> u64 {
    a.wrapping_add(b.wrapping_sub(a) & (b.wrapping_sub(a) >> 63).wrapping_sub(1))
}

impl ClassNode {
    /// Bounds the lead that real-time service gives the class over its siblings to [`LEAD_BYTES`],
    /// or to `bytes` if that is more.
    #[inline]
    fn bound_lead(&mut self, virtual_now: u64, bytes: u32) {
        let lead = self.virtual_time.wrapping_sub(virtual_now);
        let most = u64::from(LEAD_BYTES.max(bytes)) << VIRTUAL_BITS;
        let weight = u64::from(self.weight);
        if lead <= u64::MAX / 2 && u128::from(lead) * u128::from(weight) > u128::from(most) {
            self.virtual_time = virtual_now.wrapping_add(most / weight);
        }
    }

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

/// Returns the most virtual time that a class which was away may be ahead: that of one packet of
/// any length, which is more than [`LEAD_BYTES`].
fn lead_max(weight: u32) -> u64 {
    (u64::from(crate::Packet::MAX_BYTES) << VIRTUAL_BITS) / u64::from(weight)
}

/// Virtual time of a byte at weight 1. A packet of one byte at the greatest weight, 10⁶, still
/// moves virtual time by 1; and the longest packet, just under 2²⁰ bytes, moves it by just under
/// 2⁴⁰ at weight 1, a fraction of the circle.
const VIRTUAL_BITS: u32 = 20;

/// Most that real-time service may put a class ahead of its siblings. Without a bound, a class that
/// used nothing but its guarantee for an hour would get nothing else for the next (§II: no
/// punishment); 64 KiB are 43 full frames, more than the bursts of real-time service between which
/// a class's share must be remembered.
const LEAD_BYTES: u32 = 64 << 10;
