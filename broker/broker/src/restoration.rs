// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections whose path failed: moved to other paths in bulk, or withdrawn until there is one.
//!
//! [`weir_network::NetworkState::restore`] decides who gets which path. Here each outcome becomes a
//! change of the record: a change of path that is made as any other, or the state `broken`, in
//! which nothing is reserved and no router has anything. The change makes before it breaks too: the
//! old entry sends into a dead path until it is replaced, and nobody waits for the old path to run
//! empty.

use weir_network::{
    ConnectionEvent, ConnectionId, ConnectionPlan, ConnectionState, NetworkId, RestorationCursor,
    RestorationOutcome,
};
use weir_units::Nanos;

use crate::execution::NodePhase;
use crate::failures::FailedParts;
use crate::refusal::BrokerRefusal;
use crate::requests::unknown;
use crate::state::{BrokerState, advanced, illegal};

/// A connection that changed because its path failed; its row is to be stored.
#[derive(Debug)]
pub(crate) enum RestorationStep {
    /// Its steps to another path begin.
    Move(ConnectionId),
    /// It has no path, and routers lose what they have of it.
    Withdraw(ConnectionId, Vec<NodePhase>),
    /// Nothing is to be done at routers.
    Store(ConnectionId),
}

impl BrokerState {
    /// Takes what was observed of routers and devices. Returns true if it differs from before.
    pub(crate) fn observe(&mut self, observed: FailedParts) -> bool {
        let links = std::mem::take(&mut self.failed.links);
        let observed = FailedParts { links, ..observed };
        let differs = self.failed != observed;
        self.failed = observed;
        if differs {
            self.apply_failures();
        }
        differs
    }

    /// Sets a link of a network down or up again.
    ///
    /// # Errors
    /// The network has no such link.
    pub(crate) fn set_link(
        &mut self,
        network: &str,
        link: &str,
        up: bool,
    ) -> Result<(), BrokerRefusal> {
        self.known_link(network, link)?;
        let key = (network.to_owned(), link.to_owned());
        match up {
            true => self.failed.links.remove(&key),
            false => self.failed.links.insert(key),
        };
        self.apply_failures();
        Ok(())
    }

    /// Returns the network of that name, if it has such a link.
    ///
    /// # Errors
    /// There is no such network, or it has no such link.
    pub(crate) fn known_link(&self, network: &str, link: &str) -> Result<NetworkId, BrokerRefusal> {
        let id = self.directory.network(network).ok_or_else(|| unknown("network", network))?;
        self.directory.link(id, link).map(|_| id).ok_or_else(|| unknown("link", link))
    }

    /// Takes the links that are set down from the store.
    pub(crate) fn restore_links(&mut self, links: Vec<(String, String)>) {
        self.failed.links.extend(links);
        self.apply_failures();
    }

    /// Finds other paths for all connections whose path failed, and for those without one.
    #[cfg(test)]
    pub(crate) fn restore(&mut self) -> Result<Vec<RestorationStep>, BrokerRefusal> {
        Ok(self.restore_some(None, usize::MAX)?.0)
    }

    /// Finds paths for the next `most` connections after `after` that have none or whose path
    /// failed; with `None`, for the most important ones. Returns the place at which the next part
    /// begins; `None` once all were tried.
    pub(crate) fn restore_some(
        &mut self,
        after: Option<RestorationCursor>,
        most: usize,
    ) -> Result<(Vec<RestorationStep>, Option<RestorationCursor>), BrokerRefusal> {
        let turn = self.network.restore_some(after, most)?;
        // They have lost their charge: a successor must not charge them again.
        let mut steps: Vec<_> = turn.suspended.into_iter().map(RestorationStep::Store).collect();
        for RestorationOutcome { id, answer, .. } in turn.outcomes {
            let step = match answer {
                Ok(()) => Some(self.move_to_next(id)?),
                Err(Some(reason)) => {
                    let why = self.directory.reason(&reason);
                    self.break_off(id, why)?
                }
                // Nothing of it is at routers, and if it is broken, its reason is known.
                Err(None) => None,
            };
            steps.extend(step);
        }
        Ok((steps, turn.next))
    }

    /// Plans the way to the path that a connection's change leads to.
    fn move_to_next(&mut self, id: ConnectionId) -> Result<RestorationStep, BrokerRefusal> {
        let Some((connection, record)) = self.get(id) else {
            return Ok(RestorationStep::Store(id));
        };
        let Some((request, flows)) = self.network.change_of(id).cloned() else {
            // Nothing of it is at routers yet, so that it has its new path at once.
            let tunnels = self.tunnels_of(connection, record);
            let plan = ConnectionPlan::creation(self.network.topology(), &tunnels);
            if let Some(record) = self.records.get_mut(&id) {
                record.plan = plan;
            }
            return Ok(RestorationStep::Store(id));
        };
        let old = self.tunnels_of(connection, record);
        let (entries, next) = (record.entries, record.generation.wrapping_add(1));
        let (requested, before) = (record.requested.clone(), connection.state);
        let new = self.tunnels(id, request, flows, entries, next);
        let mut plan = ConnectionPlan::change(self.network.topology(), &old, &new, Nanos::ZERO);
        for step in &mut plan.steps {
            step.wait = 0;
        }
        let state = advanced(broken(before)?, ConnectionEvent::Change, &plan)?;
        self.set_state(id, state)?;
        if let Some(record) = self.records.get_mut(&id) {
            (record.next, record.plan) = (Some((requested, next)), plan);
            (record.restoring, record.refusal) = (true, None);
        }
        Ok(RestorationStep::Move(id))
    }

    /// Notes that an active connection has no path.
    fn break_off(
        &mut self,
        id: ConnectionId,
        why: String,
    ) -> Result<Option<RestorationStep>, BrokerRefusal> {
        let Some((connection, _)) = self.get(id) else { return Ok(None) };
        let after = broken(connection.state)?;
        let step = RestorationStep::Withdraw(id, self.withdrawal(id));
        self.set_state(id, after)?;
        if let Some(record) = self.records.get_mut(&id) {
            record.refusal = Some(why);
        }
        Ok(Some(step))
    }

    /// Returns what takes a connection from its routers.
    pub(crate) fn withdrawal(&self, id: ConnectionId) -> Vec<NodePhase> {
        let Some((connection, record)) = self.get(id) else { return Vec::new() };
        let removal = self.removal(connection, record);
        removal.steps.iter().map(|step| self.phase(step)).collect()
    }

    fn apply_failures(&mut self) {
        for (id, network, arc) in self.directory.all_arcs() {
            let is_up = self.failed.fault_of(network, arc).is_none();
            self.network.set_arc_up(id, is_up);
        }
        for (id, name) in self.directory.routers() {
            self.network.set_node_up(id, !self.failed.routers.contains(name));
        }
    }
}

/// Returns the state of a connection without a path.
pub(crate) fn broken(state: ConnectionState) -> Result<ConnectionState, BrokerRefusal> {
    if state == ConnectionState::Broken {
        return Ok(state);
    }
    state.after(ConnectionEvent::Break).map_err(illegal)
}
