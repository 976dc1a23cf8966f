// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creations: a request is admitted, if need be with room that others make or give.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::HistoryChange;
use weir_network::{ConnectionId, PathMove};

use crate::clock;
use crate::history::described;
use crate::ids::id_text;
use crate::orders::{Rearrangement, ServedCaller, WantedConnection};
use crate::record::StoredKey;
use crate::refusal::BrokerRefusal;
use crate::schedule::PreemptedConnection;
use crate::store::{BrokerStoreError, RowChange, random_bits};
use crate::writer::{GATHER, OrderBatch, Writer};

impl Writer {
    /// Admits a connection, if need be after at most `moves` moves of others.
    pub(crate) fn create(
        &mut self,
        wanted: WantedConnection,
        moves: usize,
        batch: &mut OrderBatch,
    ) {
        let WantedConnection { requested, key, waiting } = wanted;
        let request = serde_json::to_string(&requested).unwrap_or_default();
        if let Some(key) = &key {
            if self.rearranging.as_ref().is_some_and(|of| of.wanted.key.as_ref() == Some(key)) {
                let text = "the request with this Idempotency-Key is under way; ask again later";
                return waiting.tell(Err(BrokerRefusal::new(ErrorCode::Busy, text)));
            }
            match self.locked(|state| state.made_before(key, &request)) {
                Ok(None) => {}
                // At once: the steps that it waits for may end in this batch.
                Ok(Some((id, true))) => {
                    let served = ServedCaller::new(waiting, Instant::now());
                    return self.served.entry(id).or_default().push(served);
                }
                Ok(Some((id, false))) => return batch.told.push((id, waiting)),
                Err(refusal) => return waiting.tell(Err(refusal)),
            }
        }
        let id = match new_id() {
            Ok(id) => id,
            Err(refusal) => return waiting.tell(Err(refusal)),
        };
        let now = clock::now();
        let mut admitted = self.locked(|state| state.admit(id, requested.clone(), now));
        let is_refused = |admitted: &Result<(), BrokerRefusal>| {
            admitted.as_ref().is_err_and(|refusal| refusal.error.code == ErrorCode::Refused)
        };
        if is_refused(&admitted)
            && moves > 0
            && self.rearranging.is_none()
            && let Some(moves) = self.locked(|state| state.rearrangement(&requested, moves, now))
        {
            let wanted = WantedConnection { requested, key, waiting };
            return self.rearrange(moves.into(), wanted, batch);
        }
        if is_refused(&admitted)
            && self.settings.preempt
            && let Some(preempted) = self.locked(|state| state.preempt(&requested, now))
        {
            let mut withdrawals = Vec::new();
            for PreemptedConnection { id: given, withdrawal } in preempted {
                self.put(given, batch);
                self.note_broken(given, Some(&waiting.by), batch);
                withdrawals.extend(withdrawal);
            }
            admitted = self.locked(|state| state.admit(id, requested.clone(), now));
            match &admitted {
                Ok(()) => drop(batch.before.insert(id, withdrawals)),
                Err(_) => batch.withdrawn.push(withdrawals),
            }
            // Connections that gave their room may find another path.
            self.try_again(GATHER);
        }
        if let (Ok(()), Some(key)) = (&admitted, key) {
            let key = StoredKey { key, request, connection: id_text(id) };
            batch.rows.push(RowChange::PutKey(key.clone()));
            self.locked(|state| state.keys.remember(key));
        }
        let note = (HistoryChange::Created, Some(described(&requested)));
        self.begin(id, admitted, note, waiting, batch);
    }

    /// Begins the next move that makes room for a request; after the last one admits it.
    pub(crate) fn rearrange(
        &mut self,
        mut moves: VecDeque<PathMove>,
        wanted: WantedConnection,
        batch: &mut OrderBatch,
    ) {
        if let Some(next) = moves.pop_front() {
            let moving = next.connection;
            if self.locked(|state| state.plan_move(next)).is_ok() {
                self.put(moving, batch);
                let subject = self.locked(|state| state.subject(moving));
                let by = Some(wanted.waiting.by.as_str());
                self.note(subject, by, (HistoryChange::Moved, None), batch);
                batch.starting.push((moving, Duration::ZERO));
                self.rearranging = Some(Rearrangement { moving, moves, wanted });
                return;
            }
        }
        if wanted.waiting.answer.is_closed() {
            // Nobody would know of the connection.
            return;
        }
        // Without further moves: if others took the room meanwhile, that is the answer.
        self.create(wanted, 0, batch);
    }
}

/// Draws the identity of a connection.
fn new_id() -> Result<ConnectionId, BrokerRefusal> {
    let refusal =
        |error: BrokerStoreError| BrokerRefusal::new(ErrorCode::NotRunning, error.to_string());
    random_bits().map(ConnectionId).map_err(refusal)
}
