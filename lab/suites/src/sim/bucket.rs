// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Senders of a constant rate behind one token bucket, with the whole switch and without it.

use serde::Deserialize;
use weir_experiment::clock::{cpu_time, nanos};
use weir_experiment::prelude::*;
use weir_experiment::sim_star::{SIM_UPLINK, sim_node, sim_source};
use weir_policy::SliceId;
use weir_sim::{
    BucketShaper, FifoLink, ForwardingFlow, ForwardingNetwork, ForwardingStation, ForwardingStop,
    Observation, ShapedLink, SimLink, SimNode, SimSource,
};
use weir_switch::IfaceId;
use weir_units::Instant;

use super::forwarding_trial::failed;
use crate::reproduce::scenario::{length, unit};

/// Senders of a constant rate behind one token bucket.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketScenario {
    pub(super) senders: u32,
    pub(super) bytes: u16,
    /// The rate of a sender.
    #[serde(deserialize_with = "unit")]
    each: BitRate,
    /// The rate of the bucket.
    #[serde(deserialize_with = "unit")]
    pub(super) rate: BitRate,
    #[serde(deserialize_with = "unit")]
    pub(super) burst: ByteCount,
    /// Packets that wait at the bucket.
    pub(super) queue: u32,
    #[serde(deserialize_with = "unit")]
    pub(super) link: BitRate,
    #[serde(deserialize_with = "length")]
    pub(super) duration: Duration,
    #[serde(deserialize_with = "length")]
    quick: Duration,
}

/// The processor time of a run, and the packets that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketRun {
    pub(super) time: Duration,
    pub(super) arrived: u64,
}

impl BucketScenario {
    pub(super) fn parse(text: &str, quick: bool) -> Result<Self> {
        let parsed: Self = toml::from_str(text).map_err(|error| {
            let (name, what) = ("bucket.toml".to_owned(), error.to_string());
            ExperimentError::Scenario { name, what }
        })?;
        let duration = if quick { parsed.quick } else { parsed.duration };
        Ok(Self { duration, ..parsed })
    }

    /// Returns the time between two packets of a sender.
    pub(super) fn gap(&self) -> Nanos {
        self.each.time_for_ceil(ByteCount::new(self.bytes.into()))
    }

    /// Lets a source begin at its part of the first gap, so that none is in step with another.
    fn started(&self, mut source: SimSource, sender: u32, begins: Instant) -> SimSource {
        let phase = self.gap().as_nanos() * u64::from(sender) / u64::from(self.senders);
        source.start = begins + Nanos::new(phase);
        source
    }

    /// Runs it through links and a token bucket, without the switch.
    pub(super) fn without_switch(&self) -> Result<BucketRun> {
        let queue = ByteCount::new(u64::from(self.queue) * u64::from(self.bytes));
        let link = || {
            let link = FifoLink::new(self.link, self.queue as usize, ByteCount::new(u64::MAX));
            ForwardingStation::Bottleneck(Box::new(link))
        };
        let mut stations: Vec<_> = (0..self.senders).map(|_| link()).collect();
        let wait_max = self.rate.time_for_ceil(queue);
        let bucket = ShapedLink::new(Box::new(BucketShaper::new(self.rate, self.burst, wait_max)));
        stations.push(ForwardingStation::Bottleneck(Box::new(bucket)));
        stations.push(link());
        let stop =
            |station: u32| ForwardingStop { station: station as usize, ..Default::default() };
        let flow = |sender| {
            let source = SimSource::new(IfaceId(0), [0; 6], [0; 6], self.bytes, self.each.as_bps());
            let stops = [sender, self.senders, self.senders + 1].map(stop).to_vec();
            ForwardingFlow { source: self.started(source, sender, Instant::ZERO), stops }
        };
        let flows = (0..self.senders).map(flow).collect();
        let mut network = ForwardingNetwork::new(stations, flows).map_err(failed)?;
        let (mut arrived, end) = (0, Instant::ZERO + Nanos::new(nanos(self.duration)));
        let (ran, time) = cpu_time(|| network.run_until(end, &mut |_| arrived += 1));
        ran.map_err(failed)?;
        Ok(BucketRun { time, arrived })
    }

    /// Runs it through the shipped switch: a vif for each sender, all of one slice, whose bucket it
    /// is.
    pub(super) fn with_switch(&self) -> Result<BucketRun> {
        let (mut node, mut sources) = self.node()?;
        let (mut arrived, end) = (0, node.now + Nanos::new(nanos(self.duration)));
        let mut see = |seen: Observation| {
            arrived +=
                u64::from(matches!(seen, Observation::Left(left) if left.iface == SIM_UPLINK));
        };
        let (ran, time) = cpu_time(|| node.run(&mut sources, end, &mut see));
        ran.map_err(failed)?;
        Ok(BucketRun { time, arrived })
    }

    fn node(&self) -> Result<(SimNode, Vec<SimSource>)> {
        let star = StarTopology::new("sim-bucket", self.senders as usize, self.link);
        let mut policy = star.policy();
        policy.slices.truncate(1);
        policy.slices[0].send.rate = Some(self.rate);
        policy.slices[0].send.burst = self.burst;
        for vif in &mut policy.vifs {
            vif.slice = SliceId(0);
            vif.send_queue.packets = self.queue / self.senders;
        }
        let mut node = sim_node(&policy)?;
        let queue = ByteCount::new(u64::from(self.queue) * u64::from(self.bytes));
        let link = SimLink::new(self.link, Nanos::ZERO, queue);
        node.link_out(SIM_UPLINK, link.clone());
        let sources = (0..self.senders).map(|sender| {
            let tenant = sender as usize;
            let source = sim_source(&node, tenant, self.bytes, self.each.as_bps());
            self.started(source, sender, node.now)
        });
        let sources: Vec<SimSource> = sources.collect();
        sources.iter().for_each(|source| node.link_in(source.from, link.clone()));
        Ok((node, sources))
    }
}
