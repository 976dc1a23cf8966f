// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run: its traffic, its data plane's promises, and the record of independent sinks. The record
//! has the same form for packets over the wire and in virtual time.

use std::time::Duration;

use weir_traffic::{Cells, Delays, FrameSizes, Order, Rate};

use super::intent::{LinkIntent, TenantIntent, TenantLimits};
use super::scale::RunScale;

/// The traffic of a run, and the promises that it tests.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Promises at the start.
    pub(super) intent: LinkIntent,
    /// Streams of the tenants; load k is stream k.
    pub(super) loads: Vec<TenantLoad>,
    /// Changes of the promises, each with its time from the start of the traffic.
    pub(super) changes: Vec<(Duration, LinkIntent)>,
    /// Length of the traffic.
    pub(super) seconds: usize,
    /// Width of the cells that packets are counted in.
    pub(super) cell_us: u64,
    /// Senders skip what they were kept from sending, instead of catching up.
    pub(super) even: bool,
    /// The factor of the scenario's rates.
    pub(super) scale: RunScale,
}

/// Frames of one tenant, as evenly spaced as the generator can.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TenantLoad {
    /// Its two ends.
    pub(super) way: LoadPath,
    /// Sizes of its frames, layer 2 without FCS.
    pub(super) sizes: FrameSizes,
    pub(super) rate: Rate,
}

/// The two ends of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadPath {
    /// A tenant sends to the link's other end.
    Send(usize),
    /// The link's other end sends to a tenant.
    Receive(usize),
    /// One tenant sends to another.
    Between(usize, usize),
}

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct RunRecord {
    pub(super) loads: Vec<LoadRecord>,
    /// Time that the machine's host took from the forwarder's processor meanwhile, in seconds.
    pub(super) stolen_s: f64,
    /// Start of the traffic, on the clock of the cells.
    pub(super) start_ns: u64,
    /// Length of the traffic.
    pub(super) seconds: usize,
    /// A remark for the result.
    pub(super) note: Option<String>,
}

/// The record of one load.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadRecord {
    /// Traffic that its sender put on its device.
    pub(super) offered: Cells,
    pub(super) sent: u64,
    /// Traffic that reached its receiver.
    pub(super) arrived: Cells,
    pub(super) received: u64,
    /// Packets that reached the link's other end, intended or not.
    pub(super) on_the_link: u64,
    /// Loss and order by the sequence numbers.
    pub(super) order: Order,
    /// Delays of the packets that reached the receiver.
    pub(super) delays: Delays,
}

impl LoadPath {
    /// Returns the tenant that it is for; `None` for the link's other end.
    pub(super) const fn receiver(self) -> Option<usize> {
        match self {
            Self::Send(_) => None,
            Self::Receive(tenant) | Self::Between(_, tenant) => Some(tenant),
        }
    }

    /// Returns its tenant's limits in its direction.
    pub(super) const fn limits(self, tenant: &TenantIntent) -> &TenantLimits {
        if matches!(self, Self::Receive(_)) { &tenant.receive } else { &tenant.send }
    }

    /// Returns the tenant whose promise it is held against.
    pub(super) const fn tenant(self) -> usize {
        match self {
            Self::Send(tenant) | Self::Receive(tenant) | Self::Between(tenant, _) => tenant,
        }
    }
}

impl RunRecord {
    /// Returns the bits of a load that arrived in each second.
    pub(super) fn got(&self, load: usize) -> Vec<f64> {
        self.bits(load, SECOND, self.seconds)
    }

    /// Returns the bits of a load that its sender put on its device in each second.
    pub(super) fn offered(&self, load: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.offered);
        self.windows(cells, SECOND, self.seconds, |(_, bytes)| bytes * 8)
    }

    /// Returns the bits of a load that arrived in each of `count` windows of `width`.
    pub(super) fn bits(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.arrived);
        self.windows(cells, width, count, |(_, bytes)| bytes * 8)
    }

    /// Returns the packets of a load that arrived in each of `count` windows of `width`.
    pub(super) fn packets(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.arrived);
        self.windows(cells, width, count, |(packets, _)| packets)
    }

    /// Returns the packets of a load that its sender put on its device in each of `count` windows
    /// of `width`.
    pub(super) fn packets_offered(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let cells = self.loads.get(load).map(|load| &load.offered);
        self.windows(cells, width, count, |(packets, _)| packets)
    }

    /// Returns the delay that k in a thousand packets of a load do not exceed, for k = 1 to 1000,
    /// in seconds.
    pub(super) fn delays(&self, load: usize) -> Vec<f64> {
        let delays = self.loads.get(load).map(|load| &load.delays);
        let quantile = |k| delays.map_or(0, |delays| delays.quantile_ns(k, 1000));
        (1..=1000).map(|k| weir_experiment::float(quantile(k)) / 1e9).collect()
    }

    /// Returns sums over windows from the start of the traffic on; zero where nothing came.
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
