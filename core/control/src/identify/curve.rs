// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a curve of rate by cap from runs, and finds the cap from which on it is flat.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_units::{CpuShare, PacketRate};

use crate::number::{float, kpps, whole};

/// The result of the runs under one cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvePoint {
    /// The cap.
    pub cap: CpuShare,
    /// The mean over its runs.
    pub mean: PacketRate,
    /// Half the width of the 95 % interval of that mean (Student's t); `None` of a single run.
    pub interval: Option<PacketRate>,
    /// The number of runs.
    pub runs: u32,
}

/// Means and intervals by rising cap, of the mean rates of single runs under one load (Fig. 3).
#[must_use]
pub fn curve(runs: &[(CpuShare, PacketRate)]) -> Vec<CurvePoint> {
    let mut by_cap: BTreeMap<CpuShare, Vec<f64>> = BTreeMap::new();
    for (cap, rate) in runs {
        by_cap.entry(*cap).or_default().push(float(rate.as_pps()));
    }
    let points = by_cap.into_iter().map(|(cap, rates)| {
        let runs = u32::try_from(rates.len()).unwrap_or(u32::MAX);
        let mean = rates.iter().sum::<f64>() / f64::from(runs);
        let square = rates.iter().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>();
        let interval = (runs > 1).then(|| {
            let deviation = libm::sqrt(square / f64::from(runs - 1));
            let half = student_t(runs - 1) * deviation / libm::sqrt(f64::from(runs));
            PacketRate::from_pps(whole(half))
        });
        CurvePoint { cap, mean: PacketRate::from_pps(whole(mean)), interval, runs }
    });
    points.collect()
}

/// The cap from which on the rate does not change significantly: the least one such that from it
/// to the largest all rates are within less than `tolerance` of each other (§5.1; the text's
/// tolerance is 1 kp/s). `None` where only the largest cap is that, since then the curve may still
/// be rising there.
///
/// ```
/// use weir_control::identify::{cap_threshold, curve};
/// use weir_units::{CpuShare, PacketRate};
///
/// let kpps = |kpps: u64| PacketRate::from_pps(kpps * 100);
/// let runs = [(40, 940), (50, 980), (60, 990), (70, 995), (80, 994)]
///     .map(|(cap, rate)| (CpuShare::from_percent(cap), kpps(rate)));
/// let threshold = cap_threshold(&curve(&runs), PacketRate::from_pps(1000));
/// assert_eq!(threshold, Some(CpuShare::from_percent(60)));
/// ```
#[must_use]
pub fn cap_threshold(curve: &[CurvePoint], tolerance: PacketRate) -> Option<CpuShare> {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut flat = None;
    for (back, point) in curve.iter().rev().enumerate() {
        let rate = kpps(point.mean);
        (least, most) = (least.min(rate), most.max(rate));
        if most - least >= kpps(tolerance) {
            break;
        }
        flat = (back > 0).then_some(point.cap);
    }
    flat
}

/// The 97.5 % quantile of Student's t, which of ever more freedom is that of the normal. Beyond the
/// table that of the fewest degrees of a span: an interval is rather too wide than too narrow.
fn student_t(freedom: u32) -> f64 {
    let index = usize::try_from(freedom).unwrap_or(usize::MAX).saturating_sub(1);
    let beyond = match freedom {
        0..60 => 2.040,
        60..120 => 2.001,
        _ => 1.980,
    };
    STUDENT_T.get(index).copied().unwrap_or(beyond)
}

/// For 1 to 30 degrees of freedom.
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: u32) -> CpuShare {
        CpuShare::from_percent(percent)
    }

    #[test]
    fn means_and_intervals_by_hand() {
        let runs = [9_000, 10_000, 11_000].map(|rate| (percent(5), PacketRate::from_pps(rate)));
        // Deviation 1000, t of 2 degrees 4.303: 4303 ÷ √3 = 2484.
        let point = CurvePoint {
            cap: percent(5),
            mean: PacketRate::from_pps(10_000),
            interval: Some(PacketRate::from_pps(2484)),
            runs: 3,
        };
        assert_eq!(curve(&runs), [point]);
        assert_eq!(curve(&runs[..1])[0].interval, None);
        assert_eq!(curve(&[]), []);
    }

    /// Goal: no interval that is said to be of 95 % is narrower. Method: quantiles by their degrees
    /// from a printed table.
    #[test]
    fn intervals_are_not_too_narrow() {
        let printed = [(1, 12.706), (30, 2.042), (31, 2.0395), (40, 2.0211), (59, 2.0010)];
        let more = [(60, 2.0003), (119, 1.9801), (120, 1.9799), (1000, 1.9623)];
        for (freedom, least) in printed.into_iter().chain(more) {
            let taken = student_t(freedom);
            assert!(taken >= least && taken < least * 1.025, "{freedom}: {taken}");
        }
    }

    #[test]
    fn the_threshold_is_where_the_curve_is_flat_to_its_end() {
        let of = |rates: &[u64]| {
            let runs = rates
                .iter()
                .zip(1..)
                .map(|(rate, step)| (percent(10 * step), PacketRate::from_pps(rate * 1000)));
            cap_threshold(&curve(&runs.collect::<Vec<_>>()), PacketRate::from_pps(1500))
        };
        assert_eq!(of(&[50, 80, 99, 100, 100]), Some(percent(30)));
        assert_eq!(of(&[50, 100, 80, 100, 100]), Some(percent(40)), "a dip is no plateau");
        assert_eq!(of(&[50, 60, 70]), None, "still rising");
        assert_eq!(of(&[50, 52, 53, 54, 55]), Some(percent(40)), "slow, but rising");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[50, 50]), Some(percent(10)));
        assert_eq!(cap_threshold(&[], PacketRate::ZERO), None);
    }
}
