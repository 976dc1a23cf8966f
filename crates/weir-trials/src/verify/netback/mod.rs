// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments of the Netback text, and Weir beside its peers.

mod accuracy;
mod forwarding;
mod rte_sched;
mod scheduler;

use super::{Row, Table};
use crate::{Trial, TrialError};

/// The table.
pub const TABLE: Table = Table { name: NAME, rows: ROWS };

const NAME: &str = "netback";

const ROWS: &[Row] = &[
    row(1, "all eight figures, each with its defect before", missing),
    row(2, "tenants share equally, whatever their activity and number", missing),
    row(3, "weights swept from 30:1 to 1:30 are followed at once", missing),
    row(4, "a rate is exact, alone or beside another", missing),
    row(5, "disk work of a tenant does not reach the others", missing),
    row(6, "the scheduler at 4096 classes beside DPDK's rte_sched", scheduler::show),
    row(7, "packets beside bridge, bridge + HTB and Open vSwitch", forwarding::show),
    row(8, "rate error and delay beside TBF and HTB", accuracy::show),
];

const fn row(
    number: u32,
    title: &'static str,
    show: fn(&mut Trial<'_>, &Row) -> Result<(), TrialError>,
) -> Row {
    Row { number, title, correctness: false, show, table: NAME }
}

/// A row whose experiment is not written yet cannot be made, and says so.
fn missing(_trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    Err(TrialError::Missing { what: row.id(""), needs: "its experiment".to_owned() })
}
