// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of the data plane.

use rustix::time::{ClockId, clock_gettime};
use weir_units::Instant;

/// Reads the processor time of the calling thread so far, nanoseconds.
#[must_use]
pub fn thread_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // It counts from the start of the thread.
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Reads the kernel's monotonic clock. XDP programs read the same one, so that both sides of a
/// measurement count from the same origin.
#[must_use]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    // Monotonic time is never negative: it counts from boot.
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
