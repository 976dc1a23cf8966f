// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The refusals that the OpenAPI document names for each request.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use weir_api_types::error::ErrorCode;

/// Refusals that a request may get.
pub(crate) struct BrokerRefusals;

impl IntoResponses for BrokerRefusals {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let response = |text: &str| {
            let schema = Ref::from_schema_name("BrokerRefusal");
            let content = ContentBuilder::new().schema(Some(schema)).build();
            ResponseBuilder::new().description(text).content("application/json", content).build()
        };
        let each =
            CODES.iter().map(|(code, text)| (code.status().to_string(), RefOr::T(response(text))));
        each.collect()
    }
}

const CODES: [(ErrorCode, &str); 11] = [
    (ErrorCode::Malformed, "The request is not of the form that the interface takes."),
    (ErrorCode::NotAuthenticated, "There is no token, or an unknown one."),
    (ErrorCode::Forbidden, "The caller sees it, and may not change it."),
    (ErrorCode::NotFound, "There is no such thing, or the caller may not know of it."),
    (ErrorCode::TooSlow, "The body did not come to its end in time."),
    (ErrorCode::Conflict, "The connection's state does not allow it, or the key was used."),
    (ErrorCode::TooLarge, "The body is longer than the bound."),
    (ErrorCode::NotJson, "The body is neither JSON nor XML."),
    (ErrorCode::Refused, "It does not fit: the reason, and the smallest changes that would."),
    (ErrorCode::Busy, "Too many requests wait, or the token has sent too many; ask again later."),
    (ErrorCode::NotRunning, "A router does not answer, or the broker is ending."),
];
