// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steal: processor time that the machine's own host takes while something is judged here.

use std::time::Instant;

/// The part of a processor's time above which the host is to blame for what is late.
pub(crate) const DISTURBED: f64 = 0.05;

/// A measurement of steal from its beginning on.
pub(crate) struct Stolen {
    before_s: f64,
    begun: Instant,
}

impl Stolen {
    pub(crate) fn since_now() -> Self {
        Self { before_s: stolen_s(), begun: Instant::now() }
    }

    /// Returns the part of the time that was stolen, in the mean of all processors.
    pub(crate) fn part(&self) -> f64 {
        let took_s = self.begun.elapsed().as_secs_f64();
        (stolen_s() - self.before_s) / took_s.max(f64::EPSILON)
    }
}

/// Returns the processor time that the host has taken so far; 0 if the kernel does not report it.
fn stolen_s() -> f64 {
    stolen_of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Reads a text as in `/proc/stat` (proc_stat(5)): returns the mean of all processors, in seconds.
fn stolen_of(stat: &str) -> f64 {
    let each = stat.lines().filter(|line| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let ticks: Vec<f64> = each
        .map(|line| line.split(' ').nth(8).and_then(|word| word.parse().ok()).unwrap_or(0.0))
        .collect();
    let processors = u32::try_from(ticks.len().max(1)).map_or(1.0, f64::from);
    // Linux reports ticks of 10 ms to programs, on all architectures.
    ticks.iter().sum::<f64>() / processors / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_all_processors_counts() {
        let stat = "cpu  9 9 9 9 9 9 9 900 0 0\ncpu0 1 2 3 4 5 6 7 100 0 0\n\
                    cpu1 1 2 3 4 5 6 7 300 0 0\nctxt 1 2 3 4 5 6 7 8 9\n";
        assert_eq!(stolen_of(stat).to_bits(), 2.0_f64.to_bits());
        assert_eq!(stolen_of("cpu0 1 2 3").to_bits(), 0.0_f64.to_bits());
    }
}
