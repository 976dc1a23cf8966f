// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sums over vifs that share a packet limit: that of their router, of their slice, or the rate at
//! which XTC holds the router.
//!
//! A vif that was removed within the second is not in the sums. One that joined or left a router
//! counts for both with its whole second, since counters cannot be divided.

use std::collections::BTreeMap;

use weir_policy::{Direction, Policy, PortId, RouterId, SliceId, Vif};
use weir_units::{Nanos, PacketRate};

use crate::interval::IntervalFlow;

/// The packets of one second, summed up by the groups of one policy.
pub(super) struct SharedTotals<'p> {
    policy: &'p Policy,
    /// The sum of each router over all ports.
    routers: BTreeMap<(RouterId, Direction), u64>,
    /// The sum of each router on each port.
    router_ports: BTreeMap<(RouterId, PortId, Direction), u64>,
    slice_ports: BTreeMap<(SliceId, PortId, Direction), u64>,
}

impl<'p> SharedTotals<'p> {
    /// Sums up the traffic of the policy's vifs.
    pub(super) fn of<'l>(
        policy: &'p Policy,
        each: impl Iterator<Item = (&'l Vif, &'l [IntervalFlow; 2])>,
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

    /// Returns true if the vif's router or slice has reached a packet limit, or the router the rate
    /// at which XTC holds it.
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

/// Returns true if so many packets in that time reach a limit, to a hundredth.
pub(super) fn is_reached(limit: Option<PacketRate>, packets: u64, time: Nanos) -> bool {
    limit.is_some_and(|most| {
        let got = u128::from(packets) * 100 * NANOS_A_SECOND;
        got >= u128::from(most.as_pps()) * 99 * u128::from(time.as_nanos())
    })
}

const NANOS_A_SECOND: u128 = 1_000_000_000;
