// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measurements, alike for all contenders.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_experiment::prelude::*;
use weir_experiment::{TrafficFlows, UNTIL_DONE, clock};
use weir_platform::run::Command;
use weir_traffic::{FrameSizes, Mac, SendMethod, SendSpec, XdpSend, XdpStream};

use crate::em::broker_lab::{parsed, run_at};
use crate::em::path_change::excuse;
use crate::em::sharing::{FRAME, at, sink};
use crate::em::tables::{DESTINATION, SOURCE};

/// The node in the middle of a path between the end nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MiddleNode {
    B2,
    B3,
}

impl MiddleNode {
    pub(super) const BOTH: [Self; 2] = [Self::B2, Self::B3];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::B2 => "b2",
            Self::B3 => "b3",
        }
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::B2 => Self::B3,
            Self::B3 => Self::B2,
        }
    }
}

/// The order in which the nodes of a path are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeOrder {
    /// The new path, the entry, a time to drain, the removal of the old path.
    MadeFirst,
    /// All nodes in the order of the path, the entry first.
    AllAtOnce,
}

/// A path that is asked for: of UDP to `port` from the first to the second end node.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedPath {
    pub(super) port: u16,
    pub(super) rate: BitRate,
    pub(super) over: MiddleNode,
}

/// Something that sets up paths.
pub(super) trait PathSetter {
    /// Sets a path up. Returns the seconds until it was said to be there.
    fn set_up(&mut self, path: AskedPath) -> Result<f64>;

    /// Moves the path of a port.
    fn move_over(&mut self, port: u16, over: MiddleNode, order: ChangeOrder) -> Result;

    /// Removes the path of a port.
    fn remove(&mut self, port: u16) -> Result;

    /// Counts what nodes still have of paths, from outside.
    fn left(&self) -> Result<u64>;

    /// Lets packets to a port pass that have no path of their own, up to `limit` if one is given.
    fn pass(&mut self, port: u16, limit: Option<BitRate>) -> Result;

    /// Counts the packets of a path that its own limiter dropped.
    fn limited(&self, port: u16) -> Result<u64>;

    /// Returns where the first end node's frames go.
    fn destination_mac(&self) -> Result<Mac>;
}

/// Rates and repetitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparisonScale {
    /// Set-ups of each contender.
    pub(super) set_ups: u16,
    changes: u32,
    change_pps: u64,
    /// Rate of each link, Mbit/s.
    link: u64,
    repetitions: u32,
}

impl ComparisonScale {
    /// Returns the scale of a run. Quick runs have a tenth of the rates, with which even an
    /// emulated processor keeps up.
    pub(super) const fn of(rec: &Recording<'_>) -> Self {
        if rec.quick {
            Self { set_ups: 20, changes: 10, change_pps: 1_000, link: 10, repetitions: 1 }
        } else {
            Self { set_ups: 100, changes: 40, change_pps: 10_000, link: 100, repetitions: 5 }
        }
    }

    /// Returns a part of the link's rate, in bits a second.
    pub(super) const fn link_percent(self, percent: u64) -> u64 {
        self.link * 10_000 * percent
    }
}

/// Returns the rate of the links in a lab of this run, for a topology.
pub(crate) fn link_rate(rec: &Recording<'_>) -> String {
    format!("{}Mbit", ComparisonScale::of(rec).link)
}

/// Times set-ups one after the other, and checks that nothing of them stays.
pub(super) fn set_ups(rec: &mut Recording<'_>, setter: &mut dyn PathSetter) -> Result {
    let (mut took, set_ups) = (Vec::new(), ComparisonScale::of(rec).set_ups);
    // The first is not counted: programs and caches are cold.
    for number in 0..=set_ups {
        let path = AskedPath {
            port: PORT + number,
            rate: BitRate::from_bps(100_000),
            over: MiddleNode::B2,
        };
        took.push(setter.set_up(path)?);
        setter.remove(path.port)?;
        if number % 20 == 0 {
            rec.say(&format!("{number} of {set_ups} set-ups"));
        }
    }
    took.remove(0);
    rec.keep("set-up", Series::unordered("s", took))?;
    let text = "set-up, one at a time, 95 %";
    let rule = Rule::Percentile { percent: 95.0 };
    rec.claim("set-up/p95", text, rule, Bound::at_most(SET_UP_S), &["set-up"])?;
    rec.none("left", "what nodes have of them afterwards", setter.left()?)
}

/// Measures the paths of a contender that can change them in either order.
pub(super) fn use_paths(rec: &mut Recording<'_>, setter: &mut dyn PathSetter) -> Result {
    for (name, order) in
        [("made-first/", ChangeOrder::MadeFirst), ("all-at-once/", ChangeOrder::AllAtOnce)]
    {
        rec.within(name, |rec| changes(rec, setter, order))?;
    }
    rec.within("applications/", |rec| applications(rec, setter))?;
    rec.within("guarantee/", |rec| guarantee(rec, setter, None))
}

/// Moves a flow to and fro, and returns the packets lost and reordered.
pub(super) fn changes(
    rec: &mut Recording<'_>,
    setter: &mut dyn PathSetter,
    order: ChangeOrder,
) -> Result<[u64; 2]> {
    let scale = ComparisonScale::of(rec);
    // Three times the packets' rate with a tunnel's header.
    let rate = BitRate::from_bps(scale.change_pps * 3 * 8 * u64::from(SMALL_FRAME + 40));
    let mut over = MiddleNode::B2;
    setter.set_up(AskedPath { port: PORT, rate, over })?;
    let streams = vec![stream(setter, PORT, Rate::Pps(scale.change_pps), SMALL_FRAME)?];
    let before = passed()?;
    let (seen, (took, length)) = traffic(streams.clone(), UNTIL_DONE, |start_ns| {
        clock::sleep_until(start_ns)?;
        clock::sleep(BETWEEN_CHANGES)?;
        let mut took = Vec::new();
        for _ in 0..scale.changes {
            over = over.other();
            let begun = clock::monotonic_ns();
            setter.move_over(PORT, over, order)?;
            took.push(float(clock::monotonic_ns() - begun) / 1e9);
            clock::sleep(BETWEEN_CHANGES)?;
        }
        Ok((took, Duration::from_nanos(clock::monotonic_ns() - start_ns)))
    })?;
    let after = passed()?;
    let [sent, arrived] = [seen.packets_sent(number(PORT)), seen.packets(0, number(PORT))];
    let limited = setter.limited(PORT)?;
    // The path's own limiter may cut the burst of a late sender. It is excused only as many packets
    // as it cuts of the same load at rest, since a change may hold packets there, too.
    if limited > 0 {
        traffic(streams, length, |_| Ok(()))?;
    }
    let at_rest = setter.limited(PORT)?.saturating_sub(limited);
    let (excused, limited) = excuse(limited, at_rest);
    setter.remove(PORT)?;
    let lost = sent.saturating_sub(arrived + excused);
    let reordered = seen.order(0, number(PORT)).reordered;
    rec.say(&format!(
        "{sent} packets, {lost} lost, {reordered} reordered; the limiter cut {limited} more than \
         the {excused} that it cuts at rest"
    ));
    for (part, count) in
        [("sent", sent), ("lost", lost), ("reordered", reordered), ("limited", limited)]
    {
        rec.keep(part, Series::count("1", count))?;
    }
    rec.keep("took", Series::unordered("s", took))?;
    let by_path = before.iter().zip(after).map(|(before, after)| after - before);
    let fewest = by_path.min().unwrap_or(0);
    let text = "of the packets sent, those by the path that had fewer";
    let share = Series::unordered("1", vec![float(fewest) / float(sent.max(1))]);
    rec.claim_samples("moved", text, share, Rule::Min, Bound::at_least(MOVED_LEAST))?;
    Ok([lost, reordered])
}

/// Sends to two ports whose paths were asked for over different nodes. Keeps the part of each one's
/// packets that took its own path, and claims that all arrived.
pub(super) fn applications(rec: &mut Recording<'_>, setter: &mut dyn PathSetter) -> Result {
    let scale = ComparisonScale::of(rec);
    let rate = BitRate::from_bps(scale.link_percent(20));
    let asked = MiddleNode::BOTH.into_iter().zip([PORT, PORT + 1]);
    for (over, port) in asked.clone() {
        setter.set_up(AskedPath { port, rate, over })?;
    }
    let mut own = Vec::new();
    for (over, port) in asked.clone() {
        let stream = stream(setter, port, Rate::Pps(APPLICATION_PPS), SMALL_FRAME)?;
        let before = passed()?;
        let length = Duration::from_secs(1);
        let (seen, ()) = traffic(vec![stream], length, |_| Ok(()))?;
        let after = passed()?;
        let [sent, arrived] = [seen.packets_sent(number(port)), seen.packets(0, number(port))];
        let text = format!("packets of IPv6 lost of the path over {}", over.name());
        rec.none(format!("{}/lost", over.name()), text, sent.saturating_sub(arrived))?;
        rec.at_least(format!("{}/sent", over.name()), "packets sent there", sent, 1)?;
        let [b2, b3] = [after[0] - before[0], after[1] - before[1]];
        let by_own = if over == MiddleNode::B2 { b2 } else { b3 };
        own.push(float(by_own) / float((b2 + b3).max(1)));
    }
    for (_, port) in asked {
        setter.remove(port)?;
    }
    rec.say(&format!("of the packets of two applications, by the path of each: {own:.3?}"));
    rec.keep("own-path", Series::unordered("1", own))
}

/// Sends within a rate that was set up beside a flood, which may be limited. Keeps the part that
/// was lost in each repetition, and what the flood got.
pub(super) fn guarantee(
    rec: &mut Recording<'_>,
    setter: &mut dyn PathSetter,
    limit: Option<BitRate>,
) -> Result {
    let scale = ComparisonScale::of(rec);
    let path = AskedPath {
        port: PORT,
        rate: BitRate::from_bps(scale.link_percent(20)),
        over: MiddleNode::B2,
    };
    setter.set_up(path)?;
    setter.pass(FLOOD_PORT, limit)?;
    let within = Rate::Bps(scale.link_percent(19));
    let flood = Rate::Bps(scale.link_percent(200));
    let streams =
        vec![stream(setter, PORT, within, FRAME)?, stream(setter, FLOOD_PORT, flood, FRAME)?];
    let (mut lost, mut flood) = (Vec::new(), Vec::new());
    for _ in 0..scale.repetitions {
        let (seen, ()) = traffic(streams.clone(), GUARANTEE_LENGTH, |_| Ok(()))?;
        let sent = seen.packets_sent(number(PORT));
        let missing = sent.saturating_sub(seen.packets(0, number(PORT)));
        lost.push(float(missing) / float(sent.max(1)));
        flood.extend(seen.got(0, number(FLOOD_PORT)).into_iter().skip(1));
    }
    setter.remove(PORT)?;
    rec.say(&format!("of an application's packets beside a flood, lost: {lost:.4?}"));
    rec.keep("lost", Series::unordered("1", lost))?;
    rec.keep("flood", Series::sampled("bit/s", 1.0, flood))?;
    let text = "what the flood got of the link";
    let least = Bound::at_least(float(scale.link_percent(50)));
    rec.claim("flooded", text, Rule::Median, least, &["flood"])
}

/// Sends these streams from the first end node, and counts them at the second.
fn traffic<T>(
    streams: Vec<XdpStream>,
    length: Duration,
    beside: impl FnOnce(u64) -> Result<T>,
) -> Result<(TrafficRecord, T)> {
    let method = SendMethod::Xdp(XdpSend::new(streams));
    let senders = [SendSpec { run: at("bh1"), start_ns: None, method }];
    let receivers = [sink("bh2", "eth0")];
    TrafficFlows { senders: &senders, receivers: &receivers, length }.run(None, beside)
}

/// Returns a stream to a port.
fn stream(setter: &dyn PathSetter, port: u16, rate: Rate, frame: u16) -> Result<XdpStream> {
    let to = setter.destination_mac()?;
    Ok(XdpStream {
        rate: Some(rate),
        source: SOURCE.into(),
        destination: DESTINATION.into(),
        destination_port: port,
        ..XdpStream::new(number(port), "eth0", to, FrameSizes::Fixed(frame))
    })
}

/// Returns the number of the stream to a port.
const fn number(port: u16) -> u16 {
    port.saturating_sub(PORT)
}

/// Counts the packets that both nodes in the middle got from the entry.
fn passed() -> Result<[u64; 2]> {
    let mut counts = [0; 2];
    for (count, node) in counts.iter_mut().zip(MiddleNode::BOTH) {
        let command = Command::line("ip -j -s link show dev b1");
        let links: Vec<Value> = parsed(&run_at(node.name(), command)?)?;
        let received = links.first().and_then(|link| link["stats64"]["rx"]["packets"].as_u64());
        let none = || ExperimentError::Node(format!("{}: b1 has no counters", node.name()));
        *count = received.ok_or_else(none)?;
    }
    Ok(counts)
}

/// Limits the links of the first node as real links are limited, which veths are not.
pub(super) fn limit_links(rec: &Recording<'_>) -> Result {
    let bits = ComparisonScale::of(rec).link_percent(100);
    for node in MiddleNode::BOTH {
        let device = node.name();
        let line = format!(
            "tc qdisc replace dev {device} root tbf rate {bits}bit burst 15000 latency 20ms"
        );
        run_at("b1", Command::line(&line))?;
    }
    Ok(())
}

/// Lets the entry take frames of an XDP program.
pub(super) fn take_frames() -> Result {
    run_at("b1", Command::line("ethtool -K bh1 gro on")).map(drop)
}

/// Notes a contender that cannot be measured here.
pub(crate) fn skipped(rec: &mut Recording<'_>, contender: &str, lacks: &str) {
    let text = format!("SKIPPED {contender}: {lacks}");
    rec.say(&text);
    rec.result.add_note(&text);
}

/// The nodes between the end nodes: two equal paths lead from the first to the last.
pub(super) const NODES: [&str; 4] = ["b1", "b2", "b3", "b4"];

/// The ports of paths begin here.
pub(super) const PORT: u16 = 7000;
pub(super) const FLOOD_PORT: u16 = PORT + 2;

/// A small frame, layer-2 bytes without checksum.
const SMALL_FRAME: u16 = 200;

const APPLICATION_PPS: u64 = 500;

/// ITU-T E.721 wants 95 % within 6 s.
const SET_UP_S: f64 = 6.0;

/// While a flow is moved to and fro, each path has it for about half of the time.
const MOVED_LEAST: f64 = 0.2;

const BETWEEN_CHANGES: Duration = Duration::from_millis(50);

const GUARANTEE_LENGTH: Duration = Duration::from_secs(4);

/// A value for each path that is set up, by port.
pub(super) type ByPort<T> = BTreeMap<u16, T>;
