// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The IIP node: parallel internets on one link, told apart by a header, kept apart by time; and
//! the planner, which says what fits where. Devices are measured by the tester that ships.

mod classifier;
mod cost;
pub mod devices;
mod foreign;
mod formula;
mod guest_cpu;
mod guest_latency;
pub(crate) mod guest_model;
mod in_kernel;
mod kernel_cost;
pub mod oracle;
mod phases;
mod plan_applied;
mod plan_requests;
mod planner;
mod repeatability;
pub(crate) mod table1;
mod trials;
mod wire;

use weir_experiment::RowPart::{Plain, With};
use weir_experiment::{Requirement, RequirementTable, RowPart};

pub use repeatability::recorded_again;

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "iip";

const ROWS: &[Requirement] = &[
    row(
        1,
        "headers tell parallel internets apart as an oracle does, sound and malformed",
        &[Plain(classifier::show), Plain(classifier::show_in_kernel)],
    )
    .correctness(),
    row(2, "the header costs little in the kernel", &[Plain(kernel_cost::show)]),
    row(3, "random cycles: phases, delay, capacity and changes are exact", &[Plain(phases::show)])
        .correctness()
        .in_virtual_time(),
    row(4, "phases cost little beside the scheduler inside them", &[Plain(cost::show)]),
    row(
        5,
        "three tenants on a wire: frames inside their phases, shares, the entitlement",
        &[With(wire::show, 0), With(wire::show, 1)],
    ),
    row(
        6,
        "a cycle costs what the formula says, at every size of the text",
        &[With(formula::show, 0), With(formula::show, 1)],
    )
    .correctness()
    .in_virtual_time(),
    row(
        7,
        "three streams through three guests: throughput, delay below and past it; native first",
        &[Plain(guest_latency::show)],
    ),
    row(8, "the guests' processors by load: CAN most, DSS least", &[Plain(guest_cpu::by_load)]),
    row(
        9,
        "all tests of RFC 2544 and RFC 5180 answer, and each packet is counted once",
        &[Plain(trials::known), Plain(trials::wire)],
    ),
    row(
        10,
        "searches of noisy devices repeat, beside MLRsearch and bisection",
        &[Plain(repeatability::show)],
    )
    .correctness(),
    row(11, "searches of a device that polices find its rate", &[Plain(trials::policed)]),
    row(
        12,
        "Table 1 read again, with the unit that its prose needs; our guests' table beside it",
        &[Plain(table1::show), Plain(guest_cpu::fitted)],
    ),
    row(
        13,
        "5000 slices on 1000 nodes of four kinds: near the proven bound, below first fit",
        &[
            With(planner::places, 0),
            With(planner::places, 1),
            With(planner::places, 2),
            With(planner::places, 3),
            Plain(planner::repeats),
        ],
    ),
    row(
        14,
        "a request that does not fit: an irreducible conflict, the smallest relaxation",
        &[Plain(planner::refuses)],
    )
    .correctness(),
    row(
        15,
        "a plan on three running nodes: held, nothing lost, all of it or nothing",
        &[Plain(plan_applied::show)],
    ),
    row(
        16,
        "one command measures a foreign device, and its page can be handed over",
        &[Plain(foreign::bridge), Plain(foreign::open_vswitch)],
    ),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
