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

/// The parts of a class's configuration that a scheduler holds. A `rate` is always held: what the
/// scheduler does not shape, the switch polices on entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldKeys {
    /// Shares the rest of the capacity by `priority`, in proportion or as a rank.
    pub priority: bool,
    /// Serves a class below its `min_rate` first.
    pub min_rate: bool,
    /// Bounds the delay of a class by `delay`.
    pub delay: bool,
    /// Has classes for slices and routers, and so holds their `priority` and `min_rate` too.
    pub levels: bool,
}

impl SchedulerKind {
    /// The parts that the scheduler holds.
    #[must_use]
    pub const fn holds(self) -> HeldKeys {
        let (priority, min_rate) = match self {
            Self::Hfsc | Self::Wrr => (true, true),
            Self::Drr | Self::Wfq | Self::Strict => (true, false),
            Self::Fifo => (false, false),
        };
        let hierarchical = matches!(self, Self::Hfsc);
        HeldKeys { priority, min_rate, delay: hierarchical, levels: hierarchical }
    }
}

impl Policy {
    /// The keys that are asked for and not held: one entry for each port and key. Empty where every
    /// port has `hfsc`.
    #[must_use]
    pub fn unheld(&self) -> Vec<Unheld> {
        let mut list = Vec::new();
        for (id, port) in self.ports() {
            let held = port.scheduler.holds();
            // A live change asks this, mostly of schedulers that hold everything.
            let askers = |held_of_vifs: bool, asks: fn(&Share) -> bool| {
                let any = |vif: &Vif| Direction::ALL.iter().any(|way| asks(vif.share(*way)));
                let mut askers = if held_of_vifs { Vec::new() } else { self.vifs_on(id, any) };
                if !held.levels {
                    askers.extend(self.groups_on(id, asks));
                }
                askers
            };
            let delays = || self.vifs_on(id, |vif| vif.delay.is_some());
            let keys = [
                ("priority", askers(held.priority, |share| share.priority != 1)),
                ("min_rate", askers(held.min_rate, |share| !share.min_rate.is_zero())),
                ("delay", if held.delay { Vec::new() } else { delays() }),
            ];
            for (key, askers) in keys {
                let more = askers.len().saturating_sub(1);
                let Some(first) = askers.into_iter().next() else { continue };
                let (port, scheduler) = (port.name.clone(), port.scheduler);
                list.push(Unheld { port, scheduler, key, first, more });
            }
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
