// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface between the procedures and what sends the packets.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::gaps::{RecoveryTime, ResetTime};
use crate::outcome::Outcome;
use crate::scale::float;
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
    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, Self::Error>;

    /// Resets the DUT under load and returns for how long it forwarded nothing (RFC 2544, section
    /// 26.6); `None` if it cannot be reset. A reset that failed is an answer, not an error, also
    /// where the link has been gone since an earlier one: the other results stand.
    fn reset(&mut self, request: &ResetRequest) -> Result<Option<ResetTime>, Self::Error>;
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
    /// The part of a frame between its Ethernet addresses and its type; its bytes count in `sizes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<FrameTag>,
}

/// A tag by which networks on one link are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameTag {
    /// A VLAN tag (IEEE 802.1Q) with this number, 1 to 4094.
    Vlan(u16),
    /// The header of the parallel internet of this number.
    Pih(u8),
}

impl FrameTag {
    /// Returns the tag's length in a frame, in bytes.
    pub const fn bytes(self) -> u16 {
        match self {
            Self::Vlan(_) => 4,
            Self::Pih(_) => 3,
        }
    }
}

impl fmt::Display for FrameTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlan(number) => write!(f, "a VLAN tag of {number}"),
            Self::Pih(number) => write!(f, "the header of parallel internet {number}"),
        }
    }
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

/// A test of reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetRequest {
    /// The packets.
    pub profile: TrafficProfile,
    /// Packets a second.
    pub pps: u64,
    /// The reset is in the middle of this time.
    pub duration: Nanos,
    /// Sending goes on for so long after that.
    pub patience: Nanos,
}

/// The result of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Packets.
    pub outcome: Outcome,
    /// Times on the way; `None` if nothing arrived.
    pub latency: Option<LatencySummary>,
    /// The missing packets that are the tester's own: not sent, or dropped by the tester's own
    /// interface.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tester_missing: u64,
    /// The load of each processor during the trial; empty if it is not known.
    #[serde(default)]
    pub cpu: Vec<CpuLoad>,
    /// The load of the measured node's worker, by its own counters; `None` if nobody asks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeLoad>,
}

/// The load of a node's worker around a trial, by the node's own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Thousands of frames that it forwarded a second.
    pub kpps: f64,
    /// Their mean size in bytes, with checksum.
    pub frame_bytes: f64,
    /// Processor time, percent of one.
    pub cpu_percent: f64,
}

impl NodeLoad {
    /// Returns the load of so many packets and bytes in `span_ns`, which took `cpu_ns`.
    #[must_use]
    pub fn of(span_ns: u64, packets: u64, bytes: u64, cpu_ns: u64) -> Self {
        let span = float(span_ns.max(1));
        Self {
            // Packets a nanosecond to thousands a second.
            kpps: float(packets) * 1e6 / span,
            frame_bytes: float(bytes) / float(packets.max(1)),
            cpu_percent: float(cpu_ns) * 100.0 / span,
        }
    }

    /// Returns the mean of several; `None` of none.
    fn mean_of(all: &[Self]) -> Option<Self> {
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / float(all.len() as u64);
        (!all.is_empty()).then(|| Self {
            kpps: mean(|one| one.kpps),
            frame_bytes: mean(|one| one.frame_bytes),
            cpu_percent: mean(|one| one.cpu_percent),
        })
    }
}

impl TrialResult {
    /// Returns the number of packets that reached the DUT and did not come back: without those that
    /// the tester missed.
    pub fn device_missing(&self) -> u64 {
        self.outcome.missing().saturating_sub(self.tester_missing)
    }

    /// Returns the part of the packets that reached the DUT which it did not forward, 0 to 1 (RFC
    /// 2544, section 26.3); `None` if none reached it.
    pub fn device_loss(&self) -> Option<f64> {
        let missing = self.device_missing();
        let reached = self.outcome.forwarded + missing;
        (reached > 0).then(|| float(missing) / float(reached))
    }

    /// Returns the part of the intended packets that was sent, 0 to 1.
    pub fn offered_ratio(&self) -> f64 {
        let Outcome { intended, offered, .. } = self.outcome;
        if intended == 0 { 1.0 } else { float(offered) / float(intended) }
    }

    /// Combines several trials of one load: packets are added up, the least and the greatest time
    /// are those of all, other times and the loads of processors are means of the trials' (RFC
    /// 2544, section 26.2).
    #[must_use]
    pub fn mean_of(mut results: Vec<Self>) -> Self {
        if results.len() < 2 {
            return results.pop().unwrap_or_default();
        }
        let latencies: Vec<LatencySummary> =
            results.iter().filter_map(|result| result.latency).collect();
        let nodes: Vec<NodeLoad> = results.iter().filter_map(|result| result.node).collect();
        let mut sum = Self {
            latency: LatencySummary::mean_of(&latencies),
            node: NodeLoad::mean_of(&nodes),
            ..Self::default()
        };
        let count = float(results.len() as u64);
        for result in results {
            sum.outcome = sum.outcome.plus(result.outcome);
            sum.tester_missing = sum.tester_missing.saturating_add(result.tester_missing);
            for (index, load) in result.cpu.into_iter().enumerate() {
                if index == sum.cpu.len() {
                    let cpu = load.cpu;
                    sum.cpu.push(CpuLoad { cpu, ..CpuLoad::default() });
                }
                let to = &mut sum.cpu[index];
                to.busy_percent += load.busy_percent / count;
                to.softirq_percent += load.softirq_percent / count;
                to.stolen_percent += load.stolen_percent / count;
            }
        }
        sum
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this form")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LatencySummary {
    fn mean_of(all: &[Self]) -> Option<Self> {
        let count = u64::try_from(all.len()).ok().filter(|count| *count > 0)?;
        let mean = |of: fn(&Self) -> u64| {
            let sum: u128 = all.iter().map(|one| u128::from(of(one))).sum();
            u64::try_from(sum / u128::from(count)).unwrap_or(u64::MAX)
        };
        Some(Self {
            packets: all.iter().map(|one| one.packets).sum(),
            min_ns: all.iter().map(|one| one.min_ns).min()?,
            mean_ns: mean(|one| one.mean_ns),
            median_ns: mean(|one| one.median_ns),
            p99_ns: mean(|one| one.p99_ns),
            max_ns: all.iter().map(|one| one.max_ns).max()?,
        })
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_trials_are_one_with_the_mean_of_their_times() {
        let trial = |forwarded, median_ns, busy_percent| TrialResult {
            outcome: Outcome::new(10, 10, forwarded).unwrap(),
            latency: Some(LatencySummary {
                packets: forwarded,
                min_ns: median_ns - 1,
                median_ns,
                max_ns: median_ns + 1,
                ..LatencySummary::default()
            }),
            cpu: vec![CpuLoad { cpu: 3, busy_percent, ..CpuLoad::default() }],
            ..TrialResult::default()
        };
        let both = TrialResult::mean_of(vec![trial(10, 100, 20.0), trial(8, 300, 40.0)]);
        assert_eq!(both.outcome, Outcome::new(20, 20, 18).unwrap());
        let latency = both.latency.unwrap();
        assert_eq!((latency.min_ns, latency.median_ns, latency.max_ns), (99, 200, 301));
        assert_eq!((both.cpu[0].cpu, both.cpu.len()), (3, 1));
        assert!((both.cpu[0].busy_percent - 30.0).abs() < 1e-9);
        assert_eq!(TrialResult::mean_of(vec![]), TrialResult::default());
    }
}
