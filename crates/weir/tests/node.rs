// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program as an operator uses it: a lab, a node in it, neighbours that find each other.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Who asks for an address by broadcast is answered in both directions; a tenant does not reach
/// another's slice inside the node; the end leaves the devices as they were.
#[test]
fn neighbours_find_each_other_through_a_node() {
    let Some(site) = Site::up("weir-t-arp") else { return };
    let before = site.devices();
    let node = site.run(&[]);
    site.wait_for_node();
    let mut capture = site.command(&["capture", "gold.0"]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(site.ping("gold", "10.9.0.9"), "from the tenant");
    // Killed like by Ctrl-C: what was seen is there, whole.
    capture.kill().unwrap();
    let captured = capture.wait_with_output().unwrap().stdout;
    assert!(captured.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "a section header of pcapng");
    let pings = captured.windows(4).filter(|at| *at == [10, 9, 0, 9]).count();
    assert!(pings >= 3, "{pings} addresses in {} bytes", captured.len());
    assert!(site.ping("wire", "10.9.0.2"), "towards a tenant that nobody has heard of");
    assert!(!site.ping("gold", "10.9.0.2"), "slices do not meet inside the node");
    let status = site.weir(&["node", "status"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["vifs"][0]["name"], "gold.0");
    assert_ne!(status["vifs"][0]["send"]["sent"]["packets"], 0);
    assert!(site.weir(&["node", "stop"]).status.success());
    assert!(node.wait_with_output().unwrap().status.success());
    site.is_again(&before);
}

/// A node that nobody confirms undoes what it did; one that is confirmed stays.
#[test]
fn a_node_that_is_not_confirmed_undoes_itself() {
    let Some(site) = Site::up("weir-t-confirm") else { return };
    let before = site.devices();
    let start = Instant::now();
    let ended = site.run(&["--confirm", "1s"]).wait_with_output().unwrap();
    // A status of its own: a script must know that the node is not there.
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("not confirmed within 1 s"));
    site.is_again(&before);
    let mut node = site.run(&["--confirm", "1s"]);
    site.wait_for_node();
    assert!(site.weir(&["node", "confirm"]).status.success());
    std::thread::sleep(Duration::from_millis(1500));
    assert!(node.try_wait().unwrap().is_none(), "confirmed, and it ended");
    assert!(site.weir(&["node", "stop"]).status.success());
    assert!(node.wait().unwrap().success());
}

/// The plan names what is missing and what would be done, and does none of it.
#[test]
fn a_dry_run_touches_nothing() {
    let Some(site) = Site::up("weir-t-dry") else { return };
    let before = site.devices();
    let plan = site.run(&["--dry-run"]).wait_with_output().unwrap();
    assert!(plan.status.success(), "{plan:?}");
    assert!(String::from_utf8_lossy(&plan.stdout).contains("up0"));
    std::fs::write(site.config(), POLICY.replace("gold0", "lead0")).unwrap();
    let plan = site.run(&["--dry-run"]).wait_with_output().unwrap();
    assert_eq!(plan.status.code(), Some(1));
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(text.contains("NOT POSSIBLE") && text.contains("lead0"), "{text}");
    site.is_again(&before);
}

/// A lab with a node to run in it; gone with the value.
struct Site {
    name: String,
    folder: PathBuf,
}

impl Site {
    /// `None` without root, after saying so.
    fn up(name: &str) -> Option<Self> {
        if !weir_host::process::is_root() {
            println!("SKIPPED {name}: needs root for network namespaces");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let site = Self { name: name.to_owned(), folder };
        std::fs::write(site.config(), POLICY).unwrap();
        std::fs::write(site.topology(), TOPOLOGY.replace("NAME", name)).unwrap();
        let up = site.weir(&["lab", "up", &site.topology()]);
        assert!(up.status.success(), "{up:?}");
        let start = Instant::now();
        while site.devices().matches("state UP").count() < 3 {
            assert!(start.elapsed() < Duration::from_secs(3), "{}", site.devices());
        }
        Some(site)
    }

    fn config(&self) -> String {
        format!("{}/node.toml", self.folder.display())
    }

    fn topology(&self) -> String {
        format!("{}/lab.toml", self.folder.display())
    }

    fn weir(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).env("WEIR_STATE", &self.folder);
        command
    }

    /// `weir node run` in the switch's namespace.
    fn run(&self, arguments: &[&str]) -> Child {
        let mut command = self.inside("sw", env!("CARGO_BIN_EXE_weir"));
        command.args(["node", "run", "--config", &self.config()]).args(arguments);
        command.env("WEIR_STATE", &self.folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn wait_for_node(&self) {
        let start = Instant::now();
        while !self.weir(&["node", "status"]).status.success() {
            assert!(start.elapsed() < Duration::from_secs(20), "the node does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ping(&self, from: &str, to: &str) -> bool {
        let mut ping = self.inside(from, "ping");
        ping.args(["-q", "-c", "3", "-i", "0.2", "-W", "1", to]).output().unwrap().status.success()
    }

    /// The switch's devices are as they were; their carriers take a while to say so.
    fn is_again(&self, before: &str) {
        let start = Instant::now();
        while self.devices() != before && start.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.devices(), before);
    }

    /// Devices and queueing disciplines of the switch's namespace, as text.
    fn devices(&self) -> String {
        let links = self.inside("sw", "ip").args(["-d", "link", "show"]).output().unwrap();
        let queues = self.inside("sw", "tc").args(["qdisc", "show"]).output().unwrap();
        let text = [links.stdout, queues.stdout].concat();
        String::from_utf8(text).unwrap()
    }

    fn inside(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{node}", self.name), program]);
        command
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.weir(&["lab", "down", &self.topology()]);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const TOPOLOGY: &str = r#"
name = "NAME"
node = [{ name = "gold" }, { name = "lead" }, { name = "sw" }, { name = "wire" }]

[[link]]
a = { at = "gold:eth0", addresses = ["10.9.0.1/24"] }
b = "sw:gold0"

[[link]]
a = { at = "lead:eth0", addresses = ["10.9.0.2/24"] }
b = "sw:lead1"

[[link]]
a = { at = "wire:eth0", addresses = ["10.9.0.9/24"] }
b = "sw:up0"
"#;

const POLICY: &str = r#"
version = 1

[[port]]
name = "up0"
rate = "100Mbit"

[[slice]]
name = "gold"

[[slice]]
name = "lead"

[[vif]]
name = "gold.0"
slice = "gold"
device = "gold0"

[[vif]]
name = "lead.0"
slice = "lead"
device = "lead1"
"#;
