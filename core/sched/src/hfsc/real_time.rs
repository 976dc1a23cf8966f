// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time criterion: of all eligible leaves, the one with the earliest deadline (§IV-B).
//!
//! The paper keeps all claims in one flat structure. Here they follow the tree of the classes that
//! have an upper limit: a class at its limit withdraws all claims below it at once, and brings them
//! back at once. The upper limit holds for real-time service too (the paper has no upper limits).
//! While the minimums below a class sum up to no more than its limit, the limit delays a claim by
//! one packet at most.

use weir_units::Instant;

use super::Hfsc;
use super::curve::{Line, Runtime, ServiceCurve};
use super::tree::{ClaimPlace, ROOT, STALE};
use crate::ClassId;
use crate::slab::NONE;

impl Hfsc {
    /// Starts the claim of `leaf`, which has become backlogged at `now`.
    pub(super) fn claim_start(&mut self, leaf: u32, now: u64) {
        let node = &mut self.classes[leaf];
        if node.curve == NONE {
            return;
        }
        node.claim_bytes = STALE;
        let curve = self.curves[node.curve];
        let mut runtime = self.runtime(leaf);
        runtime.activate(&curve, now);
        self.set_runtime(leaf, runtime);
        if self.classes[leaf].place == ClaimPlace::Nowhere {
            self.claim_place(leaf, now);
        }
    }

    /// Enters a backlogged leaf's claim among the eligible ones, or sets a wake-up for when it is.
    #[inline(never)]
    pub(super) fn claim_place(&mut self, leaf: u32, now: u64) {
        self.claim_enter(leaf, now);
    }

    /// Does [`Self::claim_place`] inline, for a caller that runs for each packet.
    #[inline(always)]
    pub(super) fn claim_enter(&mut self, leaf: u32, now: u64) {
        let seconds = &self.seconds;
        let Some((bytes, node)) = self.classes.head_mut(ClassId(leaf)) else { return };
        if node.curve == NONE {
            return;
        }
        let (curve, steps) = self.curves.steps(node.curve, bytes);
        let runtime = Runtime { first: node.first, second: second_of(seconds, leaf, curve) };
        let eligible = runtime.eligible(curve);
        if eligible > now {
            node.place = ClaimPlace::Waiting;
            self.waiting.push(eligible, leaf, &mut self.claim_links);
            return;
        }
        node.claim_bytes = bytes;
        node.place = ClaimPlace::Queued;
        let home = self.branches[node.parent].home;
        let deadline = runtime.deadline(curve, steps);
        self.branches[home].claims.push(deadline, leaf, &mut self.claim_links);
        if home != ROOT {
            self.claim_announce(home);
        }
    }

    /// Lets the classes above know of a claim below `branch` that may be the earliest now.
    #[inline(never)]
    pub(super) fn claim_announce(&mut self, mut branch: u32) {
        while branch != ROOT {
            let Some(top) = self.branches[branch].claims.top() else { return };
            let node = self.branches[branch].node;
            if self.classes[node].parked {
                return;
            }
            let home = self.home(node);
            if self.claim_links[node as usize].key().is_some_and(|key| key <= top.key) {
                return;
            }
            let claims = &mut self.branches[home].claims;
            claims.remove(node, &mut self.claim_links);
            claims.push(top.key, node, &mut self.claim_links);
            branch = home;
        }
    }

    /// Returns the eligible leaf that may send at `now` with the earliest deadline.
    #[inline(always)]
    pub(super) fn claim_pick(&mut self, now: u64) -> Option<u32> {
        let top = self.branches[ROOT].claims.top()?;
        // A class with classes below it has no packet.
        match self.classes.head(ClassId(top.id)) {
            Some((bytes, node)) if node.claim_bytes == bytes && node.limit == NONE => Some(top.id),
            _ => self.claim_search(now),
        }
    }

    #[inline(never)]
    fn claim_search(&mut self, now: u64) -> Option<u32> {
        let mut at = ROOT;
        loop {
            let Some(top) = self.branches[at].claims.top() else {
                if at == ROOT {
                    return None;
                }
                let node = self.branches[at].node;
                self.claim_pop(self.home(node));
                at = ROOT;
                continue;
            };
            let branch = self.classes[top.id].branch;
            if branch == NONE && !self.claim_holds(top.id, top.key, at, now) {
                at = ROOT;
            } else if let Some(until) = self.limited_until(top.id, now) {
                self.claim_pop(at);
                self.park(top.id, until);
                if branch == NONE {
                    self.classes[top.id].place = ClaimPlace::Limited;
                }
                at = ROOT;
            } else if branch == NONE {
                return Some(top.id);
            } else {
                match self.branches[branch].claims.top() {
                    Some(below) if below.key > top.key => {
                        self.claim_delay(at, below.key);
                        at = ROOT;
                    }
                    _ => at = branch,
                }
            }
        }
    }

    /// Accounts for `bytes` that `leaf` sent by this criterion; its claim is its home's first one.
    #[inline(never)]
    pub(super) fn claim_served(&mut self, leaf: u32, now: u64, bytes: u32) {
        let node = &mut self.classes[leaf];
        let home = self.branches[node.parent].home;
        let top = self.branches[home].claims.pop(&mut self.claim_links);
        let deadline = top.map_or(now, |top| top.key);
        node.place = ClaimPlace::Nowhere;
        let (curve, steps) = self.curves.steps(node.curve, bytes);
        let second = second_of(&self.seconds, leaf, curve);
        let mut runtime = Runtime { first: node.first, second };
        let late = now.saturating_sub(deadline.saturating_add(LATE_MAX));
        if late > 0 {
            runtime.forgive(late);
        }
        runtime.serve(curve, steps);
        node.first = runtime.first;
        if !curve.is_linear() {
            self.seconds[leaf as usize] = runtime.second;
        }
        self.claim_enter(leaf, now);
    }

    /// Tells whether the leaf on top of `branch` still has the claim that its key says; if not,
    /// corrects the claim.
    #[inline]
    fn claim_holds(&mut self, leaf: u32, key: u64, branch: u32, now: u64) -> bool {
        let head = self.head_bytes(leaf);
        head == Some(self.classes[leaf].claim_bytes) || self.claim_mend(leaf, key, branch, now)
    }

    fn claim_mend(&mut self, leaf: u32, key: u64, branch: u32, now: u64) -> bool {
        let runtime = self.runtime(leaf);
        let head = self.head_bytes(leaf);
        let node = &mut self.classes[leaf];
        let Some(bytes) = head else {
            node.place = ClaimPlace::Nowhere;
            self.claim_pop(branch);
            return false;
        };
        let (curve, steps) = self.curves.steps(node.curve, bytes);
        if runtime.eligible(curve) > now {
            self.claim_pop(branch);
            self.claim_place(leaf, now);
            return false;
        }
        // A shorter packet keeps the deadline of the longer one that link-sharing took: the leaf
        // has had more service than its curve asks for.
        node.claim_bytes = bytes;
        let deadline = runtime.deadline(curve, steps);
        if deadline <= key {
            return true;
        }
        self.claim_delay(branch, deadline);
        false
    }

    fn claim_pop(&mut self, branch: u32) {
        self.branches[branch].claims.pop(&mut self.claim_links);
    }

    /// Gives the first claim in `branch` another deadline.
    fn claim_delay(&mut self, branch: u32, deadline: u64) {
        let claims = &mut self.branches[branch].claims;
        if let Some(top) = claims.pop(&mut self.claim_links) {
            claims.push(deadline, top.id, &mut self.claim_links);
        }
    }

    #[inline]
    fn head_bytes(&self, leaf: u32) -> Option<u32> {
        self.classes.head_bytes(ClassId(leaf))
    }

    /// Returns the branch in which the claim of `node`, or of those below it, competes.
    #[inline]
    fn home(&self, node: u32) -> u32 {
        self.branches[self.classes[node].parent].home
    }

    /// Returns the claim of `leaf`, which has a curve or not.
    #[inline]
    pub(super) fn runtime(&self, leaf: u32) -> Runtime {
        Runtime { first: self.classes[leaf].first, second: self.seconds[leaf as usize] }
    }

    #[inline]
    pub(super) fn set_runtime(&mut self, leaf: u32, runtime: Runtime) {
        self.classes[leaf].first = runtime.first;
        self.seconds[leaf as usize] = runtime.second;
    }

    /// Notes an instant, and returns the latest one seen: time does not go back.
    pub(super) fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now.as_nanos());
        self.now
    }
}

/// Returns the second line of a claim, which is not read where the curve has none.
#[inline(always)]
fn second_of(seconds: &[Line], leaf: u32, curve: &ServiceCurve) -> Line {
    if curve.is_linear() { Line::default() } else { seconds[leaf as usize] }
}

/// A claim more than this past its deadline is given up: it means that the link was slower than
/// configured or the caller was away, and catching up must not shut the others out for long.
const LATE_MAX: u64 = 100_000_000;
