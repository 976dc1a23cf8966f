// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures read from result files.

use weir_experiment::prelude::*;
use weir_result::ResultFile;

use super::flow::FigureFlow;
use super::shares::{ShareSetting, prefix};
use super::sweep::{Metric, SetPointSweep};
use crate::reproduce::interval::interval;
use crate::routers::{Contender, HoldingMeans};

/// Returns the samples of a series; none of one that was not kept.
pub(super) fn samples<'r>(result: &'r ResultFile, name: &str) -> &'r [f64] {
    result.series().get(name).map_or(&[], |series| &series.samples)
}

/// Returns the first sample of a series.
pub(super) fn first(result: &ResultFile, name: &str) -> Option<f64> {
    samples(result, name).first().copied()
}

/// Routers of a setting taken together.
pub(super) struct RouterTotals {
    /// Packets a second, and half its 95 % interval over repetitions.
    pub(super) mean: f64,
    pub(super) half: Option<f64>,
    /// The least router by the greatest.
    pub(super) balance: f64,
}

/// Returns the totals of all routers of a setting, held in one way; none if that was not made.
pub(super) fn together(
    result: &ResultFile,
    setting: &ShareSetting,
    configuration: &str,
    means: HoldingMeans,
) -> Option<RouterTotals> {
    let prefix = prefix(setting.key, configuration, means);
    let of = |router: usize| samples(result, &format!("{prefix}rate/{}", router + 1));
    let rates: Vec<&[f64]> = (0..setting.loads.len()).map(of).collect();
    let repetitions = rates.iter().map(|rates| rates.len()).min()?;
    let sums: Vec<f64> =
        (0..repetitions).map(|at| rates.iter().map(|rates| rates[at]).sum()).collect();
    let all = interval(&sums)?;
    let means: Vec<f64> = rates.iter().map(|rates| weir_experiment::mean(rates)).collect();
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let most = means.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    Some(RouterTotals { mean: all.mean, half: all.half, balance: least / most })
}

/// A run of a sweep, as the result has it.
pub(super) struct SweepResult<'r> {
    result: &'r ResultFile,
    id: String,
    pub(super) percent: u64,
    /// Packets a second.
    pub(super) set_point: f64,
}

impl<'r> SweepResult<'r> {
    /// Returns all runs of a contender under a flow, by rising set-point.
    pub(super) fn all(
        result: &'r ResultFile,
        flow: FigureFlow,
        contender: Contender,
        sweep: &SetPointSweep,
    ) -> Vec<Self> {
        let of = |percent: u64| {
            let id = format!("{}/{}/{percent}%/", flow.key(), contender.key());
            let set_point = first(result, &format!("{id}set-point"))?;
            Some(Self { result, id, percent, set_point })
        };
        let mut percents = [sweep.points(false), sweep.points(true)].concat();
        percents.sort_unstable();
        percents.dedup();
        percents.into_iter().filter_map(of).collect()
    }

    fn samples(&self, name: &str) -> &'r [f64] {
        samples(self.result, &format!("{}{name}", self.id))
    }

    /// Returns a metric in its unit; none where it was not measured.
    pub(super) fn metric(&self, metric: Metric) -> Option<f64> {
        let mean = |name: &str| {
            let seen = self.samples(name);
            (!seen.is_empty()).then(|| weir_experiment::mean(seen))
        };
        match metric {
            Metric::Achieved => mean("rate"),
            Metric::Disturbed => mean("disturbed-rate"),
            Metric::RoundTrip => mean("rtt"),
            Metric::Lost => {
                let [failed, all] = ["probes-failed", "probes"].map(mean);
                failed.zip(all).map(|(failed, all)| failed / all.max(1.0))
            }
            Metric::Deviation => {
                let rates: Vec<PacketRate> = self.samples("rate").iter().map(whole).collect();
                weir_control::relative_rmse(&rates)
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn whole(rate: &f64) -> PacketRate {
    PacketRate::from_pps(rate.round() as u64)
}
