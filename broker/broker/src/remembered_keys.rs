// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Idempotency keys: a request that is sent again makes nothing.

use std::collections::{BTreeMap, VecDeque};

use weir_api_types::error::ErrorCode;
use weir_network::ConnectionId;

use crate::ids::parsed_id;
use crate::record::StoredKey;
use crate::refusal::BrokerRefusal;

/// The newest keys.
#[derive(Debug, Default)]
pub(crate) struct RememberedKeys {
    by_key: BTreeMap<String, StoredKey>,
    oldest_first: VecDeque<String>,
}

impl RememberedKeys {
    /// Returns the connection that an earlier request with this key made, if that `is_there` still;
    /// none if there was no such request.
    pub(crate) fn find(
        &self,
        key: &str,
        request: &str,
        is_there: impl Fn(ConnectionId) -> bool,
    ) -> Result<Option<ConnectionId>, BrokerRefusal> {
        let Some(known) = self.by_key.get(key) else { return Ok(None) };
        let conflict = |text: &str| Err(BrokerRefusal::new(ErrorCode::Conflict, text));
        if known.request != request {
            return conflict("this Idempotency-Key was used for another request");
        }
        match parsed_id(&known.connection) {
            Some(id) if is_there(id) => Ok(Some(id)),
            _ => conflict("the connection that this Idempotency-Key made was removed or failed"),
        }
    }

    /// Remembers the key of a request, and forgets the oldest beyond the bound.
    pub(crate) fn remember(&mut self, key: StoredKey) {
        let Self { by_key, oldest_first } = self;
        oldest_first.push_back(key.key.clone());
        by_key.insert(key.key.clone(), key);
        if by_key.len() > KEYS_MAX
            && let Some(oldest) = oldest_first.pop_front()
        {
            by_key.remove(&oldest);
        }
    }
}

/// Keys that are remembered.
pub(crate) const KEYS_MAX: usize = 10_000;
