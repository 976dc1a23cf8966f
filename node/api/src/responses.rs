// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The refusals that the OpenAPI document names for each request.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use weir_api_types::error::ErrorCode;

/// Refusals that any request may get.
pub(crate) struct Refusals;

/// Refusals that a request for a change may get.
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
    (ErrorCode::NotAuthenticated, "There is no token, or an unknown one."),
    (ErrorCode::Forbidden, "Not for this caller, or beyond what its slice grants."),
    (ErrorCode::NotFound, "There is no such thing."),
    (ErrorCode::TooSlow, "The request did not come to its end in time."),
    (ErrorCode::Refused, "A running node cannot do that, or the policy would not be sound."),
    (ErrorCode::Busy, "Too many requests, connections or listeners; ask again later."),
    (ErrorCode::NotRunning, "The node is starting or ending."),
];

const OF_A_CHANGE: &[(ErrorCode, &str)] = &[
    (ErrorCode::Conflict, "The state of the node contradicts the request."),
    (ErrorCode::TooLarge, "The body is longer than the bound."),
    (ErrorCode::NotJson, "The body is not JSON."),
    (ErrorCode::NotRecorded, "The record of changes cannot be written."),
];
