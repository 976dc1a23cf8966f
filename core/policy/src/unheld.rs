// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guarantees and limits that a policy asks for and the scheduler of a port does not hold. They
//! are listed, so that none is missing silently.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::format::quoted;
use crate::{Direction, Policy, PortId, RouterId, SchedulerKind, Share, SliceId, Vif};

/// One key that the scheduler of one port does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unheld {
    /// The port's name.
    pub port: String,
    /// Its scheduler.
    pub scheduler: SchedulerKind,
    /// The key.
    pub key: &'static str,
    /// The first vif, router or slice on the port that asks for it, such as `vif "gold.0"`.
    pub first: String,
    /// The number of further vifs, routers and slices that ask for it.
    pub more: usize,
}

/// The parts of a class's configuration that a scheduler holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldKeys {
    /// Shares the rest of the capacity by `priority`, in proportion or as a rank.
    pub priority: bool,
    /// Serves a class below its `min_rate` first.
    pub min_rate: bool,
    /// Bounds the delay of a class by `delay`.
    pub delay: bool,
    /// Holds a class to its `rate`.
    pub rate: bool,
    /// Has classes for slices and routers; otherwise their shares hold for packet rates only.
    pub levels: bool,
}

impl SchedulerKind {
    /// The parts that the scheduler holds.
    #[must_use]
    pub const fn holds(self) -> HeldKeys {
        let (priority, min_rate, rate) = match self {
            Self::Hfsc | Self::Wrr => (true, true, true),
            Self::Drr | Self::Wfq | Self::Strict => (true, false, true),
            Self::Fifo => (false, false, false),
        };
        let hierarchical = matches!(self, Self::Hfsc);
        HeldKeys { priority, min_rate, delay: hierarchical, rate, levels: hierarchical }
    }
}

impl Policy {
    /// The keys that are asked for and not held, by port. Empty where every port has `hfsc`.
    #[must_use]
    pub fn unheld(&self) -> Vec<Unheld> {
        let mut list = Vec::new();
        for (id, port) in self.ports() {
            let held = port.scheduler.holds();
            let mut add = |key, held: bool, askers: &dyn Fn() -> Vec<String>| {
                // A live change asks this, mostly of schedulers that hold everything.
                let askers = if held { Vec::new() } else { askers() };
                let more = askers.len().saturating_sub(1);
                let Some(first) = askers.into_iter().next() else { return };
                let (port, scheduler) = (port.name.clone(), port.scheduler);
                list.push(Unheld { port, scheduler, key, first, more });
            };
            let any = |vif: &Vif, asks: fn(&Share) -> bool| {
                Direction::ALL.iter().any(|direction| asks(vif.share(*direction)))
            };
            add("priority", held.priority, &|| {
                self.vifs_on(id, |vif| any(vif, |s| s.priority != 1))
            });
            let minimum = |share: &Share| !share.min_rate.is_zero();
            add("min_rate", held.min_rate, &|| self.vifs_on(id, |vif| any(vif, minimum)));
            add("delay", held.delay, &|| self.vifs_on(id, |vif| vif.delay.is_some()));
            add("rate", held.rate, &|| {
                self.vifs_on(id, |vif| any(vif, |share| share.rate.is_some()))
            });
            add("min_rate", held.levels, &|| self.groups_on(id, minimum));
            add("rate", held.levels, &|| self.groups_on(id, |share| share.rate.is_some()));
            add("priority", held.levels, &|| self.groups_on(id, |share| share.priority != 1));
        }
        list
    }

    fn vifs_on(&self, port: PortId, asks: impl Fn(&Vif) -> bool) -> Vec<String> {
        let askers = self.vifs.iter().filter(|vif| vif.port == port && asks(vif));
        askers.map(|vif| alloc::format!("vif {}", quoted(&vif.name))).collect()
    }

    /// Slices and routers with a vif on the port.
    fn groups_on(&self, port: PortId, asks: impl Fn(&Share) -> bool) -> Vec<String> {
        let asked = |shares: [&Share; 2]| shares.into_iter().any(&asks);
        let vifs = || self.vifs.iter().filter(|vif| vif.port == port);
        let slices_on: BTreeSet<SliceId> = vifs().map(|vif| vif.slice).collect();
        let routers_on: BTreeSet<RouterId> = vifs().filter_map(|vif| vif.router).collect();
        let slices = self
            .slices()
            .filter(|(id, slice)| asked([&slice.send, &slice.receive]) && slices_on.contains(id));
        let routers = self.routers().filter(|(id, router)| {
            asked([&router.send, &router.receive]) && routers_on.contains(id)
        });
        slices
            .map(|(_, slice)| alloc::format!("slice {}", quoted(&slice.name)))
            .chain(routers.map(|(_, router)| alloc::format!("router {}", quoted(&router.name))))
            .collect()
    }
}

/// `port "up0": "drr" does not hold min_rate, asked for by vif "gold.0" and 2 more`
impl fmt::Display for Unheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, scheduler, key, first, more } = self;
        let name = match scheduler {
            SchedulerKind::Hfsc => "hfsc",
            SchedulerKind::Wrr => "wrr",
            SchedulerKind::Drr => "drr",
            SchedulerKind::Wfq => "wfq",
            SchedulerKind::Strict => "strict",
            SchedulerKind::Fifo => "fifo",
        };
        let port = quoted(port);
        write!(f, "port {port}: \"{name}\" does not hold {key}, asked for by {first}")?;
        if *more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
}
