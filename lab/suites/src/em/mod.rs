// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Execution Management: guaranteed connections inside virtual networks, asked for and given.

mod admission;
pub mod broker_lab;
mod broker_processes;
mod brokers;
mod burst;
pub mod comparison;
mod crash;
mod drawn;
mod drift;
mod edge;
mod guarantee;
mod interfaces;
mod linux_hosts;
mod oracle;
mod order;
mod outages;
mod path_change;
mod paths;
mod policing;
mod postgres;
mod rearrangement;
mod restoration;
mod routing;
mod scale;
pub(crate) mod setup;
mod shared_lab;
mod sharing;
pub(crate) mod tables;
mod text_network;
mod timed;
mod times;
mod told_states;
mod tunnel_parts;
mod vlans;

use weir_experiment::RowPart::{Plain, With};
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "em";

const ROWS: &[Requirement] = &[
    row(
        1,
        "`curl` has connections by JSON and XML soon, with their rate; a refusal names what fits",
        &[Plain(guarantee::show)],
    ),
    row(2, "set-up, alone, 10 and 100 at once", &[Plain(setup::show)]),
    row(3, "the store's share of set-up time", &[Plain(setup::show_store)]),
    row(
        4,
        "a hundred requests on one node at once: all done soon, in order, nobody starves",
        &[Plain(burst::show)],
    ),
    row(
        5,
        "limits are exact to 800 Mbit/s with a short queue; what a tunnel costs, and its MTU",
        &[Plain(tables::limits), Plain(tables::paths)],
    ),
    row(
        6,
        "random requests: no arc above its capacity, the smallest change named is the smallest",
        &[Plain(admission::show), Plain(brokers::show)],
    )
    .correctness(),
    row(
        7,
        "networks on one physical link: a flood in one costs another nothing, no frame crosses",
        &[Plain(sharing::show), Plain(routing::show)],
    ),
    row(
        8,
        "changes to an equal, a longer and a shorter path lose and reorder nothing",
        &[Plain(path_change::equal), Plain(path_change::unequal)],
    ),
    row(
        9,
        "rearrangement solves each case that the search of all states solves; restoration in bulk",
        &[Plain(rearrangement::show), Plain(restoration::show)],
    )
    .correctness(),
    row(
        10,
        "brokers, routers and the store fail: nothing is lost, all is finished",
        &[Plain(crash::show), Plain(outages::show)],
    )
    .correctness(),
    row(
        11,
        "paths on 10 000 nodes: exact, fast with cached bounds; 1000 connections at one router",
        &[Plain(paths::small), With(paths::large, 0), With(paths::large, 1), Plain(edge::show)],
    ),
    row(
        12,
        "JSON, XML, page and command line leave one row; an administrator meets its network alone",
        &[Plain(interfaces::show)],
    )
    .correctness(),
    row(13, "drift is repaired within a second, foreign lines stay", &[Plain(drift::show)]),
    row(
        14,
        "functional rows hold on a full kernel, by VLANs of 8021q and tunnels of ip6tnl",
        &[Plain(vlans::show)],
    ),
    row(
        15,
        "the same set-ups by the broker, by a controller of flows and as MPLS label paths",
        &[Plain(comparison::show)],
    ),
    row(
        16,
        "one store of 10 000 routers and 100 000 connections: as fast as when it was nearly empty",
        &[Plain(scale::show)],
    ),
    row(
        17,
        "contention comes and goes over two nodes, a router misbehaves: held, punished, pardoned",
        &[Plain(policing::show)],
    ),
    row(
        18,
        "calendar, holds, leases, pre-emption, a command with a connection; so after a restart",
        &[Plain(times::show)],
    )
    .correctness(),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
