// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's state: the networks with their reservations, and each connection's record.
//!
//! `weir-network` decides, accounts and plans, and its state machine maps events to states. Here
//! each decision changes two things together: the reservation, and the record that is stored. The
//! nodes' instructions follow from a connection's state and plan alone ([`BrokerState::work`]), so
//! a broker and its successor send the same instructions.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use weir_api_types::error::ErrorCode;
use weir_broker_api_types::{ConnectionChange, RequestedConnection, StepTimes};
use weir_network::{
    AdmissionAnswer, AdmittedFlows, ByDirection, ConnectionEvent, ConnectionId, ConnectionPlan,
    ConnectionRequest, ConnectionState, ConnectionStep, ConnectionTunnels, FlowDirection,
    IllegalTransition, NetworkConnection, NetworkError, NetworkId, NetworkState, PathChangeStep,
    PathMove, RearrangementLimits, RearrangementOutcome, RecoveryAction, recovery,
};
use weir_units::{Instant, Nanos};

use crate::config::BrokerConfig;
use crate::directory::NetworkDirectory;
use crate::due_times::DueTimes;
use crate::execution::NodePhase;
use crate::failures::FailedParts;
use crate::history::{ChangeHistory, HistorySubject};
use crate::ids::{StableIds, id_text};
use crate::item::{Items, outer_address};
use crate::record::{ConnectionRecord, ObservedParts, StoredConnection, StoredKey};
use crate::refusal::BrokerRefusal;
use crate::remembered_keys::RememberedKeys;
use crate::requests::{changed, unknown};
use crate::tunnel_numbers::{EntryNumbers, TunnelNumbers, store_wide};

/// The broker's state, in memory: the contents of the store, and what was observed of routers.
#[derive(Debug)]
pub(crate) struct BrokerState {
    /// The configuration in force: that of the file, with the shares that were changed since.
    pub(crate) config: Arc<BrokerConfig>,
    /// The configuration as the file has it.
    pub(crate) file_config: Arc<BrokerConfig>,
    pub(crate) directory: NetworkDirectory,
    pub(crate) network: NetworkState,
    pub(crate) records: BTreeMap<ConnectionId, ConnectionRecord>,
    /// Failed parts of the networks, and links that are set down.
    pub(crate) failed: FailedParts,
    pub(crate) history: ChangeHistory,
    /// Routers as seen by the broker that configures them.
    pub(crate) observed: ObservedParts,
    /// The other broker that configures the routers, empty if none does; `None` if this one does.
    pub(crate) configured_by: Option<String>,
    pub(crate) numbers: TunnelNumbers,
    pub(crate) due: DueTimes,
    pub(crate) keys: RememberedKeys,
}

/// Progress of a connection after the outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepProgress {
    /// Another step follows.
    Next,
    /// The step is tried again.
    Again,
    /// Nothing is under way any more.
    Settled,
    /// The connection has no path any more, and is to be withdrawn from its nodes.
    Broken,
    /// The connection is gone.
    Gone,
}

impl BrokerState {
    /// Builds the state from a configuration and the contents of the store.
    ///
    /// # Errors
    /// A stored connection has no room on the links of the configuration, or one of them is gone,
    /// or an end node is gone or elsewhere.
    pub(crate) fn new(
        config: &BrokerConfig,
        ids: &mut StableIds,
        connections: Vec<StoredConnection>,
        keys: Vec<StoredKey>,
    ) -> Result<Self, String> {
        let (directory, network) = NetworkDirectory::new(config, ids)?;
        let (records, numbers, due) =
            (BTreeMap::new(), TunnelNumbers::default(), DueTimes::default());
        let (failed, remembered) = (FailedParts::default(), RememberedKeys::default());
        let (history, observed) = (ChangeHistory::default(), ObservedParts::default());
        let config = Arc::new(config.clone());
        let mut state = Self {
            file_config: Arc::clone(&config),
            config,
            directory,
            network,
            records,
            failed,
            history,
            observed,
            configured_by: None,
            numbers,
            due,
            keys: remembered,
        };
        for key in keys {
            state.keys.remember(key);
        }
        for row in connections {
            state.take_over(row)?;
        }
        Ok(state)
    }

    /// Takes over a stored connection, which the state must not have yet.
    ///
    /// # Errors
    /// The connection has no room, or a link of its path is gone, or an end node is gone or
    /// elsewhere.
    pub(crate) fn take_over(&mut self, row: StoredConnection) -> Result<(), String> {
        let StoredConnection { connection, next, suspended, mut record } = row;
        let NetworkConnection { id, request, flows, state: step } = connection;
        // Store versions before 4 had no `suspended`: it follows from these two.
        let suspended = suspended || record.restoring || step == ConnectionState::Broken;
        if record.entries == EntryNumbers::default() {
            record.entries = store_wide(record.number, self.network.topology(), &flows);
        }
        let restored = if suspended {
            self.network.reserve_nothing(id, request, flows, step)
        } else {
            self.network.reserve(id, request, flows, step)
        };
        let restored = restored.and_then(|()| {
            next.map_or(Ok(()), |(request, flows)| self.network.begin_change(id, request, flows))
        });
        restored.map_err(|error| format!("stored connection {}: {error}", id_text(id)))?;
        self.insert(id, record);
        let checked = self.check_ends(id);
        checked.map_err(|what| format!("stored connection {}: {what}", id_text(id)))
    }

    /// Checks the end nodes of a connection. A connection that is being removed needs none.
    fn check_ends(&self, id: ConnectionId) -> Result<(), String> {
        let Some((connection, record)) = self.get(id) else { return Ok(()) };
        let NetworkConnection { request, flows, state, .. } = connection;
        if matches!(
            state,
            ConnectionState::Removing | ConnectionState::RollingBack { to_active: false }
        ) {
            return Ok(());
        }
        let present = (!self.network.is_suspended(id)).then_some(flows);
        let paths = self.network.change_of(id).map(|(_, flows)| flows).or(present);
        self.directory.check_ends(request, &record.requested, &record.entries, paths)
    }

    /// Inserts the record of a connection for which `network` has reserved already.
    pub(crate) fn insert(&mut self, id: ConnectionId, record: ConnectionRecord) {
        self.numbers.take(record.entries);
        self.records.insert(id, record);
        self.note_times(id);
    }

    /// Sets the state of a connection, and computes when its next event is due.
    pub(crate) fn set_state(
        &mut self,
        id: ConnectionId,
        state: ConnectionState,
    ) -> Result<(), NetworkError> {
        self.network.set_state(id, state)?;
        self.note_times(id);
        Ok(())
    }

    /// Returns a connection with its record.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<(&NetworkConnection, &ConnectionRecord)> {
        Some((self.network.connection(id)?, self.records.get(&id)?))
    }

    /// Returns a connection as the history names it.
    pub(crate) fn subject(&self, id: ConnectionId) -> Option<HistorySubject> {
        let network = self.records.get(&id)?.requested.network.clone();
        Some(HistorySubject::Connection { network, id: id_text(id) })
    }

    /// Returns all connections with their records.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&NetworkConnection, &ConnectionRecord)> {
        self.after(None)
    }

    /// Returns the connections whose id is larger than the given one, with their records.
    pub(crate) fn after(
        &self,
        id: Option<ConnectionId>,
    ) -> impl Iterator<Item = (&NetworkConnection, &ConnectionRecord)> {
        let after = self.network.connections_after(id);
        after.filter_map(|known| Some((known, self.records.get(&known.id)?)))
    }

    /// Returns a connection as it is stored.
    pub(crate) fn row(&self, id: ConnectionId) -> Option<StoredConnection> {
        let (connection, record) = self.get(id)?;
        let next = self.network.change_of(id).cloned();
        let (suspended, record) = (self.network.is_suspended(id), record.clone());
        Some(StoredConnection { connection: connection.clone(), next, suspended, record })
    }

    /// Admits a change of an active connection, reserves for it and plans it.
    pub(crate) fn change(
        &mut self,
        id: ConnectionId,
        change: &ConnectionChange,
        now: Instant,
    ) -> Result<(), BrokerRefusal> {
        let requested = changed(self.active(id)?.1.requested.clone(), change)?;
        let request = self.directory.request(&requested, now)?;
        let flows = match self.network.admit_change(id, &request) {
            AdmissionAnswer::Admitted(flows) => flows,
            AdmissionAnswer::Refused(refusal) => return Err(self.directory.refusal(&refusal)),
        };
        self.plan_change(id, requested, request, flows)
    }

    /// Finds moves of other connections, at most `most`, after which a request is admitted.
    pub(crate) fn rearrangement(
        &mut self,
        requested: &RequestedConnection,
        most: usize,
        now: Instant,
    ) -> Option<Vec<PathMove>> {
        let request = self.directory.request(requested, now).ok()?;
        let limits = rearrangement_limits(most);
        match self.network.rearrange(&request, limits) {
            RearrangementOutcome::Found { moves, .. } if !moves.is_empty() => Some(moves),
            _ => None,
        }
    }

    /// Plans a move of a rearrangement, and reserves for it.
    pub(crate) fn plan_move(&mut self, path: PathMove) -> Result<(), BrokerRefusal> {
        let PathMove { connection: id, direction, flow } = path;
        let (connection, record) = self.active(id)?;
        let (request, requested) = (connection.request.clone(), record.requested.clone());
        let mut flows = connection.flows.clone();
        *flows.of_mut(direction) = Some(flow);
        self.plan_change(id, requested, request, flows)
    }

    /// Reserves for a change of an active connection, and plans it.
    fn plan_change(
        &mut self,
        id: ConnectionId,
        requested: RequestedConnection,
        request: ConnectionRequest,
        flows: AdmittedFlows,
    ) -> Result<(), BrokerRefusal> {
        let (connection, record) = self.active(id)?;
        let (state, old_flows) = (connection.state, connection.flows.clone());
        let old_request = connection.request.clone();
        let (entries, generation) = (record.entries, record.generation);
        let path = |flows: &AdmittedFlows, direction| {
            flows.of(direction).as_ref().map(|flow| flow.path.arcs.clone())
        };
        let stays = FlowDirection::BOTH
            .into_iter()
            .all(|direction| path(&flows, direction) == path(&old_flows, direction));
        let next = generation.wrapping_add(u32::from(!stays));
        let old = self.tunnels(id, old_request, old_flows, entries, generation);
        let new = self.tunnels(id, request, flows, entries, next);
        let plan = ConnectionPlan::change(self.network.topology(), &old, &new, DRAIN_MARGIN);
        let state = advanced(state, ConnectionEvent::Change, &plan)?;
        self.network.begin_change(id, new.request, new.flows)?;
        self.set_state(id, state)?;
        if let Some(record) = self.records.get_mut(&id) {
            (record.next, record.plan) = (Some((requested, next)), plan);
        }
        Ok(())
    }

    /// Plans the removal of a connection that has no step under way. A connection that was never
    /// configured is gone at once. A connection whose change fails is only marked: its step
    /// continues, and the connection ends once the step has its outcome.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Result<StepProgress, BrokerRefusal> {
        let (connection, record) = match self.get(id) {
            Some((known, _))
                if matches!(known.state, ConnectionState::Held | ConnectionState::Scheduled) =>
            {
                self.forget(id)?;
                return Ok(StepProgress::Gone);
            }
            Some((known, record))
                if matches!(known.state, ConnectionState::Changing(_))
                    && record.fault.is_some()
                    && !record.ending =>
            {
                if let Some(record) = self.records.get_mut(&id) {
                    record.ending = true;
                }
                return Ok(StepProgress::Again);
            }
            // A broken connection was withdrawn from its nodes already.
            Some(known) if known.0.state == ConnectionState::Broken => known,
            _ => self.active(id)?,
        };
        let plan = match connection.state {
            ConnectionState::Active => self.removal(connection, record),
            _ => ConnectionPlan::default(),
        };
        let state = advanced(connection.state, ConnectionEvent::End, &plan)?;
        self.set_state(id, state)?;
        if let Some(record) = self.records.get_mut(&id) {
            record.plan = plan;
        }
        Ok(StepProgress::Next)
    }

    /// Forgets a connection and releases its reservation.
    pub(crate) fn forget(&mut self, id: ConnectionId) -> Result<(), BrokerRefusal> {
        self.network.release(id)?;
        if let Some(record) = self.records.remove(&id) {
            self.numbers.give_back(record.entries);
        }
        self.note_times(id);
        Ok(())
    }

    /// Returns the steps that the nodes are to do now; none if nothing is under way.
    pub(crate) fn work(&self, id: ConnectionId) -> Option<Vec<NodePhase>> {
        let (connection, record) = self.get(id)?;
        let plan = &record.plan;
        let steps = match recovery(connection.state) {
            RecoveryAction::None => return None,
            RecoveryAction::RepeatStep(step) => plan.step(step).cloned().into_iter().collect(),
            RecoveryAction::RollBack => {
                let kept = connection.state == ConnectionState::RollingBack { to_active: true };
                let last = if kept { PathChangeStep::ReadBack } else { PathChangeStep::Release };
                plan.roll_back(last).steps
            }
            RecoveryAction::Remove => plan.steps.clone(),
        };
        Some(steps.iter().map(|step| self.phase(step)).collect())
    }

    /// Takes the outcome of the steps that [`Self::work`] returned.
    pub(crate) fn finish(
        &mut self,
        id: ConnectionId,
        succeeded: bool,
    ) -> Result<StepProgress, BrokerRefusal> {
        let (connection, record) = self.get(id).ok_or_else(|| unknown_id(id))?;
        let before = connection.state;
        let event = match (recovery(before), succeeded) {
            (RecoveryAction::RepeatStep(_), true) => ConnectionEvent::StepDone,
            (RecoveryAction::RepeatStep(_), false) => ConnectionEvent::StepFailed,
            // The reservation was confirmed to the requester before its start, so it is kept.
            (RecoveryAction::RollBack, true) if record.by_calendar => ConnectionEvent::Break,
            (RecoveryAction::RollBack, true) => ConnectionEvent::RolledBack,
            (RecoveryAction::Remove, true) => ConnectionEvent::Removed,
            _ => return Ok(StepProgress::Again),
        };
        let mut state = advanced(before, event, &record.plan)?;
        match (before, state) {
            (_, ConnectionState::Released) => {
                self.forget(id)?;
                return Ok(StepProgress::Gone);
            }
            (ConnectionState::Changing(_), ConnectionState::Active) => {
                self.network.finish_change(id)?;
                if let Some(record) = self.records.get_mut(&id) {
                    record.restoring = false;
                    if let Some(next) = record.next.take() {
                        (record.requested, record.generation) = next;
                    }
                }
            }
            (ConnectionState::Configuring(_), ConnectionState::RollingBack { .. }) => {
                if let Some(record) = self.records.get_mut(&id).filter(|of| of.by_calendar) {
                    record.refusal = record.fault.clone();
                }
            }
            (ConnectionState::RollingBack { .. }, ConnectionState::Broken) => {
                self.network.suspend(id)?;
            }
            (ConnectionState::RollingBack { .. }, ConnectionState::Active) => {
                self.network.abort_change(id)?;
                if let Some(record) = self.records.get_mut(&id) {
                    record.next = None;
                    if std::mem::take(&mut record.restoring) {
                        // The earlier path has failed, so nothing is left to return to.
                        state = state.after(ConnectionEvent::Break).map_err(illegal)?;
                        record.refusal = Some(MOVE_FAILED.to_owned());
                    }
                }
            }
            _ => {}
        }
        self.set_state(id, state)?;
        if matches!(state, ConnectionState::Active | ConnectionState::Broken)
            && let Some(record) = self.records.get_mut(&id)
        {
            // Nothing is under way, so the plan, which would be most of the stored row, is dropped.
            (record.plan, record.by_calendar) = (ConnectionPlan::default(), false);
        }
        Ok(match state {
            ConnectionState::Active => StepProgress::Settled,
            ConnectionState::Broken => StepProgress::Broken,
            _ if state == before => StepProgress::Again,
            _ => StepProgress::Next,
        })
    }

    /// Records the times of a step.
    pub(crate) fn record_step(&mut self, id: ConnectionId, times: Option<StepTimes>) {
        if let Some(record) = self.records.get_mut(&id) {
            record.took = times.or(record.took);
        }
    }

    /// Returns the items that routers are to have for all connections at present, before any
    /// further step.
    pub(crate) fn present(&self) -> BTreeMap<String, Items> {
        let mut all: BTreeMap<String, Items> = BTreeMap::new();
        for (connection, record) in self.all() {
            let changing = match connection.state {
                ConnectionState::Configuring(_)
                | ConnectionState::Active
                | ConnectionState::RollingBack { to_active: true } => None,
                ConnectionState::Changing(step) => Some(step),
                _ => continue,
            };
            let tunnels = self.tunnels_of(connection, record);
            let creation = match record.restoring {
                // The old path has failed, and nothing is reserved on it.
                true => ConnectionPlan::default(),
                false => ConnectionPlan::creation(self.network.topology(), &tunnels),
            };
            let done =
                record.plan.steps.iter().filter(|of| changing.is_some_and(|at| of.step < at));
            for (router, changes) in
                creation.steps.iter().chain(done).flat_map(|step| self.phase(step).changes)
            {
                let items = all.entry(router).or_default();
                for (key, edit) in changes {
                    edit.apply(&key, items);
                }
            }
        }
        all
    }

    /// Returns the connections in the middle of a step.
    pub(crate) fn under_way(&self) -> Vec<ConnectionId> {
        let busy = self
            .network
            .connections()
            .filter(|known| !matches!(recovery(known.state), RecoveryAction::None));
        busy.map(|known| known.id).collect()
    }

    /// Refuses a request for a connection that is about to end.
    pub(crate) fn refuse_leaving(&self, id: ConnectionId) -> Result<(), BrokerRefusal> {
        let (connection, record) = self.get(id).ok_or_else(|| unknown_id(id))?;
        let leaves = match connection.state {
            ConnectionState::Removing => true,
            ConnectionState::RollingBack { to_active } => !to_active && !record.by_calendar,
            _ => false,
        };
        if !leaves {
            return Ok(());
        }
        let text = format!("connection {} is {}", id_text(id), state_name(connection.state));
        Err(BrokerRefusal::new(ErrorCode::Conflict, text + ", and is gone then"))
    }

    fn active(
        &self,
        id: ConnectionId,
    ) -> Result<(&NetworkConnection, &ConnectionRecord), BrokerRefusal> {
        let (connection, record) = self.get(id).ok_or_else(|| unknown_id(id))?;
        if connection.state == ConnectionState::Active {
            return Ok((connection, record));
        }
        let text = format!("connection {} is {}", id_text(id), state_name(connection.state));
        Err(BrokerRefusal::new(ErrorCode::Conflict, text + "; ask again later"))
    }

    /// Plans the removal of a connection's items from its nodes.
    pub(crate) fn removal(
        &self,
        connection: &NetworkConnection,
        record: &ConnectionRecord,
    ) -> ConnectionPlan {
        let tunnels = self.tunnels_of(connection, record);
        ConnectionPlan::removal(self.network.topology(), &tunnels)
    }

    pub(crate) fn phase(&self, step: &ConnectionStep) -> NodePhase {
        let mut phase = NodePhase { wait: Duration::from_nanos(step.wait), ..NodePhase::default() };
        for intent in &step.intents {
            // The broker cannot reach a router that the file no longer has.
            if let Ok((router, changes)) = self.directory.changes(intent) {
                phase.changes.entry(router).or_default().extend(changes);
            }
        }
        phase
    }

    pub(crate) fn tunnels_of(
        &self,
        connection: &NetworkConnection,
        record: &ConnectionRecord,
    ) -> ConnectionTunnels {
        let NetworkConnection { id, request, flows, .. } = connection;
        self.tunnels(*id, request.clone(), flows.clone(), record.entries, record.generation)
    }

    pub(crate) fn tunnels(
        &self,
        id: ConnectionId,
        request: ConnectionRequest,
        flows: AdmittedFlows,
        entries: EntryNumbers,
        generation: u32,
    ) -> ConnectionTunnels {
        let outer = outer_addresses(&self.directory, request.network, entries, generation);
        ConnectionTunnels { id, request, flows, generation, outer }
    }
}

/// Returns the outer addresses of a connection's tunnels.
pub(crate) fn outer_addresses(
    directory: &NetworkDirectory,
    network: NetworkId,
    entries: EntryNumbers,
    generation: u32,
) -> ByDirection<Ipv6Addr> {
    let pool = directory.outer_pool(network);
    let of = |direction: FlowDirection| {
        let entry = entries.of(direction);
        entry.map_or(Ipv6Addr::UNSPECIFIED, |entry| outer_address(pool, entry, generation))
    };
    ByDirection { forward: of(FlowDirection::Forward), backward: of(FlowDirection::Backward) }
}

/// Returns the name of a state that users see.
pub(crate) const fn state_name(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::Held => "held",
        ConnectionState::Scheduled => "scheduled",
        ConnectionState::Configuring(_) => "configuring",
        ConnectionState::Active => "active",
        ConnectionState::Changing(_) => "changing",
        ConnectionState::RollingBack { .. } => "rolling_back",
        ConnectionState::Removing => "removing",
        ConnectionState::Broken => "broken",
        ConnectionState::Released => "released",
    }
}

/// Returns the refusal for an event that is illegal in a connection's state.
pub(crate) fn illegal(error: IllegalTransition) -> BrokerRefusal {
    BrokerRefusal::new(ErrorCode::Conflict, error.to_string())
}

/// Returns the state after an event; steps for which the plan has no commands are done at once.
pub(crate) fn advanced(
    state: ConnectionState,
    event: ConnectionEvent,
    plan: &ConnectionPlan,
) -> Result<ConnectionState, BrokerRefusal> {
    let mut state = state.after(event).map_err(illegal)?;
    while let RecoveryAction::RepeatStep(step) = recovery(state)
        && plan.step(step).is_none()
    {
        state = state.after(ConnectionEvent::StepDone).map_err(illegal)?;
    }
    Ok(state)
}

pub(crate) fn unknown_id(id: ConnectionId) -> BrokerRefusal {
    unknown("connection", &id_text(id))
}

/// Returns the limits of a search for `moves` moves at most. They are small, since the writer does
/// nothing else meanwhile.
const fn rearrangement_limits(moves: usize) -> RearrangementLimits {
    RearrangementLimits { moves, paths: 8, states: 10_000 }
}

/// The reason of a connection that is broken since its new path could not be configured.
const MOVE_FAILED: &str = "a router did not take the new path; it is tried again";

/// The time, beyond the path's delay, for which a packet may still be under way on an old path.
const DRAIN_MARGIN: Nanos = Nanos::new(50_000_000);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::item::ItemEdit;
    use crate::remembered_keys::KEYS_MAX;
    use crate::restoration::RestorationStep;
    use crate::schedule::EndedBy;
    use crate::test_config;

    const ID: ConnectionId = ConnectionId(1);

    const NOW: Instant = Instant::from_nanos(1_800_000_000_000_000_000);

    fn state() -> BrokerState {
        let config = test_config::with(&[test_config::TRIANGLE]);
        BrokerState::new(&config, &mut StableIds::default(), Vec::new(), Vec::new()).unwrap()
    }

    fn request(rate: &str, delay_max: Option<&str>) -> RequestedConnection {
        let mut request: RequestedConnection =
            serde_json::from_str(r#"{ "network": "n", "from": "x", "to": "y", "rate": "1Mbit" }"#)
                .unwrap();
        request.rate = rate.to_owned();
        request.delay_max = delay_max.map(str::to_owned);
        request
    }

    /// Admits a connection and lets its nodes have it.
    fn active(state: &mut BrokerState, rate: &str) {
        state.admit(ID, request(rate, None), NOW).unwrap();
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Settled);
    }

    fn reserved(state: &BrokerState) -> Vec<u64> {
        let network = state.directory.network("n").unwrap();
        let arcs = state.directory.arcs(network).map(|(arc, _)| arc);
        arcs.filter_map(|arc| Some(state.network.use_of(network, arc)?.0)).collect()
    }

    fn routers(phases: &[NodePhase]) -> Vec<Vec<&str>> {
        phases.iter().map(|phase| phase.changes.keys().map(String::as_str).collect()).collect()
    }

    fn avoiding(link: &str) -> ConnectionChange {
        ConnectionChange { avoid: Some(vec![link.to_owned()]), ..ConnectionChange::default() }
    }

    /// Goal: a refusal names the largest rate and the least delay. Each of them is admitted, and
    /// 1 % more is not. A refused request leaves nothing reserved.
    #[test]
    fn a_refusal_names_what_would_be_admitted() {
        let mut state = state();
        let refused = state.admit(ID, request("60Mbit", Some("2ms")), NOW).unwrap_err();
        let (text, changes) = (refused.error.message, refused.changes);
        assert!(text.contains("the least delay with room is 6ms, delay_max is 2ms"), "{text}");
        assert_eq!(reserved(&state), [0; 6]);
        let rate = changes.iter().find_map(|change| change.rate.clone()).unwrap();
        let bits: u64 = rate.strip_suffix("bit").unwrap().parse().unwrap();
        let above = format!("{}bit", bits / 100 * 101);
        state.admit(ID, request(&above, Some("2ms")), NOW).unwrap_err();
        state.admit(ID, request(&rate, Some("2ms")), NOW).unwrap();
        let delay = changes.iter().find_map(|change| change.delay_max.clone());
        assert_eq!(delay.as_deref(), Some("6ms"));
        let mut other = request("60Mbit", delay.as_deref());
        other.protocol = Some("udp".to_owned());
        state.admit(ConnectionId(2), other, NOW).unwrap();
    }

    /// Goal: a creation configures all nodes at once. A change configures first the nodes of the
    /// new path, then the entry, then those of the old path; meanwhile each link is charged the
    /// larger of its two rates.
    #[test]
    fn a_change_makes_before_it_breaks() {
        let mut state = state();
        state.admit(ID, request("20Mbit", None), NOW).unwrap();
        assert_eq!(routers(&state.work(ID).unwrap()), [["a", "c"]]);
        state.finish(ID, true).unwrap();
        assert_eq!(state.work(ID), None);
        let before = reserved(&state);
        state.change(ID, &avoiding("short"), NOW).unwrap();
        assert_eq!(reserved(&state).iter().sum::<u64>(), before.iter().sum::<u64>() * 3);
        for step in [vec!["b", "c"], vec!["a"]] {
            assert_eq!(routers(&state.work(ID).unwrap()), [step]);
            assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Next);
        }
        assert_eq!(routers(&state.work(ID).unwrap()), [["c"]]);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Settled);
        assert_eq!(reserved(&state).iter().sum::<u64>(), before.iter().sum::<u64>() * 2);
        assert_eq!(state.row(ID).unwrap().record.generation, 2);
        let faster =
            ConnectionChange { rate: Some("30Mbit".to_owned()), ..ConnectionChange::default() };
        state.change(ID, &faster, NOW).unwrap();
        assert_eq!(routers(&state.work(ID).unwrap()), [["a"]]);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Settled);
    }

    /// Goal: a change that fails before the entry is replaced is taken back, and what it reserved
    /// is free again. From the replacement on, a step is repeated until it succeeds.
    #[test]
    fn a_failed_change_is_taken_back() {
        let mut state = state();
        active(&mut state, "20Mbit");
        let before = reserved(&state);
        state.change(ID, &avoiding("short"), NOW).unwrap();
        assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Next);
        let undo = state.work(ID).unwrap();
        assert_eq!(routers(&undo), [["b", "c"]]);
        assert!(undo[0].changes.values().flatten().all(|(_, edit)| *edit == ItemEdit::Remove));
        assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Again);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Settled);
        assert_eq!(reserved(&state), before);
        state.change(ID, &avoiding("short"), NOW).unwrap();
        state.finish(ID, true).unwrap();
        assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Again);
        assert_eq!(routers(&state.work(ID).unwrap()), [["a"]]);
    }

    /// Goal: a creation that fails is rolled back, and leaves nothing.
    #[test]
    fn a_failed_creation_leaves_nothing() {
        let mut state = state();
        state.admit(ID, request("20Mbit", None), NOW).unwrap();
        assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Next);
        assert!(state.present().is_empty());
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Gone);
        assert_eq!(reserved(&state), [0; 6]);
        assert!(state.row(ID).is_none());
    }

    /// Goal: whatever the state, a successor that reads the stored rows has the same reservations,
    /// the same work, and wants the same items on the routers.
    #[test]
    fn a_successor_goes_on_from_the_rows() {
        let mut state = state();
        let same = |state: &BrokerState| {
            let text = serde_json::to_string(&state.row(ID).unwrap()).unwrap();
            let row = serde_json::from_str(&text).unwrap();
            let config = test_config::with(&[test_config::TRIANGLE]);
            let mut ids = StableIds::default();
            let next = BrokerState::new(&config, &mut ids, vec![row], Vec::new()).unwrap();
            assert_eq!(reserved(&next), reserved(state));
            assert_eq!(next.work(ID), state.work(ID));
            assert_eq!(next.present(), state.present());
        };
        state.admit(ID, request("20Mbit", None), NOW).unwrap();
        same(&state);
        state.finish(ID, true).unwrap();
        same(&state);
        state.change(ID, &avoiding("short"), NOW).unwrap();
        for _step in 0..3 {
            same(&state);
            state.finish(ID, true).unwrap();
        }
        state.remove(ID).unwrap();
        same(&state);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Gone);
    }

    /// Connections 1 and 2 over the short link, 1 less important; 3 leaves room for one of them on
    /// the long way.
    fn three(state: &mut BrokerState) {
        for (id, rate, priority, avoid) in
            [(1, "20Mbit", 1, ""), (2, "20Mbit", 0, ""), (3, "60Mbit", 0, "short")]
        {
            let mut request = request(rate, None);
            (request.protocol, request.to_port) = (Some("udp".to_owned()), Some(id));
            request.priority = priority;
            request.avoid =
                Some(avoid).filter(|of| !of.is_empty()).map(str::to_owned).into_iter().collect();
            let id = ConnectionId(u64::from(id));
            state.admit(id, request, NOW).unwrap();
            assert_eq!(state.finish(id, true).unwrap(), StepProgress::Settled);
        }
    }

    fn successor(state: &BrokerState) -> BrokerState {
        let rows = state.all().filter_map(|(connection, _)| state.row(connection.id));
        let rows = rows.map(|row| {
            let text = serde_json::to_string(&row).unwrap();
            serde_json::from_str(&text).unwrap()
        });
        let config = test_config::with(&[test_config::TRIANGLE]);
        let mut ids = StableIds::default();
        let mut next = BrokerState::new(&config, &mut ids, rows.collect(), Vec::new()).unwrap();
        next.restore_links(state.failed.links.iter().cloned().collect());
        assert_eq!(reserved(&next), reserved(state));
        assert_eq!(next.present(), state.present());
        next
    }

    /// Goal: a restoration in parts has the outcome of a whole one, also if a successor takes over
    /// in between: a connection that is yet to be tried has lost its reservation, in the store too.
    #[test]
    fn a_successor_goes_on_with_a_restoration_in_parts() {
        let mut state = state();
        three(&mut state);
        state.set_link("n", "short", false).unwrap();
        let (steps, next) = state.restore_some(None, 1).unwrap();
        let [RestorationStep::Store(ID), RestorationStep::Move(ConnectionId(2))] = &steps[..]
        else {
            panic!("{steps:?}");
        };
        assert!(next.is_some());
        let mut state = successor(&state);
        assert_eq!(state.get(ID).unwrap().0.state, ConnectionState::Active);
        let steps = state.restore().unwrap();
        assert!(matches!(&steps[..], [RestorationStep::Withdraw(ID, _)]), "{steps:?}");
        // The reason of a broken connection is not looked for again.
        assert!(state.restore().unwrap().is_empty());
    }

    /// Goal: connections over a failed link move in the order of their priority. A connection
    /// without a path has nothing reserved and nothing on the routers, says why, and returns with
    /// the link. A successor continues from each state.
    #[test]
    fn a_failed_link_is_left_by_priority() {
        let mut state = state();
        three(&mut state);
        state.set_link("n", "short", false).unwrap();
        let steps = state.restore().unwrap();
        let [RestorationStep::Move(ConnectionId(2)), RestorationStep::Withdraw(ID, phases)] =
            &steps[..]
        else {
            panic!("{steps:?}");
        };
        assert_eq!(routers(phases), [["a", "c"]]);
        let refusal = state.get(ID).unwrap().1.refusal.clone().unwrap();
        assert!(refusal.contains("are free on the best path"), "{refusal}");
        let moved = ConnectionId(2);
        for step in [vec!["b", "c"], vec!["a"], vec!["c"]] {
            state = successor(&state);
            assert_eq!(routers(&state.work(moved).unwrap()), [step]);
            // No connection is moved twice.
            assert!(state.restore().unwrap().is_empty());
            state.finish(moved, true).unwrap();
        }
        assert!(state.restore().unwrap().is_empty());
        state.set_link("n", "short", true).unwrap();
        let steps = state.restore().unwrap();
        assert!(matches!(&steps[..], [RestorationStep::Move(ID)]), "{steps:?}");
        state = successor(&state);
        // A router refuses the new path: the connection is broken as before, and retried.
        assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Next);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Broken);
        state = successor(&state);
        assert!(matches!(&state.restore().unwrap()[..], [RestorationStep::Move(ID)]));
        while state.finish(ID, true).unwrap() == StepProgress::Next {}
        state = successor(&state);
        assert_eq!(state.get(ID).unwrap().0.state, ConnectionState::Active);
        assert!(state.failed.fault_of("n", first_arc(&state)).is_none());
    }

    fn first_arc(state: &BrokerState) -> &crate::directory::KnownArc {
        state.directory.all_arcs().next().unwrap().2
    }

    /// Goal: a device without a carrier fails both directions of its link, a silent router fails
    /// all of its links, and each fault names its cause.
    #[test]
    fn faults_are_named() {
        let mut state = state();
        let key = ("c".to_owned(), "a".to_owned());
        let parts = FailedParts { devices: BTreeSet::from([key]), ..FailedParts::default() };
        assert!(state.observe(parts.clone()) && !state.observe(parts));
        let faults = |state: &BrokerState| {
            let all = state.directory.all_arcs();
            all.filter_map(|(_, network, arc)| state.failed.fault_of(network, arc))
                .collect::<Vec<_>>()
        };
        assert_eq!(faults(&state), ["device \"c:a\" has no carrier"; 2]);
        let routers = BTreeSet::from(["b".to_owned()]);
        assert!(state.observe(FailedParts { routers, ..FailedParts::default() }));
        assert_eq!(faults(&state), ["router \"b\" does not answer"; 4]);
        state.set_link("n", "second", false).unwrap();
        assert_eq!(faults(&state)[2..], ["set down"; 2]);
        assert!(state.set_link("n", "third", false).is_err());
    }

    /// Goal: a request that finds no room is admitted after a move, which is make-before-break.
    #[test]
    fn a_move_makes_room() {
        let mut state = state();
        active(&mut state, "40Mbit");
        let mut wanted = request("40Mbit", Some("2ms"));
        (wanted.protocol, wanted.to_port) = (Some("udp".to_owned()), Some(7));
        state.admit(ConnectionId(2), wanted.clone(), NOW).unwrap_err();
        let moves = state.rearrangement(&wanted, 1, NOW).unwrap();
        assert_eq!(moves.len(), 1);
        for path in moves {
            state.plan_move(path).unwrap();
        }
        while state.finish(ID, true).unwrap() == StepProgress::Next {}
        state.admit(ConnectionId(2), wanted.clone(), NOW).unwrap();
        assert_eq!(state.rearrangement(&wanted, 1, NOW), None);
    }

    fn later(seconds: u64) -> Instant {
        NOW + Nanos::from_secs(seconds)
    }

    fn timed(edit: impl FnOnce(&mut RequestedConnection)) -> RequestedConnection {
        let mut request = request("40Mbit", Some("2ms"));
        (request.protocol, request.to_port) = (Some("udp".to_owned()), Some(7));
        edit(&mut request);
        request
    }

    /// Goal: a reservation is admitted against each instant of its window, and no other. It starts
    /// and ends by itself; a successor catches up on events that were due meanwhile.
    #[test]
    fn the_calendar_reserves_starts_and_ends() {
        let mut state = state();
        let reservation = |port, start: u64, end: u64| {
            timed(|of| {
                of.to_port = Some(port);
                of.start = Some(crate::clock::text(later(start)));
                of.end = Some(crate::clock::text(later(end)));
            })
        };
        state.admit(ID, reservation(1, 100, 200), NOW).unwrap();
        assert_eq!(state.work(ID), None);
        assert!(state.present().is_empty());
        // A window with one instant in common is refused; a window with none is admitted.
        state.admit(ConnectionId(2), reservation(2, 199, 300), NOW).unwrap_err();
        state.admit(ConnectionId(2), reservation(2, 200, 300), NOW).unwrap();
        state.admit(ConnectionId(3), reservation(3, 0, 101), NOW).unwrap_err();
        state
            .admit(
                ConnectionId(3),
                timed(|of| of.end = Some("2020-01-01T00:00:00Z".to_owned())),
                NOW,
            )
            .unwrap_err();
        assert_eq!(state.next_due(), Some(later(100)));
        assert_eq!(state.due(later(99)), []);
        state = successor(&state);
        assert_eq!(state.due(later(100)), [(ID, ConnectionEvent::Start)]);
        state.begin_scheduled(ID).unwrap();
        state = successor(&state);
        assert_eq!(routers(&state.work(ID).unwrap()), [["a", "c"]]);
        state.finish(ID, true).unwrap();
        state = successor(&state);
        // The end of one and the start of the next: the end comes first.
        let two = ConnectionId(2);
        let due = [(ID, ConnectionEvent::End), (two, ConnectionEvent::Start)];
        assert_eq!(state.due(later(200)), due);
        assert_eq!(state.remove(ID).unwrap(), StepProgress::Next);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Gone);
        // The second never started, and is gone at once.
        state = successor(&state);
        assert_eq!(state.remove(two).unwrap(), StepProgress::Gone);
        assert_eq!(reserved(&state), [0; 6]);
    }

    /// Goal: a reservation whose start fails is not lost, just as one whose path fails. Once it is
    /// rolled back, by a successor too, it is broken, says why, and is retried.
    #[test]
    fn a_start_that_fails_leaves_a_broken_connection() {
        let mut state = state();
        let start = Some(crate::clock::text(later(100)));
        state.admit(ID, timed(|of| of.start = start), NOW).unwrap();
        state.begin_scheduled(ID).unwrap();
        state.note_fault(ID, Some("router \"a\" does not answer".to_owned()));
        assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Next);
        state = successor(&state);
        assert!(state.present().is_empty());
        state.note_fault(ID, None);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Broken);
        assert_eq!(reserved(&state), [0; 6]);
        state = successor(&state);
        let (connection, record) = state.get(ID).unwrap();
        assert_eq!(connection.state, ConnectionState::Broken);
        assert_eq!(record.refusal.as_deref(), Some("router \"a\" does not answer"));
        assert!(matches!(&state.restore().unwrap()[..], [RestorationStep::Move(ID)]));
        while state.finish(ID, true).unwrap() == StepProgress::Next {}
        assert_eq!(state.get(ID).unwrap().0.state, ConnectionState::Active);
    }

    /// Goal: a held connection is reserved but not configured; it is committed in time or released.
    /// The deadline is in the store.
    #[test]
    fn a_hold_is_committed_or_runs_out() {
        let mut state = state();
        let held = || timed(|of| of.hold = Some("30s".to_owned()));
        state.admit(ID, held(), NOW).unwrap();
        assert!(state.work(ID).is_none() && state.present().is_empty());
        state.admit(ConnectionId(2), timed(|of| of.to_port = Some(8)), NOW).unwrap_err();
        state = successor(&state);
        assert_eq!(state.due(later(29)), []);
        assert_eq!(state.due(later(30)), [(ID, ConnectionEvent::End)]);
        assert_eq!(state.remove(ID).unwrap(), StepProgress::Gone);
        state.admit(ID, held(), NOW).unwrap();
        state.commit(ID, later(1)).unwrap();
        state = successor(&state);
        assert_eq!(state.due(later(30)), []);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Settled);
        state.commit(ID, later(1)).unwrap_err();
        state.admit(ConnectionId(3), timed(|of| of.hold = Some("2d".to_owned())), NOW).unwrap_err();
    }

    /// Goal: a lease that is not renewed ends its connection. A successor restarts each lease with
    /// its full length, since nobody could renew it without a broker.
    #[test]
    fn a_lease_ends_unless_it_is_renewed() {
        let mut state = state();
        state.admit(ID, timed(|of| of.lease = Some("10s".to_owned())), NOW).unwrap();
        // A lease does not end in the middle of a step.
        assert_eq!(state.due(later(10)), []);
        state.finish(ID, true).unwrap();
        assert_eq!(state.due(later(10)), [(ID, ConnectionEvent::End)]);
        state.renew(ID, later(9)).unwrap();
        state = successor(&state);
        assert_eq!(state.due(later(18)), []);
        assert_eq!(state.due(later(19)), [(ID, ConnectionEvent::End)]);
        state.renew_all(later(100));
        assert_eq!(state.next_due(), Some(later(110)));
        // A renewal does not keep a connection that is being removed.
        state.remove(ID).unwrap();
        let refusal = state.renew(ID, later(101)).unwrap_err();
        assert_eq!(refusal.error.code, ErrorCode::Conflict);
        let other = ConnectionId(2);
        state
            .admit(other, timed(|of| (of.rate, of.to_port) = ("1Mbit".to_owned(), Some(8))), NOW)
            .unwrap();
        state.renew(other, NOW).unwrap_err();
    }

    /// Goal: a row that another broker stores does not revoke a renewal that this broker has not
    /// seen, and its own renewal counts too.
    #[test]
    fn a_change_of_another_broker_does_not_shorten_a_lease() {
        let mut state = state();
        state.admit(ID, timed(|of| of.lease = Some("10s".to_owned())), NOW).unwrap();
        state.finish(ID, true).unwrap();
        let mut other = successor(&state);
        state.renew_all(later(100));
        let put = |state: &mut BrokerState, other: &BrokerState| {
            let row = Box::new(other.row(ID).unwrap());
            state.follow(vec![crate::store::RowChange::PutConnection(row)]).unwrap();
            state.next_due()
        };
        assert_eq!(put(&mut state, &other), Some(later(110)));
        other.renew(ID, later(200)).unwrap();
        assert_eq!(put(&mut state, &other), Some(later(210)));
    }

    /// Goal: the change of a connection fails after the traffic has moved. If the connection is
    /// removed, or its time is over, it ends once the step has its outcome. Old and new tunnels are
    /// removed then.
    #[test]
    fn a_change_that_fails_ends_with_its_connection() {
        let failing = || {
            let mut state = state();
            let lease = |of: &mut RequestedConnection| of.lease = Some("10s".to_owned());
            state.admit(ID, timed(lease), NOW).unwrap();
            state.finish(ID, true).unwrap();
            state.change(ID, &avoiding("short"), NOW).unwrap_err();
            let change =
                ConnectionChange { delay_max: Some("9ms".to_owned()), ..avoiding("short") };
            state.change(ID, &change, NOW).unwrap();
            state.remove(ID).unwrap_err();
            assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Next);
            assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Again);
            state.note_fault(ID, Some("silent".to_owned()));
            assert_eq!(state.end_after_step(ID, later(9)).unwrap(), None);
            state
        };
        let all = [vec!["a", "c"], vec!["a", "b", "c"]];
        let mut state = failing();
        assert_eq!(state.remove(ID).unwrap(), StepProgress::Again);
        state.remove(ID).unwrap_err();
        state = successor(&state);
        // The step that is under way is not the removal.
        assert_eq!(routers(&state.work(ID).unwrap()), [["a"]]);
        assert_eq!(state.end_after_step(ID, NOW).unwrap(), Some(EndedBy::Caller));
        assert_eq!(state.get(ID).unwrap().1.fault, None);
        state = successor(&state);
        assert_eq!(routers(&state.work(ID).unwrap()), all);
        assert_eq!(state.finish(ID, false).unwrap(), StepProgress::Again);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Gone);
        assert_eq!(reserved(&state), [0; 6]);
        // The router accepts the step after all.
        state = failing();
        state.remove(ID).unwrap();
        while state.finish(ID, true).unwrap() == StepProgress::Next {}
        assert_eq!(state.end_after_step(ID, NOW).unwrap(), Some(EndedBy::Caller));
        assert_eq!(routers(&state.work(ID).unwrap()), all[1..]);
        state = failing();
        assert_eq!(state.end_after_step(ID, later(10)).unwrap(), Some(EndedBy::Time));
        assert_eq!(routers(&state.work(ID).unwrap()), all);
    }

    /// Goal: a request takes the room of a less important connection and of no other. The less
    /// important one is withdrawn, says why, and gets another path if there is one.
    #[test]
    fn room_is_taken_from_the_less_important() {
        let mut state = state();
        let connection = |port, priority| {
            timed(|of| {
                (of.to_port, of.priority) = (Some(port), priority);
                of.delay_max = None;
            })
        };
        for (port, priority) in [(1, 5), (2, 0), (3, 7)] {
            // The first is on the short link, the others on the long way.
            let id = ConnectionId(u64::from(port));
            state.admit(id, connection(port, priority), NOW).unwrap();
            state.finish(id, true).unwrap();
        }
        let urgent = timed(|of| of.priority = 5);
        // No connection of equal priority gives up its room.
        assert!(state.preempt(&urgent, NOW).is_none());
        // No connection gives up its room for a request that is held or starts later, either.
        let held = timed(|of| (of.priority, of.hold) = (4, Some("30s".to_owned())));
        let start = Some(crate::clock::text(later(1)));
        let scheduled = timed(|of| (of.priority, of.start) = (4, start));
        assert!(state.preempt(&held, NOW).is_none() && state.preempt(&scheduled, NOW).is_none());
        let urgent = timed(|of| of.priority = 4);
        let given = state.preempt(&urgent, NOW).unwrap();
        assert_eq!(given.iter().map(|of| of.id).collect::<Vec<_>>(), [ID]);
        assert_eq!(routers(&given[0].withdrawal), [["a", "c"]]);
        state.admit(ConnectionId(4), urgent, NOW).unwrap();
        state = successor(&state);
        let refusal = state.get(ID).unwrap().1.refusal.clone();
        assert_eq!(refusal.as_deref(), Some("its room went to one of priority 4"));
        // It finds no room elsewhere at first.
        state.finish(ConnectionId(4), true).unwrap();
        state.restore().unwrap();
        assert_eq!(state.get(ID).unwrap().0.state, ConnectionState::Broken);
        state.remove(ConnectionId(3)).unwrap();
        state.finish(ConnectionId(3), true).unwrap();
        assert!(matches!(&state.restore().unwrap()[..], [RestorationStep::Move(ID)]));
    }

    /// Goal: of two connections that may select the same packets, one must be more specific. If
    /// not, the later one is refused, in either direction, and the refusal names the other.
    #[test]
    fn ambiguous_selectors_are_refused() {
        let with = |protocol: Option<&str>, from_port, to_port| {
            timed(|of| {
                (of.rate, of.protocol) = ("1Mbit".to_owned(), protocol.map(str::to_owned));
                (of.from_port, of.to_port) = (from_port, to_port);
            })
        };
        let (mut state, udp) = (state(), Some("udp"));
        let mut first = with(udp, Some(5), None);
        first.back_rate = Some("1Mbit".to_owned());
        state.admit(ID, first, NOW).unwrap();
        let mut back = with(udp, Some(9), None);
        (back.from, back.to) = (back.to, back.from);
        for (request, why) in [
            (with(udp, Some(5), None), "is for the same packets"),
            (with(udp, None, Some(7)), "some of the same packets"),
            (back, "some of the same packets"),
        ] {
            let refused = state.admit(ConnectionId(2), request, NOW).unwrap_err().error.message;
            assert!(refused.contains("c0000000000000001") && refused.contains(why), "{refused}");
        }
        for (id, (protocol, from_port, to_port)) in (2..).zip([
            (udp, Some(6), None),
            (udp, Some(5), Some(7)),
            (udp, Some(8), Some(7)),
            (Some("tcp"), None, Some(7)),
            (udp, None, None),
            (None, None, None),
        ]) {
            state.admit(ConnectionId(id), with(protocol, from_port, to_port), NOW).unwrap();
        }
    }

    /// Goal: disjoint paths share no physical link either, and a connection of another network is
    /// refused instead of compared in vain.
    #[test]
    fn disjoint_paths_share_no_physical_link() {
        let mut text = test_config::shared("20Mbit", "20Mbit");
        for (name, over, cost) in
            [("beside", "over = \"n1-n2\"\nrate = \"20Mbit\"", 10), ("own", "rate = \"1Gbit\"", 20)]
        {
            let end = |router, end: &str| {
                let vif = if name == "own" { "" } else { ", vif = \"vNAME\"" };
                let vif = vif.replace("NAME", end);
                format!(
                    "{end} = {{ router = \"red-{router}\", device = \"{name}\", \
                     address = \"fd12:{cost}::{router}\"{vif} }}\n"
                )
            };
            let (a, b) = (end(1, "a"), end(2, "b"));
            text += &format!("[[network.link]]\nname = \"{name}\"\n{over}\ncost = {cost}\n{a}{b}");
        }
        let config = test_config::with(&[&text]);
        let mut state =
            BrokerState::new(&config, &mut StableIds::default(), Vec::new(), Vec::new()).unwrap();
        let of = |network: &str, port| {
            timed(|of| {
                (of.network, of.rate) = (network.to_owned(), "1Mbit".to_owned());
                (of.delay_max, of.to_port) = (None, Some(port));
            })
        };
        for (id, network) in [(1, "blue"), (2, "red")] {
            state.admit(ConnectionId(id), of(network, 1), NOW).unwrap();
        }
        let mut wanted = of("red", 2);
        wanted.disjoint_from = Some(id_text(ID));
        let refused = state.try_out(&wanted, NOW).unwrap_err().error.message;
        assert!(refused.contains("c0000000000000001 is in another network"), "{refused}");
        wanted.disjoint_from = Some(id_text(ConnectionId(2)));
        let (_, flows, _) = state.try_out(&wanted, NOW).unwrap();
        let arcs = flows.forward.unwrap().path.arcs;
        let links = arcs.iter().map(|arc| state.directory.arc(*arc).unwrap().link.as_str());
        assert_eq!(links.collect::<Vec<_>>(), ["own"]);
        wanted.avoid = vec!["own".to_owned()];
        assert!(state.try_out(&wanted, NOW).is_err());
    }

    /// Goal: a connection that lost its room and is then removed reserves nothing in the store
    /// either.
    #[test]
    fn what_is_broken_stays_without_room_while_it_is_removed() {
        let mut state = state();
        let with = |port, priority| timed(|of| (of.to_port, of.priority) = (Some(port), priority));
        let (patient, wanted) = (with(1, 9), with(2, 0));
        state.admit(ID, patient, NOW).unwrap();
        state.finish(ID, true).unwrap();
        assert_eq!(state.preempt(&wanted, NOW).unwrap().len(), 1);
        state.admit(ConnectionId(2), wanted, NOW).unwrap();
        assert_eq!(state.remove(ID).unwrap(), StepProgress::Next);
        state = successor(&state);
        assert_eq!(state.finish(ID, true).unwrap(), StepProgress::Gone);
    }

    /// Goal: numbers stay when the configuration changes. A connection over a link that is gone is
    /// named, and nothing starts.
    #[test]
    fn a_lost_link_is_named() {
        let mut state = state();
        active(&mut state, "20Mbit");
        let config = test_config::with(&[test_config::TRIANGLE]);
        let mut ids = StableIds::default();
        NetworkDirectory::new(&config, &mut ids).unwrap();
        let mut later = config.clone();
        later.network[0].link.remove(0);
        let row = || vec![state.row(ID).unwrap()];
        let lost = BrokerState::new(&later, &mut ids.clone(), row(), Vec::new()).unwrap_err();
        assert!(lost.contains("stored connection c0000000000000001"), "{lost}");
        later = config;
        later.network[0].link.remove(1);
        BrokerState::new(&later, &mut ids, row(), Vec::new()).unwrap();
    }

    type NetworkEdit = fn(&mut crate::config::NetworkConfig);

    /// Goal: a connection whose end node is gone, or has another address or router, is named, and
    /// nothing starts, since its routers would lose its entries. A connection that is being removed
    /// needs no end nodes.
    #[test]
    fn a_lost_end_node_is_named() {
        let mut state = state();
        state.admit(ID, timed(|of| of.back_rate = Some("1Mbit".to_owned())), NOW).unwrap();
        let config = test_config::with(&[test_config::TRIANGLE]);
        let mut ids = StableIds::default();
        NetworkDirectory::new(&config, &mut ids).unwrap();
        let edits: [(NetworkEdit, &str); 4] = [
            (
                |of| drop(of.host.remove(0)),
                "end node \"x\" of network \"n\" is no longer configured",
            ),
            (|of| of.host[1].name = "z".to_owned(), "end node \"y\" of network \"n\" is no longer"),
            (|of| of.host[0].address = "fd10::3".parse().unwrap(), "had address fd10::1, and has"),
            (|of| of.host[1].router = "b".to_owned(), "was at router \"c\", and is at \"b\""),
        ];
        let with = |state: &BrokerState, edit: NetworkEdit| {
            let mut edited = config.clone();
            edit(&mut edited.network[0]);
            let rows = vec![state.row(ID).unwrap()];
            BrokerState::new(&edited, &mut ids.clone(), rows, Vec::new())
        };
        for active in [false, true] {
            for (edit, why) in edits {
                let lost = with(&state, edit).unwrap_err();
                assert!(lost.starts_with("stored connection c0000000000000001: "), "{lost}");
                assert!(lost.contains(why), "{lost}");
            }
            with(&state, |of| of.host[0].device = "z".to_owned()).unwrap();
            assert!(active || state.finish(ID, true).unwrap() == StepProgress::Settled);
        }
        state.remove(ID).unwrap();
        for (edit, _) in edits {
            with(&state, edit).unwrap();
        }
    }

    /// Goal: a connection from a store before version 6 keeps the numbers and addresses that its
    /// routers have. New tunnels get other numbers, and no two tunnels have the same address.
    #[test]
    fn an_old_connection_keeps_its_tunnels() {
        let mut before = state();
        let both =
            |port| timed(|of| (of.to_port, of.back_rate) = (Some(port), of.rate.clone().into()));
        let small = |port| timed(|of| (of.to_port, of.rate) = (Some(port), "1Mbit".to_owned()));
        before.admit(ID, both(1), NOW).unwrap();
        before.finish(ID, true).unwrap();
        let mut row = serde_json::to_value(before.row(ID).unwrap()).unwrap();
        row["record"].as_object_mut().unwrap().remove("entries");
        row["record"]["number"] = 1.into();
        let mut state = state();
        state.take_over(serde_json::from_value(row).unwrap()).unwrap();
        let outer = |state: &BrokerState, id| {
            let (connection, record) = state.get(id).unwrap();
            state.tunnels_of(connection, record).outer
        };
        let addresses = outer(&state, ID);
        assert_eq!(addresses.forward.to_string(), "fd0f::2:1");
        assert_eq!(addresses.backward.to_string(), "fd0f::3:1");
        let mut given = Vec::new();
        for port in 2..5 {
            let id = ConnectionId(u64::from(port));
            state.admit(id, small(port), NOW).unwrap();
            given.push(outer(&state, id).forward.to_string());
        }
        // The router `a` has the number 0, and its tunnel 2 is taken.
        assert_eq!(given, ["fd0f::1:1:1", "fd0f::1:3:1", "fd0f::1:4:1"]);
        state = successor(&state);
        assert_eq!(outer(&state, ID), addresses);
    }

    /// Goal: a network has at most as many connections as the file says, whatever others have.
    #[test]
    fn a_network_has_a_bound_of_its_own() {
        let own =
            test_config::TRIANGLE.replacen("name = \"n\"", "name = \"n\"\nconnections = 1", 1);
        let config = test_config::with(&[&own]);
        let state = BrokerState::new(&config, &mut StableIds::default(), Vec::new(), Vec::new());
        let mut state = state.unwrap();
        active(&mut state, "1Mbit");
        let refused = state.admit(ConnectionId(2), timed(|_| {}), NOW).unwrap_err();
        let why = "the network has 1 connections, which is its bound";
        assert!(refused.error.message.contains(why), "{}", refused.error.message);
        let change = ConnectionChange { rate: Some("2Mbit".to_owned()), ..Default::default() };
        state.change(ID, &change, NOW).unwrap();
        let wrong = own.replace("connections = 1", "connections = 0");
        let wrong = test_config::parse(&wrong).unwrap_err();
        assert!(wrong.contains("connections 0: 1 to"), "{wrong}");
    }

    /// Goal: paths have the colours that a request includes, and none that it excludes. A colour
    /// keeps its bit, one of 32, in the store.
    #[test]
    fn paths_have_the_colours_asked_for() {
        let coloured = |colours: &str| {
            let short = "name = \"short\"\n";
            let line = format!("{short}colours = [{colours}]\n");
            test_config::TRIANGLE.replace(short, &line)
        };
        let mut ids = StableIds::default();
        let mut state_of = |colours: &str| {
            let config = test_config::with(&[&coloured(colours)]);
            BrokerState::new(&config, &mut ids, Vec::new(), Vec::new())
        };
        let mut state = state_of("\"radio\", \"leased\"").unwrap();
        let mut ask = |include: &[&str], exclude: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let request = timed(|of| {
                (of.rate, of.delay_max) = ("1Mbit".to_owned(), None);
                (of.include, of.exclude) = (owned(include), owned(exclude));
            });
            state.admit(ID, request, NOW).map_err(|refusal| refusal.error.message)?;
            let (connection, _) = state.get(ID).unwrap();
            let links = connection.flows.forward.as_ref().map(|flow| flow.path.arcs.len());
            state.finish(ID, true).unwrap();
            state.remove(ID).unwrap();
            state.finish(ID, true).unwrap();
            Ok::<_, String>(links)
        };
        assert_eq!(ask(&[], &[]), Ok(Some(1)));
        assert_eq!(ask(&["leased", "radio"], &[]), Ok(Some(1)));
        assert_eq!(ask(&[], &["leased"]), Ok(Some(2)));
        let refused = ask(&["radio"], &["leased"]).unwrap_err();
        assert!(refused.contains("no path, whatever the rate"), "{refused}");
        let refused = ask(&["gold"], &[]).unwrap_err();
        assert!(refused.contains("no colour \"gold\""), "{refused}");
        let colours: Vec<_> = (0..31).map(|number| format!("\"c{number}\"")).collect();
        let full = state_of(&colours.join(", ")).map(drop).unwrap_err();
        assert!(full.contains("colour \"c30\": the store has 32 others"), "{full}");
    }

    /// Goal: refusals of bad requests name the value that is wrong.
    #[test]
    fn bad_requests_are_refused_by_name() {
        let mut state = state();
        let mut check = |edit: fn(&mut RequestedConnection), why: &str| {
            let mut request = request("1Mbit", None);
            edit(&mut request);
            let refused = state.admit(ID, request, NOW).unwrap_err();
            assert!(refused.error.message.contains(why), "{}", refused.error.message);
        };
        check(|of| of.rate = "1".to_owned(), "rate");
        check(|of| of.rate = "1kbit".to_owned(), "8kbit");
        check(|of| of.rate = "1000Mbit".to_owned(), "would be admitted");
        check(|of| of.to = "z".to_owned(), "\"z\"");
        check(|of| of.to = "x".to_owned(), "one router");
        check(|of| of.from_port = Some(1), "protocol");
        check(|of| of.protocol = Some("icmp".to_owned()), "icmp");
        check(|of| of.packet = Some(1461), "1461");
        check(|of| of.network = "m".to_owned(), "\"m\"");
        check(|of| of.avoid = vec!["short".to_owned(), "first".to_owned()], "no path");
        check(|of| of.disjoint_from = Some("c0".to_owned()), "c0");
    }

    /// Goal: an idempotency key stands for one request; beyond the bound the oldest key is
    /// forgotten.
    #[test]
    fn keys_are_remembered_within_a_bound() {
        let mut state = state();
        active(&mut state, "1Mbit");
        for number in 0..=KEYS_MAX {
            let (key, request) = (number.to_string(), "r".to_owned());
            state.keys.remember(StoredKey { key, request, connection: id_text(ID) });
        }
        let find = |key, request| state.keys.find(key, request, |id| id == ID);
        assert_eq!(find("0", "r").unwrap(), None);
        assert_eq!(find("1", "r").unwrap(), Some(ID));
        assert!(find("1", "other").is_err());
        assert!(state.keys.find("1", "r", |_| false).is_err());
    }
}
