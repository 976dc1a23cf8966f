// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments of the Netback text, and Weir beside its peers.

mod accuracy;
mod figures;
mod forwarding;
mod rte_sched;
mod scheduler;
mod windows;
mod worker;

use figures::{DISK, EQUAL, RATES, SWEEP};
use weir_experiment::RowPart::{Plain, With};
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "netback";

const ROWS: &[Requirement] = &[
    row(1, "all eight figures, each with its defect before", &[Plain(figures::commands)]),
    row(
        2,
        "tenants share equally, whatever their activity and number",
        &[With(figures::on_the_wire, EQUAL)],
    )
    .simulated(&[With(figures::in_virtual_time, EQUAL)])
    .seeded()
    .captured(),
    row(
        3,
        "weights swept from 30:1 to 1:30 are followed at once",
        &[With(figures::on_the_wire, SWEEP)],
    )
    .simulated(&[With(figures::in_virtual_time, SWEEP)])
    .seeded()
    .captured(),
    row(4, "a rate is exact, alone or beside another", &[With(figures::on_the_wire, RATES)])
        .simulated(&[With(figures::in_virtual_time, RATES)])
        .seeded()
        .captured(),
    row(5, "disk work of a tenant does not reach the others", &[With(figures::on_the_wire, DISK)]),
    row(6, "the scheduler at 4096 classes beside DPDK's rte_sched", &[Plain(scheduler::show)]),
    row(7, "packets beside bridge, bridge + HTB and Open vSwitch", &[Plain(forwarding::show)]),
    row(8, "rate error and delay beside TBF and HTB", &[Plain(accuracy::show)]),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
