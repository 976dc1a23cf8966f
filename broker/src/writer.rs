// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writer: the one task that changes the state and the store.
//!
//! It takes up to [`BATCH_MAX`] orders that wait, admits or refuses each, and commits all of them
//! as one transaction: connections with their paths and plans. Only then do the commands go to the
//! nodes, and their outcome comes back as another order. After an error of the store the broker
//! ends: what is in memory may be wrong then, and the store is what a successor reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use weir_api_types::error::ErrorCode;
use weir_network::ConnectionId;

use crate::error::BrokerError;
use crate::execution::{NodeQueues, execute};
use crate::ids::id_text;
use crate::node_queue::NodeFault;
use crate::record::StoredKey;
use crate::refusal::BrokerRefusal;
use crate::state::{BrokerState, StepProgress};
use crate::store::{BrokerStore, RowChange};
use crate::views::{ConnectionChange, RequestedConnection, StepTimes};

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
    /// The nodes have done a step, or not.
    Done {
        id: ConnectionId,
        outcome: Result<(), NodeFault>,
        nodes: Duration,
    },
}

/// A caller that waits for an answer.
#[derive(Debug)]
pub(crate) struct WaitingCaller {
    pub(crate) since: Instant,
    pub(crate) answer: oneshot::Sender<OrderAnswer>,
}

/// A caller whose connection is in its steps, with the times so far.
struct ServedCaller {
    caller: WaitingCaller,
    store: Duration,
    nodes: Duration,
}

/// The writer.
pub(crate) struct Writer {
    state: SharedState,
    store: BrokerStore,
    nodes: NodeQueues,
    outcomes: mpsc::UnboundedSender<WriterOrder>,
    served: BTreeMap<ConnectionId, ServedCaller>,
}

/// Effects of a batch.
#[derive(Default)]
struct OrderBatch {
    rows: Vec<RowChange>,
    /// Connections whose next step starts once the rows are durable, after a pause.
    starting: Vec<(ConnectionId, Duration)>,
    /// Callers of those steps.
    callers: Vec<(ConnectionId, WaitingCaller)>,
}

impl Writer {
    /// Serves orders until `stop`, and gives the lease back. What was under way goes on first.
    pub(crate) async fn serve(
        state: SharedState,
        store: BrokerStore,
        nodes: NodeQueues,
        mut orders: mpsc::Receiver<WriterOrder>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), BrokerError> {
        // A connection has one step at a time: their number bounds this queue.
        let (outcomes, mut done) = mpsc::unbounded_channel();
        let renewal = store.lease() / 3;
        let mut writer = Self { state, store, nodes, outcomes, served: BTreeMap::new() };
        for id in writer.locked(|state| state.under_way()) {
            writer.start(id, Duration::ZERO);
        }
        let mut ticks = tokio::time::interval(renewal);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut taken = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = stop.changed() => break,
                // An empty batch renews the lease.
                _ = ticks.tick() => {}
                Some(outcome) = done.recv() => taken.push(outcome),
                order = orders.recv() => match order {
                    Some(order) => taken.push(order),
                    None => break,
                },
            }
            // Whatever else waits shares the commit.
            while taken.len() < BATCH_MAX {
                let Ok(order) = done.try_recv().or_else(|_| orders.try_recv()) else { break };
                taken.push(order);
            }
            writer.execute(std::mem::take(&mut taken)).await?;
        }
        writer.store.release().await?;
        Ok(())
    }

    async fn execute(&mut self, orders: Vec<WriterOrder>) -> Result<(), BrokerError> {
        let mut batch = OrderBatch::default();
        for order in orders {
            match order {
                WriterOrder::Create { requested, key, waiting } => {
                    self.create(*requested, key, waiting, &mut batch);
                }
                WriterOrder::Change { id, change, waiting } => {
                    let changed = self.locked(|state| state.change(id, &change));
                    self.begin(id, changed, waiting, &mut batch);
                }
                WriterOrder::Remove { id, waiting } => {
                    let removed = self.locked(|state| state.remove(id));
                    self.begin(id, removed, waiting, &mut batch);
                }
                WriterOrder::Done { id, outcome, nodes } => {
                    self.done(id, outcome, nodes, &mut batch)?;
                }
            }
        }
        self.store.commit(&batch.rows).await?;
        let committed = Instant::now();
        for (id, caller) in batch.callers {
            let store = committed.duration_since(caller.since);
            self.served.insert(id, ServedCaller { caller, store, nodes: Duration::ZERO });
        }
        for (id, pause) in batch.starting {
            self.start(id, pause);
        }
        Ok(())
    }

    fn create(
        &self,
        requested: RequestedConnection,
        key: Option<String>,
        waiting: WaitingCaller,
        batch: &mut OrderBatch,
    ) {
        let request = serde_json::to_string(&requested).unwrap_or_default();
        if let Some(key) = &key {
            match self.locked(|state| state.of_key(key, &request)) {
                Ok(None) => {}
                Ok(Some(id)) => return waiting.tell(Ok(id)),
                Err(refusal) => return waiting.tell(Err(refusal)),
            }
        }
        let id = match new_id() {
            Ok(id) => id,
            Err(refusal) => return waiting.tell(Err(refusal)),
        };
        let admitted = self.locked(|state| state.admit(id, requested));
        if let (Ok(()), Some(key)) = (&admitted, key) {
            let key = StoredKey { key, request, connection: id_text(id) };
            batch.rows.push(RowChange::PutKey(key.clone()));
            self.locked(|state| state.remember(key));
        }
        self.begin(id, admitted, waiting, batch);
    }

    /// Begins what was planned, or tells the caller why nothing was.
    fn begin(
        &self,
        id: ConnectionId,
        planned: Result<(), BrokerRefusal>,
        waiting: WaitingCaller,
        batch: &mut OrderBatch,
    ) {
        if let Err(refusal) = planned {
            return waiting.tell(Err(refusal));
        }
        self.put(id, batch);
        batch.starting.push((id, Duration::ZERO));
        batch.callers.push((id, waiting));
    }

    /// Takes the outcome of a step.
    fn done(
        &mut self,
        id: ConnectionId,
        outcome: Result<(), NodeFault>,
        nodes: Duration,
        batch: &mut OrderBatch,
    ) -> Result<(), BrokerError> {
        if matches!(outcome, Err(NodeFault::Fenced)) {
            return Err(BrokerError::Fenced);
        }
        let progress = self.locked(|state| state.finish(id, outcome.is_ok()));
        let progress = progress.map_err(|error| BrokerError::State(error.error.message))?;
        if let Some(served) = self.served.get_mut(&id) {
            served.nodes += nodes;
        }
        match progress {
            StepProgress::Next => batch.starting.push((id, Duration::ZERO)),
            StepProgress::Again => batch.starting.push((id, RETRY)),
            StepProgress::Settled | StepProgress::Gone => {}
        }
        let ended = matches!(progress, StepProgress::Settled | StepProgress::Gone);
        if (ended || outcome.is_err())
            && let Some(served) = self.served.remove(&id)
        {
            self.locked(|state| state.took(id, Some(served.times())));
            // The row that says so may be lost by a crash. A successor then repeats the step, which
            // changes nothing.
            let fault =
                |fault: NodeFault| BrokerRefusal::new(ErrorCode::NotRunning, fault.to_string());
            served.caller.tell(outcome.map(|()| id).map_err(fault));
        }
        if progress == StepProgress::Gone {
            batch.rows.push(RowChange::DeleteConnection(id));
        } else {
            self.put(id, batch);
        }
        Ok(())
    }

    fn put(&self, id: ConnectionId, batch: &mut OrderBatch) {
        let row = self.locked(|state| state.row(id));
        batch.rows.extend(row.map(|row| RowChange::PutConnection(Box::new(row))));
    }

    /// Has the nodes do a connection's step.
    fn start(&self, id: ConnectionId, pause: Duration) {
        let Some(phases) = self.locked(|state| state.work(id)) else { return };
        let (nodes, outcomes) = (Arc::clone(&self.nodes), self.outcomes.clone());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            let outcome = execute(&nodes, phases).await;
            // Without a writer the broker is ending.
            let _gone = outcomes.send(WriterOrder::Done { id, outcome, nodes: begun.elapsed() });
        });
    }

    fn locked<T>(&self, work: impl FnOnce(&mut BrokerState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WaitingCaller {
    fn tell(self, answer: OrderAnswer) {
        // A caller that went away needs none.
        let _gone = self.answer.send(answer);
    }
}

impl ServedCaller {
    fn times(&self) -> StepTimes {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        StepTimes {
            total_ms: milliseconds(self.caller.since.elapsed()),
            store_ms: milliseconds(self.store),
            nodes_ms: milliseconds(self.nodes),
        }
    }
}

/// Draws the identity of a connection.
fn new_id() -> Result<ConnectionId, BrokerRefusal> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bits = [0; 8];
    SystemRandom::new().fill(&mut bits).map_err(|_| {
        BrokerRefusal::new(ErrorCode::NotRunning, "the system gives no random bits")
    })?;
    Ok(ConnectionId(u64::from_be_bytes(bits)))
}

/// Orders that become one transaction.
const BATCH_MAX: usize = 100;

/// The pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
