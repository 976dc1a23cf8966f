// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admission of new connections: a path with room, and a number for each tunnel at the router where
//! it enters.
//!
//! The end node alone says where a tunnel enters. So the numbers are found first: nobody
//! moves or loses its room for a request that no router has a number for.

use weir_api_types::error::ErrorCode;
use weir_broker_api_types::RequestedConnection;
use weir_network::{
    AdmissionAnswer, AdmittedFlows, ConnectionEvent, ConnectionId, ConnectionPlan,
    ConnectionRequest, ConnectionState, FlowDirection,
};
use weir_units::Instant;

use crate::record::ConnectionRecord;
use crate::refusal::BrokerRefusal;
use crate::requests::timers;
use crate::state::{BrokerState, advanced, illegal};
use crate::tunnel_numbers::{EntryNumbers, TUNNELS_PER_ROUTER_MAX};

impl BrokerState {
    /// Decides on a request, and reserves nothing. Returns the request, its paths, and the numbers
    /// of their tunnels.
    ///
    /// # Errors
    /// A name is unknown or a value wrong, a router has no number for one more tunnel
    /// ([`ErrorCode::Busy`]), or no path has room ([`ErrorCode::Refused`]).
    pub(crate) fn try_out(
        &mut self,
        requested: &RequestedConnection,
        now: Instant,
    ) -> Result<(ConnectionRequest, AdmittedFlows, EntryNumbers), BrokerRefusal> {
        let request = self.directory.request(requested, now)?;
        timers(requested, now)?;
        let entries = self.entry_numbers(&request)?;
        match self.network.admit(&request) {
            AdmissionAnswer::Admitted(flows) => Ok((request, flows, entries)),
            AdmissionAnswer::Refused(refusal) => Err(self.directory.refusal(&refusal)),
        }
    }

    /// Admits a new connection, reserves for it and plans it.
    ///
    /// # Errors
    /// An error of [`Self::try_out`].
    pub(crate) fn admit(
        &mut self,
        id: ConnectionId,
        requested: RequestedConnection,
        now: Instant,
    ) -> Result<(), BrokerRefusal> {
        let (request, flows, entries) = self.try_out(&requested, now)?;
        let timers = timers(&requested, now)?;
        let tunnels = self.tunnels(id, request, flows, entries, 1);
        let plan = ConnectionPlan::creation(self.network.topology(), &tunnels);
        let state = match (timers.hold_until, tunnels.request.window.start > now) {
            (Some(_), _) => ConnectionState::Held,
            (None, true) => {
                ConnectionState::Held.after(ConnectionEvent::CommitForLater).map_err(illegal)?
            }
            (None, false) => advanced(ConnectionState::Held, ConnectionEvent::Commit, &plan)?,
        };
        self.network.reserve(id, tunnels.request, tunnels.flows, state)?;
        let (number, generation, next, took) = (0, 1, None, None);
        let (restoring, by_calendar, refusal, fault) = (false, false, None, None);
        let record = ConnectionRecord {
            requested,
            number,
            entries,
            generation,
            next,
            plan,
            restoring,
            by_calendar,
            ending: false,
            timers,
            refusal,
            fault,
            took,
        };
        self.insert(id, record);
        Ok(())
    }

    /// Returns the connection that an earlier request with this key made, and true if its routers
    /// are being configured; none if there was no such request.
    ///
    /// # Errors
    /// The key is that of another request, or its connection is gone or going to be.
    pub(crate) fn made_before(
        &self,
        key: &str,
        request: &str,
    ) -> Result<Option<(ConnectionId, bool)>, BrokerRefusal> {
        let is_there = |id| self.records.contains_key(&id);
        let Some(id) = self.keys.find(key, request, is_there)? else { return Ok(None) };
        self.refuse_leaving(id)?;
        let state = self.get(id).map(|(connection, _)| connection.state);
        Ok(Some((id, matches!(state, Some(ConnectionState::Configuring(_))))))
    }

    /// Finds the lowest free number at the entry of each tunnel of a request, and takes none.
    fn entry_numbers(&self, request: &ConnectionRequest) -> Result<EntryNumbers, BrokerRefusal> {
        let entry = |direction: FlowDirection| {
            let end = match direction {
                FlowDirection::Forward => request.source,
                FlowDirection::Backward => request.destination,
            };
            let is_asked_for = !request.rate_of(direction).is_zero();
            Some((direction, self.network.end_node(end).filter(|_| is_asked_for)?.gateway))
        };
        let entries = FlowDirection::BOTH.into_iter().filter_map(entry);
        self.numbers.find(entries).map_err(|node| {
            let router = self.directory.router(node).map_or("", |router| &router.name);
            let text = format!(
                "{TUNNELS_PER_ROUTER_MAX} tunnels enter at router \"{router}\", which is the most"
            );
            BrokerRefusal::new(ErrorCode::Busy, text)
        })
    }
}
