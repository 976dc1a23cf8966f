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
use crate::orders::ServedCaller;
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
        for (id, row) in &mut rows {
            if let Some((known, record)) = self.get(*id) {
                before.insert(*id, known.state);
                if let Some(row) = row {
                    row.record.timers.extend(record.timers);
                }
                // By the old row: the new one may be the last of several, and have no plan.
                if known.state == ConnectionState::Active && row.as_deref().is_none_or(has_nothing)
                {
                    followed.withdrawn.push(self.withdrawal(*id));
                }
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

/// Returns true if a connection has nothing at routers, or is removed from there without a step.
fn has_nothing(row: &StoredConnection) -> bool {
    match row.connection.state {
        ConnectionState::Broken => true,
        ConnectionState::Removing => row.record.plan.steps.is_empty(),
        _ => false,
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
        let mut served = self.served.remove(&id).unwrap_or_default();
        for of in &mut served {
            // The other broker's wait for the store is in it.
            of.nodes = of.caller.since.elapsed().saturating_sub(of.store);
        }
        self.answer_all(id, served, fault);
    }

    /// Answers callers whose connection is at the routers, or failed there.
    pub(crate) fn answer_all(
        &self,
        id: ConnectionId,
        served: Vec<ServedCaller>,
        fault: Option<String>,
    ) {
        if let Some(first) = served.first() {
            self.locked(|state| state.record_step(id, Some(first.times())));
        }
        for of in served {
            of.caller.tell(match fault.clone() {
                None => Ok(id),
                Some(text) => Err(BrokerRefusal::new(ErrorCode::NotRunning, text)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StableIds;
    use crate::test_config;

    /// Goal: a connection that lost its room to another and was given back, both seen in one look,
    /// is taken from its routers before it is forgotten.
    #[test]
    fn what_was_removed_since_the_last_look_leaves_its_routers() {
        let config = test_config::with(&[test_config::TRIANGLE]);
        let opened = || {
            BrokerState::new(&config, &mut StableIds::default(), Vec::new(), Vec::new()).unwrap()
        };
        let (mut leader, mut other, id) = (opened(), opened(), ConnectionId(1));
        let request = |rate: &str, priority: u8| {
            let text = format!(
                r#"{{ "network": "n", "from": "x", "to": "y", "rate": "{rate}", "protocol": "udp",
                      "to_port": 7{priority}, "priority": {priority}, "delay_max": "2ms" }}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let now = crate::clock::now();
        other.admit(id, request("40Mbit", 9), now).unwrap();
        other.finish(id, true).unwrap();
        let put = |state: &BrokerState| RowChange::PutConnection(Box::new(state.row(id).unwrap()));
        leader.follow(vec![put(&other)]).unwrap();
        let removal = leader.withdrawal(id);
        // A renewal or the like leaves it there.
        assert!(leader.follow(vec![put(&other)]).unwrap().withdrawn.is_empty());
        other.preempt(&request("40Mbit", 1), now).unwrap();
        let broken = put(&other);
        other.remove(id).unwrap();
        let followed = leader.follow(vec![broken, put(&other)]).unwrap();
        assert_eq!(followed.withdrawn, [removal]);
        assert_eq!(followed.started, [id]);
    }
}
