// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The OpenAPI 3.1 document, made from the routes and the types that they carry.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;
use weir_api_types::error::{ApiError, ErrorCode};
use weir_api_types::token_scheme::TokenScheme;

use crate::{
    change_routes as change, explain_routes as explain, read_routes as read,
    realtime_routes as realtime, report_routes as report, xtc_routes as xtc,
};

/// Returns the document as JSON, equal in every build of a version.
#[must_use]
pub fn document() -> String {
    // The document consists of texts and numbers, so its conversion cannot fail.
    Api::openapi().to_pretty_json().map_or_else(|error| error.to_string(), |text| text + "\n")
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "read",
    responses((status = 200, body = Object), crate::responses::Refusals))]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Weir node", description = "Read everything of a running node, change it live. \
        Root on the Unix socket needs no token; a tenant's token sees and changes the vifs of one \
        slice, within what the slice grants."),
    paths(
        read::metrics, openapi, read::caller, read::health, read::status, read::policy,
        read::document, read::events, read::vif, read::capture, read::changes, read::overlay,
        report::report, explain::explain, xtc::routers, xtc::router, xtc::log, xtc::change,
        xtc::set_points,
        realtime::classes, realtime::advice,
        change::vif, change::add_vif, change::remove_vif, change::slice, change::add_slice,
        change::remove_slice, change::router, change::several, change::undo,
        change::reload, change::confirm, change::stop, change::leave
    ),
    components(schemas(ApiError, ErrorCode)),
    modifiers(&TokenScheme),
    security((), ("token" = []))
)]
struct Api;
