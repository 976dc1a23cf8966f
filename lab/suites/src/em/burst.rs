// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hundred requests on one node at once: how long until all are done, in which [`order`], and
//! whether any of many callers waits for much longer than the others.
//!
//! All connections enter at one router, over connections to the broker that are open before.

use std::sync::Barrier;
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Client, Method};
use weir_experiment::clock;
use weir_experiment::prelude::*;

use super::broker_lab::{BrokerLab, connection_path, parsed};
use super::order::{self, Inversions, RequestOrder};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    let rounds = if rec.quick { 5 } else { 20 };
    let (mut ratios, mut inversions) = (Vec::new(), Inversions::default());
    for round in 0..=rounds {
        let mut alone = Vec::new();
        for _ in 0..ALONE {
            let [one] = served(&lab, Callers::ONE)?.try_into().map_err(|_| none())?;
            alone.push(one.waited());
        }
        let at_once = Callers { keep: Keep::Yes, ..Callers::AT_ONCE };
        let all = served(&lab, at_once)?;
        // The first round is not counted: programs and caches are cold.
        if round > 0 {
            let begun = all.iter().map(|of| of.sent).min().ok_or_else(none)?;
            let last = all.iter().map(|of| of.answered).max().ok_or_else(none)?;
            ratios.push(last.duration_since(begun).as_secs_f64() / median(&mut alone));
        }
        remove(&lab, &all)?;
        let in_turn = served(&lab, Callers { apart: Duration::from_millis(1), ..at_once })?;
        if round > 0 {
            inversions.add(&orders(&lab, &in_turn)?);
        }
        remove(&lab, &in_turn)?;
    }
    let series = Series::unordered("1", ratios);
    let text = format!("{AT_ONCE} at once: until all are done, in times of one alone, median");
    rec.claim_samples("all", text, series, Rule::Median, Bound::at_most(15.0))?;
    inversions.claim(rec)?;
    let rounds = if rec.quick { 3 } else { 10 };
    let all = served(&lab, Callers { rounds, ..Callers::AT_ONCE })?;
    let mut waits: Vec<_> = all.iter().map(ServedRequest::waited).collect();
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
    sent: Instant,
    answered: Instant,
}

impl ServedRequest {
    /// Returns the seconds from the request sent to the answer.
    fn waited(&self) -> f64 {
        self.answered.duration_since(self.sent).as_secs_f64()
    }
}

/// Tells whether connections stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

/// Callers that begin together, or one after the other.
#[derive(Clone, Copy)]
struct Callers {
    count: u32,
    /// Requests of each, one after the other.
    rounds: usize,
    /// Without [`Keep::Yes`] a caller gives each connection back before its next request.
    keep: Keep,
    /// The time between the first requests of two of them.
    apart: Duration,
}

impl Callers {
    const ONE: Self = Self { count: 1, rounds: 1, keep: Keep::No, apart: Duration::ZERO };
    const AT_ONCE: Self = Self { count: AT_ONCE, ..Self::ONE };
}

/// Has all callers ask.
fn served(lab: &BrokerLab, callers: Callers) -> Result<Vec<ServedRequest>> {
    let client = lab.client()?;
    let (client, ready) = (&client, &Barrier::new(callers.count as usize));
    let all: Vec<Result<Vec<ServedRequest>>> = lab.within(|| {
        std::thread::scope(|scope| {
            let call = |number| scope.spawn(move || caller(client, number, callers, ready));
            let threads: Vec<_> = (0..callers.count).map(call).collect();
            threads.into_iter().map(weir_experiment::joined).collect()
        })
    })?;
    Ok(all.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn remove(lab: &BrokerLab, all: &[ServedRequest]) -> Result {
    lab.remove_many(&all.iter().map(|of| of.connection.clone()).collect::<Vec<_>>())
}

fn caller(
    client: &Client,
    number: u32,
    Callers { rounds, keep, apart, .. }: Callers,
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
    clock::sleep(apart * number)?;
    let mut made = Vec::new();
    for _ in 0..rounds {
        let sent = Instant::now();
        let (status, answer) = open.ask(Method::POST, "/v1/connections", &body).map_err(broken)?;
        let answered = Instant::now();
        let connection: Value = parsed(&String::from_utf8_lossy(&answer))?;
        if status != 201 {
            return Err(ExperimentError::Node(format!("{status}: {connection}")));
        }
        if keep == Keep::No {
            open.ask(Method::DELETE, &connection_path(&connection), "").map_err(broken)?;
        }
        made.push(ServedRequest { connection, sent, answered });
    }
    Ok(made)
}

/// Returns the order of requests, with the numbers of their devices at the entry.
fn orders(lab: &BrokerLab, all: &[ServedRequest]) -> Result<Vec<RequestOrder>> {
    let devices = order::device_numbers(lab, "b1")?;
    let of = |ServedRequest { connection, sent, answered }: &ServedRequest| {
        let number = connection["tunnels"][0]["number"].as_u64()?;
        let device = *devices.get(&format!("wc{number}"))?;
        Some(RequestOrder { sent: *sent, answered: *answered, number, device })
    };
    all.iter().map(|request| of(request).ok_or_else(none)).collect()
}

fn none() -> ExperimentError {
    ExperimentError::Node("a connection is not there".to_owned())
}

/// Sorts the samples and returns the one in the middle.
fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

const AT_ONCE: u32 = 100;

/// Set-ups alone before each round.
const ALONE: usize = 9;

/// The longest wait, in times of the median: a request waits for the batch before it and for its
/// own, and so do the removals between.
const STARVED: f64 = 4.0;
