// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface under an open loop of 500 requests a second, every tenth a change, while the link
//! is full: the time of each request from the instant when it was due, and what the link lost
//! through the requests.

use std::sync::Mutex;
use std::time::Instant;

use weir_client::{Client, Method};
use weir_experiment::prelude::*;
use weir_traffic::allow_many_files;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let seconds = if rec.quick { 10 } else { 60 };
    let star = StarTopology::new("node-load", TENANTS, BitRate::from_mbps(LINK_MBPS));
    let mut policy = star.policy();
    policy.api.connections = 2 * CALLERS;
    let names: Vec<String> = policy.vifs.iter().map(|vif| vif.name.clone()).collect();
    let run = flooded(&star, policy, FLOOD_MBPS, 2 * seconds + EDGES);
    let (outcome, asked) = run.run_beside(|rig| {
        let before = Duration::from_secs((seconds / 2 + EDGES / 2) as u64);
        std::thread::sleep(before - CONNECTING);
        load(rig, &names, Duration::from_secs(seconds as u64))
    })?;
    judge_requests(rec, asked, seconds)?;
    judge_link(rec, &outcome, seconds)
}

/// A run in which the first two tenants flood the link with this rate each.
pub(super) fn flooded(
    star: &StarTopology,
    policy: Policy,
    mbps: u64,
    seconds: usize,
) -> TrafficRun {
    let flood = Some(Rate::Bps(mbps * 1_000_000));
    let streams = vec![star.stream(0, 0, 1500, flood), star.stream(1, 1, 1500, flood)];
    TrafficRun {
        senders: vec![star.generator(streams)],
        receivers: vec![star.sink()],
        ..TrafficRun::new(star, policy, seconds)
    }
}

/// The result of the requests.
#[derive(Default)]
struct LoadRequests {
    /// Milliseconds of each read, from the instant when it was due.
    reads_ms: Vec<f64>,
    /// Milliseconds of each change, from the instant when it was due.
    changes_ms: Vec<f64>,
    /// Answers other than 200, and connections that broke.
    failed: u64,
}

/// Sends requests by the clock, however long answers take, on as many connections as callers.
fn load(rig: &Testbed, names: &[String], time: Duration) -> Result<LoadRequests> {
    let client = rig.running()?.client();
    allow_many_files();
    let (start, all) = (Instant::now() + CONNECTING, Mutex::new(LoadRequests::default()));
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (client, all) = (&client, &all);
            scope.spawn(move || {
                let mut asked = LoadRequests::default();
                one_caller(client, names, caller, start, time, &mut asked);
                if let Ok(mut all) = all.lock() {
                    all.reads_ms.append(&mut asked.reads_ms);
                    all.changes_ms.append(&mut asked.changes_ms);
                    all.failed += asked.failed;
                }
            });
        }
    });
    Ok(all.into_inner().unwrap_or_default())
}

/// Makes every [`CALLERS`]-th request of the common schedule.
fn one_caller(
    client: &Client,
    names: &[String],
    caller: u32,
    start: Instant,
    time: Duration,
    asked: &mut LoadRequests,
) {
    let Ok(mut connection) = client.connect() else {
        asked.failed += 1;
        return;
    };
    for number in (caller..).step_by(usize::try_from(CALLERS).unwrap_or(1)) {
        let due = STEP * number;
        if due >= time {
            return;
        }
        std::thread::sleep((start + due).saturating_duration_since(Instant::now()));
        let change = number % CHANGES_EVERY == 0;
        let vif =
            &names[2 + usize::try_from(number / CHANGES_EVERY).unwrap_or(0) % (names.len() - 2)];
        let answer = if change {
            let body = format!("{{\"send\":{{\"rate_bps\":{}}}}}", 1_000_000 + number * 1000);
            connection.ask(Method::PATCH, &format!("/v1/vifs/{vif}"), &body)
        } else {
            let one = format!("/v1/vifs/{vif}");
            let paths = ["/v1/status", "/v1/policy", "/metrics", &one, "/v1/overlay"];
            let path = paths[usize::try_from(number).unwrap_or(0) % paths.len()];
            connection.ask(Method::GET, path, "")
        };
        let took = (start + due).elapsed().as_secs_f64() * 1e3;
        if change {
            asked.changes_ms.push(took)
        } else {
            asked.reads_ms.push(took)
        }
        if !matches!(answer, Ok((200, _))) {
            asked.failed += 1;
        }
    }
}

fn judge_requests(rec: &mut Recording<'_>, asked: LoadRequests, seconds: usize) -> Result {
    rec.keep("reads", Series::unordered("ms", asked.reads_ms))?;
    rec.keep("changes", Series::unordered("ms", asked.changes_ms))?;
    let all = Bound::at_least(float(seconds as u64 * 500 * 999 / 1000));
    rec.claim("asked", "requests made", Rule::Count, all, &["reads", "changes"])?;
    rec.none("failed", "requests that failed", asked.failed)?;
    let p99 = Rule::Percentile { percent: 99.0 };
    for (name, what, most) in [("reads", "read", 20.0), ("changes", "change", 50.0)] {
        let text = format!("time of a {what} from when it was due, 99th percentile");
        rec.claim(format!("{name}/p99"), text, p99, Bound::at_most(most), &[name])?;
    }
    Ok(())
}

/// Judges the link in as many seconds with the load as without it, before and after.
fn judge_link(rec: &mut Recording<'_>, outcome: &TrafficRecord, seconds: usize) -> Result {
    let wire = outcome.got_together(0, 0..2);
    // A second is left out at either end of each part.
    let (half, first) = (seconds / 2, seconds / 2 + EDGES / 2);
    let last = first + seconds;
    let with = &wire[first + 1..last - 1];
    let without = [&wire[2..half + 1], &wire[last + 1..last + half]].concat();
    let count = with.len().min(without.len());
    rec.keep("link/with", Series::unordered("bit/s", with[..count].to_vec()))?;
    rec.keep("link/without", Series::unordered("bit/s", without[..count].to_vec()))?;
    let full = Bound::at_least(0.95 * float(LINK_MBPS * 1_000_000));
    let what = "on the link, shaped to its rate, without the load, mean";
    rec.claim("full", what, Rule::Mean, full, &["link/without"])?;
    let what = "on the link, shaped to its rate, with the load, by what it is without";
    let series = ["link/with", "link/without"];
    rec.claim("link", what, Rule::RatioOfSums, Bound::at_least(0.98), &series)
}

const TENANTS: usize = 6;
const LINK_MBPS: u64 = 200;
/// The load of each of two flooders. Together they send three times the link's rate.
const FLOOD_MBPS: u64 = 300;
/// The time between requests: 500 a second.
const STEP: Duration = Duration::from_millis(2);
const CHANGES_EVERY: u32 = 10;
/// The number of callers. An open loop needs a free one when a request is due, however long others
/// wait: each caller has one request every half second. It is a multiple of [`CHANGES_EVERY`], so
/// that some callers make all the changes, and no read waits for a change here. (`/v1/changes`
/// waits for the change under way, and is not requested.)
const CALLERS: u32 = 250;
/// The time before the first request.
const CONNECTING: Duration = Duration::from_millis(500);
/// Seconds, half before and half after the parts that are compared.
const EDGES: usize = 4;
