// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time criterion: of all eligible leaves, the one with the earliest deadline (§IV-B).
//!
//! Unlike the paper's flat structure this one follows the tree of classes with an upper limit, so
//! that one that is at its limit takes all claims below it away at once and brings them back at
//! once. The upper limit holds for real-time service too (the paper has no upper limits): while the
//! minimums below a class sum up to no more than its limit, that limit only ever delays a claim by
//! one packet.

use weir_units::Instant;

use super::Hfsc;
use super::tree::{NONE, Place, ROOT, STALE};
use super::waking::Wake;

impl Hfsc {
    /// `leaf` has become backlogged at `now`.
    pub(super) fn claim_start(&mut self, leaf: u32, now: u64) {
        let node = &self.nodes[leaf as usize];
        if node.claim == NONE {
            return;
        }
        let claim = &mut self.claims[node.claim];
        claim.runtime.activate(&self.curves[claim.curve], now);
        claim.bytes = STALE;
        if node.place == Place::Nowhere {
            self.claim_place(leaf, now);
        }
    }

    /// Sets a backlogged leaf's claim among the eligible ones, or a wake-up for when it will be.
    pub(super) fn claim_place(&mut self, leaf: u32, now: u64) {
        let node = &mut self.nodes[leaf as usize];
        let (home, index) = (node.home, node.claim);
        let Some(bytes) = self.head_bytes(leaf) else { return };
        if index == NONE {
            return;
        }
        let claim = &mut self.claims[index];
        let eligible = claim.runtime.eligible(&self.curves[claim.curve]);
        if eligible > now {
            self.nodes[leaf as usize].place = Place::Waiting;
            self.wakes.push(eligible, Wake::Eligible.of(leaf), &mut self.wake_links);
            return;
        }
        claim.bytes = bytes;
        let deadline = claim.runtime.deadline(&self.curves[claim.curve], u64::from(bytes));
        self.nodes[leaf as usize].place = Place::Queued;
        self.branches[home].claims.push(deadline, leaf, &mut self.claim_links);
        self.claim_announce(home);
    }

    /// Lets the classes above know of a claim below `branch` that may be the earliest now.
    pub(super) fn claim_announce(&mut self, mut branch: u32) {
        while branch != ROOT {
            let Some(top) = self.branches[branch].claims.top() else { return };
            let node = self.branches[branch].node;
            if self.nodes[node as usize].parked {
                return;
            }
            let home = self.nodes[node as usize].home;
            if self.claim_links[node as usize].key().is_some_and(|key| key <= top.key) {
                return;
            }
            let claims = &mut self.branches[home].claims;
            claims.remove(node, &mut self.claim_links);
            claims.push(top.key, node, &mut self.claim_links);
            branch = home;
        }
    }

    /// The eligible leaf that may send at `now` with the earliest deadline.
    pub(super) fn claim_pick(&mut self, now: u64) -> Option<u32> {
        let mut at = ROOT;
        loop {
            let Some(top) = self.branches[at].claims.top() else {
                if at == ROOT {
                    return None;
                }
                let node = self.branches[at].node;
                self.claim_pop(self.nodes[node as usize].home);
                at = ROOT;
                continue;
            };
            let branch = self.nodes[top.id as usize].branch;
            if branch == NONE && !self.claim_holds(top.id, top.key, at, now) {
                at = ROOT;
            } else if !self.fits(top.id, now) {
                self.claim_pop(at);
                self.park(top.id);
                if branch == NONE {
                    self.nodes[top.id as usize].place = Place::Limited;
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

    /// `leaf`, on top of its home's claims, has sent `bytes` by this criterion.
    pub(super) fn claim_served(&mut self, leaf: u32, now: u64, bytes: u32) {
        let (home, index) = {
            let node = &self.nodes[leaf as usize];
            (node.home, node.claim)
        };
        let head = self.head_bytes(leaf);
        let claim = &mut self.claims[index];
        let key = self.branches[home].claims.top().map_or(now, |top| top.key);
        let late = now.saturating_sub(key.saturating_add(LATE_MAX));
        if late > 0 {
            claim.runtime.forgive(late);
        }
        claim.runtime.serve(&self.curves[claim.curve], u64::from(bytes));
        match head {
            Some(bytes) if claim.runtime.eligible(&self.curves[claim.curve]) <= now => {
                claim.bytes = bytes;
                let deadline = claim.runtime.deadline(&self.curves[claim.curve], u64::from(bytes));
                self.claim_delay(home, deadline);
                if deadline < key {
                    self.claim_announce(home);
                }
            }
            _ => {
                self.claim_pop(home);
                self.nodes[leaf as usize].place = Place::Nowhere;
                self.claim_place(leaf, now);
            }
        }
    }

    /// Whether the leaf on top of `branch` still has the claim that its key says. If not, mends it.
    fn claim_holds(&mut self, leaf: u32, key: u64, branch: u32, now: u64) -> bool {
        let Some(bytes) = self.head_bytes(leaf) else {
            self.claim_pop(branch);
            self.nodes[leaf as usize].place = Place::Nowhere;
            return false;
        };
        let claim = &mut self.claims[self.nodes[leaf as usize].claim];
        if claim.runtime.eligible(&self.curves[claim.curve]) > now {
            self.claim_pop(branch);
            self.claim_place(leaf, now);
            return false;
        }
        if claim.bytes == bytes {
            return true;
        }
        // A shorter packet keeps the deadline of the longer one that link-sharing took: it has had
        // more service than its curve asks for.
        claim.bytes = bytes;
        let deadline = claim.runtime.deadline(&self.curves[claim.curve], u64::from(bytes));
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

    fn head_bytes(&self, leaf: u32) -> Option<u32> {
        self.queues.head_bytes(crate::ClassId(leaf))
    }

    /// The latest instant seen: time does not go back.
    pub(super) fn advance(&mut self, now: Instant) -> u64 {
        self.now = self.now.max(now.as_nanos());
        self.now
    }
}

/// A claim more than this past its deadline is given up: it means that the link was slower than
/// configured or the caller was away, and catching up must not shut the others out for long.
const LATE_MAX: u64 = 100_000_000;
