// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The seam between the procedures and the world: who sends the packets.

use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::outcome::Outcome;
use crate::sizes::{FramePattern, IpVersion};

/// Measures trials: a generator and a sink on the wire, a model in tests.
///
/// A trial stops its traffic before it reads a counter, so that no packet is on the way when the
/// lost ones are counted.
pub trait Measurer {
    /// Why a trial could not be made.
    type Error;

    /// Sends at a constant rate and counts what arrives.
    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, Self::Error>;

    /// Overloads the DUT, halves the load, and returns how long after that the last packet was
    /// lost (RFC 2544, section 26.5).
    fn recovery(&mut self, request: &RecoveryRequest) -> Result<Nanos, Self::Error>;

    /// Resets the DUT under load and returns for how long it forwarded nothing (RFC 2544, section
    /// 26.6); `None` if it cannot be reset.
    fn reset(&mut self, request: &TrialRequest) -> Result<Option<Nanos>, Self::Error>;
}

/// The packets of a benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficProfile {
    /// Sizes of the frames.
    pub sizes: FramePattern,
    /// The protocol.
    pub ip: IpVersion,
    /// Streams at once, which share the load evenly.
    pub streams: u16,
}

/// A trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialRequest {
    /// The packets.
    pub profile: TrafficProfile,
    /// Packets a second of all streams together.
    pub pps: u64,
    /// Length of the trial.
    pub duration: Nanos,
    /// Packets of a burst; the trial is as long as they take then.
    pub burst: Option<u64>,
}

/// A test of system recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryRequest {
    /// The packets.
    pub profile: TrafficProfile,
    /// The overload, packets a second.
    pub over_pps: u64,
    /// Length of the overload.
    pub over: Nanos,
    /// The load that follows.
    pub pps: u64,
    /// Its length.
    pub duration: Nanos,
}

/// The result of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Packets.
    pub outcome: Outcome,
    /// Times on the way; `None` if nothing arrived.
    pub latency: Option<LatencySummary>,
    /// The load of each processor during the trial; empty if it is not known.
    #[serde(default)]
    pub cpu: Vec<CpuLoad>,
}

/// Times on the way of the packets of a trial, from the call that sent them to the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Packets that were timed.
    pub packets: u64,
    /// Least, ns.
    pub min_ns: u64,
    /// Mean, ns.
    pub mean_ns: u64,
    /// Median, ns.
    pub median_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Greatest, ns.
    pub max_ns: u64,
}

/// The load of one processor, in percent of the trial's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Its number.
    pub cpu: u16,
    /// Time that it worked, soft interrupts included.
    pub busy_percent: f64,
    /// Time in soft interrupts.
    pub softirq_percent: f64,
    /// Time that the machine's host took.
    pub stolen_percent: f64,
}
