// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The monotonic clock as the traffic tools count it, and the processor time of a thread.

use std::time::{Duration, Instant};

use crate::{ExperimentError, Result};

/// Now, in ns of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    weir_dataplane::clock::now().as_nanos()
}

/// The processor time that the calling thread has used, ns.
pub fn thread_ns() -> u64 {
    weir_dataplane::clock::thread_time_ns()
}

/// Runs `work`. Returns its result, and the processor time that it took of the calling thread.
pub fn cpu_time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_ns();
    let done = work();
    (done, Duration::from_nanos(thread_ns().saturating_sub(before)))
}

/// A length in ns, at most 584 years.
pub fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps until an instant of this clock, or until a signal comes.
pub fn sleep_until(at_ns: u64) -> Result {
    loop {
        if weir_traffic::is_stopped() {
            return Err(ExperimentError::Interrupted);
        }
        let left = Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()));
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SIGNAL_POLL));
    }
}

/// Sleeps for this length, or until a signal comes.
pub fn sleep(length: Duration) -> Result {
    sleep_until(monotonic_ns().saturating_add(nanos(length)))
}

/// Calls `look` every `poll` until it returns something. Returns `None` if it does not within
/// `limit`, and an error if a signal comes.
pub fn wait_for<T>(
    limit: Duration,
    poll: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let until = Instant::now() + limit;
    loop {
        let found = look()?;
        if found.is_some() || Instant::now() > until {
            return Ok(found);
        }
        sleep(poll)?;
    }
}

/// The interval at which a pending signal is looked for.
pub const SIGNAL_POLL: Duration = Duration::from_millis(20);
