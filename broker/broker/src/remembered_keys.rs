// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Idempotency keys: a request that is sent again makes nothing.

use std::collections::{BTreeMap, VecDeque};

use weir_api_types::error::ErrorCode;
use weir_network::ConnectionId;

use crate::ids::parsed_id;
use crate::record::StoredKey;
use crate::refusal::BrokerRefusal;
use crate::sha256::sha256;

/// The newest keys, each with the digest of its request.
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
        if known.request != request_digest(request) {
            return conflict(&format!("Idempotency-Key {key:?} was used for another request"));
        }
        match parsed_id(&known.connection) {
            Some(id) if is_there(id) => Ok(Some(id)),
            _ => conflict("the connection that this Idempotency-Key made was removed or failed"),
        }
    }

    /// Remembers the key of a request, and forgets the oldest beyond the bound.
    pub(crate) fn remember(&mut self, mut key: StoredKey) {
        let Self { by_key, oldest_first } = self;
        key.request = request_digest(&key.request);
        oldest_first.push_back(key.key.clone());
        by_key.insert(key.key.clone(), key);
        if by_key.len() > KEYS_MAX
            && let Some(oldest) = oldest_first.pop_front()
        {
            by_key.remove(&oldest);
        }
    }
}

/// Returns what is kept of a request: the digest of its text, which may be long. What is a digest
/// already stays; rows of earlier versions have the text, which is an object in JSON.
pub(crate) fn request_digest(request: &str) -> String {
    if request.starts_with('{') { sha256(request.as_bytes()) } else { request.to_owned() }
}

/// Keys that are remembered.
pub(crate) const KEYS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use weir_broker_api_types::RequestedConnection;

    use super::*;
    use crate::ids::id_text;

    /// Goal: a request is recognised by a row with its digest and by an earlier version's row with
    /// its text, and neither keeps the text.
    #[test]
    fn a_request_is_recognised_by_its_digest_and_by_an_old_row() {
        let request = |rate: &str| {
            let text = format!(r#"{{"network":"n","from":"x","to":"y","rate":"{rate}"}}"#);
            let read: RequestedConnection = serde_json::from_str(&text).unwrap();
            serde_json::to_string(&read).unwrap()
        };
        let (asked, other) = (request("20Mbit"), request("21Mbit"));
        let made = ConnectionId(7);
        for stored in [asked.clone(), request_digest(&asked)] {
            let mut keys = RememberedKeys::default();
            let (key, connection) = ("t/k".to_owned(), id_text(made));
            keys.remember(StoredKey { key, request: stored, connection });
            assert_eq!(keys.by_key["t/k"].request.len(), 64);
            assert_eq!(keys.find("t/k", &asked, |_| true).unwrap(), Some(made));
            keys.find("t/k", &other, |_| true).unwrap_err();
        }
    }
}
