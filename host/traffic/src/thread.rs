// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The means that a thread of a sender or receiver needs of the system: its clock, its namespace,
//! its processors, its priority.

use std::ffi::CString;
use std::{mem, thread};

use weir_platform::netns::enter_for_good;

use super::error::TrafficError;
use super::spec::RunSpec;

/// Runs `f` on a thread of its own, in the namespace and with the processors of `run`.
///
/// # Errors
/// Those of `f`; the namespace or the processors are not there.
pub(super) fn run_inside<T: Send>(
    run: &RunSpec,
    f: impl FnOnce() -> Result<T, TrafficError> + Send,
) -> Result<T, TrafficError> {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            if let Some(name) = &run.netns {
                enter_for_good(name)?;
            }
            set_processors(&run.cpus)?;
            set_nice(run.nice)?;
            f()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of the BPF programs too.
pub(super) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub(super) fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Sleeps until `until_ns` of `CLOCK_MONOTONIC`, or until a signal comes.
pub(super) fn sleep_until(until_ns: u64) {
    let at = timespec(until_ns);
    // SAFETY: `at` lives across the call; no remainder is asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const at,
            std::ptr::null_mut(),
        )
    };
}

/// The index of a device in the namespace of the calling thread.
///
/// # Errors
/// There is no such device.
pub(super) fn device_index(name: &str) -> Result<u32, TrafficError> {
    let text = CString::new(name).unwrap_or_default();
    // SAFETY: `text` ends with a zero and lives across the call.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(TrafficError::last_os(format!("find the device {name}"))),
        index => Ok(index),
    }
}

fn set_processors(cpus: &[usize]) -> Result<(), TrafficError> {
    if cpus.is_empty() {
        return Ok(());
    }
    // SAFETY: all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for cpu in cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: `cpu` is below the size of the set.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: `set` is valid and its size is given; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } != 0 {
        return Err(TrafficError::last_os(format!("run on the processors {cpus:?}")));
    }
    Ok(())
}

fn set_nice(nice: Option<i32>) -> Result<(), TrafficError> {
    let Some(nice) = nice else { return Ok(()) };
    // SAFETY: plain numbers; 0 is the calling thread on Linux.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } != 0 {
        return Err(TrafficError::last_os(format!("set the nice value {nice}")));
    }
    Ok(())
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = timespec(0);
    // SAFETY: `time` is valid for writing. Both clocks exist on every Linux, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * NANOS + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn timespec(ns: u64) -> libc::timespec {
    let seconds = libc::time_t::try_from(ns / NANOS).unwrap_or(libc::time_t::MAX);
    let nanos = libc::c_long::try_from(ns % NANOS).unwrap_or(0);
    libc::timespec { tv_sec: seconds, tv_nsec: nanos }
}

const NANOS: u64 = 1_000_000_000;
