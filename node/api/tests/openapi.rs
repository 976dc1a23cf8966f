// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/openapi.json is what the routes and their types say; `cargo xtask openapi` rewrites it.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::Value;

#[test]
fn the_checked_in_document_is_that_of_the_routes() {
    let document = weir_api::openapi::document();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == document, "docs/openapi.json has changed; `cargo xtask openapi` rewrites it");
}

/// Goal: the document lists the protocols that have a name in a policy, and no others.
#[test]
fn the_protocols_of_a_match_are_those_with_a_name() {
    let document: Value = serde_json::from_str(&weir_api::openapi::document()).unwrap();
    let protocol = &document["components"]["schemas"]["PacketMatch"]["properties"]["protocol"];
    let forms = protocol["oneOf"].as_array().unwrap();
    let listed = forms.iter().find_map(|form| form["enum"].as_array()).unwrap();
    let listed: Vec<&str> = listed.iter().filter_map(Value::as_str).collect();
    let named = (0..=u8::MAX).filter_map(|number| {
        let one = weir_policy::FiveTuple { protocol: Some(number), ..Default::default() };
        one.protocol_text().filter(|text| text.parse::<u8>().is_err())
    });
    assert_eq!(listed, named.collect::<Vec<_>>());
}

/// Programs rely on the version of OpenAPI, the paths, and a text for each refusal.
#[test]
fn the_document_is_openapi_3_1_and_names_every_refusal() {
    let document: Value = serde_json::from_str(&weir_api::openapi::document()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 29);
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            for status in ["401", "403", "429"] {
                let schema = &responses[status]["content"]["application/json"]["schema"];
                let name = schema["$ref"].as_str().unwrap_or_default();
                assert!(name.ends_with("/ApiError"), "{method} {path} {status}: {schema}");
            }
        }
    }
}
