// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trial of a network of stations: what of each flow arrives, how late, and what processors do.

use weir_experiment::prelude::*;
use weir_result::{Delays, Histogram};
use weir_sim::{
    ArrivalProcess, ForwardingNetwork, OfferedRate, Seed, SimError, SimSource, SizePattern,
};
use weir_switch::IfaceId;
use weir_units::Instant;

/// The record of a flow in a trial.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTrial {
    /// Arrived traffic, in Mb/s.
    pub(super) mbps: f64,
    /// Lost packets, as a part of those offered meanwhile.
    pub(super) loss: f64,
    /// How long packets were on their way.
    pub(super) delays: Delays,
}

/// The record of a trial.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardingTrial {
    pub(super) flows: Vec<FlowTrial>,
    /// The time that each station's processors worked, by the length of the trial.
    pub(super) busy: Vec<f64>,
}

impl ForwardingTrial {
    /// Runs a network of so many stations and flows: first for `settle` unseen, then for `lasts`.
    pub(super) fn run(
        mut network: ForwardingNetwork,
        (stations, flows): (usize, usize),
        (settle, lasts): (Nanos, Nanos),
    ) -> Result<Self> {
        let begins = Instant::ZERO + settle;
        network.run_until(begins, &mut |_| {}).map_err(failed)?;
        let before: Vec<_> = (0..flows).map(|flow| network.counts(flow)).collect();
        let busy: Vec<_> = (0..stations).map(|station| network.busy(station)).collect();
        let mut seen = vec![(0_u64, Histogram::new()); flows];
        let mut see = |left: weir_sim::Departure| {
            let Some((bytes, delays)) = seen.get_mut(left.source) else { return };
            *bytes += left.bytes;
            delays.add(Some(left.at.saturating_since(left.offered).as_nanos()));
        };
        network.run_until(begins + lasts, &mut see).map_err(failed)?;
        let seconds = float(lasts.as_nanos()) / 1e9;
        let flow = |(at, (bytes, delays)): (usize, (u64, Histogram))| {
            let (now, then) = (network.counts(at), before[at]);
            let (lost, offered) = (now.lost - then.lost, now.offered - then.offered);
            FlowTrial {
                mbps: float(bytes * 8) / 1e6 / seconds,
                loss: float(lost) / float(offered.max(1)),
                delays: delays.delays(),
            }
        };
        let worked = |(at, before): (usize, Nanos)| {
            float(network.busy(at).as_nanos() - before.as_nanos()) / 1e9 / seconds
        };
        Ok(Self {
            flows: seen.into_iter().enumerate().map(flow).collect(),
            busy: busy.into_iter().enumerate().map(worked).collect(),
        })
    }

    /// Returns the greatest loss of a flow.
    pub(super) fn loss(&self) -> f64 {
        self.flows.iter().map(|flow| flow.loss).fold(0.0, f64::max)
    }
}

impl FlowTrial {
    /// Returns the mean delay in ms; 0 if nothing arrived.
    pub(super) fn mean_ms(&self) -> f64 {
        float(self.delays.sum_ns) / 1e6 / float(self.delays.count.max(1))
    }
}

/// Makes a source of a constant rate that begins at a random part of an interval.
pub(super) fn steady_source(sizes: SizePattern, rate: BitRate, seed: &mut Seed) -> SimSource {
    let pace = ArrivalProcess::Constant(OfferedRate::Bits(rate));
    let mut source =
        SimSource::with(IfaceId(0), [0; 6], [0; 6], sizes, pace, Seed::new(seed.draw()));
    let bytes = ByteCount::new(source.next_bytes().into());
    let within = rate.time_for_ceil(bytes).as_nanos();
    source.start = Instant::ZERO + Nanos::new(seed.between(0, within));
    source
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn failed(error: SimError) -> ExperimentError {
    ExperimentError::Node(error.to_string())
}
