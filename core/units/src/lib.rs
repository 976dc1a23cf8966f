// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units of the workspace: an instant, a duration, rates, counts and shares, as checked integers.
//!
//! A quantity is a bare integer only in JSON, metrics and TOML. Everywhere else it has one of these
//! types, so that code which passes a rate for a count does not compile. Methods that round say how
//! in their name (`_floor`, `_ceil`); nothing here is a float. `k` is always 1000; 1024 is written
//! `Ki`.
//!
//! This crate reads no clock: the caller chooses which moment [`Instant::ZERO`] is.
#![no_std]

extern crate alloc;

mod cpu;
mod divide;
mod parse;
mod rate;
mod size;
mod time;

pub use cpu::CpuShare;
pub use divide::mul_add_div;
pub use parse::ParseUnitError;
pub use rate::{BIT_NANOS_PER_BYTE_SECOND, BitRate, PacketRate};
pub use size::ByteCount;
pub use time::{Instant, Nanos};
