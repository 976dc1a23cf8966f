// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The linear model of equation 2 of the text for each guest: CPU of its first thread by packets a
//! second, a line a size and one surface over all sizes.

use weir_experiment::prelude::*;
use weir_tester::{CpuLine, CpuPoint, CpuSurface, LeastSquaresError};

use super::table1::errors_of_held_out_sizes;
use crate::guests::ParallelInternet;
use crate::guests::sweep::MeasuredLoad;

/// The loads of one size of frames.
#[derive(Clone, Debug)]
pub(crate) struct SizeLoads {
    /// Mean size, bytes with FCS.
    pub(crate) bytes: f64,
    pub(crate) loads: Vec<MeasuredLoad>,
}

/// The model of one guest.
#[derive(Clone, Debug)]
pub(crate) struct GuestModel {
    /// A line for each size, in their order.
    pub(crate) lines: Vec<CpuLine>,
    /// One surface over all sizes; with wake-ups as a term.
    pub(crate) surfaces: [CpuSurface; 2],
    /// Distances of points from the surface of all other sizes, points of a processor.
    pub(crate) held_out: Vec<f64>,
}

impl GuestModel {
    /// Fits the loads that were forwarded.
    pub(crate) fn of(sizes: &[SizeLoads], internet: ParallelInternet) -> Result<Self> {
        let each: Vec<Vec<CpuPoint>> = sizes.iter().map(|size| points(size, internet)).collect();
        let lines = each.iter().map(|points| CpuLine::of(points).map_err(unfitted));
        let all = each.concat();
        let surface = |with_wakeups| CpuSurface::of(&all, with_wakeups).map_err(unfitted);
        Ok(Self {
            lines: lines.collect::<Result<_>>()?,
            surfaces: [surface(false)?, surface(true)?],
            held_out: errors_of_held_out_sizes(&all)?,
        })
    }
}

/// The loads of a size that a guest forwarded.
pub(crate) fn points(size: &SizeLoads, internet: ParallelInternet) -> Vec<CpuPoint> {
    let forwarded = size.loads.iter().filter(|load| load.is_forwarded());
    let point = |load: &MeasuredLoad| {
        let tenant = load.tenants.get(internet.index())?;
        let (kpps, frame_bytes) = (load.kpps, size.bytes);
        let [cpu_percent, _] = tenant.cpu;
        Some(CpuPoint { kpps, frame_bytes, wakeups_k: tenant.wakeups_k, cpu_percent })
    };
    forwarded.filter_map(point).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unfitted(error: LeastSquaresError) -> ExperimentError {
    ExperimentError::Node(format!("the model of a guest: {error}"))
}

#[cfg(test)]
mod tests {
    use crate::guests::sweep::MeasuredTenant;

    use super::*;

    /// By hand: 4 + kpps · (0.5 + 0.001 · bytes), and a load that was not forwarded beside it.
    #[test]
    fn a_model_is_that_of_forwarded_loads() {
        let load = |bytes: f64, step: u32| {
            let kpps = 5.0 * f64::from(step);
            let lost = step == 4;
            let cpu = if lost { 99.0 } else { kpps * (0.5 + 0.001 * bytes) + 4.0 };
            let missing = if lost { 0.5 } else { 0.0 };
            let tenant = MeasuredTenant { missing, cpu: [cpu, 0.0], ..MeasuredTenant::default() };
            MeasuredLoad { mbps: 0.0, kpps, tenants: vec![tenant; 3] }
        };
        let sizes = [100.0, 500.0, 1500.0].map(|bytes| SizeLoads {
            bytes,
            loads: (1..=4).map(|step| load(bytes, step)).collect(),
        });
        let each = sizes.iter().map(|size| points(size, ParallelInternet::Can));
        assert!(each.clone().all(|points| points.len() == 3));
        let surface = CpuSurface::of(&each.flatten().collect::<Vec<_>>(), false).unwrap();
        assert!(surface.fit().r_square > 0.999_999);
    }
}
