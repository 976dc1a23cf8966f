// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trial of the node: three streams at once, one of each parallel internet, and the work of the
//! guests' threads meanwhile.

use std::net::{IpAddr, Ipv6Addr};

use weir_experiment::prelude::*;
use weir_experiment::senders::traffic_cpus;
use weir_tester::{FramePattern, Outcome};
use weir_traffic::{
    Delays, Mac, StreamTrial, TrialEnd, WireMeasurer, XdpStream, frame_sizes, stop_on_signals,
};

use super::internet::ParallelInternet;
use super::lab::{GuestLab, LabEnd, mac};
use super::threads::ThreadUse;

/// The load of a trial.
#[derive(Clone, Debug)]
pub(crate) struct InternetsLoad {
    /// Sizes of the frames on the wire, with their header of three bytes and FCS.
    pub(crate) sizes: FramePattern,
    /// Packets a second of each of the three streams.
    pub(crate) pps: u64,
    /// Length of the trial.
    pub(crate) duration: Nanos,
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub(crate) struct GuestTrial {
    /// By [`ParallelInternet::index`].
    pub(crate) tenants: Vec<TenantTrial>,
    /// Seconds in which packets were sent.
    pub(crate) seconds: f64,
}

/// The part of one parallel internet.
#[derive(Clone, Debug, Default)]
pub(crate) struct TenantTrial {
    pub(crate) outcome: Outcome,
    pub(crate) delays: Delays,
    /// The work of the guest's first and second thread; none of a kernel bridge.
    pub(crate) threads: [ThreadUse; 2],
}

/// Source and sink of trials in a lab.
pub(crate) struct GuestMeasurer {
    wire: WireMeasurer<'static>,
}

impl GuestMeasurer {
    /// Attaches a sink to the lab.
    pub(crate) fn new(lab: &GuestLab) -> Result<Self> {
        let end = |node: &str| {
            let netns = Some(lab.namespace_of(node));
            TrialEnd { netns, device: "eth0".to_owned(), address: None }
        };
        let (from, to) = (end("src"), end("dst"));
        let wire = WireMeasurer::new(from, to, None, None, false, stop_on_signals()?)?;
        Ok(Self { wire: wire.on_processors(traffic_cpus()) })
    }

    /// Sends the three streams and counts them. The guests are those that run.
    pub(crate) fn trial(&mut self, lab: &GuestLab, load: &InternetsLoad) -> Result<GuestTrial> {
        lab.announce()?;
        let streams = ParallelInternet::ALL.map(|internet| stream(lab, internet, load));
        let read = || -> Result<Vec<[ThreadUse; 2]>> {
            lab.guests().iter().map(|guest| guest.threads.read()).collect()
        };
        let before = read()?;
        let (counted, span) = self.wire.trial_of(streams.to_vec(), load.duration)?;
        let after = read()?;
        let threads = before.into_iter().zip(after).map(|(before, after)| {
            let [[a, b], [then_a, then_b]] = [after, before];
            [a.since(then_a), b.since(then_b)]
        });
        let threads = threads.map(Some).chain(std::iter::repeat(None));
        let tenant = |(StreamTrial { outcome, delays }, threads): (_, Option<_>)| TenantTrial {
            outcome,
            delays,
            threads: threads.unwrap_or_default(),
        };
        let tenants = counted.into_iter().zip(threads).map(tenant).collect();
        Ok(GuestTrial { tenants, seconds: float(span.as_nanos()) / 1e9 })
    }
}

impl GuestTrial {
    /// The packets of all three together.
    pub(crate) fn outcome(&self) -> Result<Outcome> {
        let sum = |of: fn(&Outcome) -> u64| self.tenants.iter().map(|one| of(&one.outcome)).sum();
        let [intended, offered, forwarded] =
            [sum(|one| one.intended), sum(|one| one.offered), sum(|one| one.forwarded)];
        Outcome::new(intended, offered, forwarded)
            .map_err(|error| ExperimentError::Node(error.to_string()))
    }
}

/// The stream of an internet: eight flows of UDP over IPv6.
fn stream(lab: &GuestLab, internet: ParallelInternet, load: &InternetsLoad) -> XdpStream {
    let number = u16::from(internet.number());
    let address = |place: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, place, 0, 0, 0, number));
    let device = "eth0";
    let count = load.pps.saturating_mul(load.duration.as_nanos()) / 1_000_000_000;
    XdpStream {
        netns: Some(lab.namespace_of("src")),
        rate: Some(Rate::Pps(load.pps.max(1))),
        count: Some(count.max(1)),
        source_mac: Some(Mac(mac(internet, LabEnd::Source).0)),
        pih: Some(internet.number()),
        flow_label: u32::from(number),
        source: address(0),
        destination: address(0x8000),
        source_port: SOURCE_PORT,
        flows: FLOWS,
        ..XdpStream::new(number, device, Mac(lab.target(internet).0), frame_sizes(&load.sizes))
    }
}

/// The first of the ports by which IPv6 QoS tells classes apart.
const SOURCE_PORT: u16 = 49_152;
const FLOWS: u32 = 8;
