// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides whether a request is admitted, and on which paths.
//!
//! Each direction has its own question: rate, limits, what to avoid. The paths are found one after
//! the other, the second beside the charge of the first, since both may pass one arc; if the second
//! fails, they are tried in the other order.

use std::collections::BTreeMap;

use crate::accounting::{AccountedRate, PACKET_MIN, REQUEST_RATE_MAX, TUNNEL_MTU};
use crate::answer::{ArcShortage, RefusalReason};
use crate::connection::{
    ConnectionRequest, FlowDirection, FlowSelector, RateBasis, RoutedPath, TimeWindow,
};
use crate::ids::{ArcId, ConnectionId, EndNodeId, LinkId, NodeId};
use crate::ledger::{ArcLedger, FlowKey};
use crate::path_search::{PathObjective, PathOutcome, PathQuery};
use crate::state::{AdmittedFlows, NetworkState};
use crate::topology::NetworkTopology;

/// One direction's demands on its path.
#[derive(Clone, Debug)]
pub(crate) struct FlowQuestion {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) rate: AccountedRate,
    pub(crate) delay: u64,
    pub(crate) hops: u32,
    pub(crate) include_all: u32,
    pub(crate) exclude_any: u32,
    pub(crate) avoid_links: Vec<LinkId>,
    pub(crate) avoid_nodes: Vec<NodeId>,
    pub(crate) window: TimeWindow,
    /// Whose own charge does not count, while it changes.
    pub(crate) own: Option<FlowKey>,
    /// The other direction's needs, by arc, sorted.
    pub(crate) beside: Vec<(ArcId, u64)>,
    /// More than the shares, to try what would be enough.
    pub(crate) bonus: Vec<ArcShortage>,
}

impl FlowQuestion {
    /// Tells whether a path may pass an arc, whatever the rate.
    pub(crate) fn may_pass(&self, topology: &NetworkTopology, arc: ArcId) -> bool {
        let Some(known) = topology.arc(arc) else { return false };
        topology.is_usable(arc)
            && known.affinity & self.include_all == self.include_all
            && known.affinity & self.exclude_any == 0
            && self.avoid_links.binary_search(&known.link).is_err()
            && (known.to == self.to || self.avoid_nodes.binary_search(&known.to).is_err())
    }

    /// The query for its best path by an objective.
    pub(crate) const fn query(&self, objective: PathObjective) -> PathQuery {
        let Self { from, to, delay, hops, .. } = *self;
        PathQuery { from, to, objective, delay, hops }
    }

    /// The bits a second that an arc must have free.
    pub(crate) fn need(&self, arc: ArcId) -> u64 {
        let rate = self.rate.reserved.as_bps();
        let beside = self.beside.binary_search_by_key(&arc, |(arc, _)| *arc);
        let beside = beside.map_or(0, |place| self.beside[place].1);
        let bonus = self.bonus.iter().find(|shortage| shortage.arc == arc);
        let bonus = bonus.map_or(0, |shortage| shortage.rate.as_bps());
        rate.saturating_add(beside).saturating_sub(bonus)
    }

    fn has_room(&self, ledger: &ArcLedger, arc: ArcId) -> bool {
        ledger.has_free(arc, self.need(arc), self.window, self.own)
    }
}

/// A direction without a path.
#[derive(Debug)]
pub(crate) struct FailedFlow {
    pub(crate) direction: FlowDirection,
    pub(crate) question: FlowQuestion,
    pub(crate) is_exhausted: bool,
}

impl NetworkState {
    /// Checks all of a request that does not depend on what is free, and finds its gateways.
    pub(crate) fn check(
        &self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
    ) -> Result<(), RefusalReason> {
        if !self.networks.contains_key(&request.network) {
            return Err(RefusalReason::UnknownNetwork(request.network));
        }
        let FlowSelector { source, destination, .. } = request.selector;
        for (id, address) in [(request.source, source), (request.destination, destination)] {
            let Some(end_node) = self.end_nodes.get(&id) else {
                return Err(RefusalReason::UnknownEndNode(id));
            };
            if end_node.network != request.network {
                return Err(RefusalReason::ForeignEndNode(id));
            }
            if !end_node.addresses.contains(&address) {
                return Err(RefusalReason::ForeignAddress(id));
            }
        }
        check_rates(request)?;
        if request.window.is_empty() {
            return Err(RefusalReason::EmptyWindow);
        }
        for direction in FlowDirection::BOTH {
            let Some(other) = request.limits.of(direction).disjoint_from else { continue };
            let Some(known) = self.connections.get(&other) else {
                return Err(RefusalReason::UnknownConnection(other));
            };
            if known.connection.request.network != request.network {
                return Err(RefusalReason::ForeignConnection(other));
            }
        }
        if own.is_none() && self.connections.len() >= self.limits.connections {
            let most = self.limits.connections as u64;
            return Err(RefusalReason::TooManyConnections { most });
        }
        let full = self.networks.get(&request.network).filter(|known| known.is_full());
        if let (None, Some(known)) = (own, full) {
            let most = known.network.connections as u64;
            return Err(RefusalReason::NetworkFull { most });
        }
        self.check_selectors(request, own)
    }

    fn check_selectors(
        &self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
    ) -> Result<(), RefusalReason> {
        let Some(known) = self.networks.get(&request.network) else { return Ok(()) };
        let old = own.and_then(|id| self.connection(id)).map(|old| &old.request);
        for direction in FlowDirection::BOTH {
            let selector = request.selector_of(direction);
            // A change keeps the packets that it has, also if it got them before this was checked.
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

    /// Finds paths for both directions of a request that was checked.
    pub(crate) fn find_flows(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        bonus: &[ArcShortage],
    ) -> Result<AdmittedFlows, Box<FailedFlow>> {
        let [forward, backward] = FlowDirection::BOTH;
        let first = match self.find_in_order(request, own, bonus, [forward, backward]) {
            Err(failed) if failed.direction == backward && !failed.question.beside.is_empty() => {
                failed
            }
            outcome => return outcome,
        };
        self.find_in_order(request, own, bonus, [backward, forward]).map_err(|_| first)
    }

    fn find_in_order(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        bonus: &[ArcShortage],
        order: [FlowDirection; 2],
    ) -> Result<AdmittedFlows, Box<FailedFlow>> {
        let mut flows = AdmittedFlows::default();
        let mut beside = Vec::new();
        for direction in order {
            if request.rate_of(direction).is_zero() {
                continue;
            }
            let mut question = self.question(request, direction, own);
            question.beside = core::mem::take(&mut beside);
            question.bonus = bonus.to_vec();
            let rate = question.rate;
            match self.best_path(request, &question, PathObjective::Cost) {
                PathOutcome::Found(path) => {
                    beside = self.needs_beside(request, direction, own, rate, &path);
                    *flows.of_mut(direction) = Some(rate.on(path));
                }
                outcome => {
                    let is_exhausted = outcome == PathOutcome::Exhausted;
                    return Err(Box::new(FailedFlow { direction, question, is_exhausted }));
                }
            }
        }
        Ok(flows)
    }

    /// The rates that a path adds to its arcs' charges, which the other direction must leave.
    fn needs_beside(
        &self,
        request: &ConnectionRequest,
        direction: FlowDirection,
        own: Option<ConnectionId>,
        rate: AccountedRate,
        path: &RoutedPath,
    ) -> Vec<(ArcId, u64)> {
        let ledger = self.networks.get(&request.network).map(|known| &known.ledger);
        let added = path.arcs.iter().map(|arc| {
            let old =
                ledger.zip(own).map_or(0, |(ledger, id)| ledger.charge_of(*arc, (id, direction)));
            (*arc, rate.reserved.as_bps().saturating_sub(old))
        });
        let mut added: Vec<_> = added.collect();
        added.sort_unstable();
        added
    }

    /// The question of a direction of a request that was checked.
    pub(crate) fn question(
        &self,
        request: &ConnectionRequest,
        direction: FlowDirection,
        own: Option<ConnectionId>,
    ) -> FlowQuestion {
        let limits = request.limits.of(direction);
        let gateway = |id: EndNodeId| self.end_nodes.get(&id).map_or(NodeId(0), |end| end.gateway);
        let (source, destination) = (gateway(request.source), gateway(request.destination));
        let (from, to) = match direction {
            FlowDirection::Forward => (source, destination),
            FlowDirection::Backward => (destination, source),
        };
        let mut avoid_links = limits.avoid_links.clone();
        if let Some(other) = limits.disjoint_from.and_then(|id| self.connections.get(&id)) {
            let flows = [Some(&other.connection.flows), other.next.as_ref().map(|next| &next.1)];
            for flows in flows.into_iter().flatten() {
                avoid_links.extend(self.links_of(flows));
            }
        }
        avoid_links.sort_unstable();
        let mut avoid_nodes = limits.avoid_nodes.clone();
        avoid_nodes.sort_unstable();
        FlowQuestion {
            from,
            to,
            rate: self.accounting.account(request.rate_of(direction), request.basis),
            delay: limits.delay.map_or(u64::MAX, weir_units::Nanos::as_nanos),
            hops: limits.hops.map_or(u32::MAX, u32::from),
            include_all: limits.include_all,
            exclude_any: limits.exclude_any,
            avoid_links,
            avoid_nodes,
            window: request.window,
            own: own.map(|id| (id, direction)),
            beside: Vec::new(),
            bonus: Vec::new(),
        }
    }

    /// Notes that links fail together, since they lie over one physical link: paths that are to be
    /// disjoint share none of them. A link is in at most one such group.
    pub fn add_shared_risk_group(&mut self, links: &[LinkId]) {
        self.shared_risk.extend(links.iter().map(|link| (*link, links.to_vec())));
    }

    /// The links that fail with a link, as far as that was noted.
    fn sharing_risk(&self, link: LinkId) -> impl Iterator<Item = LinkId> {
        self.shared_risk.get(&link).into_iter().flatten().copied()
    }

    fn links_of(&self, flows: &AdmittedFlows) -> Vec<LinkId> {
        let arcs = flows.present().flat_map(|(_, flow)| &flow.path.arcs);
        let links = arcs.filter_map(|arc| self.topology.arc(*arc)).map(|arc| arc.link);
        links.flat_map(|link| self.sharing_risk(link).chain([link])).collect()
    }

    /// The best path for a question.
    pub(crate) fn best_path(
        &mut self,
        request: &ConnectionRequest,
        question: &FlowQuestion,
        objective: PathObjective,
    ) -> PathOutcome {
        let Some(known) = self.networks.get(&request.network) else { return PathOutcome::NoPath };
        let topology = &self.topology;
        self.finder.find(question.query(objective), |arc| {
            question.may_pass(topology, arc) && question.has_room(&known.ledger, arc)
        })
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
    // No port is less than any.
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

fn check_rates(request: &ConnectionRequest) -> Result<(), RefusalReason> {
    let rates = FlowDirection::BOTH.map(|direction| request.rate_of(direction));
    if rates.iter().all(|rate| rate.is_zero()) {
        return Err(RefusalReason::NoRate);
    }
    if let Some(rate) = rates.into_iter().find(|rate| *rate > REQUEST_RATE_MAX) {
        let (asked, most) = (rate.as_bps(), REQUEST_RATE_MAX.as_bps());
        return Err(RefusalReason::RateTooHigh { asked, most });
    }
    match request.basis {
        RateBasis::Inner { smallest_packet: asked }
            if !(PACKET_MIN..=TUNNEL_MTU).contains(&asked) =>
        {
            Err(RefusalReason::SmallestPacket { asked, least: PACKET_MIN, most: TUNNEL_MTU })
        }
        _ => Ok(()),
    }
}
