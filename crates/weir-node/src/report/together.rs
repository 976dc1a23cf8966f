// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What vifs got together whose limits of packets are one: their router's, their slice's, and the
//! rate at which XTC holds the router.

use std::collections::BTreeMap;

use weir_policy::{Direction, Policy, PortId, RouterId, SliceId};
use weir_units::{Nanos, PacketRate};

use super::recorder::Line;

/// Packets of one second.
#[derive(Default)]
pub(super) struct Together {
    /// Of a router, on all ports.
    routers: BTreeMap<(RouterId, Direction), u64>,
    /// On one port.
    router_ports: BTreeMap<(RouterId, PortId, Direction), u64>,
    slice_ports: BTreeMap<(SliceId, PortId, Direction), u64>,
}

impl Together {
    pub(super) fn of(lines: &[Line<'_>]) -> Self {
        let mut all = Self::default();
        for (line, direction) in lines.iter().flat_map(|line| Direction::ALL.map(|d| (line, d))) {
            let (vif, got) = (line.vif, line.flows[direction as usize].got.packets);
            *all.slice_ports.entry((vif.slice, vif.port, direction)).or_default() += got;
            if let Some(router) = vif.router {
                *all.routers.entry((router, direction)).or_default() += got;
                *all.router_ports.entry((router, vif.port, direction)).or_default() += got;
            }
        }
        all
    }

    /// Whether the vif's router or slice is at a limit of packets, by the policy before the second
    /// or the one after it, or the router at the rate at which XTC holds it.
    pub(super) fn at_limit(
        &self,
        time: Nanos,
        (old, policy): (&Policy, &Policy),
        line: &Line<'_>,
        direction: Direction,
    ) -> bool {
        let (vif, held) = (line.vif, line.flows[direction as usize].held_pps);
        let reached = |most: Option<PacketRate>, sum: Option<&u64>| {
            is_reached(most, sum.copied().unwrap_or(0), time)
        };
        let slice = &policy[vif.slice];
        let was = old.slices.iter().find(|one| one.name == slice.name);
        let got = self.slice_ports.get(&(vif.slice, vif.port, direction));
        if [Some(slice), was]
            .into_iter()
            .flatten()
            .any(|slice| reached(slice.share(direction).max_pps, got))
        {
            return true;
        }
        let Some(id) = vif.router else { return false };
        let router = &policy[id];
        let was = old.routers.iter().find(|one| one.name == router.name);
        let got = self.router_ports.get(&(id, vif.port, direction));
        [Some(router), was]
            .into_iter()
            .flatten()
            .any(|router| reached(router.share(direction).max_pps, got))
            || reached(held.map(PacketRate::from_pps), self.routers.get(&(id, direction)))
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
