// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of a router's threads, in nanoseconds.
//!
//! A process, and each of the kernel's own threads, has a clock that counts what it used, those of
//! its threads included that ended (clock_getcpuclockid(3)): one system call of 0.3 µs. A single
//! thread of another process has none for us; `/proc/TID/schedstat` counts it (Linux,
//! Documentation/scheduler/sched-stats.rst).

use std::fs;

use weir_units::Nanos;

use crate::cap::CapError;
use crate::process::Identity;

/// The source of the CPU time of one thread or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSource {
    /// A process as a whole, or a thread of the kernel's.
    Process(Identity),
    /// One thread of a process, as a guest's virtual processor.
    Thread(Identity),
}

/// The CPU time of all threads of one router.
#[derive(Clone, Debug, Default)]
pub struct CpuMeter {
    sources: Vec<(CpuSource, u64)>,
    /// Readings so far.
    readings: u32,
}

impl CpuMeter {
    /// Reads these sources.
    #[must_use]
    pub fn new(sources: impl IntoIterator<Item = CpuSource>) -> Self {
        Self { sources: sources.into_iter().map(|source| (source, 0)).collect(), readings: 0 }
    }

    /// Returns the CPU time that all of them used since each began.
    ///
    /// Returns whether a process is still the one that it was is looked at where its time went
    /// back, and in one of 32 readings, each process in another: looking costs fifty times the
    /// reading.
    ///
    /// # Errors
    /// One of them ended.
    pub fn read(&mut self) -> Result<Nanos, CapError> {
        self.readings = self.readings.wrapping_add(1);
        let mut total = 0_u64;
        for (source, last) in &mut self.sources {
            let used = source.used().ok_or_else(|| source.gone())?;
            let turn = self.readings.wrapping_add(source.identity().pid).is_multiple_of(LOOKED);
            if (used < *last || turn) && !source.identity().is_alive() {
                return Err(source.gone());
            }
            *last = used;
            total = total.saturating_add(used);
        }
        Ok(Nanos::new(total))
    }

    /// Returns the CPU time of each at the last reading, in the order in which they were given.
    pub fn each(&self) -> impl Iterator<Item = Nanos> + '_ {
        self.sources.iter().map(|(_, used)| Nanos::new(*used))
    }
}

impl CpuSource {
    /// The process or thread.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        match self {
            Self::Process(identity) | Self::Thread(identity) => *identity,
        }
    }

    fn used(&self) -> Option<u64> {
        match self {
            Self::Process(process) => process_clock(process.pid),
            Self::Thread(thread) => {
                let text = fs::read_to_string(format!("/proc/{}/schedstat", thread.pid)).ok()?;
                text.split_whitespace().next()?.parse().ok()
            }
        }
    }

    fn gone(&self) -> CapError {
        let word = if matches!(self, Self::Process(_)) { "process" } else { "thread" };
        CapError::Gone { what: format!("{word} {}", self.identity().pid) }
    }
}

fn process_clock(pid: u32) -> Option<u64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let clock = (!pid << CLOCK_PID_SHIFT) | CLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, which is ours; a clock of nobody gives an error.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// An id is used again after the whole space of them was gone through: seconds, at the least.
const LOOKED: u32 = 32;

/// The shift by which clock_getcpuclockid makes a clock of a process: its id inverted above three
/// bits, of which the lower two say that the scheduler's nanoseconds are meant
/// (linux/posix-timers.h).
const CLOCK_PID_SHIFT: u32 = 3;
const CLOCK_SCHED: libc::clockid_t = 2;

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    /// Both sources say the same of this process's own thread, and more after work.
    #[test]
    fn the_time_of_a_process_grows_with_its_work() {
        let own = Identity::own().unwrap();
        let mut meter = CpuMeter::new([CpuSource::Process(own)]);
        let (before, started) = (meter.read().unwrap(), Instant::now());
        let mut sum = 0_u64;
        let until = before.as_nanos() + 20_000_000;
        while meter.read().unwrap().as_nanos() < until && started.elapsed().as_secs() < 20 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(meter.read().unwrap().as_nanos() >= until);
        let mut thread = CpuMeter::new([CpuSource::Thread(own)]);
        assert!(thread.read().unwrap() <= meter.read().unwrap());
        assert_eq!(meter.each().count(), 1);
    }

    #[test]
    fn a_process_that_ended_is_gone() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        let mut meters = [CpuSource::Process(identity), CpuSource::Thread(identity)]
            .map(|source| CpuMeter::new([source]));
        for meter in &mut meters {
            meter.read().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for meter in &mut meters {
            let error = meter.read().unwrap_err();
            assert!(matches!(error, CapError::Gone { .. }), "{error}");
        }
        let stranger = Identity { start_ticks: 1, ..Identity::own().unwrap() };
        let mut meter = CpuMeter::new([CpuSource::Process(stranger)]);
        assert!((0..LOOKED).any(|_| meter.read().is_err()), "another process of that id");
    }
}
