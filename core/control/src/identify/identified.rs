// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded points, and the model identified from them.

use weir_units::{CpuShare, PacketRate};

use crate::Model;

/// The rate at the end of a period, and the cap from then on. A run is a slice of points, one a
/// period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// y(k): forwarded in the period that ends here.
    pub rate: PacketRate,
    /// u(k): in force in the period that begins here.
    pub cap: CpuShare,
}

/// The means around which the model is linear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperatingPoint {
    /// ȳ, thousand packets a second.
    pub rate_kpps: f64,
    /// ū, log10 of the cap in percent.
    pub log_cap: f64,
}

/// An identified model, and how well it explains the recorded runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Identified {
    /// a and b.
    pub model: Model,
    /// The offsets.
    pub operating_point: OperatingPoint,
    /// The part of the variation of the rate that one step of the model explains, at most 1.
    pub r_squared: f64,
    /// Pairs of consecutive points.
    pub pairs: usize,
}
