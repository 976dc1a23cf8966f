// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists each `priority`, `min_rate` and `delay` that a policy sets and the scheduler of the port
//! does not hold, so that none is dropped silently.
//!
//! A flat scheduler has a class for each vif, and none for slices and routers. Towards a port with
//! a cycle, the phases of a slice stand in the place of its share of the link.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use weir_units::Nanos;

use crate::format::quoted;
use crate::{Direction, Policy, Port, PortId, Router, SchedulerKind, Share, Slice, SliceId, Vif};

/// One key that the scheduler of one port does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unheld {
    /// The port's name.
    pub port: String,
    /// Its scheduler.
    pub scheduler: SchedulerKind,
    /// True if the port's cycle is the reason: the scheduler alone would hold the key.
    pub cyclic: bool,
    /// The key, with its direction: `send.priority`, `receive.min_rate`, `delay`.
    pub key: &'static str,
    /// The first vif, slice or router on the port that asks for it, such as `vif "gold.0"`.
    pub first: String,
    /// The number of further vifs, slices and routers that ask for it.
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
    /// Returns the parts that the scheduler holds.
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

/// A vif, slice or router.
enum PolicyItem<'a> {
    Vif(&'a Vif),
    Slice(&'a Slice),
    Router(&'a Router),
}

/// A vif, slice or router on a port.
struct PortMember<'a> {
    item: PolicyItem<'a>,
    /// Its vifs on the port.
    vifs: usize,
    /// True if no other vif of its slice is on the port: the phases of the slice are its own.
    alone_in_slice: bool,
    /// The part of the port's cycle in which its slice has no phase.
    closed: Nanos,
}

/// A port, and the vifs, slices and routers whose frames pass it.
struct PortMembers<'a> {
    port: &'a Port,
    members: Vec<PortMember<'a>>,
}

impl Policy {
    /// Returns the keys that are asked for and not held: one entry for each port and key. Empty
    /// where every port has `hfsc` and no cycle.
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
            let members = PortMembers::of(self, id);
            for way in Direction::ALL {
                list.extend(members.unheld_priority(way));
                list.extend(members.unheld_min_rate(way));
            }
            list.extend(members.unheld_delay());
        }
        list
    }
}

impl<'a> PortMembers<'a> {
    fn of(policy: &'a Policy, port: PortId) -> Self {
        let vifs: Vec<&Vif> = policy.vifs.iter().filter(|vif| vif.port == port).collect();
        let (mut slices, mut routers) = (BTreeMap::new(), BTreeMap::new());
        for vif in &vifs {
            *slices.entry(vif.slice).or_insert(0) += 1;
            if let Some(router) = vif.router {
                *routers.entry(router).or_insert(0) += 1;
            }
        }
        let cycle = policy[port].cycle.map_or(Nanos::ZERO, |cycle| cycle.length);
        // A policy that was not checked may name a slice or router that it does not have.
        let slice_of = |id: SliceId| policy.slices.get(id.0 as usize);
        let member = |item, vifs, id: SliceId| {
            let phase = slice_of(id).and_then(|slice| slice.phase).unwrap_or(Nanos::ZERO);
            let alone_in_slice = slices.get(&id) == Some(&vifs);
            PortMember { item, vifs, alone_in_slice, closed: cycle.saturating_sub(phase) }
        };
        let vifs = vifs.iter().map(|vif| member(PolicyItem::Vif(vif), 1, vif.slice));
        let named = slices.iter().filter_map(|(id, vifs)| {
            slice_of(*id).map(|slice| member(PolicyItem::Slice(slice), *vifs, *id))
        });
        let routers = routers.iter().filter_map(|(id, vifs)| {
            let router = policy.routers.get(id.0 as usize)?;
            Some(member(PolicyItem::Router(router), *vifs, router.slice))
        });
        Self { port: &policy[port], members: vifs.chain(named).chain(routers).collect() }
    }

    /// Returns true if each slice has its phases in this direction.
    const fn in_phases(&self, way: Direction) -> bool {
        self.port.cycle.is_some() && matches!(way, Direction::Send)
    }

    /// Returns the entry for `priority`. In phases, the priority of a slice means nothing.
    fn unheld_priority(&self, way: Direction) -> Option<Unheld> {
        let (held, in_phases) = (self.port.scheduler.holds(), self.in_phases(way));
        let is_held = |member: &PortMember<'_>| match member.item {
            PolicyItem::Vif(_) => held.priority,
            PolicyItem::Slice(_) => held.levels && !in_phases,
            PolicyItem::Router(_) => held.levels,
        };
        let key = match way {
            Direction::Send => "send.priority",
            Direction::Receive => "receive.priority",
        };
        let asks = |member: &PortMember<'_>| member.share(way).priority != 1;
        self.entry(key, |_| held.levels, |member| asks(member) && !is_held(member))
    }

    /// Returns the entry for `min_rate`. WRR holds the `min_rate` of a slice or router with one
    /// vif, by that vif's class. Phases carry what is guaranteed to a slice, or the policy is
    /// refused.
    fn unheld_min_rate(&self, way: Direction) -> Option<Unheld> {
        let (held, in_phases) = (self.port.scheduler.holds(), self.in_phases(way));
        let by_class = |member: &PortMember<'_>| held.min_rate && member.vifs == 1;
        let lost = |member: &PortMember<'_>| in_phases && member.closed > WRR_CATCH_UP;
        let is_held = |member: &PortMember<'_>| {
            held.levels
                || (by_class(member) && !lost(member))
                || (in_phases && member.alone_in_slice)
        };
        let key = match way {
            Direction::Send => "send.min_rate",
            Direction::Receive => "receive.min_rate",
        };
        let asks = |member: &PortMember<'_>| !member.share(way).min_rate.is_zero();
        self.entry(key, by_class, |member| asks(member) && !is_held(member))
    }

    /// Returns the entry for `delay`. In phases a frame also waits while they are closed.
    fn unheld_delay(&self) -> Option<Unheld> {
        let has_bound = self.port.scheduler.holds().delay;
        let asks = |member: &PortMember<'_>| match member.item {
            PolicyItem::Vif(vif) => vif.delay.is_some(),
            PolicyItem::Slice(_) | PolicyItem::Router(_) => false,
        };
        let is_held = |member: &PortMember<'_>| has_bound && member.closed == Nanos::ZERO;
        self.entry("delay", |_| has_bound, |member| asks(member) && !is_held(member))
    }

    /// Returns an entry, if there is a member whose key is not held. `alone_holds` tells whether
    /// the scheduler would hold it on a port without a cycle; the first such member decides.
    fn entry(
        &self,
        key: &'static str,
        alone_holds: impl Fn(&PortMember<'a>) -> bool,
        is_unheld: impl Fn(&PortMember<'a>) -> bool,
    ) -> Option<Unheld> {
        let mut unheld = self.members.iter().filter(|member| is_unheld(member));
        let first = unheld.next()?;
        let Port { name, scheduler, .. } = self.port;
        let (cyclic, first) = (alone_holds(first), first.item.to_string());
        let (port, scheduler, more) = (name.clone(), *scheduler, unheld.count());
        Some(Unheld { port, scheduler, cyclic, key, first, more })
    }
}

impl PortMember<'_> {
    fn share(&self, way: Direction) -> &Share {
        match self.item {
            PolicyItem::Vif(vif) => vif.share(way),
            PolicyItem::Slice(slice) => slice.share(way),
            PolicyItem::Router(router) => router.share(way),
        }
    }
}

impl fmt::Display for PolicyItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vif(vif) => write!(f, "vif {}", quoted(&vif.name)),
            Self::Slice(slice) => write!(f, "slice {}", quoted(&slice.name)),
            Self::Router(router) => write!(f, "router {}", quoted(&router.name)),
        }
    }
}

/// `port "up0": "drr" does not hold send.min_rate, asked for by vif "gold.0" and 2 more`; where a
/// cycle is the reason, `"hfsc" in a cycle does not hold send.priority`.
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

/// The longest time without a phase that WRR makes up for: `MINIMUM_CATCH_UP` of `weir-sched`.
pub const WRR_CATCH_UP: Nanos = Nanos::from_millis(100);
