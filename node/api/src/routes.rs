// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of routes: a path, a method, a handler.

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{get, patch, post};
use weir_api_types::error::ApiError;

use crate::app::App;
use crate::error::Rejection;
use crate::{
    change_routes as change, explain_routes as explain, openapi, read_routes as read,
    realtime_routes as realtime, report_routes as report, xtc_routes as xtc,
};

/// Returns all routes.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/metrics", get(read::metrics))
        .route("/v1/openapi.json", get(openapi::openapi))
        .route("/v1/caller", get(read::caller))
        .route("/v1/health", get(read::health))
        .route("/v1/status", get(read::status))
        .route("/v1/policy", get(read::policy))
        .route("/v1/document", get(read::document))
        .route("/v1/events", get(read::events))
        .route("/v1/vifs", post(change::add_vif))
        .route("/v1/vifs/{vif}", get(read::vif).patch(change::vif).delete(change::remove_vif))
        .route("/v1/vifs/{vif}/capture", get(read::capture))
        .route("/v1/slices", post(change::add_slice))
        .route("/v1/slices/{slice}", patch(change::slice).delete(change::remove_slice))
        .route("/v1/routers/{router}", patch(change::router))
        .route("/v1/changes", get(read::changes).post(change::several))
        .route("/v1/undo", post(change::undo))
        .route("/v1/explain", get(explain::explain))
        .route("/v1/report", get(report::report))
        .route("/v1/overlay", get(read::overlay))
        .route("/v1/xtc", get(xtc::routers))
        .route("/v1/xtc/{router}", get(xtc::router).patch(xtc::change))
        .route("/v1/xtc/{router}/log", get(xtc::log))
        .route("/v1/set-points", post(xtc::set_points))
        .route("/v1/realtime", get(realtime::classes))
        .route("/v1/realtime/{router}/advice", get(realtime::advice))
        .route("/v1/reload", post(change::reload))
        .route("/v1/confirm", post(change::confirm))
        .route("/v1/stop", post(change::stop))
        .route("/v1/leave", post(change::leave))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
}

async fn unknown_path(uri: Uri) -> Rejection {
    ApiError::unknown_path(uri.path()).into()
}

async fn unknown_method(method: Method, uri: Uri) -> Rejection {
    ApiError::unknown_method(method.as_str(), uri.path()).into()
}
