// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that are moved to and fro between two paths while packets pass: equal paths, and
//! paths of which one is 5 ms longer.
//!
//! A sender that was late sends a burst, which the limiter may cut. So the same load passes at rest
//! first, for the same time: the limiter may drop as many packets while paths change, and no more,
//! since a change holds packets in that very limiter. Where it dropped any of TCP, nobody can tell
//! what was reordered, and the changes are made again. A receiver that was late lets its socket
//! overflow; that is counted there and not the path's doing.

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

/// Asks for a connection for all packets of a protocol, or for all that no other connection takes.
fn connect(lab: &BrokerLab, rate: &str, protocol: Option<&str>) -> Result<Value> {
    let mut body = json!({"network": "blue", "from": "bh1", "to": "bh2", "rate": rate});
    if let Some(protocol) = protocol {
        body["protocol"] = json!(protocol);
    }
    Ok(lab.ask(Method::POST, CONNECTIONS, Some(&body))?)
}

/// Moves the connections while UDP, TCP and pings pass, and judges what arrived beside what did at
/// rest. Returns the pings' round trips.
fn moved(
    rec: &mut Recording<'_>,
    lab: &BrokerLab,
    flows: &[Value; 2],
    part: &str,
) -> Result<Vec<f64>> {
    let changes = if rec.quick { 20 } else { 100 };
    // A change takes some 100 ms, of which 50 are for what is under way on the old path.
    let seconds = changes / 4 + 4;
    let resting = Passed::beside(lab, flows, seconds, 0)?;
    let mut passed = Passed::beside(lab, flows, seconds, changes)?;
    for _ in 0..REPETITIONS {
        if passed.counts.limited[1] == 0 {
            break;
        }
        rec.say(&format!("TCP lost {} at its limiter: once more", passed.counts.limited[1]));
        passed = Passed::beside(lab, flows, seconds, changes)?;
    }
    let all = Bound::equal(f64::from(changes));
    rec.count(format!("{part}moved"), "changes of the path", passed.moved, all)?;
    passed.judge_udp(rec, &resting, part)?;
    passed.judge_tcp(rec, seconds, part)?;
    Ok(passed.trips)
}

/// Packets that passed for some seconds, with or without changes beside it.
struct Passed {
    udp: Value,
    tcp: Value,
    /// Round trips of pings, in seconds.
    trips: Vec<f64>,
    /// Changes of a path that were made, and the seconds until the last was.
    moved: u64,
    took: f64,
    counts: Counts,
}

impl Passed {
    fn beside(lab: &BrokerLab, flows: &[Value; 2], seconds: u32, changes: u32) -> Result<Self> {
        let before = Counts::read(lab, flows)?;
        let (udp, tcp, trips, changed) = std::thread::scope(|scope| {
            let udp = scope.spawn(|| send(lab, to_port(5201), UDP, seconds));
            let tcp = scope.spawn(|| send(lab, to_port(5202), TCP, seconds));
            let trips = scope.spawn(|| pings(lab, u64::from(seconds - 2) * 100));
            let changed = change(lab, flows, changes);
            (joined(udp), joined(tcp), joined(trips), changed)
        });
        let (moved, took) = changed?;
        let counts = Counts::read(lab, flows)?.since(&before);
        Ok(Self { udp: udp?, tcp: tcp?, trips: trips?, moved, took, counts })
    }

    fn judge_udp(&self, rec: &mut Recording<'_>, resting: &Self, part: &str) -> Result {
        let id = |name: &str| format!("{part}{name}");
        let sum = &self.udp["end"]["sum"];
        let lost = sum["lost_packets"].as_u64().unwrap_or(u64::MAX);
        let Counts { limited: [limited, _], overflowed, .. } = self.counts;
        let at_rest = resting.counts.limited[0];
        rec.say(&format!(
            "of {} packets {lost} lost: {limited} by the limiter ({at_rest} at rest), {overflowed} \
             by the receiver's socket",
            sum["packets"]
        ));
        rec.keep(&id("limited/rest"), Series::count("1", at_rest))?;
        let (excused, more) = excuse(limited, at_rest);
        let text = "packets of 10 kpps that the limiter cut beyond those at rest";
        rec.none(id("limited"), text, more)?;
        let text = "packets lost of 10 kpps, but for as many by the limiter as at rest";
        rec.none(id("lost"), text, lost.saturating_sub(excused + overflowed))?;
        let reordered = self.udp["end"]["streams"][0]["udp"]["out_of_order"].as_u64();
        rec.none(id("reordered"), "packets reordered", reordered.unwrap_or(u64::MAX))?;
        let passing = sum["seconds"].as_f64().unwrap_or_default() - self.took;
        let text = "time for which packets passed after the last change";
        let passing = Series::unordered("s", vec![passing]);
        rec.claim_samples(id("covered"), text, passing, Rule::Min, Bound::at_least(0.0))
    }

    fn judge_tcp(&self, rec: &mut Recording<'_>, seconds: u32, part: &str) -> Result {
        let id = |name: &str| format!("{part}{name}");
        let Counts { limited: [_, limited], early, entered, on_paths, .. } = self.counts;
        // Behind a segment that the limiter dropped, all others count as early.
        rec.none(id("tcp/limited"), "TCP segments that the limiter dropped", limited)?;
        rec.none(id("tcp/reordered"), "TCP segments that came before an earlier one", early)?;
        let bytes = self.tcp["end"]["sum_received"]["bytes"].as_u64().unwrap_or_default();
        let least = u64::from(seconds) * TCP_BPS / 8 * 9 / 10;
        rec.at_least(id("tcp/received"), "bytes that TCP carried meanwhile", bytes, least)?;
        let text = "packets of the entries that neither path has counted";
        rec.none(id("counted"), text, entered.abs_diff(on_paths))
    }
}

/// Returns how many of the packets that a limiter dropped are excused, since it drops as many of
/// the same load at rest, and how many are not.
pub(super) fn excuse(limited: u64, at_rest: u64) -> (u64, u64) {
    (limited.min(at_rest), limited.saturating_sub(at_rest))
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

/// Shows that packets are lost if a route is deleted before another takes its place.
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

    /// Returns what was counted since `before`.
    fn since(&self, before: &Self) -> Self {
        let of = |after: u64, before: u64| after.saturating_sub(before);
        Self {
            limited: [0, 1].map(|flow| of(self.limited[flow], before.limited[flow])),
            entered: of(self.entered, before.entered),
            on_paths: of(self.on_paths, before.on_paths),
            overflowed: of(self.overflowed, before.overflowed),
            early: of(self.early, before.early),
        }
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

/// Repetitions of changes during which TCP lost something at its limiter.
const REPETITIONS: u32 = 2;

const PINGS: u64 = 300;
const DELETIONS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a limiter whose queue is too short for a hold is not excused by its own counter.
    #[test]
    fn no_more_is_excused_than_is_dropped_at_rest() {
        assert_eq!(excuse(0, 0), (0, 0));
        assert_eq!(excuse(5, 7), (5, 0));
        assert_eq!(excuse(400, 7), (7, 393));
    }
}
