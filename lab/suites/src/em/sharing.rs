// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two networks on one physical link, each with a guaranteed share of it, kept by the Weir nodes at
//! its ends.
//!
//! Root inside `blue` does as it likes at its router: it floods past all of the broker's limits
//! there, with frames that an XDP program makes, and sends frames with the other network's VLAN,
//! addresses and MAC addresses. `red` sends within its share, and is counted by independent sinks.

use std::net::Ipv6Addr;
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::prelude::*;
use weir_experiment::{TrafficFlows, clock};
use weir_traffic::{
    FrameSizes, Mac, ReceiveMethod, ReceiveSpec, RunSpec, SendMethod, SendSpec, SinkSpec,
    SinkVerdict, SocketsSpec, UdpSend, XdpSend, XdpStream,
};

use super::broker_lab::{BrokerLab, connection_path, namespace};
use super::guarantee::{LabPath, iperf};
use super::shared_lab::SharedLab;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let shared = SharedLab::up()?;
    let broker = shared.lab.broker()?;
    rec.within("share/", |rec| floods(&shared.lab, MBIT, rec))?;
    rec.within("connection/", |rec| connection(&shared.lab, rec))?;
    rec.within("crossing/", |rec| crossing(rec))?;
    rec.within("change/", |rec| change(&shared, rec))?;
    rec.within("drift/", |rec| drift(&shared, rec))?;
    broker.terminate();
    shared.down()
}

/// Red sends within its share, alone and beside a flood in blue; the broker is asked meanwhile. A
/// unit is a hundredth of the link, in bits a second.
pub(super) fn floods(lab: &BrokerLab, unit: u64, rec: &mut Recording<'_>) -> Result {
    let seconds = if rec.quick { 4 } else { 20 };
    let length = Duration::from_secs(seconds);
    let receivers = [sockets("rh2", "[fd20:2::2]:9000"), sink("b2", "b1")];
    for (name, flooded) in [("alone", false), ("flooded", true)] {
        let mut senders = vec![within_share(unit)];
        if flooded {
            senders.push(from_root(vec![flood(unit)]));
        }
        let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
        let (seen, (asked, answered)) = flows.run(None, |start_ns| {
            clock::sleep_until(start_ns)?;
            let until = Instant::now() + length;
            ask(lab, until)
        })?;
        let sent = seen.packets_sent(RED);
        let lost = sent.saturating_sub(seen.packets(0, RED));
        rec.none(name, "packets lost of nine tenths of a share", lost)?;
        rec.none(
            format!("{name}/refused"),
            "requests to the broker that were not answered meanwhile",
            asked - answered,
        )?;
        rec.say(&format!("{name}: {sent} packets, {answered} requests answered"));
        if flooded {
            let text = "what the flood got of the link: the rest, and more than its own share";
            let series = Series::unordered("bit/s", seen.got(1, FLOOD));
            #[expect(clippy::cast_precision_loss, reason = "a rate of a link")]
            let bound = Bound::at_least(FLOOD_LEAST * unit as f64);
            rec.claim_samples("flood", text, series, Rule::Median, bound)?;
        }
    }
    Ok(())
}

/// Asks the broker for connections and gives them back. Returns requests sent and answered.
fn ask(lab: &BrokerLab, until: Instant) -> Result<(u64, u64)> {
    let (mut asked, mut answered) = (0, 0);
    while Instant::now() < until {
        asked += 1;
        let body = connection_of_red("1Mbit", 7000);
        if let Ok(made) = lab.ask(Method::POST, "/v1/connections", Some(&body)) {
            let path = connection_path(&made);
            let gone = lab.ask(Method::DELETE, &path, None);
            answered += u64::from(gone.is_ok());
        }
        clock::sleep(BETWEEN_REQUESTS)?;
    }
    Ok((asked, answered))
}

/// A connection in red has its rate beside the flood.
fn connection(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let body = connection_of_red("20Mbit", 5201);
    let made = lab.ask(Method::POST, "/v1/connections", Some(&body))?;
    let seconds = if rec.quick { 5 } else { 20 };
    let path = LabPath { from: "rh1", to: "rh2", address: "fd20:2::2", port: 5201 };
    let senders = [from_root(vec![flood(MBIT)])];
    let length = Duration::from_secs(u64::from(seconds) + 4);
    let flows = TrafficFlows { senders: &senders, receivers: &[], length };
    let (_, found) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        iperf(lab, path, "30M", seconds)
    })?;
    let bits = found["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default();
    rec.keep("rate", Series::unordered("bit/s", vec![bits * 1474.0 / 1412.0]))?;
    let text = "rate of a connection of 20 Mbit/s, 30 offered, beside the flood";
    let series = ["rate".to_owned()];
    rec.claim("least", text, Rule::Min, Bound::at_least(20e6 * 0.995), &series)?;
    rec.claim("most", text, Rule::Max, Bound::at_most(20e6 * 1.005), &series)?;
    lab.remove(&made)
}

/// Root in blue sends what is red's: nothing of it arrives in red, at either host.
pub(super) fn crossing(rec: &mut Recording<'_>) -> Result {
    let mac = |text: &str| text.parse::<Mac>().map_err(ExperimentError::Node);
    let (own, theirs) = (mac("02:00:00:00:0b:02")?, mac("02:00:00:00:0e:02")?);
    let spoofed = Some(mac("02:00:00:00:0e:01")?);
    let few = Some(Rate::Pps(FEW_PPS));
    let stream = |number, destination_mac| XdpStream {
        rate: few,
        ..XdpStream::new(number, "b2", destination_mac, FrameSizes::Fixed(200))
    };
    let [source, destination] = ["fd20:12::1", "fd20:12::2"].map(address);
    let theirs_in_ip =
        |of: XdpStream| XdpStream { source: source.into(), destination: destination.into(), ..of };
    let senders = [from_root(vec![
        stream(OWN, own),
        stream(OWN_BROADCAST, EVERYBODY),
        theirs_in_ip(stream(THEIR_ADDRESSES, theirs)),
        XdpStream { vlan: Some(RED_VLAN), ..theirs_in_ip(stream(THEIR_TAG, theirs)) },
        XdpStream { vlan: Some(RED_VLAN), ..theirs_in_ip(stream(THEIR_TAG_TO_ALL, EVERYBODY)) },
        XdpStream { source_mac: spoofed, ..theirs_in_ip(stream(THEIR_MAC, theirs)) },
        XdpStream { source_mac: spoofed, ..theirs_in_ip(stream(THEIR_MAC_TO_ALL, EVERYBODY)) },
    ])];
    let receivers = [sink("b2", "b1"), sink("r2", "r1"), sink("r1", "r2")];
    let length = Duration::from_secs(if rec.quick { 2 } else { 10 });
    let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
    let (seen, ()) = flows.run(None, clock::sleep_until)?;
    let own: u64 =
        [OWN, OWN_BROADCAST].into_iter().map(|of| seen.packets(0, of)).min().unwrap_or(0);
    rec.at_least(
        "own",
        "of blue's own frames, unicast or to all, at its far router",
        own,
        FEW_PPS,
    )?;
    for (name, what, streams) in [
        ("tag", "frames with red's VLAN", [THEIR_TAG, THEIR_TAG_TO_ALL]),
        ("addresses", "frames with red's addresses, or to all", [THEIR_ADDRESSES, OWN_BROADCAST]),
        ("mac", "frames from red's MAC address", [THEIR_MAC, THEIR_MAC_TO_ALL]),
        ("own-to-red", "blue's own frames", [OWN, OWN_BROADCAST]),
    ] {
        let sent = streams.into_iter().map(|of| seen.packets_sent(of)).min().unwrap_or(0);
        rec.at_least(format!("{name}/sent"), format!("{what}: sent"), sent, FEW_PPS)?;
        let at_red = |of| seen.packets(1, of) + seen.packets(2, of);
        let crossed = streams.into_iter().map(at_red).sum();
        rec.none(name, format!("{what} that arrived in red"), crossed)?;
    }
    Ok(())
}

/// Shares of both networks change while red sends within the smallest of its own, beside the flood.
fn change(shared: &SharedLab, rec: &mut Recording<'_>) -> Result {
    let node = shared.node("n1");
    let before = node.text("/v1/document")?;
    let rounds: u64 = if rec.quick { 3 } else { 20 };
    let length = Duration::from_secs(2 + rounds);
    let (senders, receivers) =
        ([within_share(MBIT), from_root(vec![flood(MBIT)])], [sockets("rh2", "[fd20:2::2]:9000")]);
    let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
    let share = |network: &str, link: &str, rate: &str| {
        let path = format!("/v1/networks/{network}/links/{link}");
        shared.lab.ask(Method::PATCH, &path, Some(&json!({ "rate": rate }))).map(drop)
    };
    let (seen, ()) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        for round in 0..rounds {
            // One network gives up 10 Mbit/s before the other takes them.
            if round % 2 == 0 {
                share("blue", "b1-b2", "40Mbit")?;
                share("red", "r1-r2", "50Mbit")?;
            } else {
                share("red", "r1-r2", "40Mbit")?;
                share("blue", "b1-b2", "50Mbit")?;
            }
            clock::sleep(Duration::from_secs(1))?;
        }
        Ok(())
    })?;
    let lost = seen.packets_sent(RED).saturating_sub(seen.packets(0, RED));
    rec.none("lost", "packets of red lost while shares change, beside the flood", lost)?;
    share("red", "r1-r2", "40Mbit")?;
    share("blue", "b1-b2", "50Mbit")?;
    let restored = clock::wait_for(BACK_WITHIN, POLL, || {
        Ok(same_tables(&node.text("/v1/document")?, &before).then_some(()))
    })?;
    let late = || ExperimentError::Node("n1 does not have the shares of before".to_owned());
    restored.ok_or_else(late)?;
    let above = share("red", "r1-r2", "41Mbit").is_err();
    rec.count("refused", "shares beyond the link that are refused", u64::from(above), ONE)
}

/// Somebody changes a share at a node, or takes a vif away: how long until it is back.
fn drift(shared: &SharedLab, rec: &mut Recording<'_>) -> Result {
    let node = shared.node("n1");
    let sound = node.text("/v1/document")?;
    let less = json!({ "send": { "min_rate_bps": 1_000_000 } });
    let rounds = if rec.quick { 3 } else { 20 };
    for (name, what, method, body) in [
        ("share", "until a changed share is back", Method::PATCH, Some(&less)),
        ("vif", "until a removed vif is back", Method::DELETE, None),
    ] {
        let mut took = Vec::new();
        for round in 0..rounds {
            // Out of step with the comparison of each second.
            clock::sleep(Duration::from_millis(1000 + round * 370 % 1000))?;
            let _made: Value = node.ask(method.clone(), "/v1/vifs/broker.r1.r2", body)?;
            let begun = Instant::now();
            let back = clock::wait_for(BACK_WITHIN, POLL, || {
                let now = node.text("/v1/document");
                Ok(now.is_ok_and(|now| same_tables(&now, &sound)).then_some(()))
            })?;
            took.push(back.map_or(BACK_WITHIN, |()| begun.elapsed()).as_secs_f64());
        }
        let series = Series::unordered("s", took);
        rec.claim_samples(name, what, series, Rule::Median, Bound::at_most(1.0))?;
    }
    let networks = shared.lab.ask(Method::GET, "/v1/networks", None)?;
    let repaired = networks[0]["nodes"][0]["repaired"].as_u64().unwrap_or_default();
    rec.count("counted", "repairs that the broker counts", repaired, Bound::at_least(2.0))
}

/// Compares two documents, whatever the order of their tables.
fn same_tables(one: &str, other: &str) -> bool {
    let tables = |text: &str| {
        let mut tables: Vec<_> = text.split("\n[[").map(|of| of.trim().to_owned()).collect();
        tables.sort();
        tables
    };
    tables(one) == tables(other)
}

pub(super) fn connection_of_red(rate: &str, port: u16) -> Value {
    json!({
        "network": "red", "from": "rh1", "to": "rh2", "rate": rate,
        "protocol": "udp", "to_port": port
    })
}

/// Red's end node sends within red's share, outside of any connection.
pub(super) fn within_share(unit: u64) -> SendSpec {
    let method = SendMethod::Udp(UdpSend {
        stream: RED,
        to: ([0xfd20, 2, 0, 0, 0, 0, 0, 2], 9000).into(),
        from: None,
        connections: 1,
        rate: Some(Rate::Bps(OFFERED * unit)),
        sizes: FrameSizes::Fixed(FRAME),
        count: None,
        buffer_bytes: None,
    });
    SendSpec { run: at("rh1"), start_ns: None, method }
}

/// Frames that root sends from blue's router, past every queueing discipline there.
pub(super) fn from_root(streams: Vec<XdpStream>) -> SendSpec {
    SendSpec { run: at("b1"), start_ns: None, method: SendMethod::Xdp(XdpSend::new(streams)) }
}

/// Twice the rate of the link.
pub(super) fn flood(unit: u64) -> XdpStream {
    let to = Mac([2, 0, 0, 0, 0x0b, 2]);
    XdpStream {
        rate: Some(Rate::Bps(200 * unit)),
        source: address("fd10:12::1").into(),
        destination: address("fd10:12::2").into(),
        ..XdpStream::new(FLOOD, "b2", to, FrameSizes::Fixed(FRAME))
    }
}

pub(super) fn sink(node: &str, device: &str) -> ReceiveSpec {
    let sink = SinkSpec { verdict: SinkVerdict::DropMeasured, ..SinkSpec::new(device) };
    ReceiveSpec { run: at(node), ..ReceiveSpec::new(ReceiveMethod::Sink(sink)) }
}

pub(super) fn sockets(node: &str, address: &str) -> ReceiveSpec {
    let udp = address.parse().into_iter().collect();
    let sockets = SocketsSpec { udp, ..SocketsSpec::default() };
    ReceiveSpec { run: at(node), ..ReceiveSpec::new(ReceiveMethod::Sockets(sockets)) }
}

pub(super) fn at(node: &str) -> RunSpec {
    RunSpec { netns: Some(namespace(node)), ..RunSpec::default() }
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap_or(Ipv6Addr::UNSPECIFIED)
}

const ONE: Bound = Bound::equal(1.0);

const EVERYBODY: Mac = Mac([0xff; 6]);

const RED_VLAN: u16 = 20;

/// Streams, by number.
pub(super) const RED: u16 = 0;
const FLOOD: u16 = 1;
const OWN: u16 = 2;
const OWN_BROADCAST: u16 = 3;
const THEIR_ADDRESSES: u16 = 4;
const THEIR_TAG: u16 = 5;
const THEIR_TAG_TO_ALL: u16 = 6;
const THEIR_MAC: u16 = 7;
const THEIR_MAC_TO_ALL: u16 = 8;

/// A hundredth of the link.
const MBIT: u64 = 1_000_000;

/// Red's traffic in hundredths of the link: within its share of 40.
const OFFERED: u64 = 36;

/// The flood's own share is 50 hundredths, and red leaves 64.
const FLOOD_LEAST: f64 = 58.0;

const FEW_PPS: u64 = 200;

/// A frame of 1460 bytes of packet, layer-2 bytes without checksum.
pub(super) const FRAME: u16 = 1474;

const BETWEEN_REQUESTS: Duration = Duration::from_millis(200);

const BACK_WITHIN: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(20);
