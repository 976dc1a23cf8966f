// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments of the XTC text, made again on routers of the lab: the text's controllers, with
//! their poles on the lab's own a and b, beside Weir's two.
//!
//! The text's flow of 100 kp/s nearly filled its router. Here *the flow* is seven tenths of what
//! the router forwards of a flood, so that there is a cap threshold as there, and rates are told in
//! parts of what the router forwards of a load with its largest cap: its capacity.

mod chain;
pub mod draw;
pub mod figures;
pub mod page;
mod shares;
mod sweep;
#[cfg(test)]
mod tests;
mod training;

pub use figures::{FIGURES, Figure, figure};

use std::time::Duration;

use figures::Made;
use weir_experiment::{ExperimentError, Recording};
use weir_units::PacketRate;

use crate::routers::{Chain, Plan, RouterKind, RouterLab, RouterLoad, Traffic, capacity};

/// Makes a figure on a router of that kind. Series are named as [`page`] reads them.
pub fn run(
    trial: &mut Recording<'_>,
    figure: &Figure,
    kind: RouterKind,
) -> Result<(), ExperimentError> {
    if !weir_platform::process::is_root() {
        let (what, needs) = (figure.name.to_owned(), "root".to_owned());
        return Err(ExperimentError::Missing { what, needs });
    }
    match &figure.made {
        Made::Curve(curve) => curve.run(trial, kind),
        Made::Residuals => training::residuals(trial, kind),
        Made::Sweep(sweep) => sweep.run(trial, kind),
        Made::Shares(shares) => shares.run(trial, kind),
        Made::Chain => chain::run(trial, kind),
    }
}

/// How long it takes, nearly.
pub fn length(figure: &Figure, quick: bool) -> Duration {
    let seconds = match &figure.made {
        Made::Curve(curve) => curve.seconds(quick),
        Made::Residuals => training::residual_seconds(quick),
        Made::Sweep(sweep) => sweep.seconds(quick),
        Made::Shares(shares) => shares.seconds(quick),
        Made::Chain => Chain::of(quick).seconds(),
    };
    Duration::from_secs(seconds)
}

/// What one router gets to forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// UDP in frames of 64 bytes, in percent of the text's 100 kp/s: of *the flow*.
    Udp(u64),
    /// TCP in packets of 524 bytes.
    Tcp,
}

impl Flow {
    /// Its name, as in identifiers.
    pub fn key(self) -> String {
        match self {
            Self::Udp(percent) => format!("udp-{percent}"),
            Self::Tcp => "tcp".to_owned(),
        }
    }

    /// What it is called on the page.
    pub fn name(self) -> String {
        match self {
            Self::Udp(100) => "UDP, the flow".to_owned(),
            Self::Udp(percent) => format!("UDP, {percent} % of the flow"),
            Self::Tcp => "TCP".to_owned(),
        }
    }

    fn plan(self, kind: RouterKind) -> Plan {
        let mut plan = Plan::one("xtc-figure", kind);
        if self == Self::Tcp {
            plan.mtu = crate::routers::MTU_TCP;
        }
        plan
    }

    /// The load of the router; as much as there is is measured first.
    fn load(self, lab: &mut RouterLab) -> Result<Traffic, ExperimentError> {
        match self {
            Self::Udp(percent) => Ok(Traffic::udp(flow(lab, percent)?)),
            Self::Tcp => Traffic::eased(RouterLoad::Tcp(CONNECTIONS), lab, capacity),
        }
    }
}

/// So many percent of *the flow*: of seven tenths of what the router forwards of a flood.
fn flow(lab: &mut RouterLab, percent: u64) -> Result<PacketRate, ExperimentError> {
    let (flood, _) = Traffic::one(RouterLoad::Udp(None)).beside(lab, capacity)?;
    Ok(PacketRate::from_pps(flood.as_pps() * 7 / 10 * percent / 100))
}

/// Enough that some are always ready to send, whatever the others lost.
const CONNECTIONS: u32 = 32;

/// Bringing a lab up, starting traffic, two capacities.
const BESIDE_LAB_S: u64 = 14;
