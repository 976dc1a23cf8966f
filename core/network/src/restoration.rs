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
use crate::ids::ConnectionId;
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
        let needy = self.by_priority(|known| self.needs_path(known));
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
