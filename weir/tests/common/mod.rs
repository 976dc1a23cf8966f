// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab that tests of a running node share, with a node to run in it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for something that comes at once: on a machine whose own host has other tenants, a
/// processor stands still for seconds at times.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns true as soon as it holds, or false after [`PATIENCE`].
pub fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() >= PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A lab with a Weir node in its namespace `sw`. It is removed when the value is dropped.
pub struct NodeLab {
    name: String,
    folder: PathBuf,
    started: AtomicU32,
}

/// A program that runs beside the test. What it says goes to files: a pipe that nobody reads would
/// stop it once it is full.
pub struct Running {
    child: Child,
    /// Standard output, standard error.
    said: [PathBuf; 2],
}

impl NodeLab {
    /// A lab of that name and topology, its devices up. `None` without root, after saying so.
    pub fn up(name: &str, topology: &str, policy: &str) -> Option<Self> {
        if !weir_platform::process::is_root() {
            println!("SKIPPED {name}: needs root for network namespaces");
            return None;
        }
        println!("ON THE HOST");
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let lab = Self { name: name.to_owned(), folder, started: AtomicU32::new(0) };
        lab.write(policy);
        std::fs::write(lab.path("lab.toml"), topology.replace("NAME", name)).unwrap();
        let up = lab.lab(&["up", &lab.path("lab.toml")]);
        assert!(up.status.success(), "{up:?}");
        let all_up = || {
            let devices = lab.devices();
            let [links, up] = ["@if", "state UP"].map(|what| devices.matches(what).count());
            links > 0 && up == links
        };
        assert!(soon(all_up), "{}", lab.devices());
        Some(lab)
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file of this lab.
    pub fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.folder.display())
    }

    /// Replaces the policy file.
    pub fn write(&self, policy: &str) {
        std::fs::write(self.path("node.toml"), policy).unwrap();
    }

    /// `weir` to its end.
    pub fn weir(&self, arguments: &[&str]) -> Output {
        self.command(&weir()).args(arguments).output().unwrap()
    }

    /// `weir-lab lab` to its end.
    fn lab(&self, arguments: &[&str]) -> Output {
        self.command(&weir_lab()).arg("lab").args(arguments).output().unwrap()
    }

    /// A program that shares this lab's state.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("WEIR_STATE", &self.folder);
        command
    }

    /// A program in the namespace of a node.
    pub fn inside(&self, node: &str, program: &str) -> Command {
        let mut command = self.command("ip");
        command.args(["netns", "exec", &format!("{}-{node}", self.name), program]);
        command
    }

    /// Runs a line, such as `ip link set br0 up`, in the switch's namespace.
    pub fn does(&self, line: &str) {
        let (program, words) = line.split_once(' ').unwrap();
        let done = self.inside("sw", program).args(words.split(' ')).output().unwrap();
        assert!(done.status.success(), "{line}: {done:?}");
    }

    /// Makes the bridge `br0` with these members. Takes the lab's own disciplines, which would be
    /// in the way, from them and from the devices that join later.
    pub fn bridge(&self, members: &[&str], later: &[&str]) {
        self.does("ip link add br0 type bridge");
        self.does("ip link set br0 up");
        for device in members.iter().chain(later) {
            let delete = ["qdisc", "del", "dev", device, "root"];
            let _may_be_none = self.inside("sw", "tc").args(delete).output().unwrap();
        }
        members.iter().for_each(|device| self.does(&format!("ip link set {device} master br0")));
    }

    /// Starts a program beside the test.
    pub fn start(&self, command: Command) -> Running {
        self.start_by(command, |mut command| command.spawn().unwrap())
    }

    /// The same, started in a way of its own.
    pub fn start_by(&self, mut command: Command, spawn: impl FnOnce(Command) -> Child) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let said = ["out", "err"].map(|stream| self.folder.join(format!("said-{number}.{stream}")));
        let [out, err] = [&said[0], &said[1]].map(|path| std::fs::File::create(path).unwrap());
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        Running { child: spawn(command), said }
    }

    /// `weir node run` in the switch's namespace.
    pub fn run(&self, arguments: &[&str]) -> Running {
        let mut command = self.inside("sw", &weir());
        command.args(["node", "run", "--config", &self.path("node.toml")]).args(arguments);
        self.start(command)
    }

    /// `weir capture` of a vif, once it runs: what was sent before would not be in it.
    pub fn capture(&self, vif: &str) -> Running {
        let mut command = self.command(&weir());
        command.args(["capture", vif]);
        let capture = self.start(command);
        assert!(soon(|| !capture.said().is_empty()), "no header of a capture");
        capture
    }

    /// Waits until the node answers.
    pub fn wait_for_node(&self) {
        let answers = || self.weir(&["node", "status"]).status.success();
        assert!(soon(answers), "the node does not start");
    }

    /// Ends the node, which undoes everything.
    pub fn stop(&self, node: Running) {
        assert!(self.weir(&["node", "stop"]).status.success());
        let ended = node.end();
        assert!(ended.status.success(), "{ended:?}");
    }

    /// Returns the node's status.
    pub fn status(&self) -> Value {
        serde_json::from_slice(&self.weir(&["node", "status"]).stdout).unwrap()
    }

    /// Returns true as soon as an echo comes back: there is a way.
    pub fn reaches(&self, from: &str, to: &str) -> bool {
        soon(|| self.ping(from, to))
    }

    /// Returns true if one of three echoes comes back; false shows that there is no way.
    pub fn ping(&self, from: &str, to: &str) -> bool {
        let mut ping = self.inside(from, "ping");
        ping.args(["-q", "-c", "3", "-i", "0.2", "-W", "1", to]).output().unwrap().status.success()
    }

    /// The switch's devices are as they were; their carriers take a while to say so.
    pub fn is_again(&self, before: &str) {
        soon(|| self.devices() == before);
        assert_eq!(self.devices(), before);
    }

    /// The lines of [`Self::devices`] that are about one of them.
    pub fn device(&self, name: &str, all: &str) -> String {
        let mut text = String::new();
        let mut here = false;
        for line in all.lines() {
            let about =
                line.contains(&format!(" {name}@")) || line.contains(&format!("dev {name} "));
            here = about || (here && line.starts_with(' '));
            if here {
                text += line;
                text += "\n";
            }
        }
        text
    }

    /// Devices and queueing disciplines of the switch's namespace, as text.
    pub fn devices(&self) -> String {
        let links = self.inside("sw", "ip").args(["-d", "link", "show"]).output().unwrap();
        let queues = self.inside("sw", "tc").args(["qdisc", "show"]).output().unwrap();
        let text = [links.stdout, queues.stdout].concat();
        String::from_utf8(text).unwrap()
    }
}

impl Running {
    /// Returns its standard output so far.
    pub fn said(&self) -> Vec<u8> {
        std::fs::read(&self.said[0]).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns true unless it has ended.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it as Ctrl-C and a service manager do.
    pub fn terminate(self) -> Output {
        weir_platform::process::terminate(&self.child);
        self.end()
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) -> Output {
        self.child.kill().unwrap();
        self.end()
    }

    /// Waits for its end. One that does not end is killed, which its status says.
    pub fn end(mut self) -> Output {
        if !soon(|| !self.is_alive()) {
            self.child.kill().unwrap();
        }
        let status = self.child.wait().unwrap();
        let [stdout, stderr] = [0, 1].map(|stream| std::fs::read(&self.said[stream]).unwrap());
        Output { status, stdout, stderr }
    }
}

/// One that a failed assertion leaves behind goes with the test: a node undoes what it did.
impl Drop for Running {
    fn drop(&mut self) {
        let alive = |running: &mut Self| matches!(running.child.try_wait(), Ok(None));
        if alive(self) {
            weir_platform::process::terminate(&self.child);
            if !soon(|| !alive(self)) {
                let _killed = self.child.kill();
                let _ended = self.child.wait();
            }
        }
    }
}

impl Drop for NodeLab {
    fn drop(&mut self) {
        self.weir(&["node", "stop"]);
        self.lab(&["down", &self.path("lab.toml")]);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The path of `weir`.
pub fn weir() -> String {
    program("weir")
}

/// The path of `weir-lab`, the program that builds labs and measures.
pub fn weir_lab() -> String {
    program("weir-lab")
}

/// A program of this workspace, which stands a folder above its tests.
fn program(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join(name);
    assert!(path.is_file(), "no {}: cargo build --package {name}", path.display());
    path.to_str().unwrap().to_owned()
}

/// A lab: two tenants, a wire, and the node between them.
pub const TOPOLOGY: &str = r#"
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

/// The beginning of a policy for the kernel's data plane, on the bridge that [`NodeLab::bridge`]
/// makes.
pub const ON_A_BRIDGE: &str = r#"
version = 1

[node]
dataplane = "kernel"

[[port]]
name = "up0"
bridge = "br0"
rate = "100Mbit"
"#;

/// A slice and a vif for each tenant.
pub const POLICY: &str = r#"
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

/// A BPF file system in the lab's state folder, since `ip netns exec` hides the system's.
pub struct BpfSystem(String);

impl BpfSystem {
    /// Mounts it until the value is dropped.
    pub fn mount(lab: &NodeLab) -> Self {
        let folder = lab.path("bpf");
        std::fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", &folder]).status();
        assert!(mounted.unwrap().success());
        Self(folder)
    }

    /// Returns the files of nodes there; the kernel has files of its own.
    pub fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("weir")).collect()
    }

    /// Returns the devices, by number, whose stand-ins nodes keep there.
    pub fn stand_ins(&self) -> Vec<String> {
        let folders = self.left().into_iter().map(|node| format!("{}/{node}/stand-ins", self.0));
        let entries = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for BpfSystem {
    fn drop(&mut self) {
        let _ended = Command::new("umount").arg(&self.0).status();
    }
}

/// Three tenants and the network around the node `sw`: no offloads, and neighbours that are known.
pub const FOUR_ENDS: &str = r#"
name = "NAME"
node = [{ name = "a" }, { name = "b" }, { name = "c" }, { name = "sw" }, { name = "wire" }]

[[link]]
b = "sw:a0"
[link.a]
at = "a:eth0"
mac = "02:00:00:00:09:01"
addresses = ["10.9.0.1/24"]
offloads = false
[link.a.neighbours]
"10.9.0.9" = "02:00:00:00:09:09"
"10.9.0.3" = "02:00:00:00:09:03"

[[link]]
b = "sw:b0"
[link.a]
at = "b:eth0"
mac = "02:00:00:00:09:02"
addresses = ["10.9.0.2/24"]
offloads = false
[link.a.neighbours]
"10.9.0.9" = "02:00:00:00:09:09"

[[link]]
b = "sw:c0"
[link.a]
at = "c:eth0"
mac = "02:00:00:00:09:03"
addresses = ["10.9.0.3/24"]
offloads = false
[link.a.neighbours]
"10.9.0.1" = "02:00:00:00:09:01"

[[link]]
b = "sw:up0"
[link.a]
at = "wire:eth0"
mac = "02:00:00:00:09:09"
addresses = ["10.9.0.9/24"]
offloads = false
[link.a.neighbours]
"10.9.0.1" = "02:00:00:00:09:01"
"10.9.0.2" = "02:00:00:00:09:02"
"#;

/// The tenants a and b of [`FOUR_ENDS`] in one slice, c in another.
pub const FOUR_ENDS_POLICY: &str = r#"
version = 1

[[port]]
name = "up0"
kind = "xdp"
rate = "1Gbit"

[[slice]]
name = "gold"

[[slice]]
name = "lead"

[[vif]]
name = "c.0"
slice = "lead"
device = "c0"
kind = "xdp"
mac = ["02:00:00:00:09:03"]

[[vif]]
name = "a.0"
slice = "gold"
device = "a0"
kind = "xdp"
mac = ["02:00:00:00:09:01"]

[[vif]]
name = "b.0"
slice = "gold"
device = "b0"
kind = "xdp"
mac = ["02:00:00:00:09:02"]
"#;
