// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The OpenAPI 3.1 document, made from the routes and the types that they carry.

use std::collections::BTreeMap;

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};
use weir_api_types::error::{ApiError, ErrorCode};

use crate::{
    change_routes as change, explain_routes as explain, read_routes as read,
    report_routes as report, xtc_routes as xtc,
};

/// The document as JSON, the same for every build of a version.
#[must_use]
pub fn document() -> String {
    // Made of texts and numbers; nothing of it can fail.
    Api::openapi().to_pretty_json().map_or_else(|error| error.to_string(), |text| text + "\n")
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Weir node", description = "Read everything of a running node, change it live. \
        Root on the Unix socket needs no token; a tenant's token sees and changes the vifs of one \
        slice, within what the slice grants."),
    paths(
        read::metrics, read::openapi, read::caller, read::health, read::status, read::policy,
        read::document, read::events, read::vif, read::capture, read::changes, read::overlay,
        report::report, explain::explain, xtc::routers, xtc::router, xtc::log, xtc::change,
        change::vif, change::add_vif, change::remove_vif, change::slice, change::router,
        change::several, change::undo,
        change::reload, change::confirm, change::stop, change::leave
    ),
    components(schemas(ApiError, ErrorCode)),
    modifiers(&Token),
    security((), ("token" = []))
)]
struct Api;

struct Token;

impl Modify for Token {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// What any request may be refused with.
pub(crate) struct Refusals;

/// What a change may be refused with.
pub(crate) struct ChangeRefusals;

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusals(ANY)
    }
}

impl IntoResponses for ChangeRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        refusals(&[ANY, OF_A_CHANGE].concat())
    }
}

fn refusals(codes: &[(ErrorCode, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let response = |text: &str| {
        let schema = Ref::from_schema_name("ApiError");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        ResponseBuilder::new().description(text).content("application/json", content).build()
    };
    let each =
        codes.iter().map(|(code, text)| (code.status().to_string(), RefOr::T(response(text))));
    each.collect()
}

const ANY: &[(ErrorCode, &str)] = &[
    (ErrorCode::Malformed, "The request is not of the form that the interface takes."),
    (ErrorCode::NotAuthenticated, "There is no token, or one that is not known."),
    (ErrorCode::Forbidden, "Not for this caller, or beyond what his slice grants."),
    (ErrorCode::NotFound, "There is no such thing."),
    (ErrorCode::TooSlow, "The request did not come to its end in time."),
    (ErrorCode::Refused, "A running node cannot do that, or the policy would not be sound."),
    (ErrorCode::Busy, "Too many requests, connections or listeners; ask again later."),
    (ErrorCode::NotRunning, "The node is starting or ending."),
];

const OF_A_CHANGE: &[(ErrorCode, &str)] = &[
    (ErrorCode::Conflict, "Something else holds than the request takes for granted."),
    (ErrorCode::TooLarge, "The body is longer than the bound."),
    (ErrorCode::NotJson, "The body is not JSON."),
    (ErrorCode::NotRecorded, "The record of changes cannot be written."),
];
