// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HTTP interface of a running node: what is read, changed, refused and taken back.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{NodeLab, soon};
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

/// Goal: the queue of a vif is changed while packets pass, shown, and taken back: none is lost.
#[test]
fn a_queue_is_changed_and_shown_live() {
    let Some(lab) = NodeLab::up("weir-t-queue", common::TOPOLOGY, common::POLICY) else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    let client = Client::new(lab.path("node-node.sock").as_ref());
    let said = |words: &[&str]| {
        let output = lab.weir(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let before = client.text("/v1/document").unwrap();
    let queue = || client.get::<Value>("/v1/vifs/gold.0").unwrap()["send_queue"].clone();
    let flows = || {
        let status = lab.status();
        let vifs = status["vifs"].as_array().unwrap();
        vifs.iter().find(|vif| vif["name"] == "gold.0").unwrap()["send"]["flows"].clone()
    };
    assert_eq!((&queue()["kind"], &queue()["target_ns"]), (&json!("flows"), &json!(5_000_000)));
    assert!(lab.reaches("gold", "10.9.0.9"));
    assert!(flows()["started"].as_u64().unwrap() > 0, "{}", flows());
    let mut ping = lab.inside("gold", "ping");
    ping.args(["-q", "-i", "0.005", "-c", "600", "-w", "60", "10.9.0.9"]);
    let ping = ping.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let set = said(&["set", "vif", "gold.0", "--queue", "fifo", "--aqm", "none"]);
    assert!(set.contains("vif gold.0 send.queue.kind: nothing -> \"fifo\""), "{set}");
    let now = queue();
    assert!(now["kind"] == "fifo" && now.get("target_ns").is_none(), "{now}");
    assert!(soon(|| flows() == Value::Null), "{}", flows());
    said(&["set", "vif", "gold.0", "--queue", "flows", "--aqm", "lan", "--l4s", "1ms"]);
    let now = queue();
    let of = |key: &str| now[key].as_u64().unwrap();
    assert_eq!((of("target_ns"), of("l4s_ns"), &now["ecn"]), (250_000, 1_000_000, &json!(true)));
    assert!(soon(|| flows()["started"].as_u64() > Some(0)), "{}", flows());
    let metrics = client.text("/metrics").unwrap();
    for name in ["weir_flows_active", "weir_marked_packets_total"] {
        let series = format!("{name}{{vif=\"gold.0\",direction=\"send\"}}");
        assert!(metrics.contains(&series), "no {series} in:\n{metrics}");
    }
    assert!(said(&["top", "--once", "--json"]).contains("\"flows\""));
    let smooth = ["--rate", "20Mbit", "--shaper", "smooth", "--queue", "flows"];
    let refused = lab.weir(&[&["set", "vif", "gold.0"], &smooth[..]].concat());
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("must be \"fifo\""), "{text}");
    let back = said(&["set", "vif", "gold.0", "--queue", "default", "--aqm", "default"]);
    assert!(back.contains("send.queue.kind: \"flows\" -> nothing"), "{back}");
    (0..3).for_each(|_| drop(said(&["undo"])));
    assert_eq!(client.text("/v1/document").unwrap(), before);
    let ping = ping.wait_with_output().unwrap();
    let text = String::from_utf8(ping.stdout).unwrap();
    assert!(text.contains(" 0% packet loss"), "{text}");
    lab.stop(node);
}

/// Goal: a smooth window is set, changed and taken back while packets pass, and none is lost; a
/// crash and the next start leave it in force.
#[test]
fn a_shaper_is_changed_live_and_outlives_a_crash() {
    let Some(lab) = NodeLab::up("weir-t-shaper", common::TOPOLOGY, common::POLICY) else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    let client = Client::new(lab.path("node-node.sock").as_ref());
    let said = |words: &[&str]| {
        let output = lab.weir(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let before = client.text("/v1/document").unwrap();
    let windows = || {
        let vif = client.get::<Value>("/v1/vifs/gold.0").unwrap();
        let of = |side: &str| vif[side]["delay_max_ns"].as_u64();
        (of("send_shaper"), of("receive_shaper"))
    };
    let is_smooth = || {
        let status = lab.status();
        let vifs = status["vifs"].as_array().unwrap();
        let vif = vifs.iter().find(|vif| vif["name"] == "gold.0").unwrap();
        ["send", "receive"].map(|side| vif[side]["smooth"] != Value::Null)
    };
    assert!(lab.reaches("gold", "10.9.0.9"));
    let mut ping = lab.inside("gold", "ping");
    ping.args(["-q", "-i", "0.005", "-c", "600", "-w", "60", "10.9.0.9"]);
    let ping = ping.stdout(std::process::Stdio::piped()).spawn().unwrap();
    said(&["set", "vif", "gold.0", "--rate", "20Mbit", "--shaper", "smooth", "--queue", "fifo"]);
    assert_eq!(windows(), (Some(200_000_000), None));
    assert!(soon(|| is_smooth() == [true, false]), "{:?}", is_smooth());
    let both = json!({
        "send": { "delay_max_ns": 300_000_000_u64 },
        "receive": { "rate_bps": 20_000_000, "shaper": "smooth", "queue": { "kind": "fifo" } },
    });
    client.ask::<Value>(Method::PATCH, "/v1/vifs/gold.0", Some(&both)).unwrap();
    assert_eq!(windows(), (Some(300_000_000), Some(200_000_000)));
    assert!(soon(|| is_smooth() == [true, true]), "{:?}", is_smooth());
    let metrics = client.text("/metrics").unwrap();
    for direction in ["send", "receive"] {
        let series =
            format!("weir_smooth_delay_seconds{{vif=\"gold.0\",direction=\"{direction}\"}}");
        assert!(metrics.contains(&series), "no {series} in:\n{metrics}");
    }
    let text = String::from_utf8(ping.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.contains(" 0% packet loss"), "{text}");
    node.kill();
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert_eq!(windows(), (Some(300_000_000), Some(200_000_000)));
    assert!(soon(|| is_smooth() == [true, true]), "{:?}", is_smooth());
    assert!(lab.reaches("gold", "10.9.0.9"));
    said(&["undo"]);
    assert_eq!(windows(), (Some(200_000_000), None));
    said(&["undo"]);
    assert_eq!((windows(), client.text("/v1/document").unwrap()), ((None, None), before));
    assert!(soon(|| is_smooth() == [false, false]), "{:?}", is_smooth());
    lab.stop(node);
}

/// A change holds in the data plane, is on record, outlives the node, and goes without a trace.
#[test]
fn a_change_holds_outlives_the_node_and_is_taken_back() {
    let Some(lab) = NodeLab::up("weir-t-api", common::TOPOLOGY, common::POLICY) else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    let client = Client::new(lab.path("node-node.sock").as_ref());
    let before = client.text("/v1/document").unwrap();
    assert!(lab.reaches("gold", "10.9.0.9"));
    let patch = |body: Value| client.ask::<Value>(Method::PATCH, "/v1/vifs/gold.0", Some(&body));
    let change =
        patch(json!({ "send": { "max_pps": 40, "burst_packets": 100, "rate_bps": 8_000_000 } }))
            .unwrap();
    assert_eq!((&change["id"], &change["who"]), (&json!(1), &json!("uid 0")));
    assert_eq!(change["edits"][0]["after"], "8Mbit");
    let document = client.text("/v1/document").unwrap();
    assert!(document.contains("8Mbit") && document.contains("burst_packets = 100"));
    for (body, code, text) in [
        (json!({ "send": { "min_rate_bps": 2_000_000_000_u64 } }), ErrorCode::Refused, "2Gbit"),
        (json!({ "send": { "min_rate_bps": "much" } }), ErrorCode::Malformed, "much"),
        (json!({ "send": { "burst_packets": 63 } }), ErrorCode::Refused, "63"),
        (json!({ "sned": {} }), ErrorCode::Malformed, "unknown field `sned`"),
        (json!({}), ErrorCode::Malformed, "names nothing"),
    ] {
        let (refused, message) = refusal(patch(body));
        assert!(refused == code && message.contains(text), "{refused:?}: {message}");
    }
    let nobody = client.ask::<Value>(Method::PATCH, "/v1/vifs/b", Some(&json!({"delay_ns": 5000})));
    assert_eq!(refusal(nobody).0, ErrorCode::NotFound);
    lab.stop(node);
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(client.text("/v1/document").unwrap().contains("8Mbit"));
    let said = |words: &[&str]| {
        let output = lab.weir(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let set = said(&["set", "vif", "gold.0", "--min-rate", "30Mbit", "--rate", "40Mbit"]);
    assert!(set.contains("vif gold.0 send.rate: \"8Mbit\" -> \"40Mbit\""), "{set}");
    assert!(said(&["diff"]).contains("vif gold.0 send.min_rate: nothing -> \"30Mbit\""));
    // Nobody sends: within some seconds that is what one of them came to, for vif and slice.
    let verdicts = || {
        let status = lab.status();
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
    lab.stop(node);
}
