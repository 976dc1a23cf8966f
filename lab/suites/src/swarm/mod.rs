// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A deterministic simulation test of the daemon's logic.
//!
//! **Problem.** Control loops, policing, admission and live changes meet faults in more orders than
//! anybody writes tests for: a sample is lost while a policy changes while an actuator refuses.
//!
//! **Idea** (FoundationDB's and TigerBeetle's simulators). A seed draws a policy, routers, and a
//! list of events: loads, faults, changes, crashes. The code that ships runs them in virtual time
//! over simulated hosts. [`Invariant`]s are computed from the hosts and the policy, apart from that
//! code. One seed is one run, bit by bit, so that a failure can be repeated; it is *shrunk*:
//! events that are not needed for it are left out, as long as it stays.
//!
//! A seed has three parts: control loops and classes (`loops`), the switch (`packets`), the
//! smooth window (`weir_sim::audit_random`). Each invariant must catch a fault that is planted
//! against it ([`SwarmMutant`]).

mod judge;
mod loops;
mod mutants;
mod outcome;
mod packets;
mod plan;
mod row;
mod seeds;
pub(crate) mod world;

pub use loops::SwarmRunError;
pub use mutants::{Invariant, SwarmMutant};
pub use outcome::{SwarmTally, Violation};
pub(crate) use row::show;
pub use row::{SwarmSpec, record};
pub use seeds::{SwarmFailure, first_caught, run_seed, run_seeds, shrink};

#[cfg(test)]
mod tests;
