// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run: what flows through what, and what sinks that share nothing with it saw. The record is
//! the same whether packets went over the wire or through virtual time.

use std::time::Duration;

use weir_sim::VifTraffic;
use weir_traffic::{Cells, Delays, FrameSizes, Order, Rate};

use super::intent::Intent;

/// What flows, through what.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What the data plane is asked to hold at first.
    pub intent: Intent,
    /// Who sends what; load k is stream k.
    pub loads: Vec<Load>,
    /// Other intents while traffic flows, each with its time from the start of the traffic.
    pub changes: Vec<(Duration, Intent)>,
    /// Length of the traffic.
    pub seconds: usize,
    /// Width of the cells that packets are counted in.
    pub cell_us: u64,
    /// Whether the senders give up what they were kept from sending, instead of catching up.
    pub even: bool,
}

/// Frames of one tenant, as evenly spaced as the generator can.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// From where to where.
    pub way: Way,
    /// Their sizes, layer 2 without FCS.
    pub sizes: FrameSizes,
    /// How many.
    pub rate: Rate,
}

/// From where to where, by tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a tenant to the link's other end.
    Send(usize),
    /// From there to a tenant.
    Receive(usize),
    /// From one tenant to another.
    Between(usize, usize),
}

/// What was seen of a run.
#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    /// By load.
    pub loads: Vec<LoadRecord>,
    /// Time that the machine's host took from the forwarder's processor meanwhile, in seconds.
    pub stolen_s: f64,
    /// What the data plane counted, when its queues were empty.
    pub counted: Vec<VifTraffic>,
    /// When the traffic began, on the clock of the cells.
    pub start_ns: u64,
    /// Length of the traffic.
    pub seconds: usize,
}

/// What was seen of one load.
#[derive(Clone, Debug, Default)]
pub struct LoadRecord {
    /// What its sender put on its device.
    pub offered: Cells,
    /// Packets of that.
    pub sent: u64,
    /// What came where it was meant to go.
    pub arrived: Cells,
    /// Packets of that.
    pub received: u64,
    /// Packets that the link's other end saw, wherever they were meant to go.
    pub on_the_link: u64,
    /// What the sequence numbers say.
    pub order: Order,
    /// How long packets that came were on their way.
    pub delays: Delays,
}

impl Way {
    /// Returns the tenant that it is for; `None` for the link's other end.
    #[must_use]
    pub const fn receiver(self) -> Option<usize> {
        match self {
            Self::Send(_) => None,
            Self::Receive(tenant) | Self::Between(_, tenant) => Some(tenant),
        }
    }

    /// Returns the tenant whose promise it is held against.
    #[must_use]
    pub const fn tenant(self) -> usize {
        match self {
            Self::Send(tenant) | Self::Receive(tenant) | Self::Between(tenant, _) => tenant,
        }
    }
}

impl RunRecord {
    /// Returns the bits of a load that arrived in each second.
    #[must_use]
    pub fn got(&self, load: usize) -> Vec<f64> {
        self.bits(load, SECOND, self.seconds)
    }

    /// Returns the bits of a load that its sender put on its device in each second.
    #[must_use]
    pub fn offered(&self, load: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.offered);
        self.windows(cells, SECOND, self.seconds, |(_, bytes)| bytes * 8)
    }

    /// Returns the bits of a load that arrived in each of `count` windows of `width`.
    #[must_use]
    pub fn bits(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.arrived);
        self.windows(cells, width, count, |(_, bytes)| bytes * 8)
    }

    /// Returns the packets of a load that arrived in each of `count` windows of `width`.
    #[must_use]
    pub fn packets(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.arrived);
        self.windows(cells, width, count, |(packets, _)| packets)
    }

    /// Returns the packets of a load that its sender put on its device in each of `count` windows
    /// of `width`.
    #[must_use]
    pub fn packets_offered(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.offered);
        self.windows(cells, width, count, |(packets, _)| packets)
    }

    /// Returns the delay that k in a thousand packets of a load do not exceed, for k = 1 to 1000,
    /// in seconds.
    #[must_use]
    pub fn delays(&self, load: usize) -> Vec<f64> {
        let delays = self.loads.get(load).map(|load| &load.delays);
        let quantile = |k| delays.map_or(0, |delays| delays.quantile_ns(k, 1000));
        (1..=1000).map(|k| weir_experiment::float(quantile(k)) / 1e9).collect()
    }

    /// Sums over windows from the start of the traffic on; zero where nothing came.
    fn windows(
        &self,
        cells: Option<&Cells>,
        width: Duration,
        count: usize,
        value: fn((u64, u64)) -> u64,
    ) -> Vec<f64> {
        let windows = cells.map_or_else(Vec::new, |cells| {
            let width = weir_experiment::clock::nanos(width) / cells.cell_ns.max(1);
            cells.windows(self.start_ns, usize::try_from(width).unwrap_or(1))
        });
        let mut values: Vec<f64> =
            windows.into_iter().map(|window| weir_experiment::float(value(window))).collect();
        values.resize(count, 0.0);
        values
    }
}

const SECOND: Duration = Duration::from_secs(1);
