// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machine beside the machines of the texts (table `sim`).
//!
//! All rows but 7, 9 and 10 are in virtual time, so that they hold on any machine. A full run of
//! row 11 also claims how long it takes.

mod bucket;
mod caps;
mod em_network;
mod forwarding_trial;
mod held;
mod iip_node;
mod linux_tcp;
mod native;
mod ns3;
mod reproduced;
mod router_checks;
mod router_scenario;
mod routers;
mod scenario_file;
mod speed;
mod stream;

use std::thread;

use weir_experiment::RowPart::Plain;
use weir_experiment::prelude::*;
use weir_experiment::{Requirement, RequirementTable, RowPart};
use weir_sim::CreditAccounting;

use caps::{after, router};
use held::COST;
pub use native::record_figure;
pub use reproduced::SimFigure;
pub use router_scenario::{
    OrderMeasure, RoutedLoad, RouterCase, RouterControl, RouterController, RouterHostSpec,
    RouterLengths, RouterLikeness, RouterOrder, RouterScenario, XenVersion,
};
pub use scenario_file::SimScenario;

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "sim";

const ROWS: &[Requirement] = &[
    row(1, "table 1 of the XTC text: five caps predicted from five others", &[Plain(caps::show)])
        .correctness()
        .in_virtual_time()
        .seeded(),
    row(2, "a router is held as the XTC text's figure 5 shows", &[Plain(held::show)])
        .correctness()
        .in_virtual_time()
        .seeded(),
    row(
        3,
        "virtual routers are held and share domain 0 as the XTC text's figures 5 to 20 show",
        &[Plain(routers::show)],
    )
    .correctness()
    .in_virtual_time()
    .seeded(),
    row(
        4,
        "Xen's back end starves, favours and falls short; Weir does not",
        &[Plain(native::show)],
    )
    .correctness()
    .in_virtual_time()
    .seeded(),
    row(5, "a stream's staircase of delay under credit, none with EDF", &[Plain(stream::show)])
        .correctness()
        .in_virtual_time()
        .seeded(),
    row(
        6,
        "the IIP text's node and the Execution Management text's network carry what these say",
        &[Plain(iip_node::show), Plain(em_network::show)],
    )
    .correctness()
    .in_virtual_time()
    .seeded(),
    row(
        7,
        "smoltcp in virtual time has the goodput of Linux's TCP on the wire, and shares it alike",
        &[Plain(linux_tcp::show)],
    ),
    row(8, "one seed has one log of events, on one thread and on two", &[Plain(logs)])
        .correctness()
        .in_virtual_time()
        .seeded(),
    row(
        9,
        "a second of processor time handles many events, and many times as many as ns-3's",
        &[Plain(speed::show)],
    )
    .in_virtual_time()
    .seeded(),
    row(
        10,
        "the switch in virtual time has the throughput, shares and delays of that on the wire",
        &[Plain(crate::conformance::arms::show)],
    ),
    row(11, "random faults break no invariant of the daemon's logic", &[Plain(crate::swarm::show)])
        .correctness()
        .in_virtual_time()
        .seeded(),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}

/// Compares hashes of logs of events (row 8).
fn logs(rec: &mut Recording<'_>) -> Result {
    let hash = |seed| -> Result<u64> {
        let mut machine = router(10, COST.as_nanos(), CreditAccounting::Sampled, seed)?;
        machine.run_until(after(5))?;
        Ok(machine.log_hash())
    };
    let seeds = [1, 2].map(|run| rec.sim.seed_of(run));
    let first = [hash(seeds[0])?, hash(seeds[1])?];
    // The upper 52 bits, which a sample can hold, so that two results can be compared by them.
    let samples = first.map(|hash| float(hash >> 12)).to_vec();
    rec.keep("hash", Series::unordered("1", samples))?;
    // A build with or without optimization, on any machine, has these hashes.
    if rec.sim.seed == 0 {
        let other = first.iter().zip(RECORDED).filter(|(hash, known)| **hash >> 12 != *known);
        let text = "logs of seed 0 that differ from those on record";
        rec.none("recorded", text, other.count() as u64)?;
    }
    let at_once = thread::scope(|scope| {
        let runs = seeds.map(|seed| scope.spawn(move || hash(seed)));
        runs.map(|run| run.join().ok().and_then(Result::ok))
    });
    let differ = first.iter().zip(at_once).filter(|(alone, beside)| Some(**alone) != *beside);
    rec.none("logs", "logs of one seed that differ", differ.count() as u64)?;
    let same = u64::from(first[0] == first[1]);
    rec.none("seeds", "different seeds with one log", same)
}

/// The upper 52 bits of the two hashes of row 8 with seed 0. If they change, the model has changed:
/// say why.
const RECORDED: [u64; 2] = [166_188_845_581_298, 2_083_877_434_305_097];
