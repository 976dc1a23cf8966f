// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writer: the one task that changes the state and the store.
//!
//! It takes up to [`BATCH_MAX`] orders that wait, admits or refuses each, and commits all of them
//! as one transaction: connections with their paths and plans. Only then do the commands go to the
//! nodes, and their outcome comes back as another order. After an error of the store the broker
//! ends: what is in memory may be wrong then, and the store is what a successor reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::{HistoryChange, RequestedConnection, StepTimes};
use weir_network::{ConnectionEvent, ConnectionId, PathMove};

use crate::clock;
use crate::error::BrokerError;
use crate::execution::{NodePhase, NodeQueues, execute, withdraw};
use crate::failures::FailedParts;
use crate::history::{HistoryNote, HistorySubject, described, described_change};
use crate::ids::id_text;
use crate::node_queue::NodeFault;
use crate::orders::{SharedState, WaitingCaller, WriterOrder};
use crate::record::StoredKey;
use crate::refusal::BrokerRefusal;
use crate::restoration::RestorationStep;
use crate::schedule::PreemptedConnection;
use crate::state::{BrokerState, StepProgress};
use crate::store::{BrokerStore, RowChange};

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
    settings: WriterSettings,
    /// The time at which connections without a path are tried again; none if nothing has changed.
    restore_at: Option<Instant>,
    rearranging: Option<Rearrangement>,
}

/// Moves of connections that make room for a request. A broker that ends meanwhile has moved some
/// of them, and its caller has no answer.
struct Rearrangement {
    /// The connection whose move is under way.
    moving: ConnectionId,
    moves: VecDeque<PathMove>,
    wanted: WantedConnection,
}

/// A request for a connection, with who waits for it.
struct WantedConnection {
    requested: RequestedConnection,
    key: Option<String>,
    waiting: WaitingCaller,
}

/// Settings of the writer: failures, and what does not fit.
#[derive(Clone)]
pub(crate) struct WriterSettings {
    /// The time without an answer after which a router has failed.
    pub(crate) router_patience: Duration,
    /// Most moves that make room for a request.
    pub(crate) rearrange: usize,
    /// True if room is taken from less important connections.
    pub(crate) preempt: bool,
    /// Tells of each change at routers.
    pub(crate) changed: Arc<Notify>,
}

/// Effects of a batch.
#[derive(Default)]
struct OrderBatch {
    rows: Vec<RowChange>,
    /// Connections whose next step starts once the rows are durable, after a pause.
    starting: Vec<(ConnectionId, Duration)>,
    /// Removals at routers before a connection's step starts.
    before: BTreeMap<ConnectionId, Vec<NodePhase>>,
    /// Callers for whom nothing is to be done at routers.
    told: Vec<(ConnectionId, WaitingCaller)>,
    /// Callers of those steps.
    callers: Vec<(ConnectionId, WaitingCaller)>,
    /// Connections that routers lose.
    withdrawn: Vec<Vec<NodePhase>>,
    /// Administrators that set a link.
    links: Vec<oneshot::Sender<Result<(), BrokerRefusal>>>,
}

impl Writer {
    /// Serves orders until `stop`, and gives the lease back. What was under way goes on first.
    pub(crate) async fn serve(
        state: SharedState,
        store: BrokerStore,
        nodes: NodeQueues,
        mut orders: mpsc::Receiver<WriterOrder>,
        mut stop: watch::Receiver<bool>,
        settings: WriterSettings,
    ) -> Result<(), BrokerError> {
        // A connection has one step at a time: their number bounds this queue.
        let (outcomes, mut done) = mpsc::unbounded_channel();
        let renewal = store.lease() / 3;
        let (served, changed) = (BTreeMap::new(), Arc::clone(&settings.changed));
        // Broken connections are tried at the start, once the routers were read.
        let restore_at = Some(Instant::now());
        let rearranging = None;
        let mut writer =
            Self { state, store, nodes, outcomes, served, settings, restore_at, rearranging };
        for id in writer.locked(|state| state.under_way()) {
            writer.start(id, Duration::ZERO, Vec::new());
        }
        let mut ticks = tokio::time::interval(renewal);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut taken = Vec::new();
        loop {
            let next_due = writer.locked(|state| state.next_due()).map(on_the_clock);
            tokio::select! {
                biased;
                _ = stop.changed() => break,
                // An empty batch renews the lease.
                _ = ticks.tick() => {}
                () = changed.notified() => {}
                () = until(writer.restore_at) => {}
                () = until(next_due) => {}
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
            self.take(order, &mut batch)?;
        }
        self.execute_due(&mut batch)?;
        self.restore(&mut batch)?;
        self.store.commit(&batch.rows).await?;
        let committed = Instant::now();
        for (id, caller) in batch.callers {
            let store = committed.duration_since(caller.since);
            self.served.insert(id, ServedCaller { caller, store, nodes: Duration::ZERO });
        }
        for answer in batch.links {
            let _gone = answer.send(Ok(()));
        }
        for (id, caller) in batch.told {
            caller.tell(Ok(id));
        }
        // Routers lose what is withdrawn before they get what follows.
        for phases in batch.withdrawn {
            let nodes = Arc::clone(&self.nodes);
            tokio::spawn(async move { withdraw(&nodes, phases).await });
        }
        let mut before = batch.before;
        for (id, pause) in batch.starting {
            self.start(id, pause, before.remove(&id).unwrap_or_default());
        }
        Ok(())
    }

    /// Executes an order, as far as the batch.
    fn take(&mut self, order: WriterOrder, batch: &mut OrderBatch) -> Result<(), BrokerError> {
        match order {
            WriterOrder::Create { requested, key, waiting } => {
                let wanted = WantedConnection { requested: *requested, key, waiting };
                let moves = self.settings.rearrange;
                self.create(wanted, moves, batch);
            }
            WriterOrder::Change { id, change, waiting } => {
                let changed = self.locked(|state| state.change(id, &change, clock::now()));
                let note = (HistoryChange::Changed, Some(described_change(&change)));
                self.begin(id, changed, note, waiting, batch);
            }
            WriterOrder::Remove { id, waiting } => self.remove(id, waiting, batch),
            WriterOrder::Commit { id, waiting } => {
                let committed = self.locked(|state| state.commit(id, clock::now()));
                self.begin(id, committed, (HistoryChange::Committed, None), waiting, batch);
            }
            WriterOrder::Renew { id, waiting } => {
                let renewed = self.locked(|state| state.renew(id, clock::now()));
                match renewed {
                    Ok(()) => {
                        self.put(id, batch);
                        batch.told.push((id, waiting));
                    }
                    Err(refusal) => waiting.tell(Err(refusal)),
                }
            }
            WriterOrder::SetLink { network, link, up, by, answer } => {
                self.set_link(network, link, up, &by, answer, batch);
            }
            WriterOrder::Done { id, outcome, nodes } => {
                self.done(id, outcome, nodes, batch)?;
            }
        }
        Ok(())
    }

    /// Gives a connection back.
    fn remove(&mut self, id: ConnectionId, waiting: WaitingCaller, batch: &mut OrderBatch) {
        let note = (HistoryChange::Removed, None);
        let subject = self.locked(|state| state.subject(id));
        match self.locked(|state| state.remove(id)) {
            Ok(StepProgress::Gone) => {
                self.note(subject, Some(&waiting.by), note, batch);
                batch.rows.push(RowChange::DeleteConnection(id));
                batch.told.push((id, waiting));
                self.try_again(GATHER);
            }
            removed => self.begin(id, removed.map(drop), note, waiting, batch),
        }
    }

    /// Sets a link down or up; `by` is the token that asked for it.
    fn set_link(
        &mut self,
        network: String,
        link: String,
        up: bool,
        by: &str,
        answer: oneshot::Sender<Result<(), BrokerRefusal>>,
        batch: &mut OrderBatch,
    ) {
        if let Err(refusal) = self.locked(|state| state.set_link(&network, &link, up)) {
            // A caller that went away needs no answer.
            let _gone = answer.send(Err(refusal));
            return;
        }
        let change = if up { HistoryChange::LinkUp } else { HistoryChange::LinkDown };
        let subject = HistorySubject::Link { network: network.clone(), link: link.clone() };
        self.note(Some(subject), Some(by), (change, None), batch);
        batch.rows.push(RowChange::SetLink { network, link, up });
        batch.links.push(answer);
        self.restore_at = Some(Instant::now());
    }

    /// Starts and ends what is due.
    fn execute_due(&mut self, batch: &mut OrderBatch) -> Result<(), BrokerError> {
        let now = clock::now();
        for (id, event) in self.locked(|state| state.due(now)) {
            let is_start = event == ConnectionEvent::Start;
            let change = if is_start { HistoryChange::Started } else { HistoryChange::Ended };
            self.note(self.locked(|state| state.subject(id)), None, (change, None), batch);
            let progress = self.locked(|state| match event {
                ConnectionEvent::Start => state.begin_scheduled(id).map(|()| StepProgress::Next),
                _ => state.remove(id),
            });
            match progress.map_err(|error| BrokerError::State(error.error.message))? {
                StepProgress::Gone => {
                    batch.rows.push(RowChange::DeleteConnection(id));
                    self.try_again(GATHER);
                }
                _ => {
                    self.put(id, batch);
                    batch.starting.push((id, Duration::ZERO));
                }
            }
        }
        Ok(())
    }

    /// Moves connections whose path failed, and withdraws those without another.
    fn restore(&mut self, batch: &mut OrderBatch) -> Result<(), BrokerError> {
        let now = Instant::now();
        let statuses = self.nodes.iter().map(|(name, node)| (name, node.status()));
        let patience = self.settings.router_patience;
        let Some(observed) = FailedParts::observed(statuses, patience, now) else {
            return Ok(());
        };
        let differs = self.locked(|state| state.observe(observed));
        if !differs && self.restore_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.restore_at = None;
        let steps = self.locked(BrokerState::restore);
        for step in steps.map_err(|error| BrokerError::State(error.error.message))? {
            match step {
                RestorationStep::Move(id) => {
                    self.put(id, batch);
                    batch.starting.push((id, Duration::ZERO));
                }
                RestorationStep::Withdraw(id, phases) => {
                    self.put(id, batch);
                    self.note_broken(id, None, batch);
                    batch.withdrawn.push(phases);
                }
                RestorationStep::Store(id) => self.put(id, batch),
            }
        }
        Ok(())
    }

    /// Has connections without a path tried again, after a pause.
    fn try_again(&mut self, pause: Duration) {
        let at = Instant::now() + pause;
        self.restore_at = Some(self.restore_at.map_or(at, |before| before.min(at)));
    }

    /// Admits a connection, if need be after at most `moves` moves of others.
    fn create(&mut self, wanted: WantedConnection, moves: usize, batch: &mut OrderBatch) {
        let WantedConnection { requested, key, waiting } = wanted;
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
            for PreemptedConnection { id: given, withdrawal } in preempted {
                self.put(given, batch);
                self.note_broken(given, Some(&waiting.by), batch);
                batch.before.entry(id).or_default().extend(withdrawal);
            }
            admitted = self.locked(|state| state.admit(id, requested.clone(), now));
            // Connections that gave their room may find another path.
            self.try_again(GATHER);
        }
        if let (Ok(()), Some(key)) = (&admitted, key) {
            let key = StoredKey { key, request, connection: id_text(id) };
            batch.rows.push(RowChange::PutKey(key.clone()));
            self.locked(|state| state.remember(key));
        }
        let note = (HistoryChange::Created, Some(described(&requested)));
        self.begin(id, admitted, note, waiting, batch);
    }

    /// Begins the next move that makes room for a request; after the last one admits it.
    fn rearrange(
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
        // Without further moves: if others took the room meanwhile, that is the answer.
        self.create(wanted, 0, batch);
    }

    /// Begins what was planned, or tells the caller why nothing was.
    fn begin(
        &self,
        id: ConnectionId,
        planned: Result<(), BrokerRefusal>,
        note: HistoryNote,
        waiting: WaitingCaller,
        batch: &mut OrderBatch,
    ) {
        if let Err(refusal) = planned {
            return waiting.tell(Err(refusal));
        }
        self.put(id, batch);
        self.note(self.locked(|state| state.subject(id)), Some(&waiting.by), note, batch);
        if self.locked(|state| state.work(id)).is_none() {
            // It is held or scheduled.
            return batch.told.push((id, waiting));
        }
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
        let (subject, is_restored) = self.locked(|state| {
            (state.subject(id), state.get(id).is_some_and(|(_, record)| record.restoring))
        });
        let progress = self.locked(|state| state.finish(id, outcome.is_ok()));
        let progress = progress.map_err(|error| BrokerError::State(error.error.message))?;
        // Noted when it has the path: one that routers do not take is tried each second.
        if is_restored && progress == StepProgress::Settled {
            self.note(subject.clone(), None, (HistoryChange::Moved, None), batch);
        }
        if let Some(served) = self.served.get_mut(&id) {
            served.nodes += nodes;
        }
        match progress {
            StepProgress::Next => batch.starting.push((id, Duration::ZERO)),
            StepProgress::Again => batch.starting.push((id, RETRY)),
            // There may be room for others now, and its own path may have failed meanwhile.
            StepProgress::Settled | StepProgress::Gone => self.try_again(GATHER),
            StepProgress::Broken => {
                batch.withdrawn.push(self.locked(|state| state.withdrawal(id)));
                self.try_again(RETRY);
            }
        }
        let ended = !matches!(progress, StepProgress::Next | StepProgress::Again);
        if ended && let Some(waiting) = self.rearranging.take_if(|of| of.moving == id) {
            self.rearrange(waiting.moves, waiting.wanted, batch);
        }
        if (ended || outcome.is_err())
            && let Some(served) = self.served.remove(&id)
        {
            if let Err(fault) = &outcome {
                let note = (HistoryChange::Failed, Some(fault.to_string()));
                self.note(subject, Some(&served.caller.by), note, batch);
            }
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

    /// Adds to the history. `by` is the token that asked for it; none if the broker did.
    fn note(
        &self,
        subject: Option<HistorySubject>,
        by: Option<&str>,
        note: HistoryNote,
        batch: &mut OrderBatch,
    ) {
        let Some(subject) = subject else { return };
        let entry = self.locked(|state| state.history.add(subject, by, note, clock::now()));
        batch.rows.push(RowChange::AddHistory(Box::new(entry)));
    }

    /// Adds to the history that a connection lost its path, and why.
    fn note_broken(&self, id: ConnectionId, by: Option<&str>, batch: &mut OrderBatch) {
        let (subject, why) = self.locked(|state| {
            (state.subject(id), state.get(id).and_then(|(_, record)| record.refusal.clone()))
        });
        self.note(subject, by, (HistoryChange::Broken, why), batch);
    }

    fn put(&self, id: ConnectionId, batch: &mut OrderBatch) {
        let row = self.locked(|state| state.row(id));
        batch.rows.extend(row.map(|row| RowChange::PutConnection(Box::new(row))));
    }

    /// Has the nodes do a connection's step.
    fn start(&self, id: ConnectionId, pause: Duration, before: Vec<NodePhase>) {
        let Some(phases) = self.locked(|state| state.work(id)) else { return };
        let (nodes, outcomes) = (Arc::clone(&self.nodes), self.outcomes.clone());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            withdraw(&nodes, before).await;
            let outcome = execute(&nodes, phases).await;
            // Without a writer the broker is ending.
            let _gone = outcomes.send(WriterOrder::Done { id, outcome, nodes: begun.elapsed() });
        });
    }

    fn locked<T>(&self, work: impl FnOnce(&mut BrokerState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
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

/// Returns the moment of a wall time; in case that clock is set, no later than in a minute.
fn on_the_clock(time: weir_units::Instant) -> Instant {
    let wait = Duration::from_nanos(time.saturating_since(clock::now()).as_nanos());
    Instant::now() + wait.min(Duration::from_secs(60))
}

/// Waits until a time; for ever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
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

/// The pause in which connections without a path gather before they are tried again.
const GATHER: Duration = Duration::from_millis(100);

/// The pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
