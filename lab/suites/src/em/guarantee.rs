// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection asked for by JSON with `curl`: how soon there is one, its rate, floods beside it, a
//! refusal and what it named; then one by XML, and pings through it. Row 12 has the page.
//!
//! The floods are best effort, twice the rate of a link: one on the connection's own links, and one
//! in the other network. The two networks share no link here.

use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{ClientError, Method};
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, EndedChild, JSON_KIND, XML_KIND, connection_path, parsed};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    // What `weir-lab lab broker` does until it says that the broker runs.
    let begun = Instant::now();
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    let made = lab.post(JSON_KIND, &request("20Mbit", 5201).to_string())?;
    let ready = Series::unordered("s", vec![begun.elapsed().as_secs_f64()]);
    let text = "from the lab's start until `curl` has a connection";
    rec.claim_samples("ready", text, ready, Rule::Max, Bound::at_most(90.0))?;
    rec.say(&format!("connection: {}", made["tunnels"][0]["routers"]));
    let seconds = if rec.quick { 5 } else { 20 };
    let tunnel = LabPath { from: "bh1", to: "bh2", address: "fd10:2::2", port: 5201 };
    for (id, text, flooded) in [
        ("alone", "rate of 20 Mbit/s asked for, 30 offered, alone", false),
        ("flooded", "the same beside floods", true),
    ] {
        let floods = if flooded { floods(&lab, seconds)? } else { Vec::new() };
        let found = iperf(&lab, tunnel, "30M", seconds)?;
        drop(floods);
        let bits = found["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_default();
        let series = Series::unordered("bit/s", vec![bits * FRAME / PAYLOAD]);
        rec.keep(&format!("{id}/rate"), series)?;
        let series = [format!("{id}/rate")];
        let least = Bound::at_least(ASKED * (1.0 - TOLERANCE));
        rec.claim(format!("{id}/least"), text, Rule::Min, least, &series)?;
        let most = Bound::at_most(ASKED * (1.0 + TOLERANCE));
        rec.claim(format!("{id}/most"), text, Rule::Max, most, &series)?;
    }
    let floods = floods(&lab, seconds)?;
    // 18.2 Mbit/s of payload are 19 of frames.
    let found = iperf(&lab, tunnel, "18200k", seconds)?;
    drop(floods);
    let lost = found["end"]["sum"]["lost_packets"].as_u64().unwrap_or(u64::MAX);
    rec.none("lost", "packets lost of 19 Mbit/s beside floods", lost)?;
    refusal(&lab, rec)?;
    lab.remove(&made)?;
    unmanaged(&lab, rec)?;
    let left = lab.tunnels_at("b1")?;
    rec.none("left", "routes and entries left at its entry", (left.0 + left.1) as u64)?;
    broker.terminate();
    lab.down()
}

/// Asks for UDP from the first to the second end node of `blue`.
pub(super) fn connect(lab: &BrokerLab, rate: &str, port: u16) -> Result<Value, ClientError> {
    lab.ask(Method::POST, "/v1/connections", Some(&request(rate, port)))
}

fn request(rate: &str, port: u16) -> Value {
    json!({
        "network": "blue", "from": "bh1", "to": "bh2", "rate": rate,
        "protocol": "udp", "to_port": port
    })
}

/// Asks for more than there is, then for exactly what the refusal names.
fn refusal(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let refused = match connect(lab, "500Mbit", 6000) {
        Err(ClientError::Refused(refused)) => refused.to_string(),
        _ => String::new(),
    };
    rec.say(&format!("refused: {refused}"));
    let named = refused.split("; ").find_map(|part| {
        part.strip_prefix("rate ")?.split(" would be admitted").next()?.parse().ok()
    });
    let rate: BitRate = named.unwrap_or_default();
    let admits = |rate: BitRate| match connect(lab, &rate.to_string(), 6000) {
        Ok(made) => lab.remove(&made).map(|()| 1),
        Err(ClientError::Refused(_)) => Ok(0),
        Err(error) => Err(error.into()),
    };
    let more = admits(BitRate::from_bps(rate.as_bps() / 100 * 101))?;
    rec.none("above", "admitted 1 % above the rate that the refusal names", more)?;
    rec.count("named", "admitted at that rate", admits(rate)?, Bound::equal(1.0))
}

/// An end node behind a router that nobody manages has a connection there and back, by XML.
fn unmanaged(lab: &BrokerLab, rec: &mut Recording<'_>) -> Result {
    let made = lab.post(XML_KIND, UNMANAGED)?;
    lab.run("bu1", Command::line(&format!("ping -q -c {PINGS} -i 0.05 -W 1 fd10:2::2")))?;
    let report = lab.ask(Method::GET, &format!("{}/report", connection_path(&made)), None)?;
    let tunnels = report.as_array().into_iter().flatten();
    let carried = tunnels.filter(|of| of["passed_packets"].as_u64() >= Some(PINGS)).count();
    let text = "tunnels that carried pings of an end node in an unmanaged network";
    rec.count("unmanaged", text, carried as u64, Bound::equal(2.0))?;
    lab.remove(&made)
}

/// Sends best effort over the links of both networks until the returned values go.
fn floods(lab: &BrokerLab, seconds: u32) -> Result<Vec<EndedChild>> {
    let mut started = Vec::new();
    for (from, to, address, port) in
        [("b1", "bh2", "fd10:2::2", 5301), ("rh1", "rh2", "fd20:2::2", 5302)]
    {
        started.push(lab.start(to, &format!("iperf3 -s -1 -p {port}"))?);
        clock::sleep(SERVER_START)?;
        let line = format!("iperf3 -u -b 200M -l 1412 -c {address} -p {port} -t {}", seconds + 4);
        started.push(lab.start(from, &line)?);
    }
    clock::sleep(SERVER_START)?;
    Ok(started)
}

/// Ends of a measured flow.
#[derive(Clone, Copy)]
pub(super) struct LabPath {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) address: &'static str,
    pub(super) port: u16,
}

/// Sends UDP in packets of 1460 bytes, and returns what `iperf3` says.
pub(super) fn iperf(lab: &BrokerLab, path: LabPath, rate: &str, seconds: u32) -> Result<Value> {
    send(lab, path, &format!("-u -b {rate} -l 1412"), seconds)
}

/// Sends a load in the words of `iperf3`, and returns what it says.
pub(super) fn send(lab: &BrokerLab, path: LabPath, load: &str, seconds: u32) -> Result<Value> {
    let LabPath { from, to, address, port } = path;
    let _server = lab.start(to, &format!("iperf3 -s -1 -p {port}"))?;
    clock::sleep(SERVER_START)?;
    let line = format!("iperf3 -J {load} -c {address} -p {port} -t {seconds}");
    let limit = Duration::from_secs(u64::from(seconds) + 20);
    parsed(&lab.run(from, Command::line(&line).limit(limit))?)
}

/// The request of [`unmanaged`].
const UNMANAGED: &str = "<request><network>blue</network><from>bu1</from><to>bh2</to>\
    <rate>1Mbit</rate><back_rate>1Mbit</back_rate></request>";

/// Pings each way.
const PINGS: u64 = 10;

const SERVER_START: Duration = Duration::from_millis(300);

/// Bits a second that are asked for.
const ASKED: f64 = 20e6;

/// A rate may differ by that much.
const TOLERANCE: f64 = 0.005;

/// Bytes of a frame at layer 2, and of its payload: packets of 1460 bytes.
const FRAME: f64 = 1474.0;
const PAYLOAD: f64 = 1412.0;
