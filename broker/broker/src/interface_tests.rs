// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the interface as its callers meet it: formats, tokens, bounds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tower_service::Service;
use weir_broker_api_types::{
    ConnectionChange, HistoryEntry, LinkTraffic, RequestedConnection, RouterState, TunnelReport,
};
use weir_network::ConnectionId;

use crate::answer_counts::AnswerCounts;
use crate::app::router;
use crate::callers::KnownCallers;
use crate::clock;
use crate::config::{BrokerConfig, BrokerToken};
use crate::execution::NodeQueues;
use crate::ids::StableIds;
use crate::kept_nodes::KeptNodes;
use crate::message::{BODY_BYTES_MAX, ReadMessage};
use crate::orders::{SharedState, WantedLink, WriterOrder};
use crate::police::NetworkPolice;
use crate::routes::BrokerInterface;
use crate::server::ClientAddresses;
use crate::sha256::sha256;
use crate::state::BrokerState;
use crate::traffic::TrafficReader;
use crate::{openapi, test_config, xml};

mod callers;
mod connections;
mod metrics;

/// A broker without routers: what is planned counts as done.
struct TestInterface {
    router: axum::Router,
    state: SharedState,
    /// A connection of another broker, which this one sees when it looks.
    elsewhere: Arc<Mutex<Option<RequestedConnection>>>,
}

/// An answer that came.
struct ReceivedAnswer {
    status: StatusCode,
    kind: String,
    text: String,
}

impl TestInterface {
    fn open() -> Self {
        Self::of(test_config::with(&[&test_config::pair("blue", 1), &test_config::pair("red", 2)]))
    }

    fn of(config: BrokerConfig) -> Self {
        Self::with_routers(config, Arc::default(), Arc::default())
    }

    fn with_routers(mut config: BrokerConfig, routers: NodeQueues, nodes: KeptNodes) -> Self {
        for (name, network) in [("root", None), ("blue", Some("blue")), ("red", Some("red"))] {
            let sha256 = sha256(name.as_bytes());
            let (name, network) = (name.to_owned(), network.map(str::to_owned));
            config.broker.token.push(BrokerToken { name, sha256, network });
        }
        let mut ids = StableIds::default();
        let state = BrokerState::new(&config, &mut ids, Vec::new(), Vec::new()).unwrap();
        let state = Arc::new(Mutex::new(state));
        let (orders, waiting) = mpsc::channel(4);
        let elsewhere = Arc::default();
        tokio::spawn(execute_orders(Arc::clone(&state), waiting, Arc::clone(&elsewhere)));
        // Before the first sample.
        let policing = NetworkPolice::new(&config).map(|police| police.report(500, 0));
        let interface = BrokerInterface {
            state: Arc::clone(&state),
            orders,
            nodes: watch::channel(routers).1,
            callers: KnownCallers::new(&config.broker),
            kept_nodes: watch::channel(nodes).1,
            policing: watch::channel(Arc::new(policing.unwrap_or_default())).1,
            traffic: TrafficReader::new(),
            answers: AnswerCounts::default(),
            addresses: Arc::new(ClientAddresses::new(1)),
            is_shared: true,
        };
        Self { router: router(Arc::new(interface)), state, elsewhere }
    }

    /// Sends a request with a token and a body; `form` is the format of both messages.
    async fn ask(&mut self, token: &str, line: &str, form: &str, body: &str) -> ReceivedAnswer {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("authorization", format!("Bearer {token}"));
        request = request.header("accept", form).header("content-type", form);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = self.router.call(request).await.unwrap();
        let status = answer.status();
        let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap());
        let kind = kind.unwrap_or_default().to_owned();
        let bytes = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        ReceivedAnswer { status, kind, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    async fn json(&mut self, token: &str, line: &str, body: &Value) -> (StatusCode, Value) {
        let came = self.ask(token, line, JSON, &body.to_string()).await;
        (came.status, serde_json::from_str(&came.text).unwrap_or_default())
    }

    /// The connections as the store would have them, without their identities, which are drawn.
    fn rows(&self) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let rows = state.all().map(|(connection, _)| state.row(connection.id).unwrap());
        rows.map(|row| {
            let text = serde_json::to_string(&row).unwrap();
            let id = crate::ids::id_text(row.connection.id);
            let text = text.replace(&row.connection.id.0.to_string(), "0").replace(&id, "c");
            serde_json::from_str(&text).unwrap()
        })
        .collect()
    }
}

/// Does what a writer does, without store and routers.
async fn execute_orders(
    state: SharedState,
    mut orders: mpsc::Receiver<WriterOrder>,
    elsewhere: Arc<Mutex<Option<RequestedConnection>>>,
) {
    let mut drawn = 77_000_000_u64;
    while let Some(order) = orders.recv().await {
        let mut state = state.lock().unwrap();
        let (id, planned, waiting) = match order {
            WriterOrder::Create { requested, waiting, .. } => {
                drawn += 1;
                let id = ConnectionId(drawn);
                (id, state.admit(id, *requested, clock::now()), waiting)
            }
            WriterOrder::Change { id, change, waiting } => {
                (id, state.change(id, &change, clock::now()), waiting)
            }
            WriterOrder::Remove { id, waiting } => (id, state.remove(id).map(drop), waiting),
            WriterOrder::SetLink {
                setting: WantedLink { network, link, share, .. },
                answer,
                ..
            } => {
                let changed = state.change_share(&network, &link, share.unwrap());
                answer.send(changed.map(drop)).unwrap();
                continue;
            }
            WriterOrder::Look { answer } => {
                if let Some(requested) = elsewhere.lock().unwrap().take() {
                    state.admit(ELSEWHERE, requested, clock::now()).unwrap();
                    finish_steps(&mut state, ELSEWHERE);
                }
                answer.send(Ok(())).unwrap();
                continue;
            }
            _ => continue,
        };
        if planned.is_ok() {
            finish_steps(&mut state, id);
        }
        waiting.answer.send(planned.map(|()| id)).unwrap();
    }
}

fn finish_steps(state: &mut BrokerState, id: ConnectionId) {
    while state.work(id).is_some() {
        state.finish(id, true).unwrap();
    }
}

/// A request with most of the keys.
fn whole() -> Value {
    json!({
        "network": "blue", "from": "x", "to": "y", "rate": "20Mbit", "back_rate": "1Mbit",
        "protocol": "udp", "from_port": 7, "to_port": 5201, "delay_max": "5ms", "hops_max": 3,
        "avoid": [], "packet": 500,
    })
}

/// A share as it is shown.
fn share(network: &str, rate_bps: u64) -> Value {
    json!({ "network": network, "link": "l", "rate_bps": rate_bps })
}

/// Goal: an administrator sees each share of a physical link and what is free; that of one network
/// sees its own share, and nothing from which the others could be computed.
#[tokio::test]
async fn shares_of_a_physical_link_are_shown_to_their_owners() {
    let config = test_config::parse(&test_config::shared("60Mbit", "20Mbit")).unwrap();
    let mut interface = TestInterface::of(config);
    let link = |shares: Value| {
        json!({
            "link": "n1-n2", "nodes": ["n1", "n2"], "rate_bps": 100_000_000,
            "reservable_bps": 90_000_000, "shares": shares
        })
    };
    let (_, blue) = interface.json("blue", "GET /v1/links", &Value::Null).await;
    assert_eq!(blue, json!([link(json!([share("blue", 60_000_000)]))]));
    let (_, all) = interface.json("root", "GET /v1/links", &Value::Null).await;
    let mut whole = link(json!([share("blue", 60_000_000), share("red", 20_000_000)]));
    whole["free_bps"] = json!(10_000_000);
    assert_eq!(all, json!([whole]));
    let (_, networks) = interface.json("red", "GET /v1/networks", &Value::Null).await;
    assert_eq!(networks[0]["links"][0]["over"], "n1-n2");
}

/// Goal: only an administrator of all networks can change a share; a refusal says what is free; the
/// change is shown.
#[tokio::test]
async fn a_share_is_changed_by_an_administrator_of_all_networks() {
    let config = test_config::parse(&test_config::shared("60Mbit", "20Mbit")).unwrap();
    let mut interface = TestInterface::of(config);
    let line = "PATCH /v1/networks/blue/links/l";
    let wanted = json!({ "rate": "70Mbit", "reservable": "65Mbit" });
    for (token, body, status) in [
        ("blue", &wanted, 403),
        ("red", &wanted, 404),
        ("root", &json!({}), 400),
        ("root", &json!({ "rate": "much" }), 422),
        ("root", &json!({ "rate": "71Mbit" }), 422),
    ] {
        let (came, said) = interface.json(token, line, body).await;
        assert_eq!(came.as_u16(), status, "{token} {body}: {said}");
        assert_eq!(
            said["message"].as_str().unwrap().contains("70Mbit is free"),
            *body == json!({ "rate": "71Mbit" })
        );
    }
    let setting = xml::write("setting", &wanted);
    let came = interface.ask("root", line, XML, &setting).await;
    assert_eq!(came.status, StatusCode::NO_CONTENT, "{}", came.text);
    let (_, links) = interface.json("root", "GET /v1/links", &Value::Null).await;
    assert_eq!(links[0]["shares"][0], share("blue", 70_000_000));
    assert_eq!(links[0]["free_bps"], 0);
    let (_, networks) = interface.json("blue", "GET /v1/networks", &Value::Null).await;
    assert_eq!(networks[0]["links"][0]["reservable_bps"], 65_000_000);
}

/// Goal: the administrator of one network sees the policing of that network alone, and no node.
#[tokio::test]
async fn policing_is_shown_to_its_owners() {
    let mut interface = TestInterface::of(test_config::parse(&test_config::policed()).unwrap());
    let (_, all) = interface.json("root", "GET /v1/policing", &Value::Null).await;
    let names = |report: &Value, key: &str| {
        let of = report[key].as_array().unwrap().iter();
        of.map(|of| of[key.trim_end_matches('s')].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&all, "networks"), names(&all, "nodes")),
        (strings(&["blue", "red"]), strings(&["n1", "n2"]))
    );
    let (_, red) = interface.json("red", "GET /v1/policing", &Value::Null).await;
    assert_eq!((names(&red, "networks"), names(&red, "nodes")), (strings(&["red"]), strings(&[])));
    assert_eq!(
        red["networks"][0]["routers"][0],
        json!({
            "router": "r1", "node": "n1", "entry": true,
        })
    );
}

/// Goal: the fault of a node names parts of all its networks, so who sees one network is told only
/// that there is one.
#[tokio::test]
async fn a_fault_of_a_node_names_no_other_network() {
    let shared = test_config::shared("60Mbit", "30Mbit");
    let mut interface = TestInterface::of(test_config::parse(&shared).unwrap());
    let fault = Some("vif broker.red-1.c: no device red1".to_owned());
    let node = RouterState { name: "n1".to_owned(), reachable: true, repaired: 0, fault };
    {
        let mut state = interface.state.lock().unwrap();
        state.failed.nodes.insert("n1".to_owned(), node.fault.clone().unwrap());
        state.observed.nodes = vec![node];
    }
    let (_, all) = interface.json("root", "GET /v1/networks", &Value::Null).await;
    assert_eq!(all[0]["nodes"][0]["fault"], "vif broker.red-1.c: no device red1");
    let (_, blue) = interface.json("blue", "GET /v1/networks", &Value::Null).await;
    assert!(!blue.to_string().contains("red-1"), "{blue}");
    for fault in [&blue[0]["nodes"][0]["fault"], &blue[0]["links"][0]["fault"]] {
        assert!(fault.as_str().unwrap().contains("a part of it is not as it is to be"), "{blue}");
    }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn json_and_xml_make_the_same_row() {
    let mut interface = TestInterface::open();
    let mut rows = Vec::new();
    for form in [JSON, XML, "text/xml; charset=utf-8"] {
        let (create, change) = (whole(), json!({"rate": "30Mbit", "avoid": []}));
        let [create, change] = [("request", create), ("change", change)].map(|(root, value)| {
            if form == JSON { value.to_string() } else { xml::write(root, &value) }
        });
        let made = interface.ask("blue", "POST /v1/connections", form, &create).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        assert_eq!(made.kind, form.replace("text", "application").replace("; charset=utf-8", ""));
        let (_, all) = interface.json("blue", "GET /v1/connections", &Value::Null).await;
        let path = format!("/v1/connections/{}", all[0]["id"].as_str().unwrap());
        let before = interface.rows();
        let changed = interface.ask("blue", &format!("PATCH {path}"), form, &change).await;
        assert_eq!(changed.status, StatusCode::OK, "{}", changed.text);
        rows.push((before, interface.rows()));
        let gone = interface.ask("blue", &format!("DELETE {path}"), form, "").await;
        assert_eq!((gone.status, gone.text.as_str()), (StatusCode::NO_CONTENT, ""));
    }
    assert_eq!(rows[0], rows[1]);
    assert_eq!(rows[0], rows[2]);
    assert_ne!(rows[0].0, rows[0].1);
}

#[tokio::test]
async fn a_dry_run_answers_as_a_request_would_and_reserves_nothing() {
    let mut interface = TestInterface::open();
    let line = "POST /v1/connections/dry-run";
    let (status, admitted) = interface.json("blue", line, &whole()).await;
    assert_eq!(status, StatusCode::OK, "{admitted}");
    assert_eq!(admitted["tunnels"][0]["routers"], json!(["blue-1", "blue-2"]));
    assert_eq!(admitted["tunnels"][1]["rate_bps"], 1_000_000);
    assert!(interface.rows().is_empty());
    let mut more = whole();
    more["rate"] = json!("500Mbit");
    let (status, refused) = interface.json("blue", line, &more).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        interface.json("blue", "POST /v1/connections", &more).await,
        (status, refused.clone())
    );
    // The rate that it names is admitted.
    more["rate"] = refused["changes"][0]["rate"].clone();
    assert_eq!(interface.json("blue", line, &more).await.0, StatusCode::OK, "{refused}");
}

#[tokio::test]
async fn an_administrator_of_one_network_meets_that_network_alone() {
    let mut interface = TestInterface::open();
    let mut ids = Vec::new();
    for network in ["blue", "red"] {
        let request = json!({"network": network, "from": "x", "to": "y", "rate": "1Mbit"});
        let (status, made) = interface.json("root", "POST /v1/connections", &request).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    for (path, all) in [("/v1/networks", 2), ("/v1/connections", 2)] {
        for (token, seen) in [("root", all), ("blue", 1), ("red", 1)] {
            let (_, list) = interface.json(token, &format!("GET {path}"), &Value::Null).await;
            assert_eq!(list.as_array().unwrap().len(), seen, "{token} {path}: {list}");
        }
    }
    let of = |network: &str| format!("GET /v1/connections?network={network}");
    for (token, network, seen) in [("root", "red", 1), ("red", "red", 1), ("root", "green", 0)] {
        let (_, list) = interface.json(token, &of(network), &Value::Null).await;
        let own = list.as_array().unwrap().iter().filter(|of| of["request"]["network"] == network);
        assert_eq!(
            (own.count(), list.as_array().unwrap().len()),
            (seen, seen),
            "{network}: {list}"
        );
    }
    assert_eq!(interface.json("blue", &of("red"), &Value::Null).await.0, StatusCode::NOT_FOUND);
    let after = |id: &str| format!("GET /v1/connections?after={id}");
    let (_, list) = interface.json("root", "GET /v1/connections", &Value::Null).await;
    let [first, last] = [0, 1].map(|place| list[place]["id"].as_str().unwrap());
    assert_eq!(interface.json("root", &after(first), &Value::Null).await.1, json!([list[1]]));
    assert_eq!(interface.json("root", &after(last), &Value::Null).await.1, json!([]));
    assert_eq!(interface.json("root", &after("c1"), &Value::Null).await.0, StatusCode::NOT_FOUND);
    let wrong = "GET /v1/connections?before=c1";
    assert_eq!(interface.json("root", wrong, &Value::Null).await.0, StatusCode::BAD_REQUEST);
    let other = format!("/v1/connections/{}", ids[1]);
    let change = json!({"rate": "2Mbit"});
    for (line, body) in [
        (format!("GET {other}"), Value::Null),
        (format!("GET {other}/report"), Value::Null),
        (format!("PATCH {other}"), change),
        (format!("DELETE {other}"), Value::Null),
    ] {
        let (status, said) = interface.json("blue", &line, &body).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{line}");
        // The words are those for a connection that never existed.
        let (_, never) = interface.json("blue", &line.replace(&ids[1], NEVER), &body).await;
        assert_eq!(said.to_string().replace(&ids[1], NEVER), never.to_string(), "{line}");
    }
    let mut request = whole();
    request["network"] = json!("red");
    let mut disjoint = whole();
    disjoint["disjoint_from"] = json!(ids[1]);
    for path in ["/v1/connections", "/v1/connections/dry-run"] {
        for body in [&request, &disjoint] {
            let (status, said) = interface.json("blue", &format!("POST {path}"), body).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {said}");
        }
    }
    assert_eq!(interface.rows().len(), 2);
}

#[tokio::test]
async fn what_is_no_request_is_refused_in_the_format_asked_for() {
    let mut interface = TestInterface::open();
    let long = "x".repeat(BODY_BYTES_MAX + 1);
    let (good, post) = (whole().to_string(), "POST /v1/connections");
    for (token, line, form, body, status) in [
        ("", "GET /v1/networks", JSON, "", 401),
        ("wrong", "GET /v1/networks", XML, "", 401),
        ("wrong", post, JSON, good.as_str(), 401),
        ("wrong", post, XML, long.as_str(), 401),
        ("root", post, JSON, long.as_str(), 413),
        ("root", post, XML, long.as_str(), 413),
        ("root", post, "text/plain", good.as_str(), 415),
        ("root", post, XML, good.as_str(), 400),
        ("root", post, JSON, r#"{"network": "blue", "speed": 1}"#, 400),
        ("root", post, XML, "<request><speed>1</speed></request>", 400),
        ("root", "DELETE /v1/networks", XML, "", 405),
        ("root", "GET /v1", JSON, "", 404),
        ("root", "GET /v1/connections/c1", XML, "", 404),
        ("root", "GET /v1/history?before=x", XML, "", 400),
        ("root", "GET /v1/history?since=1", JSON, "", 400),
        ("blue", "GET /v1/history?network=red", JSON, "", 404),
    ] {
        let came = interface.ask(token, line, form, body).await;
        assert_eq!(came.status.as_u16(), status, "{line} {form}: {}", came.text);
        let kind = if form == XML { XML } else { JSON };
        assert_eq!(came.kind, kind, "{line}");
        let says = if form == XML { "<error><code>" } else { "{\"code\":" };
        assert!(came.text.contains(says), "{line}: {}", came.text);
    }
    assert!(interface.rows().is_empty());
}

/// Goal: every message is valid under the schema, and a malformed one is not.
#[tokio::test]
async fn every_message_in_xml_is_valid() {
    let Some(schema) = Schema::write() else { return };
    let mut interface = TestInterface::open();
    let made = interface.ask("root", "POST /v1/connections", XML, &request(&whole())).await;
    schema.holds("made", &made.text);
    let mut other = whole();
    (other["rate"], other["to_port"]) = (json!("500Mbit"), json!(1));
    let tried = interface.ask("root", "POST /v1/connections/dry-run", XML, &request(&other)).await;
    assert!(tried.text.contains("<changes><change>"), "{}", tried.text);
    assert!(
        tried.text.contains("<links><link><from>blue-1</from><link>l</link>"),
        "{}",
        tried.text
    );
    schema.holds("refused", &tried.text);
    (other["rate"], other["delay_max"]) = (json!("1Mbit"), json!("1ms"));
    let tried = interface.ask("root", "POST /v1/connections/dry-run", XML, &request(&other)).await;
    schema.holds("too-late", &tried.text);
    other["delay_max"] = json!("3ms");
    let tried = interface.ask("root", "POST /v1/connections/dry-run", XML, &request(&other)).await;
    assert_eq!(tried.status, StatusCode::OK, "{}", tried.text);
    schema.holds("admitted", &tried.text);
    let (_, all) = interface.json("root", "GET /v1/connections", &Value::Null).await;
    let id = all[0]["id"].as_str().unwrap();
    let kinds = ["networks", "networks/blue/traffic", "connections", "history", "policing"];
    for path in kinds.into_iter().chain([&*format!("connections/{id}"), "nothing"]) {
        let came = interface.ask("root", &format!("GET /v1/{path}"), XML, "").await;
        schema.holds(&path.replace('/', "-"), &came.text);
    }
    let report = TunnelReport {
        number: 2,
        router: "b1".to_owned(),
        asked_bps: 1,
        given_bps: 2,
        passed_bytes: 3,
        passed_packets: 4,
        dropped_packets: 5,
    };
    schema.holds("report", &xml::write("report", &json!([report])));
    let entry: HistoryEntry = serde_json::from_value(json!({
        "number": 1, "at": "2027-01-31T12:00:00Z", "network": "blue", "connection": "c1",
        "link": "l", "by": "root", "change": "link_down", "detail": "more",
    }))
    .unwrap();
    schema.holds("entry", &xml::write("history", &json!([entry])));
    let passed = LinkTraffic {
        link: "l".to_owned(),
        from: "b1".to_owned(),
        to: "b2".to_owned(),
        at_ms: 1,
        passed_bytes: 2,
        passed_packets: 3,
        dropped_packets: 4,
    };
    schema.holds("traffic", &xml::write("traffic", &json!([passed])));
    let change: ConnectionChange = serde_json::from_value(json!({
        "rate": "1Mbit", "back_rate": "1Mbit", "delay_max": "1ms", "hops_max": 1, "avoid": ["l"],
    }))
    .unwrap();
    schema.holds("change", &xml::write(ConnectionChange::ROOT, &json!(change)));
    for wrong in [
        "<request/>",
        "<request><network>n</network><from>x</from><to>y</to><speed>1</speed></request>",
        "<change><hops_max>-1</hops_max></change>",
        "<change><avoid><router>l</router></avoid></change>",
        "<other/>",
    ] {
        assert!(!schema.validates("wrong", wrong), "{wrong}");
    }
}

/// Goal: the examples of the manual are messages.
#[test]
fn the_examples_of_the_manual_are_read() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/broker.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let schema = Schema::write();
    let mut count = 0;
    for part in manual.split("```xml\n").skip(1) {
        let text = part.split("```").next().unwrap();
        let read = xml::read::<RequestedConnection>("request", text).map(drop);
        let read = read.or_else(|_| xml::read::<ConnectionChange>("change", text).map(drop));
        read.unwrap();
        schema.iter().for_each(|schema| schema.holds("example", text));
        count += 1;
    }
    assert!(count > 0);
}

fn request(value: &Value) -> String {
    xml::write(RequestedConnection::ROOT, value)
}

/// The schema in a folder of its own, where `xmllint` is installed.
struct Schema(PathBuf);

impl Schema {
    fn write() -> Option<Self> {
        if Command::new("xmllint").arg("--version").output().is_err() {
            println!("SKIPPED messages against the schema: needs xmllint");
            return None;
        }
        let folder = std::env::temp_dir();
        let (own, thread) = (std::process::id(), std::thread::current().id());
        let folder = folder.join(format!("weir-t-xsd-{own}-{thread:?}").replace(['(', ')'], ""));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("broker.xsd"), openapi::xml_schema()).unwrap();
        Some(Self(folder))
    }

    fn holds(&self, name: &str, text: &str) {
        assert!(self.validates(name, text), "{name}: {text}");
    }

    fn validates(&self, name: &str, text: &str) -> bool {
        let file = self.0.join(format!("{name}.xml"));
        std::fs::write(&file, text).unwrap();
        let schema = self.0.join("broker.xsd");
        let mut command = Command::new("xmllint");
        let command = command.args(["--noout", "--nonet", "--schema"]).arg(schema).arg(file);
        let output = command.output().unwrap();
        // 3 and 4: the message is not valid. Anything else is wrong with the schema.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 3 | 4)), "{said}");
        output.status.success()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

const JSON: &str = "application/json";

const XML: &str = "application/xml";

/// A connection that another broker made.
const ELSEWHERE: ConnectionId = ConnectionId(78_000_000);

const NEVER: &str = "c00000000000000ff";
