// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control loops of a node: routers held at a packet rate (§8.1 of the XTC text, see
//! `weir-control`).
//!
//! **A tick: read all counters in one pass ([`CounterReader`]), sample every loop that is due
//! ([`LoopManager::tick`]), execute all commands ([`RouterPlatform`]), sleep until the next loop is
//! due.** Time, counters and changes of the host come from outside: the [`LoopManager`] reads no
//! clock and touches no host, so that its tests need neither root nor real time.
//!
//! Set-point, controller, period and state of a router are keys of the policy. A change of such a
//! key is therefore recorded, survives a restart, and can be undone. [`LoopManager::follow`]
//! applies the policy at once. A controller of several nodes moves set-points far more often, and
//! may die. Its set-points override the policy for a bounded time ([`LoopManager::lease`]).

mod activations;
mod class_host;
mod classes;
mod design;
mod error;
mod held_router;
mod holding;
mod host;
mod host_journal;
mod leases;
pub mod load;
mod manager;
mod parts;
mod pending;
mod police;
mod readings;
pub mod sim;
mod status;
mod thread;

pub use activations::{RouterActivations, watch_activations};
pub use classes::{
    AppliedClass, ClassKeeper, ClassPlatform, ClassStatus, NamedThreads, RouterClass,
};
pub use error::{CounterError, Leftovers, RouterError, UncleanEnd, UnfitRouter};
pub use holding::{RouterLoops, RouterPlan, plan};
pub use leases::{LeaseRequest, RefusedLeases};
pub use manager::LoopManager;
pub use parts::{
    CounterReader, CounterSource, CpuTimeMeter, RouterEndpoint, RouterGuarantee, RouterPlatform,
    RouterTarget, Tell,
};
pub use status::{
    LeaseStatus, LogLine, LoopsLoad, PolicingLoad, PolicingStatus, RouterStatus, RouterTrouble,
    redacted_text,
};

#[cfg(test)]
mod tests;
