// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selectors: at any time each packet belongs to at most one connection.

use std::collections::BTreeMap;

use crate::answer::RefusalReason;
use crate::connection::{ConnectionRequest, FlowDirection, FlowSelector, NetworkConnection};
use crate::ids::ConnectionId;
use crate::ledger::FlowKey;
use crate::state::{AdmittedFlows, NetworkState};

impl NetworkState {
    /// Checks that no other connection with an equally specific selector may select packets of a
    /// request.
    pub(crate) fn check_selectors(
        &self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
    ) -> Result<(), RefusalReason> {
        let Some(known) = self.networks.get(&request.network) else { return Ok(()) };
        let old = own.and_then(|id| self.connection(id)).map(|old| &old.request);
        for direction in FlowDirection::BOTH {
            let selector = request.selector_of(direction);
            // A change may keep its selector, even one that was admitted before selectors were
            // checked.
            let has_them = old.is_some_and(|old| {
                old.selector_of(direction) == selector
                    && old.window == request.window
                    && !old.rate_of(direction).is_zero()
            });
            if has_them || request.rate_of(direction).is_zero() {
                continue;
            }
            for (other, (id, _)) in rivals(&known.selectors, selector) {
                let window = self.connection(*id).map(|other| other.request.window);
                let overlaps = window.is_some_and(|window| window.overlaps(request.window));
                if overlaps && Some(*id) != own {
                    return Err(match other == selector {
                        true => RefusalReason::SelectorTaken(*id),
                        false => RefusalReason::SelectorAmbiguous(*id),
                    });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn select(
        &mut self,
        id: ConnectionId,
        request: &ConnectionRequest,
        flows: &AdmittedFlows,
    ) {
        let Some(known) = self.networks.get_mut(&request.network) else { return };
        for (direction, _) in flows.present() {
            let keys = known.selectors.entry(request.selector_of(direction)).or_default();
            keys.push((id, direction));
        }
    }

    pub(crate) fn deselect(&mut self, old: &NetworkConnection) {
        let Some(known) = self.networks.get_mut(&old.request.network) else { return };
        for direction in FlowDirection::BOTH {
            let selector = old.request.selector_of(direction);
            if let Some(keys) = known.selectors.get_mut(&selector) {
                keys.retain(|key| *key != (old.id, direction));
                if keys.is_empty() {
                    known.selectors.remove(&selector);
                }
            }
        }
    }
}

/// The flows that packets of a selector may belong to as well, where neither is more specific:
/// those with an equal selector, and those that name the other port alone.
fn rivals(
    selectors: &BTreeMap<FlowSelector, Vec<FlowKey>>,
    of: FlowSelector,
) -> impl Iterator<Item = (FlowSelector, &FlowKey)> {
    let ports =
        |source_port, destination_port| FlowSelector { source_port, destination_port, ..of };
    let (least, most) = (Some(0), Some(u16::MAX));
    // `None` sorts before every port, so a range of one port can hold any other: `alike` drops
    // these.
    let others = match (of.source_port, of.destination_port) {
        (Some(_), None) => Some(ports(None, least)..=ports(None, most)),
        (None, Some(_)) => Some(ports(least, None)..=ports(most, None)),
        _ => None,
    };
    let others = others.into_iter().flat_map(|range| selectors.range(range));
    let alike = others.filter(move |(other, _)| other.specificity() == of.specificity());
    let all = selectors.get_key_value(&of).into_iter().chain(alike);
    all.flat_map(|(other, keys)| keys.iter().map(|key| (*other, key)))
}
