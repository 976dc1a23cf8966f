// SPDX-License-Identifier: Apache-2.0 OR MIT
//! First light: a switch that holds every tenant to its share.

mod asking;
mod broken_policies;
mod change;
mod change_steps;
mod crash;
mod crash_demo;
mod crash_node;
mod delay;
mod fairness;
mod host_vif;
mod hostile;
mod hostile_frames;
mod leftovers;
mod limit;
mod lossless;
mod minimum;
mod offloads;
mod overload;
mod packet;
mod parts;
mod queues;
mod refusals;
mod same_node;
mod speed;
mod variety;
mod vlan;

use super::{Row, Show, Table};
use crate::{Trial, TrialError, demo, judge};

/// The table.
pub const TABLE: Table = Table { name: NAME, rows: ROWS };

const NAME: &str = "first-light";

const ROWS: &[Row] = &[
    row(2, "the demonstration: every tenant has what it is owed", demonstration),
    row(3, "equal priorities share equally, one sender 3 times as active", fairness::show),
    row(4, "a minimum of 10 % holds against 10 flooding vifs", minimum::show),
    row(5, "a flood beyond what the worker serves harms nobody else", overload::show),
    row(6, "a limit is exact and never exceeded by more than its burst", limit::show),
    row(7, "nothing is lost after it was scheduled", lossless::show),
    row(8, "a well-behaved vif waits for two frames at most", delay::show),
    row(9, "the switch takes 5 million packets a second in 1024 classes", speed::show),
    correctness(10, "every kind of vif, port and traffic is held and whole", variety::show),
    correctness(11, "a changed value holds at once, and no packet is lost by it", change::show),
    correctness(12, "what is malformed, forged or wrong is counted or refused", hostile::show),
    correctness(13, "what is killed, ended or not confirmed leaves nothing behind", crash::show),
];

const fn row(number: u32, title: &'static str, show: Show) -> Row {
    Row::new(NAME, number, title, show)
}

/// A row that judges no speed.
const fn correctness(number: u32, title: &'static str, show: Show) -> Row {
    Row { correctness: true, ..row(number, title, show) }
}

/// The demonstration's cases are the row's parts.
fn demonstration(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    let seconds = if trial.quick { 5 } else { 12 };
    let prefix = row.id("") + "/";
    let prefix = demo::Prefix { case: &prefix, series: &prefix };
    demo::run(trial, "shown", seconds, prefix).map(drop)
}

/// Seconds at the beginning of each run that no bound is held against.
const SETTLE_SECONDS: usize = 2;

/// Keeps what arrived of each stream a second, and claims that the link was full in each.
fn keep_saturated(
    trial: &mut Trial<'_>,
    row: &Row,
    part: &str,
    streams: Vec<(String, Vec<f64>)>,
    link_bps: f64,
) -> Result<(), TrialError> {
    judge::saturated(trial, &row.id(part), streams, link_bps, SETTLE_SECONDS)
}

/// Claims that a stream got 99 % of what it was owed in each second.
fn judge_owed(
    trial: &mut Trial<'_>,
    id: &str,
    who: &str,
    seen: [Vec<f64>; 2],
    guaranteed_bps: f64,
) -> Result<(), TrialError> {
    judge::owed(trial, id, who, seen, guaranteed_bps, SETTLE_SECONDS)
}
