// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds the time that the kernel takes to wake a processor of this host, while a value lives.
//!
//! A processor without work goes to an idle state, and a deep one takes longer to leave than a
//! thread with a deadline can wait: 133 µs on servers, and on a virtual machine as long as its host
//! takes to run it again. Linux chooses no state that takes longer than the least latency that any
//! process asked for; it asks by a number in a file that it keeps open, so that nothing is left
//! when it ends, however it ends.
//!
//! Source: Linux, Documentation/power/pm_qos_interface.rst (`/dev/cpu_dma_latency`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use weir_units::Nanos;

/// The bound that this process asks for, if it does.
#[derive(Debug, Default)]
pub struct WakeLatency {
    held: Option<(Nanos, File)>,
}

impl WakeLatency {
    /// Asks for a bound; `None`: for none. The kernel counts whole microseconds: a part of one is
    /// left out.
    ///
    /// # Errors
    /// The kernel has no such file, or the right to it is missing. No bound is in force then, and
    /// another call tries again.
    pub fn ask(&mut self, most: Option<Nanos>) -> io::Result<()> {
        self.ask_of(Path::new(FILE), most)
    }

    fn ask_of(&mut self, file: &Path, most: Option<Nanos>) -> io::Result<()> {
        if self.held.as_ref().map(|(held, _)| *held) == most {
            return Ok(());
        }
        self.held = None;
        if let Some(most) = most {
            let micros = i32::try_from(most.as_nanos() / 1_000).unwrap_or(i32::MAX);
            let mut file = OpenOptions::new().write(true).open(file)?;
            file.write_all(&micros.to_ne_bytes())?;
            self.held = Some((most, file));
        }
        Ok(())
    }
}

/// Sets the slack of the calling thread's timers to 1 ns, the least: the kernel may put timers
/// together that are due within it, 50 µs unless set. A kernel that refuses costs lateness only.
pub fn take_no_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes a number, and touches no memory of ours.
    let _refused = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}

/// Returns the lateness that 98 of 100 sleeps of half a millisecond stay within, in whole
/// microseconds. Takes 60 ms or more.
#[must_use]
pub fn wake_up_time() -> Nanos {
    let watch = || {
        take_no_timer_slack();
        let mut late: Vec<Duration> = (0..SLEEPS)
            .map(|_| {
                let begun = std::time::Instant::now();
                std::thread::sleep(SLEEP);
                begun.elapsed().saturating_sub(SLEEP)
            })
            .collect();
        late.sort_unstable();
        late.get(SLEEPS * 98 / 100).copied().unwrap_or_default()
    };
    let late = std::thread::scope(|scope| scope.spawn(watch).join().unwrap_or_default());
    Nanos::from_micros(u64::try_from(late.as_micros()).unwrap_or(u64::MAX))
}

const FILE: &str = "/dev/cpu_dma_latency";
const SLEEPS: usize = 100;
const SLEEP: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is asked for is what the kernel reads back, and goes with the value.
    #[test]
    fn a_bound_is_the_kernels_until_the_value_is_dropped() {
        let now = || {
            let mut number = [0; 4];
            let mut file = File::open(FILE).ok()?;
            io::Read::read_exact(&mut file, &mut number).ok()?;
            Some(i32::from_ne_bytes(number))
        };
        let Some(before) = now() else {
            println!("SKIPPED a_bound_is_the_kernels_until_the_value_is_dropped: no {FILE}");
            return;
        };
        let mut latency = WakeLatency::default();
        if let Err(error) = latency.ask(Some(Nanos::from_micros(7))) {
            println!("SKIPPED a_bound_is_the_kernels_until_the_value_is_dropped: {error}");
            return;
        }
        assert!(now().is_some_and(|now| now <= 7));
        latency.ask(Some(Nanos::ZERO)).unwrap();
        assert_eq!(now(), Some(0));
        latency.ask(None).unwrap();
        assert_eq!(now(), Some(before));
    }

    /// Goal: a bound that could not be asked for is asked for by the next call, though it is the
    /// same. Method: a file of our own, which is missing at first.
    #[test]
    fn a_bound_that_failed_is_asked_for_again() {
        let file = std::env::temp_dir().join(format!("weir-wake-latency-{}", std::process::id()));
        let mut latency = WakeLatency::default();
        let most = Some(Nanos::from_micros(7));
        for _ in 0..2 {
            assert_eq!(latency.ask_of(&file, most).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        std::fs::write(&file, b"").unwrap();
        latency.ask_of(&file, most).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), 7_i32.to_ne_bytes());
        std::fs::remove_file(&file).unwrap();
        latency.ask_of(&file, most).unwrap();
        assert!(latency.held.is_some(), "what is held is not asked for again");
    }

    #[test]
    fn waking_up_takes_some_time() {
        assert!(wake_up_time() > Nanos::ZERO);
    }
}
