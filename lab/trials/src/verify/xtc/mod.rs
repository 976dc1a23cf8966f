// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XTC: a packet rate for every router, held by feedback.

mod chain;
mod changes;
mod combined;
mod disturbed;
mod faults;
mod figures;
mod held;
mod load;
mod policing;
mod probe;
mod shares;
mod training;
mod xen;

use super::{Row, Show, Table};
use crate::{Trial, TrialError};

/// The table.
pub const TABLE: Table = Table { name: NAME, rows: ROWS };

const NAME: &str = "xtc";

const ROWS: &[Row] = &[
    row(1, "three minutes of training give a model that holds", training::process)
        .and(&[training::namespace]),
    row(2, "the cap alone holds a rate, beside PI, dead-beat and Fixed Cap", held::alone::<0>)
        .and(&[held::alone::<1>, held::alone::<2>, held::alone::<3>]),
    row(3, "limit and ceiling hold every rate from the second sample on", combined::show::<0>)
        .and(&[combined::show::<1>, combined::show::<2>, combined::show::<3>]),
    row(4, "a disturbance worth 15 % of the assigned CPU is rejected", disturbed::alone::<0>)
        .and(&[disturbed::combined::<0>, disturbed::alone::<2>, disturbed::combined::<2>]),
    row(5, "probes come back in time, beside TCP and beside a flood", probe::show::<0>).and(&[
        probe::show::<1>,
        probe::show::<2>,
        probe::show::<3>,
        probe::alone,
    ]),
    row(6, "six TCP routers share in proportion to their set-points", shares::proportions),
    row(7, "a UDP flood beside TCP takes nothing from it", shares::coexistence),
    row(8, "one flow gets as much as ten", shares::fairness),
    row(9, "a chain of three nodes loses and delays no more at its end", chain::show),
    row(10, "1000 instances at 10 Hz cost a twentieth of a core", load::show),
    Row {
        correctness: true,
        ..row(11, "dead zone, self-tuning, bumpless transfer, the manager's verbs", changes::show)
    },
    Row {
        correctness: true,
        ..row(12, "contention comes and goes, a router misbehaves and reforms", policing::show)
    },
    Row {
        correctness: true,
        ..row(13, "every fault is named, caps stay safe, nobody has to help", faults::show)
    },
    row(14, "guests of a real Xen are held by their caps", xen::show),
];

const fn row(number: u32, title: &'static str, show: Show) -> Row {
    Row::new(NAME, number, title, show)
}

/// Says loudly where a row cannot be made for lack of rights.
fn needs_root(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    if weir_platform::process::is_root() {
        return Ok(());
    }
    let skipped = format!("SKIPPED {}: needs root", row.id(""));
    trial.say(&skipped);
    Err(TrialError::Missing { what: row.id(""), needs: "root".to_owned() })
}

#[cfg(test)]
mod tests {
    use weir_result::{Case, Machine, Origin, ResultFile};

    use super::*;

    /// Goal: rows in virtual time hold on any machine, busy or not.
    #[test]
    fn rows_in_virtual_time_hold() {
        let text = || "test".to_owned();
        let origin = Origin {
            command: text(),
            machine: Machine::default(),
            kernel: text(),
            commit: text(),
            start: text(),
        };
        let mut silent = |_: &str| {};
        let mut trial = Trial::new(ResultFile::new(origin), true, &mut silent);
        for row in ROWS.iter().filter(|row| row.correctness) {
            (row.show)(&mut trial, row).unwrap();
        }
        let cases = trial.result.cases();
        let broken: Vec<&Case> = cases.iter().filter(|case| !case.holds()).collect();
        assert!(broken.is_empty() && cases.len() > 100, "{broken:#?}");
    }
}
