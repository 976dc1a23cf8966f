// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments: measure Weir's promises on real packets, with independent sinks.
//!
//! [`demo`] is made to be watched. [`conformance`] is one suite for every data plane, and
//! [`reproduce`] reproduces the figures of published papers. [`TABLES`] are the tables of
//! requirements:
//!
//! - [`isolation`]: every tenant gets its share of a switch (table `first-light`);
//! - [`netback`]: the experiments of the Netback paper, and Weir beside other forwarders;
//! - [`node`]: the node as a product: live changes, its API, start and end;
//! - [`xtc`]: a packet rate for every router, held by feedback;
//! - [`jitter`]: packets that leave at the right time;
//! - [`iip`]: parallel internets on one link, separated by a header and by time;
//! - [`kernel`]: the kernel's own data plane, on the host's bridge;
//! - [`em`]: execution management, the broker of guaranteed connections;
//! - [`sim`]: the simulated machine beside the machines of the papers;
//! - [`house`]: scale, the cost of a node with as many vifs as real hosts have.
//!
//! Their rows use [`routers`] (routers with capped CPU time), [`guests`] (user-space routers),
//! [`swarm`] (the daemon's logic under random faults) and [`xen`] (guests of a real Xen). The
//! framework of all of them is `weir-experiment`.

mod browser;
mod change_load;
mod checks;
pub mod conformance;
pub mod demo;
pub mod demo_plots;
pub mod em;
pub mod guests;
pub mod house;
pub mod iip;
pub mod isolation;
pub mod jitter;
pub mod kernel;
pub mod netback;
pub mod node;
mod peers;
pub mod reproduce;
pub mod routers;
mod sched_turns;
mod schemathesis;
pub mod sim;
pub mod swarm;
pub mod xen;
pub mod xtc;

/// All tables of requirements.
pub const TABLES: &[weir_experiment::RequirementTable] = &[
    isolation::TABLE,
    netback::TABLE,
    node::TABLE,
    xtc::TABLE,
    jitter::TABLE,
    iip::TABLE,
    kernel::TABLE,
    em::TABLE,
    sim::TABLE,
    house::TABLE,
];

#[cfg(test)]
mod tests {
    use weir_experiment::{Recording, RequirementTable};
    use weir_result::{Case, Machine, Origin, ResultFile};

    /// Goal: rows in virtual time hold on any machine, busy or not.
    fn hold_in_virtual_time(
        table: RequirementTable,
        needs_kernel: impl Fn(u32) -> bool,
        cases_least: usize,
    ) {
        let text = || "test".to_owned();
        let origin = Origin {
            command: text(),
            machine: Machine::default(),
            kernel: text(),
            commit: text(),
            start: text(),
        };
        let mut silent = |_: &str| {};
        let mut rec = Recording::new(ResultFile::new(origin), true, &mut silent);
        for row in table.rows.iter().filter(|row| row.correctness && !needs_kernel(row.number)) {
            row.run(&mut rec).unwrap();
        }
        let cases = rec.result.cases();
        let broken: Vec<&Case> = cases.iter().filter(|case| !case.holds()).collect();
        assert!(broken.is_empty() && cases.len() > cases_least, "{broken:#?}");
    }

    /// Goal: rows that are shown on the wire hold in virtual time as well. Those that are always in
    /// virtual time have tests of their own below.
    #[test]
    fn rows_of_the_wire_hold_on_sim() {
        let mut silent = |_: &str| {};
        let mut rec = Recording::new(ResultFile::new(Origin::default()), true, &mut silent);
        for table in [crate::isolation::TABLE, crate::netback::TABLE] {
            let rows: Vec<_> = table.rows.iter().filter(|row| row.is_simulated()).collect();
            assert!(rows.len() >= 2, "{}: {}", table.name, rows.len());
            for row in rows {
                assert!(row.run_simulated(&mut rec).unwrap(), "{}: {}", row.id(), rec.result);
            }
        }
    }

    #[test]
    fn rows_of_xtc_hold() {
        hold_in_virtual_time(crate::xtc::TABLE, |_| false, 100);
    }

    #[test]
    fn rows_of_jitter_hold() {
        hold_in_virtual_time(crate::jitter::TABLE, |_| false, 30);
    }

    #[test]
    fn rows_of_sim_hold() {
        hold_in_virtual_time(crate::sim::TABLE, |_| false, 5);
    }

    /// Row 1 needs a kernel and is left out. Its half for the switch is a test of `weir-sim`.
    #[test]
    fn rows_of_iip_hold() {
        hold_in_virtual_time(crate::iip::TABLE, |row| row == 1, 15);
    }
}
