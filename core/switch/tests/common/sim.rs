// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sources in virtual time, and readings of what left.
#![allow(unused_imports, reason = "each test binary uses a part of it")]

pub use weir_sim::{Departure, WhenFull, in_order, most_in_window};
use weir_sim::{SimSource, bytes_each_second};
use weir_switch::IfaceId;
use weir_units::Instant;

use super::Rig;

/// Makes a source of frames of one length at one rate.
pub fn source(from: IfaceId, mac: [u8; 6], to: [u8; 6], length: usize, rate: u64) -> SimSource {
    SimSource::new(from, mac, to, length.try_into().unwrap(), rate)
}

/// Runs the sources until `end`, and returns every frame that left.
pub fn run(rig: &mut Rig, sources: &mut [SimSource], end: u64) -> Vec<Departure> {
    rig.record(sources, Instant::from_nanos(end)).unwrap()
}

/// Returns the bytes of a source in each whole second from `from` to `to`.
pub fn by_second(departures: &[Departure], source: usize, from: u64, to: u64) -> Vec<u64> {
    bytes_each_second(departures, source, from, usize::try_from(to - from).unwrap())
}
