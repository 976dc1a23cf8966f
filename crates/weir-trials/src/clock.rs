// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monotonic clock as the traffic tools count it.

use std::time::Duration;

/// Now, in ns of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    weir_node::clock::now().as_nanos()
}

/// A length in ns, at most 584 years.
#[must_use]
pub fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
