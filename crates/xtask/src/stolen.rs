// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine's own host takes of its processors while something is judged here.

use std::time::Instant;

/// The part of a processor's time above which the host is to blame for what is late.
pub(crate) const DISTURBED: f64 = 0.05;

/// What has been taken since.
pub(crate) struct Stolen {
    before_s: f64,
    begun: Instant,
}

impl Stolen {
    pub(crate) fn since_now() -> Self {
        Self { before_s: stolen_s(), begun: Instant::now() }
    }

    /// The part of a processor's time, in the mean of all.
    pub(crate) fn part(&self) -> f64 {
        let took_s = self.begun.elapsed().as_secs_f64();
        (stolen_s() - self.before_s) / took_s.max(f64::EPSILON)
    }
}

/// What the host has taken of the processors so far, in the mean, in seconds; 0 where the kernel
/// does not say.
fn stolen_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let each = stat.lines().filter(|line| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let ticks: Vec<f64> = each
        .map(|line| line.split(' ').nth(8).and_then(|word| word.parse().ok()).unwrap_or(0.0))
        .collect();
    let processors = u32::try_from(ticks.len().max(1)).map_or(1.0, f64::from);
    // Ticks of 10 ms on all processors that Linux tells programs of.
    ticks.iter().sum::<f64>() / processors / 100.0
}
