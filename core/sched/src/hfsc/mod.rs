// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hierarchical fair service curves (Stoica, Zhang, Ng: SIGCOMM 1997; IEEE/ACM ToN 8(2), 2000).
//!
//! **Problem.** A hierarchy of weights divides a link fairly, but cannot bound the delay of a leaf
//! without giving it more rate than it needs.
//!
//! **Idea.** Two criteria choose the next packet. *Real-time*: a leaf that would otherwise fall
//! behind its service curve goes first, earliest deadline first. *Link-sharing*: the rest is
//! divided by weights from the root down, at each level to the child with the least virtual time.
//! An upper limit at a class excludes it, and all classes below it, from both until the exact
//! instant at which its next packet conforms.
//!
//! **Words.** A *claim* is a leaf's right to real-time service: eligible from one instant, due by
//! another. A *branch* is the inner part of a class: its children and their claims. A class at its
//! limit is *parked*.
//!
//! Read `real_time`, then `link_share`, then `waking`; `curve` has the arithmetic, `calendar` the
//! priority queue. See `docs/algorithms/hfsc.md`.

mod arrival;
mod calendar;
mod configure;
mod curve;
mod curves;
mod heap;
mod limit;
mod link_share;
mod real_time;
mod shares;
mod tree;
mod waking;

use alloc::vec::Vec;

use weir_units::{BitRate, ByteCount, Instant};

use self::calendar::{Calendar, Link};
use self::curve::Line;
use self::curves::Curves;
use self::limit::Limit;
use self::tree::{Branch, ClassNode, ROOT};
use crate::prefetch::prefetch;
use crate::slab::{NONE, Slab};
use crate::{
    Backlog, ClassConfig, ClassCounters, ClassId, ClassQueues, ConfigError, Dequeue, DropReason,
    FlowCounters, LinkConfig, Packet, Popped, Scheduler, WaitReason,
};

/// The hierarchical scheduler. Depth is bounded by the number of classes only.
#[derive(Clone, Debug)]
pub struct Hfsc {
    classes: ClassQueues<ClassNode>,
    branches: Slab<Branch>,
    curves: Curves,
    /// The second line of each claim's curve, by class.
    seconds: Vec<Line>,
    limits: Slab<Limit>,
    /// Claims that are not eligible yet, by the instant at which they will be.
    waiting: Calendar,
    /// Links of `waiting` and of the `claims` of all branches: a claim is in at most one of them.
    claim_links: Vec<Link>,
    /// Classes at their upper limit, by the instant at which their next packet conforms.
    parked: Calendar,
    parked_links: Vec<Link>,
    now: u64,
    /// No packet may leave before this instant; zero if none is known.
    quiet_until: u64,
}

impl Hfsc {
    /// Makes a tree without classes. It ignores the link's rate: [`crate::Paced`] paces it.
    #[must_use]
    pub fn new(link: &LinkConfig) -> Self {
        let mut branches = Slab::new();
        branches.insert(Branch { node: NONE, home: ROOT, ..Branch::default() });
        Self {
            classes: ClassQueues::new(link.classes_max.min(CLASSES_MAX), link.packets_max),
            branches,
            curves: Curves::new(),
            seconds: Vec::new(),
            limits: Slab::new(),
            claim_links: Vec::new(),
            waiting: Calendar::default(),
            parked: Calendar::default(),
            parked_links: Vec::new(),
            now: 0,
            quiet_until: 0,
        }
    }

    /// Prefetches both cache lines of a class.
    #[inline(always)]
    fn touch_class(&self, class: u32) {
        self.classes.touch(ClassId(class));
        if let Some(node) = self.classes.state(ClassId(class)) {
            prefetch(core::slice::from_ref(&node.virtual_time), 0);
        }
    }

    /// Notes a packet longer than any before, in `branch` and the branches above it.
    #[cold]
    fn enlarge(&mut self, mut branch: u32, bytes: u32) {
        self.quiet_until = 0;
        while self.branches[branch].largest < bytes {
            self.branches[branch].largest = bytes;
            match self.branches[branch].node {
                NONE => return,
                node => branch = self.classes[node].parent,
            }
        }
    }

    /// Returns the leaf to serve at `now`, and whether the real-time criterion chose it.
    #[inline(always)]
    fn pick(&mut self, now: u64) -> Option<(u32, bool)> {
        self.wake(now);
        match self.claim_pick(now) {
            Some(leaf) => Some((leaf, true)),
            None => self.share_pick(now).map(|leaf| (leaf, false)),
        }
    }

    /// Accounts for `bytes` that `leaf` sent; `next` is the length of its next packet.
    #[inline(always)]
    fn served(&mut self, leaf: u32, now: u64, bytes: u32, next: Option<u32>, by_claim: bool) {
        if by_claim {
            self.claim_served(leaf, now, bytes);
            self.account::<true>(leaf, now, bytes, next.is_some());
        } else {
            self.account::<false>(leaf, now, bytes, next.is_some());
        }
    }

    /// Serves a leaf whose queue `CoDel` manages.
    #[inline(never)]
    fn serve_managed(&mut self, leaf: u32, now: u64, by_claim: bool) -> Dequeue {
        let class = ClassId(leaf);
        match self.classes.pop(Instant::from_nanos(now), class) {
            Popped::Send { packet, mark, next } => {
                self.served(leaf, now, packet.bytes(), next, by_claim);
                Dequeue::Send { class, packet, mark }
            }
            Popped::Dropped(packet) => {
                Dequeue::Dropped { class, packet, reason: DropReason::Codel }
            }
            // A leaf is picked only with a packet at its head.
            Popped::Empty => Dequeue::Idle,
        }
    }

    /// Returns the first instant after `now` at which a packet may leave.
    #[inline(never)]
    fn quiet(&mut self) -> Dequeue {
        // Each backlogged leaf is below a parked class. Trying their instants in turn finds the
        // first at which all limits on some path conform. This resumes classes ahead of time; one
        // that is asked earlier does not fit and is parked again.
        loop {
            let wakes = [self.waiting.top(), self.parked.top()];
            let Some(next) = wakes.into_iter().flatten().map(|top| top.key).min() else {
                return Dequeue::Idle;
            };
            if self.pick(next).is_some() {
                self.quiet_until = next;
                return wait_until(next);
            }
        }
    }
}

impl Scheduler for Hfsc {
    fn add_class(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        let now = self.advance(now);
        self.add(now, parent, config)
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        let now = self.advance(now);
        self.change(now, class, config)
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.advance(now);
        self.remove(class, orphan)
    }

    // Inlined, like `dequeue` below, for the reason given at `Flat::dequeue`.
    #[inline(always)]
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.join(now, class, packet)
    }

    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.join_by(now, class, packet, ClassQueues::requeue)
    }

    #[inline]
    fn touch(&self, class: ClassId) {
        self.touch_class(class.0);
    }

    #[inline(always)]
    fn dequeue(&mut self, now: Instant) -> Dequeue {
        let now = self.advance(now);
        if now < self.quiet_until {
            return wait_until(self.quiet_until);
        }
        if self.classes.total().packets == 0 {
            return Dequeue::Idle;
        }
        let Some((leaf, by_claim)) = self.pick(now) else { return self.quiet() };
        let class = ClassId(leaf);
        let Some((packet, next)) = self.classes.take(class) else {
            return self.serve_managed(leaf, now, by_claim);
        };
        self.served(leaf, now, packet.bytes(), next, by_claim);
        Dequeue::Send { class, packet, mark: false }
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        let now = self.advance(now);
        if !self.classes.exists(class) {
            return;
        }
        self.quiet_until = 0;
        let mut node = class.0;
        while node != NONE {
            let this = &self.classes[node];
            if this.limit != NONE {
                self.limits[this.limit].charge(now, bytes.get());
            }
            node = self.branches[this.parent].node;
        }
    }

    fn pause(&mut self, class: ClassId) {
        self.pause_leaf(class);
    }

    fn resume(&mut self, now: Instant, class: ClassId) {
        self.resume_leaf(now, class);
    }

    /// Notes the instant only: this scheduler does not use the link's rate.
    fn set_link_rate(&mut self, now: Instant, _: Option<BitRate>) {
        self.advance(now);
    }

    fn backlog(&self) -> Backlog {
        self.classes.total()
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        self.classes.backlog(class)
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.classes.head_arrived(class)
    }

    fn room(&self, class: ClassId) -> u32 {
        match self.classes.state(class) {
            Some(node) if node.branch == NONE => self.classes.room(class),
            _ => 0,
        }
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        self.classes.counters(class)
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        self.classes.flow_counters(class)
    }
}

const fn wait_until(nanos: u64) -> Dequeue {
    Dequeue::Wait { until: Instant::from_nanos(nanos), why: WaitReason::UpperLimit }
}

/// Leaves numbers free that mean no class.
const CLASSES_MAX: u32 = 1 << 31;
