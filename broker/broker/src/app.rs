// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface's paths.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, patch, post};
use tokio::time::Instant;
use weir_api_types::error::ApiError;

use crate::answer_counts::RequestKind;
use crate::message::write_answers;
use crate::refusal::BrokerRefusal;
use crate::routes::BrokerInterface;
use crate::{metrics, openapi, routes};

/// Returns the paths of the interface.
pub(crate) fn router(interface: Arc<BrokerInterface>) -> Router {
    Router::new()
        .route("/v1/networks", get(routes::networks))
        .route("/v1/links", get(routes::physical_links))
        .route("/v1/policing", get(routes::policing))
        .route("/v1/history", get(routes::history))
        .route("/v1/connections", get(routes::connections).post(routes::create))
        .route("/v1/connections/dry-run", post(routes::try_out))
        .route(
            "/v1/connections/{id}",
            get(routes::show).patch(routes::change).delete(routes::remove),
        )
        .route("/v1/connections/{id}/commit", post(routes::commit))
        .route("/v1/connections/{id}/renew", post(routes::renew))
        .route("/v1/connections/{id}/report", get(routes::report))
        .route("/v1/networks/{network}/links/{link}", patch(routes::set_link))
        .route("/v1/networks/{network}/traffic", get(routes::traffic))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/openapi.json", get(openapi::openapi))
        .route("/v1/broker.xsd", get(openapi::schema))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(from_fn(write_answers))
        .layer(from_fn_with_state(Arc::clone(&interface), count_answers))
        .layer(from_fn(page))
        .with_state(interface)
}

async fn unknown_path(uri: Uri) -> BrokerRefusal {
    ApiError::unknown_path(uri.path()).into()
}

async fn unknown_method(method: Method, uri: Uri) -> BrokerRefusal {
    ApiError::unknown_method(method.as_str(), uri.path()).into()
}

/// Counts the answer to a request.
async fn count_answers(
    State(interface): State<Arc<BrokerInterface>>,
    request: Request,
    next: Next,
) -> Response {
    let since = Instant::now();
    let kind = RequestKind::of(request.method(), request.uri().path());
    let response = next.run(request).await;
    interface.answers.count(kind, response.status(), since.elapsed());
    response
}

/// Answers requests for the files of the page.
async fn page(request: Request, next: Next) -> Response {
    match weir_page::BROKER.answer(&request) {
        Some(answer) => answer,
        None => next.run(request).await,
    }
}
