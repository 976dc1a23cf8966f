// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A log-linear histogram of delays: 64 steps an octave, so that a step is at most 1/64 (1.6 %) of
//! its value; exact below 64 ns; up to 137 s. `bpf/sink.bpf.c` counts in the same steps.

use serde::{Deserialize, Serialize};

/// Delays of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// Delays that were counted.
    pub count: u64,
    /// Packets stamped later than they arrived: the clocks of the two ends differ.
    pub early: u64,
    /// Least, exact.
    pub min_ns: u64,
    /// Greatest, exact.
    pub max_ns: u64,
    /// Sum, exact.
    pub sum_ns: u64,
    /// Lower end of each step that is not empty, and its count; steps ascend.
    pub steps: Vec<(u64, u64)>,
}

impl Delays {
    /// Returns the delay that a part of `numerator / denominator` of the packets does not exceed:
    /// the upper end of its step, at most the maximum; 0 without packets.
    #[must_use]
    pub fn quantile_ns(&self, numerator: u64, denominator: u64) -> u64 {
        let rank = u128::from(self.count) * u128::from(numerator);
        let rank = rank.div_ceil(u128::from(denominator.max(1))).max(1);
        let mut seen = 0_u128;
        for (low, count) in &self.steps {
            seen += u128::from(*count);
            if seen >= rank {
                return step_end(*low).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Returns by how many packets a sink can count more in a window than were let through in any
    /// window of that length, at `rate` packets a second.
    ///
    /// Take any bound J on delays. A packet that is on its way for at most J and arrives within a
    /// window of length T was let through within T + J. So at most `rate · J` more of these
    /// packets arrive, and besides every packet that took longer than J. This holds for each J,
    /// and so for the J with the least sum.
    #[must_use]
    pub fn on_the_way(&self, rate: f64) -> f64 {
        let mut longer = self.count;
        let mut least = float(longer);
        for (low, count) in &self.steps {
            longer = longer.saturating_sub(*count);
            let bound_s = float(step_end(*low).min(self.max_ns)) / 1e9;
            least = least.min(rate * bound_s + float(longer));
        }
        least
    }
}

/// Exact below 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "counts and ns of a run are below 2⁵³")]
const fn float(number: u64) -> f64 {
    number as f64
}

/// Counts delays. Counting one costs a few shifts and no memory.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    delays: Delays,
}

impl Histogram {
    /// Makes an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: vec![0; STEPS], delays: Delays::default() }
    }

    /// Counts a delay; `None` for a packet that was stamped later than it arrived.
    pub fn add(&mut self, delay_ns: Option<u64>) {
        let Some(delay_ns) = delay_ns else {
            self.delays.early += 1;
            return;
        };
        let delays = &mut self.delays;
        delays.min_ns = if delays.count == 0 { delay_ns } else { delays.min_ns.min(delay_ns) };
        delays.max_ns = delays.max_ns.max(delay_ns);
        delays.count += 1;
        delays.sum_ns = delays.sum_ns.saturating_add(delay_ns);
        if let Some(count) = self.counts.get_mut(step_of(delay_ns)) {
            *count += 1;
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn delays(&self) -> Delays {
        Delays { steps: nonempty_steps(&self.counts), ..self.delays.clone() }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the steps of `counts` that are not empty, each with its lower end.
#[must_use]
pub fn nonempty_steps(counts: &[u64]) -> Vec<(u64, u64)> {
    let nonempty = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    nonempty.map(|(step, count)| (step_begin(step), *count)).collect()
}

/// The step that holds `ns`; the last one holds all that is longer.
pub(crate) fn step_of(ns: u64) -> usize {
    if ns < STEPS_PER_OCTAVE {
        return usize::try_from(ns).unwrap_or(STEPS - 1);
    }
    let log = ns.ilog2();
    let octave = u64::from(log - STEPS_BITS + 1);
    let within = ns >> (log - STEPS_BITS) & (STEPS_PER_OCTAVE - 1);
    usize::try_from(octave * STEPS_PER_OCTAVE + within).unwrap_or(STEPS - 1).min(STEPS - 1)
}

/// The least delay of a step, in ns.
fn step_begin(step: usize) -> u64 {
    let step = step.min(STEPS - 1) as u64;
    let (octave, within) = (step / STEPS_PER_OCTAVE, step % STEPS_PER_OCTAVE);
    if octave == 0 { within } else { (STEPS_PER_OCTAVE + within) << (octave - 1) }
}

/// The greatest delay of the step that begins at `begin`.
fn step_end(begin: u64) -> u64 {
    if begin < STEPS_PER_OCTAVE { begin } else { begin + (1 << (begin.ilog2() - STEPS_BITS)) - 1 }
}

/// Steps of the histogram, as in the sink.
const STEPS: usize = 2048;
const STEPS_BITS: u32 = 6;
const STEPS_PER_OCTAVE: u64 = 1 << STEPS_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_join_without_gap_and_are_narrow() {
        for step in 1..STEPS {
            let begin = step_begin(step);
            assert_eq!(step_of(begin), step);
            assert_eq!(step_of(begin - 1), step - 1);
            assert_eq!(step_end(step_begin(step - 1)), begin - 1);
            assert!((step_end(begin) - begin) * 64 <= begin, "step {step}");
        }
        assert_eq!(step_of(u64::MAX), STEPS - 1);
        assert!(step_begin(STEPS - 1) > 100_000_000_000);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list_to_a_step() {
        let mut histogram = Histogram::new();
        for delay in 1..=1000_u64 {
            histogram.add(Some(delay * 1000));
        }
        histogram.add(None);
        let delays = histogram.delays();
        assert_eq!((delays.count, delays.early), (1000, 1));
        assert_eq!((delays.min_ns, delays.max_ns), (1_000, 1_000_000));
        assert_eq!(delays.sum_ns, 500_500_000);
        for (share, exact) in [(1, 1_000), (500, 500_000), (990, 990_000), (1000, 1_000_000)] {
            let got = delays.quantile_ns(share, 1000);
            assert!(got >= exact && got <= exact + exact / 64 + 1, "{share}: {got}");
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        assert_eq!(Histogram::new().delays().quantile_ns(1, 2), 0);
    }
}
