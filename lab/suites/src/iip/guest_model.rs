// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The linear model of equation 2 of the text for each guest: CPU of its first thread by packets a
//! second, a line a size and one surface over all sizes.

use weir_experiment::prelude::*;
use weir_tester::{CpuLine, CpuPoint, CpuSurface, LeastSquaresError};

use super::table1::{batched_surface, errors_of_held_out_sizes, plain_surface};
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
    /// One surface over all sizes; with counted wake-ups as a term; with the wake-ups that follow
    /// from the load.
    pub(crate) surfaces: [CpuSurface; 3],
    /// Distances of points from the surface of all other sizes, points of a processor: of the first
    /// surface and of the third. `None` of two sizes, since one size alone has no surface.
    pub(crate) held_out: Option<[Vec<f64>; 2]>,
}

impl GuestModel {
    /// Fits the loads that were forwarded.
    pub(crate) fn of(sizes: &[SizeLoads], internet: ParallelInternet) -> Result<Self> {
        let all: Vec<CpuPoint> = sizes.iter().flat_map(|size| points(size, internet)).collect();
        let failed = |error| unfitted(&format!("{}: no surface", internet.name()), &error);
        let (batched, _) = batched_surface(&all, &[]).map_err(failed)?;
        let surface = |with_wakeups| CpuSurface::of(&all, with_wakeups).map_err(failed);
        let held_out = |fit| errors_of_held_out_sizes(&all, fit);
        let both = || -> Result<_> { Ok([held_out(plain_surface)?, held_out(batched_surface)?]) };
        let held_out = (sizes.len() > 2).then(both);
        Ok(Self {
            lines: lines(sizes, internet)?,
            surfaces: [surface(false)?, surface(true)?, batched],
            held_out: held_out.transpose()?,
        })
    }
}

/// Fits a line to the loads of each size that a guest forwarded.
pub(crate) fn lines(sizes: &[SizeLoads], internet: ParallelInternet) -> Result<Vec<CpuLine>> {
    let line = |size: &SizeLoads| {
        let points = points(size, internet);
        CpuLine::of(&points).map_err(|error| {
            let (forwarded, of) = (points.len(), size.loads.len());
            let size = format!("{}, {} bytes", internet.name(), size.bytes);
            unfitted(&format!("{size}, {forwarded} of {of} loads forwarded: no line"), &error)
        })
    };
    sizes.iter().map(line).collect()
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

fn unfitted(what: &str, error: &LeastSquaresError) -> ExperimentError {
    ExperimentError::Node(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use crate::guests::sweep::MeasuredTenant;

    use super::*;

    /// By hand: 4 + kpps · (0.5 + 0.001 · bytes), and a load that was not forwarded beside it.
    fn sizes() -> [SizeLoads; 3] {
        let load = |bytes: f64, step: u32| {
            let kpps = 5.0 * f64::from(step);
            let lost = step == 4;
            let cpu = if lost { 99.0 } else { kpps * (0.5 + 0.001 * bytes) + 4.0 };
            let missing = if lost { 0.5 } else { 0.0 };
            let (cpu, wakeups_k) = ([cpu, 0.0], kpps.sqrt());
            let tenant = MeasuredTenant { missing, cpu, wakeups_k, ..MeasuredTenant::default() };
            MeasuredLoad { mbps: 0.0, kpps, tenants: vec![tenant; 3] }
        };
        [100.0, 500.0, 1500.0].map(|bytes| SizeLoads {
            bytes,
            loads: (1..=4).map(|step| load(bytes, step)).collect(),
        })
    }

    #[test]
    fn a_model_is_that_of_forwarded_loads() {
        let sizes = sizes();
        let each = sizes.iter().map(|size| points(size, ParallelInternet::Can));
        assert!(each.clone().all(|points| points.len() == 3));
        let surface = CpuSurface::of(&each.flatten().collect::<Vec<_>>(), false).unwrap();
        assert!(surface.fit().r_square > 0.999_999);
    }

    /// Goal: a quick run's two sizes have lines and surfaces, though neither has a surface alone.
    #[test]
    fn two_sizes_have_a_model() {
        let sizes = sizes();
        let model = |sizes| GuestModel::of(sizes, ParallelInternet::Can).unwrap();
        let (two, three) = (model(&sizes[..2]), model(&sizes));
        assert_eq!((two.lines.len(), two.held_out.is_none()), (2, true));
        assert_eq!(three.held_out.map(|errors| errors.map(|of| of.len())), Some([9, 9]));
        assert!((two.lines[1].slope() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_size_without_a_line_is_named() {
        let mut sizes = sizes();
        sizes[1].loads.truncate(2);
        let error = lines(&sizes, ParallelInternet::Can).unwrap_err().to_string();
        assert!(error.contains("CAN, 500 bytes, 2 of 2 loads forwarded"), "{error}");
    }
}
