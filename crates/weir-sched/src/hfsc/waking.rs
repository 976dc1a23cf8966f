// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wake-ups: when a claim becomes eligible, and when a class fits under its upper limit again.
//!
//! A class that does not fit is found when it is about to be served, and *parked*: it leaves the
//! heaps of its parent, and all below with it, until its wake-up.

use super::Hfsc;
use super::tree::{NONE, Place};
use crate::ClassId;

/// What a wake-up is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// Its claim becomes eligible.
    Eligible = 0,
    /// It fits under its limit.
    Fit = 1,
}

impl Wake {
    /// The entry of `node`.
    pub(super) const fn of(self, node: u32) -> u32 {
        node << 1 | self as u32
    }
}

impl Hfsc {
    /// Brings back what has become eligible or fits again by `now`.
    #[inline(always)]
    pub(super) fn wake(&mut self, now: u64) {
        if self.wakes.is_due(now) {
            self.wake_due(now);
        }
    }

    #[inline(never)]
    fn wake_due(&mut self, now: u64) {
        while let Some(top) = self.wakes.top() {
            if top.key > now {
                // What will be needed next is read now, since nothing else tells of it before.
                self.touch_claim(top.id >> 1);
                return;
            }
            self.wakes.pop(&mut self.wake_links);
            let node = top.id >> 1;
            let this = &mut self.classes[node];
            if top.id & 1 == Wake::Eligible as u32 {
                this.place = Place::Nowhere;
                self.claim_enter(node, now);
                continue;
            }
            this.parked = false;
            if self.fits(node, now) {
                self.resume(node, now);
            } else {
                self.park(node);
            }
        }
    }

    #[inline]
    fn touch_claim(&self, class: u32) {
        self.classes.touch_head(ClassId(class));
        core::hint::black_box(self.classes[class].curve);
    }

    /// Enters a class wherever it belongs by what it has queued.
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
        if this.place == Place::Limited {
            this.place = Place::Nowhere;
        }
        if this.place == Place::Nowhere {
            self.claim_place(node, now);
        }
        if !self.is_empty(node) {
            self.share_insert(node);
        }
    }

    /// Takes a class out of everything, to be resumed.
    pub(super) fn withdraw(&mut self, node: u32) {
        let this = &mut self.classes[node];
        let parent = &mut self.branches[this.parent];
        if core::mem::take(&mut this.shares) {
            parent.shares.remove(this.slot);
        }
        let home = parent.home;
        self.branches[home].claims.remove(node, &mut self.claim_links);
        if core::mem::take(&mut this.parked) {
            self.wakes.remove(Wake::Fit.of(node), &mut self.wake_links);
        }
        if core::mem::replace(&mut this.place, Place::Nowhere) == Place::Waiting {
            self.wakes.remove(Wake::Eligible.of(node), &mut self.wake_links);
        }
        self.quiet_until = 0;
    }

    /// Sets a wake-up for when the class fits under its limit.
    pub(super) fn park(&mut self, node: u32) {
        if !self.classes[node].parked {
            let at = self.fits_at(node);
            self.classes[node].parked = true;
            self.wakes.push(at, Wake::Fit.of(node), &mut self.wake_links);
        }
    }

    #[inline(always)]
    pub(super) fn fits(&mut self, node: u32, now: u64) -> bool {
        self.classes[node].limit == NONE || self.fits_at(node) <= now
    }

    #[inline(never)]
    pub(super) fn fits_at(&mut self, node: u32) -> u64 {
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
