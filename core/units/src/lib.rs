// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units of the workspace: an instant, a duration, rates, counts and shares, as checked integers.
//!
//! Bare integers carry a unit only in JSON, metrics and TOML. Everywhere else a quantity is one of
//! these types, so that a rate in the place of a count does not compile. Rounding is named in the
//! method (`_floor`, `_ceil`); nothing here is a float. `k` is 1000, always; 1024 is written `Ki`.
//!
//! This crate reads no clock: time begins at [`Instant::ZERO`], wherever the caller puts that.
#![no_std]

extern crate alloc;

mod cpu;
mod parse;
mod rate;
mod size;
mod time;

pub use cpu::CpuShare;
pub use parse::ParseUnitError;
pub use rate::{BitRate, PacketRate};
pub use size::ByteCount;
pub use time::{Instant, Nanos};
