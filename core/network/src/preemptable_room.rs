// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The room that less important connections could give to a request.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::connection::TimeWindow;
use crate::ids::{ArcId, ConnectionId};
use crate::ledger::ArcLedger;
use crate::lifecycle::ConnectionState;
use crate::state::KnownConnection;

/// Room that connections from some priority on could give, by arc.
pub(crate) struct PreemptableRoom {
    window: TimeWindow,
    /// Connections of this priority, and less important ones, give their room.
    priority: u8,
    known: RefCell<BTreeMap<ArcId, u64>>,
    /// The number of flows that may still be looked at.
    flows_left: Cell<usize>,
}

impl PreemptableRoom {
    /// Begins without any arc; at most `flows_left` flows are looked at.
    pub(crate) fn new(window: TimeWindow, priority: u8, flows_left: usize) -> Self {
        let flows_left = Cell::new(flows_left);
        Self { window, priority, known: RefCell::default(), flows_left }
    }

    /// Returns the number of flows that may still be looked at.
    pub(crate) const fn flows_left(&self) -> usize {
        self.flows_left.get()
    }

    /// Returns the rate by which the free rate of an arc would grow; 0 if its flows are more than
    /// may still be looked at.
    pub(crate) fn on(
        &self,
        arc: ArcId,
        ledger: &ArcLedger,
        connections: &BTreeMap<ConnectionId, KnownConnection>,
    ) -> u64 {
        if let Some(room) = self.known.borrow().get(&arc) {
            return *room;
        }
        let (flows, left) = (ledger.flows_on(arc), self.flows_left.get());
        self.flows_left.set(left.saturating_sub(flows));
        if flows > left {
            return 0;
        }
        let gives = |id| connections.get(&id).is_some_and(|known| self.gives(known));
        let room = ledger.freed_without(arc, self.window, gives);
        self.known.borrow_mut().insert(arc, room);
        room
    }

    pub(crate) fn gives(&self, known: &KnownConnection) -> bool {
        known.connection.request.priority >= self.priority
            && known.connection.request.window.overlaps(self.window)
            && known.connection.state == ConnectionState::Active
            && known.next.is_none()
            && !known.is_suspended
    }
}
