// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers for what the configuration names. A name keeps its number for as long as the store
//! exists: paths and plans are stored by number, and stay true when the configuration changes.
//! Connections have random numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_network::ConnectionId;

/// All numbers, as the store has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StableIds {
    ids: BTreeMap<(String, String), u32>,
    /// How many names of each kind have a number.
    counts: BTreeMap<String, usize>,
    added: Vec<StoredId>,
}

/// The number of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredId {
    /// Each kind is numbered from 0, without gaps.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) id: u32,
}

impl StableIds {
    /// Takes what is stored.
    pub(crate) fn new(stored: Vec<StoredId>) -> Self {
        let mut counts = BTreeMap::new();
        for StoredId { kind, .. } in &stored {
            *counts.entry(kind.clone()).or_default() += 1;
        }
        let ids = stored.into_iter().map(|StoredId { kind, name, id }| ((kind, name), id));
        Self { ids: ids.collect(), counts, added: Vec::new() }
    }

    /// Returns the number of a name, and gives it one if it has none.
    pub(crate) fn id(&mut self, kind: &str, name: String) -> u32 {
        let key = (kind.to_owned(), name);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = u32::try_from(self.count(kind)).unwrap_or(u32::MAX);
        self.added.push(StoredId { kind: key.0.clone(), name: key.1.clone(), id });
        *self.counts.entry(key.0.clone()).or_default() += 1;
        self.ids.insert(key, id);
        id
    }

    /// Returns how many names of a kind have a number, those included that are gone.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.counts.get(kind).copied().unwrap_or_default()
    }

    /// Takes the numbers that the store does not have yet.
    pub(crate) fn take_added(&mut self) -> Vec<StoredId> {
        std::mem::take(&mut self.added)
    }
}

/// Returns the text of a connection's identity.
pub(crate) fn id_text(id: ConnectionId) -> String {
    format!("c{:016x}", id.0)
}

/// Reads what [`id_text`] wrote.
pub(crate) fn parsed_id(text: &str) -> Option<ConnectionId> {
    let digits = text.strip_prefix('c').filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(ConnectionId)
}
