// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What vifs got together whose limits of packets are one: their router's, their slice's, and the
//! rate at which XTC holds the router. A vif that was removed within the second is not among them;
//! one that came to a router or left it counts on both sides with its whole second, since counters
//! do not part it.

use std::collections::BTreeMap;

use weir_policy::{Direction, Policy, PortId, RouterId, SliceId, Vif};
use weir_units::{Nanos, PacketRate};

use crate::interval::Flow;

/// Packets of one second, as one policy joins vifs.
pub(super) struct Together<'p> {
    policy: &'p Policy,
    /// Of a router, on all ports.
    routers: BTreeMap<(RouterId, Direction), u64>,
    /// On one port.
    router_ports: BTreeMap<(RouterId, PortId, Direction), u64>,
    slice_ports: BTreeMap<(SliceId, PortId, Direction), u64>,
}

impl<'p> Together<'p> {
    /// Of the policy's vifs, with what they did in either direction.
    pub(super) fn of<'l>(
        policy: &'p Policy,
        each: impl Iterator<Item = (&'l Vif, &'l [Flow; 2])>,
    ) -> Self {
        let mut all = Self {
            policy,
            routers: BTreeMap::new(),
            router_ports: BTreeMap::new(),
            slice_ports: BTreeMap::new(),
        };
        for ((vif, flows), direction) in each.flat_map(|one| Direction::ALL.map(|d| (one, d))) {
            let got = flows[direction as usize].got.packets;
            *all.slice_ports.entry((vif.slice, vif.port, direction)).or_default() += got;
            if let Some(router) = vif.router {
                *all.routers.entry((router, direction)).or_default() += got;
                *all.router_ports.entry((router, vif.port, direction)).or_default() += got;
            }
        }
        all
    }

    /// Whether the vif's router or slice is at a limit of packets, or the router at the rate at
    /// which XTC holds it.
    pub(super) fn at_limit(
        &self,
        time: Nanos,
        vif: &Vif,
        direction: Direction,
        held_pps: Option<u64>,
    ) -> bool {
        let policy = self.policy;
        let got = |sum: Option<&u64>| sum.copied().unwrap_or(0);
        let slice = got(self.slice_ports.get(&(vif.slice, vif.port, direction)));
        is_reached(policy[vif.slice].share(direction).max_pps, slice, time)
            || vif.router.is_some_and(|router| {
                let here = got(self.router_ports.get(&(router, vif.port, direction)));
                let all = got(self.routers.get(&(router, direction)));
                is_reached(policy[router].share(direction).max_pps, here, time)
                    || is_reached(held_pps.map(PacketRate::from_pps), all, time)
            })
    }
}

/// Whether so many packets in that time are all that a limit lets pass, but for a hundredth.
pub(super) fn is_reached(limit: Option<PacketRate>, packets: u64, time: Nanos) -> bool {
    limit.is_some_and(|most| {
        let got = u128::from(packets) * 100 * NANOS_A_SECOND;
        got >= u128::from(most.as_pps()) * 99 * u128::from(time.as_nanos())
    })
}

const NANOS_A_SECOND: u128 = 1_000_000_000;
