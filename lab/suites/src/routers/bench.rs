// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router under one load, for experiments that hold it at parts of its capacity.
//!
//! *The flow* stands for the text's 100 kp/s, which nearly filled its router: it is seven tenths of
//! what the router forwards of a flood, so that there is a cap threshold as there.

use weir_experiment::prelude::*;

use super::kinds::RouterKind;
use super::lab::RouterLab;
use super::plan::{MTU_TCP, Plan};
use super::traffic::{RouterLoad, RouterTraffic};

/// A router and its load.
#[derive(Clone, Debug)]
pub(crate) struct RouterBench {
    pub(crate) kind: RouterKind,
    pub(crate) load: BenchLoad,
    pub(crate) plan: Plan,
}

/// The load of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchLoad {
    /// UDP, as much as there is.
    Flood,
    /// UDP in percent of the flow.
    Flow(u64),
    /// Half of the UDP that the router forwards of a flood: what saturates the processor of its
    /// ends differs by a third from one second to the next.
    HalfUdp,
    /// Half of the TCP that gets through, for the same reason.
    Tcp,
}

impl RouterBench {
    /// A router whose packets stay in the kernel on the node's side.
    pub(crate) fn new(name: &str, kind: RouterKind, load: BenchLoad) -> Self {
        let mut plan = Plan::one(name, kind, Nanos::from_secs(1)).redirected();
        if load == BenchLoad::Tcp {
            plan.mtu = MTU_TCP;
        }
        Self { kind, load, plan }
    }

    /// Bench `number` of the four of a row: both kinds of router under UDP, and under TCP.
    pub(crate) fn numbered(name: &str, udp: BenchLoad, number: usize) -> Self {
        let kind = if number < 2 { RouterKind::Process } else { RouterKind::Namespace };
        let load = if number.is_multiple_of(2) { udp } else { BenchLoad::Tcp };
        Self::new(name, kind, load)
    }

    /// Has the node itself forward, and watches it with short samples.
    pub(crate) fn forwarded_by_the_node(mut self) -> Self {
        (self.plan.redirect, self.plan.sampling) = (false, super::plan::SAMPLING);
        self
    }

    /// Returns its name in identifiers.
    pub(crate) fn name(&self) -> String {
        let load = if self.load == BenchLoad::Tcp { "tcp" } else { "udp" };
        format!("{}-{load}", self.kind.name())
    }

    /// Has `work` do with the lab and the router's capacity while the load flows. Returns the
    /// capacity, too.
    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce(&mut RouterLab, PacketRate) -> Result<T, ExperimentError>,
    ) -> Result<(PacketRate, T), ExperimentError> {
        let mut lab = RouterLab::up(self.plan.clone())?;
        let load = self.load.traffic(&mut lab)?;
        let (done, _) = load.beside(&mut lab, |lab| {
            let capacity = lab.capacity(0)?;
            Ok((capacity, work(lab, capacity)?))
        })?;
        Ok(done)
    }
}

impl BenchLoad {
    /// Returns it as traffic for the first router of a lab, after measuring how much there is.
    pub(crate) fn traffic(self, lab: &mut RouterLab) -> Result<RouterTraffic, ExperimentError> {
        let all = RouterTraffic::one(match self {
            Self::Tcp => RouterLoad::Tcp(CONNECTIONS),
            Self::Flood | Self::Flow(_) | Self::HalfUdp => RouterLoad::Udp(None),
        });
        if self == Self::Flood {
            return Ok(all);
        }
        let (through, flowed) = all.beside(lab, |lab| lab.capacity(0))?;
        let udp = |pps: u64| RouterTraffic::one(RouterLoad::Udp(Some(pps.max(1))));
        Ok(match self {
            Self::Flood => all,
            Self::Flow(percent) => udp(through.as_pps() * 7 / 10 * percent / 100),
            Self::HalfUdp => udp(through.as_pps() / 2),
            Self::Tcp => all.eased_tcp(&flowed)?,
        })
    }
}

/// Enough that some are always ready to send, whatever the others lost.
const CONNECTIONS: u32 = 32;
