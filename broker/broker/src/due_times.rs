// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections by the time of their next event, so that nobody looks at all of them to find what is
//! due.

use std::collections::{BTreeMap, BTreeSet};

use weir_network::ConnectionId;
use weir_units::Instant;

/// The connections with an event to come.
#[derive(Debug, Default)]
pub(crate) struct DueTimes {
    by_time: BTreeSet<(Instant, ConnectionId)>,
    times: BTreeMap<ConnectionId, Instant>,
}

impl DueTimes {
    /// Notes the time of a connection's next event; none if there is none.
    pub(crate) fn set(&mut self, id: ConnectionId, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.times.insert(id, at),
            None => self.times.remove(&id),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, id));
        }
        self.by_time.extend(at.map(|at| (at, id)));
        debug_assert!(self.by_time.len() == self.times.len(), "both have the same connections");
    }

    /// Returns the time of the first event; none without one.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Returns the connections whose event is due, the earliest first.
    pub(crate) fn until(&self, now: Instant) -> impl Iterator<Item = ConnectionId> {
        self.by_time.range(..=(now, ConnectionId(u64::MAX))).map(|(_, id)| *id)
    }
}
