// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The token of a caller, in the `OpenAPI` documents of the node and of the broker.

use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

/// Adds the security scheme `token` to a document: a bearer token (RFC 6750).
#[derive(Clone, Copy, Debug)]
pub struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, api: &mut OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}
