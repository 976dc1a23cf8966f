// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Authentication, rights and rate limits at the API's two endpoints (TCP with or without TLS, Unix
//! socket), against a fake node.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use weir_api::Server;
use weir_api_types::status::NodeStatus;
use weir_dataplane::capture::{CaptureRequest, Capturing};
use weir_loops::{
    ClassStatus, LeaseRequest, LogLine, LoopsLoad, RefusedLeases, RouterActivations, RouterStatus,
};
use weir_node::Serving;
use weir_node::changes::{ChangeKind, PolicyChange};
use weir_node::control::{ChangeRequest, Control, InForce, Refusal, RefusalKind};
use weir_policy::{Edit, KeyPath, Policy, Port, Role, Slice, Token, Vif};
use weir_report::{ReportSubject, Service, StoreAnswer, StoreQuery, SubjectService};
use weir_units::{BitRate, Nanos};

/// A node that has a policy, and notes what it is told.
struct Node {
    policy: RwLock<Arc<Policy>>,
    notes: Mutex<Vec<String>>,
    /// A change waits for it; it is refused then.
    disk: Mutex<()>,
    changing: AtomicBool,
    /// Times that the status was asked for; its `uptime_ns`.
    asked: AtomicU64,
}

fn absent<T>() -> Result<T, Refusal> {
    Err(Refusal::new(RefusalKind::NotRunning, "there is no worker"))
}

impl Control for Node {
    fn status(&self) -> Result<NodeStatus, Refusal> {
        let uptime_ns = self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(NodeStatus { uptime_ns, ..NodeStatus::default() })
    }
    fn policy(&self) -> Result<InForce, Refusal> {
        let policy = Arc::clone(&self.policy.read().unwrap());
        let edit = |vif| Edit::set(KeyPath::vif(vif, "send.rate"), "5Mbit");
        let overlay = policy.vifs.iter().map(|vif| edit(&vif.name)).collect();
        Ok(InForce { policy, document: "".into(), overlay })
    }
    fn change(&self, _: &ChangeRequest<'_>, _: &[Edit]) -> Result<PolicyChange, Refusal> {
        self.changing.store(true, Ordering::Relaxed);
        drop(self.disk.lock());
        absent()
    }
    fn foresee(&self, _: &ChangeRequest<'_>, _: &[Edit]) -> Result<PolicyChange, Refusal> {
        absent()
    }
    fn undo(&self, _: &ChangeRequest<'_>, _: Option<u64>) -> Result<PolicyChange, Refusal> {
        absent()
    }
    fn changes(&self, most: usize, wanted: &dyn Fn(&PolicyChange) -> bool) -> Vec<PolicyChange> {
        let kind = ChangeKind::Reload;
        let change = |id| PolicyChange {
            id,
            at_unix_ms: 0,
            who: "".into(),
            kind,
            undoes: None,
            apply: None,
            edits: vec![],
        };
        let all = (1..=9).map(change).filter(|change| wanted(change));
        let mut newest: Vec<PolicyChange> = all.rev().take(most).collect();
        newest.reverse();
        newest
    }
    fn report(&self, question: &StoreQuery) -> Result<StoreAnswer, Refusal> {
        let line = |slice: &str| SubjectService {
            subject: ReportSubject { slice: slice.to_owned(), vif: None },
            from_unix_ms: 0,
            to_unix_ms: 0,
            time: Nanos::ZERO,
            sides: Default::default(),
        };
        let is_asked = |slice: &&str| question.slice.as_ref().is_none_or(|asked| asked == slice);
        let lines = ["gold", "silver"].iter().copied().filter(is_asked).map(line).collect();
        Ok(StoreAnswer { lines, ..StoreAnswer::default() })
    }
    fn service(&self) -> BTreeMap<ReportSubject, [Service; 2]> {
        BTreeMap::new()
    }
    fn routers(&self, _: Option<&str>) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal> {
        Ok((Vec::new(), LoopsLoad::default()))
    }
    fn lease(&self, request: LeaseRequest) -> Result<RefusedLeases, Refusal> {
        Ok(request.without_loops())
    }
    fn router_log(&self, _: &str, _: usize) -> Result<Vec<LogLine>, Refusal> {
        absent()
    }
    fn classes(&self) -> Result<Vec<ClassStatus>, Refusal> {
        Ok(Vec::new())
    }
    fn activations(&self, _: &str, _: Duration) -> Result<RouterActivations, Refusal> {
        absent()
    }
    fn reload(&self, _: &str) -> Result<(), Refusal> {
        absent()
    }
    fn note(&self, line: String) {
        self.notes.lock().unwrap().push(line);
    }
    fn confirm(&self) {}
    fn stop(&self) {}
    fn leave(&self) {}
    fn capture(&self, _: CaptureRequest) -> Result<Capturing, Refusal> {
        absent()
    }
}

/// A server of the API. Its files are removed when the value is dropped.
struct TestServer {
    folder: PathBuf,
    address: SocketAddr,
    node: Arc<Node>,
    client: Arc<ClientConfig>,
    _server: Server,
}

impl TestServer {
    fn up(name: &str, change: impl FnOnce(&mut Policy)) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-t-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let file = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            Some(path.display().to_string())
        };
        // Free a moment ago; nobody else here asks for one.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut policy = Policy::new("edge");
        policy.api.listen = Some(address);
        policy.api.certificate = file("cert.pem", own.cert.pem());
        policy.api.key = file("key.pem", own.signing_key.serialize_pem());
        change(&mut policy);
        let policy = Arc::new(policy);
        let held = RwLock::new(Arc::clone(&policy));
        let (notes, disk) = (Mutex::default(), Mutex::default());
        let (changing, asked) = (AtomicBool::new(false), AtomicU64::new(0));
        let node = Node { policy: held, notes, disk, changing, asked };
        let node = Arc::new(node);
        let control = Arc::clone(&node) as Arc<dyn Control>;
        let socket = folder.join("node-edge.sock");
        let server = Server::start(Serving { socket, control, policy }).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { folder, address, node, client: Arc::new(client), _server: server }
    }

    /// The whole answer to a request over TLS.
    fn over_tls(&self, head: &str) -> String {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.client), name).unwrap();
        let tcp = TcpStream::connect(self.address).unwrap();
        answer(StreamOwned::new(connection, tcp), head)
    }

    /// Answers a request over plain TCP.
    fn over_tcp(&self, head: &str) -> String {
        answer(TcpStream::connect(self.address).unwrap(), head)
    }

    fn over_unix(&self, head: &str) -> String {
        answer(UnixStream::connect(self.folder.join("node-edge.sock")).unwrap(), head)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn answer(mut stream: impl Read + Write, head: &str) -> String {
    write!(stream, "{head}\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = Vec::new();
    // Some connections end without a TLS close_notify; the data before it is kept.
    let _ended = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

const STATUS: &str = "GET /v1/status HTTP/1.1";

#[test]
fn over_tls_a_token_is_needed_and_is_enough() {
    let (token, sha256) = weir_api::token::new().unwrap();
    let server = TestServer::up("tls", |policy| {
        let (name, role) = ("ops".to_owned(), Role::Administrator);
        policy.api.tokens = vec![Token { name, role, slice: None, sha256 }];
    });
    assert!(server.over_tls(STATUS).starts_with("HTTP/1.1 401 "));
    let wrong = server.over_tls(&format!("{STATUS}\r\nauthorization: Bearer {token}x"));
    assert!(wrong.starts_with("HTTP/1.1 401 ") && wrong.contains("not_authenticated"), "{wrong}");
    let right = server.over_tls(&format!("{STATUS}\r\nauthorization: Bearer {token}"));
    assert!(right.starts_with("HTTP/1.1 200 ") && right.contains("\"uptime_ns\""), "{right}");
    let notes = server.node.notes.lock().unwrap().clone();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("refused: 127.0.0.1: "), "{notes:?}");
    // Not TLS at all: no answer, and no harm.
    let plain = answer(TcpStream::connect(server.address).unwrap(), STATUS);
    assert!(!plain.contains("HTTP/1.1 200"), "{plain}");
}

/// Every path of the interface's document is for callers with a token, and for nobody else.
#[test]
fn nothing_is_answered_without_a_known_token() {
    let server = TestServer::up("refused", |policy| {
        (policy.api.certificate, policy.api.key) = (None, None);
        policy.api.wrong_tokens_per_minute = 1000;
    });
    let document: serde_json::Value = serde_json::from_str(&weir_api::openapi::document()).unwrap();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{vif}", "a").replace("{slice}", "s").replace("{router}", "r");
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            for token in ["", "\r\nauthorization: Bearer ", "\r\nauthorization: Bearer x"] {
                let answer = server.over_tcp(&format!("{method} {path} HTTP/1.1{token}"));
                assert!(answer.starts_with("HTTP/1.1 401 "), "{method} {path} {token}: {answer}");
                asked += 1;
            }
        }
    }
    assert!(asked >= 60, "{asked}");
}

/// Goal: a reader sees what monitoring needs, and nothing that it asks changes the node. Method: it
/// asks for every path of the interface's document, by every method.
#[test]
fn a_reader_changes_nothing() {
    let (token, sha256) = weir_api::token::new().unwrap();
    let server = TestServer::up("reader", |policy| {
        plain(policy, [(); 2].map(|()| weir_api::token::new().unwrap().1));
        let port = policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
        let (gold, _) = policy.slices().next().unwrap();
        policy.add_vif(Vif::new("gold.0", gold, port));
        let (name, role) = ("prometheus".to_owned(), Role::Reader);
        policy.api.tokens.push(Token { name, role, slice: None, sha256 });
    });
    let ask = |line: &str| {
        let ask = format!("{line} HTTP/1.1\r\nauthorization: Bearer {token}");
        server.over_tcp(&ask).strip_prefix("HTTP/1.1 ").unwrap().to_owned()
    };
    for path in ["/metrics", "/v1/status", "/v1/policy", "/v1/changes", "/v1/health"] {
        assert!(ask(&format!("GET {path}")).starts_with("200"), "{path}");
    }
    assert!(ask("GET /v1/caller").contains("\"role\":\"reader\""));
    for path in ["/v1/document", "/v1/vifs/gold.0/capture", "/v1/realtime/r/advice"] {
        let answer = ask(&format!("GET {path}"));
        assert!(answer.starts_with("403") && answer.contains("is a reader"), "{path}: {answer}");
    }
    let document: serde_json::Value = serde_json::from_str(&weir_api::openapi::document()).unwrap();
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{vif}", "gold.0").replace("{slice}", "gold");
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            let answer = ask(&format!("{} {path}", method.to_uppercase()));
            let why = "token prometheus is a reader, and changes nothing";
            assert!(answer.starts_with("403") && answer.contains(why), "{method} {path}: {answer}");
            refused += 1;
        }
    }
    assert!(refused >= 15, "{refused}");
}

/// A caller that guesses tokens is turned away; a known token from the same address is served.
#[test]
fn guesses_lock_nobody_out() {
    let [tenant, all] = [(); 2].map(|()| weir_api::token::new().unwrap());
    let server = TestServer::up("guess", |policy| {
        plain(policy, [tenant.1, all.1]);
        policy.api.wrong_tokens_per_minute = 1;
    });
    let ask = |token: &str| {
        let answer = server.over_tcp(&format!("{STATUS}\r\nauthorization: Bearer {token}"));
        answer.strip_prefix("HTTP/1.1 ").unwrap()[..3].to_owned()
    };
    assert_eq!([ask("guess"), ask("guess")], ["401", "429"]);
    assert_eq!(ask(&all.0), "200");
    assert_eq!(ask("guess"), "429");
}

/// Goal: a status is kept for those who ask at the same time, but none from before a change is
/// given after it.
#[test]
fn no_status_is_older_than_a_change() {
    let server = TestServer::up("status", |_| {});
    let asked = || server.node.asked.load(Ordering::Relaxed);
    let (mut kept, mut renewed) = (0, 0);
    while kept < 3 || renewed < 3 {
        let begun = Instant::now();
        server.over_unix(STATUS);
        let first = asked();
        server.over_unix(STATUS);
        let second = asked();
        server.over_unix("POST /v1/reload HTTP/1.1\r\ncontent-length: 0");
        server.over_unix(STATUS);
        assert!(asked() > second, "the status is from before the change");
        renewed += 1;
        // A slow machine renews it by itself.
        kept += i32::from(second == first);
        assert!(renewed < 200, "no status was kept: {:?} for four requests", begun.elapsed());
    }
}

#[test]
fn the_newest_changes_are_as_many_as_asked_for() {
    let [tenant, all] = [(); 2].map(|()| weir_api::token::new().unwrap());
    let server = TestServer::up("newest", |policy| plain(policy, [tenant.1, all.1]));
    let ask = |query: &str| {
        let head = format!("GET /v1/changes{query} HTTP/1.1\r\nauthorization: Bearer {}", all.0);
        let answer = server.over_tcp(&head);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let ids =
            body.as_array().into_iter().flatten().map(|change| change["id"].as_u64().unwrap());
        (head[9..12].to_owned(), ids.collect::<Vec<_>>(), body["message"].to_string())
    };
    assert_eq!(ask("").1, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(ask("?newest=2").1, [8, 9]);
    assert_eq!(ask("?newest=100000").1.len(), 9);
    for wrong in ["?newest=0", "?newest=100001", "?newest=-1", "?newest=x", "?oldest=1"] {
        let (status, _, message) = ask(wrong);
        assert_eq!(status, "400", "{wrong}: {message}");
    }
    assert!(ask("?newest=0").2.contains("newest is 0; it must be 1 to 100000"));
}

/// Only an administrator names an apply, and only a change with number and apply may be empty.
#[test]
fn a_change_without_edits_uses_up_a_number_for_administrators() {
    let [tenant, all] = [(); 2].map(|()| weir_api::token::new().unwrap());
    let server = TestServer::up("apply", |policy| plain(policy, [tenant.1, all.1]));
    let post = |query: &str, token: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(
            stream,
            "POST /v1/changes{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: 2\r\n\r\n{{}}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    for query in ["", "?number=3", "?apply=a-1"] {
        let refused = post(query, &all.0);
        assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains("names nothing"));
    }
    let too_long = format!("?number=3&apply={}", "a".repeat(65));
    for query in ["?number=3&apply=", "?number=3&apply=a.b", &too_long] {
        let refused = post(query, &all.0);
        let text = "it must be 1 to 64 letters, digits, - and _";
        assert!(refused.starts_with("HTTP/1.1 400 ") && refused.contains(text), "{refused}");
    }
    let sound = "?number=3&apply=a-1";
    assert!(post(sound, &all.0).contains("there is no worker"), "it came as far as the node");
    assert!(post(sound, &tenant.0).starts_with("HTTP/1.1 403 "));
}

/// The live edits are answered while a change waits for the disk; a tenant reads those of its own
/// vifs.
#[test]
fn the_overlay_waits_for_no_change_and_a_tenant_sees_its_own() {
    let [tenant, all] = [(); 2].map(|()| weir_api::token::new().unwrap());
    let server = TestServer::up("overlay", |policy| {
        plain(policy, [tenant.1, all.1]);
        let vifs = "[[vif]]\nname = \"gold.0\"\nslice = \"gold\"\n\
                    [[vif]]\nname = \"silver.0\"\nslice = \"silver\"\n";
        let port = "[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n";
        let slices = "[[slice]]\nname = \"gold\"\n[[slice]]\nname = \"silver\"\n";
        let other = weir_policy::parse(&format!("version = 1\n{port}{slices}{vifs}")).unwrap();
        *policy = Policy { api: policy.api.clone(), ..other };
    });
    let busy = server.node.disk.lock().unwrap();
    std::thread::scope(|scope| {
        let body = "{\"send\":{\"rate_bps\":1000000}}";
        let head = format!(
            "PATCH /v1/vifs/gold.0 HTTP/1.1\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nhost: localhost\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let socket = server.folder.join("node-edge.sock");
        let change = scope.spawn(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        while !server.node.changing.load(Ordering::Relaxed) {
            assert!(!change.is_finished(), "{:?}", change.join());
            std::thread::sleep(Duration::from_millis(1));
        }
        for (token, vifs) in [(&all.0, &["gold.0", "silver.0"][..]), (&tenant.0, &["gold.0"])] {
            let head = format!("GET /v1/overlay HTTP/1.1\r\nauthorization: Bearer {token}");
            let answer = server.over_tcp(&head);
            let seen = ["gold.0", "silver.0"].into_iter().filter(|vif| answer.contains(vif));
            assert_eq!(seen.collect::<Vec<_>>(), vifs, "{answer}");
        }
        assert!(!change.is_finished(), "it waited all the time");
        drop(busy);
        let refused = change.join().unwrap();
        assert!(refused.contains("there is no worker"), "{refused}");
    });
}

/// A policy without TLS, with a tenant's and an administrator's token.
fn plain(policy: &mut Policy, digests: [weir_policy::Digest; 2]) {
    (policy.api.certificate, policy.api.key) = (None, None);
    policy.add_slice(weir_policy::Slice::new("gold"));
    let [tenant, all] = digests;
    policy.api.tokens = vec![
        Token {
            name: "shop".into(),
            role: Role::Tenant,
            slice: Some("gold".into()),
            sha256: tenant,
        },
        Token { name: "ops".into(), role: Role::Administrator, slice: None, sha256: all },
    ];
}

/// Anybody gets the page, with what keeps it from running anything else, and nothing but the page.
#[test]
fn loopback_needs_no_tls_and_still_a_token() {
    let [tenant, all] = [(); 2].map(|()| weir_api::token::new().unwrap());
    let server = TestServer::up("plain", |policy| plain(policy, [tenant.1, all.1]));
    let page = server.over_tcp("GET / HTTP/1.1");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("<script"), "{page}");
    assert!(page.contains("content-security-policy: default-src 'none'; script-src 'self'"));
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").unwrap();
    let mut foreign = String::new();
    let _ended = stream.read_to_string(&mut foreign);
    assert!(foreign.starts_with("HTTP/1.1 400 ") && !foreign.contains("<script"), "{foreign}");
    let head = server.over_tcp("HEAD /page.js HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    for path in ["/v1/status", "/v1/caller", "/v1/events", "/metrics", "/page.css/x", "/v1/"] {
        let answer = server.over_tcp(&format!("GET {path} HTTP/1.1"));
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
    }
    for (token, told) in [
        (&tenant.0, "{\"who\":\"token shop\",\"role\":\"tenant\",\"slice\":\"gold\"}"),
        (&all.0, "{\"who\":\"token ops\",\"role\":\"administrator\"}"),
    ] {
        let head = format!("GET /v1/caller HTTP/1.1\r\nauthorization: Bearer {token}");
        let answer = server.over_tcp(&head);
        assert!(answer.ends_with(told), "{answer}");
    }
}

/// The policy comes first, and again when it has changed for the one who listens: not for what is
/// another's.
#[test]
fn events_tell_the_policy_when_it_has_changed() {
    let [tenant, all] = [(); 2].map(|()| weir_api::token::new().unwrap());
    let server = TestServer::up("events", |policy| plain(policy, [tenant.1, all.1]));
    let listen = |token: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let path = "/v1/events?interval_ms=100";
        let head = format!("GET {path} HTTP/1.1\r\nauthorization: Bearer {token}");
        write!(stream, "{head}\r\nhost: localhost\r\n\r\n").unwrap();
        stream
    };
    let start = Instant::now();
    // As many as may have come by now: one more than intervals, for the first comes at once.
    let due = || usize::try_from(start.elapsed().as_millis() / 100).unwrap() + 1;
    let [mut theirs, mut ours] = [&tenant, &all].map(|token| Listener::new(listen(&token.0)));
    for listener in [&mut theirs, &mut ours] {
        listener.hear("status", 3);
        let [policy, status] =
            ["event: policy", "event: status"].map(|event| listener.text.find(event));
        assert!(policy.is_some() && policy < status, "{}", listener.text);
        assert!(listener.count("status") <= due(), "{}", listener.text);
    }
    let mut changed = server.node.policy.read().unwrap().as_ref().clone();
    changed.add_slice(weir_policy::Slice::new("lead"));
    *server.node.policy.write().unwrap() = Arc::new(changed);
    let before = due();
    ours.hear("policy", 2);
    // At least four of them were said after the change.
    theirs.hear("status", before + 4);
    assert_eq!((theirs.count("policy"), ours.count("policy")), (1, 2));
    assert!(theirs.count("status") <= due(), "{} by {}", theirs.count("status"), due());
}

/// A listener to events, and the events that it has got.
struct Listener {
    stream: TcpStream,
    text: String,
}

impl Listener {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, text: String::new() }
    }

    fn count(&self, event: &str) -> usize {
        self.text.matches(&format!("event: {event}\n")).count()
    }

    /// Reads until so many of these have come.
    fn hear(&mut self, event: &str, most: usize) {
        let start = Instant::now();
        let mut bytes = [0; 4096];
        while self.count(event) < most {
            let length = self.stream.read(&mut bytes).unwrap();
            assert!(
                length > 0 && start.elapsed() < PATIENCE,
                "no {most} of {event}: {}",
                self.text
            );
            self.text += &String::from_utf8_lossy(&bytes[..length]);
        }
    }
}

/// Longest wait for something that comes at once: on a machine whose own host has other tenants, a
/// processor stands still for seconds at times.
const PATIENCE: Duration = Duration::from_secs(60);

/// Root's browser comes in with the address that was printed, another with the page alone.
#[test]
fn a_relay_is_root_for_who_has_its_token() {
    if !weir_platform::process::is_root() {
        println!("SKIPPED a_relay_is_root_for_who_has_its_token: only root needs no token");
        return;
    }
    let server = TestServer::up("relay", |_| {});
    let socket = server.folder.join("node-edge.sock");
    let relay = weir_api::Relay::bind(&socket, 0).unwrap();
    let url = relay.url();
    let (address, token) = url.trim_start_matches("http://").split_once("/#token=").unwrap();
    let (line, lines) = std::sync::mpsc::channel::<String>();
    std::thread::spawn(move || relay.run(move |text| line.send(text.to_owned()).unwrap()));
    let ask = |head: &str| answer(TcpStream::connect(address).unwrap(), head);
    assert!(ask("GET / HTTP/1.1").contains("<script"));
    for head in [STATUS.to_owned(), format!("{STATUS}\r\nauthorization: Bearer {token}x")] {
        assert!(ask(&head).starts_with("HTTP/1.1 401 "), "{head}");
    }
    let right = |path: &str| ask(&format!("GET {path} HTTP/1.1\r\nauthorization: Bearer {token}"));
    assert!(right("/v1/caller").contains("\"who\":\"uid 0\""), "{}", right("/v1/caller"));
    assert!(right("/v1/none").starts_with("HTTP/1.1 404 "));
    let missing = weir_api::Relay::bind(&server.folder.join("none.sock"), 0).unwrap_err();
    assert!(missing.to_string().contains("none.sock"), "{missing}");
    std::fs::remove_file(&socket).unwrap();
    let gone = right("/v1/caller");
    assert!(gone.starts_with("HTTP/1.1 503 ") && gone.contains("no node answers"), "{gone}");
    // The log names the request, the failure and the time; what the node answered is not in it.
    let logged = lines.recv_timeout(PATIENCE).unwrap();
    assert!(logged.starts_with("GET /v1/caller: ") && logged.ends_with(" ms"), "{logged}");
    assert!(logged.contains("edge.sock: no answer ("), "{logged}");
    assert!(lines.try_recv().is_err());
}

/// Each bound is told with its number.
#[test]
fn who_asks_too_often_is_told_so() {
    let server = TestServer::up("often", |policy| policy.api.requests_per_second = 5);
    if !weir_platform::process::is_root() {
        println!("SKIPPED who_asks_too_often_is_told_so: only root needs no token");
        return;
    }
    let start = Instant::now();
    let answers: Vec<String> = (0..60).map(|_| server.over_unix(STATUS)).collect();
    let seconds = start.elapsed().as_secs_f64();
    let slowed: Vec<_> = answers.iter().filter(|text| text.starts_with("HTTP/1.1 429 ")).collect();
    // Five at once, and five a second from then on.
    let admitted = answers.len() - slowed.len();
    assert!(admitted >= 5 && admitted as f64 <= 6.0 + 5.0 * seconds, "{admitted} in {seconds} s");
    assert!(!slowed.is_empty(), "60 in {seconds} s");
    assert!(slowed[0].contains("more than 5 requests a second"), "{}", slowed[0]);
    assert!(slowed[0].contains("retry-after: 1"), "{}", slowed[0]);
}

/// A tenant reads the report of its own slice, whatever it asks for.
#[test]
fn a_tenant_reads_its_own_report() {
    let (token, sha256) = weir_api::token::new().unwrap();
    let server = TestServer::up("report", |policy| {
        policy.add_slice(Slice::new("gold"));
        policy.add_slice(Slice::new("silver"));
        let (name, slice) = ("shop".to_owned(), Some("gold".to_owned()));
        policy.api.tokens = vec![Token { name, role: Role::Tenant, slice, sha256 }];
    });
    let ask = |query: &str| {
        let head = format!("GET /v1/report{query} HTTP/1.1\r\nauthorization: Bearer {token}");
        server.over_tls(&head)
    };
    for query in ["", "?slice=gold", "?vif=anything"] {
        let own = ask(query);
        assert!(own.starts_with("HTTP/1.1 200 "), "{query}: {own}");
        assert!(own.contains("\"gold\"") && !own.contains("silver"), "{query}: {own}");
    }
    let other = ask("?slice=silver");
    assert!(other.starts_with("HTTP/1.1 404 ") && other.contains("not_found"), "{other}");
    for wrong in ["?since_s=0", "?since_s=99999999999", "?since_s=x", "?what=1"] {
        assert!(ask(wrong).starts_with("HTTP/1.1 400 "), "{wrong}");
    }
}
