// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the metrics as their readers meet them.

use weir_api_types::exposition::EXPOSITION_TYPE;

use super::*;
use crate::node_queue::NodeQueue;
use crate::{kept_nodes, weir_node_keeper};

#[path = "../../../../node/api/src/metrics/tests/checks.rs"]
mod checks;

use checks::{names_only_what_there_is, promtool_takes, promtool_takes_rules};

/// Goal: an administrator gets counts of answers, set-ups and connections, and the use of links,
/// shares and nodes; who sees one network gets what is of that one; nobody else gets anything.
#[tokio::test]
async fn metrics_are_shown_to_their_owners() {
    let text = test_config::shared("60Mbit", "20Mbit");
    let mut interface = TestInterface::of(test_config::parse(&text).unwrap());
    let asked = json!({"network": "blue", "from": "x", "to": "y", "rate": "8Mbit"});
    for status in [StatusCode::CREATED, StatusCode::UNPROCESSABLE_ENTITY] {
        assert_eq!(interface.json("blue", "POST /v1/connections", &asked).await.0, status);
    }
    interface.json("root", "PUT /v1/connections", &Value::Null).await;
    let came = interface.ask("root", "GET /metrics", JSON, "").await;
    assert_eq!((came.status, came.kind.as_str()), (StatusCode::OK, EXPOSITION_TYPE));
    for line in [
        "weir_broker_leads 1",
        "weir_broker_waiting_requests 0",
        "weir_broker_waiting_requests_max 4",
        "weir_broker_clients_refused_total 0",
        "weir_broker_beyond_rate_total 0",
        "weir_broker_answers_total{request=\"create\",status=\"201\"} 1",
        "weir_broker_answers_total{request=\"create\",status=\"422\"} 1",
        "weir_broker_answers_total{request=\"unknown\",status=\"405\"} 1",
        "weir_broker_setup_seconds_bucket{le=\"+Inf\"} 1",
        "weir_broker_setup_seconds_count 1",
        "weir_broker_connections{network=\"blue\",state=\"active\"} 1",
        "weir_broker_physical_link_rate_bytes_per_second{link=\"n1-n2\"} 12500000",
        "weir_broker_physical_link_reservable_bytes_per_second{link=\"n1-n2\"} 11250000",
        "weir_broker_physical_link_promised_bytes_per_second{link=\"n1-n2\"} 10000000",
        "weir_broker_share_bytes_per_second{network=\"red\",link=\"l\"} 2500000",
        "weir_broker_link_reservable_bytes_per_second{network=\"red\",link=\"l\",from=\"red-1\"} \
         2250000",
        "weir_broker_link_usable{network=\"red\",link=\"l\",from=\"red-1\"} 1",
        "weir_broker_metrics_omitted 0",
    ] {
        assert!(came.text.lines().any(|one| one == line), "no {line} in\n{}", came.text);
    }
    let reserved = |link: &str| {
        let labels = format!("{{network=\"blue\",link=\"l\",from=\"{link}\"}} ");
        let name = format!("weir_broker_link_reserved_bytes_per_second{labels}");
        let value = came.text.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        value.parse::<u64>().unwrap()
    };
    // A megabyte a second and the headers of its tunnel; nothing on the way back.
    assert!((1_000_000..1_040_000).contains(&reserved("blue-1")), "{}", came.text);
    assert_eq!(reserved("blue-2"), 0);
    promtool_takes(&came.text);
    let red = interface.ask("red", "GET /metrics", JSON, "").await.text;
    assert!(red.contains("weir_broker_share_bytes_per_second{network=\"red\""));
    for foreign in ["blue", "answers", "leads", "setup", "physical_link"] {
        assert!(!red.contains(foreign), "{foreign} in\n{red}");
    }
    let none = interface.ask("none", "GET /metrics", JSON, "").await;
    assert_eq!(none.status, StatusCode::UNAUTHORIZED);
}

/// Goal: policing is in the metrics, of one network alone for its owner, and so is nothing of it
/// while another broker polices.
#[tokio::test]
async fn metrics_of_policing_are_shown_to_their_owners() {
    let mut interface = TestInterface::of(test_config::parse(&test_config::policed()).unwrap());
    let all = interface.ask("root", "GET /metrics", JSON, "").await.text;
    for line in [
        "weir_broker_policing_samples_total 0",
        "weir_broker_policing_contended{node=\"n2\"} 0",
        "weir_broker_policing_silent_samples_total{node=\"n1\"} 0",
        "weir_broker_policing_held{network=\"blue\"} 0",
        "weir_broker_policing_grade{network=\"red\"} 0",
        "weir_broker_policing_judged_total{network=\"red\"} 0",
    ] {
        assert!(all.lines().any(|one| one == line), "no {line} in\n{all}");
    }
    promtool_takes(&all);
    let red = interface.ask("red", "GET /metrics", JSON, "").await.text;
    assert!(red.contains("weir_broker_policing_held{network=\"red\"} 0"));
    assert!(!red.contains("blue") && !red.contains("node=") && !red.contains("samples_total"));
    interface.state.lock().unwrap().note_holder(Some("other/1/2".to_owned()));
    let all = interface.ask("root", "GET /metrics", JSON, "").await.text;
    assert!(all.contains("weir_broker_leads 0\n") && !all.contains("policing"), "{all}");
}

/// Goal: the alerts that are shipped name only what brokers say.
#[tokio::test]
async fn rules_name_only_what_there_is() {
    let mut pages = String::new();
    for text in [test_config::shared("60Mbit", "20Mbit"), test_config::policed()] {
        let config = test_config::parse(&text).unwrap();
        let routers = config.network.iter().flat_map(|network| &network.router);
        let routers = routers.map(|of| (of.name.clone(), NodeQueue::simulate(&of.name))).collect();
        let clients = weir_node_keeper::clients(&config).unwrap();
        let nodes = watch::channel(Arc::new(config.clone())).0;
        let nodes = kept_nodes::start(&nodes, &clients, None, &Arc::default());
        let mut interface = TestInterface::with_routers(config, Arc::new(routers), nodes);
        let asked = json!({"network": "blue", "from": "x", "to": "y", "rate": "8Mbit"});
        interface.json("blue", "POST /v1/connections", &asked).await;
        pages += &interface.ask("root", "GET /metrics", JSON, "").await.text;
    }
    names_only_what_there_is("prometheus/weir-broker.rules.yml", &pages);
    promtool_takes_rules("prometheus/weir-broker.rules.yml");
}
