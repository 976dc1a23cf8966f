// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HTTP interface of a running node: what is read, changed, refused and taken back.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Site, soon};
use serde_json::{Value, json};
use weir_api_types::error::ErrorCode;
use weir_client::ClientError;
use weir_client::{Client, Method};

fn refusal(answer: Result<Value, ClientError>) -> (ErrorCode, String) {
    match answer.unwrap_err() {
        ClientError::Refused(refusal) => (refusal.code, refusal.message),
        ClientError::Io { error, .. } => panic!("{error}"),
    }
}

/// A change holds in the data plane, is on record, outlives the node, and goes without a trace.
#[test]
fn a_change_holds_outlives_the_node_and_is_taken_back() {
    let Some(site) = Site::up("weir-t-api", common::TOPOLOGY, common::POLICY) else { return };
    let node = site.run(&[]);
    site.wait_for_node();
    let client = Client::new(site.path("node-node.sock").as_ref());
    let before = client.text("/v1/document").unwrap();
    assert!(site.reaches("gold", "10.9.0.9"));
    let patch = |body: Value| client.ask::<Value>(Method::PATCH, "/v1/vifs/gold.0", Some(&body));
    let change = patch(json!({ "send": { "max_pps": 40, "rate_bps": 8_000_000 } })).unwrap();
    assert_eq!((&change["id"], &change["who"]), (&json!(1), &json!("uid 0")));
    assert_eq!(change["edits"][0]["after"], "8Mbit");
    assert!(client.text("/v1/document").unwrap().contains("8Mbit"));
    for (body, code, text) in [
        (json!({ "send": { "min_rate_bps": 2_000_000_000_u64 } }), ErrorCode::Refused, "2Gbit"),
        (json!({ "send": { "min_rate_bps": "much" } }), ErrorCode::Malformed, "much"),
        (json!({ "sned": {} }), ErrorCode::Malformed, "unknown field `sned`"),
        (json!({}), ErrorCode::Malformed, "names nothing"),
    ] {
        let (refused, message) = refusal(patch(body));
        assert!(refused == code && message.contains(text), "{refused:?}: {message}");
    }
    let nobody = client.ask::<Value>(Method::PATCH, "/v1/vifs/b", Some(&json!({"delay_ns": 5000})));
    assert_eq!(refusal(nobody).0, ErrorCode::NotFound);
    site.stop(node);
    let node = site.run(&[]);
    site.wait_for_node();
    assert!(client.text("/v1/document").unwrap().contains("8Mbit"));
    let said = |words: &[&str]| {
        let output = site.weir(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let set = said(&["set", "vif", "gold.0", "--min-rate", "30Mbit", "--rate", "40Mbit"]);
    assert!(set.contains("vif gold.0 send.rate: \"8Mbit\" -> \"40Mbit\""), "{set}");
    assert!(said(&["diff"]).contains("vif gold.0 send.min_rate: nothing -> \"30Mbit\""));
    // Nobody sends: within some seconds that is what one of them came to, for vif and slice.
    let verdicts = || {
        let status = site.status();
        let vifs = status["vifs"].as_array().unwrap();
        let vif = vifs.iter().find(|vif| vif["name"] == "gold.0").unwrap();
        let slices = status["slices"].as_array().unwrap();
        let slice = slices.iter().find(|slice| slice["name"] == "gold").cloned();
        let slice = slice.unwrap_or_default();
        [&vif["send"]["verdict"], &vif["receive"]["verdict"], &slice["send"], &slice["receive"]]
            .map(|verdict| verdict.as_str().unwrap_or_default().to_owned())
    };
    assert!(soon(|| verdicts() == ["idle", "none", "idle", "none"]), "{:?}", verdicts());
    assert!(said(&["show"]).contains("40Mbit") && said(&["show", "gold.0"]).contains("40000000"));
    assert!(said(&["undo"]).contains("\"40Mbit\" -> \"8Mbit\""));
    let undone: Value = client.ask(Method::POST, "/v1/undo", Some(&json!({}))).unwrap();
    assert_eq!((&undone["undoes"], &undone["kind"]), (&json!(1), &json!("undo")));
    assert_eq!(said(&["diff"]), "");
    assert_eq!(client.text("/v1/document").unwrap(), before);
    let (code, _) = refusal(client.ask(Method::POST, "/v1/undo", Some(&json!({}))));
    assert_eq!(code, ErrorCode::NotFound);
    site.stop(node);
}
