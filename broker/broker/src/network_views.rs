// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks, and their policing, as a caller of the interface sees them.

use std::collections::{BTreeMap, BTreeSet};

use weir_broker_api_types::{HostGateway, LinkUse, NetworkView, PolicingReport, RouterState};
use weir_network::NetworkId;

use crate::config::BrokerToken;
use crate::directory::ConfiguredNetwork;
use crate::failures::in_brief;
use crate::routes::BrokerInterface;
use crate::state::BrokerState;

impl BrokerInterface {
    /// Returns the networks that a caller sees.
    pub(crate) fn views(&self, caller: &BrokerToken) -> Vec<NetworkView> {
        self.locked(|state| {
            let seen = state.directory.networks().filter(|(_, network)| caller.sees(&network.name));
            let sees_all = caller.network.is_none();
            seen.map(|(id, network)| self.network_view((id, network), state, sees_all)).collect()
        })
    }

    /// Returns the part of the report of policing that a caller sees.
    pub(crate) fn policing_of(&self, caller: &BrokerToken) -> PolicingReport {
        let mut report = PolicingReport::clone(&self.policing.borrow());
        if caller.network.is_some() {
            report.networks.retain(|of| caller.sees(&of.network));
            report.nodes.clear();
        }
        report
    }

    /// Returns a network; faults of nodes in brief for who does not see all networks, since they
    /// name parts of each.
    fn network_view(
        &self,
        (id, network): (NetworkId, &ConfiguredNetwork),
        state: &BrokerState,
        sees_all: bool,
    ) -> NetworkView {
        let (mut routers, mut nodes) = (BTreeSet::new(), BTreeSet::new());
        let mut links = Vec::new();
        for (arc, known) in state.directory.arcs(id) {
            routers.extend([known.from.as_str(), known.to.as_str()]);
            nodes.extend(&known.nodes);
            let (reserved_bps, reservable_bps) = state.network.use_of(id, arc).unwrap_or_default();
            links.push(LinkUse {
                link: known.link.clone(),
                from: known.from.clone(),
                to: known.to.clone(),
                over: known.over.clone(),
                colours: known.colours.clone(),
                reservable_bps,
                reserved_bps,
                set_down: state.failed.is_set_down(&network.name, &known.link),
                fault: if sees_all {
                    state.failed.fault_of(&network.name, known)
                } else {
                    state.failed.own_fault_of(&network.name, known)
                },
            });
        }
        let queues = self.nodes.borrow();
        let told = &state.observed;
        let told_routers: BTreeMap<_, _> =
            told.routers.iter().map(|of| (of.name.as_str(), of)).collect();
        let routers = routers.into_iter().filter_map(|name| match queues.get(name) {
            Some(node) => Some(node.status().router),
            None => told_routers.get(name).copied().cloned(),
        });
        let kept = self.kept_nodes.borrow();
        let nodes = nodes.into_iter().filter_map(|name| match kept.get(name) {
            Some(node) => Some(node.status().node),
            None => told.nodes.iter().find(|of| of.name == *name).cloned(),
        });
        let nodes = nodes.map(|node| match node.fault {
            Some(_) if !sees_all => {
                RouterState { fault: Some(in_brief(!node.reachable).to_owned()), ..node }
            }
            _ => node,
        });
        let gateways = state
            .directory
            .hosts(id)
            .map(|(_, host)| HostGateway { host: host.name.clone(), router: host.router.clone() });
        NetworkView {
            name: network.name.clone(),
            routers: routers.collect(),
            nodes: nodes.collect(),
            gateways: gateways.collect(),
            hosts: state.directory.hosts(id).map(|(_, host)| host.name.clone()).collect(),
            links,
            connections: state.network.count_of(id),
        }
    }
}
