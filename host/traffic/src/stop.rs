// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of a run, and its end: by its length, by a flag, or by SIGINT and SIGTERM, which set
//! the flag.
//!
//! A sender or receiver is a [`TrafficEndpoint`]: it does a step, and says when it wants the next
//! one. [`Course`] calls it, reports progress, and ends the run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_result::Cells;

use super::error::TrafficError;
use super::result::{Sent, Span};
use super::spec::RunSpec;
use super::thread::{monotonic_ns, sleep_until, wall_ns};

/// The argument of the progress function. The first call, all zeros, says that the run is ready to
/// send or receive; the others follow every interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start.
    pub elapsed_ns: u64,
    /// Packets sent or received so far.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The progress function.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Makes SIGINT and SIGTERM set a flag, and returns the flag. A second signal, one second or more
/// after the first, ends the process at once. An earlier one is ignored: `timeout` signals a
/// process and then its group, which is one request.
pub fn stop_on_signals() -> Result<&'static AtomicBool, TrafficError> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        handle(signal, stop_handler)?;
    }
    Ok(&STOP)
}

/// Returns whether a signal has come since [`stop_on_signals`].
pub fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Makes `signal` call `handler`. A system call that it interrupts is not restarted.
pub(super) fn handle(signal: i32, handler: extern "C" fn(i32)) -> Result<(), TrafficError> {
    // SAFETY: all zeros is a valid action; the fields that matter are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // SAFETY: `action` is valid; the handlers of this crate call nothing that a handler may not.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(TrafficError::system(format!("handle signal {signal}"), error));
    }
    Ok(())
}

/// A sender or receiver, driven by [`Course::run`].
pub(super) trait TrafficEndpoint {
    /// Sends or receives what it can now; blocks for 100 ms at most.
    fn step(&mut self, now_ns: u64) -> Result<NextStep, TrafficError>;

    /// Packets and bytes so far.
    fn counts(&self) -> (u64, u64);
}

/// The request of an endpoint after a step.
pub(super) enum NextStep {
    /// Do the next step at once.
    Again,
    /// Do the next step at this instant in ns, or earlier.
    NapUntil(u64),
    /// End the run: all is sent.
    Done,
}

/// The course of a run: when it starts, reports progress and ends.
pub(super) struct Course<'a> {
    stop: &'a AtomicBool,
    progress: OnProgress<'a>,
    start_ns: u64,
    start_unix_ns: u64,
    end_ns: u64,
    interval_ns: u64,
    report_ns: u64,
    cell_ns: u64,
}

impl<'a> Course<'a> {
    /// Makes a course that begins at `start_ns` or now, whichever is later. Reports the run as
    /// ready.
    pub(super) fn begin(
        run: &RunSpec,
        start_ns: Option<u64>,
        stop: &'a AtomicBool,
        progress: OnProgress<'a>,
    ) -> Self {
        let now = monotonic_ns();
        let start_ns = start_ns.map_or(now, |start| start.max(now));
        let length = run.duration_ms.map(|ms| ms.saturating_mul(1_000_000));
        let end_ns = length.map_or(u64::MAX, |length| start_ns.saturating_add(length));
        let interval_ns = run.interval_ms.saturating_mul(1_000_000).max(1);
        progress(Progress::default());
        Self {
            stop,
            progress,
            start_ns,
            start_unix_ns: wall_ns().saturating_add(start_ns.saturating_sub(now)),
            end_ns,
            interval_ns,
            report_ns: start_ns.saturating_add(interval_ns),
            cell_ns: run.cell_ns(),
        }
    }

    pub(super) const fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Returns the end of the run; `u64::MAX` if it has none of its own.
    pub(super) const fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns an empty series of the run.
    pub(super) fn cells(&self) -> Cells {
        Cells::new(self.start_ns, self.cell_ns)
    }

    /// Returns a stream of which nothing is sent yet.
    pub(super) fn stream(&self, stream: u16) -> Sent {
        Sent { stream, series: self.cells(), ..Sent::default() }
    }

    /// Drives `endpoint` until the run is over, and returns the time from its start to its end.
    pub(super) fn run(
        &mut self,
        endpoint: &mut impl TrafficEndpoint,
    ) -> Result<Span, TrafficError> {
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= self.report_ns {
                self.report(now_ns, endpoint.counts());
            }
            if now_ns >= self.end_ns || self.stop.load(Ordering::Relaxed) {
                break;
            }
            match endpoint.step(now_ns)? {
                NextStep::Again => {}
                NextStep::NapUntil(due_ns) => self.nap_until(due_ns),
                NextStep::Done => break,
            }
        }
        let end_ns = monotonic_ns().min(self.end_ns);
        Ok(Span { start_ns: self.start_ns, end_ns, start_unix_ns: self.start_unix_ns })
    }

    fn report(&mut self, now_ns: u64, (packets, bytes): (u64, u64)) {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        let intervals = elapsed_ns / self.interval_ns + 1;
        self.report_ns = self.start_ns.saturating_add(intervals.saturating_mul(self.interval_ns));
        (self.progress)(Progress { elapsed_ns, packets, bytes });
    }

    /// Sleeps until `due_ns`, the next report or the end, but at most for [`NAP_NS`].
    fn nap_until(&self, due_ns: u64) {
        let latest = monotonic_ns().saturating_add(NAP_NS);
        sleep_until(latest.min(due_ns).min(self.end_ns).min(self.report_ns));
    }
}

/// Handles SIGINT and SIGTERM. Async-signal-safe: it uses atomics, the clock, `signal` and `raise`.
extern "C" fn stop_handler(signal: i32) {
    let now_ns = monotonic_ns();
    if !STOP.swap(true, Ordering::Relaxed) {
        STOPPED_NS.store(now_ns, Ordering::Relaxed);
    } else if now_ns.saturating_sub(STOPPED_NS.load(Ordering::Relaxed)) >= ANOTHER_NS {
        // SAFETY: no pointers, and both may be called by a handler. The signal is blocked until the
        // handler returns, and then ends the process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

static STOP: AtomicBool = AtomicBool::new(false);
/// The instant of the first signal.
static STOPPED_NS: AtomicU64 = AtomicU64::new(u64::MAX);
/// A signal that comes earlier than this after the first is part of the same request.
const ANOTHER_NS: u64 = 1_000_000_000;
/// The longest time between two looks at the flag.
pub(super) const NAP_NS: u64 = 10_000_000;
