// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes that other brokers of the store have committed: each broker's state is made to be as
//! stored before it decides anything.
//!
//! Every broker admits. The one with the lease configures the routers and does what is due by time:
//! it begins the steps that others have stored and stores their outcome; each broker then answers
//! its own callers.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use weir_api_types::error::ErrorCode;
use weir_network::{ConnectionId, ConnectionState, RecoveryAction, recovery};

use crate::error::BrokerError;
use crate::execution::NodePhase;
use crate::record::StoredConnection;
use crate::refusal::BrokerRefusal;
use crate::state::BrokerState;
use crate::store::{RowChange, StoreNews};
use crate::writer::{GATHER, OrderBatch, Writer};

/// Effects of the changes of others.
#[derive(Debug, Default)]
pub(crate) struct FollowedChanges {
    /// Connections with a step that begins.
    started: Vec<ConnectionId>,
    /// Steps that take connections from their routers, since others have their room.
    withdrawn: Vec<Vec<NodePhase>>,
    /// Connections with nothing under way, or gone.
    settled: BTreeSet<ConnectionId>,
    /// True if something was given back.
    gives_room: bool,
    /// True if a link was set down or up.
    sets_links: bool,
    /// Links whose share has changed: network and link.
    shares: BTreeSet<(String, String)>,
}

impl BrokerState {
    /// Takes over changes of others, in order.
    ///
    /// # Errors
    /// They do not fit: the configuration is another one.
    pub(crate) fn follow(&mut self, changes: Vec<RowChange>) -> Result<FollowedChanges, String> {
        let mut followed = FollowedChanges::default();
        let mut rows: BTreeMap<ConnectionId, Option<Box<StoredConnection>>> = BTreeMap::new();
        let mut shares = Vec::new();
        for change in changes {
            match change {
                RowChange::PutConnection(row) => {
                    rows.insert(row.connection.id, Some(row));
                }
                RowChange::DeleteConnection(id) => {
                    rows.insert(id, None);
                    followed.gives_room = true;
                }
                RowChange::PutKey(key) => self.keys.remember(key),
                // A name that only the other's file has. Connections there cannot be taken over.
                RowChange::PutId(_) => {}
                RowChange::SetLink { network, link, up } => {
                    followed.sets_links |= self.set_link(&network, &link, up).is_ok();
                }
                RowChange::SetShare(share) => shares.push(share),
                // A broker drops one when it starts with another file; this one keeps to its own.
                RowChange::DropShare { .. } => {}
                RowChange::AddHistory(added) => drop(self.history.take_over(added.entry)),
                RowChange::Observe(parts) => {
                    self.observe(parts.failed.clone());
                    self.observed = *parts;
                }
            }
        }
        // All of them leave first: between two of the changes there may be too little room.
        let mut before: BTreeMap<ConnectionId, ConnectionState> = BTreeMap::new();
        for id in rows.keys() {
            if let Some((known, _)) = self.get(*id) {
                before.insert(*id, known.state);
                self.forget(*id).map_err(|refusal| refusal.error.message)?;
            }
        }
        for share in shares {
            self.put_share(&share).map_err(|refusal| refusal.error.message)?;
            followed.shares.insert((share.network, share.link));
        }
        for (id, row) in rows {
            let Some(row) = row else {
                followed.settled.insert(id);
                continue;
            };
            let (old, new) = (before.get(&id).copied(), row.connection.state);
            self.take_over(*row)?;
            if matches!(recovery(new), RecoveryAction::None) {
                followed.settled.insert(id);
            } else if old != Some(new) {
                followed.started.push(id);
            }
            if new == ConnectionState::Broken && old == Some(ConnectionState::Active) {
                followed.withdrawn.push(self.withdrawal(id));
            }
        }
        Ok(followed)
    }

    /// Notes what a router said when a connection's step failed; none when one succeeded.
    pub(crate) fn note_fault(&mut self, id: ConnectionId, fault: Option<String>) {
        if let Some(record) = self.records.get_mut(&id) {
            record.fault = fault;
        }
    }

    /// Notes who has the lease: another broker, or nobody.
    pub(crate) fn note_holder(&mut self, holder: Option<String>) {
        let name = holder.as_deref().and_then(|holder| holder.split('/').next());
        self.configured_by = Some(name.unwrap_or_default().to_owned());
    }

    /// Returns the refusal for a request that only the broker with the lease can answer; none if
    /// this broker has it.
    pub(crate) fn refusal_without_lease(&self) -> Option<BrokerRefusal> {
        let text = match self.configured_by.as_deref()? {
            "" => "no broker configures the routers at this moment; ask again later".to_owned(),
            name => format!("broker \"{name}\" configures the routers; ask it"),
        };
        Some(BrokerRefusal::new(ErrorCode::NotRunning, text))
    }
}

impl Writer {
    /// Takes over what others have committed, and does what follows from it.
    pub(crate) fn follow(
        &mut self,
        news: StoreNews,
        batch: &mut OrderBatch,
    ) -> Result<(), BrokerError> {
        let StoreNews { changes, holder, left } = news;
        self.lease_ends = (!self.leads()).then(|| Instant::now() + left);
        if !self.leads() {
            self.locked(|state| state.note_holder(holder));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let answers: Vec<_> = changes.iter().filter_map(|change| self.answer(change)).collect();
        let followed = self.locked(|state| state.follow(changes));
        let followed = followed.map_err(BrokerError::Configuration)?;
        for (id, fault) in answers {
            self.tell(id, fault);
        }
        if followed.gives_room {
            self.try_again(GATHER);
        }
        if followed.sets_links || !followed.shares.is_empty() {
            self.restore_at = Some(Instant::now());
        }
        for id in followed.started {
            // Its room may be that of those which lose theirs.
            let first = batch.before.entry(id).or_default();
            first.extend(followed.withdrawn.iter().flatten().cloned());
            batch.starting.push((id, std::time::Duration::ZERO));
        }
        batch.shares.extend(followed.shares);
        batch.withdrawn.extend(followed.withdrawn);
        let moved = |id: &ConnectionId| followed.settled.contains(id);
        if let Some(waiting) = self.rearranging.take_if(|of| moved(&of.moving)) {
            self.rearrange(waiting.moves, waiting.wanted, batch);
        }
        Ok(())
    }

    /// Returns the connection of a change that answers somebody who waits here, and the fault if
    /// its step failed.
    fn answer(&self, change: &RowChange) -> Option<(ConnectionId, Option<String>)> {
        let (id, fault) = match change {
            RowChange::DeleteConnection(id) => (*id, None),
            RowChange::PutConnection(row) => {
                let (id, state) = (row.connection.id, row.connection.state);
                let fault = row.record.fault.clone();
                let ends = fault.is_some() || matches!(recovery(state), RecoveryAction::None);
                ends.then_some((id, fault))?
            }
            _ => return None,
        };
        self.served.contains_key(&id).then_some((id, fault))
    }

    /// Answers who waits for a connection that another broker's routers have, or do not take.
    fn tell(&mut self, id: ConnectionId, fault: Option<String>) {
        let Some(mut served) = self.served.remove(&id) else { return };
        // The other broker's wait for the store is in it.
        served.nodes = served.caller.since.elapsed().saturating_sub(served.store);
        self.locked(|state| state.took(id, Some(served.times())));
        served.caller.tell(match fault {
            None => Ok(id),
            Some(text) => Err(BrokerRefusal::new(ErrorCode::NotRunning, text)),
        });
    }
}
