// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/broker-openapi.json and docs/broker.xsd are what the routes and their types say;
//! `./x bless` rewrites them.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::Value;

#[test]
fn the_checked_in_documents_are_those_of_the_routes() {
    let openapi = weir_broker::openapi::document();
    let xsd = weir_broker::openapi::xml_schema();
    for (name, document) in [("broker-openapi.json", openapi), ("broker.xsd", xsd)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(&path, &document).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == document, "docs/{name} has changed; `./x bless` rewrites it");
    }
}

/// The package installs it as what a user's own file begins with.
#[test]
fn the_example_is_a_file_that_a_broker_takes() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/broker.toml");
    weir_broker::BrokerConfig::read(&example).unwrap();
}

/// Programs rely on the version of OpenAPI, both formats of each message, and a text for each
/// refusal.
#[test]
fn the_document_is_openapi_3_1_and_has_both_formats() {
    let document: Value = serde_json::from_str(&weir_broker::openapi::document()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut messages = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            let is_document = path == "/v1/openapi.json" || path == "/v1/broker.xsd";
            assert_eq!(responses.contains_key("401"), !is_document, "{method} {path}");
            let bodies = responses.values().chain(operation.get("requestBody"));
            for body in bodies.filter(|_| !is_document) {
                let Some(content) = body.get("content") else { continue };
                // Prometheus reads a format of its own.
                if path == "/metrics" && content.get("text/plain").is_some() {
                    continue;
                }
                assert_eq!(content["application/json"], content["application/xml"], "{path}");
                assert!(content["application/xml"]["schema"].is_object(), "{method} {path}");
                messages += 1;
            }
        }
    }
    assert!(messages > 50, "{messages}");
}
