// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of requests about connections: lists of names, other brokers' connections, reports.

use super::*;
use crate::ids::id_text;
use crate::node_queue::NodeQueue;

/// Goal: what a list of names repeats is left out when it is read, so that a row has at most the
/// names of its network.
#[tokio::test]
async fn lists_of_names_have_no_repeats() {
    let text = test_config::TRIANGLE
        .replace("delay = \"1ms\"", "delay = \"1ms\"\ncolours = [\"blue\"]")
        .replace("delay = \"3ms\"", "delay = \"3ms\"\ncolours = [\"gold\"]");
    let mut interface = TestInterface::of(test_config::parse(&text).unwrap());
    let request = json!({
        "network": "n", "from": "x", "to": "y", "rate": "1Mbit", "avoid": vec!["short"; 1000],
        "include": ["gold", "gold"], "exclude": ["blue", "blue"],
    });
    let (status, made) = interface.json("root", "POST /v1/connections", &request).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let mut kept = json!({
        "network": "n", "from": "x", "to": "y", "rate": "1Mbit", "avoid": ["short"],
        "include": ["gold"], "exclude": ["blue"],
    });
    assert_eq!(made["request"], kept);
    let line = format!("PATCH /v1/connections/{}", made["id"].as_str().unwrap());
    let change = json!({ "rate": "2Mbit", "avoid": ["short", "short"] });
    let (status, changed) = interface.json("root", &line, &change).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    kept["rate"] = json!("2Mbit");
    assert_eq!(changed["request"], kept);
}

/// Goal: a request may name the connection that another broker made just now, if its caller may
/// see that.
#[tokio::test]
async fn a_connection_of_another_broker_is_looked_for() {
    let text = test_config::TRIANGLE.to_owned() + &test_config::pair("blue", 1);
    for path in ["/v1/connections/dry-run", "/v1/connections"] {
        let mut interface = TestInterface::of(test_config::parse(&text).unwrap());
        let mut request = json!({ "network": "n", "from": "x", "to": "y", "rate": "1Mbit" });
        let made = serde_json::from_value(request.clone()).unwrap();
        *interface.elsewhere.lock().unwrap() = Some(made);
        (request["disjoint_from"], request["to_port"]) = (json!(id_text(ELSEWHERE)), json!(1));
        request["protocol"] = json!("udp");
        let (status, said) = interface.json("root", &format!("POST {path}"), &request).await;
        assert!(status.is_success(), "{path}: {said}");
        let mut foreign = whole();
        foreign["disjoint_from"] = json!(id_text(ELSEWHERE));
        let (status, said) = interface.json("blue", &format!("POST {path}"), &foreign).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {said}");
    }
}

/// Goal: a connection of which nothing is at routers has no counters, and that is said of it, not
/// of a router.
#[tokio::test]
async fn a_report_needs_an_active_connection() {
    let config = test_config::with(&[&test_config::pair("blue", 1)]);
    let routers = ["blue-1", "blue-2"].map(|name| (name.to_owned(), NodeQueue::simulate(name)));
    let routers = Arc::new(routers.into_iter().collect());
    let mut interface = TestInterface::with_routers(config, routers, Arc::default());
    let requests = [
        ("held", json!({ "hold": "30s", "from_port": 1 })),
        ("scheduled", json!({ "start": "2099-01-01T00:00:00Z", "from_port": 2 })),
        ("active", json!({ "from_port": 3 })),
    ];
    for (state, more) in requests {
        let mut request = json!({
            "network": "blue", "from": "x", "to": "y", "rate": "1Mbit", "protocol": "udp",
        });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (_, made) = interface.json("blue", "POST /v1/connections", &request).await;
        assert_eq!(made["state"], state, "{made}");
        let id = made["id"].as_str().unwrap();
        let line = format!("GET /v1/connections/{id}/report");
        let (status, said) = interface.json("blue", &line, &Value::Null).await;
        if state == "active" {
            assert_eq!((status, &said[0]["passed_packets"]), (StatusCode::OK, &json!(0)));
        } else {
            assert_eq!(status, StatusCode::CONFLICT, "{said}");
            let text = format!("connection {id} is {state}: it has no counters");
            assert_eq!(said["message"], text);
        }
    }
}
