// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of tunnels: the broker gives them for each router on its own.
//!
//! A tunnel's entry has a device, rules and tables, and one number is in the names of all of them.
//! So it is unique among the tunnels that enter at one router, and any number of routers have as
//! many each. The outer address, by which routers on the way tell tunnels apart, has the router of
//! the entry and that number.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weir_network::{AdmittedFlows, ByDirection, FlowDirection, NetworkTopology, NodeId};

/// Number of a tunnel at the router where it enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EntryNumber {
    /// The router.
    pub(crate) node: NodeId,
    /// Unique among the tunnels that enter there, from 1 to [`TUNNELS_PER_ROUTER_MAX`].
    pub(crate) number: u16,
    /// True if the outer address does not name the router: before version 6 of the store, no two
    /// tunnels of any routers had one number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_store_wide: bool,
}

/// Numbers of a connection's tunnels.
pub(crate) type EntryNumbers = ByDirection<Option<EntryNumber>>;

/// The numbers that are in use, by router.
#[derive(Debug, Default)]
pub(crate) struct TunnelNumbers {
    routers: BTreeMap<NodeId, RouterNumbers>,
}

/// Numbers of one router.
#[derive(Debug, Default)]
struct RouterNumbers {
    /// The largest number that is or was in use.
    highest: u16,
    /// Numbers up to that one that are free.
    free: BTreeSet<u16>,
}

impl TunnelNumbers {
    /// Finds the lowest free number at the router where each direction's tunnel enters, and takes
    /// none.
    ///
    /// # Errors
    /// The router whose numbers are all in use.
    pub(crate) fn find(
        &self,
        entries: impl Iterator<Item = (FlowDirection, NodeId)>,
    ) -> Result<EntryNumbers, NodeId> {
        let mut found = EntryNumbers::default();
        for (direction, node) in entries {
            let number = self.routers.get(&node).map_or(Some(1), RouterNumbers::lowest);
            let number = number.ok_or(node)?;
            *found.of_mut(direction) = Some(EntryNumber { node, number, is_store_wide: false });
        }
        Ok(found)
    }

    /// Takes numbers.
    pub(crate) fn take(&mut self, numbers: EntryNumbers) {
        for (_, EntryNumber { node, number, .. }) in numbers.present() {
            self.routers.entry(*node).or_default().take(*number);
        }
    }

    /// Gives numbers back.
    pub(crate) fn give_back(&mut self, numbers: EntryNumbers) {
        for (_, EntryNumber { node, number, .. }) in numbers.present() {
            if let Some(router) = self.routers.get_mut(node) {
                router.free.insert(*number);
            }
        }
    }
}

impl RouterNumbers {
    fn lowest(&self) -> Option<u16> {
        let next = || (self.highest < TUNNELS_PER_ROUTER_MAX).then_some(self.highest + 1);
        self.free.first().copied().or_else(next)
    }

    fn take(&mut self, number: u16) {
        if number > self.highest {
            self.free.extend(self.highest + 1..number);
            self.highest = number;
        }
        self.free.remove(&number);
    }
}

/// Returns the numbers of tunnels that were stored before version 6, when a connection had one
/// number and its tunnels the next two.
pub(crate) fn store_wide(
    connection: u16,
    topology: &NetworkTopology,
    flows: &AdmittedFlows,
) -> EntryNumbers {
    let mut numbers = EntryNumbers::default();
    for (direction, node) in entries(topology, flows) {
        let number = connection
            .saturating_mul(2)
            .saturating_add(u16::from(direction == FlowDirection::Backward));
        *numbers.of_mut(direction) = Some(EntryNumber { node, number, is_store_wide: true });
    }
    numbers
}

/// Returns the router where each flow enters.
fn entries(
    topology: &NetworkTopology,
    flows: &AdmittedFlows,
) -> impl Iterator<Item = (FlowDirection, NodeId)> {
    flows.present().filter_map(|(direction, flow)| {
        let first = topology.arc(*flow.path.arcs.first()?)?;
        Some((direction, first.from))
    })
}

/// Most tunnels that enter at one router: their marks have 16 bits for them, and the preferences of
/// their rules 79 places for groups of 64.
pub(crate) const TUNNELS_PER_ROUTER_MAX: u16 = 4999;

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(node: u32, number: u16) -> EntryNumbers {
        let forward = EntryNumber { node: NodeId(node), number, is_store_wide: false };
        EntryNumbers { forward: Some(forward), backward: None }
    }

    /// Goal: each router gives its lowest free number, whatever others have given, and none beyond
    /// the bound.
    #[test]
    fn each_router_gives_its_lowest_free_number() {
        let mut all = TunnelNumbers::default();
        let lowest =
            |all: &TunnelNumbers, node| all.routers.get(&NodeId(node)).and_then(|of| of.lowest());
        all.take(numbers(1, 3));
        assert_eq!((lowest(&all, 1), lowest(&all, 2)), (Some(1), None));
        all.take(numbers(1, 1));
        all.take(numbers(2, 1));
        assert_eq!((lowest(&all, 1), lowest(&all, 2)), (Some(2), Some(2)));
        all.take(numbers(1, 2));
        assert_eq!(lowest(&all, 1), Some(4));
        all.give_back(numbers(1, 3));
        all.give_back(numbers(1, 2));
        assert_eq!(lowest(&all, 1), Some(2));
        for number in 1..=TUNNELS_PER_ROUTER_MAX {
            all.take(numbers(2, number));
        }
        assert_eq!(lowest(&all, 2), None);
        all.give_back(numbers(2, TUNNELS_PER_ROUTER_MAX));
        assert_eq!(lowest(&all, 2), Some(TUNNELS_PER_ROUTER_MAX));
    }
}
