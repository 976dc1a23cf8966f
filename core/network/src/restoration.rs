// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restoration: other paths, in bulk, for connections whose path failed.
//!
//! All connections over failed arcs, and those that had no path before, lose what is charged for
//! them: their paths carry nothing. Then each is admitted anew, the most important first (0 before
//! 1), at the same priority the smallest id. So no connection is without a path because of one that
//! matters less among them; whoever still has a working path keeps it.
//!
//! A connection that was found a path begins a change to it ([`NetworkState::begin_change`]), in
//! which only the new path is charged. One that was not stays known and has nothing reserved.

use crate::answer::RefusalReason;
use crate::connection::NetworkConnection;
use crate::ids::{ArcId, ConnectionId, dense};
use crate::lifecycle::ConnectionState;
use crate::state::{KnownConnection, NetworkState};

/// A connection that needed another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorationOutcome {
    /// The connection.
    pub id: ConnectionId,
    /// A change to another path has begun, or none was found. A connection without anything on its
    /// nodes yet (held, scheduled) has its new path already, or keeps its old one.
    pub answer: Result<(), RefusalReason>,
}

impl NetworkState {
    /// Finds other paths for all connections that need one, and reserves them. Those in the middle
    /// of a step are left out: they are found when it is over.
    ///
    /// # Errors
    ///
    /// A charge of a path that was just found does not fit: a defect.
    pub fn restore(&mut self) -> Result<Vec<RestorationOutcome>, crate::NetworkError> {
        let needy = self.needy();
        for id in &needy {
            if !self.is_unconfigured(*id) {
                self.suspend(*id)?;
            }
        }
        let mut outcomes = Vec::new();
        for id in needy {
            let answer = self.restore_one(id)?;
            outcomes.push(RestorationOutcome { id, answer });
        }
        Ok(outcomes)
    }

    /// Connections that need a path, the most important first. Only those are looked at that lack
    /// room, or charge an arc that is down: their number decides what this costs, and not that of
    /// all connections.
    fn needy(&self) -> Vec<ConnectionId> {
        let mut ids = self.without_room.clone();
        if self.parts_down > 0 {
            let all = (0..self.topology.arcs.len()).map(|place| ArcId(dense(place)));
            for arc in all.filter(|arc| !self.topology.is_usable(*arc)) {
                ids.extend(self.networks.values().flat_map(|of| of.ledger.connections_on(arc)));
            }
        }
        let known = ids.into_iter().filter_map(|id| self.connections.get(&id));
        sorted(known.filter(|known| self.needs_path(known)).collect())
    }

    /// Connections with a path over an arc or node that is down, by priority.
    #[must_use]
    pub fn broken(&self) -> Vec<ConnectionId> {
        self.by_priority(|known| self.passes_failure(known))
    }

    fn passes_failure(&self, known: &KnownConnection) -> bool {
        let mut arcs = known.connection.flows.present().flat_map(|(_, flow)| &flow.path.arcs);
        arcs.any(|arc| !self.topology.is_usable(*arc))
    }

    /// Connections that are chosen, the most important first.
    pub(crate) fn by_priority(
        &self,
        chosen: impl Fn(&KnownConnection) -> bool,
    ) -> Vec<ConnectionId> {
        sorted(self.connections.values().filter(|known| chosen(known)).collect())
    }

    fn restore_one(
        &mut self,
        id: ConnectionId,
    ) -> Result<Result<(), RefusalReason>, crate::NetworkError> {
        let request = self.connection_of(id)?.connection.request.clone();
        let flows = match self.find_flows(&request, Some(id), &[]) {
            Ok(flows) => flows,
            Err(failed) => return Ok(Err(self.reason(&request, &failed))),
        };
        self.begin_change(id, request, flows)?;
        if self.is_unconfigured(id) {
            self.finish_change(id)?;
        }
        Ok(Ok(()))
    }

    fn needs_path(&self, known: &KnownConnection) -> bool {
        known.next.is_none()
            && match known.connection.state {
                ConnectionState::Broken => true,
                ConnectionState::Active | ConnectionState::Held | ConnectionState::Scheduled => {
                    self.passes_failure(known)
                }
                _ => false,
            }
    }

    fn is_unconfigured(&self, id: ConnectionId) -> bool {
        let state = self.connections.get(&id).map(|known| &known.connection);
        state.is_some_and(|NetworkConnection { state, .. }| {
            matches!(state, ConnectionState::Held | ConnectionState::Scheduled)
        })
    }
}

/// Sorts connections, the most important first.
fn sorted(mut all: Vec<&KnownConnection>) -> Vec<ConnectionId> {
    all.sort_by_key(|known| (known.connection.request.priority, known.connection.id));
    all.into_iter().map(|known| known.connection.id).collect()
}
