// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders to the writer, and who waits for their answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use weir_broker_api_types::{ConnectionChange, RequestedConnection, StepTimes};
use weir_network::{ConnectionId, PathMove};

use crate::history::{HistoryNote, HistorySubject};
use crate::node_queue::NodeFault;
use crate::refusal::BrokerRefusal;
use crate::share_change::WantedShare;
use crate::state::BrokerState;

/// The state that the writer changes and the interface reads.
pub(crate) type SharedState = Arc<Mutex<BrokerState>>;

/// Answer to an order: the connection, as soon as its nodes have what it asked for.
pub(crate) type OrderAnswer = Result<ConnectionId, BrokerRefusal>;

/// Requests to the writer.
#[derive(Debug)]
pub(crate) enum WriterOrder {
    Create {
        requested: Box<RequestedConnection>,
        key: Option<String>,
        waiting: WaitingCaller,
    },
    Change {
        id: ConnectionId,
        change: ConnectionChange,
        waiting: WaitingCaller,
    },
    Remove {
        id: ConnectionId,
        waiting: WaitingCaller,
    },
    /// The requester commits what is held.
    Commit {
        id: ConnectionId,
        waiting: WaitingCaller,
    },
    /// The application renews its lease.
    Renew {
        id: ConnectionId,
        waiting: WaitingCaller,
    },
    /// An administrator sets a link down or up again, or changes its share.
    SetLink {
        setting: WantedLink,
        /// The name of the administrator's token.
        by: String,
        answer: oneshot::Sender<Result<(), BrokerRefusal>>,
    },
    /// The broker did something by itself: it held, let go, punished or pardoned networks, or
    /// repaired a router.
    Note {
        notes: Vec<(HistorySubject, HistoryNote)>,
    },
    /// Somebody asks for what another broker may have stored just now.
    Look {
        answer: oneshot::Sender<Result<(), BrokerRefusal>>,
    },
    /// The nodes have done a step, or not.
    Done {
        id: ConnectionId,
        outcome: Result<(), NodeFault>,
        nodes: Duration,
    },
}

/// A setting of a link; what is none stays.
#[derive(Clone, Debug)]
pub(crate) struct WantedLink {
    pub(crate) network: String,
    pub(crate) link: String,
    pub(crate) up: Option<bool>,
    pub(crate) share: Option<WantedShare>,
}

/// A caller that waits for an answer.
#[derive(Debug)]
pub(crate) struct WaitingCaller {
    pub(crate) since: Instant,
    /// The name of its token.
    pub(crate) by: String,
    pub(crate) answer: oneshot::Sender<OrderAnswer>,
}

impl WaitingCaller {
    /// Gives the answer.
    pub(crate) fn tell(self, answer: OrderAnswer) {
        // A caller that went away needs none.
        let _gone = self.answer.send(answer);
    }
}

/// A caller whose connection is in its steps, with the times so far.
pub(crate) struct ServedCaller {
    pub(crate) caller: WaitingCaller,
    pub(crate) store: Duration,
    pub(crate) nodes: Duration,
}

impl ServedCaller {
    /// Keeps a caller whose connection is in the store since then.
    pub(crate) fn new(caller: WaitingCaller, stored: Instant) -> Self {
        let store = stored.duration_since(caller.since);
        Self { caller, store, nodes: Duration::ZERO }
    }

    /// Returns its times until now.
    pub(crate) fn times(&self) -> StepTimes {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        StepTimes {
            total_ms: milliseconds(self.caller.since.elapsed()),
            store_ms: milliseconds(self.store),
            nodes_ms: milliseconds(self.nodes),
        }
    }
}

/// Moves that make room for a request. Those that were made stay made, also if the request is
/// refused in the end, or the broker ends meanwhile and the caller gets no answer.
pub(crate) struct Rearrangement {
    /// The connection whose move is under way.
    pub(crate) moving: ConnectionId,
    pub(crate) moves: VecDeque<PathMove>,
    pub(crate) wanted: WantedConnection,
}

/// A request for a connection, with who waits for it.
pub(crate) struct WantedConnection {
    pub(crate) requested: RequestedConnection,
    pub(crate) key: Option<String>,
    pub(crate) waiting: WaitingCaller,
}
