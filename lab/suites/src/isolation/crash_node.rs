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

use super::crash_lab::{CrashCounts, CrashLab, LIMIT, told};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>, lab: &CrashLab) -> Result {
    let config = lab.program.folder().join("node.toml");
    let text = lab.rig.star().policy().to_toml();
    fs::write(&config, text).map_err(|error| ExperimentError::io(&config, error))?;
    let config = config.to_string_lossy();
    let run = ["node", "run", "--config", &config, "--confirm", "2s"];
    kills(rec, lab, &run[..4])?;
    ends(rec, lab, &run[..4])?;
    confirmations(rec, lab, &run)
}

fn kills(rec: &mut Recording<'_>, lab: &CrashLab, run: &[&str]) -> Result {
    let (started, forwards) = (|| true, || forwards(lab));
    lab.kill_at(
        rec,
        "node",
        run,
        &[
            (&started, 2),
            (&forwards, 0),
            (&started, 20),
            (&started, 50),
            (&started, 90),
            (&forwards, 20),
            (&forwards, 0),
            (&forwards, 100),
            (&forwards, 300),
            (&forwards, 600),
        ],
    )
}

/// SIGTERM while it forwards, and in the middle of its start.
fn ends(rec: &mut Recording<'_>, lab: &CrashLab, run: &[&str]) -> Result {
    let mut counts = CrashCounts::default();
    for delay_ms in [None, Some(5), Some(40)] {
        let mut node = lab.program.start(run)?;
        match delay_ms {
            None => counts.started(waits_until_it_forwards(&mut node, lab)),
            Some(delay_ms) => thread::sleep(Duration::from_millis(delay_ms)),
        }
        counts.ran(node.is_alive());
        node.terminate();
        let ended = node.end_within(LIMIT)?;
        // Before it has read its policy a signal ends it as it would any program.
        let is_good = ended.is_good() || (delay_ms.is_some() && ended.status.is_some());
        counts.ended(told(rec, "SIGTERM", &ended, is_good));
        lab.count_left(rec, &mut counts)?;
    }
    counts.judge(rec, "sigterm", 3)
}

/// `--confirm`: without a confirmation everything is undone in time; with one it stays.
fn confirmations(rec: &mut Recording<'_>, lab: &CrashLab, run: &[&str]) -> Result {
    let mut counts = CrashCounts::default();
    let started = Instant::now();
    let mut node = lab.program.start(run)?;
    counts.started(waits_until_it_forwards(&mut node, lab));
    counts.ran(node.is_alive());
    let ended = node.end_within(LIMIT)?;
    counts.ended(ended.is_unconfirmed() && started.elapsed() >= CONFIRM);
    lab.count_left(rec, &mut counts)?;
    counts.judge(rec, "unconfirmed", 1)?;

    let mut counts = CrashCounts::default();
    let mut node = lab.program.start(run)?;
    counts.started(waits_until_it_forwards(&mut node, lab));
    counts.ended(lab.program.run(&["node", "confirm"], LIMIT)?.is_good());
    thread::sleep(CONFIRM + Duration::from_millis(500));
    let stayed = node.is_alive();
    counts.ran(stayed);
    counts.ended(stayed);
    counts.ended(lab.program.run(&["node", "stop"], LIMIT)?.is_good());
    counts.ended(node.end_within(LIMIT)?.is_good());
    lab.count_left(rec, &mut counts)?;
    counts.judge(rec, "confirmed", 1)
}

/// Waits until the node answers; false if it ends before.
fn waits_until_it_forwards(node: &mut RunningProgram, lab: &CrashLab) -> bool {
    node.shows(LIMIT, |_| forwards(lab))
}

fn forwards(lab: &CrashLab) -> bool {
    let socket = control::socket_path(&lab.program.state(), &lab.rig.star().name);
    Client::new(&socket).get::<NodeStatus>("/v1/status").is_ok()
}

/// The argument of `--confirm`.
const CONFIRM: Duration = Duration::from_secs(2);
