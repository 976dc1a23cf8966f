// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A controller that sets up each flow: os-ken with the application
//! `lab/scenarios/em/controller.py`, and Open vSwitch in place of the routers.
//!
//! Each switch is a process of its own, with the user-space data path: the kernel's is a module
//! that not every machine has. Queues of OpenFlow need the kernel's data path, so that here only
//! meters can guarantee a flow its rate: they police the others.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Client, Method};
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_experiment::weir_program::spawn_logged;
use weir_experiment::{build_lab, clock};
use weir_platform::StateDir;
use weir_platform::run::Command;
use weir_testbed::Lab;
use weir_traffic::Mac;

use super::measure::{
    AskedPath, ByPort, ChangeOrder, ComparisonScale, FLOOD_PORT, MiddleNode, NODES, PORT,
    PathSetter, guarantee, limit_links, set_ups, skipped, take_frames, use_paths,
};
use crate::em::broker_lab::{EndedChild, NAME, device_mac, run_at};
use crate::em::tables::{DESTINATION, SOURCE};
use crate::em::timed::timed_post;
use crate::peers::OpenVSwitch;

/// Measures the controller.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    if !OpenVSwitch::is_installed() || !Path::new(MANAGER).exists() {
        skipped(
            rec,
            "OpenFlow",
            "Debian's openvswitch-switch and python3-os-ken are not installed",
        );
        return Ok(());
    }
    let lab = OpenFlowLab::up()?;
    take_frames()?;
    limit_links(rec)?;
    let mut setter = FlowSetter { controller: lab.controller(), set_up: ByPort::new() };
    set_ups(rec, &mut setter)?;
    rec.within("unasked/", |rec| unasked(rec, &lab, &mut setter))?;
    use_paths(rec, &mut setter)?;
    setter.remove(FLOOD_PORT)?;
    // The rest of the link beside the application's fifth, and some room.
    let rest = BitRate::from_bps(ComparisonScale::of(rec).link_percent(70));
    rec.within("metered/", |rec| guarantee(rec, &mut setter, Some(rest)))?;
    lab.down()
}

/// Sends packets that nobody announced, one at a time and a hundred at once, and times their way.
fn unasked(rec: &mut Recording<'_>, lab: &OpenFlowLab, setter: &mut FlowSetter) -> Result {
    let (mut took, flows) = (Vec::new(), ComparisonScale::of(rec).set_ups);
    for number in 0..flows {
        let [seconds] = lab.first_packets([PORT + number])?[..] else { continue };
        took.push(seconds);
        setter.remove_known(PORT + number)?;
    }
    let arrived = took.iter().filter(|seconds| seconds.is_finite()).count() as u64;
    let text = "first packets that arrived, of flows one at a time";
    rec.count("arrived", text, arrived, Bound::equal(f64::from(flows)))?;
    rec.keep("first", Series::unordered("s", took))?;
    let ports = (0..BURST).map(|number| PORT + number);
    let took = lab.first_packets(ports.clone())?;
    let arrived: Vec<f64> = took.into_iter().filter(|seconds| seconds.is_finite()).collect();
    ports.clone().try_for_each(|port| setter.remove_known(port))?;
    let last = arrived.iter().copied().fold(0.0, f64::max);
    rec.say(&format!("{} of {BURST} new flows at once, the last after {last:.3} s", arrived.len()));
    rec.keep("at-once/arrived", Series::count("1", arrived.len() as u64))?;
    rec.keep("at-once/last", Series::unordered("s", vec![last]))
}

/// The switches, the controller and the network under them. All is gone with this value.
struct OpenFlowLab {
    // Ends before the namespaces do.
    _controller: EndedChild,
    _switches: Vec<OpenVSwitch>,
    lab: Lab,
    place: RunFolder,
}

impl OpenFlowLab {
    fn up() -> Result<Self> {
        weir_traffic::stop_on_signals()?;
        let place = RunFolder::take(NAME, &StateDir::from_env())?;
        let lab = build_lab(TOPOLOGY, &place)?;
        for [node, other, address] in
            [["bh1", "bh2", DESTINATION_TEXT], ["bh2", "bh1", SOURCE_TEXT]]
        {
            // The controller does not resolve neighbours here. Offload is off since a packet socket
            // gets frames whose checksum the sender left to its device.
            let mac = device_mac(other, "eth0")?;
            let line = format!("ip -6 neigh replace {address} lladdr {mac} dev eth0 nud permanent");
            run_at(node, Command::line(&line))?;
            run_at(node, Command::line("ethtool -K eth0 tx off"))?;
        }
        let controller = start_controller(&lab, &place)?;
        let mut switches = Vec::new();
        for (index, name) in NODES.iter().enumerate() {
            let folder = place.folder().join(name);
            let switch = OpenVSwitch::start(&lab.namespace(name)?, folder, &[])?;
            let mut line = format!(
                "add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure \
                 protocols=OpenFlow13 other-config:datapath-id={number:016x} \
                 other-config:disable-in-band=true",
                number = index + 1
            );
            for device in devices(name)? {
                line += &format!(" -- add-port br0 {device}");
            }
            line += &format!(" -- set-controller br0 tcp:[fd1f:{}::1]:6653", index + 1);
            switch.ask(line.split_whitespace())?;
            switches.push(switch);
        }
        let built = Self { _controller: controller, _switches: switches, lab, place };
        built.wait()?;
        Ok(built)
    }

    /// Waits until the controller knows all switches.
    fn wait(&self) -> Result {
        let known = clock::wait_for(STARTED_WITHIN, POLL, || {
            let client = Client::new(&self.controller());
            let known: Result<Vec<String>, _> = client.get("/switches");
            Ok((known.is_ok_and(|known| known == NODES)).then_some(()))
        })?;
        let log = self.place.folder().join("controller.log");
        let said = std::fs::read_to_string(log).unwrap_or_default();
        known.ok_or_else(|| {
            ExperimentError::Node(format!("the controller does not know all switches: {said}"))
        })
    }

    fn controller(&self) -> PathBuf {
        self.place.folder().join(SOCKET)
    }

    /// Sends a packet to each port at once, and returns after how many seconds each arrived;
    /// infinite for one that did not.
    fn first_packets(&self, ports: impl IntoIterator<Item = u16>) -> Result<Vec<f64>> {
        let ports: Vec<u16> = ports.into_iter().collect();
        let broken = |error| ExperimentError::io("UDP", error);
        let listen = || ports.iter().map(|port| UdpSocket::bind((DESTINATION, *port))).collect();
        let sockets: std::io::Result<Vec<UdpSocket>> = self.lab.namespace("bh2")?.run(listen)?;
        let sockets = sockets.map_err(broken)?;
        let sender = self.lab.namespace("bh1")?.run(|| UdpSocket::bind((SOURCE, 0)))?;
        let sender = sender.map_err(broken)?;
        let begun = Instant::now();
        for port in &ports {
            sender.send_to(b"first", (DESTINATION, *port)).map_err(broken)?;
        }
        std::thread::scope(|scope| {
            let wait = |socket: UdpSocket| {
                scope.spawn(move || {
                    socket.set_read_timeout(Some(FIRST_WITHIN))?;
                    // A timeout is an error, too.
                    let arrived = socket.recv(&mut [0; 16]).is_ok();
                    Ok(if arrived { begun.elapsed().as_secs_f64() } else { f64::INFINITY })
                })
            };
            let waiting: Vec<_> = sockets.into_iter().map(wait).collect();
            let joined = waiting.into_iter().map(|thread| weir_experiment::joined(thread));
            joined.collect::<std::io::Result<Vec<f64>>>().map_err(broken)
        })
    }

    fn down(self) -> Result {
        let Self { _controller, _switches, lab, place: _place } = self;
        drop((_controller, _switches));
        lab.down()?;
        Ok(())
    }
}

fn start_controller(lab: &Lab, place: &RunFolder) -> Result<EndedChild> {
    let file = |name: &str| place.folder().join(name);
    let program = file("controller.py");
    std::fs::write(&program, CONTROLLER).map_err(|error| ExperimentError::io(&program, error))?;
    let numbered: serde_json::Map<String, Value> = NODES
        .iter()
        .enumerate()
        .map(|(index, name)| ((index + 1).to_string(), json!(name)))
        .collect();
    let hosts = json!({ SOURCE_TEXT: "bh1", DESTINATION_TEXT: "bh2" });
    let mut command = Process::new(MANAGER);
    command.args(["--ofp-listen-host", "::", "--ofp-tcp-listen-port", "6653"]).arg(&program);
    command.env("WEIR_SWITCHES", Value::from(numbered).to_string());
    command.env("WEIR_HOSTS", hosts.to_string()).env("WEIR_SOCKET", file(SOCKET));
    // Python keeps compiled files beside its sources otherwise.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let log = file("controller.log");
    Ok(EndedChild(spawn_logged(&lab.namespace("mg")?, command, &log)?))
}

/// Returns the devices of a switch between it and other switches or end nodes.
fn devices(switch: &str) -> Result<Vec<String>> {
    let said = run_at(switch, Command::line("ip -o link show type veth"))?;
    let names = said.lines().filter_map(|line| line.split([':', '@']).nth(1));
    let names = names.map(|name| name.trim().to_owned());
    Ok(names.filter(|name| name != "mg").collect())
}

/// Flows that the controller is asked for.
struct FlowSetter {
    controller: PathBuf,
    set_up: ByPort<()>,
}

impl FlowSetter {
    fn client(&self) -> Client {
        Client::new(&self.controller)
    }

    fn ask(&mut self, body: &Value) -> Result<f64> {
        let (_, took_ms) = timed_post(&self.client(), "/flows", body)?;
        Ok(took_ms / 1e3)
    }

    /// Removes a flow that the controller set up by itself, if it did.
    fn remove_known(&mut self, port: u16) -> Result {
        self.set_up.insert(port, ());
        self.remove(port)
    }
}

impl PathSetter for FlowSetter {
    /// Asks for a path alone, since the controller has no rates.
    fn set_up(&mut self, AskedPath { port, over, .. }: AskedPath) -> Result<f64> {
        self.set_up.insert(port, ());
        self.ask(&flow(port, over))
    }

    fn move_over(&mut self, port: u16, over: MiddleNode, order: ChangeOrder) -> Result {
        let ordered = order == ChangeOrder::MadeFirst;
        let body = json!({ "avoid": [over.other().name()], "ordered": ordered });
        self.client().ask::<Value>(Method::PUT, &format!("/flows/{port}"), Some(&body))?;
        Ok(())
    }

    fn remove(&mut self, port: u16) -> Result {
        if self.set_up.remove(&port).is_some() {
            let path = format!("/flows/{port}");
            self.client().ask::<Value>(Method::DELETE, &path, None::<&()>)?;
        }
        Ok(())
    }

    fn left(&self) -> Result<u64> {
        let mut left = 0;
        for switch in NODES {
            let bridge = self.controller.with_file_name(switch).join("br0.mgmt");
            let words = ["-O", "OpenFlow13", "dump-flows", &format!("unix:{}", bridge.display())];
            let said = run_at(switch, Command::new("ovs-ofctl", words))?;
            left += said.lines().filter(|line| line.contains("tp_dst=")).count();
        }
        Ok(left as u64)
    }

    fn pass(&mut self, port: u16, limit: Option<BitRate>) -> Result {
        let mut flow = flow(port, MiddleNode::B2);
        if let Some(limit) = limit {
            flow["meter"] = json!(limit.as_bps() / 1000);
        }
        self.set_up.insert(port, ());
        self.ask(&flow).map(drop)
    }

    /// Returns 0: the controller limits nothing.
    fn limited(&self, _port: u16) -> Result<u64> {
        Ok(0)
    }

    fn destination_mac(&self) -> Result<Mac> {
        device_mac("bh2", "eth0")
    }
}

fn flow(port: u16, over: MiddleNode) -> Value {
    json!({
        "source": SOURCE_TEXT, "destination": DESTINATION_TEXT, "port": port,
        "avoid": [over.other().name()]
    })
}

/// Debian's python3-os-ken.
const MANAGER: &str = "/usr/bin/osken-manager";

const CONTROLLER: &str = include_str!("../../../../scenarios/em/controller.py");
const TOPOLOGY: &str = include_str!("../../../../scenarios/em/openflow-network.toml");

const SOCKET: &str = "controller.sock";

const SOURCE_TEXT: &str = "fd10:1::2";
const DESTINATION_TEXT: &str = "fd10:2::2";

/// New flows that come at once.
const BURST: u16 = 100;

const FIRST_WITHIN: Duration = Duration::from_secs(5);

const STARTED_WITHIN: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(50);
