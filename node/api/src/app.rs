// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One request, from its head to its answer: who asks, what, whether he may.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use tokio::sync::Mutex;
use tower_service::Service;
use weir_api_types::status::NodeStatus;
use weir_node::control::{Control, InForce, Refusal};

use crate::caller::{Caller, Known, Peer};
use crate::count::{Shares, Slot, Slots, network};
use crate::error::{ErrorCode, Rejection};
use crate::limits::Limits;
use crate::page;
use crate::rates::RateLimits;
use crate::routes;

/// The interface's state.
pub(crate) struct App {
    pub(crate) limits: Limits,
    /// On the Unix socket.
    pub(crate) connections: Slots,
    /// Over TCP: nobody out there takes a place from who is on the machine.
    pub(crate) remote_connections: Slots,
    /// Of those, from one address: nobody takes them all.
    pub(crate) remote_addresses: Shares<IpAddr>,
    /// Requests whose answer is not made yet.
    pub(crate) under_way: Slots,
    control: Arc<dyn Control>,
    waiting: Slots,
    /// Changes are made one at a time: those that wait for their turn take no thread from readers.
    turn: Mutex<()>,
    router: Router<Arc<Self>>,
    requests: RateLimits,
    wrong_tokens: RateLimits,
    /// Refusals of each tenant that the operator is told of.
    told: RateLimits,
    /// Of callers with a token.
    pub(crate) listeners: Slots,
    /// Of those, of one: nobody takes them all.
    pub(crate) listeners_each: Shares<String>,
    /// Root's own, whom no token keeps out.
    pub(crate) root_listeners: Slots,
    /// Reports that are being read.
    pub(crate) reports: Slots,
    /// What was refused at the door, by code, since the start.
    pub(crate) turned_away: [AtomicU64; 4],
    /// Answers that refuse, by status.
    refusals: StdMutex<BTreeMap<u16, u64>>,
    /// Connections whose peer did not read.
    pub(crate) stalled: AtomicU64,
    /// The last status and when it was taken: however many ask, the worker is asked seldom.
    status: Mutex<Option<(Instant, Arc<NodeStatus>)>>,
}

impl App {
    pub(crate) fn new(control: Arc<dyn Control>, limits: Limits) -> Self {
        Self {
            limits,
            connections: Slots::new(limits.connections),
            remote_connections: Slots::new(limits.connections),
            remote_addresses: Shares::new((limits.connections / SHARE).max(1)),
            turn: Mutex::new(()),
            under_way: Slots::new(usize::MAX),
            control,
            waiting: Slots::new(limits.waiting),
            router: routes::router(),
            requests: RateLimits::new(limits.requests_per_second, Duration::from_secs(1)),
            wrong_tokens: RateLimits::new(limits.wrong_tokens_per_minute, Duration::from_secs(60)),
            told: RateLimits::new(limits.wrong_tokens_per_minute, Duration::from_secs(60)),
            listeners: Slots::new(limits.listeners),
            listeners_each: Shares::new((limits.listeners / SHARE).max(1)),
            root_listeners: Slots::new(limits.listeners),
            reports: Slots::new(REPORTS),
            turned_away: Default::default(),
            refusals: StdMutex::default(),
            stalled: AtomicU64::new(0),
            status: Mutex::new(None),
        }
    }

    /// Answers a request.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        peer: &Peer,
        request: Request<Body>,
    ) -> Response<Body> {
        let _counted = self.under_way.take();
        let answer = match self.met(peer, request).await {
            Ok(request) => {
                let mut router = self.router.clone().with_state(Arc::clone(self));
                match router.call(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                }
            }
            Err(answer) => answer,
        };
        self.count(answer.status());
        answer
    }

    /// Lets a request in, or answers it at the door: with the page, which is for everybody, since a
    /// browser has no token before it has the page; or with a refusal.
    async fn met(
        &self,
        peer: &Peer,
        request: Request<Body>,
    ) -> Result<Request<Body>, Response<Body>> {
        let refused = |refusal: Rejection| refusal.into_response();
        let plain = matches!(peer, Peer::Remote(_))
            && self.in_force().is_ok_and(|in_force| in_force.policy.api.is_plain());
        if let Some(refusal) = page::not_for_here(&request).filter(|_| plain) {
            return Err(refused(refusal));
        }
        if let Some(file) = page::File::of(&request) {
            self.within_rate(&peer.name(), Instant::now()).map_err(refused)?;
            return Err(file.answer(&request));
        }
        self.admitted(peer, request).await.map_err(refused)
    }

    /// Counts an answer, if it refuses.
    pub(crate) fn count(&self, status: StatusCode) {
        if status.is_client_error() || status.is_server_error() {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            *refusals.entry(status.as_u16()).or_default() += 1;
        }
    }

    /// Answers that refused, by status.
    pub(crate) fn refusals(&self) -> BTreeMap<u16, u64> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the node do something, on a thread that may wait.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&dyn Control) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Rejection> {
        let Some(slot) = self.waiting.take() else {
            let text =
                format!("{} requests wait for the node, which is the most", self.waiting.most());
            return Err(Rejection::new(ErrorCode::Busy, text));
        };
        let control = Arc::clone(&self.control);
        let asked = tokio::task::spawn_blocking(move || {
            let answer = what(control.as_ref());
            drop(slot);
            answer
        });
        let answer = asked.await.map_err(|_| {
            Rejection::new(ErrorCode::NotRunning, "the node is ending, or failed at this request")
        })?;
        answer.map_err(Rejection::from)
    }

    /// The same for a change, in its turn.
    pub(crate) async fn ask_in_turn<T: Send + 'static>(
        &self,
        what: impl FnOnce(&dyn Control) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Rejection> {
        let _turn = self.turn.lock().await;
        self.ask(what).await
    }

    /// The node's status, not older than [`STATUS_AGE_MAX`].
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

    pub(crate) fn too_many_connections(&self) -> Rejection {
        let (most, refused) = (self.connections.most(), self.connections.refused());
        let text = format!("{most} connections are open, which is the most; {refused} refused");
        Rejection::new(ErrorCode::Busy, text)
    }

    /// A place for one who listens or waits, as long as he does.
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

    /// What holds; never waits for a change.
    pub(crate) fn in_force(&self) -> Result<InForce, Rejection> {
        Ok(self.control.policy()?)
    }

    /// Knows the caller, and that it is not too much.
    async fn admitted(
        &self,
        peer: &Peer,
        mut request: Request<Body>,
    ) -> Result<Request<Body>, Rejection> {
        let now = Instant::now();
        let policy = self.in_force()?.policy;
        let why = match Caller::of(peer, request.headers(), &policy) {
            Known::Yes(caller) => {
                self.within_rate(&caller.who, now)?;
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(policy);
                return Ok(request);
            }
            Known::NoToken => "there is no token",
            Known::WrongToken => "the token is not known",
        };
        let from = peer.name();
        let guesser = match peer {
            Peer::Local { .. } => from.clone(),
            Peer::Remote(address) => network(*address).to_string(),
        };
        if !self.wrong_tokens.admit(&guesser, now) {
            // Not told any more: whoever guesses shall not fill the log.
            self.turned_away[WRONG_TOKENS].fetch_add(1, Ordering::Relaxed);
            let most = self.limits.wrong_tokens_per_minute;
            let text = format!("{from}: more than {most} requests a minute without a known token");
            return Err(Rejection::new(ErrorCode::Busy, text));
        }
        self.turned_away[UNKNOWN].fetch_add(1, Ordering::Relaxed);
        self.control.note(format!("refused: {from}: {why}"));
        Err(Rejection::new(ErrorCode::NotAuthenticated, format!("{from}: {why}")))
    }

    fn within_rate(&self, who: &str, now: Instant) -> Result<(), Rejection> {
        if self.requests.admit(who, now) {
            return Ok(());
        }
        self.turned_away[REQUESTS].fetch_add(1, Ordering::Relaxed);
        let most = self.limits.requests_per_second;
        Err(Rejection::new(ErrorCode::Busy, format!("{who}: more than {most} requests a second")))
    }

    /// Tells the operator what a caller was refused, if he was for what he is.
    pub(crate) fn tell(&self, caller: &Caller, refusal: &Rejection) {
        if caller.slice().is_none()
            || !matches!(refusal.code, ErrorCode::Forbidden | ErrorCode::NotFound)
        {
            return;
        }
        if self.told.admit(&caller.who, Instant::now()) {
            // What is named in it is the caller's text, escaped where it was quoted.
            self.control.note(format!("refused: {}: {:.*}", caller.who, TOLD_MAX, refusal.message));
        } else {
            self.turned_away[UNTOLD].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reports that are read at once: half of the threads that wait.
const REPORTS: usize = 2;

/// Callers that are not known.
pub(crate) const UNKNOWN: usize = 0;
/// The same, beyond what is looked at.
pub(crate) const WRONG_TOKENS: usize = 1;
/// Requests beyond what one caller may.
pub(crate) const REQUESTS: usize = 2;
/// Refusals of a tenant that the operator was not told of any more.
pub(crate) const UNTOLD: usize = 3;
/// Characters of a refusal in the log.
const TOLD_MAX: usize = 200;

/// One address may have that part of the connections over TCP, one token that part of the
/// listeners.
const SHARE: usize = 4;

/// A person sees no difference; the worker is asked 50 times a second at most.
const STATUS_AGE_MAX: std::time::Duration = std::time::Duration::from_millis(20);
