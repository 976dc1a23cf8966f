// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pre-emption: less important connections that give their room to a request.
//!
//! Paths are searched for as if the room of all connections from some priority on were free.
//! Bisection finds the least important such priority at which the request has paths. Then
//! connections are taken away on the arcs of those paths alone, on each arc the least important
//! first, until there is room; and each that was taken and still has room beside the request is put
//! back, the most important first. So none of those that stay taken can be put back alone. They
//! need not be the fewest: that is a hard problem, and priority counts for more than number.
//!
//! A search asks only for arcs that it comes to and that are full. What it looks at has bounds: the
//! number of flows there, and the steps of searches. Once one is reached, no other connections are
//! found.

use crate::admission::{ExtraRoom, SearchTerms};
use crate::connection::ConnectionRequest;
use crate::ids::{ArcId, ConnectionId};
use crate::ledger::{ChargeSide, REQUESTED};
use crate::preemptable_room::PreemptableRoom;
use crate::state::{AdmittedFlows, NetworkState};

/// Most flows that are looked at for a request, at some hundred nanoseconds each.
const FLOWS_MAX: usize = 50_000;

impl NetworkState {
    /// Finds active connections, all less important than a request, without which it is admitted;
    /// `None` if it is refused even without all of them, or if a bound was reached before some were
    /// found. Charges nothing.
    pub fn preemptable(&mut self, request: &ConnectionRequest) -> Option<Vec<ConnectionId>> {
        if self.check(request, None).is_err() || self.connections.contains_key(&REQUESTED) {
            return None;
        }
        if self.find_flows(request, None, SearchTerms::default()).is_ok() {
            return Some(Vec::new());
        }
        self.finder.set_budget(Some(self.limits.paths.steps));
        let found = self.with_least_important(request);
        let given = found.and_then(|(flows, room)| self.take_room(request, &flows, &room));
        self.finder.set_budget(None);
        given
    }

    /// Finds paths, and the least important priority from which on connections must give their room
    /// for them.
    fn with_least_important(
        &mut self,
        request: &ConnectionRequest,
    ) -> Option<(AdmittedFlows, PreemptableRoom)> {
        let (mut least, mut most) = (request.priority.checked_add(1)?, u8::MAX);
        let mut flows_left = FLOWS_MAX;
        let mut best = self.with_room_from(request, least, &mut flows_left)?;
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            match self.with_room_from(request, middle, &mut flows_left) {
                Some(found) => (best, least) = (found, middle),
                None => most = middle - 1,
            }
        }
        Some(best)
    }

    fn with_room_from(
        &mut self,
        request: &ConnectionRequest,
        priority: u8,
        flows_left: &mut usize,
    ) -> Option<(AdmittedFlows, PreemptableRoom)> {
        let room = PreemptableRoom::new(request.window, priority, *flows_left);
        let terms = SearchTerms { room: ExtraRoom::Preemptable(&room), ..SearchTerms::default() };
        let found = self.find_flows(request, None, terms);
        *flows_left = room.flows_left();
        Some((found.ok()?, room))
    }

    /// Finds connections without which these paths have room, and with them the request.
    fn take_room(
        &mut self,
        request: &ConnectionRequest,
        flows: &AdmittedFlows,
        room: &PreemptableRoom,
    ) -> Option<Vec<ConnectionId>> {
        self.charge_new(request, flows, true);
        let mut taken = Vec::new();
        for arc in flows.present().flat_map(|(_, flow)| &flow.path.arcs) {
            let mut candidates = self.candidates(request, *arc, room);
            while self.is_over(request, *arc)
                && let Some(id) = candidates.pop()
            {
                self.charge_present(id, false);
                taken.push(id);
            }
        }
        let mut needed = Vec::new();
        for id in self.by_importance(taken.iter().copied()) {
            self.charge_present(id, true);
            if self.is_overcharged(id) {
                self.charge_present(id, false);
                needed.push(id);
            }
        }
        self.charge_new(request, flows, false);
        // A request with two directions may not get these paths: each direction is searched for by
        // itself.
        let fits = self.find_flows(request, None, SearchTerms::default()).is_ok();
        for id in &needed {
            self.charge_present(*id, true);
        }
        fits.then_some(needed)
    }

    /// Connections on an overcharged arc that may give their room, the most important first.
    fn candidates(
        &self,
        request: &ConnectionRequest,
        arc: ArcId,
        room: &PreemptableRoom,
    ) -> Vec<ConnectionId> {
        let network = self.networks.get(&request.network).filter(|_| self.is_over(request, arc));
        let all = network.into_iter().flat_map(|network| network.ledger.connections_on(arc));
        let gives = |id: &ConnectionId| self.connections.get(id).is_some_and(|of| room.gives(of));
        self.by_importance(all.filter(gives))
    }

    fn is_over(&self, request: &ConnectionRequest, arc: ArcId) -> bool {
        let network = self.networks.get(&request.network);
        network.is_some_and(|network| network.ledger.free(arc, request.window, None) < 0)
    }

    fn charge_new(&mut self, request: &ConnectionRequest, flows: &AdmittedFlows, is: bool) {
        let Some(known) = self.networks.get_mut(&request.network) else { return };
        for (direction, flow) in flows.present() {
            let rate = if is { flow.reserved.as_bps() } else { 0 };
            let (key, side) = ((REQUESTED, direction), ChargeSide::Current);
            known.ledger.set(&flow.path.arcs, key, side, rate, request.window);
        }
    }

    /// Charges an active connection's flows, or nothing for it.
    fn charge_present(&mut self, id: ConnectionId, is: bool) {
        let Some(known) = self.connections.get(&id) else { return };
        let (request, flows) = (&known.connection.request, &known.connection.flows);
        let Some(network) = self.networks.get_mut(&request.network) else { return };
        for (direction, flow) in flows.present() {
            let rate = if is { flow.reserved.as_bps() } else { 0 };
            let (key, side) = ((id, direction), ChargeSide::Current);
            network.ledger.set(&flow.path.arcs, key, side, rate, request.window);
        }
    }

    /// Tells whether an arc of a connection's paths is charged more than it may be.
    fn is_overcharged(&self, id: ConnectionId) -> bool {
        let Some(known) = self.connections.get(&id) else { return false };
        let request = &known.connection.request;
        let mut arcs = known.connection.flows.present().flat_map(|(_, flow)| &flow.path.arcs);
        arcs.any(|arc| self.is_over(request, *arc))
    }
}
