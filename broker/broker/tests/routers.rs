// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A broker against real SSH servers: a connection is made, used, moved, repaired, survives the
//! broker's death, and is removed without a trace; then by the page, in headless Chromium.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use namespaces::{ip, remove_namespaces, soon};
use serde_json::Value;

#[path = "common/browser.rs"]
mod browser;
mod common;
#[path = "common/namespaces.rs"]
mod namespaces;

const SSHD: &str = "/usr/sbin/sshd";

const NAME: &str = "weir-t-broker";

const NODES: [&str; 7] = ["mg", "h1", "h2", "b1", "b2", "b3", "b4"];

const ROUTERS: [&str; 4] = ["b1", "b2", "b3", "b4"];

/// Links between routers, and one from `mg` to each.
const LINKS: [(u8, u8); 4] = [(1, 2), (1, 3), (2, 4), (3, 4)];

struct Network {
    /// The path of `weir`.
    weir: PathBuf,
    folder: PathBuf,
    children: Vec<Child>,
}

/// A broker that does not outlive its test.
struct KilledAtEnd(Child);

impl KilledAtEnd {
    fn end(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ended = child.kill().and_then(|()| child.wait());
        }
        remove_namespaces(NAME, &NODES);
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

impl Network {
    fn up() -> Option<Self> {
        if !Path::new(SSHD).exists() {
            println!("SKIPPED {NAME}: needs {SSHD}");
            return None;
        }
        let weir = common::weir(NAME)?;
        let folder = std::env::temp_dir().join(format!("{NAME}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut network = Self { weir, folder, children: Vec::new() };
        if !ip(&format!("netns add {NAME}-mg")) {
            println!("SKIPPED {NAME}: needs root for network namespaces");
            return None;
        }
        println!("ON THE HOST");
        network.build();
        for key in ["id", "host"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &network.path(key)])
                .status();
            assert!(made.unwrap().success());
        }
        let own = rcgen::generate_simple_self_signed(["fd1f:1::1".to_owned()]).unwrap();
        fs::write(network.path("cert.pem"), own.cert.pem()).unwrap();
        fs::write(network.path("key.pem"), own.signing_key.serialize_pem()).unwrap();
        network.start_servers();
        network.write_configuration();
        Some(network)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn inside(&self, node: &str, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{NAME}-{node}")]).arg(program);
        command
    }

    /// Makes namespaces, links, addresses and the routes of best effort.
    fn build(&self) {
        for node in &NODES[1..] {
            assert!(ip(&format!("netns add {NAME}-{node}")));
        }
        for node in NODES {
            self.sh(
                node,
                "ip link set lo up; cd /proc/sys/net/ipv6/conf; echo 1 >all/forwarding; \
                 echo 0 >default/accept_dad; echo 0 >all/accept_dad",
            );
        }
        let link = |a: &str, at_a: &str, b: &str, at_b: &str, prefix: &str, ends: (u8, u8)| {
            let names = format!("{NAME}-{a} type veth peer name {at_b} netns {NAME}-{b}");
            assert!(ip(&format!("link add {at_a} netns {names}")));
            for (node, device, end) in [(a, at_a, ends.0), (b, at_b, ends.1)] {
                let address = format!("ip addr add {prefix}::{end}/64 dev {device} nodad");
                self.sh(node, &format!("ip link set {device} up && {address}"));
            }
        };
        link("h1", "eth0", "b1", "acc", "fd10:1", (2, 1));
        link("h2", "eth0", "b4", "acc", "fd10:2", (2, 1));
        for (a, b) in LINKS {
            let ends = [a, b].map(|router| (format!("b{router}"), format!("to{router}")));
            let [(at, to_a), (other, to_b)] = &ends;
            link(at, to_b, other, to_a, &format!("fd10:{a}{b}"), (a, b));
        }
        for router in 1..=4 {
            let (to, at) = (format!("to{router}"), format!("b{router}"));
            link("mg", &to, &at, "mg", &format!("fd1f:{router}"), (1, 2));
        }
        for (node, route) in [
            ("h1", "default via fd10:1::1"),
            ("h2", "default via fd10:2::1"),
            ("b1", "fd10:2::/64 via fd10:12::2"),
            ("b2", "fd10:2::/64 via fd10:24::4"),
            ("b2", "fd10:1::/64 via fd10:12::1"),
            ("b4", "fd10:1::/64 via fd10:24::2"),
        ] {
            self.sh(node, &format!("ip -6 route add {route}"));
        }
    }

    fn start_servers(&mut self) {
        fs::create_dir_all("/run/sshd").unwrap();
        for (router, number) in ROUTERS.into_iter().zip(1..) {
            let path = |name: &str| self.path(name);
            let text = format!(
                "ListenAddress [fd1f:{number}::2]:22\nHostKey {}\nAuthorizedKeysFile {}\n\
                 StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
                 UsePAM no\nPidFile none\n",
                path("host"),
                path("id.pub")
            );
            let file = path(&format!("sshd-{router}"));
            fs::write(&file, text).unwrap();
            let mut command = self.inside(router, SSHD);
            command.args(["-D", "-f", &file]).stderr(Stdio::null());
            self.children.push(command.spawn().unwrap());
        }
    }

    fn write_configuration(&self) {
        let path = |name: &str| self.path(name);
        let host = fs::read_to_string(path("host.pub")).unwrap();
        let host = host.split(' ').take(2).collect::<Vec<_>>().join(" ");
        // SHA-256 of "secret".
        let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        // SHA-256 of "other".
        let other = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";
        let mut text = format!(
            "version = 1\n[broker]\nname = \"t\"\nlisten = \"[fd1f:1::1]:8443\"\n\
             certificate = {:?}\nkey = {:?}\nstore = {:?}\nssh_key = {:?}\nlease = \"1s\"\n\
             [[broker.token]]\nname = \"t\"\nsha256 = \"{digest}\"\n\
             [[broker.token]]\nname = \"o\"\nsha256 = \"{other}\"\nnetwork = \"o\"\n\
             [[network]]\nname = \"n\"\nouter = \"fd0f::\"\n",
            path("cert.pem"),
            path("key.pem"),
            path("store.sqlite"),
            path("id")
        );
        for (host, router) in [("h1", "b1"), ("h2", "b4")] {
            let address = host.replace('h', "fd10:");
            text += &format!(
                "[[network.host]]\nname = \"{host}\"\nrouter = \"{router}\"\ndevice = \"acc\"\n\
                 address = \"{address}::2\"\n"
            );
        }
        for number in 1..=4 {
            text += &format!(
                "[[network.router]]\nname = \"b{number}\"\nssh = \"[fd1f:{number}::2]:22\"\n\
                 host_key = \"{host}\"\n"
            );
        }
        for (a, b) in LINKS {
            let end = |near: u8, far: u8| {
                let address = format!("fd10:{a}{b}::{near}");
                format!("{{ router = \"b{near}\", device = \"to{far}\", address = \"{address}\" }}")
            };
            text += &format!(
                "[[network.link]]\nname = \"l{a}{b}\"\na = {}\nb = {}\nrate = \"100Mbit\"\n",
                end(a, b),
                end(b, a)
            );
        }
        text += "[[network]]\nname = \"o\"\nouter = \"fd0e::\"\nrouter = []\n";
        fs::write(path("broker.toml"), text).unwrap();
    }

    /// Starts a broker, and waits until it reaches all routers.
    fn start_broker(&self) -> KilledAtEnd {
        let mut command = self.inside("mg", &self.weir);
        command.args(["broker", "run", &self.path("broker.toml")]);
        let log = fs::File::create(self.path("broker.log")).unwrap();
        let broker = command.stderr(log).spawn().unwrap();
        let reachable = || {
            let networks = self.weir(&["network", "--json"]);
            let networks: Value = serde_json::from_slice(&networks.stdout).unwrap_or_default();
            let named = networks.as_array().into_iter().flatten().find(|of| of["name"] == "n");
            let routers =
                named.and_then(|of| of["routers"].as_array()).cloned().unwrap_or_default();
            routers.len() == 4 && routers.iter().all(|router| router["reachable"] == true)
        };
        let said = || fs::read_to_string(self.path("broker.log")).unwrap_or_default();
        let broker = KilledAtEnd(broker);
        assert!(soon(reachable), "{}", said());
        broker
    }

    fn weir(&self, words: &[&str]) -> Output {
        let mut command = self.inside("mg", &self.weir);
        command.args(words).env("WEIR_BROKER", "https://[fd1f:1::1]:8443");
        command.env("WEIR_BROKER_CA", self.path("cert.pem")).env("WEIR_TOKEN", "secret");
        command.output().unwrap()
    }

    /// Runs `weir`, which must succeed, and returns its JSON.
    fn json(&self, words: &[&str]) -> Value {
        let output = self.weir(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Asks for a connection for all packets from end node to end node, or for those to a port.
    fn create(&self, rate: &str, port: Option<&str>) -> Output {
        let words = ["--network", "n", "--from", "h1", "--to", "h2", "--rate", rate, "--json"];
        let port = port.map(|port| ["--protocol", "udp", "--to-port", port]);
        let port = port.as_ref().map(<[_; 4]>::as_slice).unwrap_or_default();
        self.weir(&[&["connection", "create"][..], &words, port].concat())
    }

    fn sh(&self, node: &str, line: &str) -> String {
        let output = self.inside(node, "sh").args(["-c", line]).output().unwrap();
        assert!(output.status.success(), "{node}: {line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Pings from end node to end node while `work` runs; returns the pings that were lost.
    fn pinged<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let mut command = self.inside("h1", "ping");
        command.args(["-q", "-i", "0.002", "fd10:2::2"]).stdout(Stdio::piped());
        let ping = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let done = work();
        std::thread::sleep(Duration::from_millis(200));
        // At this signal it prints its counts.
        let pid = ping.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let said = String::from_utf8(ping.wait_with_output().unwrap().stdout).unwrap();
        let line = said.lines().find(|line| line.contains("packets transmitted")).unwrap();
        let mut counts = line.split(' ').filter_map(|word| word.parse::<u64>().ok());
        let (sent, received) = (counts.next().unwrap(), counts.next().unwrap());
        assert!(sent > 50, "{said}");
        // The last one may still be under way.
        (done, (sent - received).saturating_sub(1))
    }

    /// Visits the page with a browser, as an administrator and as another network's.
    fn visit_page(&self) {
        let mut flow = self.inside("h1", "ping");
        flow.args(["-q", "-i", "0.002", "-s", "1000", "fd10:2::2"]).stdout(Stdio::null());
        let _flow = KilledAtEnd(flow.spawn().unwrap());
        let url = "https://[fd1f:1::1]:8443/#token=secret";
        let words = [&self.path("pictures"), "h1", "h2", "20Mbit", "500Mbit", "other"];
        let Some(samples) = browser::visit(self.inside("mg", "node"), url, &words) else { return };
        assert_eq!(samples.keys().filter(|name| name.starts_with("axe/")).count(), 24);
        for (name, value) in [
            ("routers", 4),
            ("taken", 1),
            ("marked", 2),
            ("reserved", 0),
            ("changed", 1),
            ("held", 1),
            ("renewed", 1),
            // Each direction of each link.
            ("faults", 8),
            ("restored", 1),
            ("history", 6),
            ("left", 0),
        ] {
            assert_eq!(samples[name], value, "{name}: {samples:?}");
        }
        // Both links of the path carry the pings; others may have discovery of neighbours.
        assert!(samples["rates"] >= 2, "{samples:?}");
    }

    /// An end node cannot send into tunnels itself, by which it would use their guarantee.
    fn is_guarded(&self) {
        let outer = self.sh("b1", "ip -6 route show table 2000001 | grep -o '^fd0f[^ ]*'");
        let said = self.sh("h1", &format!("ping -c 1 -W 1 {}; true", outer.trim()));
        assert!(said.contains("Destination unreachable: Administratively prohibited"), "{said}");
    }

    /// Root at a router can refuse the broker there, and there alone: it goes on elsewhere, says
    /// why, and answers whoever asks for a path that needs the router.
    fn goes_on_without(&self, router: &str, links: [&Value; 2]) {
        let newest = format!("ls -t /run/weir/fence-????????????????-{router} | head -n 1");
        let file = self.sh(router, &newest).trim().to_owned();
        let number = fs::read_to_string(&file).unwrap();
        fs::write(&file, "99999999\n").unwrap();
        let state = || {
            let networks = self.json(&["network", "--json"]);
            let all = networks.as_array().into_iter().flatten();
            let mut routers = all.flat_map(|of| of["routers"].as_array().into_iter().flatten());
            routers.find(|of| of["name"] == router).cloned().unwrap_or_default()
        };
        let why = || state()["fault"].as_str().unwrap_or_default().to_owned();
        assert!(soon(|| why().ends_with("a broker with a later lease")), "{}", state());
        for link in links {
            // One of the two paths has the router.
            let words = ["--network", "n", "--from", "h1", "--to", "h2", "--rate", "1Mbit"];
            let avoid = ["--avoid", link.as_str().unwrap(), "--json"];
            let made = self.weir(&[&["connection", "create"][..], &words, &avoid].concat());
            let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_default();
            if let Some(id) = made[0]["id"].as_str() {
                assert!(self.weir(&["connection", "remove", id]).status.success());
            }
        }
        fs::write(&file, number).unwrap();
        assert!(soon(|| state()["reachable"] == true), "{}", state());
        assert!(soon(|| self.traces().is_empty()), "{}", self.traces());
    }

    /// Returns what the routers have of the broker's.
    fn traces(&self) -> String {
        let line = "ip -6 route show table all proto 87; \
                    ip -6 rule show | grep 'proto 87' | grep -v -e ^32000: -e ^30[02]00:; \
                    ip -o link show type veth | grep -o 'wc[0-9]*x*@'; \
                    nft list tables | grep -v weir_tunnels; nft list ruleset | grep elements; true";
        ROUTERS.iter().map(|router| self.sh(router, line)).collect()
    }
}

#[test]
fn a_connection_is_made_used_moved_repaired_and_removed() {
    let Some(network) = Network::up() else { return };
    let mut broker = network.start_broker();
    let begun = Instant::now();
    let made = network.create("20Mbit", None);
    assert!(made.status.success(), "{made:?}");
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    println!("made in {:?}: {}", begun.elapsed(), made[0]["took"]);
    let id = made[0]["id"].as_str().unwrap();
    assert_eq!(made[0]["state"], "active");
    network.sh("h1", "ping -q -c 3 -i 0.05 fd10:2::2");
    let report = network.json(&["connection", "report", id, "--json"]);
    assert!(report[0]["passed_packets"].as_u64().unwrap() >= 3, "{report}");
    // Whole at 1460 bytes; one more gets Packet Too Big.
    network.sh("h1", "ping -q -c 1 -M do -s 1412 fd10:2::2");
    network.sh("h1", "! ping -q -c 1 -W 1 -M do -s 1413 fd10:2::2 || exit 1");
    network.is_guarded();
    let refused = network.create("500Mbit", Some("1"));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let rate = said
        .split("; ")
        .find_map(|part| part.trim().strip_prefix("rate ")?.strip_suffix(" would be admitted"));
    let other = network.create(rate.unwrap(), Some("1"));
    assert!(other.status.success(), "{other:?}");
    let other: Value = serde_json::from_slice(&other.stdout).unwrap();
    let other = other[0]["id"].as_str().unwrap();
    assert!(network.weir(&["connection", "remove", other]).status.success());

    // Set-up and removal, ten times in a row.
    let mut times: Vec<f64> = (0..10)
        .map(|_| {
            let made: Value = serde_json::from_slice(&network.create("1Mbit", Some("1")).stdout)
                .unwrap_or_default();
            let id = made[0]["id"].as_str().unwrap();
            assert!(network.weir(&["connection", "remove", id]).status.success());
            made[0]["took"]["total_ms"].as_f64().unwrap()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("set-up: median {:.1} ms, most {:.1} ms", times[5], times[9]);

    // Make before break: nothing is lost, and the path is another one.
    let before = made[0]["tunnels"][0]["links"].clone();
    let words = ["connection", "change", id, "--avoid", before[0].as_str().unwrap(), "--json"];
    let (moved, lost) = network.pinged(|| network.json(&words));
    assert_ne!(moved[0]["tunnels"][0]["links"], before);
    assert_eq!(lost, 0, "pings lost while the path changed");

    // Somebody deletes a route of ours: it comes back. A foreign one stays.
    network.sh("b1", "ip -6 route add fd77::/64 dev lo && ip -6 route flush table 2000001");
    let back = || network.sh("b1", "ip -6 route show table 2000001 2>&1; true").contains("seg6");
    assert!(soon(back), "{}", network.traces());
    assert!(network.sh("b1", "ip -6 route show").contains("fd77::/64"));

    // The broker dies: nothing is lost, and the next one has the connection.
    let (_, lost) = network.pinged(|| {
        broker.end();
        broker = network.start_broker();
    });
    assert_eq!(lost, 0, "pings lost while the broker was away");
    let all = network.json(&["connection", "list", "--json"]);
    assert_eq!((&all[0]["id"], &all[0]["state"]), (&made[0]["id"], &Value::from("active")));
    assert!(network.weir(&["connection", "remove", id]).status.success());
    assert_eq!(network.traces(), "");
    network.goes_on_without("b2", [&before[0], &moved[0]["tunnels"][0]["links"][0]]);
    network.visit_page();
    assert_eq!(network.traces(), "");
    broker.end();
}
