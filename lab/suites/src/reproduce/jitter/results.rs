// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads what a result says of one shaper.

use weir_experiment::float;
use weir_result::ResultFile;

use crate::jitter::shaped::ShaperContender;

/// The series of one shaper in one experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShaperResult<'r> {
    /// Milliseconds that each packet waited.
    pub(super) delay: &'r [f64],
    /// Bytes that left in each 2 s.
    pub(super) left: &'r [f64],
    /// Packets that were refused at entry.
    pub(super) refused: f64,
}

impl<'r> ShaperResult<'r> {
    /// Reads them; `None` where the shaper was not run.
    pub(super) fn of(result: &'r ResultFile, name: &str, shaper: ShaperContender) -> Option<Self> {
        let samples = |part: &str| {
            let series = result.series().get(&format!("{name}/{}/{part}", shaper.name()))?;
            Some(series.samples.as_slice()).filter(|samples| !samples.is_empty())
        };
        let refused = samples("refused").and_then(|count| count.first()).copied().unwrap_or(0.0);
        Some(Self { delay: samples("delay")?, left: samples("left")?, refused })
    }

    /// A percentile of the delay, ms.
    pub(super) fn delay_at(&self, percent: usize) -> f64 {
        let mut sorted = self.delay.to_vec();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(place).copied().unwrap_or(0.0)
    }

    /// Bit/s of each 2 s.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.left.iter().map(|bytes| bytes * 8.0 / WINDOW_S).collect()
    }

    /// Bit/s of all of them.
    pub(super) fn rate(&self) -> f64 {
        self.rates().iter().sum::<f64>() / float(self.left.len().max(1) as u64)
    }
}

/// Seconds of a window: the text's micro-view.
pub(super) const WINDOW_S: f64 = 2.0;
