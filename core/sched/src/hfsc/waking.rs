// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wake-ups: when a claim becomes eligible, and when a class fits under its upper limit again.
//!
//! A limit is checked when its class is about to be served. A class that does not fit is *parked*:
//! it leaves the shares of its parent and the claims of its home, and with it all classes below,
//! until it fits.

use super::Hfsc;
use super::tree::ClaimPlace;
use crate::ClassId;
use crate::slab::NONE;

impl Hfsc {
    /// Enters the claims that have become eligible by `now`, and resumes the classes that fit.
    #[inline(always)]
    pub(super) fn wake(&mut self, now: u64) {
        if self.waiting.is_due(now) {
            self.wake_claims(now);
        }
        if self.parked.is_due(now) {
            self.wake_parked(now);
        }
    }

    #[inline(never)]
    fn wake_claims(&mut self, now: u64) {
        while let Some(top) = self.waiting.top() {
            if top.key > now {
                // The next call will need this class: prefetch it while there is time.
                self.touch_class(top.id);
                return;
            }
            self.waiting.pop(&mut self.claim_links);
            self.classes[top.id].place = ClaimPlace::Nowhere;
            self.claim_enter(top.id, now);
        }
    }

    #[inline(never)]
    fn wake_parked(&mut self, now: u64) {
        while self.parked.is_due(now) {
            let Some(top) = self.parked.pop(&mut self.parked_links) else { return };
            self.classes[top.id].parked = false;
            match self.limited_until(top.id, now) {
                None => self.resume(top.id, now),
                Some(until) => self.park(top.id, until),
            }
        }
    }

    /// Enters a class where its backlog belongs: claims, shares, or both.
    pub(super) fn resume(&mut self, node: u32, now: u64) {
        let this = &mut self.classes[node];
        if this.branch != NONE {
            let branch = this.branch;
            if !self.branches[branch].shares.is_empty() {
                self.share_insert(node);
            }
            self.claim_announce(branch);
            return;
        }
        if this.place == ClaimPlace::Limited {
            this.place = ClaimPlace::Nowhere;
        }
        if this.place == ClaimPlace::Nowhere {
            self.claim_place(node, now);
        }
        if !self.is_empty(node) {
            self.share_insert(node);
        }
    }

    /// Takes a class out of shares, claims and calendars; [`Hfsc::resume`] brings it back.
    pub(super) fn withdraw(&mut self, node: u32) {
        let this = &mut self.classes[node];
        let parent = &mut self.branches[this.parent];
        if core::mem::take(&mut this.shares) {
            parent.shares.remove(this.slot);
        }
        let home = parent.home;
        if core::mem::take(&mut this.parked) {
            self.parked.remove(node, &mut self.parked_links);
        }
        match core::mem::replace(&mut this.place, ClaimPlace::Nowhere) {
            ClaimPlace::Waiting => self.waiting.remove(node, &mut self.claim_links),
            _ => self.branches[home].claims.remove(node, &mut self.claim_links),
        }
        self.quiet_until = 0;
    }

    /// Wakes the class at `until`, in ns. A class that is parked keeps its wake-up.
    pub(super) fn park(&mut self, node: u32, until: u64) {
        if !self.classes[node].parked {
            self.classes[node].parked = true;
            self.parked.push(until, node, &mut self.parked_links);
        }
    }

    /// Returns the instant, in ns, from which the class fits under its limit; `None` if it fits at
    /// `now`.
    #[inline(always)]
    pub(super) fn limited_until(&mut self, node: u32, now: u64) -> Option<u64> {
        if self.classes[node].limit == NONE {
            return None;
        }
        Some(self.fits_at(node)).filter(|at| *at > now)
    }

    #[inline(never)]
    fn fits_at(&mut self, node: u32) -> u64 {
        let this = &self.classes[node];
        let bytes = match this.branch {
            NONE => self.classes.head_bytes(ClassId(node)).unwrap_or(0),
            branch => self.branches[branch].largest,
        };
        self.limits[this.limit].fits_at(bytes)
    }

    pub(super) fn is_empty(&self, leaf: u32) -> bool {
        self.classes.is_empty(ClassId(leaf))
    }
}
