// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two networks on a physical link between two running Weir nodes: the broker brings slices and
//! vifs there, frames of one network do not reach the other, what somebody takes away comes back,
//! and a node that is gone is reported until it is there again.
//!
//! The virtual routers are bare namespaces without SSH servers: the broker cannot reach them, and
//! keeps the nodes all the same.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use namespaces::{PATIENCE, POLL, ip, remove_namespaces, soon};
use serde_json::Value;

mod common;
#[path = "common/namespaces.rs"]
mod namespaces;

const NAME: &str = "weir-t-nodes";

const NODES: [&str; 7] = ["mg", "n1", "n2", "b1", "b2", "r1", "r2"];

/// Veth pairs: node, device, node, device, and the address of the second end.
const LINKS: [(&str, &str, &str, &str, &str); 5] = [
    ("n1", "wire", "n2", "wire", ""),
    ("n1", "vif-b1", "b1", "eth0", "fd50::1"),
    ("n2", "vif-b2", "b2", "eth0", "fd50::2"),
    ("n1", "vif-r1", "r1", "eth0", "fd50::3"),
    ("n2", "vif-r2", "r2", "eth0", "fd50::4"),
];

struct Network {
    weir: PathBuf,
    folder: PathBuf,
    /// The nodes n1 and n2, then the broker.
    children: Vec<Child>,
}

impl Drop for Network {
    fn drop(&mut self) {
        for child in &mut self.children {
            end(child);
        }
        remove_namespaces(NAME, &NODES);
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

impl Network {
    fn up() -> Option<Self> {
        let weir = common::weir(NAME)?;
        let folder = std::env::temp_dir().join(format!("{NAME}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let network = Self { weir, folder, children: Vec::new() };
        if !ip(&format!("netns add {NAME}-mg")) {
            println!("SKIPPED {NAME}: needs root for network namespaces");
            return None;
        }
        println!("ON THE HOST");
        for node in &NODES[1..] {
            assert!(ip(&format!("netns add {NAME}-{node}")));
        }
        for node in NODES {
            network.sh(
                node,
                "ip link set lo up; cd /proc/sys/net/ipv6/conf; echo 0 >default/accept_dad",
            );
        }
        for (a, at_a, b, at_b, address) in LINKS {
            let names = format!("{NAME}-{a} type veth peer name {at_b} netns {NAME}-{b}");
            assert!(ip(&format!("link add {at_a} netns {names}")));
            network.sh(a, &format!("ip link set {at_a} up"));
            network.sh(b, &format!("ip link set {at_b} up"));
            if !address.is_empty() {
                network.sh(b, &format!("ip addr add {address}/64 dev {at_b} nodad"));
            }
        }
        network.write_files();
        Some(network)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn write_files(&self) {
        let path = |name: &str| self.path(name);
        for node in ["n1", "n2"] {
            let policy = format!(
                "version = 1\n[node]\nname = \"{NAME}-{node}\"\nreservation = \"none\"\n\
                 [[port]]\nname = \"wire\"\nrate = \"100Mbit\"\n"
            );
            fs::write(path(&format!("{node}.toml")), policy).unwrap();
        }
        let own = rcgen::generate_simple_self_signed(["::1".to_owned()]).unwrap();
        fs::write(path("cert.pem"), own.cert.pem()).unwrap();
        fs::write(path("key.pem"), own.signing_key.serialize_pem()).unwrap();
        let words = ["-q", "-t", "ed25519", "-N", "", "-f", &path("id")];
        assert!(Command::new("ssh-keygen").args(words).status().unwrap().success());
        fs::write(path("broker.toml"), self.configuration("50Mbit")).unwrap();
    }

    /// Returns the broker's configuration, with this share for `red`.
    fn configuration(&self, red: &str) -> String {
        let path = |name: &str| self.path(name);
        let host = fs::read_to_string(path("id.pub")).unwrap();
        let host = host.split(' ').take(2).collect::<Vec<_>>().join(" ");
        // SHA-256 of "secret".
        let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let mut text = format!(
            "version = 1\n[broker]\nname = \"t\"\nlisten = \"[::1]:8443\"\ncertificate = {:?}\n\
             key = {:?}\nstore = {:?}\nssh_key = {:?}\nlease = \"1s\"\ncheck = \"200ms\"\n\
             router_patience = \"500ms\"\n[[broker.token]]\nname = \"t\"\nsha256 = \"{digest}\"\n\
             [[link]]\nname = \"n1-n2\"\na = {{ node = \"n1\", port = \"wire\" }}\n\
             b = {{ node = \"n2\", port = \"wire\" }}\nrate = \"100Mbit\"\n",
            path("cert.pem"),
            path("key.pem"),
            path("store.sqlite"),
            path("id")
        );
        for node in ["n1", "n2"] {
            let api = path(&format!("{node}/node-{NAME}-{node}.sock"));
            text += &format!("[[node]]\nname = \"{node}\"\napi = {api:?}\n");
        }
        for (name, vlan, at, share) in [("blue", 10, "b", "40Mbit"), ("red", 20, "r", red)] {
            text += &format!(
                "[[network]]\nname = \"{name}\"\nvlan = {vlan}\nouter = \"fd0f:{vlan}::\"\n"
            );
            for number in 1..=2 {
                text += &format!(
                    "[[network.router]]\nname = \"{at}{number}\"\nssh = \"[::1]:{vlan}{number}\"\n\
                     host_key = \"{host}\"\n"
                );
            }
            let end = |number: u8| {
                let router = format!("router = \"{at}{number}\", vif = \"vif-{at}{number}\"");
                format!("{{ {router}, device = \"eth0\", address = \"fd50::{number}\" }}")
            };
            text += &format!(
                "[[network.link]]\nname = \"l\"\nover = \"n1-n2\"\na = {}\nb = {}\n\
                 rate = \"{share}\"\n",
                end(1),
                end(2)
            );
        }
        text
    }

    fn spawn(&self, node: &str, words: &[&str]) -> Child {
        let mut command = self.inside(node, words);
        command.env("WEIR_STATE", self.path(node));
        let log = fs::File::create(self.path(&format!("{node}.log"))).unwrap();
        command.stderr(log).spawn().unwrap()
    }

    fn start_node(&self, node: &str) -> Child {
        self.spawn(node, &["node", "run", "--config", &self.path(&format!("{node}.toml"))])
    }

    fn inside(&self, node: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{NAME}-{node}")]).arg(&self.weir).args(words);
        command
    }

    /// Runs `weir` against the broker.
    fn weir(&self, words: &[&str]) -> Output {
        let mut command = self.inside("mg", words);
        command.env("WEIR_BROKER", "https://[::1]:8443").env("WEIR_TOKEN", "secret");
        command.env("WEIR_BROKER_CA", self.path("cert.pem")).output().unwrap()
    }

    /// Returns what the broker says of a network.
    fn network(&self, name: &str) -> Value {
        let networks = self.weir(&["network", "--json"]);
        let networks: Value = serde_json::from_slice(&networks.stdout).unwrap_or_default();
        let all = networks.as_array().into_iter().flatten();
        all.into_iter().find(|of| of["name"] == name).cloned().unwrap_or_default()
    }

    /// Returns true if the broker has both nodes as they are to be.
    fn is_kept(&self) -> bool {
        let nodes = self.network("red")["nodes"].clone();
        let sound = |of: &Value| of["reachable"] == true && of["fault"].is_null();
        nodes.as_array().is_some_and(|nodes| nodes.len() == 2 && nodes.iter().all(sound))
    }

    /// Runs `weir` against node n1.
    fn at_node(&self, words: &[&str]) -> String {
        let mut command = self.inside("n1", words);
        command.args(["--node", &format!("{NAME}-n1")]).env("WEIR_STATE", self.path("n1"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Gives a link another share; an error is what was said.
    fn share(&self, link: &str, rate: &str) -> Result<(), String> {
        let output = self.weir(&["network", "--share", link, "--rate", rate]);
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    /// Starts a ping of four seconds.
    fn ping_on(&self, from: &str, to: &str) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{NAME}-{from}"), "ping", "-q"]);
        command.args(["-c", "200", "-i", "0.02", to]).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn restart_broker(&mut self, file: &str) {
        end(&mut self.children[2]);
        self.children[2] = self.spawn("mg", &["broker", "run", &self.path(file)]);
    }

    fn sh(&self, node: &str, line: &str) {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{NAME}-{node}"), "sh", "-c", line]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{node}: {line}: {output:?}");
    }

    fn pings(&self, from: &str, to: &str) -> bool {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{NAME}-{from}")]);
        command.args(["ping", "-q", "-c", "1", "-W", "1", to]);
        command.output().unwrap().status.success()
    }

    fn said(&self) -> String {
        let logs =
            ["mg", "n1", "n2"].map(|node| fs::read_to_string(self.path(&format!("{node}.log"))));
        logs.into_iter().flatten().collect()
    }
}

#[test]
fn networks_share_a_link_between_two_nodes() {
    let Some(mut network) = Network::up() else { return };
    for node in ["n1", "n2"] {
        let started = network.start_node(node);
        network.children.push(started);
    }
    let broker = network.spawn("mg", &["broker", "run", &network.path("broker.toml")]);
    network.children.push(broker);
    assert!(soon(|| network.is_kept()), "{}", network.said());

    // Each network reaches its own, and nobody of the other, at the same host or beyond the link.
    assert!(soon(|| network.pings("b1", "fd50::2")), "{}", network.said());
    assert!(soon(|| network.pings("r1", "fd50::4")));
    for (from, to) in [("b1", "fd50::3"), ("b1", "fd50::4"), ("r2", "fd50::1"), ("r2", "fd50::2")] {
        assert!(!network.pings(from, to), "{from} reaches {to}");
    }

    // Both directions have the share, in the network's VLAN. What is taken away comes back.
    let sound = network.at_node(&["show"]);
    assert_eq!(sound.matches("min_rate = \"50Mbit\"").count(), 2, "{sound}");
    assert!(sound.contains("vlan = 20"), "{sound}");
    network.at_node(&["remove", "vif", "broker.r1.eth0"]);
    assert!(soon(|| network.at_node(&["show"]).matches("broker.r1.eth0").count() == 1));
    network.at_node(&["set", "vif", "broker.r1.eth0", "--min-rate", "1Mbit"]);
    assert!(soon(|| network.at_node(&["show"]).matches("min_rate = \"50Mbit\"").count() == 2));
    let repaired = |network: &Network| network.network("red")["nodes"][0]["repaired"].as_u64();
    assert!(soon(|| repaired(&network) >= Some(2)), "{:?}", network.network("red"));

    a_share_changes(&mut network);

    // A node that is gone is named, and no path passes its links until it is back.
    end(&mut network.children[1]);
    let fault = |network: &Network| network.network("blue")["links"][0]["fault"].clone();
    let is_gone = || fault(&network).as_str().is_some_and(|why| why.contains("\"n2\" does not"));
    assert!(soon(is_gone), "{:?}", network.network("blue"));
    assert!(network.network("blue")["nodes"][1]["reachable"] == false);
    network.children[1] = network.start_node("n2");
    assert!(soon(|| network.is_kept()), "{}", network.said());
    assert!(soon(|| network.pings("b1", "fd50::2")));

    // Nine tenths of the link are reservable, and 40 of them are blue's.
    fs::write(network.path("more.toml"), network.configuration("51Mbit")).unwrap();
    let refused = network.weir(&["broker", "check", &network.path("more.toml")]);
    let said = String::from_utf8(refused.stderr).unwrap();
    let why =
        "\"red\": link \"l\" asks for 51Mbit of physical link \"n1-n2\", where 50Mbit is free";
    assert!(!refused.status.success() && said.contains(why), "{said}");
}

/// Goal: a share that somebody changes is there soon, costs no packet, and holds for the next
/// broker until the file gives the link something else.
fn a_share_changes(network: &mut Network) {
    let is = |network: &Network, share: &str| {
        network.at_node(&["show"]).matches(&format!("min_rate = \"{share}\"")).count() == 2
    };
    let ping = network.ping_on("b1", "fd50::2");
    for share in ["30Mbit", "50Mbit", "20Mbit"] {
        network.share("red/l", share).unwrap();
        assert!(soon(|| is(network, share)), "{share}");
    }
    let refused = network.share("red/l", "51Mbit").unwrap_err();
    assert!(refused.contains("all shares would be 91Mbit, at most 90Mbit"), "{refused}");
    let said = ping.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains(" 0% packet loss"), "{said:?}");

    // It holds for the next broker, too, until the file gives the link something else.
    network.restart_broker("broker.toml");
    assert!(soon(|| network.is_kept()) && is(network, "20Mbit"), "{}", network.said());
    fs::write(network.path("broker.toml"), network.configuration("45Mbit")).unwrap();
    network.restart_broker("broker.toml");
    assert!(soon(|| is(network, "45Mbit")), "{}", network.said());
}

/// Ends a child that may leave devices behind only if it is asked.
fn end(child: &mut Child) {
    let pid = child.id().to_string();
    let _asked = Command::new("kill").args(["-TERM", &pid]).status();
    let deadline = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _killed = child.kill();
        }
        std::thread::sleep(POLL);
    }
}
