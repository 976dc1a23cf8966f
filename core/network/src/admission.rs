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
use crate::preemptable_room::PreemptableRoom;
use crate::state::{AdmittedFlows, KnownConnection, NetworkState};
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
    /// The flow that is being changed; its own charge does not count.
    pub(crate) own: Option<FlowKey>,
    /// The other direction's needs, by arc, sorted.
    pub(crate) beside: Vec<(ArcId, u64)>,
}

/// The terms of a search for paths that differ from those of an admission.
#[derive(Clone, Copy, Default)]
pub(crate) struct SearchTerms<'a> {
    /// Room beside what is free.
    pub(crate) room: ExtraRoom<'a>,
    /// Set if paths may share links with connections that are to be disjoint from this one.
    pub(crate) joins: bool,
}

/// Room of arcs beside what is free of them.
#[derive(Clone, Copy, Default)]
pub(crate) enum ExtraRoom<'a> {
    #[default]
    Nothing,
    /// More than the shares, to try what would be enough.
    Shares(&'a [ArcShortage]),
    /// Room of less important connections.
    Preemptable(&'a PreemptableRoom),
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

    /// Adds links to avoid.
    fn keep_off(&mut self, links: Vec<LinkId>) {
        if !links.is_empty() {
            self.avoid_links.extend(links);
            self.avoid_links.sort_unstable();
        }
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
        rate.saturating_add(beside.map_or(0, |place| self.beside[place].1))
    }

    /// The most bits a second that any arc must have free.
    pub(crate) fn most_need(&self) -> u64 {
        let beside = self.beside.iter().map(|(_, rate)| *rate).max();
        self.rate.reserved.as_bps().saturating_add(beside.unwrap_or_default())
    }

    fn has_room(
        &self,
        ledger: &ArcLedger,
        connections: &BTreeMap<ConnectionId, KnownConnection>,
        arc: ArcId,
        room: ExtraRoom<'_>,
    ) -> bool {
        let need = self.need(arc);
        if ledger.has_free(arc, need, self.window, self.own) {
            return true;
        }
        let more = match room {
            ExtraRoom::Nothing => return false,
            ExtraRoom::Shares(shares) => {
                let own = shares.iter().find(|shortage| shortage.arc == arc);
                own.map_or(0, |shortage| shortage.rate.as_bps())
            }
            ExtraRoom::Preemptable(room) => room.on(arc, ledger, connections),
        };
        let free = ledger.free(arc, self.window, self.own);
        more > 0 && i128::from(need) <= free + i128::from(more)
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
    /// Checks all of a request that does not depend on what is free.
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
        self.check_disjoint(request, own)?;
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

    /// Finds paths for both directions of a request that was checked.
    pub(crate) fn find_flows(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        terms: SearchTerms<'_>,
    ) -> Result<AdmittedFlows, Box<FailedFlow>> {
        let [forward, backward] = FlowDirection::BOTH;
        let first = match self.find_in_order(request, own, terms, [forward, backward]) {
            Err(failed) if failed.direction == backward && !failed.question.beside.is_empty() => {
                failed
            }
            outcome => return outcome,
        };
        self.find_in_order(request, own, terms, [backward, forward]).map_err(|_| first)
    }

    fn find_in_order(
        &mut self,
        request: &ConnectionRequest,
        own: Option<ConnectionId>,
        terms: SearchTerms<'_>,
        order: [FlowDirection; 2],
    ) -> Result<AdmittedFlows, Box<FailedFlow>> {
        let mut flows = AdmittedFlows::default();
        let mut beside = Vec::new();
        for direction in order {
            if request.rate_of(direction).is_zero() {
                continue;
            }
            let mut question = self.question(request, direction, own);
            if !terms.joins {
                question.keep_off(self.links_to_leave(own));
            }
            question.beside = core::mem::take(&mut beside);
            let rate = question.rate;
            match self.best_path(request, &question, PathObjective::Cost, terms.room) {
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

    /// The rates that a path adds to its arcs' charges, which the other direction must leave free.
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

    /// The question of a direction of a request that was checked. It does not avoid the links of
    /// connections that are to be disjoint from this one: [`Self::links_to_leave`] returns these.
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
                avoid_links.extend(self.links_of_all(flows));
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
        }
    }

    /// The best path for a question.
    pub(crate) fn best_path(
        &mut self,
        request: &ConnectionRequest,
        question: &FlowQuestion,
        objective: PathObjective,
        room: ExtraRoom<'_>,
    ) -> PathOutcome {
        let Some(known) = self.networks.get(&request.network) else { return PathOutcome::NoPath };
        let (topology, connections) = (&self.topology, &self.connections);
        self.finder.find(question.query(objective), |arc| {
            question.may_pass(topology, arc)
                && question.has_room(&known.ledger, connections, arc, room)
        })
    }
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
