// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of the store: connections with the plan that is under way.

use serde::{Deserialize, Serialize};
use weir_broker_api_types::{HistoryEntry, RequestedConnection, RouterState, StepTimes};
use weir_network::{
    AdmittedFlows, ConnectionPlan, ConnectionRequest, ConnectionTimers, NetworkConnection,
};

use crate::failures::FailedParts;
use crate::ids::StoredId;
use crate::tunnel_numbers::EntryNumbers;

/// A connection as it is stored: one row, written before the commands that follow from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredConnection {
    /// Its request, paths, rates and state.
    pub(crate) connection: NetworkConnection,
    /// The request and paths that a change leads to.
    pub(crate) next: Option<(ConnectionRequest, AdmittedFlows)>,
    /// True if nothing is reserved for its present paths.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) suspended: bool,
    pub(crate) record: ConnectionRecord,
}

/// The broker's own part of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConnectionRecord {
    /// The request, as it was written.
    pub(crate) requested: RequestedConnection,
    /// In a row of a version before 6: the number that its tunnels' numbers follow from.
    #[serde(default, skip_serializing)]
    pub(crate) number: u16,
    /// Numbers of its tunnels, each at the router where it enters.
    #[serde(default)]
    pub(crate) entries: EntryNumbers,
    /// Generation of its tunnels' paths.
    pub(crate) generation: u32,
    /// The request and generation that a change leads to.
    pub(crate) next: Option<(RequestedConnection, u32)>,
    /// Commands for each router, with their undo; empty while nothing is under way or to come.
    pub(crate) plan: ConnectionPlan,
    /// True while its change is a restoration: its old path failed, and has nothing reserved.
    #[serde(default)]
    pub(crate) restoring: bool,
    /// True from its start by the calendar until routers have it. Nobody waits for that, so that
    /// it is broken, and not gone, if they do not take it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_calendar: bool,
    /// True if somebody removed it while a step of its change fails: it goes when that is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ending: bool,
    /// Hold and lease.
    #[serde(default)]
    pub(crate) timers: ConnectionTimers,
    /// The reason for which it is broken.
    #[serde(default)]
    pub(crate) refusal: Option<String>,
    /// Fault of a router, when the step under way failed: whoever waits at another broker is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    /// Times of the last step that somebody waited for.
    #[serde(skip)]
    pub(crate) took: Option<StepTimes>,
}

/// The contents of the store, without the connections.
#[derive(Debug, Default)]
pub(crate) struct StoredState {
    pub(crate) keys: Vec<StoredKey>,
    pub(crate) ids: Vec<StoredId>,
    /// Links that are set down: network and link.
    pub(crate) links_down: Vec<(String, String)>,
    /// Shares that were changed.
    pub(crate) shares: Vec<StoredShare>,
    /// The history, oldest first.
    pub(crate) history: Vec<HistoryEntry>,
    pub(crate) observed: ObservedParts,
}

/// Routers as the broker sees them that configures them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObservedParts {
    /// Failed parts, without links that an administrator has set down.
    pub(crate) failed: FailedParts,
    pub(crate) routers: Vec<RouterState>,
    /// Weir nodes.
    #[serde(default)]
    pub(crate) nodes: Vec<RouterState>,
}

/// A remembered request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredKey {
    pub(crate) key: String,
    pub(crate) request: String,
    pub(crate) connection: String,
}

/// The rate of a network's link and what of it connections may reserve, if that is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShareTerms {
    pub(crate) rate_bps: u64,
    pub(crate) reservable_bps: Option<u64>,
}

/// A changed share as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredShare {
    pub(crate) network: String,
    pub(crate) link: String,
    pub(crate) terms: ShareTerms,
    /// Terms that the file had when it was changed.
    pub(crate) of_file: ShareTerms,
    /// Its origin; earlier versions did not store that.
    #[serde(default)]
    pub(crate) origin: Option<ShareOrigin>,
}

/// The administrator who changed a share, and the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShareOrigin {
    /// Name of the administrator's token.
    pub(crate) by: String,
    /// The time, as RFC 3339 writes it.
    pub(crate) at: String,
}
