// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data plane of a node: the switch of `weir-switch` on the ports of `weir-ports`.
//!
//! One worker thread moves all packets ([`worker`]). Everything else (signals, requests, control
//! loops, captures) asks it between two of its turns, through a [`WorkerHandle`]. Devices are
//! opened and closed on other threads ([`opener`]); [`redirect`] says which frames the kernel
//! forwards by itself.

pub mod capture;
pub mod clock;
pub mod command;
pub mod device;
mod error;
mod fixed;
mod handle;
mod kernel_counts;
mod kernel_path;
mod lateness;
mod level;
pub mod opener;
mod paths;
mod phases;
mod placement;
pub mod ports;
mod processor_share;
pub mod redirect;
mod refusal;
pub mod reservation;
mod routers;
mod snapshot;
mod standing;
mod stations;
pub mod status;
pub mod worker;

const _: () = assert!(weir_sched::PREFETCHES, "the node must be built with feature `prefetch`");

pub use error::{ReconfigurationError, WorkerError};
pub use fixed::FixedValue;
pub use handle::WorkerHandle;
pub use kernel_counts::IN_KERNEL;
pub use lateness::Lateness;
pub use refusal::{Refusal, RefusalKind};
pub use routers::RouterCount;
