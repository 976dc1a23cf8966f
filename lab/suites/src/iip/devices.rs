// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fake devices of row 10: what a device on a shared machine does to a search.

use weir_tester::{DutNoise, FakeDut, Goal, Ppm};
use weir_units::Nanos;

/// A kind of device, and the goal that it is searched for with.
pub struct DeviceKind {
    /// Its name in results.
    pub name: &'static str,
    /// Its noises.
    pub noise: DutNoise,
    /// The goal.
    pub goal: Goal,
}

impl DeviceKind {
    /// The device of a seed.
    pub fn device(&self, seed: u64) -> FakeDut {
        FakeDut::new(CAPACITY_PPS, QUEUE, self.noise, seed)
    }
}

const QUIET: DutNoise = DutNoise { jitter: 0.0, stalls_per_s: 0.0, stall_s: 0.0, stray: 0.0 };

/// No loss at all, in trials so short that most see no standstill.
const NO_LOSS: Goal =
    Goal { trial: Nanos::from_millis(200), sum: Nanos::from_millis(4_200), ..Goal::NDR };

/// Half a percent of loss, in trials of a second: most see a standstill of one a second.
const SOME_LOSS: Goal = Goal { loss: Ppm::new(5_000), ..Goal::NDR };

/// The kinds. Loss at random is one packet in ten million: one in a trial of a second now and then.
pub const KINDS: [DeviceKind; 6] = [
    DeviceKind { name: "quiet", noise: QUIET, goal: NO_LOSS },
    DeviceKind { name: "jitter", noise: DutNoise { jitter: 0.005, ..QUIET }, goal: NO_LOSS },
    DeviceKind {
        name: "stalls-0.2",
        noise: DutNoise { stalls_per_s: 0.2, stall_s: 0.002, ..QUIET },
        goal: NO_LOSS,
    },
    DeviceKind {
        name: "stalls-1",
        noise: DutNoise { stalls_per_s: 1.0, stall_s: 0.002, ..QUIET },
        goal: NO_LOSS,
    },
    DeviceKind { name: "stray", noise: DutNoise { stray: 1e-7, ..QUIET }, goal: NO_LOSS },
    DeviceKind {
        name: "stalls-1-pdr",
        noise: DutNoise { stalls_per_s: 1.0, stall_s: 0.002, ..QUIET },
        goal: SOME_LOSS,
    },
];

/// Packets a second that each device forwards.
pub const CAPACITY_PPS: u32 = 1_000_000;
/// Packets that each device holds.
const QUEUE: u32 = 256;
/// The range of loads: to the line rate of 10 Gb/s with the smallest frames.
pub(crate) const MIN_PPS: u64 = 1_000;
pub(crate) const MAX_PPS: u64 = 14_880_952;
