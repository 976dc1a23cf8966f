// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writer: the one task that changes the state and the store.
//!
//! It takes up to [`BATCH_MAX`] orders that wait, and takes over what other brokers of the store
//! have committed. Then it admits or refuses each order, and commits all of them as one
//! transaction: connections with their paths and plans. Only then do the commands go to the nodes,
//! and their outcome comes back as another order; the broker without the lease leaves them to the
//! one that has it (`follow`). After an error of the store the writer ends: what is in memory may
//! be wrong then, and the store is what its successor reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::HistoryChange;
use weir_network::{ConnectionId, RestorationCursor};

use crate::clock::{self, until};
use crate::error::BrokerError;
use crate::execution::{NodePhase, NodeQueues, execute, withdraw};
use crate::history::{HistoryNote, HistorySubject, described_change};
use crate::kept_nodes::KeptNodes;
use crate::node_queue::NodeFault;
use crate::node_starter::NodeStarter;
use crate::orders::{
    Rearrangement, ServedCaller, SharedState, WaitingCaller, WantedConnection, WantedLink,
    WriterOrder,
};
use crate::policing::PolicingHandle;
use crate::record::ShareOrigin;
use crate::refusal::BrokerRefusal;
use crate::state::{BrokerState, StepProgress};
use crate::store::{BrokerStore, RowChange};

/// The writer.
pub(crate) struct Writer {
    state: SharedState,
    pub(crate) store: BrokerStore,
    /// The routers' queues; none while another broker configures them.
    pub(crate) nodes: Option<NodeQueues>,
    /// The keepers of Weir nodes; none while another broker configures them.
    pub(crate) kept_nodes: KeptNodes,
    /// The policing of networks, which ends with this; none while another broker does it.
    pub(crate) policing: Option<PolicingHandle>,
    outcomes: mpsc::UnboundedSender<WriterOrder>,
    /// Callers that wait for a connection's steps, the one that began them first.
    pub(crate) served: BTreeMap<ConnectionId, Vec<ServedCaller>>,
    pub(crate) settings: WriterSettings,
    /// The time at which connections without a path are tried again; none if nothing has changed.
    pub(crate) restore_at: Option<Instant>,
    /// The place at which the restoration under way goes on.
    pub(crate) restoring: Option<RestorationCursor>,
    /// True if routers may have changed since they were asked for their state.
    pub(crate) looks_at_routers: bool,
    pub(crate) rearranging: Option<Rearrangement>,
    /// The time at which another broker's lease runs out unless it is renewed.
    pub(crate) lease_ends: Option<Instant>,
}

/// Settings of the writer.
#[derive(Clone)]
pub(crate) struct WriterSettings {
    /// The time without an answer after which a router has failed.
    pub(crate) router_patience: Duration,
    /// Most moves that make room for a request.
    pub(crate) rearrange: usize,
    /// True if room is taken from less important connections.
    pub(crate) preempt: bool,
    /// Notified of each change at routers.
    pub(crate) changed: Arc<Notify>,
    /// Notified of each commit of another broker.
    pub(crate) committed: Arc<Notify>,
    /// Starts the routers' queues, once this broker has the lease.
    pub(crate) nodes: NodeStarter,
}

/// Effects of a batch.
#[derive(Default)]
pub(crate) struct OrderBatch {
    pub(crate) rows: Vec<RowChange>,
    /// Connections whose next step starts once the rows are durable, after a pause.
    pub(crate) starting: Vec<(ConnectionId, Duration)>,
    /// Removals at routers before a connection's step starts.
    pub(crate) before: BTreeMap<ConnectionId, Vec<NodePhase>>,
    /// Callers that are answered once the rows are durable: nothing is to be done at routers.
    pub(crate) told: Vec<(ConnectionId, WaitingCaller)>,
    /// Callers that wait for the steps of these connections.
    callers: Vec<(ConnectionId, WaitingCaller)>,
    /// Steps that remove connections from their routers.
    pub(crate) withdrawn: Vec<Vec<NodePhase>>,
    /// Links whose share has changed: network and link.
    pub(crate) shares: BTreeSet<(String, String)>,
    /// Administrators that set a link.
    links: Vec<oneshot::Sender<Result<(), BrokerRefusal>>>,
}

impl Writer {
    /// Continues the steps that are under way, serves orders until `stop`, and gives the lease
    /// back.
    pub(crate) async fn serve(
        state: SharedState,
        store: BrokerStore,
        orders: &mut mpsc::Receiver<WriterOrder>,
        stop: &mut watch::Receiver<bool>,
        settings: WriterSettings,
    ) -> Result<(), BrokerError> {
        // A connection has one step at a time, so the number of connections bounds this queue.
        let (outcomes, mut done) = mpsc::unbounded_channel();
        let renewal = store.lease() / 3;
        let changed = Arc::clone(&settings.changed);
        let committed = Arc::clone(&settings.committed);
        let (served, nodes) = (BTreeMap::new(), None);
        let (restore_at, rearranging, lease_ends) = (None, None, None);
        let mut writer = Self {
            state,
            store,
            nodes,
            kept_nodes: KeptNodes::default(),
            policing: None,
            outcomes,
            served,
            settings,
            restore_at,
            restoring: None,
            looks_at_routers: true,
            rearranging,
            lease_ends,
        };
        writer.lead();
        let mut ticks = tokio::time::interval(renewal);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut taken = Vec::new();
        loop {
            let (next_due, restore_at) = writer.next_times();
            let mut is_news = false;
            tokio::select! {
                biased;
                _ = stop.changed() => break,
                // An empty batch renews the lease.
                _ = ticks.tick() => writer.looks_at_routers = true,
                () = committed.notified() => is_news = true,
                () = changed.notified() => writer.looks_at_routers = true,
                () = until(writer.lease_ends) => {}
                () = until(restore_at) => {}
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
            writer.execute(std::mem::take(&mut taken), is_news).await?;
        }
        writer.store.release().await?;
        Ok(())
    }

    /// Returns true if this broker configures the routers.
    pub(crate) const fn leads(&self) -> bool {
        self.nodes.is_some()
    }

    /// Executes orders. Without any that change something, it only takes over what others have
    /// committed; a leader that was not woken for that (`is_news`) also does what is due and renews
    /// its lease.
    async fn execute(
        &mut self,
        orders: Vec<WriterOrder>,
        is_news: bool,
    ) -> Result<(), BrokerError> {
        let mut batch = OrderBatch::default();
        let looks = |order: &WriterOrder| matches!(order, WriterOrder::Look { .. });
        let decides =
            !orders.iter().all(looks) || self.rearranging.is_some() || (self.leads() && !is_news);
        let news = match decides {
            true => self.store.begin().await?,
            false => self.store.look().await?,
        };
        let is_free = news.holder.is_none();
        self.follow(news, &mut batch)?;
        for order in orders {
            self.take(order, &mut batch)?;
        }
        if decides {
            if self.leads() {
                self.execute_due(&mut batch)?;
                self.restore(&mut batch)?;
            }
            self.store.commit(&batch.rows).await?;
        }
        self.effect(batch);
        if is_free && !self.leads() && self.store.try_take().await? {
            self.take_over().await?;
        }
        Ok(())
    }

    /// Takes over what others committed before this broker took the lease, and begins to configure
    /// the routers.
    async fn take_over(&mut self) -> Result<(), BrokerError> {
        let mut batch = OrderBatch::default();
        // A request that waited for a move may be admitted here: nobody else commits meanwhile.
        let news = self.store.begin().await?;
        self.follow(news, &mut batch)?;
        self.store.commit(&batch.rows).await?;
        self.effect(batch);
        // It starts every step that is under way, those of the batch too.
        self.lead();
        Ok(())
    }

    /// Does what follows from a batch that is stored.
    fn effect(&mut self, batch: OrderBatch) {
        let committed = Instant::now();
        for (id, caller) in batch.callers {
            // Before callers that have repeated the request in the same batch.
            let served = ServedCaller::new(caller, committed);
            self.served.entry(id).or_default().insert(0, served);
        }
        for answer in batch.links {
            let _gone = answer.send(Ok(()));
        }
        for (id, caller) in batch.told {
            caller.tell(Ok(id));
        }
        let Some(nodes) = &self.nodes else { return };
        if !batch.shares.is_empty() {
            let config = self.locked(|state| Arc::clone(&state.config));
            self.settings.nodes.put_shares(config, &batch.shares, nodes);
        }
        // Routers lose what is withdrawn before they get what follows.
        tokio::spawn(withdraw(nodes, batch.withdrawn.into_iter().flatten().collect()));
        let before = batch.before.into_iter().map(|(id, phases)| (id, withdraw(nodes, phases)));
        let mut before: BTreeMap<_, _> = before.collect();
        for (id, pause) in batch.starting {
            self.start(id, pause, OptionFuture::from(before.remove(&id)));
        }
        // A held or scheduled connection has no step yet that waits for these removals.
        before.into_values().for_each(|removals| drop(tokio::spawn(removals)));
    }

    /// Executes an order in memory, and adds its effects to the batch.
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
            WriterOrder::SetLink { setting, by, answer } => {
                let set = self.set_link(setting, &by, batch);
                match set {
                    Ok(()) => batch.links.push(answer),
                    // A caller that went away needs no answer.
                    Err(refusal) => drop(answer.send(Err(refusal))),
                }
            }
            WriterOrder::Note { notes } => {
                for (subject, note) in notes {
                    self.note(Some(subject), None, note, batch);
                }
            }
            // A caller that went away needs no answer.
            WriterOrder::Look { answer } => drop(answer.send(Ok(()))),
            WriterOrder::Done { id, outcome, nodes } => {
                self.done(id, outcome, nodes, batch)?;
            }
        }
        Ok(())
    }

    /// Removes a connection.
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
            // Its step goes on first.
            Ok(StepProgress::Again) => {
                self.put(id, batch);
                self.note(subject, Some(&waiting.by), note, batch);
                batch.callers.push((id, waiting));
            }
            removed => self.begin(id, removed.map(drop), note, waiting, batch),
        }
    }

    /// Sets a link down or up, or changes its share; `by` is the token that asked for it.
    fn set_link(
        &mut self,
        setting: WantedLink,
        by: &str,
        batch: &mut OrderBatch,
    ) -> Result<(), BrokerRefusal> {
        let WantedLink { network, link, up, share } = setting;
        let subject = HistorySubject::Link { network: network.clone(), link: link.clone() };
        if let Some(wanted) = share {
            let changed = self.locked(|state| state.change_share(&network, &link, wanted));
            let (mut share, text) = changed?;
            share.origin = Some(ShareOrigin { by: by.to_owned(), at: clock::text(clock::now()) });
            let note = (HistoryChange::ShareChanged, Some(text));
            self.note(Some(subject.clone()), Some(by), note, batch);
            batch.rows.push(RowChange::SetShare(Box::new(share)));
            batch.shares.insert((network.clone(), link.clone()));
        }
        if let Some(up) = up {
            self.locked(|state| state.set_link(&network, &link, up))?;
            let change = if up { HistoryChange::LinkUp } else { HistoryChange::LinkDown };
            self.note(Some(subject), Some(by), (change, None), batch);
            batch.rows.push(RowChange::SetLink { network, link, up });
        }
        self.restore_at = Some(Instant::now());
        Ok(())
    }

    /// Has connections without a path tried again, after a pause.
    pub(crate) fn try_again(&mut self, pause: Duration) {
        let at = Instant::now() + pause;
        self.restore_at = Some(self.restore_at.map_or(at, |before| before.min(at)));
    }

    /// Begins what was planned, or tells the caller why nothing was.
    pub(crate) fn begin(
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
        let (subject, is_restored) = self.locked(|state| {
            (state.subject(id), state.get(id).is_some_and(|(_, record)| record.restoring))
        });
        let fault = outcome.as_ref().err().map(ToString::to_string);
        self.locked(|state| state.note_fault(id, fault.clone()));
        let (progress, begins_removal) = self.finish(id, outcome.is_ok(), batch)?;
        // A move is noted when the routers have it: one that they refuse is tried again each
        // second.
        if is_restored && progress == StepProgress::Settled {
            self.note(subject.clone(), None, (HistoryChange::Moved, None), batch);
        }
        for served in self.served.get_mut(&id).into_iter().flatten() {
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
        let waits = |of: &mut Rearrangement| of.moving == id;
        if ended && let Some(waiting) = self.rearranging.take_if(waits) {
            self.rearrange(waiting.moves, waiting.wanted, batch);
        } else if progress == StepProgress::Again
            && let Some(fault) = &fault
            && let Some(waiting) = self.rearranging.take_if(waits)
        {
            // The step is tried until it succeeds, perhaps for hours. Others may have room made
            // for them meanwhile.
            let refusal = BrokerRefusal::new(ErrorCode::NotRunning, fault.clone());
            waiting.wanted.waiting.tell(Err(refusal));
        }
        if ended || (fault.is_some() && !begins_removal) {
            let served = self.served.remove(&id).unwrap_or_default();
            // A step that is taken back is noted even if nobody waits for it, as for a start by the
            // calendar.
            let is_taken_back = progress == StepProgress::Next && !is_restored;
            if fault.is_some() && (is_taken_back || !served.is_empty()) {
                let by = served.first().map(|first| first.caller.by.as_str());
                self.note(subject, by, (HistoryChange::Failed, fault.clone()), batch);
            }
            // The answers come before the row is stored. If a crash loses the row, a successor
            // repeats the step, which changes nothing.
            self.answer_all(id, served, fault);
        }
        if progress == StepProgress::Gone {
            batch.rows.push(RowChange::DeleteConnection(id));
        } else {
            self.put(id, batch);
        }
        Ok(())
    }

    /// Adds an entry to the history. `by` is the token that asked for the change; none if the
    /// broker made it by itself.
    pub(crate) fn note(
        &self,
        subject: Option<HistorySubject>,
        by: Option<&str>,
        note: HistoryNote,
        batch: &mut OrderBatch,
    ) {
        let Some(subject) = subject else { return };
        let added = self.locked(|state| state.history.add(subject, by, note, clock::now()));
        batch.rows.push(RowChange::AddHistory(Box::new(added)));
    }

    /// Adds to the history that a connection lost its path, and why.
    pub(crate) fn note_broken(&self, id: ConnectionId, by: Option<&str>, batch: &mut OrderBatch) {
        let (subject, why) = self.locked(|state| {
            (state.subject(id), state.get(id).and_then(|(_, record)| record.refusal.clone()))
        });
        self.note(subject, by, (HistoryChange::Broken, why), batch);
    }

    pub(crate) fn put(&self, id: ConnectionId, batch: &mut OrderBatch) {
        let row = self.locked(|state| state.row(id));
        batch.rows.extend(row.map(|row| RowChange::PutConnection(Box::new(row))));
    }

    /// Has the nodes do a connection's step, after a pause and after `before`.
    pub(crate) fn start<F>(&self, id: ConnectionId, pause: Duration, before: F)
    where
        F: Future + Send + 'static,
    {
        let Some(phases) = self.locked(|state| state.work(id)) else { return };
        let Some(nodes) = self.nodes.clone() else { return };
        let (outcomes, patience) = (self.outcomes.clone(), self.settings.router_patience);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            drop(before.await);
            let outcome = execute(&nodes, phases, patience).await;
            // Without a writer the broker is ending.
            let _gone = outcomes.send(WriterOrder::Done { id, outcome, nodes: begun.elapsed() });
        });
    }

    pub(crate) fn locked<T>(&self, work: impl FnOnce(&mut BrokerState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Most orders of one transaction.
const BATCH_MAX: usize = 100;

/// The pause in which connections without a path gather before they are tried again.
pub(crate) const GATHER: Duration = Duration::from_millis(100);

/// The pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
