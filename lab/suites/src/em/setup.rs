// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Set-up time: from the request sent to the answer, which comes after the nodes were read back.
//!
//! The store confirms each commit by the disk. After each series the routers are read from outside:
//! nothing of it may be left.

use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Client, Method};
use weir_experiment::prelude::*;

use super::broker_lab::{BrokerLab, ROUTERS, parsed};

/// Shows set-up times.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    measure(rec, |rec, at_once, set_ups| {
        let total = set_ups.iter().map(|set_up| set_up.total_ms / 1e3).collect();
        let name = format!("{at_once}/set-up");
        rec.keep(&name, Series::unordered("s", total))?;
        let text = format!("set-up with {at_once} at once, median");
        let bound = match at_once {
            1 => 0.04,
            10 => 0.25,
            _ => 0.6,
        };
        let series = [name];
        rec.claim(format!("{at_once}/p50"), text, Rule::Median, Bound::at_most(bound), &series)?;
        let text = format!("set-up with {at_once} at once, 95 %");
        let p95 = Rule::Percentile { percent: 95.0 };
        rec.claim(format!("{at_once}/p95"), text, p95, Bound::at_most(1.0), &series)?;
        let text = format!("the longest set-up with {at_once} at once");
        let longest = Bound::at_most(LONGEST_S);
        rec.claim(format!("{at_once}/longest"), text, Rule::Max, longest, &series)
    })
}

/// Shows the store's share of set-up times.
pub(super) fn show_store(rec: &mut Recording<'_>) -> Result {
    measure(rec, |rec, at_once, set_ups| {
        let share = set_ups.iter().map(|set_up| set_up.store_ms / set_up.total_ms.max(1e-9));
        let series = Series::unordered("1", share.collect());
        let text = format!("store's share of set-up with {at_once} at once, median");
        let id = format!("{at_once}/share");
        rec.claim_samples(id, text, series, Rule::Median, Bound::at_most(0.2))
    })
}

/// Times of one set-up.
struct SetUpTime {
    total_ms: f64,
    store_ms: f64,
}

fn measure(
    rec: &mut Recording<'_>,
    judge: impl Fn(&mut Recording<'_>, usize, &[SetUpTime]) -> Result,
) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    for at_once in [1, 10, 100] {
        let rounds = if rec.quick { 100 / at_once.max(20) } else { 50 };
        let mut all = Vec::new();
        // The first round is not counted: programs and caches are cold.
        for round in 0..=rounds {
            let made = round_of(&lab, at_once)?;
            if round > 0 {
                all.extend(made);
            }
        }
        judge(rec, at_once, &all)?;
        let mut left = 0;
        for router in ROUTERS {
            let (routes, entries) = lab.tunnels_at(router)?;
            left += routes + entries;
        }
        let text = "routes and entries left on routers after the series";
        rec.none(format!("{at_once}/left"), text, left as u64)?;
    }
    broker.terminate();
    lab.down()
}

/// Makes `at_once` connections at the same time, and removes them.
fn round_of(lab: &BrokerLab, at_once: usize) -> Result<Vec<SetUpTime>> {
    let client = lab.client()?;
    let client = &client;
    let made: Vec<Result<(Value, SetUpTime)>> = lab.within(|| {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..at_once).map(|number| scope.spawn(move || set_up(client, number))).collect();
            threads.into_iter().map(weir_experiment::joined).collect()
        })
    })?;
    let mut times = Vec::new();
    for made in made {
        let (connection, time) = made?;
        lab.remove(&connection)?;
        times.push(time);
    }
    Ok(times)
}

/// Makes one connection.
fn set_up(client: &Client, number: usize) -> Result<(Value, SetUpTime)> {
    let body = json!({
        "network": "blue", "from": "bh1", "to": "bh2", "rate": "100kbit",
        "protocol": "udp", "to_port": 6000 + number
    });
    let (made, total_ms) = timed_post(client, "/v1/connections", &body)?;
    let store_ms = made["took"]["store_ms"].as_f64().unwrap_or(f64::INFINITY);
    Ok((made, SetUpTime { total_ms, store_ms }))
}

/// Asks for something to be made, over a connection that is open before. Returns the answer, and
/// the milliseconds until it was there.
pub(super) fn timed_post(client: &Client, path: &str, body: &Value) -> Result<(Value, f64)> {
    let broken = |error| ExperimentError::io(path, error);
    let mut open = client.connect()?;
    // The handshake is over with the first answer.
    open.ask(Method::GET, "/v1/none", "").map_err(broken)?;
    let begun = Instant::now();
    let asked = open.ask(Method::POST, path, &body.to_string());
    let total_ms = begun.elapsed().as_secs_f64() * 1e3;
    let (status, answer) = asked.map_err(broken)?;
    let made: Value = parsed(&String::from_utf8_lossy(&answer))?;
    if status != 201 {
        return Err(ExperimentError::Node(format!("{status}: {made}")));
    }
    Ok((made, total_ms))
}

/// ITU-T E.721 wants 95 % within 6 s.
const LONGEST_S: f64 = 6.0;
