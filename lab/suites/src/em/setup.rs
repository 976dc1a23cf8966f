// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text's Figs 2 to 4: creation, modification and removal, alone, 10 and 100 at once, between
//! random end nodes of 40. A time is from the request sent to the answer, which comes after the
//! nodes were read back.
//!
//! The store confirms each commit by the disk. After each series the routers are read from outside:
//! nothing of it may be left.

use std::sync::Barrier;

use serde_json::{Value, json};
use weir_client::{Client, Method};
use weir_experiment::prelude::*;
use weir_sim::Seed;

use super::broker_lab::{BrokerLab, connection_path};
use super::text_network::{TextNetwork, pair, routers};
use super::timed::timed;

/// A kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedKind {
    Creation,
    Modification,
    Removal,
}

impl TimedKind {
    const ALL: [Self; 3] = [Self::Creation, Self::Modification, Self::Removal];

    /// Returns the name of the kind in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Creation => "creation",
            Self::Modification => "modification",
            Self::Removal => "removal",
        }
    }
}

/// Shows the times of all kinds of requests.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    show_kinds(rec, &TimedKind::ALL)
}

/// Shows the times of these kinds of requests; the others are made, too.
pub(crate) fn show_kinds(rec: &mut Recording<'_>, kinds: &[TimedKind]) -> Result {
    measure(rec, |rec, at_once, times| {
        let p50 = match at_once {
            1 => 0.04,
            10 => 0.25,
            _ => 0.6,
        };
        for kind in kinds {
            let times: Vec<f64> = match kind {
                TimedKind::Creation => times.creations.iter().map(|of| of.total_ms).collect(),
                TimedKind::Modification => times.modifications.clone(),
                TimedKind::Removal => times.removals.clone(),
            };
            let times = times.into_iter().map(|ms| ms / 1e3).collect();
            let kind = kind.name();
            rec.within(&format!("{at_once}/{kind}/"), |rec| judge(rec, at_once, kind, times, p50))?;
        }
        Ok(())
    })
}

/// Shows the store's share of set-up times.
pub(super) fn show_store(rec: &mut Recording<'_>) -> Result {
    measure(rec, |rec, at_once, times| {
        let share = times.creations.iter().map(|of| of.store_ms / of.total_ms.max(1e-9));
        let series = Series::unordered("1", share.collect());
        let text = format!("store's share of set-up with {at_once} at once, median");
        let id = format!("{at_once}/share");
        rec.claim_samples(id, text, series, Rule::Median, Bound::at_most(0.2))
    })
}

fn judge(rec: &mut Recording<'_>, at_once: usize, kind: &str, times: Vec<f64>, p50: f64) -> Result {
    rec.keep("took", Series::unordered("s", times))?;
    let series = ["took"];
    let p95 = Rule::Percentile { percent: 95.0 };
    for (id, what, rule, most) in [
        ("p50", "median", Rule::Median, p50),
        ("p95", "95 %", p95, 1.0),
        ("longest", "the longest", Rule::Max, LONGEST_S),
    ] {
        let text = format!("{kind} with {at_once} at once, {what}");
        rec.claim(id, text, rule, Bound::at_most(most), &series)?;
    }
    Ok(())
}

/// Times of the requests of a series; of modifications and removals in milliseconds.
#[derive(Default)]
struct SeriesTimes {
    creations: Vec<CreationTime>,
    modifications: Vec<f64>,
    removals: Vec<f64>,
}

/// Times of one creation.
struct CreationTime {
    total_ms: f64,
    store_ms: f64,
}

fn measure(
    rec: &mut Recording<'_>,
    judge: impl Fn(&mut Recording<'_>, usize, &SeriesTimes) -> Result,
) -> Result {
    let network = TextNetwork::up(rec)?;
    let lab = &network.lab;
    let broker = lab.broker()?;
    let mut draw = Seed::new(2);
    for at_once in AT_ONCE {
        let rounds = if rec.quick { 100 / at_once.max(20) } else { 5000 / at_once.max(10) };
        let mut all = SeriesTimes::default();
        // The first round is not counted: programs and caches are cold.
        for round in 0..=rounds.max(1) {
            let pairs: Vec<_> = (0..at_once).map(|_| pair(draw.draw())).collect();
            let times = round_of(lab, &pairs)?;
            if round > 0 {
                all.creations.extend(times.creations);
                all.modifications.extend(times.modifications);
                all.removals.extend(times.removals);
            }
        }
        judge(rec, at_once, &all)?;
        let mut left = 0;
        for router in routers() {
            let (routes, entries) = lab.tunnels_at(&router)?;
            left += routes + entries;
        }
        let text = "routes and entries left on routers after the series";
        rec.none(format!("{at_once}/left"), text, left as u64)?;
    }
    broker.terminate();
    network.down()
}

/// Makes connections at the same time, changes every second of them, and removes them.
fn round_of(lab: &BrokerLab, pairs: &[EndPair]) -> Result<SeriesTimes> {
    let client = lab.client()?;
    let client = &client;
    let numbered: Vec<_> = pairs.iter().enumerate().collect();
    let made =
        at_once(lab, &numbered, |ready, (number, pair)| create(client, ready, *number, pair))?;
    let made: Vec<_> = made.into_iter().collect::<Result<_>>()?;
    let of = |(connection, _): &(Value, CreationTime)| connection_path(connection);
    let paths: Vec<String> = made.iter().map(of).collect();
    let changed: Vec<_> = paths.iter().step_by(2).collect();
    let body = json!({ "rate": "200kbit" });
    let modifications = at_once(lab, &changed, |ready, path| {
        timed(client, ready, (Method::PATCH, path, Some(&body)), 200)
    })?;
    let removals = at_once(lab, &paths, |ready, path| {
        timed(client, ready, (Method::DELETE, path, None), 204)
    })?;
    let times = |all: Vec<Result<(Value, f64)>>| -> Result<Vec<f64>> {
        all.into_iter().map(|one| one.map(|(_, ms)| ms)).collect()
    };
    Ok(SeriesTimes {
        creations: made.into_iter().map(|(_, time)| time).collect(),
        modifications: times(modifications)?,
        removals: times(removals)?,
    })
}

/// Has one thread for each of these do its work, all at the same time, in the broker's namespace.
fn at_once<I: Sync, T: Send>(
    lab: &BrokerLab,
    all: &[I],
    work: impl Fn(&Barrier, &I) -> T + Sync,
) -> Result<Vec<T>> {
    let (work, ready) = (&work, &Barrier::new(all.len()));
    lab.within(|| {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                all.iter().map(|one| scope.spawn(move || work(ready, one))).collect();
            threads.into_iter().map(weir_experiment::joined).collect()
        })
    })
}

/// A network, and two of its end nodes.
type EndPair = (&'static str, [String; 2]);

/// Makes one connection.
fn create(
    client: &Client,
    ready: &Barrier,
    number: usize,
    (network, [from, to]): &EndPair,
) -> Result<(Value, CreationTime)> {
    let body = json!({
        "network": network, "from": from, "to": to, "rate": "100kbit",
        "protocol": "udp", "to_port": 6000 + number
    });
    let asked = (Method::POST, "/v1/connections", Some(&body));
    let (made, total_ms) = timed(client, ready, asked, 201)?;
    let store_ms = made["took"]["store_ms"].as_f64().unwrap_or(f64::INFINITY);
    Ok((made, CreationTime { total_ms, store_ms }))
}

/// Requests at the same time.
pub(crate) const AT_ONCE: [usize; 3] = [1, 10, 100];

/// ITU-T E.721 wants 95 % within 6 s.
const LONGEST_S: f64 = 6.0;
