// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir node run` on real devices: killed at ten moments, ended by SIGTERM, not confirmed,
//! confirmed.

use std::fs;
use std::thread;
use std::time::Instant;

use weir_api_types::status::NodeStatus;
use weir_client::Client;
use weir_experiment::prelude::*;
use weir_experiment::weir_program::RunningProgram;
use weir_node::control;

use super::crash::{Counts, Ground, LIMIT};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>, ground: &Ground) -> Result<(), ExperimentError> {
    let config = ground.program.folder().join("node.toml");
    let text = ground.star.policy().to_toml();
    fs::write(&config, text).map_err(|error| ExperimentError::io(&config, error))?;
    let config = config.to_string_lossy();
    kills(rec, ground, &config)?;
    ends(rec, ground, &config)?;
    confirmations(rec, ground, &config)
}

/// After every other kill `weir clean` cleans; after the others the next node has to.
fn kills(rec: &mut Recording<'_>, ground: &Ground, config: &str) -> Result<(), ExperimentError> {
    let mut counts = Counts::default();
    for (index, (forwarding, delay_ms)) in MOMENTS.iter().enumerate() {
        let is_dirty = index % 2 == 1;
        let mut node = ground.program.start(&["node", "run", "--config", config])?;
        if *forwarding {
            let seen = forwards(&mut node, ground);
            if is_dirty || !seen {
                counts.failed_starts.push(f64::from(u8::from(!seen)));
            }
        }
        thread::sleep(Duration::from_millis(*delay_ms));
        counts.times.push(f64::from(u8::from(node.is_alive())));
        node.kill()?;
        if is_dirty {
            ground.clean(rec, &mut counts)?;
        }
    }
    counts.judge(rec, "node", 10)
}

/// SIGTERM while it forwards, and in the middle of its start.
fn ends(rec: &mut Recording<'_>, ground: &Ground, config: &str) -> Result<(), ExperimentError> {
    let mut counts = Counts::default();
    for delay_ms in [None, Some(5), Some(40)] {
        let mut node = ground.program.start(&["node", "run", "--config", config])?;
        match delay_ms {
            None => counts.failed_starts.push(f64::from(u8::from(!forwards(&mut node, ground)))),
            Some(delay_ms) => thread::sleep(Duration::from_millis(delay_ms)),
        }
        counts.times.push(f64::from(u8::from(node.is_alive())));
        node.terminate();
        let ended = node.end_within(LIMIT)?;
        // Before it has read its policy a signal ends it as it would any program.
        let good = ended.is_good() || (delay_ms.is_some() && ended.status.is_some());
        counts.failed_ends.push(f64::from(u8::from(!good)));
        if !good {
            rec.say(&format!("SIGTERM: {:?}: {}", ended.status, ended.said));
        }
        ground.count_left(rec, &mut counts)?;
    }
    counts.judge(rec, "sigterm", 3)
}

/// `--confirm`: without a confirmation everything is undone in time; with one it stays.
fn confirmations(
    rec: &mut Recording<'_>,
    ground: &Ground,
    config: &str,
) -> Result<(), ExperimentError> {
    let arguments = ["node", "run", "--config", config, "--confirm", "2s"];
    let mut counts = Counts::default();
    let started = Instant::now();
    let mut node = ground.program.start(&arguments)?;
    counts.failed_starts.push(f64::from(u8::from(!forwards(&mut node, ground))));
    counts.times.push(f64::from(u8::from(node.is_alive())));
    let ended = node.end_within(LIMIT)?;
    let in_time = started.elapsed() >= CONFIRM;
    counts.failed_ends.push(f64::from(u8::from(!(ended.is_unconfirmed() && in_time))));
    ground.count_left(rec, &mut counts)?;
    counts.judge(rec, "unconfirmed", 1)?;

    let mut counts = Counts::default();
    let mut node = ground.program.start(&arguments)?;
    counts.failed_starts.push(f64::from(u8::from(!forwards(&mut node, ground))));
    let confirmed = ground.program.run(&["node", "confirm"], LIMIT)?;
    thread::sleep(CONFIRM + Duration::from_millis(500));
    let stayed = node.is_alive();
    counts.times.push(f64::from(u8::from(stayed)));
    let stopped = ground.program.run(&["node", "stop"], LIMIT)?;
    let ended = node.end_within(LIMIT)?;
    for good in [confirmed.is_good(), stayed, stopped.is_good(), ended.is_good()] {
        counts.failed_ends.push(f64::from(u8::from(!good)));
    }
    ground.count_left(rec, &mut counts)?;
    counts.judge(rec, "confirmed", 1)
}

/// Waits until the node answers; false if it ends before.
fn forwards(node: &mut RunningProgram, ground: &Ground) -> bool {
    let socket = control::socket_path(&ground.program.state(), &ground.star.name);
    let client = Client::new(&socket);
    node.shows(LIMIT, |_| client.get::<NodeStatus>("/v1/status").is_ok())
}

/// Moments of the kills: true waits until the node forwards, then come the milliseconds. They are
/// in pairs: the second of a pair begins on the left-overs of the first.
const MOMENTS: [(bool, u64); 10] = [
    (false, 2),
    (true, 0),
    (false, 20),
    (false, 50),
    (false, 90),
    (true, 20),
    (true, 0),
    (true, 100),
    (true, 300),
    (true, 600),
];

/// The argument of `--confirm`.
const CONFIRM: Duration = Duration::from_secs(2);
