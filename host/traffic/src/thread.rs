// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread of a sender or receiver: its clock, its namespace, its processors, its priority.

use std::thread;

use rustix::process::setpriority_process;
use rustix::thread::{ClockId, CpuSet, clock_nanosleep_absolute, sched_setaffinity};
use rustix::time::{Timespec, clock_gettime};
use weir_platform::netns::enter_for_good;

use super::error::TrafficError;
use super::spec::RunSpec;

/// Runs `f` on a thread of its own, in the namespace and with the processors of `run`.
pub(super) fn run_inside<T: Send>(
    run: &RunSpec,
    f: impl FnOnce() -> Result<T, TrafficError> + Send,
) -> Result<T, TrafficError> {
    on_own_thread(|| {
        if let Some(name) = &run.netns {
            enter_for_good(name)?;
        }
        set_processors(&run.cpus)?;
        if let Some(nice) = run.nice {
            setpriority_process(None, nice).map_err(|error| {
                TrafficError::system(format!("set the nice value {nice}"), error)
            })?;
        }
        f()
    })
}

/// Runs `f` on a thread of its own, which may enter a namespace for good, and waits for it.
pub(super) fn on_own_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(f).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of the BPF programs too.
pub(super) fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// Nanoseconds since 1970.
pub(super) fn wall_ns() -> u64 {
    clock_ns(ClockId::Realtime)
}

/// Sleeps until `until_ns` of `CLOCK_MONOTONIC`, or until a signal comes.
pub(super) fn sleep_until(until_ns: u64) {
    // An error means that a signal ended the sleep, as documented.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(until_ns));
}

/// Converts nanoseconds to the time format of system calls.
pub(super) fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ns / NANOS).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % NANOS).unwrap_or(0),
    }
}

fn set_processors(cpus: &[usize]) -> Result<(), TrafficError> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set)
        .map_err(|error| TrafficError::system(format!("run on the processors {cpus:?}"), error))
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * NANOS + time.tv_nsec.unsigned_abs()
}

const NANOS: u64 = 1_000_000_000;
