// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guarantees and limits that a policy asks for and the scheduler of a port does not hold. They
//! are listed, so that none is missing silently.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::format::quoted;
use crate::{
    Direction, Policy, Port, PortId, Router, RouterId, SchedulerKind, Share, Slice, SliceId, Vif,
};

/// One key that the scheduler of one port does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unheld {
    /// The port's name.
    pub port: String,
    /// Its scheduler.
    pub scheduler: SchedulerKind,
    /// True if the port's cycle is the reason: the scheduler alone would hold the key.
    pub cyclic: bool,
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

/// A vif, slice or router that asks for a key.
enum Asker<'a> {
    Vif(&'a Vif),
    Slice(&'a Slice),
    Router(&'a Router),
}

/// The level of a share in the policy.
#[derive(Clone, Copy)]
enum ShareLevel {
    Vif,
    Slice,
    Router,
}

/// A port, and the vifs, slices and routers whose frames pass it.
struct Members<'a> {
    port: &'a Port,
    vifs: Vec<&'a Vif>,
    /// Slices and routers, each with the number of its vifs on the port.
    slices: Vec<(&'a Slice, usize)>,
    routers: Vec<(&'a Router, usize)>,
}

impl Policy {
    /// The keys that are asked for and not held: one entry for each port and key. Empty where every
    /// port has `hfsc` and no cycle.
    #[must_use]
    pub fn unheld(&self) -> Vec<Unheld> {
        let mut list = Vec::new();
        for (id, port) in self.ports() {
            let held = port.scheduler.holds();
            let everything = held.priority && held.min_rate && held.delay && held.levels;
            // A live change asks this, mostly of ports like these.
            if everything && port.cycle.is_none() {
                continue;
            }
            let members = Members::of(self, id);
            members.add("priority", &mut members.of_priority(), &mut list);
            members.add("min_rate", &mut members.of_min_rate(), &mut list);
            let delayed = members.vifs.iter().filter(|vif| !held.delay && vif.delay.is_some());
            members.add("delay", &mut delayed.map(|vif| Asker::Vif(vif)), &mut list);
        }
        list
    }
}

impl<'a> Members<'a> {
    fn of(policy: &'a Policy, port: PortId) -> Self {
        let vifs: Vec<&Vif> = policy.vifs.iter().filter(|vif| vif.port == port).collect();
        let (mut slices, mut routers) = (BTreeMap::new(), BTreeMap::new());
        for vif in &vifs {
            *slices.entry(vif.slice).or_insert(0) += 1;
            if let Some(router) = vif.router {
                *routers.entry(router).or_insert(0) += 1;
            }
        }
        // A policy that was not checked may name a slice or router that it does not have.
        let slice = |(id, vifs): (SliceId, usize)| Some((policy.slices.get(id.0 as usize)?, vifs));
        let router =
            |(id, vifs): (RouterId, usize)| Some((policy.routers.get(id.0 as usize)?, vifs));
        let slices = slices.into_iter().filter_map(slice).collect();
        let routers = routers.into_iter().filter_map(router).collect();
        Self { port: &policy[port], vifs, slices, routers }
    }

    /// Returns who asks for a `priority` that is not held. A cycle gives each slice its phases, so
    /// that `priority` of a slice means nothing towards the port.
    fn of_priority(&self) -> impl Iterator<Item = Asker<'a>> {
        let (held, cyclic) = (self.port.scheduler.holds(), self.port.cycle.is_some());
        self.askers(
            |share| share.priority != 1,
            move |level, way, _| match level {
                ShareLevel::Vif => held.priority,
                ShareLevel::Slice => held.levels && !(cyclic && way == Direction::Send),
                ShareLevel::Router => held.levels,
            },
        )
    }

    /// Returns who asks for a `min_rate` that is not held. The `min_rate` of a slice or router with
    /// one vif is that vif's. Towards a port with a cycle, that of a slice is up to its phases.
    fn of_min_rate(&self) -> impl Iterator<Item = Asker<'a>> {
        let (held, cyclic) = (self.port.scheduler.holds(), self.port.cycle.is_some());
        self.askers(
            |share| !share.min_rate.is_zero(),
            move |level, way, vifs| {
                let is_held = held.levels || (held.min_rate && vifs == 1);
                match level {
                    ShareLevel::Vif => held.min_rate,
                    ShareLevel::Slice => is_held || (cyclic && way == Direction::Send),
                    ShareLevel::Router => is_held,
                }
            },
        )
    }

    /// Returns the vifs, slices and routers with a share that asks for a key, where that key is not
    /// held: `is_held` decides by level, direction and number of vifs on the port.
    fn askers(
        &self,
        asks: fn(&Share) -> bool,
        is_held: impl Fn(ShareLevel, Direction, usize) -> bool + Copy,
    ) -> impl Iterator<Item = Asker<'a>> {
        let is_unheld = move |level, vifs, shares: [&Share; 2]| {
            let mut ways = Direction::ALL.iter().zip(shares);
            ways.any(|(way, share)| asks(share) && !is_held(level, *way, vifs))
        };
        let vifs = self.vifs.iter().filter(move |vif| {
            is_unheld(ShareLevel::Vif, 1, Direction::ALL.map(|way| vif.share(way)))
        });
        let slices = self.slices.iter().filter(move |(slice, vifs)| {
            is_unheld(ShareLevel::Slice, *vifs, Direction::ALL.map(|way| slice.share(way)))
        });
        let routers = self.routers.iter().filter(move |(router, vifs)| {
            is_unheld(ShareLevel::Router, *vifs, Direction::ALL.map(|way| router.share(way)))
        });
        vifs.map(|vif| Asker::Vif(vif))
            .chain(slices.map(|(slice, _)| Asker::Slice(slice)))
            .chain(routers.map(|(router, _)| Asker::Router(router)))
    }

    /// Adds an entry for `key` to `list`, if anybody asks for it.
    fn add(
        &self,
        key: &'static str,
        askers: &mut dyn Iterator<Item = Asker<'a>>,
        list: &mut Vec<Unheld>,
    ) {
        let Some(first) = askers.next() else { return };
        let Port { name, scheduler, cycle, .. } = self.port;
        list.push(Unheld {
            port: name.clone(),
            scheduler: *scheduler,
            // Nothing but a cycle keeps a scheduler with levels from holding a slice's key.
            cyclic: cycle.is_some() && scheduler.holds().levels,
            key,
            first: first.to_string(),
            more: askers.count(),
        });
    }
}

impl fmt::Display for Asker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vif(vif) => write!(f, "vif {}", quoted(&vif.name)),
            Self::Slice(slice) => write!(f, "slice {}", quoted(&slice.name)),
            Self::Router(router) => write!(f, "router {}", quoted(&router.name)),
        }
    }
}

/// `port "up0": "drr" does not hold min_rate, asked for by vif "gold.0" and 2 more`; where a
/// cycle is the reason, `"hfsc" in a cycle does not hold priority`.
impl fmt::Display for Unheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, scheduler, cyclic, key, first, more } = self;
        let name = match scheduler {
            SchedulerKind::Hfsc => "hfsc",
            SchedulerKind::Wrr => "wrr",
            SchedulerKind::Drr => "drr",
            SchedulerKind::Wfq => "wfq",
            SchedulerKind::Strict => "strict",
            SchedulerKind::Fifo => "fifo",
        };
        let port = quoted(port);
        let inside = if *cyclic { " in a cycle" } else { "" };
        write!(f, "port {port}: \"{name}\"{inside} does not hold {key}, asked for by {first}")?;
        if *more > 0 { write!(f, " and {more} more") } else { Ok(()) }
    }
}
