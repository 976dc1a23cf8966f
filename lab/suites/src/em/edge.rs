// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The forwarding rate of a router at which many connections enter (row 11).
//!
//! A router finds a packet's mark by hash tables, the most specific kind of selector first, and the
//! mark's tunnel by rules, one after the other. The packets that are measured are those of a
//! connection of all packets between two end nodes, the last that was made: they find their tunnel
//! later than those of any other connection. The others have a port each and send nothing.
//!
//! Throughput is the rate at which at most 0.1 % of the packets are lost, with few connections and
//! with many in turns, so that a machine that slows down meanwhile slows both.

use serde_json::{Value, json};
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, parsed};
use super::tables::{PathTrials, SMALL, connect_all, fast_lab};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = fast_lab()?;
    let broker = lab.broker()?;
    let stop = weir_traffic::stop_on_signals()?;
    let mut trials = PathTrials::to("bh2", "eth0", SMALL, stop)?;
    let length_ms = if rec.quick { 300 } else { 2_000 };
    let mut others = Vec::new();
    let (mut found, mut wrong, mut past) = ([const { Vec::new() }; 2], 0, 0);
    for round in 0..ROUNDS {
        // Each round begins with as many as the one before ended with.
        let turns = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for turn in turns {
            let count = CONNECTIONS[turn];
            resize(&lab, &mut others, count - 1)?;
            let measured = connect_all(&lab, "8Gbit")?;
            wrong += lab.tunnels_at("b1")?.1.abs_diff(count) as u64;
            let bucket = format!("wc{}", measured["tunnels"][0]["number"]);
            let before = bucketed(&lab, &bucket)?;
            let pps = trials.throughput(length_ms)?;
            // The trial that gave the answer had as many, but for a tenth.
            let least = pps * length_ms / 1000 * 9 / 10;
            past += u64::from(bucketed(&lab, &bucket)?.saturating_sub(before) < least);
            rec.say(&format!("{count} connections at one router: {pps} packets/s"));
            found[turn].push(float(pps));
            lab.remove_many(&[measured])?;
        }
    }
    rec.none("edge/wrong", "entries that the router lacked or had too many of", wrong)?;
    rec.none("edge/past", "measurements whose packets went past their tunnel", past)?;
    let names = CONNECTIONS.map(|count| format!("edge/{count}/pps"));
    for (name, pps) in names.iter().zip(found) {
        rec.keep(name, Series::unordered("packet/s", pps))?;
    }
    let [few, many] = names;
    let text = format!(
        "packets/s of {SMALL} bytes past {} connections, of those past {}, medians",
        CONNECTIONS[1], CONNECTIONS[0]
    );
    let least = Bound::at_least(LEAST);
    rec.claim("edge", text, Rule::RatioOfMedians, least, &[many, few])?;
    broker.terminate();
    lab.down()
}

/// Returns the packets that a device's bucket has let through.
fn bucketed(lab: &BrokerLab, device: &str) -> Result<u64> {
    let line = format!("tc -s -j qdisc show dev {device}");
    let qdiscs: Vec<Value> = parsed(&lab.run("b1", Command::line(&line))?)?;
    let bucket = qdiscs.iter().find(|of| of["kind"] == "tbf");
    Ok(bucket.and_then(|of| of["packets"].as_u64()).unwrap_or_default())
}

/// Makes or removes connections until there are `count` beside the one that is measured.
fn resize(lab: &BrokerLab, others: &mut Vec<Value>, count: usize) -> Result {
    if count < others.len() {
        return lab.remove_many(&others.split_off(count));
    }
    let request = |number: usize| {
        json!({
            "network": "blue", "from": "bh1", "to": "bh2", "rate": "100kbit", "protocol": "udp",
            "to_port": FIRST_PORT + number
        })
    };
    let requests: Vec<_> = (others.len()..count).map(request).collect();
    others.extend(lab.connect_many(&requests)?);
    Ok(())
}

/// Connections at the router, few and many.
const CONNECTIONS: [usize; 2] = [10, 1000];

const ROUNDS: usize = 3;

/// Above the port that the tester sends to.
const FIRST_PORT: usize = 20_000;

/// The part of the throughput that is to be left.
const LEAST: f64 = 0.5;
