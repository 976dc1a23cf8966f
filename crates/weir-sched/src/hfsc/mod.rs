// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hierarchical fair service curves (Stoica, Zhang, Ng: SIGCOMM 1997; IEEE/ACM ToN 8(2), 2000).
//!
//! Two criteria choose the next packet. *Real-time*: a leaf that would otherwise fall behind its
//! service curve goes first, earliest deadline first. *Link-sharing*: everything else is divided by
//! weights from the root down. An upper limit at any class takes it and all below out of both until
//! the exact instant at which it fits again. See `docs/algorithms/hfsc.md`.

mod curve;
mod heap;
mod limit;
mod link_share;
mod real_time;
mod tree;

use alloc::vec::Vec;

use weir_units::{ByteCount, Instant, Nanos};

use self::curve::{Runtime, ServiceCurve};
use self::heap::{Heap, NoPlaces};
use self::limit::Limit;
use self::tree::{Branch, Claim, NONE, Node, Place, ROOT, STALE, Slab};
use crate::{
    Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, Dequeue, DropReason, LinkConfig,
    Packet, Popped, QueueTable, Scheduler, WaitReason,
};

/// The hierarchical scheduler. Depth is bounded by the number of classes only.
#[derive(Clone, Debug)]
pub struct Hfsc {
    queues: QueueTable,
    nodes: Vec<Node>,
    branches: Slab<Branch>,
    claims: Slab<Claim>,
    limits: Slab<Limit>,
    /// Where each class lies in its parent's `claims`, or [`NONE`].
    places: Vec<u32>,
    /// When classes become eligible or fit under their limit again.
    wakes: Heap<false>,
    now: u64,
    /// Nothing may leave before; zero when that is not known.
    quiet_until: u64,
}

/// What a wake-up is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Eligible = 0,
    Fit = 1,
}

impl Hfsc {
    /// A tree without classes. The link's rate is not needed: pace it from outside.
    #[must_use]
    pub fn new(link: &LinkConfig) -> Self {
        let mut branches = Slab::new();
        branches.insert(Branch { node: NONE, ..Branch::default() });
        Self {
            queues: QueueTable::new(link.classes_max.min(CLASSES_MAX), link.packets_max),
            nodes: Vec::new(),
            branches,
            claims: Slab::new(),
            limits: Slab::new(),
            places: Vec::new(),
            wakes: Heap::default(),
            now: 0,
            quiet_until: 0,
        }
    }

    /// Brings back what has become eligible or fits again by `now`.
    fn wake(&mut self, now: u64) {
        while let Some(top) = self.wakes.top() {
            if top.key > now {
                return;
            }
            self.wakes.pop(&mut NoPlaces);
            let node = top.id >> 1;
            let this = &mut self.nodes[node as usize];
            if top.id & 1 == Wake::Eligible as u32 {
                this.place = Place::Nowhere;
                self.claim_place(node, now);
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

    /// Enters a class wherever it belongs by what it has queued.
    fn resume(&mut self, node: u32, now: u64) {
        let this = &mut self.nodes[node as usize];
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
    fn withdraw(&mut self, node: u32) {
        let this = &mut self.nodes[node as usize];
        let parent = &mut self.branches[this.parent];
        if core::mem::take(&mut this.shares) {
            parent.shares.remove(node, &mut NoPlaces);
        }
        let place = core::mem::replace(&mut self.places[node as usize], NONE);
        if place != NONE {
            parent.claims.remove_at(place as usize, &mut self.places);
        }
        if core::mem::take(&mut this.parked) {
            self.wakes.remove(Wake::Fit.of(node), &mut NoPlaces);
        }
        if core::mem::replace(&mut this.place, Place::Nowhere) == Place::Waiting {
            self.wakes.remove(Wake::Eligible.of(node), &mut NoPlaces);
        }
        self.quiet_until = 0;
    }

    /// Sets a wake-up for when the class fits under its limit.
    fn park(&mut self, node: u32) {
        if !self.nodes[node as usize].parked {
            let at = self.fits_at(node);
            self.nodes[node as usize].parked = true;
            self.wakes.push(at, Wake::Fit.of(node), &mut NoPlaces);
        }
    }

    fn fits(&mut self, node: u32, now: u64) -> bool {
        self.nodes[node as usize].limit == NONE || self.fits_at(node) <= now
    }

    fn fits_at(&mut self, node: u32) -> u64 {
        let this = &self.nodes[node as usize];
        let bytes = match this.branch {
            NONE => self.queues.head(ClassId(node)).map_or(0, Packet::bytes),
            branch => self.branches[branch].largest,
        };
        self.limits[this.limit].fits_at(bytes)
    }

    fn is_empty(&self, leaf: u32) -> bool {
        self.queues.is_empty(ClassId(leaf))
    }

    /// Whom the two criteria choose at `now`, and whether the first one did.
    fn pick(&mut self, now: u64) -> Option<(u32, bool)> {
        self.wake(now);
        match self.claim_pick(now) {
            Some(leaf) => Some((leaf, true)),
            None => self.share_pick(now).map(|leaf| (leaf, false)),
        }
    }

    /// The first instant after `now` at which a packet may leave.
    fn quiet(&mut self) -> Dequeue {
        // Whatever is backlogged is below a limit with a wake-up; trying each instant in turn
        // finds the first at which all limits on some path fit. What is brought back too early
        // by that is sent away again if asked before.
        while let Some(top) = self.wakes.top() {
            if self.pick(top.key).is_some() {
                self.quiet_until = top.key;
                return wait_until(top.key);
            }
        }
        Dequeue::Idle
    }

    fn configure(&mut self, node: u32, now: u64, config: &ClassConfig) {
        self.reweigh(node, config.weight);
        let this = &mut self.nodes[node as usize];
        let delay = config.delay.map(|delay| (delay, config.delay_packet));
        let curve = ServiceCurve::new(config.min_rate, delay);
        match (this.claim, curve) {
            (NONE, None) => (),
            (NONE, Some(curve)) => {
                let mut runtime = Runtime::default();
                runtime.activate(&curve, now);
                this.claim = self.claims.insert(Claim { curve, runtime, bytes: STALE });
            }
            (claim, None) => {
                self.claims.remove(claim);
                this.claim = NONE;
            }
            (claim, Some(curve)) => {
                let claim = &mut self.claims[claim];
                if claim.curve != curve {
                    claim.runtime.change(now, &claim.curve, &curve);
                    claim.curve = curve;
                }
                claim.bytes = STALE;
            }
        }
        let limit = config.max_rate.and_then(|rate| Limit::new(rate, config.burst));
        match (this.limit, limit) {
            (NONE, None) => (),
            (NONE, Some(limit)) => this.limit = self.limits.insert(limit),
            (limit, None) => {
                self.limits.remove(limit);
                this.limit = NONE;
            }
            (index, Some(mut limit)) => {
                limit.inherit(now, &self.limits[index]);
                self.limits[index] = limit;
            }
        }
    }

    /// The branch of `parent`; a leaf without packets becomes one.
    fn branch_of(&mut self, parent: Option<ClassId>) -> Result<u32, ConfigError> {
        let Some(parent) = parent else { return Ok(ROOT) };
        self.queues.check(parent)?;
        if self.nodes[parent.0 as usize].branch == NONE {
            if !self.is_empty(parent.0) {
                return Err(ConfigError::WrongKind(parent));
            }
            self.withdraw(parent.0);
            let branch = Branch { node: parent.0, ..Branch::default() };
            self.nodes[parent.0 as usize].branch = self.branches.insert(branch);
        }
        Ok(self.nodes[parent.0 as usize].branch)
    }

    /// A class left `branch`; one without children is a leaf again.
    fn leave(&mut self, branch: u32) {
        let this = &mut self.branches[branch];
        this.children -= 1;
        if this.children == 0 && branch != ROOT {
            let node = this.node;
            self.branches.remove(branch);
            self.withdraw(node);
            self.nodes[node as usize].branch = NONE;
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
        check(config)?;
        let class = self.queues.add(&config.queue)?;
        let branch = match self.branch_of(parent) {
            Ok(branch) => branch,
            Err(error) => {
                self.queues.remove(class, &mut |_| ())?;
                return Err(error);
            }
        };
        if self.nodes.len() <= class.0 as usize {
            self.nodes.push(Node::ABSENT);
            self.places.push(NONE);
        }
        let this = &mut self.branches[branch];
        this.children += 1;
        // Room for every entry that may ever be there, so that no packet allocates.
        this.shares.reserve(this.children as usize);
        this.claims.reserve(this.children as usize);
        self.wakes.reserve(2 * self.nodes.len());
        let virtual_time = self.branches[branch].virtual_now;
        self.nodes[class.0 as usize] = Node { parent: branch, virtual_time, ..Node::ABSENT };
        self.configure(class.0, now, config);
        Ok(class)
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        let now = self.advance(now);
        self.queues.check(class)?;
        check(config)?;
        self.queues.change(class, &config.queue)?;
        self.withdraw(class.0);
        self.configure(class.0, now, config);
        self.resume(class.0, now);
        Ok(())
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.advance(now);
        self.queues.check(class)?;
        if self.nodes[class.0 as usize].branch != NONE {
            return Err(ConfigError::WrongKind(class));
        }
        self.queues.remove(class, orphan)?;
        self.withdraw(class.0);
        let node = core::mem::replace(&mut self.nodes[class.0 as usize], Node::ABSENT);
        if node.claim != NONE {
            self.claims.remove(node.claim);
        }
        if node.limit != NONE {
            self.limits.remove(node.limit);
        }
        self.leave(node.parent);
        Ok(())
    }

    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        let now = self.advance(now);
        let Some(node) = self.nodes.get(class.0 as usize) else {
            return Err(DropReason::NoSuchQueue);
        };
        if node.branch != NONE {
            self.queues.refuse(class, packet);
            return Err(DropReason::NoSuchQueue);
        }
        let mut branch = node.parent;
        let begins = self.queues.push(class, packet)?;
        while self.branches[branch].largest < packet.bytes() {
            self.branches[branch].largest = packet.bytes();
            self.quiet_until = 0;
            match self.branches[branch].node {
                NONE => break,
                node => branch = self.nodes[node as usize].parent,
            }
        }
        if begins {
            self.claim_start(class.0, now);
            self.share_insert(class.0);
            self.quiet_until = 0;
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Instant) -> Dequeue {
        let now = self.advance(now);
        if now < self.quiet_until {
            return wait_until(self.quiet_until);
        }
        if self.queues.total().packets == 0 {
            return Dequeue::Idle;
        }
        let Some((leaf, by_claim)) = self.pick(now) else { return self.quiet() };
        let class = ClassId(leaf);
        match self.queues.pop(Instant::from_nanos(now), class) {
            Popped::Send { packet, mark } => {
                if by_claim {
                    self.claim_served(leaf, now, packet.bytes());
                }
                self.account(leaf, now, packet.bytes());
                Dequeue::Send { class, packet, mark }
            }
            Popped::Dropped(packet) => {
                Dequeue::Dropped { class, packet, reason: DropReason::Codel }
            }
            // A leaf is picked only with a packet at its head.
            Popped::Empty => Dequeue::Idle,
        }
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        let now = self.advance(now);
        if !self.queues.exists(class) {
            return;
        }
        self.quiet_until = 0;
        let mut node = class.0;
        while node != NONE {
            let this = &self.nodes[node as usize];
            if this.limit != NONE {
                self.limits[this.limit].charge(now, bytes.get());
            }
            node = self.branches[this.parent].node;
        }
    }

    fn backlog(&self) -> Backlog {
        self.queues.total()
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        self.queues.backlog(class)
    }

    fn room(&self, class: ClassId) -> u32 {
        match self.nodes.get(class.0 as usize) {
            Some(node) if node.branch == NONE => self.queues.room(class),
            _ => 0,
        }
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        self.queues.counters(class)
    }
}

impl Wake {
    const fn of(self, node: u32) -> u32 {
        node << 1 | self as u32
    }
}

fn check(config: &ClassConfig) -> Result<(), ConfigError> {
    config.check()?;
    let Some(delay) = config.delay else { return Ok(()) };
    let key = "delay";
    let (value, max) = (delay.as_nanos(), DELAY_MAX.as_nanos());
    if value < 1 || value > max {
        return Err(ConfigError::OutOfRange { key, value, min: 1, max });
    }
    let (key, value) = ("delay_packet", config.delay_packet.get());
    let max = u64::from(Packet::MAX_BYTES);
    if value < 1 || value > max {
        return Err(ConfigError::OutOfRange { key, value, min: 1, max });
    }
    Ok(())
}

const fn wait_until(nanos: u64) -> Dequeue {
    Dequeue::Wait { until: Instant::from_nanos(nanos), why: WaitReason::UpperLimit }
}

/// A wake-up is an index and one bit.
const CLASSES_MAX: u32 = 1 << 31;

/// Longer than any queue should last; `bytes × delay` of the longest packet fits 64 bits below it.
const DELAY_MAX: Nanos = Nanos::from_secs(8);
