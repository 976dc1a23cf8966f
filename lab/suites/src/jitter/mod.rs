// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jitter: packets that leave at the right time, not only at the right rate.

mod admission;
mod apart;
mod flow_cost;
mod flow_queues;
pub(crate) mod flow_runs;
mod laws;
mod live;
mod rtds;
pub mod scenario;
pub mod shaped;
pub mod smooth;
mod steps;
pub(crate) mod timely;
mod timely_lab;
pub mod timely_process;
pub(crate) mod timely_scenario;
pub(crate) mod timely_stream;
mod wire_flows;
mod wire_smooth;

use weir_experiment::RowPart::{Plain, With};
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "jitter";

const ROWS: &[Requirement] = &[
    row(1, "a machine alone wakes up in time in the class", &[Plain(timely::alone)]),
    row(
        2,
        "a sender is on time beside two neighbours on its core",
        &[With(timely::sender, 0), With(timely::sender, 1)],
    ),
    row(
        3,
        "a server answers in time beside two neighbours on its core, and bulk keeps its rate",
        &[Plain(timely::server), Plain(timely_stream::web), Plain(timely_stream::bulk)],
    ),
    row(4, "shares stay proportional with and without the class", &[Plain(timely::shares)]),
    row(
        5,
        "what is admitted holds its deadlines, and no cap breaks a guarantee",
        &[Plain(admission::show), Plain(apart::show)],
    )
    .correctness()
    .simulated(&[Plain(admission::show)]),
    row(6, "guests of a real Xen under RTDS have their budgets", &[Plain(rtds::show)]),
    row(
        7,
        "at 2 Mb/s the smooth window holds rate and delay, beside Xen's own bucket",
        &[
            With(smooth::show, 0),
            With(smooth::show, 1),
            With(smooth::show, 2),
            With(smooth::show, 3),
        ],
    )
    .correctness()
    .in_virtual_time(),
    row(8, "bulk TCP fills the allocation at an even delay", &[With(smooth::show, 4)])
        .correctness()
        .in_virtual_time(),
    row(
        9,
        "the smooth window follows steps of load at any rate, beside the text's PID",
        &[With(steps::show, 0), With(steps::show, 1), With(steps::show, 2), With(steps::show, 3)],
    )
    .correctness()
    .in_virtual_time(),
    row(10, "no arrival breaks a law of the smooth window", &[Plain(laws::show)])
        .correctness()
        .in_virtual_time(),
    row(
        11,
        "the smooth window holds rate and delay on the wire, beside a full link",
        &[Plain(wire_smooth::show)],
    ),
    row(
        12,
        "flow queues keep delay low inside a share, and guarantees exact",
        &[
            With(flow_queues::show, 0),
            With(flow_queues::show, 1),
            With(flow_queues::show, 2),
            Plain(flow_queues::guarantees),
        ],
    )
    .correctness()
    .in_virtual_time(),
    row(
        13,
        "shaper and class change live without a lost packet, and are undone",
        &[Plain(live::show)],
    ),
    row(
        14,
        "ten of 40 and of 120 machines are on time, and the others share",
        &[With(timely::many, 0), With(timely::many, 1)],
    ),
    row(
        15,
        "flow queues keep delay low inside a share on the wire, beside TBF and HTB",
        &[With(wire_flows::show, 0), With(wire_flows::show, 1)],
    ),
    row(16, "flow queues add little processor time to a packet", &[Plain(flow_cost::show)]),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
