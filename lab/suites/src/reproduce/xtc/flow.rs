// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loads of a figure's router.

use crate::routers::{BenchLoad, RouterBench, RouterKind};

/// The load of one router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FigureFlow {
    /// UDP in frames of 64 bytes, in percent of the text's 100 kp/s: of *the flow*.
    Udp(u64),
    /// TCP in packets of 524 bytes.
    Tcp,
}

impl FigureFlow {
    /// Its name, as in identifiers.
    pub(super) fn key(self) -> String {
        match self {
            Self::Udp(percent) => format!("udp-{percent}"),
            Self::Tcp => "tcp".to_owned(),
        }
    }

    /// Its name on the page.
    pub(super) fn name(self) -> String {
        match self {
            Self::Udp(100) => "UDP, the flow".to_owned(),
            Self::Udp(percent) => format!("UDP, {percent} % of the flow"),
            Self::Tcp => "TCP".to_owned(),
        }
    }

    /// Returns a router of that kind under it.
    pub(super) fn bench(self, kind: RouterKind) -> RouterBench {
        let load = match self {
            Self::Udp(percent) => BenchLoad::Flow(percent),
            Self::Tcp => BenchLoad::Tcp,
        };
        RouterBench::new("xtc-figure", kind, load)
    }
}

/// Seconds to bring a lab up, to start traffic, and for two capacities.
pub(super) const BESIDE_LAB_S: u64 = 14;
