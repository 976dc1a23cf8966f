// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One request, from its head to its answer: who asks, what, whether he may.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use tokio::sync::Mutex;
use tower_service::Service;
use weir_node::control::{Control, Refusal};
use weir_node::status::Status;

use crate::caller::{Caller, Peer};
use crate::count::Slots;
use crate::error::{ApiError, Code};
use crate::limits::Limits;
use crate::routes;

/// The interface's state.
pub(crate) struct App {
    pub(crate) limits: Limits,
    pub(crate) connections: Slots,
    /// Requests whose answer is not made yet.
    pub(crate) under_way: Slots,
    control: Arc<dyn Control>,
    waiting: Slots,
    router: Router<Arc<Self>>,
    /// The last status and when it was taken: however many ask, the worker is asked seldom.
    status: Mutex<Option<(Instant, Arc<Status>)>>,
}

impl App {
    pub(crate) fn new(control: Arc<dyn Control>, limits: Limits) -> Self {
        Self {
            limits,
            connections: Slots::new(limits.connections),
            under_way: Slots::new(usize::MAX),
            control,
            waiting: Slots::new(limits.waiting),
            router: routes::router(),
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
        match self.admitted(peer, request) {
            Ok(request) => {
                let mut router = self.router.clone().with_state(Arc::clone(self));
                match router.call(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                }
            }
            Err(refusal) => refusal.into_response(),
        }
    }

    /// Has the node do something, on a thread that may wait.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&dyn Control) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(slot) = self.waiting.take() else {
            let text =
                format!("{} requests wait for the node, which is the most", self.waiting.most());
            return Err(ApiError::new(Code::Busy, text));
        };
        let control = Arc::clone(&self.control);
        let asked = tokio::task::spawn_blocking(move || {
            let answer = what(control.as_ref());
            drop(slot);
            answer
        });
        let answer = asked.await.map_err(|_| {
            ApiError::new(Code::NotRunning, "the node is ending, or failed at this request")
        })?;
        answer.map_err(ApiError::from)
    }

    /// The node's status, not older than [`STATUS_AGE_MAX`].
    pub(crate) async fn status(&self) -> Result<Arc<Status>, ApiError> {
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

    pub(crate) fn too_many_connections(&self) -> ApiError {
        let (most, refused) = (self.connections.most(), self.connections.refused());
        let text = format!("{most} connections are open, which is the most; {refused} refused");
        ApiError::new(Code::Busy, text)
    }

    fn admitted(&self, peer: &Peer, mut request: Request<Body>) -> Result<Request<Body>, ApiError> {
        let caller = Caller::of(peer, request.headers())?;
        request.extensions_mut().insert(caller);
        Ok(request)
    }
}

/// A person sees no difference; the worker is asked 50 times a second at most.
const STATUS_AGE_MAX: std::time::Duration = std::time::Duration::from_millis(20);
