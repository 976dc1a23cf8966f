// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection that is moved to and fro between two equal paths while packets pass.
//!
//! A sender that was late sends a burst, which the limiter may cut; a receiver that was late lets
//! its socket overflow. Both count what they drop, and neither is the path's doing.

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, connection_path};
use super::guarantee::{LabPath, connect, iperf};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    let made = connect(&lab, "60Mbit", 5201)?;
    let changes = if rec.quick { 20 } else { 100 };
    let path = LabPath { from: "bh1", to: "bh2", address: "fd10:2::2", port: 5201 };
    // A change takes some 100 ms, of which 50 are for what is under way on the old path.
    let seconds = changes + 3;
    let (found, moved) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| iperf(&lab, path, "50M", seconds));
        let moved = change(&lab, &made, changes);
        let found = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (found, moved)
    });
    let (found, (moved, took)) = (found?, moved?);
    let sum = &found["end"]["sum"];
    let count = |key: &str| sum[key].as_u64().unwrap_or(u64::MAX);
    let sent_for = sum["seconds"].as_f64().unwrap_or_default();
    let changing: f64 = took.iter().sum();
    rec.say(&format!(
        "{} packets in {sent_for:.0} s, {changing:.0} of them changes",
        count("packets")
    ));
    rec.count("moved", "changes of the path", moved, Bound::equal(f64::from(changes)))?;
    let report = lab.ask(Method::GET, &format!("{}/report", connection_path(&made)), None)?;
    let limited = report[0]["dropped_packets"].as_u64().unwrap_or_default();
    let overflowed = socket_drops(&lab)?;
    let lost = count("lost_packets");
    rec.say(&format!(
        "{lost} lost: {limited} by the limiter, {overflowed} by the receiver's socket"
    ));
    let text = "packets lost of 4.4 kpps between limiter and receiver";
    rec.none("lost", text, lost.saturating_sub(limited + overflowed))?;
    let reordered = found["end"]["streams"][0]["udp"]["out_of_order"].as_u64();
    rec.none("reordered", "packets reordered", reordered.unwrap_or(u64::MAX))?;
    let series = Series::unordered("s", vec![sent_for - changing]);
    let text = "time for which packets passed after the last change";
    rec.claim_samples("covered", text, series, Rule::Min, Bound::at_least(0.0))?;
    broker.terminate();
    lab.down()
}

/// Returns the packets for which a socket of the receiving end node had no room.
fn socket_drops(lab: &BrokerLab) -> Result<u64> {
    let counters = lab.run("bh2", Command::line("cat /proc/net/snmp6"))?;
    let line = counters.lines().find(|line| line.starts_with("Udp6RcvbufErrors"));
    let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    Ok(count.unwrap_or_default())
}

/// Moves the connection to and fro. Returns how often its path became another, and the time that
/// each change took with the pause after it.
fn change(lab: &BrokerLab, made: &Value, changes: u32) -> Result<(u64, Vec<f64>)> {
    clock::sleep(Duration::from_secs(1))?;
    let path = connection_path(made);
    let (mut moved, mut before) = (0, made["tunnels"][0]["links"].clone());
    let mut took = Vec::new();
    for _ in 0..changes {
        let begun = clock::monotonic_ns();
        let avoid = json!({ "avoid": [before[0]] });
        let changed = lab.ask(Method::PATCH, &path, Some(&avoid))?;
        let links = changed["tunnels"][0]["links"].clone();
        moved += u64::from(links != before);
        before = links;
        clock::sleep(Duration::from_millis(50))?;
        took.push(float(clock::monotonic_ns() - begun) / 1e9);
    }
    Ok((moved, took))
}
