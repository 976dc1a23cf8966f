// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the loads that a figure shows from a result.

use weir_result::ResultFile;

use super::figures::IipFigure;
use crate::guests::sweep::{MeasuredLoad, loads};
use crate::iip::guest_model::SizeLoads;

/// The loads of one size in one sweep.
#[derive(Clone, Debug)]
pub(super) struct FigureLoads {
    pub(super) sweep: &'static str,
    pub(super) size: String,
    pub(super) loads: Vec<MeasuredLoad>,
}

/// Reads all loads that a figure shows and that were measured.
pub(super) fn shown(figure: &IipFigure, result: &ResultFile) -> Vec<FigureLoads> {
    let mut found = Vec::new();
    for sweep in figure.sweeps {
        for size in figure.sizes {
            let loads = loads(result, &format!("{sweep}/{size}"));
            if !loads.is_empty() {
                found.push(FigureLoads { sweep, size: (*size).to_owned(), loads });
            }
        }
    }
    found
}

impl FigureLoads {
    /// The name of the sweep for people.
    pub(super) fn sweep_name(&self) -> &'static str {
        match self.sweep {
            "native" => "the machine alone",
            "fixed" | "random" => "the node, phases of 100 µs",
            "no-phases" => "the node, no phases",
            "route" => "guests route",
            "nat" => "guests translate addresses",
            other => other,
        }
    }

    /// The loads with their mean size, for a model.
    pub(super) fn to_fit(&self) -> SizeLoads {
        SizeLoads { bytes: self.size.parse().unwrap_or(RANDOM_MEAN), loads: self.loads.clone() }
    }

    /// The greatest load that was forwarded but for a percent, before the first that was not.
    pub(super) fn throughput(&self) -> Option<&MeasuredLoad> {
        self.loads.iter().take_while(|load| load.is_forwarded()).last()
    }
}

/// Mean of sizes from 87 to 1518 bytes.
const RANDOM_MEAN: f64 = 802.5;
