// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callers of the interface: who they are, and the rate of their requests.
//!
//! A handler that takes a [`BrokerCaller`] before its body answers a stranger before any of the
//! body is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{FromRef, FromRequestParts};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use weir_api_types::error::ErrorCode;
use weir_platform::rates::RateLimits;

use crate::config::BrokerSettings;
use crate::refusal::BrokerRefusal;
use crate::server::AuthenticationMark;
use crate::sha256::sha256;
use crate::tokens::BrokerToken;

/// The callers that the interface knows, each with a limit on the rate of its requests.
#[derive(Clone)]
pub(crate) struct KnownCallers(Arc<LimitedCallers>);

struct LimitedCallers {
    tokens: Vec<Arc<BrokerToken>>,
    rates: RateLimits,
    requests_per_second: u32,
    /// Requests that were refused since their token had sent too many.
    beyond_rate: AtomicU64,
}

impl KnownCallers {
    pub(crate) fn new(settings: &BrokerSettings) -> Self {
        let requests_per_second = settings.requests_per_second;
        let rates = RateLimits::new(requests_per_second, Duration::from_secs(1));
        let tokens = settings.token.iter().cloned().map(Arc::new).collect();
        let beyond_rate = AtomicU64::new(0);
        Self(Arc::new(LimitedCallers { tokens, rates, requests_per_second, beyond_rate }))
    }

    /// Returns how many requests were refused since their token had sent too many.
    pub(crate) fn beyond_rate(&self) -> u64 {
        self.0.beyond_rate.load(Ordering::Relaxed)
    }

    /// Returns the caller whose token a request has.
    fn find(&self, headers: &HeaderMap) -> Option<Arc<BrokerToken>> {
        let sent = headers.get(AUTHORIZATION)?.to_str().ok()?;
        // Digests are compared: the time of that says nothing about the token.
        let sent = sha256(sent.strip_prefix("Bearer ")?.as_bytes());
        let known = self.0.tokens.iter().find(|known| known.sha256.eq_ignore_ascii_case(&sent));
        known.cloned()
    }

    /// Refuses a request beyond the rate of its caller.
    fn within_rate(&self, caller: &BrokerToken) -> Result<(), BrokerRefusal> {
        let LimitedCallers { rates, requests_per_second, beyond_rate, .. } = &*self.0;
        if rates.admit(&caller.name, Instant::now()) {
            return Ok(());
        }
        beyond_rate.fetch_add(1, Ordering::Relaxed);
        let name = &caller.name;
        let text = format!(
            "token \"{name}\": more than {requests_per_second} requests a second; ask again later"
        );
        Err(BrokerRefusal::new(ErrorCode::Busy, text))
    }
}

/// The caller of a request, known by its token and within its rate.
pub(crate) struct BrokerCaller(pub(crate) Arc<BrokerToken>);

impl<S: Sync> FromRequestParts<S> for BrokerCaller
where
    KnownCallers: FromRef<S>,
{
    type Rejection = BrokerRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, BrokerRefusal> {
        let callers = KnownCallers::from_ref(state);
        let caller = callers.find(&parts.headers).ok_or_else(|| {
            BrokerRefusal::new(ErrorCode::NotAuthenticated, "the token is missing or unknown")
        })?;
        if let Some(mark) = parts.extensions.get::<AuthenticationMark>() {
            mark.set();
        }
        callers.within_rate(&caller)?;
        Ok(Self(caller))
    }
}
