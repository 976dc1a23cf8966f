// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sums of the guarantees at each level, from the vifs up to the port.
//!
//! A guarantee of a vif is part of its router's, that part of its slice's, and that part of its
//! port's. A router or slice may be guaranteed more than its members together, and then counts with
//! its own value. The host's own guarantee on a port stands beside those of the slices. Checks and
//! schedulers must agree on these sums, so they are computed here once.

use alloc::collections::BTreeMap;

use weir_units::{BitRate, PacketRate};

use crate::{Direction, Policy, PortId, RouterId, Share, SliceId, Vif};

/// The sums of one guarantee (`min_rate` on each port, or `min_pps` of the node) in one direction.
/// A router or slice is guaranteed the larger of its own value and the sum of its members'.
#[derive(Clone, Debug, Default)]
pub struct Guarantees {
    routers: BTreeMap<(RouterId, PortId), GroupSum>,
    slices: BTreeMap<(SliceId, PortId), GroupSum>,
    ports: BTreeMap<PortId, u64>,
}

/// The guarantee of one router or slice on one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupSum {
    /// Its own value; zero if none is given.
    pub(crate) own: u64,
    /// The sum of its members'.
    pub(crate) members: u64,
}

impl Guarantees {
    /// Returns the sums of `min_rate`, on each port.
    #[must_use]
    pub fn of_rates(policy: &Policy, direction: Direction) -> Self {
        let value = |share: &Share| share.min_rate.as_bps();
        // A router or slice without vifs is on no port; with a single port it counts there.
        let only_port = if policy.ports.len() == 1 { Some(PortId(0)) } else { None };
        let mut sums = Self::sum(policy, direction, value, |vif| vif.port, only_port);
        for (id, port) in policy.ports() {
            let sum = sums.ports.entry(id).or_default();
            *sum = sum.saturating_add(port.host_min_rate(direction).as_bps());
        }
        sums
    }

    /// Returns the sums of `min_pps` in the node. They do not depend on ports, so one port stands
    /// for all.
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
        only_port: Option<PortId>,
    ) -> Self {
        let mut sums = Self::default();
        for vif in &policy.vifs {
            let guarantee = value(vif.share(direction));
            match vif.router {
                Some(router) => add(&mut sums.routers, (router, port(vif)), guarantee),
                None => add(&mut sums.slices, (vif.slice, port(vif)), guarantee),
            }
        }
        if let Some(port) = only_port {
            policy.routers().for_each(|(id, _)| add(&mut sums.routers, (id, port), 0));
            policy.slices().for_each(|(id, _)| add(&mut sums.slices, (id, port), 0));
        }
        for ((id, port), level) in &mut sums.routers {
            let Some(router) = policy.routers.get(id.0 as usize) else { continue };
            level.own = value(router.share(direction));
            add(&mut sums.slices, (router.slice, *port), level.promised());
        }
        for ((id, port), level) in &mut sums.slices {
            let Some(slice) = policy.slices.get(id.0 as usize) else { continue };
            level.own = value(slice.share(direction));
            let sum = sums.ports.entry(*port).or_default();
            *sum = sum.saturating_add(level.promised());
        }
        sums
    }

    /// Returns the guarantee of `router` on `port`.
    #[must_use]
    pub fn router(&self, router: RouterId, port: PortId) -> BitRate {
        BitRate::from_bps(self.routers.get(&(router, port)).map_or(0, |level| level.promised()))
    }

    /// Returns the guarantee of `slice` on `port`.
    #[must_use]
    pub fn slice(&self, slice: SliceId, port: PortId) -> BitRate {
        BitRate::from_bps(self.slices.get(&(slice, port)).map_or(0, |level| level.promised()))
    }

    /// Returns the guarantees of all slices and of the host itself on `port`.
    #[must_use]
    pub fn port(&self, port: PortId) -> BitRate {
        BitRate::from_bps(self.ports.get(&port).copied().unwrap_or(0))
    }

    /// Returns the guarantees of all slices in the node, for [`Guarantees::of_packets`].
    #[must_use]
    pub fn node(&self) -> PacketRate {
        PacketRate::from_pps(self.ports.get(&NODE).copied().unwrap_or(0))
    }

    pub(crate) fn routers(&self) -> impl Iterator<Item = (RouterId, PortId, GroupSum)> {
        self.routers.iter().map(|((id, port), level)| (*id, *port, *level))
    }

    pub(crate) fn slices(&self) -> impl Iterator<Item = (SliceId, PortId, GroupSum)> {
        self.slices.iter().map(|((id, port), level)| (*id, *port, *level))
    }
}

impl GroupSum {
    /// Returns the larger of its own value and the sum of its members'.
    pub(crate) const fn promised(self) -> u64 {
        if self.own > self.members { self.own } else { self.members }
    }
}

fn add<K: Ord>(sums: &mut BTreeMap<(K, PortId), GroupSum>, key: (K, PortId), value: u64) {
    let members = &mut sums.entry(key).or_default().members;
    *members = members.saturating_add(value);
}

/// The port under which the sums of the node are kept.
const NODE: PortId = PortId(0);
