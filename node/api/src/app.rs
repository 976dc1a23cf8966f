// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that the handlers of all requests share: the node's `Control`, and the bounds on what
//! callers can make it do at once.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use weir_api_types::status::NodeStatus;
use weir_node::control::{Control, InForce, Refusal};
use weir_platform::rates::RateLimits;
use weir_platform::slots::{Slot, Slots, SlotsByKey};

use crate::caller::{Caller, CallerRole};
use crate::error::{ErrorCode, Rejection};
use crate::limits::ApiLimits;
use crate::refused::{RefusalCounts, TurnAwayReason};

/// The interface's state.
pub(crate) struct App {
    pub(crate) limits: ApiLimits,
    /// Open connections on the Unix socket.
    pub(crate) connections: Slots,
    /// Open connections over TCP, counted apart: remote callers take no place from local ones.
    pub(crate) remote_connections: Slots,
    /// Open connections over TCP of each address, so that none takes all places.
    pub(crate) remote_addresses: SlotsByKey<IpAddr>,
    /// Requests without an answer yet.
    pub(crate) under_way: Slots,
    control: Arc<dyn Control>,
    waiting: Slots,
    /// Changes are made one at a time; those that wait for their turn take no thread from readers.
    turn: Mutex<()>,
    /// Bounds the lines that tell the operator what each tenant or reader was refused.
    told: RateLimits,
    /// Listeners with a token.
    pub(crate) listeners: Slots,
    /// Listeners of each token, so that none takes all places.
    pub(crate) listeners_each: SlotsByKey<String>,
    /// Listeners without a token: root on the Unix socket, which callers with tokens cannot keep
    /// out.
    pub(crate) root_listeners: Slots,
    /// Reports that are being read.
    pub(crate) reports: Slots,
    /// Observations of a router's activations.
    pub(crate) watches: Slots,
    /// Counts of refusals since the start.
    pub(crate) refused: RefusalCounts,
    /// The last status and the time at which it was taken, so that many callers cost the worker few
    /// requests.
    status: Mutex<Option<(Instant, Arc<NodeStatus>)>>,
}

impl App {
    /// Makes the state of an interface to this node.
    pub(crate) fn new(control: Arc<dyn Control>, limits: ApiLimits) -> Self {
        Self {
            limits,
            connections: Slots::new(limits.connections),
            remote_connections: Slots::new(limits.connections),
            remote_addresses: SlotsByKey::new((limits.connections / SHARE).max(1)),
            turn: Mutex::new(()),
            under_way: Slots::new(usize::MAX),
            control,
            waiting: Slots::new(limits.waiting),
            told: RateLimits::new(limits.wrong_tokens_per_minute, Duration::from_secs(60)),
            listeners: Slots::new(limits.listeners),
            listeners_each: SlotsByKey::new((limits.listeners / SHARE).max(1)),
            root_listeners: Slots::new(limits.listeners),
            reports: Slots::new(REPORTS),
            watches: Slots::new(1),
            refused: RefusalCounts::default(),
            status: Mutex::new(None),
        }
    }

    /// Returns the places for connections and listeners, each with its name in the metrics.
    pub(crate) const fn places(&self) -> [(&'static str, &Slots); 4] {
        [
            ("connections", &self.connections),
            ("remote_connections", &self.remote_connections),
            ("listeners", &self.listeners),
            ("root_listeners", &self.root_listeners),
        ]
    }

    /// Asks the node, on a thread that may wait.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Control) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Rejection> {
        let Some(slot) = self.waiting.take() else {
            let text =
                format!("{} requests wait for the node, which is the most", self.waiting.most());
            return Err(Rejection::new(ErrorCode::Busy, text));
        };
        let control = Arc::clone(&self.control);
        let asked = tokio::task::spawn_blocking(move || {
            let answer = question(control.as_ref());
            drop(slot);
            answer
        });
        let answer = asked.await.map_err(|_| {
            Rejection::new(ErrorCode::NotRunning, "the node is ending, or failed at this request")
        })?;
        answer.map_err(Rejection::from)
    }

    /// Asks the node, after the changes that were requested before.
    pub(crate) async fn ask_in_turn<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Control) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Rejection> {
        let _turn = self.turn.lock().await;
        self.ask(question).await
    }

    /// Asks the node for a change, after those that were requested before. The next status is read
    /// anew.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&dyn Control) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Rejection> {
        let _turn = self.turn.lock().await;
        let answer = self.ask(change).await;
        *self.status.lock().await = None;
        answer
    }

    /// Returns the node's status, not older than [`STATUS_AGE_MAX`] nor than the last change.
    pub(crate) async fn status(&self) -> Result<Arc<NodeStatus>, Rejection> {
        let mut last = self.status.lock().await;
        if let Some((when, status)) = last.as_ref()
            && when.elapsed() < STATUS_AGE_MAX
        {
            return Ok(Arc::clone(status));
        }
        let status = Arc::new(self.ask(|control| control.status()).await?);
        *last = Some((Instant::now(), Arc::clone(&status)));
        Ok(status)
    }

    /// Returns the refusal of a connection that has no place.
    pub(crate) fn too_many_connections(&self) -> Rejection {
        let (most, refused) = (self.connections.most(), self.connections.refused());
        let text = format!("{most} connections are open, which is the most; {refused} refused");
        Rejection::new(ErrorCode::Busy, text)
    }

    /// Takes a place for a caller that listens or waits, until the slots are dropped.
    pub(crate) fn listener(&self, caller: &Caller) -> Result<[Option<Slot>; 2], Rejection> {
        let full = |most: usize| {
            let text = format!("{}: {most} listen or wait, which is the most", caller.who);
            Rejection::new(ErrorCode::Busy, text)
        };
        if caller.token.is_none() {
            let slot = self.root_listeners.take();
            return slot.map(|slot| [Some(slot), None]).ok_or_else(|| full(self.limits.listeners));
        }
        let own = self.listeners_each.take(caller.who.clone());
        let own = own.ok_or_else(|| full(self.listeners_each.most()))?;
        let slot = self.listeners.take().ok_or_else(|| full(self.listeners.most()))?;
        Ok([Some(slot), Some(own)])
    }

    /// Returns the policy in force; never waits for a change.
    pub(crate) fn in_force(&self) -> Result<InForce, Rejection> {
        Ok(self.control.policy()?)
    }

    /// Tells the operator a line.
    pub(crate) fn note(&self, line: String) {
        self.control.note(line);
    }

    /// Tells the operator that a tenant or reader asked for something that is not its own.
    pub(crate) fn tell(&self, caller: &Caller, refusal: &Rejection) {
        if caller.role == CallerRole::Administrator
            || !matches!(refusal.code, ErrorCode::Forbidden | ErrorCode::NotFound)
        {
            return;
        }
        if self.told.admit(&caller.who, Instant::now()) {
            // Names in it are the caller's text, escaped where they were quoted.
            self.note(format!("refused: {}: {:.*}", caller.who, TOLD_MAX, refusal.message));
        } else {
            self.refused.turn_away(TurnAwayReason::Untold);
        }
    }
}

/// The most reports that are read at once: half of the threads on which requests wait for the node.
const REPORTS: usize = 2;

/// The most characters of a refusal in the log.
const TOLD_MAX: usize = 200;

/// The divisor for fair shares: one address may have this part of the connections over TCP, and one
/// token this part of the listeners.
const SHARE: usize = 4;

/// The greatest age of a status: a person sees no difference, and the worker is asked at most 50
/// times a second.
const STATUS_AGE_MAX: Duration = Duration::from_millis(20);
