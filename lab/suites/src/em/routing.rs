// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OSPFv3 of two networks on one physical link, by FRR on each router: the broker gives it its
//! lines, and it stays up while both root and an end node flood their own network.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::prelude::*;
use weir_experiment::{TrafficFlows, clock};
use weir_platform::run::{Command, Host, Platform};
use weir_traffic::{FrameSizes, SendMethod, SendSpec, UdpSend};

use super::broker_lab::{BrokerLab, EndedChild, parsed};
use super::comparison;
use super::shared_lab::{ROUTERS, SharedLab, frr_name};
use super::sharing::{RED, at, flood, from_root, sockets, within_share};

/// Shows it, or says what is missing.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    if !is_installed() {
        comparison::skipped(rec, "OSPFv3 of networks", "no frr here");
        return Ok(());
    }
    let shared = SharedLab::with_routing()?;
    let routing = Routing::start(&shared.lab, &ROUTERS)?;
    let broker = shared.lab.broker()?;
    rec.within("routing/", |rec| converge(&shared.lab, rec))?;
    rec.within("routing/", |rec| floods(&shared.lab, rec))?;
    rec.within("routing/", |rec| drift(&shared.lab, rec))?;
    rec.within("routing/", |rec| hung(&shared.lab, &routing, rec))?;
    broker.terminate();
    drop(routing);
    shared.down()
}

/// End nodes reach each other by what OSPFv3 has found; nobody wrote a route.
fn converge(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let begun = Instant::now();
    for (from, to) in [("bh1", "fd10:2::2"), ("rh1", "fd20:2::2")] {
        let ping = format!("ping -6 -c 1 -W 1 {to}");
        let reached = || Ok(lab.run(from, Command::line(&ping)).is_ok().then_some(()));
        let found = clock::wait_for(CONVERGED_WITHIN, POLL, reached)?;
        let late = || ExperimentError::Node(format!("{from} does not reach {to}"));
        found.ok_or_else(late)?;
    }
    let series = Series::unordered("s", vec![begun.elapsed().as_secs_f64()]);
    let text = "from the broker's start until end nodes reach each other by OSPFv3";
    rec.claim_samples("converged", text, series, Rule::Max, Bound::at_most(20.0))
}

/// Neighbours stay neighbours while blue is flooded by its root and by its end node.
fn floods(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let length = Duration::from_secs(if rec.quick { 8 } else { 30 });
    let senders = [within_share(MBIT), from_root(vec![flood(MBIT)]), from_end_node()];
    let receivers = [sockets("rh2", "[fd20:2::2]:9000")];
    let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
    let (seen, (looks, down)) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        let until = Instant::now() + length;
        let (mut looks, mut down) = (0, 0);
        while Instant::now() < until {
            looks += 1;
            down += ["b1", "b2", "r1", "r2"].iter().filter(|at| !is_full(lab, at)).count() as u64;
            clock::sleep(BETWEEN_LOOKS)?;
        }
        Ok((looks, down))
    })?;
    rec.at_least("looks", "times that all neighbours were looked at", looks, 5)?;
    rec.none("down", "neighbours found lost while blue is flooded", down)?;
    let lost = seen.packets_sent(RED).saturating_sub(seen.packets(0, RED));
    rec.none("red", "packets that red lost meanwhile, on routes of OSPFv3", lost)
}

/// Somebody changes a line: it comes back, and a line of others stays.
fn drift(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let change = ["configure terminal", "interface b2", "ipv6 ospf6 cost 99"];
    let own = ["configure terminal", "interface b2", "ipv6 ospf6 priority 7"];
    vtysh(lab, "b1", &own)?;
    let mut took = Vec::new();
    for round in 0..if rec.quick { 3 } else { 10 } {
        clock::sleep(Duration::from_millis(1000 + round * 370 % 1000))?;
        vtysh(lab, "b1", &change)?;
        let begun = Instant::now();
        let back = clock::wait_for(CONVERGED_WITHIN, POLL, || {
            Ok(vtysh(lab, "b1", &SHOW)?.contains("ipv6 ospf6 cost 10\n").then_some(()))
        })?;
        took.push(back.map_or(CONVERGED_WITHIN, |()| begun.elapsed()).as_secs_f64());
    }
    let text = "until a changed cost is back";
    let series = Series::unordered("s", took);
    rec.claim_samples("drift", text, series, Rule::Median, Bound::at_most(1.0))?;
    let stays = vtysh(lab, "b1", &SHOW)?.contains("ipv6 ospf6 priority 7\n");
    rec.count("foreign", "lines of others that stay", u64::from(stays), Bound::equal(1.0))
}

/// A daemon that hangs is named, and costs its router no connection.
fn hung(lab: &BrokerLab, routing: &Routing, rec: &mut Recording<'_>) -> Result {
    let zebra = routing.daemons.first().map(|daemon| daemon.0.id()).unwrap_or_default();
    let signal = |name: &str| Host::default().run(&Command::line(&format!("kill -{name} {zebra}")));
    signal("STOP")?;
    let asked = clock::sleep(Duration::from_secs(8)).and_then(|()| {
        let made = lab.ask(Method::POST, "/v1/connections", Some(&connection_of_blue()))?;
        let networks = lab.ask(Method::GET, "/v1/networks", None)?;
        Ok((made, networks))
    });
    signal("CONT")?;
    let (made, networks) = asked?;
    let is_active = made["state"] == "active";
    rec.count("made", "connections made meanwhile", u64::from(is_active), Bound::equal(1.0))?;
    let routers = networks.as_array().into_iter().flatten().flat_map(|of| of["routers"].as_array());
    let b1 = routers.flatten().find(|router| router["name"] == "b1");
    let fault = b1.and_then(|router| router["fault"].as_str()).unwrap_or_default();
    rec.say(&format!("fault of a router whose daemon hangs: {fault}"));
    let named = fault.contains("ospf6") && b1.is_some_and(|router| router["reachable"] == true);
    rec.count("named", "faults that name it", u64::from(named), Bound::equal(1.0))?;
    lab.remove(&made)
}

fn connection_of_blue() -> Value {
    json!({ "network": "blue", "from": "bh1", "to": "bh2", "rate": "1Mbit" })
}

/// Tells whether a router has one neighbour, which has all that it has.
fn is_full(lab: &BrokerLab, router: &str) -> bool {
    let said = vtysh(lab, router, &["show ipv6 ospf6 neighbor json"]);
    let found = said.and_then(|said| parsed::<Value>(&said)).unwrap_or_default();
    let neighbours = found["neighbors"].as_array();
    neighbours.is_some_and(|all| all.len() == 1 && all.iter().all(|one| one["state"] == "Full"))
}

fn vtysh(lab: &BrokerLab, router: &str, lines: &[&str]) -> Result<String> {
    let name = frr_name(router);
    let mut words = vec!["-N", name.as_str()];
    words.extend(lines.iter().flat_map(|line| ["-c", line]));
    lab.run(router, Command::new("vtysh", words))
}

/// Blue's end node floods its own network, past no limit but that of its router's link.
fn from_end_node() -> SendSpec {
    let method = SendMethod::Udp(UdpSend {
        stream: END_NODE,
        to: ([0xfd10, 2, 0, 0, 0, 0, 0, 2], 9).into(),
        from: None,
        connections: 1,
        rate: Some(Rate::Bps(100 * MBIT)),
        sizes: FrameSizes::Fixed(super::sharing::FRAME),
        count: None,
        buffer_bytes: None,
    });
    SendSpec { run: at("bh1"), start_ns: None, method }
}

/// Tells whether FRR's OSPFv3 is there.
pub(super) fn is_installed() -> bool {
    Path::new(OSPF6D).exists()
}

/// The daemons of routers. All is gone with this value.
pub(super) struct Routing {
    daemons: Vec<EndedChild>,
    folders: Vec<PathBuf>,
}

impl Routing {
    pub(super) fn start(lab: &BrokerLab, routers: &[&str]) -> Result<Self> {
        let mut routing = Self { daemons: Vec::new(), folders: Vec::new() };
        for router in routers {
            let folder = Path::new("/var/run/frr").join(frr_name(router));
            fs::create_dir_all(&folder).map_err(|error| ExperimentError::io(&folder, error))?;
            let line = format!("chown -R frr:frr {}", folder.display());
            routing.folders.push(folder);
            Host::default().run(&Command::line(&line))?;
            for daemon in [ZEBRA, OSPF6D] {
                let line = format!("{daemon} -N {} -A ::1", frr_name(router));
                routing.daemons.push(lab.start(router, &line)?);
                clock::sleep(POLL)?;
            }
        }
        Ok(routing)
    }
}

impl Drop for Routing {
    fn drop(&mut self) {
        self.daemons.clear();
        for folder in &self.folders {
            // One that is gone needs nothing.
            let _gone = fs::remove_dir_all(folder);
        }
    }
}

const ZEBRA: &str = "/usr/lib/frr/zebra";
const OSPF6D: &str = "/usr/lib/frr/ospf6d";

const SHOW: [&str; 1] = ["show running-config ospf6d"];

const MBIT: u64 = 1_000_000;

/// The stream of the flood from the end node.
const END_NODE: u16 = 9;

const CONVERGED_WITHIN: Duration = Duration::from_secs(60);

const BETWEEN_LOOKS: Duration = Duration::from_millis(300);

const POLL: Duration = Duration::from_millis(50);
