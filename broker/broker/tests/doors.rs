// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's interface from outside, over HTTPS, with routers that do not answer: formats, what
//! is refused, the page, and in headless Chromium what networks share. It needs no privileges.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[path = "common/browser.rs"]
mod browser;
mod common;

/// A broker that ends with its test, and its folder.
struct Broker {
    child: Child,
    folder: PathBuf,
    url: String,
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

impl Broker {
    /// Starts one of these networks as `weir broker run`, and waits until it answers. `FOLDER` in
    /// the text is its folder, which `prepare` is called with before; `HOST_KEY` is any key.
    fn start(name: &str, networks: &str, prepare: impl FnOnce(&Path)) -> Option<Self> {
        let weir = common::weir("the broker's doors")?;
        let missing = ["curl", "ssh-keygen"]
            .into_iter()
            .find(|program| Command::new(program).arg("--help").output().is_err());
        if let Some(program) = missing {
            println!("SKIPPED the broker's doors: needs {program}");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("weir-t-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        prepare(&folder);
        let path = |name: &str| folder.join(name).display().to_string();
        let key = ["-q", "-t", "ed25519", "-N", "", "-f", &path("id")];
        assert!(Command::new("ssh-keygen").args(key).status().unwrap().success());
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(path("cert.pem"), own.cert.pem()).unwrap();
        fs::write(path("key.pem"), own.signing_key.serialize_pem()).unwrap();
        // Free until somebody else takes it, which is unlikely enough.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut text = format!(
            "version = 1\n[broker]\nname = \"t\"\nlisten = \"{address}\"\ncertificate = {:?}\n\
             key = {:?}\nstore = {:?}\nssh_key = {:?}\n",
            path("cert.pem"),
            path("key.pem"),
            path("store.sqlite"),
            path("id"),
        );
        for (name, digest, network) in TOKENS {
            text +=
                &format!("[[broker.token]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n{network}");
        }
        let public = fs::read_to_string(path("id.pub")).unwrap();
        let host_key = public.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let networks = networks.replace("FOLDER", &folder.display().to_string());
        let networks = networks.replace("HOST_KEY", &host_key);
        fs::write(path("broker.toml"), text + &networks).unwrap();
        let mut command = Command::new(weir);
        command.args(["broker", "run", &path("broker.toml")]).stderr(Stdio::null());
        let broker =
            Self { child: command.spawn().unwrap(), folder, url: format!("https://{address}") };
        let start = Instant::now();
        while broker.ask("secret", &["/v1/networks"]).0 != 200 {
            assert!(start.elapsed() < Duration::from_secs(30), "the broker does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(broker)
    }

    /// Has `curl` send a request: the path first, then its own options.
    fn ask(&self, token: &str, words: &[&str]) -> (u16, String) {
        let mut command = Command::new("curl");
        command.args(["-sS", "-w", "\n%{http_code}", "--cacert"]).arg(self.folder.join("cert.pem"));
        command.arg("-H").arg(format!("Authorization: Bearer {token}"));
        command.arg(format!("{}{}", self.url, words[0])).args(&words[1..]);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let (text, status) = said.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), text.to_owned())
    }
}

#[test]
fn the_doors_of_a_broker_open_for_who_may_and_for_nothing_else() {
    let Some(broker) = Broker::start("doors", NETWORKS, |_| {}) else { return };
    let json = |words: &[&str]| -> Value {
        serde_json::from_str(&broker.ask("secret", words).1).unwrap_or_default()
    };
    // One row in two formats.
    let (kind, xml) = ("Content-Type: application/xml", "Accept: application/xml");
    let of_xml = broker.ask("secret", &[TRY, "-H", kind, "-d", XML]);
    let of_json = broker.ask("secret", &[TRY, "-H", "Content-Type: application/json", "-d", JSON]);
    assert_eq!((of_xml.0, &of_xml), (200, &of_json));
    assert!(of_xml.1.contains("[\"b1\",\"b2\"]"), "{}", of_xml.1);
    let (status, text) = broker.ask("secret", &["/v1/networks", "-H", xml]);
    assert!(status == 200 && text.contains("<networks><network>"), "{text}");

    // Callers that may not, and bodies that are no request.
    let long = format!("@{}", broker.folder.join("long").display());
    fs::write(broker.folder.join("long"), "x".repeat(1 << 20)).unwrap();
    let unknown = "<request><speed>1</speed></request>";
    let document = "<!DOCTYPE r [<!ENTITY e \"e\">]><request><rate>&e;</rate></request>";
    let at = "/v1/connections";
    for (token, words, expected) in [
        ("", &["/v1/networks"][..], 401),
        ("wrong", &["/v1/networks"], 401),
        ("wrong", &[at, "-H", kind, "-d", XML], 401),
        ("secret", &[at, "-H", kind, "--data-binary", &long], 413),
        ("secret", &[at, "-H", kind, "-d", unknown], 400),
        ("secret", &[at, "-H", kind, "-d", document], 400),
        ("secret", &[at, "-H", "Content-Type: application/json", "-d", "{\"speed\":1}"], 400),
        ("secret", &[at, "-d", JSON], 415),
        ("secret", &["/v1/networks", "-X", "PUT"], 405),
        ("secret", &["/v1/../v1/nothing"], 404),
        ("red", &[TRY, "-H", kind, "-d", XML], 404),
        ("red", &["/v1/networks/blue/traffic"], 404),
    ] {
        let (status, text) = broker.ask(token, words);
        assert_eq!(status, expected, "{token} {words:.60?}: {text}");
        assert!(text.starts_with("{\"code\":"), "{text}");
    }
    let (_, own) = broker.ask("red", &["/v1/networks"]);
    let own: Value = serde_json::from_str(&own).unwrap();
    assert_eq!((own.as_array().unwrap().len(), &own[0]["name"]), (1, &Value::from("red")));
    assert_eq!(json(&["/v1/connections"]), Value::Array(Vec::new()));

    // These need no token.
    assert_eq!(json(&["/v1/openapi.json"])["info"]["title"], "Weir broker");
    assert!(broker.ask("", &["/v1/broker.xsd"]).1.contains("<xs:schema"));
    let (status, page) = broker.ask("", &["/", "-i"]);
    assert!(status == 200 && page.contains("/broker.js"), "{page}");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
}

/// Goal: one address holds half of the places at most, by connections that ask nothing.
#[test]
fn one_address_leaves_room_for_others() {
    let Some(broker) = Broker::start("places", NETWORKS, |_| {}) else { return };
    let address = broker.url.strip_prefix("https://").unwrap();
    let idle: Vec<_> = (0..HALF).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(broker.ask("secret", &["/v1/networks"]).0, 0, "closed without an answer");
    let other = ["/metrics", "--interface", "127.0.0.2"];
    let (status, page) = broker.ask("secret", &other);
    assert_eq!(status, 200);
    assert!(page.contains("\nweir_broker_clients_refused_total 1\n"), "{page}");
    drop(idle);
    let start = Instant::now();
    while broker.ask("secret", &["/v1/networks"]).0 != 200 {
        assert!(start.elapsed() < Duration::from_secs(10), "its places are not free again");
    }
}

/// Goal: the page shows a network's share of a physical link, its agreement, and the set-points
/// that hold it. Method: two nodes that say what a contended one would, and take what they are
/// asked for.
#[test]
fn the_page_shows_what_networks_share() {
    let prepare = |folder: &Path| {
        for node in ["n1", "n2"] {
            let listener = UnixListener::bind(folder.join(format!("{node}.sock"))).unwrap();
            std::thread::spawn(move || {
                listener.incoming().flatten().for_each(|stream| contended_node(stream, node));
            });
        }
    };
    let Some(broker) = Broker::start("sharing", SHARING, prepare) else { return };
    let pictures = broker.folder.join("pictures").display().to_string();
    let url = format!("{}/#token=secret", broker.url);
    let Some(samples) = browser::visit(Command::new("node"), &url, &[&pictures]) else { return };
    assert_eq!(samples.keys().filter(|name| name.starts_with("axe/")).count(), 4);
    for (name, value) in
        [("shares", 1), ("routers", 2), ("held", 2), ("contended", 1), ("foreign", 0)]
    {
        assert_eq!(samples[name], value, "{name}: {samples:?}");
    }
}

/// Answers a request as a node whose two routers are offered 2500 packets a second: n1 carries ten
/// times that, n2 less.
fn contended_node(mut stream: UnixStream, node: &str) {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    let is_whole = |request: &[u8]| {
        let text = String::from_utf8_lossy(request);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        (body.len() >= length.map_or(0, |length| length.parse().unwrap())).then_some(())
    };
    while is_whole(&request).is_none() {
        let Ok(count @ 1..) = stream.read(&mut part) else { return };
        request.extend_from_slice(&part[..count]);
    }
    let router = |letter: char, offered: u64| {
        json!({
            "router": format!("{letter}{}", &node[1..]), "slice": "s", "state": "off",
            "controller": "combined", "actuator": "none", "period_ns": 100_000_000,
            "dry_run": false, "rate_pps": offered, "offered_pps": offered, "owes_release": false,
            "samples": 1, "faults": 0, "commands": 0, "failures": 0, "late": 0,
            "late_worst_ns": 0, "lost": 0,
        })
    };
    let capacity = if node == "n1" { 25_000 } else { 2000 };
    let (status, answer) = match String::from_utf8_lossy(&request).split_once(" HTTP") {
        Some(("GET /v1/xtc", _)) => (
            200,
            json!({
                "routers": [router('b', 1500), router('r', 1000)],
                "policing": { "capacity_pps": capacity, "demand_pps": 2500, "contended": false,
                    "changes": 0, "judged": 0 },
            }),
        ),
        Some(("POST /v1/set-points", _)) => (200, json!({ "refused": {} })),
        _ => (404, json!({ "code": "not_found", "message": "nothing of it here" })),
    };
    let answer = answer.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", answer.len());
    // A broker that is ending needs no answer.
    let _gone = write!(stream, "{head}connection: close\r\n\r\n{answer}");
}

/// Half of `clients`, as it is without the key.
const HALF: usize = 128;

const TRY: &str = "/v1/connections/dry-run";

const XML: &str = "<request><network>blue</network><from>x</from><to>y</to><rate>1Mbit</rate>\
    </request>";

const JSON: &str = r#"{"network": "blue", "from": "x", "to": "y", "rate": "1Mbit"}"#;

/// Names, SHA-256 of "secret" and of "red", and whose they are.
const TOKENS: [(&str, &str, &str); 2] = [
    ("t", "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", ""),
    (
        "r",
        "b1f51a511f1da0cd348b8f8598db32e61cb963e5fc69e2b41485bf99590ed75a",
        "network = \"red\"\n",
    ),
];

/// Port 9 of loopback: nobody listens there.
const NETWORKS: &str = r#"
[[network]]
name = "blue"
outer = "fd0b::"
router = [
    { name = "b1", ssh = "127.0.0.1:9", host_key = "HOST_KEY" },
    { name = "b2", ssh = "127.0.0.2:9", host_key = "HOST_KEY" },
]
host = [
    { name = "x", router = "b1", device = "x", address = "fd10::1" },
    { name = "y", router = "b2", device = "y", address = "fd10::2" },
]
[[network.link]]
name = "l"
a = { router = "b1", device = "c", address = "fd11::1" }
b = { router = "b2", device = "a", address = "fd11::2" }
rate = "100Mbit"

[[network]]
name = "red"
outer = "fd0e::"
router = [{ name = "r1", ssh = "127.0.0.3:9", host_key = "HOST_KEY" }]
"#;

/// Blue has 60 of the 90 Mbit/s that may be promised, red 20; both are policed at the nodes. `r` is
/// the token of red's administrator.
const SHARING: &str = r#"
[[node]]
name = "n1"
api = "FOLDER/n1.sock"

[[node]]
name = "n2"
api = "FOLDER/n2.sock"

[[link]]
name = "n1-n2"
a = { node = "n1", port = "p" }
b = { node = "n2", port = "p" }
rate = "100Mbit"

[[network]]
name = "blue"
vlan = 10
outer = "fd0b::"
router = [
    { name = "b1", ssh = "127.0.0.1:9", host_key = "HOST_KEY" },
    { name = "b2", ssh = "127.0.0.2:9", host_key = "HOST_KEY" },
]

[network.agreement]
min = "200pps"
max = "2kpps"
priority = 3
router = [
    { name = "b1", node = "n1", entry = true },
    { name = "b2", node = "n2" },
]

[[network.link]]
name = "b1-b2"
over = "n1-n2"
a = { router = "b1", device = "eth1", address = "fd11::1", vif = "blue1" }
b = { router = "b2", device = "eth1", address = "fd11::2", vif = "blue1" }
rate = "60Mbit"

[[network]]
name = "red"
vlan = 20
outer = "fd0e::"
router = [
    { name = "r1", ssh = "127.0.0.3:9", host_key = "HOST_KEY" },
    { name = "r2", ssh = "127.0.0.4:9", host_key = "HOST_KEY" },
]

[network.agreement]
min = "200pps"
router = [
    { name = "r1", node = "n1", entry = true },
    { name = "r2", node = "n2" },
]

[[network.link]]
name = "r1-r2"
over = "n1-n2"
a = { router = "r1", device = "eth1", address = "fd12::1", vif = "red1" }
b = { router = "r2", device = "eth1", address = "fd12::2", vif = "red1" }
rate = "20Mbit"
"#;
