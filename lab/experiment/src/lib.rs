// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The framework of every experiment.
//!
//! A [`TrafficRun`] puts a [`Forwarder`] into the middle of a [`StarTopology`], lets traffic flow
//! and returns a [`TrafficRecord`]: the counts of independent sinks. A [`Recording`] keeps samples
//! of the record as series, and judges claims about them. A [`Requirement`] is a row of a table of
//! such experiments.
//!
//! An experiment needs at least two processors. The worker has the last one for itself; senders,
//! receivers and the kernel's own work share the others.

mod attempt;
pub mod bpf_system;
pub mod claims;
pub mod clock;
mod error;
pub mod host_changes;
pub mod lab_process;
pub mod node_process;
pub mod pictures;
pub mod prelude;
mod probe;
pub mod product;
mod recording;
mod requirement;
pub mod run_folder;
pub mod senders;
pub mod sim_star;
mod star;
pub mod stolen;
mod testbed;
mod traffic_run;
pub mod virtual_time;
pub mod weir_program;

pub use error::{ExperimentError, Result};
pub use probe::{Bulk, LinkCounters, round_trips};
pub use recording::Recording;
pub use requirement::{Requirement, RequirementTable, RowPart};
pub use star::{StarTopology, TENANTS_MAX, UPLINK, provide_frames};
pub use testbed::{Forwarder, Testbed, build_lab, wait_until_forwarding};
pub use traffic_run::{TimedPolicy, TrafficFlows, TrafficRecord, TrafficRun, UNTIL_DONE};
pub use virtual_time::SimArm;

/// Converts a count to a sample, which is exact up to 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "counts of an experiment stay below 2^53")]
pub const fn float(count: u64) -> f64 {
    count as f64
}

/// Joins a thread and returns its result; a panic of the thread continues in this thread.
pub fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the mean of samples; 0 without any.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / float(samples.len().max(1) as u64)
}

/// Returns the median of samples, as [`weir_result::Rule::Median`] does; 0 without any.
pub fn median(samples: &[f64]) -> f64 {
    weir_result::Rule::Median.apply(&[samples]).unwrap_or(0.0)
}

/// Returns Jain's index of shares (R. Jain, *A Quantitative Measure of Fairness*, 1984): 1 if all
/// are equal, the reciprocal of their number if one has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (float(shares.len() as u64) * squares).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_by_hand() {
        let indices = [&[1.0, 1.0][..], &[3.0, 1.0], &[1.0, 0.0, 0.0, 0.0], &[]].map(jain);
        for (index, expected) in indices.into_iter().zip([1.0, 0.8, 0.25, 0.0]) {
            assert!((index - expected).abs() < 1e-12, "{index}");
        }
    }

    #[test]
    fn a_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
