// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data plane of a node: the switch of `weir-switch` on the ports of `weir-ports`.
//!
//! One worker thread moves all packets ([`worker`]). Everything else (signals, requests, control
//! loops, captures) asks it between two of its turns, through a [`WorkerHandle`]. Devices are
//! opened and closed on other threads ([`opener`]); [`redirect`] says which frames the kernel
//! forwards by itself.

pub mod capture;
pub mod clock;
mod handle;
mod lateness;
pub mod opener;
mod paths;
mod places;
pub mod ports;
pub mod redirect;
mod refusal;
pub mod reservation;
mod routers;
pub mod status;
mod ways;
pub mod worker;

const _: () = assert!(weir_sched::PREFETCHES, "a node asks memory ahead");

pub use handle::WorkerHandle;
pub use lateness::Lateness;
pub use paths::IN_KERNEL;
pub use refusal::{Refusal, RefusalKind};
