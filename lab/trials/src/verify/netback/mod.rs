// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments of the Netback text, and Weir beside its peers.

mod accuracy;
mod figures;
mod forwarding;
mod rte_sched;
mod scheduler;
mod windows;
mod worker;

use weir_result::Series;

use super::{Row, Show, Table};
use crate::{Trial, TrialError};

/// The table.
pub const TABLE: Table = Table { name: NAME, rows: ROWS };

const NAME: &str = "netback";

const ROWS: &[Row] = &[
    row(1, "all eight figures, each with its defect before", figures::commands),
    row(2, "tenants share equally, whatever their activity and number", figures::equal),
    row(3, "weights swept from 30:1 to 1:30 are followed at once", figures::sweep),
    row(4, "a rate is exact, alone or beside another", figures::rates),
    row(5, "disk work of a tenant does not reach the others", figures::disk),
    row(6, "the scheduler at 4096 classes beside DPDK's rte_sched", scheduler::show),
    row(7, "packets beside bridge, bridge + HTB and Open vSwitch", forwarding::show),
    row(8, "rate error and delay beside TBF and HTB", accuracy::show),
];

const fn row(number: u32, title: &'static str, show: Show) -> Row {
    Row::new(NAME, number, title, show)
}

/// Keeps how often everything was measured in turn, so that a turn's samples can be told apart.
fn keep_turns(trial: &mut Trial<'_>, row: &Row, turns: usize) -> Result<(), TrialError> {
    trial.keep(&row.id("setting/turns"), Series::count("1", turns as u64))
}
