// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that are moved to and fro between two paths while packets pass: equal paths, and
//! paths of which one is 5 ms longer.
//!
//! A sender that was late sends a burst, which the limiter may cut; a receiver that was late lets
//! its socket overflow. Both count what they drop, and neither is the path's doing.

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::prelude::*;
use weir_experiment::{clock, joined, median, round_trips};
use weir_platform::run::{Command, Host, Platform};

use super::broker_lab::{BrokerLab, connection_path, namespace};
use super::guarantee::{LabPath, send};
use crate::jitter::timely::percentile;

/// Shows the part with equal paths.
pub(super) fn equal(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    keep_order()?;
    let broker = lab.broker()?;
    let flows = [connect(&lab, "60Mbit", None)?, connect(&lab, "25Mbit", Some("tcp"))?];
    let rest = pings(&lab, PINGS)?;
    let trips = moved(rec, &lab, &flows, "")?;
    delay(rec, &rest, trips)?;
    lab.remove(&flows[1])?;
    delete_first(rec, &lab, &flows[0])?;
    broker.terminate();
    lab.down()
}

/// Shows the part with a path that is longer.
pub(super) fn unequal(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::with_longer_path()?;
    keep_order()?;
    let broker = lab.broker()?;
    let flows = [connect(&lab, "60Mbit", None)?, connect(&lab, "25Mbit", Some("tcp"))?];
    // In their first seconds devices of entries announce themselves, and their buckets count that.
    pings(&lab, PINGS)?;
    let trips = moved(rec, &lab, &flows, "unequal/")?;
    rec.keep("unequal/delay", Series::unordered("s", trips))?;
    broker.terminate();
    lab.down()
}

/// Has the devices of the lab deliver packets in the order in which they were sent, as cables do.
///
/// A veth pair queues a packet at the processor that sent it, so two packets of one flow from two
/// processors can change places before any router has seen them. The devices of entries come later
/// and stay as the broker makes them.
fn keep_order() -> Result {
    for node in ["bh1", "b1", "b2", "b3", "b4", "bh2"] {
        let script = "for queue in /sys/class/net/*/queues/rx-*/rps_cpus; do echo 1 >$queue; done";
        // Only `ip netns exec` shows the namespace's own devices in `/sys`.
        let words = ["netns", "exec", &namespace(node), "sh", "-ec", script];
        Host::default().run(&Command::new("ip", words))?;
    }
    Ok(())
}

/// Asks for all packets of a protocol, or for what no other connection has.
fn connect(lab: &BrokerLab, rate: &str, protocol: Option<&str>) -> Result<Value> {
    let mut body = json!({"network": "blue", "from": "bh1", "to": "bh2", "rate": rate});
    if let Some(protocol) = protocol {
        body["protocol"] = json!(protocol);
    }
    Ok(lab.ask(Method::POST, CONNECTIONS, Some(&body))?)
}

/// Moves the connections while UDP, TCP and pings pass, and judges what arrived. Returns the
/// pings' round trips.
fn moved(
    rec: &mut Recording<'_>,
    lab: &BrokerLab,
    flows: &[Value; 2],
    part: &str,
) -> Result<Vec<f64>> {
    let changes = if rec.quick { 20 } else { 100 };
    // A change takes some 100 ms, of which 50 are for what is under way on the old path.
    let seconds = changes / 4 + 4;
    let before = Counts::read(lab, flows)?;
    let (udp, tcp, trips, changed) = std::thread::scope(|scope| {
        let udp = scope.spawn(|| send(lab, to_port(5201), UDP, seconds));
        let tcp = scope.spawn(|| send(lab, to_port(5202), TCP, seconds));
        let trips = scope.spawn(|| pings(lab, u64::from(seconds - 2) * 100));
        let changed = change(lab, flows, changes);
        (joined(udp), joined(tcp), joined(trips), changed)
    });
    let (udp, tcp, (moved, took)) = (udp?, tcp?, changed?);
    let now = Counts::read(lab, flows)?;
    let of = |after: u64, before: u64| after.saturating_sub(before);
    let id = |name: &str| format!("{part}{name}");
    rec.count(id("moved"), "changes of the path", moved, Bound::equal(f64::from(changes)))?;
    let sum = &udp["end"]["sum"];
    let limited = [0, 1].map(|flow| of(now.limited[flow], before.limited[flow]));
    let overflowed = of(now.overflowed, before.overflowed);
    let lost = sum["lost_packets"].as_u64().unwrap_or(u64::MAX);
    rec.say(&format!(
        "of {} packets {lost} lost: {} by the limiter, {overflowed} by the receiver's socket; TCP \
         lost {} at its limiter",
        sum["packets"], limited[0], limited[1]
    ));
    let text = "packets lost of 10 kpps between limiter and receiver";
    rec.none(id("lost"), text, lost.saturating_sub(limited[0] + overflowed))?;
    let reordered = udp["end"]["streams"][0]["udp"]["out_of_order"].as_u64();
    rec.none(id("reordered"), "packets reordered", reordered.unwrap_or(u64::MAX))?;
    // Behind a packet that the limiter dropped all others are early.
    let early = if limited[1] == 0 { of(now.early, before.early) } else { 0 };
    rec.none(id("tcp/reordered"), "TCP segments that came before an earlier one", early)?;
    let bytes = tcp["end"]["sum_received"]["bytes"].as_u64().unwrap_or_default();
    let least = u64::from(seconds) * TCP_BPS / 8 * 9 / 10;
    rec.at_least(id("tcp/received"), "bytes that TCP carried meanwhile", bytes, least)?;
    let uncounted = of(now.entered, before.entered).abs_diff(of(now.on_paths, before.on_paths));
    rec.none(id("counted"), "packets of the entries that neither path has counted", uncounted)?;
    let passing = sum["seconds"].as_f64().unwrap_or_default() - took;
    let text = "time for which packets passed after the last change";
    let passing = Series::unordered("s", vec![passing]);
    rec.claim_samples(id("covered"), text, passing, Rule::Min, Bound::at_least(0.0))?;
    trips
}

/// Claims that the changes add nothing to the median delay.
fn delay(rec: &mut Recording<'_>, rest: &[f64], moved: Vec<f64>) -> Result {
    let at_rest = Series::unordered("s", rest.to_vec());
    let (resting, moving) = (median(rest), median(&moved));
    rec.say(&format!(
        "round trips: median {:.0} us at rest, {:.0} us while paths change, 99th percentile {:.0}",
        resting * 1e6,
        moving * 1e6,
        percentile(&moved, 99) * 1e6
    ));
    rec.keep("delay/rest", at_rest)?;
    let most = (resting * 1.2).max(resting + 10e-6);
    let text = "median round trip while paths change";
    let moved = Series::unordered("s", moved);
    rec.claim_samples("delay", text, moved, Rule::Median, Bound::at_most(most))
}

/// Loses packets by a route that is deleted before another takes its place.
fn delete_first(rec: &mut Recording<'_>, lab: &BrokerLab, flow: &Value) -> Result {
    let report = lab.ask(Method::GET, &format!("{}/report", connection_path(flow)), None)?;
    let table = 2_000_000 + report[0]["number"].as_u64().unwrap_or_default();
    let routes = lab.run("b1", Command::line(&format!("ip -6 route show table {table}")))?;
    let outer = routes.lines().find(|line| line.contains(" via ") && !line.contains("encap"));
    let outer = outer.ok_or_else(|| ExperimentError::Node(format!("no route: {routes}")))?.trim();
    let outer = outer.split(" metric").next().unwrap_or(outer);
    let lines =
        [format!("route del {outer} table {table}"), format!("route add {outer} table {table}")];
    let found = std::thread::scope(|scope| {
        let udp = scope.spawn(|| send(lab, to_port(5203), UDP, 4));
        clock::sleep(Duration::from_secs(1))?;
        for _ in 0..DELETIONS {
            lab.run("b1", Command::batch("ip", &lines).with_option("-6"))?;
            clock::sleep(Duration::from_millis(20))?;
        }
        joined(udp)
    })?;
    let lost = found["end"]["sum"]["lost_packets"].as_u64().unwrap_or_default();
    rec.at_least("deleted-first", "packets lost by routes deleted before others are added", lost, 1)
}

/// Counters of entries, paths and receiver.
struct Counts {
    /// Packets that the limiters dropped.
    limited: [u64; 2],
    /// Packets that passed them.
    entered: u64,
    /// Packets in the class of tunnels at the first links of both paths.
    on_paths: u64,
    /// Packets for which the receiver's sockets had no room.
    overflowed: u64,
    /// TCP segments that came early to the receiver.
    early: u64,
}

impl Counts {
    fn read(lab: &BrokerLab, flows: &[Value; 2]) -> Result<Self> {
        // A packet that has passed a limiter is on its way for a moment.
        clock::sleep(Duration::from_millis(100))?;
        let (mut limited, mut entered) = ([0; 2], 0);
        for (limited, flow) in limited.iter_mut().zip(flows) {
            let path = format!("{}/report", connection_path(flow));
            let report = lab.ask(Method::GET, &path, None)?;
            *limited = report[0]["dropped_packets"].as_u64().unwrap_or_default();
            entered += report[0]["passed_packets"].as_u64().unwrap_or_default();
        }
        let mut on_paths = 0;
        for device in ["b2", "b3"] {
            let line = format!("tc -s class show dev {device} classid 57:10");
            let said = lab.run("b1", Command::line(&line))?;
            on_paths += said.split(" bytes ").nth(1).and_then(first_number).unwrap_or_default();
        }
        let counters = |file: &str| lab.run("bh2", Command::line(&format!("cat /proc/net/{file}")));
        let snmp6 = counters("snmp6")?;
        let overflowed = snmp6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
        let netstat = counters("netstat")?;
        let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let mut pairs = names.split(' ').zip(values.split(' '));
        let early = pairs.find(|(name, _)| *name == "TCPOFOQueue").map(|(_, value)| value);
        Ok(Self {
            limited,
            entered,
            on_paths,
            overflowed: overflowed.and_then(first_number).unwrap_or_default(),
            early: early.and_then(first_number).unwrap_or_default(),
        })
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the path of a load to a port.
const fn to_port(port: u16) -> LabPath {
    LabPath { from: "bh1", to: "bh2", address: RECEIVER, port }
}

/// Returns the round trips, in seconds, of pings that were answered.
fn pings(lab: &BrokerLab, count: u64) -> Result<Vec<f64>> {
    let line = format!("ping -n -c {count} -i 0.01 -W 1 {RECEIVER}");
    let limit = Duration::from_secs(count / 50 + 10);
    Ok(round_trips(&lab.run("bh1", Command::line(&line).limit(limit))?))
}

/// Moves the connections to and fro in turns. Returns how often a path became another, and the
/// seconds that it took.
fn change(lab: &BrokerLab, flows: &[Value; 2], changes: u32) -> Result<(u64, f64)> {
    clock::sleep(Duration::from_secs(1))?;
    let mut moved = 0;
    let mut before = flows.each_ref().map(|flow| flow["tunnels"][0]["links"].clone());
    let begun = clock::monotonic_ns();
    for number in 0..changes {
        let flow = usize::from(number % 2 == 1);
        let avoid = json!({ "avoid": [before[flow][0]] });
        let path = connection_path(&flows[flow]);
        let changed = lab.ask(Method::PATCH, &path, Some(&avoid))?;
        let links = changed["tunnels"][0]["links"].clone();
        moved += u64::from(links != before[flow]);
        before[flow] = links;
        clock::sleep(Duration::from_millis(20))?;
    }
    Ok((moved, float(clock::monotonic_ns() - begun) / 1e9))
}

const CONNECTIONS: &str = "/v1/connections";
const RECEIVER: &str = "fd10:2::2";

/// 10 000 packets a second: 37 Mbit/s of frames.
const UDP: &str = "-u -b 32M -l 400";
/// Bits a second that are handed to TCP, in pieces that its connection's limiter does not cut, and
/// in segments that fit the tunnel from the first on.
const TCP_BPS: u64 = 10_000_000;
const TCP: &str = "-b 10M -l 1024 -M 1300";

const PINGS: u64 = 300;
const DELETIONS: u32 = 40;
