// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hundred requests on one node at once: how long until all are done, in which order the node
//! got them, and whether any of many callers waits for much longer than the others.
//!
//! All connections enter at one router, over connections to the broker that are open before. The
//! order is read from outside: the kernel numbers devices as they are made, and the broker numbers
//! tunnels as it admits them.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Client, Method};
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, connection_path, parsed};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    let rounds = if rec.quick { 5 } else { 20 };
    let (mut ratios, mut inverted) = (Vec::new(), 0);
    for round in 0..=rounds {
        let mut alone = Vec::new();
        for _ in 0..ALONE {
            let [one] = served(&lab, 1, 1, Keep::No)?.try_into().map_err(|_| none())?;
            alone.push(one.waited);
        }
        let all = served(&lab, AT_ONCE, 1, Keep::Yes)?;
        // The first round is not counted: programs and caches are cold.
        if round > 0 {
            let last = all.iter().map(|of| of.done).fold(0.0, f64::max);
            ratios.push(last / median(&mut alone));
            inverted += inversions(&lab, &all)?;
        }
        for of in &all {
            lab.remove(&of.connection)?;
        }
    }
    let series = Series::unordered("1", ratios);
    let text = format!("{AT_ONCE} at once: until all are done, in times of one alone, median");
    rec.claim_samples("all", text, series, Rule::Median, Bound::at_most(15.0))?;
    rec.none("order", "devices made before that of a request admitted earlier", inverted)?;
    let rounds = if rec.quick { 3 } else { 10 };
    let mut waits: Vec<_> =
        served(&lab, AT_ONCE, rounds, Keep::No)?.iter().map(|of| of.waited).collect();
    let (usual, longest) = (median(&mut waits), waits.last().copied().unwrap_or_default());
    rec.say(&format!(
        "{AT_ONCE} callers, {rounds} times each: {usual:.3} s, longest {longest:.3} s"
    ));
    let series = Series::unordered("1", vec![longest / usual]);
    let text = format!("longest wait of {AT_ONCE} callers without pause, in times of their median");
    rec.claim_samples("starved", text, series, Rule::Max, Bound::at_most(STARVED))?;
    let left = lab.tunnels_at("b1")?;
    rec.none("left", "routes and entries left at the router", (left.0 + left.1) as u64)?;
    broker.terminate();
    lab.down()
}

/// A connection that was made.
struct ServedRequest {
    connection: Value,
    /// Seconds from the request sent to the answer.
    waited: f64,
    /// Seconds from the common start to the answer.
    done: f64,
}

/// Tells whether connections stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

/// Has so many callers begin at the same time, each with so many requests one after the other.
/// Without [`Keep::Yes`] a caller gives each connection back before its next request.
fn served(
    lab: &BrokerLab,
    callers: usize,
    rounds: usize,
    keep: Keep,
) -> Result<Vec<ServedRequest>> {
    let client = lab.client()?;
    let (client, ready) = (&client, &Barrier::new(callers));
    let all: Vec<Result<Vec<ServedRequest>>> = lab.within(|| {
        std::thread::scope(|scope| {
            let call = |number| scope.spawn(move || caller(client, number, rounds, keep, ready));
            let threads: Vec<_> = (0..callers).map(call).collect();
            threads.into_iter().map(weir_experiment::joined).collect()
        })
    })?;
    Ok(all.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn caller(
    client: &Client,
    number: usize,
    rounds: usize,
    keep: Keep,
    ready: &Barrier,
) -> Result<Vec<ServedRequest>> {
    let broken = |error| ExperimentError::io("broker", error);
    let body = json!({
        "network": "blue", "from": "bh1", "to": "bh2", "rate": "100kbit",
        "protocol": "udp", "to_port": 6000 + number
    })
    .to_string();
    // The handshake is over with the first answer. A caller without a connection still comes to
    // the barrier, where the others wait for it.
    let open = client.connect().map_err(ExperimentError::from).and_then(|mut open| {
        open.ask(Method::GET, "/v1/none", "").map_err(broken)?;
        Ok(open)
    });
    ready.wait();
    let mut open = open?;
    let (start, mut made) = (Instant::now(), Vec::new());
    for _ in 0..rounds {
        let begun = Instant::now();
        let (status, answer) = open.ask(Method::POST, "/v1/connections", &body).map_err(broken)?;
        let (waited, done) = (begun.elapsed().as_secs_f64(), start.elapsed().as_secs_f64());
        let connection: Value = parsed(&String::from_utf8_lossy(&answer))?;
        if status != 201 {
            return Err(ExperimentError::Node(format!("{status}: {connection}")));
        }
        if keep == Keep::No {
            open.ask(Method::DELETE, &connection_path(&connection), "").map_err(broken)?;
        }
        made.push(ServedRequest { connection, waited, done });
    }
    Ok(made)
}

/// Counts entries whose device was made before that of a connection admitted earlier.
fn inversions(lab: &BrokerLab, all: &[ServedRequest]) -> Result<u64> {
    let links: Vec<Value> = parsed(&lab.run("b1", Command::line("ip -j link show"))?)?;
    let index =
        |link: &Value| Some((link["ifname"].as_str()?.to_owned(), link["ifindex"].as_u64()?));
    let made: BTreeMap<_, _> = links.iter().filter_map(index).collect();
    let mut order = Vec::new();
    for of in all {
        let number = of.connection["tunnels"][0]["number"].as_u64().ok_or_else(none)?;
        order.push((number, made.get(&format!("wc{number}")).copied().ok_or_else(none)?));
    }
    order.sort_unstable();
    Ok(order.windows(2).filter(|pair| pair[1].1 < pair[0].1).count() as u64)
}

fn none() -> ExperimentError {
    ExperimentError::Node("a connection is not there".to_owned())
}

/// Sorts the samples and returns the one in the middle.
fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

const AT_ONCE: usize = 100;

/// Set-ups alone before each round.
const ALONE: usize = 9;

/// The longest wait, in times of the median: a request waits for the batch before it and for its
/// own, and so do the removals between.
const STARVED: f64 = 4.0;
