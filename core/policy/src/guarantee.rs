// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sums of the guarantees at each level, from the vifs up to the port.

use alloc::collections::BTreeMap;

use weir_units::{BitRate, PacketRate};

use crate::{Direction, Policy, PortId, Router, RouterId, Share, Slice, SliceId, Vif};

/// The sums of one guarantee (`min_rate` on each port, or `min_pps` of the node) in one direction.
/// A router or slice holds the larger of its own value and the sum of its members'.
#[derive(Clone, Debug, Default)]
pub struct Guarantees {
    routers: BTreeMap<(RouterId, PortId), Level>,
    slices: BTreeMap<(SliceId, PortId), Level>,
    ports: BTreeMap<PortId, u64>,
}

/// One router or slice on one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    /// Its own value; zero where none is given.
    pub(crate) own: u64,
    /// The sum of its members'.
    pub(crate) members: u64,
}

impl Guarantees {
    /// The sums of `min_rate`, on each port.
    #[must_use]
    pub fn of_rates(policy: &Policy, direction: Direction) -> Self {
        let value = |share: &Share| share.min_rate.as_bps();
        // Routers and slices without vifs count on the only port, if there is only one.
        let home = if policy.ports.len() == 1 { Some(PortId(0)) } else { None };
        Self::sum(policy, direction, value, |vif| vif.port, home)
    }

    /// The sums of `min_pps` in the node. They do not depend on ports, so one port stands for all.
    #[must_use]
    pub fn of_packets(policy: &Policy, direction: Direction) -> Self {
        let value = |share: &Share| share.min_pps.as_pps();
        Self::sum(policy, direction, value, |_| NODE, Some(NODE))
    }

    fn sum(
        policy: &Policy,
        direction: Direction,
        value: impl Fn(&Share) -> u64,
        port: impl Fn(&Vif) -> PortId,
        home: Option<PortId>,
    ) -> Self {
        let mut sums = Self::default();
        for vif in &policy.vifs {
            let guarantee = value(vif.share(direction));
            match vif.router {
                Some(router) => add(&mut sums.routers, (router, port(vif)), guarantee),
                None => add(&mut sums.slices, (vif.slice, port(vif)), guarantee),
            }
        }
        if let Some(home) = home {
            policy.routers().for_each(|(id, _)| add(&mut sums.routers, (id, home), 0));
            policy.slices().for_each(|(id, _)| add(&mut sums.slices, (id, home), 0));
        }
        for ((id, port), level) in &mut sums.routers {
            let Some(router) = policy.routers.get(id.0 as usize) else { continue };
            level.own = value(router.share(direction));
            add(&mut sums.slices, (router.slice, *port), level.held());
        }
        for ((id, port), level) in &mut sums.slices {
            let Some(slice) = policy.slices.get(id.0 as usize) else { continue };
            level.own = value(slice.share(direction));
            let held = sums.ports.entry(*port).or_default();
            *held = held.saturating_add(level.held());
        }
        sums
    }

    /// The guarantee of `router` on `port`.
    #[must_use]
    pub fn router(&self, router: RouterId, port: PortId) -> BitRate {
        BitRate::from_bps(self.routers.get(&(router, port)).map_or(0, |level| level.held()))
    }

    /// The guarantee of `slice` on `port`.
    #[must_use]
    pub fn slice(&self, slice: SliceId, port: PortId) -> BitRate {
        BitRate::from_bps(self.slices.get(&(slice, port)).map_or(0, |level| level.held()))
    }

    /// The guarantees of all slices on `port`.
    #[must_use]
    pub fn port(&self, port: PortId) -> BitRate {
        BitRate::from_bps(self.ports.get(&port).copied().unwrap_or(0))
    }

    /// The guarantees of all slices in the node, for [`Guarantees::of_packets`].
    #[must_use]
    pub fn node(&self) -> PacketRate {
        PacketRate::from_pps(self.ports.get(&NODE).copied().unwrap_or(0))
    }

    pub(crate) fn routers(&self) -> impl Iterator<Item = (RouterId, PortId, Level)> {
        self.routers.iter().map(|((id, port), level)| (*id, *port, *level))
    }

    pub(crate) fn slices(&self) -> impl Iterator<Item = (SliceId, PortId, Level)> {
        self.slices.iter().map(|((id, port), level)| (*id, *port, *level))
    }
}

impl Level {
    pub(crate) const fn held(self) -> u64 {
        if self.own > self.members { self.own } else { self.members }
    }
}

/// The share of a group of vifs.
pub(crate) trait Group {
    fn direction(&self, direction: Direction) -> &Share;
}

impl Group for Router {
    fn direction(&self, direction: Direction) -> &Share {
        self.share(direction)
    }
}

impl Group for Slice {
    fn direction(&self, direction: Direction) -> &Share {
        self.share(direction)
    }
}

fn add<K: Ord>(sums: &mut BTreeMap<(K, PortId), Level>, key: (K, PortId), value: u64) {
    let members = &mut sums.entry(key).or_default().members;
    *members = members.saturating_add(value);
}

/// The port under which the sums of the node are kept.
const NODE: PortId = PortId(0);
