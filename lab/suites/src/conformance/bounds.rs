// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds of the suite.

use weir_experiment::claims::{GUARANTEED, UTILIZATION};

/// The bounds of the suite's judgements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SuiteBounds {
    /// The least ratio of the smallest share to the largest, by weight, in each second.
    pub(super) balance: f64,
    /// Part of a guarantee that arrives in each second.
    pub(super) guaranteed: f64,
    /// Part of a saturated link's rate that is used in each second.
    pub(super) utilization: f64,
    /// The least part of a new share or rate that is got from 100 ms after a change on.
    pub(super) follows: f64,
    /// The greatest error of a rate.
    pub(super) rate_error: f64,
    /// The seconds that this error is of: a shorter run may miss as many bits. `None`: the run's.
    pub(super) rate_error_of_s: Option<f64>,
    /// The greatest error of a packet rate over the whole run.
    pub(super) packet_rate_error: f64,
    /// The delay that the devices on the way and a shared machine may add, in seconds.
    pub(super) delay_slack_s: f64,
}

impl SuiteBounds {
    /// The bounds at the scenarios' own rates.
    pub(super) const EXACT: Self = Self {
        balance: 0.99,
        guaranteed: GUARANTEED,
        utilization: UTILIZATION,
        follows: 0.98,
        rate_error: 0.001,
        rate_error_of_s: Some(10.0),
        packet_rate_error: 0.01,
        delay_slack_s: 200e-6,
    };

    /// The bounds at rates that were scaled down for a machine without the speed for more: a frame
    /// is a larger part of a second's share there, and the machine's pauses are of milliseconds.
    pub(super) const SCALED: Self = Self {
        balance: 1.0 - SCALED_ERROR,
        guaranteed: 1.0 - SCALED_ERROR,
        utilization: 1.0 - SCALED_ERROR,
        follows: 1.0 - SCALED_ERROR,
        rate_error: SCALED_ERROR,
        rate_error_of_s: None,
        packet_rate_error: SCALED_ERROR,
        delay_slack_s: 20e-3,
    };
}

/// The greatest error of a share or a rate in a scaled run.
const SCALED_ERROR: f64 = 0.05;
