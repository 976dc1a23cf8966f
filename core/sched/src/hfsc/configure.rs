// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Adding, changing and removing classes while packets are queued.
//!
//! A class is taken out of every structure, changed, and entered again: its lag or its lead stays
//! the same in bytes. This may search the structures; packets never do.

use alloc::vec::Vec;

use weir_units::Nanos;

use super::Hfsc;
use super::calendar::Link;
use super::curve::{Line, Runtime, ServiceCurve};
use super::limit::Limit;
use super::tree::{Branch, ClaimPlace, ClassNode, ROOT, STALE};
use crate::slab::NONE;
use crate::{ClassConfig, ClassId, ConfigError, Packet};

impl Hfsc {
    /// Checks that a class can have a configuration.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] for the first value outside.
    pub(crate) fn check(config: &ClassConfig) -> Result<(), ConfigError> {
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

    /// Adds a class, see [`crate::Scheduler::add_class`].
    pub(super) fn add(
        &mut self,
        now: u64,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        Self::check(config)?;
        if let Some(parent) = parent {
            // Checked before the new class has an index, which may be that of `parent`.
            self.classes.check(parent)?;
        }
        let class = self.classes.add(&config.queue)?;
        let branch = match self.branch_of(parent) {
            Ok(branch) => branch,
            Err(error) => {
                self.classes.remove(class, &mut |_| ())?;
                return Err(error);
            }
        };
        if self.seconds.len() <= class.0 as usize {
            self.seconds.push(Line::default());
            self.claim_links.push(Link::NONE);
            self.parked_links.push(Link::NONE);
        }
        let this = &mut self.branches[branch];
        this.children += 1;
        let slot = this.shares.add(class.0);
        let (home, virtual_time) = (this.home, this.virtual_now);
        self.settle(home);
        self.waiting.reserve(self.seconds.len(), &mut self.claim_links);
        self.parked.reserve(self.seconds.len(), &mut self.parked_links);
        self.classes[class.0] =
            ClassNode { parent: branch, slot, virtual_time, ..ClassNode::default() };
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
        self.classes.check(class)?;
        Self::check(config)?;
        self.classes.change(class, &config.queue)?;
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
        self.classes.check(class)?;
        if self.classes[class.0].branch != NONE {
            return Err(ConfigError::WrongKind(class));
        }
        self.withdraw(class.0);
        let node = core::mem::take(&mut self.classes[class.0]);
        self.classes.remove(class, orphan)?;
        if node.curve != NONE {
            self.curves.release(node.curve);
        }
        if node.limit != NONE {
            self.limits.remove(node.limit);
        }
        let parent = &mut self.branches[node.parent];
        parent.shares.release(node.slot);
        let home = parent.home;
        self.branches[home].claimants -= 1;
        self.leave(node.parent);
        Ok(())
    }

    /// Tells whether weight, curve and limit are those of `config` already.
    fn is_configured(&self, node: u32, config: &ClassConfig) -> bool {
        let this = &self.classes[node];
        let delay = config.delay.map(|delay| (delay, config.delay_packet));
        let same_curve = match (this.curve, ServiceCurve::new(config.min_rate, delay)) {
            (NONE, curve) => curve.is_none(),
            (old, curve) => curve.is_some_and(|curve| self.curves[old] == curve),
        };
        let limit = config.max_rate.and_then(|rate| Limit::new(rate, config.burst));
        let same_limit = match (this.limit, limit) {
            (NONE, limit) => limit.is_none(),
            (index, limit) => limit.is_some_and(|limit| limit.is_like(&self.limits[index])),
        };
        this.weight == config.weight && same_curve && same_limit
    }

    fn configure(&mut self, node: u32, now: u64, config: &ClassConfig) {
        if self.classes[node].weight != config.weight {
            self.reweigh(node, config.weight);
        }
        self.set_curve(node, now, config);
        let this = &mut self.classes[node];
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

    fn set_curve(&mut self, node: u32, now: u64, config: &ClassConfig) {
        let delay = config.delay.map(|delay| (delay, config.delay_packet));
        let curve = ServiceCurve::new(config.min_rate, delay);
        let old = self.classes[node].curve;
        let mut runtime = self.runtime(node);
        match curve {
            None => runtime = Runtime::default(),
            Some(curve) if old == NONE => {
                runtime = Runtime::default();
                runtime.activate(&curve, now);
            }
            Some(curve) if self.curves[old] == curve => (),
            Some(curve) => runtime.change(now, &self.curves[old], &curve),
        }
        let curve = curve.map_or(NONE, |curve| self.curves.take(curve));
        if old != NONE {
            self.curves.release(old);
        }
        let this = &mut self.classes[node];
        (this.curve, this.claim_bytes) = (curve, STALE);
        self.set_runtime(node, runtime);
    }

    /// Returns the branch in which claims of the children of `branch` compete.
    fn home_of(&self, mut branch: u32) -> u32 {
        while branch != ROOT {
            let node = &self.classes[self.branches[branch].node];
            if node.limit != NONE {
                return branch;
            }
            branch = node.parent;
        }
        ROOT
    }

    /// Counts one more class whose claim is in `home`, and makes room for every entry that may ever
    /// be there, so that no packet allocates.
    fn settle(&mut self, home: u32) {
        let home = &mut self.branches[home];
        home.claimants += 1;
        home.claims.reserve(home.claimants as usize, &mut self.claim_links);
    }

    /// Moves the claims below a class that has got or lost its upper limit: they compete in another
    /// branch from now on.
    fn move_claims(&mut self, now: u64) {
        let mut moved = Vec::new();
        for (class, index) in (0..).zip(0..self.seconds.len()) {
            let node = &self.classes[class];
            let (old, new) = (self.branches[node.parent].home, self.home_of(node.parent));
            if node.weight == 0 || old == new {
                continue;
            }
            if node.place != ClaimPlace::Waiting && self.claim_links[index].key().is_some() {
                self.branches[old].claims.remove(class, &mut self.claim_links);
                moved.push(class);
            }
            self.branches[old].claimants -= 1;
            self.settle(new);
        }
        for branch in self.branches.indexes() {
            self.branches[branch].home = self.home_of(branch);
        }
        for class in moved {
            let node = &mut self.classes[class];
            if node.branch != NONE {
                let branch = node.branch;
                self.claim_announce(branch);
            } else {
                node.place = ClaimPlace::Nowhere;
                self.claim_place(class, now);
            }
        }
    }

    /// Returns the branch of `parent`; makes one for a leaf without packets.
    fn branch_of(&mut self, parent: Option<ClassId>) -> Result<u32, ConfigError> {
        let Some(parent) = parent else { return Ok(ROOT) };
        self.classes.check(parent)?;
        if self.classes[parent.0].branch == NONE {
            if !self.is_empty(parent.0) {
                return Err(ConfigError::WrongKind(parent));
            }
            self.withdraw(parent.0);
            let branch = self.branches.insert(Branch { node: parent.0, ..Branch::default() });
            self.classes[parent.0].branch = branch;
            self.branches[branch].home = self.home_of(branch);
        }
        Ok(self.classes[parent.0].branch)
    }

    /// Removes a child from the count of `branch`; a class without children is a leaf again.
    fn leave(&mut self, branch: u32) {
        let this = &mut self.branches[branch];
        this.children -= 1;
        if this.children == 0 && branch != ROOT {
            let node = this.node;
            self.branches.remove(branch);
            self.withdraw(node);
            self.classes[node].branch = NONE;
        }
    }
}

/// Longer than any queue should last; `bytes × delay` of the longest packet fits 64 bits below it.
const DELAY_MAX: Nanos = Nanos::from_secs(8);
