// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work of the broker with the lease that nobody orders: it begins to configure the routers, starts
//! and ends what is due, and moves connections whose path failed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_broker_api_types::HistoryChange;
use weir_network::{ConnectionEvent, ConnectionId};

use crate::clock::{self, on_the_clock};
use crate::error::BrokerError;
use crate::failures::FailedParts;
use crate::record::ObservedParts;
use crate::refusal::BrokerRefusal;
use crate::restoration::RestorationStep;
use crate::schedule::EndedBy;
use crate::state::StepProgress;
use crate::store::RowChange;
use crate::writer::{GATHER, OrderBatch, Writer};

impl Writer {
    /// Begins to configure the routers, if this broker has the lease.
    pub(crate) fn lead(&mut self) {
        let Some(fence) = self.store.fence().filter(|_| !self.leads()) else { return };
        let (starter, store) = (&self.settings.nodes, self.store.identity());
        let (nodes, kept_nodes) = self.locked(|state| {
            state.configured_by = None;
            state.renew_all(clock::now());
            starter.start(state, store, fence)
        });
        let config = self.locked(|state| Arc::clone(&state.config));
        let policing = starter.police(&config, store, fence);
        (self.nodes, self.kept_nodes, self.policing) = (Some(nodes), kept_nodes, policing);
        self.lease_ends = None;
        // Broken connections are tried at the start, once the routers were read.
        (self.restore_at, self.looks_at_routers) = (Some(Instant::now()), true);
        self.restoring = None;
        for id in self.locked(|state| state.under_way()) {
            self.start(id, Duration::ZERO, std::future::ready(()));
        }
    }

    /// Returns when something is due next, and when connections are tried again.
    pub(crate) fn next_times(&self) -> (Option<Instant>, Option<Instant>) {
        if !self.leads() {
            return (None, None);
        }
        // It goes on at once, unless a router is yet to be read.
        let goes_on = self.restoring.is_some() && !self.looks_at_routers;
        let restore_at = if goes_on { Some(Instant::now()) } else { self.restore_at };
        (self.locked(|state| state.next_due()).map(on_the_clock), restore_at)
    }

    /// Starts and ends what is due.
    pub(crate) fn execute_due(&mut self, batch: &mut OrderBatch) -> Result<(), BrokerError> {
        let now = clock::now();
        for (id, event) in self.locked(|state| state.due(now)) {
            let is_start = event == ConnectionEvent::Start;
            let change = if is_start { HistoryChange::Started } else { HistoryChange::Ended };
            self.note(self.locked(|state| state.subject(id)), None, (change, None), batch);
            let progress = self.locked(|state| match event {
                ConnectionEvent::Start => state.begin_scheduled(id).map(|()| StepProgress::Next),
                _ => state.remove(id),
            });
            match progress.map_err(|error| BrokerError::State(error.error.message))? {
                StepProgress::Gone => {
                    batch.rows.push(RowChange::DeleteConnection(id));
                    self.try_again(GATHER);
                }
                _ => {
                    self.put(id, batch);
                    batch.starting.push((id, Duration::ZERO));
                }
            }
        }
        Ok(())
    }

    /// Takes the outcome of a connection's step. Its removal may begin then; the second value is
    /// true if somebody waits for that.
    pub(crate) fn finish(
        &self,
        id: ConnectionId,
        succeeded: bool,
        batch: &mut OrderBatch,
    ) -> Result<(StepProgress, bool), BrokerError> {
        let wrong = |refusal: BrokerRefusal| BrokerError::State(refusal.error.message);
        let progress = self.locked(|state| state.finish(id, succeeded)).map_err(wrong)?;
        if !matches!(progress, StepProgress::Again | StepProgress::Settled) {
            return Ok((progress, false));
        }
        let ended = self.locked(|state| state.end_after_step(id, clock::now())).map_err(wrong)?;
        if ended == Some(EndedBy::Time) {
            let subject = self.locked(|state| state.subject(id));
            self.note(subject, None, (HistoryChange::Ended, None), batch);
        }
        let progress = ended.map_or(progress, |_| StepProgress::Next);
        Ok((progress, ended == Some(EndedBy::Caller)))
    }

    /// Moves connections whose path failed, and withdraws those without another.
    pub(crate) fn restore(&mut self, batch: &mut OrderBatch) -> Result<(), BrokerError> {
        let now = Instant::now();
        let mut differs = false;
        if self.looks_at_routers {
            let Some(observed) = self.observe(now, batch) else {
                // One was not read yet.
                self.restore_at = self.restore_at.map(|_| now + GATHER);
                return Ok(());
            };
            (self.looks_at_routers, differs) = (false, observed);
        }
        if differs {
            self.restore_at = Some(now);
        }
        // A restoration under way ends before the next begins: if each began anew, the least
        // important connections might never be tried.
        if self.restoring.is_none() && self.restore_at.take_if(|at| *at <= now).is_none() {
            return Ok(());
        }
        let after = self.restoring;
        let restored = self.locked(|state| state.restore_some(after, RESTORED_MOST));
        let (steps, next) = restored.map_err(|error| BrokerError::State(error.error.message))?;
        self.restoring = next;
        for step in steps {
            match step {
                RestorationStep::Move(id) => {
                    self.put(id, batch);
                    batch.starting.push((id, Duration::ZERO));
                }
                RestorationStep::Withdraw(id, phases) => {
                    self.put(id, batch);
                    self.note_broken(id, None, batch);
                    batch.withdrawn.push(phases);
                }
                RestorationStep::Store(id) => self.put(id, batch),
            }
        }
        Ok(())
    }

    /// Reads the state of all routers and nodes. Returns true if the failed parts differ from
    /// before; none while one has not been read yet.
    fn observe(&self, now: Instant, batch: &mut OrderBatch) -> Option<bool> {
        let nodes = self.nodes.as_ref()?;
        let statuses = nodes.iter().map(|(name, node)| (name, node.status()));
        let kept_nodes = self.kept_nodes.iter().map(|(name, node)| (name, node.status()));
        let patience = self.settings.router_patience;
        let observed = FailedParts::observed(statuses, kept_nodes, patience, now)?;
        if self.store.is_shared() {
            let routers = nodes.values().map(|node| node.status().router).collect();
            let nodes = self.kept_nodes.values().map(|node| node.status().node).collect();
            let parts = ObservedParts { failed: observed.clone(), routers, nodes };
            if self.locked(|state| state.observed != parts) {
                self.locked(|state| state.observed = parts.clone());
                batch.rows.push(RowChange::Observe(Box::new(parts)));
            }
        }
        Some(self.locked(|state| state.observe(observed)))
    }
}

/// Connections that are tried in one batch, so that requests and renewals are served in between:
/// one may take milliseconds on a large network.
const RESTORED_MOST: usize = 50;
