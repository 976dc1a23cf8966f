// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The path of one request, from its head to its answer.
//!
//! A file of the page is served to everybody, since a browser has no token before it has the page.
//! Every other request is authenticated, counted against the caller's rate, and handed to its
//! route with the caller and the policy in force. Unknown callers are told apart by address. One
//! that fails too often in a minute is refused as busy, and no longer logged. A known token is
//! always served, so that nobody can lock others behind the same address out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use tower_service::Service as _;
use weir_platform::rates::RateLimits;
use weir_platform::slots::network;

use crate::app::App;
use crate::caller::{Authentication, Caller, ConnectionOrigin};
use crate::error::{ErrorCode, Rejection};
use crate::fences::Fences;
use crate::loopback;
use crate::refused::TurnAwayReason;
use crate::routes;

/// A service that answers requests.
pub(crate) struct RequestService {
    app: Arc<App>,
    router: Router,
    /// Requests, by caller.
    requests: RateLimits,
    /// Requests without a known token, by address or local user.
    wrong_tokens: RateLimits,
    fences: Fences,
}

impl RequestService {
    /// Makes a service of this state, with the limits in it.
    pub(crate) fn new(app: Arc<App>) -> Self {
        let limits = &app.limits;
        Self {
            router: routes::router().with_state(Arc::clone(&app)),
            requests: RateLimits::new(limits.requests_per_second, Duration::from_secs(1)),
            wrong_tokens: RateLimits::new(limits.wrong_tokens_per_minute, Duration::from_secs(60)),
            fences: Fences::default(),
            app,
        }
    }

    /// Returns the state that the routes share.
    pub(crate) const fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Answers a request.
    pub(crate) async fn answer(
        &self,
        origin: &ConnectionOrigin,
        request: Request<Body>,
    ) -> Response<Body> {
        let _counted = self.app.under_way.take();
        let answer = match self.receive(origin, request) {
            Ok(request) => match self.router.clone().call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            },
            Err(answer) => *answer,
        };
        self.app.refused.answer(answer.status());
        answer
    }

    /// Returns the request if it may go to its route. Otherwise the error is its answer: a file of
    /// the page, or a refusal.
    fn receive(
        &self,
        origin: &ConnectionOrigin,
        request: Request<Body>,
    ) -> Result<Request<Body>, Box<Response<Body>>> {
        let refused = |refusal: Rejection| Box::new(refusal.into_response());
        let plain = matches!(origin, ConnectionOrigin::Remote(_))
            && self.app.in_force().is_ok_and(|in_force| in_force.policy.api.is_plain());
        if let Some(refusal) = loopback::foreign_host(&request).filter(|_| plain) {
            return Err(refused(refusal));
        }
        if let Some(answer) = weir_page::NODE.answer(&request) {
            self.within_rate(&counted_as(origin), Instant::now()).map_err(refused)?;
            return Err(Box::new(answer));
        }
        self.admit(origin, request).map_err(refused)
    }

    /// Authenticates a request, and adds the caller and the policy in force to it.
    fn admit(
        &self,
        origin: &ConnectionOrigin,
        mut request: Request<Body>,
    ) -> Result<Request<Body>, Rejection> {
        let now = Instant::now();
        let policy = self.app.in_force()?.policy;
        let why = match Caller::authenticate(origin, request.headers(), &policy) {
            Authentication::Known(caller) => {
                self.within_rate(&caller.who, now)?;
                self.fences.admit(&caller, request.headers())?;
                let may = caller.may_use(request.method());
                may.inspect_err(|refusal| self.app.tell(&caller, refusal))?;
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(policy);
                return Ok(request);
            }
            Authentication::NoToken => "there is no token",
            Authentication::WrongToken => "the token is not known",
        };
        let from = origin.name();
        if !self.wrong_tokens.admit(&counted_as(origin), now) {
            // This is not logged, or guessers would fill the log.
            self.app.refused.turn_away(TurnAwayReason::WrongTokens);
            let most = self.app.limits.wrong_tokens_per_minute;
            let text = format!("{from}: more than {most} requests a minute without a known token");
            return Err(Rejection::new(ErrorCode::Busy, text));
        }
        self.app.refused.turn_away(TurnAwayReason::Unknown);
        self.app.note(format!("refused: {from}: {why}"));
        Err(Rejection::new(ErrorCode::NotAuthenticated, format!("{from}: {why}")))
    }

    /// Refuses a request beyond the rate of its caller.
    fn within_rate(&self, who: &str, now: Instant) -> Result<(), Rejection> {
        if self.requests.admit(who, now) {
            return Ok(());
        }
        self.app.refused.turn_away(TurnAwayReason::Requests);
        let most = self.app.limits.requests_per_second;
        Err(Rejection::new(ErrorCode::Busy, format!("{who}: more than {most} requests a second")))
    }
}

/// Returns the name under which requests without a known token are counted against rate limits.
fn counted_as(origin: &ConnectionOrigin) -> String {
    match origin {
        ConnectionOrigin::Local { .. } => origin.name(),
        ConnectionOrigin::Remote(address) => network(*address).to_string(),
    }
}
