// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pre-emption: less important connections that give their room to a request.
//!
//! Connections of a lower priority than the request (a larger number) are taken away, the least
//! important first, until the request has paths. Then each that was taken and still has room beside
//! the request is put back, the most important first. So what is left cannot be made smaller by
//! putting one of it back. It need not be the fewest: that is a hard problem, and priority counts
//! for more than number.

use crate::connection::{ConnectionRequest, FlowDirection};
use crate::ids::ConnectionId;
use crate::ledger::ChargeSide;
use crate::lifecycle::ConnectionState;
use crate::state::{AdmittedFlows, NetworkState};

/// The key of the request in the ledger, which no stored connection has.
const NEW: ConnectionId = ConnectionId(u64::MAX);

impl NetworkState {
    /// Finds active connections, all less important than a request, without which it is admitted;
    /// `None` if it is not even without all of them. Charges nothing.
    pub fn preemptable(&mut self, request: &ConnectionRequest) -> Option<Vec<ConnectionId>> {
        if self.check(request, None).is_err() || self.connections.contains_key(&NEW) {
            return None;
        }
        let mut candidates = self.by_priority(|known| {
            let of = &known.connection.request;
            of.network == request.network
                && of.priority > request.priority
                && of.window.overlaps(request.window)
                && known.next.is_none()
                && known.connection.state == ConnectionState::Active
        });
        let mut taken = Vec::new();
        let mut found = self.find_flows(request, None, &[]).ok();
        // Each try below is a search: none is made if all of them would not help.
        if found.is_none() && !self.fits_without(request, &candidates) {
            return None;
        }
        while found.is_none() {
            let Some(id) = candidates.pop() else { break };
            self.charge_present(id, false);
            taken.push(id);
            found = self.find_flows(request, None, &[]).ok();
        }
        let mut needed = Vec::new();
        if let Some(flows) = &found {
            self.charge_new(request, flows, true);
            // The last one taken is the most important.
            for id in taken.iter().rev() {
                self.charge_present(*id, true);
                if self.is_overcharged(*id) {
                    self.charge_present(*id, false);
                    needed.push(*id);
                }
            }
            self.charge_new(request, flows, false);
        }
        for id in &taken {
            self.charge_present(*id, true);
        }
        found.map(|_| needed)
    }

    /// Tells whether a request has paths without all these connections.
    fn fits_without(&mut self, request: &ConnectionRequest, all: &[ConnectionId]) -> bool {
        for id in all {
            self.charge_present(*id, false);
        }
        let fits = self.find_flows(request, None, &[]).is_ok();
        for id in all {
            self.charge_present(*id, true);
        }
        fits
    }

    fn charge_new(&mut self, request: &ConnectionRequest, flows: &AdmittedFlows, is: bool) {
        let Some(known) = self.networks.get_mut(&request.network) else { return };
        for (direction, flow) in flows.present() {
            let rate = if is { flow.reserved.as_bps() } else { 0 };
            let (key, side) = ((NEW, direction), ChargeSide::Current);
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
        let Some(network) = self.networks.get(&request.network) else { return false };
        FlowDirection::BOTH.iter().any(|direction| {
            let flow = known.connection.flows.of(*direction).as_ref();
            let mut arcs = flow.into_iter().flat_map(|flow| &flow.path.arcs);
            arcs.any(|arc| network.ledger.free(*arc, request.window, None) < 0)
        })
    }
}
