// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of the data plane.

use rustix::time::{ClockId, clock_gettime};
use weir_units::Instant;

/// Reads the kernel's monotonic clock. XDP programs read the same one, so that both sides of a
/// measurement count from the same origin.
#[must_use]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    // Monotonic time is never negative: it counts from boot.
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
