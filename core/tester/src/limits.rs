// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of a suite, with their durations, repetitions and bounds.

use weir_units::Nanos;

/// The tests to make beside throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a test that is made or not")]
pub struct SuiteChoice {
    /// Latency, and the load of processors, by load.
    pub latency: bool,
    /// Frame loss rate.
    pub loss_rate: bool,
    /// Back-to-back frames.
    pub back_to_back: bool,
    /// System recovery.
    pub recovery: bool,
    /// Reset.
    pub reset: bool,
}

/// The durations and bounds of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchmarkLimits {
    /// Rate of the link, bits a second on the wire.
    pub line_bps: u64,
    /// Packets a second that the generator can offer of each profile, in their order; no load
    /// exceeds it. A profile without one has the line's rate.
    pub max_pps: Vec<u64>,
    /// The least load of a search, or a tenth of what the link carries if that is less.
    pub min_pps: u64,
    /// The trials of a search last so long in sum at most.
    pub search: Nanos,
    /// A trial of latency at another load than the throughput.
    pub trial: Nanos,
    /// A trial of latency at the throughput; RFC 2544, section 26.2, asks for 120 s.
    pub latency_trial: Nanos,
    /// Trials of latency at the throughput, of which the mean counts; the same section asks for 20.
    pub latency_times: u32,
    /// A trial of the loss rate; RFC 2544, section 24, asks for 60 s.
    pub loss_trial: Nanos,
    /// Loads of the latency test beside the throughput, bits a second of frames with FCS, at most
    /// [`LOADS_MAX`]; tenths of the throughput if empty.
    pub loads_bps: Vec<u64>,
    /// Repetitions of the back-to-back test; RFC 9004 asks for 50.
    pub bursts: u32,
    /// The first burst of a repetition; RFC 2544, section 26.4, asks for 2 s. Longer ones double.
    pub first_burst: Nanos,
    /// Length of the longest burst, of the overload of system recovery, and of the load before and
    /// after a reset.
    pub overload: Nanos,
    /// Time for which a DUT that was reset is waited for.
    pub reset_patience: Nanos,
    /// Time that a trial takes beside its duration, for estimates.
    pub overhead: Nanos,
}

/// Loads of a latency test at most.
pub const LOADS_MAX: usize = 64;
/// Percent of the throughput, up to past saturation.
pub(crate) const LATENCY_PERCENT: [u32; 11] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110];
/// The load at which RFC 2544 asks for the latency.
pub(crate) const THROUGHPUT_PERCENT: u32 = 100;
/// Percent of the line.
pub(crate) const LOSS_PERCENT: [u32; 10] = [100, 90, 80, 70, 60, 50, 40, 30, 20, 10];
