// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes and reads a Linux host: namespaces, links, offloads, reservations, and the undo of each
//! change. It uses commands that a person could type, and a few system calls.
//!
//! The data plane's devices are opened by `weir-ports`; measured packets are sent and counted by
//! `weir-traffic`.
// System calls live here; each unsafe block carries its argument.
#![allow(unsafe_code)]

pub mod autogroup;
pub mod bpf;
pub mod cap;
mod control_group;
pub mod cpu;
pub mod doctor;
pub mod error;
pub mod failure;
pub mod host;
pub mod inspect;
pub mod journal;
pub mod kernel_offers;
pub mod machine;
pub mod memory;
mod merge;
pub mod meter;
mod netlink;
pub mod netns;
pub mod output;
mod proc_stat;
pub mod process;
pub mod processor_time;
pub mod program;
mod purpose;
pub mod rates;
pub mod run;
pub mod slots;
pub mod snapshot;
pub mod state;
pub mod text;
pub mod undo;
pub mod wake_latency;

pub use error::HostError;
pub use journal::Journal;
pub use purpose::ChangePurpose;
pub use state::StateDir;
pub use undo::Undo;
