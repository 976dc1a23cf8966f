// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of connections by time: start, end, a hold that runs out, a lease that is not
//! renewed; and room that is taken from less important ones.
//!
//! Times are wall time and are given by the caller. They are stored with the connection, so that a
//! successor does what was due while no broker ran. Nobody could renew a lease then: a successor
//! gives each at least its length from its own start on.

use std::collections::BTreeMap;

use weir_api_types::error::ErrorCode;
use weir_broker_api_types::RequestedConnection;
use weir_network::{ConnectionEvent, ConnectionId, ConnectionPlan, ConnectionState};
use weir_units::Instant;

use crate::execution::NodePhase;
use crate::ids::id_text;
use crate::refusal::BrokerRefusal;
use crate::restoration::broken;
use crate::state::{BrokerState, advanced, state_name, unknown_id};

/// A connection that gives its room to another.
#[derive(Debug)]
pub(crate) struct PreemptedConnection {
    pub(crate) id: ConnectionId,
    /// Steps that take it from its routers.
    pub(crate) withdrawal: Vec<NodePhase>,
}

/// The cause of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Somebody removed it.
    Caller,
    /// Its calendar or lease.
    Time,
}

impl BrokerState {
    /// Commits what is held: it starts now, or with its window.
    pub(crate) fn commit(&mut self, id: ConnectionId, now: Instant) -> Result<(), BrokerRefusal> {
        let (connection, record) = self.get(id).ok_or_else(|| unknown_id(id))?;
        let event = match connection.request.window.start <= now {
            true => ConnectionEvent::Commit,
            false => ConnectionEvent::CommitForLater,
        };
        if connection.state != ConnectionState::Held {
            let text =
                format!("connection {} is {}, not held", id_text(id), state_name(connection.state));
            return Err(BrokerRefusal::new(ErrorCode::Conflict, text));
        }
        let state = advanced(connection.state, event, &record.plan)?;
        self.set_state(id, state)?;
        if let Some(record) = self.records.get_mut(&id) {
            record.timers.hold_until = None;
        }
        self.note_times(id);
        Ok(())
    }

    /// Renews the lease of a connection, unless it is being removed.
    pub(crate) fn renew(&mut self, id: ConnectionId, now: Instant) -> Result<(), BrokerRefusal> {
        self.refuse_leaving(id)?;
        let record = self.records.get_mut(&id).ok_or_else(|| unknown_id(id))?;
        if record.timers.lease.is_none() {
            let text = format!("connection {} has no lease", id_text(id));
            return Err(BrokerRefusal::new(ErrorCode::Conflict, text));
        }
        record.timers.renew(now);
        self.note_times(id);
        Ok(())
    }

    /// Renews all leases: nobody could while no broker ran.
    pub(crate) fn renew_all(&mut self, now: Instant) {
        let leased = self.records.iter_mut().filter(|(_, record)| record.timers.lease.is_some());
        let renewed = leased.map(|(id, record)| {
            record.timers.renew(now);
            *id
        });
        for id in renewed.collect::<Vec<_>>() {
            self.note_times(id);
        }
    }

    /// Notes when the next event of a connection is due.
    pub(crate) fn note_times(&mut self, id: ConnectionId) {
        let next = self.get(id).and_then(|(connection, record)| {
            record.timers.next(connection.state, connection.request.window)
        });
        self.due.set(id, next.map(|(_, at)| at));
    }

    /// Returns what is due, ends first.
    pub(crate) fn due(&self, now: Instant) -> Vec<(ConnectionId, ConnectionEvent)> {
        let due = self.due.until(now).filter_map(|id| {
            let (connection, record) = self.get(id)?;
            let window = connection.request.window;
            Some((id, record.timers.due(connection.state, window, now)?))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(_, event)| *event != ConnectionEvent::End);
        due
    }

    /// Returns the time at which something is due next; none if nothing is.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first()
    }

    /// Starts a connection whose time has come.
    pub(crate) fn begin_scheduled(&mut self, id: ConnectionId) -> Result<(), BrokerRefusal> {
        let (connection, record) = self.get(id).ok_or_else(|| unknown_id(id))?;
        let state = advanced(connection.state, ConnectionEvent::Start, &record.plan)?;
        if let Some(record) = self.records.get_mut(&id) {
            record.by_calendar = true;
        }
        Ok(self.set_state(id, state)?)
    }

    /// Ends a connection after a step, if somebody removed it meanwhile, or if the step failed and
    /// its time is over: past the switch a change is tried until its router takes it, which may be
    /// never. Old and new tunnels are removed. Returns the cause; none if it goes on.
    pub(crate) fn end_after_step(
        &mut self,
        id: ConnectionId,
        now: Instant,
    ) -> Result<Option<EndedBy>, BrokerRefusal> {
        let Some((connection, record)) = self.get(id) else { return Ok(None) };
        let window = connection.request.window;
        let is_due = record.timers.due(ConnectionState::Active, window, now).is_some();
        let by = if record.ending { EndedBy::Caller } else { EndedBy::Time };
        let ended = match connection.state {
            ConnectionState::Active => record.ending,
            ConnectionState::Changing(_) => record.ending || is_due,
            _ => false,
        };
        if !ended {
            return Ok(None);
        }
        let mut plan = self.removal(connection, record);
        if let (Some((request, flows)), Some((_, generation))) =
            (self.network.change_of(id).cloned(), &record.next)
        {
            let new = self.tunnels(id, request, flows, record.entries, *generation);
            let new = ConnectionPlan::removal(self.network.topology(), &new);
            plan.steps.extend(new.steps);
        }
        let state = advanced(connection.state, ConnectionEvent::End, &plan)?;
        self.set_state(id, state)?;
        if let Some(record) = self.records.get_mut(&id) {
            record.plan = plan;
            // Its remover waits for that, and not for the step.
            record.fault.take_if(|_| by == EndedBy::Caller);
        }
        Ok(Some(by))
    }

    /// Takes room for a request from less important connections, which are broken then; none if
    /// that does not help, or if the request needs its room later or perhaps never.
    pub(crate) fn preempt(
        &mut self,
        requested: &RequestedConnection,
        now: Instant,
    ) -> Option<Vec<PreemptedConnection>> {
        let request = self.directory.request(requested, now).ok()?;
        // A request that carries no packets yet pre-empts nobody.
        if requested.hold.is_some() || request.window.start > now {
            return None;
        }
        let given = self.network.preemptable(&request).filter(|given| !given.is_empty())?;
        let withdrawals: BTreeMap<_, _> =
            given.iter().map(|id| (*id, self.withdrawal(*id))).collect();
        let mut preempted = Vec::new();
        for (id, withdrawal) in withdrawals {
            let state = self.get(id).map(|(connection, _)| connection.state)?;
            self.network.suspend(id).ok()?;
            self.set_state(id, broken(state).ok()?).ok()?;
            if let Some(record) = self.records.get_mut(&id) {
                let priority = request.priority;
                record.refusal = Some(format!("its room went to one of priority {priority}"));
            }
            preempted.push(PreemptedConnection { id, withdrawal });
        }
        Some(preempted)
    }
}
