// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adding, changing and removing classes while packets are queued.
//!
//! A class is taken out of every structure, changed, and entered again: what it is owed and what it
//! had ahead stays the same in bytes. This may search the structures; packets never do.

use alloc::vec::Vec;

use weir_units::Nanos;

use super::Hfsc;
use super::calendar::Link;
use super::curve::{Runtime, ServiceCurve};
use super::limit::Limit;
use super::tree::{Branch, Claim, NONE, Node, ROOT, STALE};
use crate::{ClassConfig, ClassId, ConfigError, Packet};

impl Hfsc {
    /// Adds a class, see [`crate::Scheduler::add_class`].
    pub(super) fn add(
        &mut self,
        now: u64,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
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
            self.claim_links.push(Link::NONE);
            self.wake_links.extend([Link::NONE; 2]);
        }
        let this = &mut self.branches[branch];
        this.children += 1;
        let slot = this.shares.add(class.0);
        let home = self.home_of(branch);
        self.settle(home);
        self.wakes.reserve(2 * self.nodes.len(), &mut self.wake_links);
        let virtual_time = self.branches[branch].virtual_now;
        self.nodes[class.0 as usize] =
            Node { parent: branch, home, slot, virtual_time, ..Node::ABSENT };
        self.configure(class.0, now, config);
        Ok(class)
    }

    /// Changes a class, see [`crate::Scheduler::change_class`].
    pub(super) fn change(
        &mut self,
        now: u64,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        self.queues.check(class)?;
        check(config)?;
        self.queues.change(class, &config.queue)?;
        if self.is_configured(class.0, config) {
            // Taking it out and entering it again would forget how far it lags behind its siblings.
            return Ok(());
        }
        self.withdraw(class.0);
        self.configure(class.0, now, config);
        self.resume(class.0, now);
        Ok(())
    }

    /// Removes a class, see [`crate::Scheduler::remove_class`].
    pub(super) fn remove(
        &mut self,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.queues.check(class)?;
        if self.nodes[class.0 as usize].branch != NONE {
            return Err(ConfigError::WrongKind(class));
        }
        self.queues.remove(class, orphan)?;
        self.withdraw(class.0);
        let node = core::mem::replace(&mut self.nodes[class.0 as usize], Node::ABSENT);
        if node.claim != NONE {
            self.curves.release(self.claims[node.claim].curve);
            self.claims.remove(node.claim);
        }
        if node.limit != NONE {
            self.limits.remove(node.limit);
        }
        self.branches[node.parent].shares.release(node.slot);
        self.branches[node.home].claimants -= 1;
        self.leave(node.parent);
        Ok(())
    }

    /// Whether weight, curve and limit are those of `config` already.
    fn is_configured(&self, node: u32, config: &ClassConfig) -> bool {
        let this = &self.nodes[node as usize];
        let delay = config.delay.map(|delay| (delay, config.delay_packet));
        let same_curve = match (this.claim, ServiceCurve::new(config.min_rate, delay)) {
            (NONE, curve) => curve.is_none(),
            (claim, curve) => {
                curve.is_some_and(|curve| self.curves[self.claims[claim].curve] == curve)
            }
        };
        let limit = config.max_rate.and_then(|rate| Limit::new(rate, config.burst));
        let same_limit = match (this.limit, limit) {
            (NONE, limit) => limit.is_none(),
            (index, limit) => limit.is_some_and(|limit| limit.is_like(&self.limits[index])),
        };
        this.weight == config.weight && same_curve && same_limit
    }

    fn configure(&mut self, node: u32, now: u64, config: &ClassConfig) {
        if self.nodes[node as usize].weight != config.weight {
            self.reweigh(node, config.weight);
        }
        let this = &mut self.nodes[node as usize];
        let delay = config.delay.map(|delay| (delay, config.delay_packet));
        let curve = ServiceCurve::new(config.min_rate, delay);
        match (this.claim, curve) {
            (NONE, None) => (),
            (NONE, Some(curve)) => {
                let mut runtime = Runtime::default();
                runtime.activate(&curve, now);
                let curve = self.curves.take(curve);
                this.claim = self.claims.insert(Claim { curve, runtime, bytes: STALE });
            }
            (claim, None) => {
                self.curves.release(self.claims[claim].curve);
                self.claims.remove(claim);
                this.claim = NONE;
            }
            (claim, Some(curve)) => {
                let claim = &mut self.claims[claim];
                let old = self.curves[claim.curve];
                if old != curve {
                    claim.runtime.change(now, &old, &curve);
                    self.curves.release(claim.curve);
                    claim.curve = self.curves.take(curve);
                }
                claim.bytes = STALE;
            }
        }
        let limit = config.max_rate.and_then(|rate| Limit::new(rate, config.burst));
        let moves = this.branch != NONE && (this.limit != NONE) != limit.is_some();
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
        if moves {
            self.move_claims(now);
        }
    }

    /// The branch in which claims of the children of `branch` compete.
    fn home_of(&self, mut branch: u32) -> u32 {
        while branch != ROOT {
            let node = &self.nodes[self.branches[branch].node as usize];
            if node.limit != NONE {
                return branch;
            }
            branch = node.parent;
        }
        ROOT
    }

    /// One class more has its claim in `home`: room for every entry that may ever be there, so that
    /// no packet allocates.
    fn settle(&mut self, home: u32) {
        let home = &mut self.branches[home];
        home.claimants += 1;
        home.claims.reserve(home.claimants as usize, &mut self.claim_links);
    }

    /// A class with classes below has got an upper limit, or has none any more: claims below it
    /// compete elsewhere from now on.
    fn move_claims(&mut self, now: u64) {
        let mut moved = Vec::new();
        for (index, class) in (0..self.nodes.len()).zip(0..) {
            let node = &self.nodes[index];
            let (old, new) = (node.home, self.home_of(node.parent));
            if node.weight == 0 || old == new {
                continue;
            }
            if self.claim_links[index].key().is_some() {
                moved.push(class);
            }
            self.branches[old].claims.remove(class, &mut self.claim_links);
            self.branches[old].claimants -= 1;
            self.nodes[index].home = new;
            self.settle(new);
        }
        for class in moved {
            let node = &mut self.nodes[class as usize];
            if node.branch != NONE {
                let branch = node.branch;
                self.claim_announce(branch);
            } else {
                node.place = super::tree::Place::Nowhere;
                self.claim_place(class, now);
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

/// Longer than any queue should last; `bytes × delay` of the longest packet fits 64 bits below it.
const DELAY_MAX: Nanos = Nanos::from_secs(8);
