// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text's Tables 1 to 3 and the accuracy of the limit (row 5).
//!
//! **The limit.** More than a connection's rate is sent into it, by a generator past all sockets,
//! and counted by an independent sink behind the last router. What arrives is what an application
//! has: it must be what was asked for, and hardly more. The queue before the limit is short.
//!
//! **The paths.** In one run: *native*, one router that forwards by its kernel (Table 1);
//! *virtual*, all three routers of the network without a tunnel (Table 2); *tunnelled*, the same
//! three with a connection whose limit is far above the load (Table 3). Throughput is the rate at
//! which at most 0.1 % of the packets are lost, and latency is measured at it, rounded down to
//! 5 Mbit/s as in the text.

use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::TrafficFlows;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_tester::{
    BinarySearch, FramePattern, Goal, IpVersion, LatencySummary, Measurer, Ppm, Step,
    TrafficProfile, TrialRequest, TrialResult,
};
use weir_traffic::{
    FrameSizes, Mac, SendMethod, SendSpec, TrialEnd, WireMeasurer, XdpSend, XdpStream,
};

use super::broker_lab::{BrokerLab, device_mac, namespace};
use super::guarantee::connect;
use super::sharing::{at, sink};

/// Shows that limits are exact, that their queues are short, and how large a packet may be.
pub(super) fn limits(rec: &mut Recording<'_>) -> Result {
    let lab = fast_lab()?;
    let broker = lab.broker()?;
    let (rates, seconds): (&[u64], u64) = match rec.quick {
        true => (&[10, 100, 500, 800], 4),
        false => (&[2, 10, 50, 100, 200, 300, 500, 650, 800], 90),
    };
    for mbps in rates {
        let made = connect(&lab, &format!("{mbps}Mbit"), PORT)?;
        let case = LimitedRate { mbps: *mbps, seconds };
        rec.within(&format!("limit/{mbps}M/"), |rec| case.judge(rec))?;
        lab.remove(&made)?;
    }
    rec.within("burst/", |rec| bursts(&lab, rec, seconds))?;
    mtu(&lab, rec)?;
    broker.terminate();
    lab.down()
}

/// A connection's rate, and how long more than that is sent.
struct LimitedRate {
    mbps: u64,
    seconds: u64,
}

impl LimitedRate {
    fn judge(&self, rec: &mut Recording<'_>) -> Result {
        let (got, delay_s) = self.flood()?;
        let mbps = self.mbps;
        rec.say(&format!("{mbps} Mbit/s: a packet waits {:.1} ms, median", delay_s * 1e3));
        rec.keep("rate", Series::unordered("1", got))?;
        let text = format!("got of {mbps} Mbit/s asked for, median second");
        let series = ["rate"];
        rec.claim("least", &text, Rule::Median, Bound::at_least(1.0), &series)?;
        rec.claim("most", &text, Rule::Median, Bound::at_most(1.005), &series)?;
        if mbps >= QUEUE_FROM_MBPS {
            let text = format!("delay of a packet at a limit of {mbps} Mbit/s, median");
            let series = Series::unordered("s", vec![delay_s]);
            return rec.claim_samples("queue", text, series, Rule::Max, Bound::at_most(0.025));
        }
        Ok(())
    }

    /// Sends a fifth more than the rate. Returns what arrived in each second but the first, in
    /// parts of the rate, and the median delay in seconds.
    fn flood(&self) -> Result<(Vec<f64>, f64)> {
        let to = entry_mac()?;
        let stream = XdpStream {
            rate: Some(Rate::Bps(self.mbps * 1_200_000)),
            source: SOURCE.into(),
            destination: DESTINATION.into(),
            destination_port: PORT,
            ..XdpStream::new(0, "eth0", to, FrameSizes::Fixed(LARGEST + LINK_HEADER))
        };
        let method = SendMethod::Xdp(XdpSend::new(vec![stream]));
        let senders = [SendSpec { run: at("bh1"), start_ns: None, method }];
        let receivers = [sink("bh2", "eth0")];
        let length = Duration::from_secs(self.seconds);
        let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
        let (seen, ()) = flows.run(None, |_| Ok(()))?;
        let asked = float(self.mbps * 1_000_000);
        // The bucket is full at the start: the first second has its burst.
        let got = seen.got(0, 0).iter().skip(1).map(|bits| bits / asked).collect();
        let delay_ns = seen.stream(0, 0).map_or(u64::MAX, |seen| seen.delays.quantile_ns(1, 2));
        Ok((got, float(delay_ns) / 1e9))
    }
}

/// Publishes the rate that arrives at a limit of 500 Mbit/s with the text's bursts and with the
/// broker's own.
fn bursts(lab: &BrokerLab, rec: &mut Recording<'_>, seconds: u64) -> Result {
    let made = connect(lab, "500Mbit", PORT)?;
    let (number, limit) = (&made["tunnels"][0]["number"], &made["tunnels"][0]["limit_bps"]);
    for burst in [Some(5_000), Some(15_000), None] {
        if let Some(burst) = burst {
            // The broker compares rates; it does not see a burst.
            let line = format!(
                "tc qdisc replace dev wc{number} root tbf rate {limit}bit burst {burst} \
                 latency 20ms overhead 40"
            );
            lab.run("b1", Command::line(&line))?;
        } else {
            lab.remove(&made)?;
            connect(lab, "500Mbit", PORT)?;
        }
        let (got, _) = LimitedRate { mbps: 500, seconds }.flood()?;
        let name = burst.map_or_else(|| "own".to_owned(), |burst| burst.to_string());
        rec.say(&format!("burst {name}: got {got:.4?} of 500 Mbit/s"));
        rec.keep(&name, Series::unordered("1", got))?;
    }
    let left = lab.ask(Method::GET, "/v1/connections", None)?;
    left.as_array().into_iter().flatten().try_for_each(|of| lab.remove(of))
}

/// Shows that the largest packet passes whole, and that the sender of a larger one is told.
pub(super) fn mtu(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let made = connect_all(lab, "50Mbit")?;
    let ping = |bytes: u16| {
        // It fails if no answer comes, as is right for one of the two.
        let size = bytes - PING_HEADERS;
        let line = format!("ping -6 -M do -c 3 -i 0.2 -W 1 -s {size} {DESTINATION} 2>&1 || true");
        lab.run("bh1", Command::new("sh", ["-c", line.as_str()]))
    };
    let whole = ping(LARGEST)?;
    let answered = u64::from(whole.contains(" 3 received"));
    rec.count("mtu/whole", "pings of 1460 bytes, all answered", answered, Bound::equal(1.0))?;
    let larger = ping(LARGEST + 1)?;
    rec.say(&format!("{} bytes: {}", LARGEST + 1, larger.lines().nth(1).unwrap_or_default()));
    let told = larger.contains("mtu=1460") || larger.contains("mtu: 1460");
    let told = u64::from(told && larger.contains(" 0 received"));
    rec.count("mtu/larger", "1461 bytes: Packet Too Big, 1460", told, Bound::equal(1.0))?;
    lab.remove(&made)
}

/// Shows throughput and latency of the three paths, and what a tunnel costs.
pub(super) fn paths(rec: &mut Recording<'_>) -> Result {
    show_paths(rec, &PacketPath::ALL)
}

/// Shows throughput and latency of these paths, and what a tunnel costs if both are among them.
pub(crate) fn show_paths(rec: &mut Recording<'_>, paths: &[PacketPath]) -> Result {
    let lab = fast_lab()?;
    let broker = lab.broker()?;
    for packet in [SMALL, LARGEST] {
        // Nothing is compared with a single path.
        let rounds = if rec.quick || paths.len() == 1 { 1 } else { 3 };
        let mut found: Vec<_> = paths.iter().map(|path| (*path, Vec::new())).collect();
        for _ in 0..rounds {
            for (path, found) in &mut found {
                found.push(path.measure(&lab, packet, rec.quick)?);
            }
        }
        rec.within(&format!("{packet}B/"), |rec| publish(rec, packet, &found))?;
    }
    broker.terminate();
    lab.down()
}

/// The paths that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketPath {
    Native,
    Virtual,
    Tunnelled,
}

/// A path's throughput in packets a second, and times on the way a little below it.
type PathFigures = (u64, LatencySummary);

impl PacketPath {
    const ALL: [Self; 3] = [Self::Native, Self::Virtual, Self::Tunnelled];

    /// Returns the name of the path in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Virtual => "virtual",
            Self::Tunnelled => "tunnelled",
        }
    }

    fn measure(self, lab: &BrokerLab, packet: u16, quick: bool) -> Result<PathFigures> {
        let made = match self {
            Self::Tunnelled => Some(connect_all(lab, "8Gbit")?),
            _ => None,
        };
        // The sink takes the frames behind the first router, or at the end node.
        let (node, device) = match self {
            Self::Native => ("b2", "b1"),
            Self::Virtual | Self::Tunnelled => ("bh2", "eth0"),
        };
        let stop = weir_traffic::stop_on_signals()?;
        let mut trials = PathTrials::to(node, device, packet, stop)?;
        let (short, long) = if quick { (300, 2_000) } else { (2_000, 90_000) };
        let pps = trials.throughput(short)?;
        let rounded = pps_of(rounded_mbps(pps, packet), packet);
        let latency = trials.of(rounded.max(PPS_MIN), long)?.latency;
        let none = || ExperimentError::Node("no packet arrived".to_owned());
        let figures = (pps, latency.ok_or_else(none)?);
        drop(trials);
        made.map_or(Ok(()), |made| lab.remove(&made))?;
        Ok(figures)
    }
}

/// Trials with packets of one size that the first end node sends into the first router.
pub(super) struct PathTrials<'a> {
    measurer: WireMeasurer<'a>,
    profile: TrafficProfile,
}

impl<'a> PathTrials<'a> {
    /// Counts the packets at a device of a node.
    pub(super) fn to(node: &str, device: &str, packet: u16, stop: &'a AtomicBool) -> Result<Self> {
        let end = |node: &str, device: &str, address: std::net::Ipv6Addr| TrialEnd {
            netns: Some(namespace(node)),
            device: device.to_owned(),
            address: Some(address.into()),
        };
        let (from, to) = (end("bh1", "eth0", SOURCE), end(node, device, DESTINATION));
        let measurer = WireMeasurer::new(from, to, Some(entry_mac()?), None, false, stop)?;
        // The tester's sizes have the checksum.
        let sizes = FramePattern::Fixed(packet + LINK_HEADER + 4);
        let profile = TrafficProfile { sizes, ip: IpVersion::V6, streams: 1, tag: None };
        Ok(Self { measurer, profile })
    }

    fn of(&mut self, pps: u64, length_ms: u64) -> Result<TrialResult> {
        let duration = Nanos::from_millis(length_ms);
        let profile = self.profile.clone();
        Ok(self.measurer.trial(&TrialRequest { profile, pps, duration, burst: None })?)
    }

    /// Finds the throughput: packets a second of which at most 0.1 % are lost, by trials of a
    /// length in milliseconds.
    pub(super) fn throughput(&mut self, length_ms: u64) -> Result<u64> {
        let told = |error: &dyn std::fmt::Display| ExperimentError::Node(error.to_string());
        let goal = Goal {
            loss: Ppm::new(1_000),
            width: Ppm::new(20_000),
            trial: Nanos::from_millis(length_ms),
            sum: Nanos::from_millis(length_ms),
            ..Goal::NDR
        };
        let mut bisection = BinarySearch::new(goal, PPS_MIN, PPS_MAX).map_err(|of| told(&of))?;
        while let Step::Trial(step) = bisection.next() {
            let result = self.of(step.load, length_ms)?;
            bisection.record(result.outcome).map_err(|of| told(&of))?;
        }
        Ok(bisection.throughput())
    }
}

/// Publishes a table, and judges what a tunnel costs.
fn publish(
    rec: &mut Recording<'_>,
    packet: u16,
    found: &[(PacketPath, Vec<PathFigures>)],
) -> Result {
    for (path, figures) in found {
        let name = path.name();
        for (pps, latency) in figures {
            let LatencySummary { min_ns, mean_ns, max_ns, .. } = latency;
            let us = |ns: &u64| ns / 1000;
            rec.say(&format!(
                "{name:9} {packet:4} bytes {:5} Mbit/s {pps:7} packets/s; min {} avg {} max {} us",
                rounded_mbps(*pps, packet),
                us(min_ns),
                us(mean_ns),
                us(max_ns)
            ));
        }
        let all = |of: fn(&PathFigures) -> u64| figures.iter().map(|one| float(of(one))).collect();
        rec.keep(&format!("{name}/pps"), Series::unordered("packet/s", all(|of| of.0)))?;
        for (part, of) in [
            ("min", (|of| of.1.min_ns) as fn(&PathFigures) -> u64),
            ("avg", |of| of.1.mean_ns),
            ("max", |of| of.1.max_ns),
        ] {
            rec.keep(&format!("{name}/{part}"), Series::unordered("ns", all(of)))?;
        }
    }
    let has = |wanted| found.iter().any(|(path, _)| *path == wanted);
    if !(has(PacketPath::Virtual) && has(PacketPath::Tunnelled)) {
        return Ok(());
    }
    let text = format!("packets/s of {packet} bytes by the tunnel, of those without, median");
    let series = ["tunnelled/pps", "virtual/pps"];
    rec.claim("tunnel", text, Rule::RatioOfMedians, Bound::at_least(TUNNEL_LEAST), &series)
}

/// Builds the lab with links above all that is sent here, and lets its first router take frames
/// from an XDP program.
pub(super) fn fast_lab() -> Result<BrokerLab> {
    let lab = BrokerLab::with_links(LINKS)?;
    lab.run("b1", Command::line("ethtool -K bh1 gro on"))?;
    Ok(lab)
}

/// Asks for a connection of all packets from the first to the second end node of `blue`.
pub(super) fn connect_all(lab: &BrokerLab, rate: &str) -> Result<Value> {
    let body = json!({ "network": "blue", "from": "bh1", "to": "bh2", "rate": rate });
    Ok(lab.ask(Method::POST, "/v1/connections", Some(&body))?)
}

/// Returns the address of the first router's device towards the sender.
pub(super) fn entry_mac() -> Result<Mac> {
    device_mac("b1", "bh1")
}

/// Returns the bits of a packet's frame, without checksum.
fn frame_bits(packet: u16) -> u64 {
    u64::from(packet + LINK_HEADER) * 8
}

/// Returns the rate of frames in Mbit/s, rounded down to a multiple of 5.
fn rounded_mbps(pps: u64, packet: u16) -> u64 {
    pps * frame_bits(packet) / 5_000_000 * 5
}

fn pps_of(mbps: u64, packet: u16) -> u64 {
    mbps * 1_000_000 / frame_bits(packet)
}

/// Rate of the lab's links: above all that is sent here.
const LINKS: &str = "10Gbit";

pub(super) const SOURCE: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xfd10, 1, 0, 0, 0, 0, 0, 2);
pub(super) const DESTINATION: std::net::Ipv6Addr =
    std::net::Ipv6Addr::new(0xfd10, 2, 0, 0, 0, 0, 0, 2);

const PORT: u16 = 5201;

/// Packets with their IP header: the text's small one, and the largest that a tunnel carries.
pub(crate) const SMALL: u16 = 100;
pub(crate) const LARGEST: u16 = 1460;

const LINK_HEADER: u16 = 14;

/// Headers of IPv6 and ICMPv6.
const PING_HEADERS: u16 = 48;

/// Queues are judged from this rate on.
const QUEUE_FROM_MBPS: u64 = 100;

/// Loads of a search, packets a second.
const PPS_MIN: u64 = 2_000;
const PPS_MAX: u64 = 600_000;

/// The least throughput by a tunnel, as a part of that without. The text has 87.5 % for small
/// packets.
const TUNNEL_LEAST: f64 = 0.85;
