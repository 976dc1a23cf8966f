// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Table `first-light`: a switch that holds every tenant to its share, row by row.

mod asking;
mod broken_policies;
pub(crate) mod change;
mod change_steps;
mod crash;
mod crash_demo;
mod crash_lab;
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

pub(crate) use hostile::all_counted;
pub(crate) use hostile_frames::from_tenant;
use weir_experiment::RowPart::Plain;
use weir_experiment::prelude::*;
use weir_experiment::{Requirement, RequirementTable, RowPart};

use crate::demo;

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "first-light";

const ROWS: &[Requirement] = &[
    row(2, "the demonstration: every tenant has what it is guaranteed", &[Plain(demonstration)]),
    row(
        3,
        "equal priorities share equally, one sender 3 times as active",
        &[Plain(fairness::show)],
    ),
    row(4, "a minimum of 10 % holds against 10 flooding vifs", &[Plain(minimum::show)])
        .simulated(&[Plain(minimum::in_memory_alone)])
        .captured(),
    row(5, "a flood beyond what the worker serves harms nobody else", &[Plain(overload::show)]),
    row(6, "a limit is exact and never exceeded by more than its burst", &[Plain(limit::show)])
        .simulated(&[Plain(limit::show_in_virtual_time)])
        .seeded()
        .captured(),
    row(7, "nothing is lost after it was scheduled", &[Plain(lossless::show)]),
    row(8, "a well-behaved vif waits for two frames at most", &[Plain(delay::show)]),
    row(9, "the switch takes 5 million packets a second in 1024 classes", &[Plain(speed::show)]),
    row(10, "every kind of vif, port and traffic is held and whole", &[Plain(variety::show)])
        .correctness(),
    row(11, "a changed value holds at once, and no packet is lost by it", &[Plain(change::show)])
        .correctness(),
    row(12, "what is malformed, forged or wrong is counted or refused", &[Plain(hostile::show)])
        .correctness(),
    row(13, "what is killed, ended or not confirmed leaves nothing behind", &[Plain(crash::show)])
        .correctness(),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}

/// The demonstration's cases are the row's parts.
fn demonstration(rec: &mut Recording<'_>) -> Result {
    let seconds = if rec.quick { 5 } else { 12 };
    demo::run(rec, "shown", seconds, "").map(drop)
}
