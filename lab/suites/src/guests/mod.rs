// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The three guests of the IIP text, one for each parallel internet, and the node between them.
//!
//! A guest is a process of two threads in a namespace of its own: the first receives and does the
//! work of its internet (`qos`, `can`, `dss`), the second sends (`process`). It bridges, as
//! the text's guests did, routes, or translates addresses (`hop`). A `GuestLab` has the three
//! of them behind a running node, which tells their frames apart by the header of the parallel
//! internet; a `trial` sends three streams through it at once, a `sweep` makes trials of many
//! loads, as the `scenario` says.

mod can;
mod counts;
mod dss;
#[cfg(test)]
mod fixture;
mod frame;
mod hop;
mod internet;
mod lab;
mod passed_content;
pub mod process;
mod qos;
pub(crate) mod scenario;
pub(crate) mod sweep;
mod threads;
mod trial;

pub use counts::GuestCounts;
pub use hop::HopKind;
pub use internet::ParallelInternet;
pub(crate) use lab::GuestLab;
pub(crate) use trial::{GuestMeasurer, InternetsLoad};
