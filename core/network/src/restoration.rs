// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restoration: other paths, in bulk, for connections whose path failed.
//!
//! All connections over failed arcs, and those that had no path before, lose what is charged for
//! them: their paths carry nothing. Then each is admitted anew, the most important first (0 before
//! 1), at the same priority the smallest id. So none of them is without a path because of a less
//! important one of them; a connection whose path still works keeps it.
//!
//! A connection that was found a path begins a change to it ([`NetworkState::begin_change`]), in
//! which only the new path is charged. One that was not stays known and has nothing reserved.

use crate::admission::SearchTerms;
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
    /// A change to another path has begun, or no path was found. A connection that nodes have
    /// nothing of yet (held, scheduled) has its new path already, or keeps its old one. The reason
    /// is given for a connection that was active until now; for others it is known already, or of
    /// no use.
    pub answer: Result<(), Option<RefusalReason>>,
    /// Set if the new path shares links with a connection that is to be disjoint from this one:
    /// there is no other path.
    pub joins_others: bool,
}

/// A part of a restoration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestorationTurn {
    /// The connections that were tried.
    pub outcomes: Vec<RestorationOutcome>,
    /// Connections that have lost their charge in this turn, and that later turns try. A store must
    /// know that, since others may get their room.
    pub suspended: Vec<ConnectionId>,
    /// The place at which the next turn begins; `None` if no connection is left to be tried.
    pub next: Option<RestorationCursor>,
}

/// The rank of the connection that a restoration tried last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RestorationCursor {
    priority: u8,
    id: ConnectionId,
}

impl NetworkState {
    /// Finds other paths for all connections that need one, and reserves them. Those in the middle
    /// of a step are left out: a call after the step finds them.
    ///
    /// # Errors
    ///
    /// A charge of a path that was just found does not fit: a defect.
    pub fn restore(&mut self) -> Result<Vec<RestorationOutcome>, crate::NetworkError> {
        Ok(self.restore_some(None, usize::MAX)?.outcomes)
    }

    /// Does a part of [`Self::restore`]: tries the `most` most important connections, at least one,
    /// among those after a place; `None`: among all.
    ///
    /// The work for one connection has a bound, and so has that of a turn. A caller with other work
    /// begins with `None`, stores the outcomes and the connections of
    /// [`RestorationTurn::suspended`], does what cannot wait, and calls again with
    /// [`RestorationTurn::next`], until that is `None`. A turn does not look before its place for
    /// connections that failed or got room meanwhile. For these the caller begins again with
    /// `None`, after the last turn and not in between, or else the least important connections
    /// might never be tried. A connection that is admitted between two turns may take room from
    /// those that are not tried yet.
    ///
    /// # Errors
    ///
    /// A charge of a path that was just found does not fit: a defect.
    pub fn restore_some(
        &mut self,
        after: Option<RestorationCursor>,
        most: usize,
    ) -> Result<RestorationTurn, crate::NetworkError> {
        let needy = self.needy(after);
        let (now, later) = needy.split_at(most.max(1).min(needy.len()));
        self.suspend_configured(now)?;
        let suspended = self.suspend_configured(later)?;
        let mut outcomes = Vec::new();
        for id in now {
            outcomes.push(self.restore_one(*id)?);
        }
        let next = now.last().filter(|_| !later.is_empty()).and_then(|id| self.rank(*id));
        Ok(RestorationTurn { outcomes, suspended, next })
    }

    /// Suspends those connections that nodes have anything of. Returns those that were not
    /// suspended before.
    fn suspend_configured(
        &mut self,
        ids: &[ConnectionId],
    ) -> Result<Vec<ConnectionId>, crate::NetworkError> {
        let mut suspended = Vec::new();
        for id in ids {
            if !self.is_unconfigured(*id) && !self.is_suspended(*id) {
                self.suspend(*id)?;
                suspended.push(*id);
            }
        }
        Ok(suspended)
    }

    /// Connections after a place that need a path, the most important first. Only those are looked
    /// at that lack room, or charge an arc that is down: their number decides what this costs, and
    /// not that of all connections.
    fn needy(&self, after: Option<RestorationCursor>) -> Vec<ConnectionId> {
        let mut ids = self.without_room.clone();
        if self.parts_down > 0 {
            let all = (0..self.topology.arcs.len()).map(|place| ArcId(dense(place)));
            for arc in all.filter(|arc| !self.topology.is_usable(*arc)) {
                ids.extend(self.networks.values().flat_map(|of| of.ledger.connections_on(arc)));
            }
        }
        let needs_path = |id: &ConnectionId| {
            let is_later = after.is_none_or(|after| self.rank(*id) > Some(after));
            is_later && self.connections.get(id).is_some_and(|known| self.needs_path(known))
        };
        self.by_importance(ids.into_iter().filter(needs_path))
    }

    /// Connections with a path over an arc or node that is down, by priority.
    #[must_use]
    pub fn broken(&self) -> Vec<ConnectionId> {
        let broken = self.connections.values().filter(|known| self.passes_failure(known));
        self.by_importance(broken.map(|known| known.connection.id))
    }

    fn passes_failure(&self, known: &KnownConnection) -> bool {
        let mut arcs = known.connection.flows.present().flat_map(|(_, flow)| &flow.path.arcs);
        arcs.any(|arc| !self.topology.is_usable(*arc))
    }

    fn rank(&self, id: ConnectionId) -> Option<RestorationCursor> {
        let priority = self.connection(id)?.request.priority;
        Some(RestorationCursor { priority, id })
    }

    /// Sorts connections, the most important first.
    pub(crate) fn by_importance(
        &self,
        ids: impl Iterator<Item = ConnectionId>,
    ) -> Vec<ConnectionId> {
        let mut ranks: Vec<_> = ids.filter_map(|id| self.rank(id)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.into_iter().map(|rank| rank.id).collect()
    }

    fn restore_one(&mut self, id: ConnectionId) -> Result<RestorationOutcome, crate::NetworkError> {
        let known = &self.connection_of(id)?.connection;
        let (request, was_active) = (known.request.clone(), known.state == ConnectionState::Active);
        let mut found = self.find_flows(&request, Some(id), SearchTerms::default());
        if found.is_err() && !self.links_to_leave(Some(id)).is_empty() {
            let joining = SearchTerms { joins: true, ..SearchTerms::default() };
            found = self.find_flows(&request, Some(id), joining);
        }
        let flows = match found {
            Ok(flows) => flows,
            Err(failed) => {
                let answer = Err(was_active.then(|| self.reason(&request, &failed)));
                return Ok(RestorationOutcome { id, answer, joins_others: false });
            }
        };
        let joins_others = self.joins_others(id, &flows);
        self.begin_change(id, request, flows)?;
        if self.is_unconfigured(id) {
            self.finish_change(id)?;
        }
        Ok(RestorationOutcome { id, answer: Ok(()), joins_others })
    }

    fn needs_path(&self, known: &KnownConnection) -> bool {
        known.next.is_none()
            && match known.connection.state {
                ConnectionState::Broken => true,
                ConnectionState::Active | ConnectionState::Held | ConnectionState::Scheduled => {
                    known.is_suspended || self.passes_failure(known)
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
