// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of the store: connections with the plan that is under way.

use serde::{Deserialize, Serialize};
use weir_broker_api_types::{HistoryEntry, RequestedConnection, StepTimes};
use weir_network::{
    AdmittedFlows, ConnectionPlan, ConnectionRequest, ConnectionTimers, NetworkConnection,
};

use crate::ids::StoredId;

/// A connection as it is stored: one row, written before the commands that follow from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredConnection {
    /// Its request, paths, rates and state.
    pub(crate) connection: NetworkConnection,
    /// The request and paths that a change leads to.
    pub(crate) next: Option<(ConnectionRequest, AdmittedFlows)>,
    pub(crate) record: ConnectionRecord,
}

/// The broker's own part of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConnectionRecord {
    /// The request, as it was written.
    pub(crate) requested: RequestedConnection,
    /// Unique among the connections that are there: tunnels, rules and tables have it.
    pub(crate) number: u16,
    /// Generation of its tunnels' paths.
    pub(crate) generation: u32,
    /// The request and generation that a change leads to.
    pub(crate) next: Option<(RequestedConnection, u32)>,
    /// Commands for each router, with their undo.
    pub(crate) plan: ConnectionPlan,
    /// True while its change is a restoration: its old path failed, and has nothing reserved.
    #[serde(default)]
    pub(crate) restoring: bool,
    /// Hold and lease.
    #[serde(default)]
    pub(crate) timers: ConnectionTimers,
    /// The reason for which it is broken.
    #[serde(default)]
    pub(crate) refusal: Option<String>,
    /// Times of the last step that somebody waited for.
    #[serde(skip)]
    pub(crate) took: Option<StepTimes>,
}

/// The contents of the store.
#[derive(Debug, Default)]
pub(crate) struct StoredState {
    pub(crate) connections: Vec<StoredConnection>,
    pub(crate) keys: Vec<StoredKey>,
    pub(crate) ids: Vec<StoredId>,
    /// Links that are set down: network and link.
    pub(crate) links_down: Vec<(String, String)>,
    /// The history, oldest first.
    pub(crate) history: Vec<HistoryEntry>,
}

/// A remembered request.
#[derive(Clone, Debug)]
pub(crate) struct StoredKey {
    pub(crate) key: String,
    pub(crate) request: String,
    pub(crate) connection: String,
}
