// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The physical network, its virtual networks and their connections: the state that decisions are
//! made from.
//!
//! It mirrors the broker's store. A decision ([`crate::NetworkState::admit`]) changes nothing; a
//! charge does. Each charge checks again that it fits, so a stale decision ends in an error and
//! never in an overbooked arc.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::accounting::TunnelAccounting;
use crate::connection::{
    AdmittedFlow, ByDirection, ConnectionRequest, FlowSelector, NetworkConnection, TimeWindow,
};
use crate::error::{NetworkError, at_most};
use crate::finder::{PathFinder, PathFinderLimits};
use crate::ids::{ArcId, ConnectionId, EndNodeId, LinkId, NetworkId, NodeId};
use crate::ledger::{ArcLedger, ChargeSide, FlowKey};
use crate::lifecycle::ConnectionState;
use crate::topology::NetworkTopology;
use crate::virtual_network::{EndNode, VirtualNetwork};

/// Bounds of a network's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Most virtual networks.
    pub networks: usize,
    /// Most end nodes.
    pub end_nodes: usize,
    /// Most connections.
    pub connections: usize,
    /// Bounds of path searches.
    pub paths: PathFinderLimits,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            networks: 4094,
            end_nodes: 100_000,
            connections: 1_000_000,
            paths: PathFinderLimits::default(),
        }
    }
}

/// Both directions of what was admitted.
pub type AdmittedFlows = ByDirection<Option<AdmittedFlow>>;

/// A connection as it was before a change, and the request and flows after it.
type EndedChange = (NetworkConnection, (ConnectionRequest, AdmittedFlows));

/// The physical network, the virtual networks on it, and their connections.
#[derive(Debug)]
pub struct NetworkState {
    pub(crate) topology: NetworkTopology,
    pub(crate) finder: PathFinder,
    pub(crate) accounting: TunnelAccounting,
    pub(crate) limits: NetworkLimits,
    pub(crate) networks: BTreeMap<NetworkId, KnownNetwork>,
    pub(crate) end_nodes: BTreeMap<EndNodeId, EndNode>,
    pub(crate) connections: BTreeMap<ConnectionId, KnownConnection>,
    /// Connections for which nothing is charged, or that are broken.
    pub(crate) without_room: BTreeSet<ConnectionId>,
    /// The number of nodes and arcs that are down.
    pub(crate) parts_down: usize,
    /// By arc: the sum of all networks' shares.
    pub(crate) promised: Vec<u64>,
    /// Pairs of a connection and another that is to be disjoint from it.
    pub(crate) named_by: BTreeSet<(ConnectionId, ConnectionId)>,
    /// By link: the link and all others that fail with it.
    pub(crate) shared_risk: BTreeMap<LinkId, Vec<LinkId>>,
}

#[derive(Debug)]
pub(crate) struct KnownNetwork {
    pub(crate) network: VirtualNetwork,
    pub(crate) ledger: ArcLedger,
    /// Flows, by the selector of their packets.
    pub(crate) selectors: BTreeMap<FlowSelector, Vec<FlowKey>>,
    /// The number of the network's connections.
    connections: usize,
}

impl KnownNetwork {
    /// Tells whether the network has as many connections as it may have.
    pub(crate) const fn is_full(&self) -> bool {
        self.connections >= self.network.connections
    }
}

#[derive(Clone, Debug)]
pub(crate) struct KnownConnection {
    pub(crate) connection: NetworkConnection,
    /// The request and flows that a change leads to.
    pub(crate) next: Option<(ConnectionRequest, AdmittedFlows)>,
    /// Set while nothing is charged for its present flows.
    pub(crate) is_suspended: bool,
}

impl NetworkState {
    /// A network without virtual networks.
    ///
    /// # Errors
    ///
    /// Names the fault of the topology or of the accounting.
    pub fn new(
        topology: NetworkTopology,
        accounting: TunnelAccounting,
        limits: NetworkLimits,
    ) -> Result<Self, NetworkError> {
        accounting.validate()?;
        let finder = PathFinder::new(&topology, limits.paths)?;
        let nodes_down = topology.nodes.iter().filter(|node| !node.is_up).count();
        let arcs_down = topology.arcs.iter().filter(|arc| !arc.is_up).count();
        Ok(Self {
            promised: vec![0; topology.arcs.len()],
            topology,
            finder,
            accounting,
            limits,
            networks: BTreeMap::new(),
            end_nodes: BTreeMap::new(),
            connections: BTreeMap::new(),
            without_room: BTreeSet::new(),
            named_by: BTreeSet::new(),
            shared_risk: BTreeMap::new(),
            parts_down: nodes_down + arcs_down,
        })
    }

    /// Admits a virtual network against the links.
    ///
    /// # Errors
    ///
    /// Names the first share that does not fit, or another value that exceeds its bound.
    pub fn add_network(&mut self, network: VirtualNetwork) -> Result<(), NetworkError> {
        if self.networks.contains_key(&network.id) {
            return Err(NetworkError::Exists { thing: "network", id: u64::from(network.id.0) });
        }
        at_most("virtual networks", self.networks.len() + 1, self.limits.networks)?;
        let (id, vlan) = (network.id, network.vlan);
        let is_taken = self.networks.values().any(|other| other.network.vlan == vlan);
        if is_taken || !(1..=4094).contains(&vlan) {
            return Err(NetworkError::Vlan { network: id, vlan });
        }
        let mut shares = network.shares.clone();
        shares.sort_by_key(|share| share.arc);
        if let Some(twice) = shares.windows(2).find(|pair| pair[0].arc == pair[1].arc) {
            let id = u64::from(twice[0].arc.0);
            return Err(NetworkError::Exists { thing: "share of arc", id });
        }
        for share in &shares {
            self.check_share(id, share)?;
        }
        for share in &shares {
            self.promised[share.arc.index()] += share.rate.as_bps();
        }
        let ledger = ArcLedger::new(&shares);
        let (selectors, connections) = (BTreeMap::new(), 0);
        self.networks.insert(id, KnownNetwork { network, ledger, selectors, connections });
        Ok(())
    }

    /// Checks that a share of an arc fits in place of the network's present share of it, if any.
    pub(crate) fn check_share(
        &self,
        network: NetworkId,
        share: &crate::virtual_network::ArcShare,
    ) -> Result<(), NetworkError> {
        let (arc, asked) = (share.arc, share.rate.as_bps());
        let Some(known) = self.topology.arc(arc) else {
            let most = self.topology.arcs.len() as u64;
            return Err(NetworkError::UnknownArc { network, arc, most });
        };
        let own = self.share_of(network, arc).map_or(0, |share| share.rate.as_bps());
        let others = self.promised[arc.index()].saturating_sub(own);
        let free = known.sellable().as_bps().saturating_sub(others);
        if asked > free {
            return Err(NetworkError::ShareAboveFree { network, arc, asked, free });
        }
        let untunnelled = share.untunnelled.as_bps();
        if untunnelled > asked {
            let rate = asked;
            return Err(NetworkError::UntunnelledAboveShare { network, untunnelled, rate });
        }
        Ok(())
    }

    /// Adds an end node.
    ///
    /// # Errors
    ///
    /// Names an id that is in use, or a network or node that is not known.
    pub fn add_end_node(&mut self, end_node: EndNode) -> Result<(), NetworkError> {
        if self.end_nodes.contains_key(&end_node.id) {
            return Err(NetworkError::Exists { thing: "end node", id: u64::from(end_node.id.0) });
        }
        at_most("end nodes", self.end_nodes.len() + 1, self.limits.end_nodes)?;
        if !self.networks.contains_key(&end_node.network) {
            let id = u64::from(end_node.network.0);
            return Err(NetworkError::Unknown { thing: "network", id });
        }
        if end_node.gateway.index() >= self.topology.nodes.len() {
            let id = u64::from(end_node.gateway.0);
            return Err(NetworkError::Unknown { thing: "node", id });
        }
        self.end_nodes.insert(end_node.id, end_node);
        Ok(())
    }

    /// Charges the admitted flows of a new connection, or of one that the store has.
    ///
    /// # Errors
    ///
    /// The id is in use, the network is not known, the table is full, or an arc, which the error
    /// names, has too little room; then nothing is charged.
    pub fn reserve(
        &mut self,
        id: ConnectionId,
        request: ConnectionRequest,
        flows: AdmittedFlows,
        state: ConnectionState,
    ) -> Result<(), NetworkError> {
        self.check_new(id)?;
        self.charge(id, &request, &flows, ChargeSide::Current, request.window)?;
        self.insert(NetworkConnection { id, request, flows, state }, false);
        Ok(())
    }

    /// Restores a suspended connection from the store and charges nothing: see [`Self::suspend`].
    ///
    /// # Errors
    ///
    /// Tells that the id exists, that the network is not known, or that the table is full.
    pub fn reserve_nothing(
        &mut self,
        id: ConnectionId,
        request: ConnectionRequest,
        flows: AdmittedFlows,
        state: ConnectionState,
    ) -> Result<(), NetworkError> {
        self.check_new(id)?;
        if !self.networks.contains_key(&request.network) {
            let id = u64::from(request.network.0);
            return Err(NetworkError::Unknown { thing: "network", id });
        }
        self.insert(NetworkConnection { id, request, flows, state }, true);
        Ok(())
    }

    /// Stops charging for a connection until a change of it is finished, because its path does not
    /// carry its packets. Meanwhile nobody else is admitted for the same packets.
    ///
    /// # Errors
    ///
    /// The connection is not known, or it is being changed.
    pub fn suspend(&mut self, id: ConnectionId) -> Result<(), NetworkError> {
        let known = self.connection_of(id)?;
        if known.next.is_some() {
            return Err(NetworkError::Exists { thing: "change of connection", id: id.0 });
        }
        let NetworkConnection { request, flows, .. } = known.connection.clone();
        self.clear(&request, id, &flows);
        if let Some(known) = self.connections.get_mut(&id) {
            known.is_suspended = true;
        }
        self.note_room(id);
        Ok(())
    }

    fn check_new(&self, id: ConnectionId) -> Result<(), NetworkError> {
        if self.connections.contains_key(&id) {
            return Err(NetworkError::Exists { thing: "connection", id: id.0 });
        }
        at_most("connections", self.connections.len() + 1, self.limits.connections)
    }

    fn insert(&mut self, connection: NetworkConnection, is_suspended: bool) {
        let NetworkConnection { id, request, flows, .. } = &connection;
        self.select(*id, request, flows);
        if let Some(network) = self.networks.get_mut(&request.network) {
            network.connections += 1;
        }
        let id = *id;
        let known = KnownConnection { connection, next: None, is_suspended };
        self.connections.insert(id, known);
        self.note_named(id);
        self.note_room(id);
    }

    /// Updates `without_room` for a connection.
    fn note_room(&mut self, id: ConnectionId) {
        let lacks = self.connections.get(&id).is_some_and(|known| {
            known.is_suspended || known.connection.state == ConnectionState::Broken
        });
        if lacks {
            self.without_room.insert(id);
        } else {
            self.without_room.remove(&id);
        }
    }

    /// Begins a change of a connection: charges the larger of its present and its future rate on
    /// each arc.
    ///
    /// # Errors
    ///
    /// The connection is not known or is being changed already, or an arc, which the error names,
    /// has too little room; then nothing is charged.
    pub fn begin_change(
        &mut self,
        id: ConnectionId,
        request: ConnectionRequest,
        flows: AdmittedFlows,
    ) -> Result<(), NetworkError> {
        let known = self.connection_of(id)?;
        if known.next.is_some() {
            return Err(NetworkError::Exists { thing: "change of connection", id: id.0 });
        }
        let window = match known.is_suspended {
            true => request.window,
            false => hull(known.connection.request.window, request.window),
        };
        self.charge(id, &request, &flows, ChargeSide::Next, window)?;
        if let Some(known) = self.connections.get_mut(&id) {
            known.next = Some((request, flows));
        }
        self.note_named(id);
        Ok(())
    }

    /// Finishes a change: charges only the connection's new flows.
    ///
    /// # Errors
    ///
    /// The connection is not known, or it is not being changed.
    pub fn finish_change(&mut self, id: ConnectionId) -> Result<(), NetworkError> {
        let (old, (request, flows)) = self.end_change(id)?;
        self.deselect(&old);
        self.set(id, &request, &flows, ChargeSide::Current, request.window);
        self.select(id, &request, &flows);
        if let Some(known) = self.connections.get_mut(&id) {
            known.connection.request = request;
            known.connection.flows = flows;
            known.is_suspended = false;
        }
        self.note_named(id);
        self.note_room(id);
        Ok(())
    }

    /// Rolls a change back: charges only the connection's old flows, or nothing if it is suspended.
    ///
    /// # Errors
    ///
    /// The connection is not known, or it is not being changed.
    pub fn abort_change(&mut self, id: ConnectionId) -> Result<(), NetworkError> {
        let (old, _) = self.end_change(id)?;
        self.note_named(id);
        if !self.is_suspended(id) {
            self.set(id, &old.request, &old.flows, ChargeSide::Current, old.request.window);
        }
        Ok(())
    }

    /// Forgets a connection, and charges nothing for it any more.
    ///
    /// # Errors
    ///
    /// Tells that it is not known.
    pub fn release(&mut self, id: ConnectionId) -> Result<NetworkConnection, NetworkError> {
        let known = self.connection_of(id)?.clone();
        if let Some((request, flows)) = &known.next {
            self.clear(request, id, flows);
        }
        self.deselect(&known.connection);
        self.clear(&known.connection.request, id, &known.connection.flows);
        self.forget_named(id);
        self.connections.remove(&id);
        self.note_room(id);
        if let Some(network) = self.networks.get_mut(&known.connection.request.network) {
            network.connections -= 1;
        }
        Ok(known.connection)
    }

    /// Sets the state of a connection.
    ///
    /// # Errors
    ///
    /// Tells that it is not known.
    pub fn set_state(&mut self, id: ConnectionId, to: ConnectionState) -> Result<(), NetworkError> {
        let unknown = NetworkError::Unknown { thing: "connection", id: id.0 };
        self.connections.get_mut(&id).ok_or(unknown)?.connection.state = to;
        self.note_room(id);
        Ok(())
    }

    /// Notes that an arc failed or works again.
    pub fn set_arc_up(&mut self, arc: ArcId, is_up: bool) {
        if let Some(arc) = self.topology.arcs.get_mut(arc.index()) {
            self.parts_down -= usize::from(!arc.is_up);
            self.parts_down += usize::from(!is_up);
            arc.is_up = is_up;
        }
    }

    /// Notes that a node failed or works again.
    pub fn set_node_up(&mut self, node: NodeId, is_up: bool) {
        if let Some(node) = self.topology.nodes.get_mut(node.index()) {
            self.parts_down -= usize::from(!node.is_up);
            self.parts_down += usize::from(!is_up);
            node.is_up = is_up;
        }
    }

    /// A connection.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<&NetworkConnection> {
        self.connections.get(&id).map(|known| &known.connection)
    }

    /// The request and flows after a connection's change; `None` if it is not being changed.
    #[must_use]
    pub fn change_of(&self, id: ConnectionId) -> Option<&(ConnectionRequest, AdmittedFlows)> {
        self.connections.get(&id)?.next.as_ref()
    }

    /// All connections, by id.
    pub fn connections(&self) -> impl Iterator<Item = &NetworkConnection> {
        self.connections.values().map(|known| &known.connection)
    }

    /// Connections whose id is larger than the given one, by id; `None`: all connections.
    pub fn connections_after(
        &self,
        after: Option<ConnectionId>,
    ) -> impl Iterator<Item = &NetworkConnection> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.connections.range((from, Bound::Unbounded)).map(|(_, known)| &known.connection)
    }

    /// The number of a network's connections.
    #[must_use]
    pub fn count_of(&self, network: NetworkId) -> usize {
        self.networks.get(&network).map_or(0, |known| known.connections)
    }

    /// A virtual network.
    #[must_use]
    pub fn network(&self, id: NetworkId) -> Option<&VirtualNetwork> {
        self.networks.get(&id).map(|known| &known.network)
    }

    /// An end node.
    #[must_use]
    pub fn end_node(&self, id: EndNodeId) -> Option<&EndNode> {
        self.end_nodes.get(&id)
    }

    /// The physical network.
    #[must_use]
    pub const fn topology(&self) -> &NetworkTopology {
        &self.topology
    }

    /// The number of targets whose path bounds are cached, and how often such bounds were computed.
    #[must_use]
    pub fn cache_usage(&self) -> (u32, u64) {
        self.finder.cache_usage()
    }

    /// Use of a network's share of an arc, in bits a second: the most that its connections are
    /// promised at any one time, and the most that they may be promised together.
    #[must_use]
    pub fn use_of(&self, network: NetworkId, arc: ArcId) -> Option<(u64, u64)> {
        let ledger = &self.networks.get(&network)?.ledger;
        Some((ledger.highest(arc), ledger.sellable(arc)?))
    }

    /// Arcs on which a network's connections are at some time promised more than its share.
    #[must_use]
    pub fn overcharged(&self, network: NetworkId) -> Vec<ArcId> {
        self.networks.get(&network).map_or_else(Vec::new, |known| known.ledger.overcharged())
    }

    /// Tells whether nothing is charged for a connection's present flows.
    #[must_use]
    pub fn is_suspended(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|known| known.is_suspended)
    }

    pub(crate) fn connection_of(&self, id: ConnectionId) -> Result<&KnownConnection, NetworkError> {
        let unknown = NetworkError::Unknown { thing: "connection", id: id.0 };
        self.connections.get(&id).ok_or(unknown)
    }

    /// Ends a change and removes the charges of its old and new flows; returns the connection as it
    /// was, and the request and flows that were to be.
    fn end_change(&mut self, id: ConnectionId) -> Result<EndedChange, NetworkError> {
        let unknown = NetworkError::Unknown { thing: "change of connection", id: id.0 };
        self.forget_named(id);
        let known = self.connections.get_mut(&id);
        let next = known.and_then(|known| Some((known.next.take()?, known.connection.clone())));
        let ((request, flows), old) = next.ok_or(unknown)?;
        self.clear(&request, id, &flows);
        self.clear(&old.request, id, &old.flows);
        Ok((old, (request, flows)))
    }

    /// Charges both directions, or nothing.
    fn charge(
        &mut self,
        id: ConnectionId,
        request: &ConnectionRequest,
        flows: &AdmittedFlows,
        side: ChargeSide,
        window: TimeWindow,
    ) -> Result<(), NetworkError> {
        let unknown = NetworkError::Unknown { thing: "network", id: u64::from(request.network.0) };
        if !self.networks.contains_key(&request.network) {
            return Err(unknown);
        }
        self.set(id, request, flows, side, window);
        let Some(over) = self.first_over(id, request, flows, window) else { return Ok(()) };
        self.clear(request, id, flows);
        if let Some(known) = self.connections.get(&id).filter(|known| !known.is_suspended) {
            let NetworkConnection { request, flows, .. } = known.connection.clone();
            self.set(id, &request, &flows, ChargeSide::Current, request.window);
        }
        Err(over)
    }

    fn first_over(
        &self,
        connection: ConnectionId,
        request: &ConnectionRequest,
        flows: &AdmittedFlows,
        window: TimeWindow,
    ) -> Option<NetworkError> {
        let ledger = &self.networks.get(&request.network)?.ledger;
        for (direction, flow) in flows.present() {
            let asked = flow.reserved.as_bps();
            for &arc in &flow.path.arcs {
                let fits = ledger.sellable(arc).is_some() && ledger.free(arc, window, None) >= 0;
                if !fits {
                    let own = Some((connection, direction));
                    let free = u64::try_from(ledger.free(arc, window, own)).unwrap_or(0);
                    return Some(NetworkError::OverCapacity { connection, arc, asked, free });
                }
            }
        }
        None
    }

    fn set(
        &mut self,
        id: ConnectionId,
        request: &ConnectionRequest,
        flows: &AdmittedFlows,
        side: ChargeSide,
        window: TimeWindow,
    ) {
        let Some(known) = self.networks.get_mut(&request.network) else { return };
        for (direction, flow) in flows.present() {
            let rate = flow.reserved.as_bps();
            known.ledger.set(&flow.path.arcs, (id, direction), side, rate, window);
        }
    }

    /// Removes a connection's charges, old and new, on the paths of `flows`.
    fn clear(&mut self, request: &ConnectionRequest, id: ConnectionId, flows: &AdmittedFlows) {
        let Some(known) = self.networks.get_mut(&request.network) else { return };
        for (direction, flow) in flows.present() {
            for side in [ChargeSide::Current, ChargeSide::Next] {
                let key = (id, direction);
                known.ledger.set(&flow.path.arcs, key, side, 0, request.window);
            }
        }
    }
}

/// The shortest window that holds both.
fn hull(a: TimeWindow, b: TimeWindow) -> TimeWindow {
    TimeWindow { start: a.start.min(b.start), end: a.end.max(b.end) }
}
