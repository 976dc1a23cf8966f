// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documents of the broker's interface, made from its routes and their types: OpenAPI 3.1, and
//! the XML schema.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::Operation;
use utoipa::{Modify, OpenApi};
use weir_api_types::token_scheme::TokenScheme;

use crate::refusal::BrokerRefusal;
use crate::{metrics, routes, xsd};

/// Returns the document as JSON, equal in every build of a version.
#[must_use]
pub fn document() -> String {
    // Made of texts and numbers; nothing of it can fail.
    Api::openapi().to_pretty_json().map_or_else(|error| error.to_string(), |text| text + "\n")
}

/// Returns the schema of the messages in XML (XSD 1.0), equal in every build of a version.
#[must_use]
pub fn xml_schema() -> String {
    xsd::schema(&document())
}

/// This document. It needs no token.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, body = Object)))]
pub(crate) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], document()).into_response()
}

/// The schema of the messages in XML. It needs no token.
#[utoipa::path(get, path = "/v1/broker.xsd",
    responses((status = 200, body = String, content_type = "application/xml")))]
pub(crate) async fn schema() -> Response {
    ([(CONTENT_TYPE, "application/xml")], xml_schema()).into_response()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Weir broker", description = "Ask for end-to-end connections with a guaranteed \
        rate, change them, give them back. The token of a network's administrator sees and \
        manages that network alone. Every message is JSON or, by Content-Type and Accept, XML of \
        the same meaning, whose schema is /v1/broker.xsd."),
    paths(
        routes::networks, routes::physical_links, routes::set_link, routes::commit, routes::renew,
        routes::policing, routes::traffic, routes::history, routes::connections, routes::show,
        routes::create,
        routes::try_out, routes::change, routes::remove, routes::report, metrics::metrics, openapi,
        schema
    ),
    components(schemas(BrokerRefusal)),
    modifiers(&TokenScheme, &XmlMessages),
    security(("token" = []))
)]
struct Api;

/// Says that each message can be XML too.
struct XmlMessages;

impl Modify for XmlMessages {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        for (_, path) in api.paths.paths.iter_mut().filter(|(name, _)| *name != DOCUMENT) {
            let operations = [&mut path.get, &mut path.post, &mut path.patch, &mut path.delete];
            for operation in operations.into_iter().flatten() {
                add_xml(operation);
            }
        }
    }
}

fn add_xml(operation: &mut Operation) {
    let xml = || "application/xml".to_owned();
    if let Some(RefOr::T(body)) = &mut operation.request_body
        && let Some(content) = body.content.get(JSON).cloned()
    {
        body.content.insert(xml(), content);
    }
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response
            && let Some(content) = response.content.get(JSON).cloned()
        {
            response.content.insert(xml(), content);
        }
    }
}

const DOCUMENT: &str = "/v1/openapi.json";

const JSON: &str = "application/json";
