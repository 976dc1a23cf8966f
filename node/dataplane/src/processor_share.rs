// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices that others want the worker's processor, and has the worker leave it to them.
//!
//! **Problem.** A worker that is bound to a processor stays awake between packets, so that it is on
//! time for the next one. If threads of guests with the same priority share the processor, this
//! delays packets: they wait for those threads, whose time the idle worker burns.
//!
//! **Idea.** Linux counts for how long a thread was ready to run and did not (the second number of
//! `/proc/thread-self/schedstat`, `Documentation/scheduler/sched-stats.rst`). On a processor of its
//! own the worker waits for hardly anything: kernel threads that run now and then take less than
//! one part in two hundred. Another thread of nice 0 that always wants to run takes at least one in
//! ninety, even from a worker of nice -20 (`sched_prio_to_weight` of the kernel). So the waiting
//! beyond one part in two hundred is summed up, and at [`ENOUGH`] the processor counts as shared:
//! at once beside threads of the same weight, within half a second beside one of nice 0. Then the
//! worker does not linger for forty times as long as it took to find that out, and tries again; so
//! lingering costs the others about 2.5 %. Beside a worker of nice -20, threads of a nice value
//! above 0 may not be noticed: the worker hardly waits for them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use weir_ports::{WaitMode, Waiter};
use weir_units::{Instant, Nanos};

/// The watch over the processor of the calling thread.
#[derive(Debug)]
pub(crate) struct ProcessorShare {
    /// The thread's counters; `None` if the kernel has none, or there is nothing to decide.
    counters: Option<File>,
    mode: WaitMode,
    verdict: ShareVerdict,
}

/// The verdict on whether the processor is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ShareVerdict {
    /// The start of the present stretch, and the time that the thread had waited by then.
    begun: Instant,
    waited: Nanos,
    /// The waiting beyond that on a processor of its own, and when this sum began.
    excess: Nanos,
    excess_since: Instant,
    shared_until: Instant,
}

impl ProcessorShare {
    /// Begins to watch the processor of the calling thread, which waits in this mode.
    pub(crate) fn new(mode: WaitMode) -> Self {
        let lingers = matches!(mode, WaitMode::Sleep { linger, .. } if linger > Nanos::ZERO);
        let counters = lingers.then(|| File::open("/proc/thread-self/schedstat").ok()).flatten();
        Self { counters, mode, verdict: ShareVerdict::default() }
    }

    /// Sets whether the thread lingers after packets. It is called in each turn, and reads the
    /// counters once in 50 ms.
    pub(crate) fn adapt(&mut self, now: Instant, waiter: &mut Waiter) {
        let Some(counters) = &self.counters else { return };
        if now.saturating_since(self.verdict.begun) < STRETCH {
            return;
        }
        let Some(waited) = waited(counters) else { return };
        let mode = match (self.verdict.note(now, waited), self.mode) {
            (true, WaitMode::Sleep { margin, .. }) => {
                WaitMode::Sleep { margin, linger: Nanos::ZERO }
            }
            (_, mode) => mode,
        };
        waiter.set_idle(mode);
    }
}

impl ShareVerdict {
    /// Ends a stretch; `waited` is the time that the thread has waited in its life. Returns true if
    /// others want the processor.
    fn note(&mut self, now: Instant, waited: Nanos) -> bool {
        let lasted = now.saturating_since(self.begun);
        // The first stretch begins at the origin of the clock, and is no evidence.
        if self.begun != Instant::ZERO {
            let more = waited.saturating_sub(self.waited);
            if self.excess == Nanos::ZERO {
                self.excess_since = self.begun;
            }
            let usual = Nanos::new(lasted.as_nanos() / USUAL_PART);
            self.excess = self.excess.saturating_add(more).saturating_sub(usual);
        }
        if self.excess >= ENOUGH {
            let took = now.saturating_since(self.excess_since).as_nanos();
            let hold = Nanos::new(took.saturating_mul(HOLD_TIMES)).min(HOLD_MAX);
            self.shared_until = self.shared_until.max(now + hold);
            self.excess = Nanos::ZERO;
        }
        (self.begun, self.waited) = (now, waited);
        now < self.shared_until
    }
}

/// Reads the time for which the thread was ready and did not run.
fn waited(counters: &File) -> Option<Nanos> {
    let mut text = [0; 64];
    let length = counters.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Nanos::new)
}

/// The time over which waiting is judged: several slices of other threads.
const STRETCH: Nanos = Nanos::from_millis(50);
/// A thread on a processor of its own waits for less than this part of its time.
const USUAL_PART: u64 = 200;
/// The waiting beyond it that shows a shared processor: about a slice of another thread.
const ENOUGH: Nanos = Nanos::from_millis(3);
/// A worker that shares its processor does not linger for this many times the time that it took to
/// find out.
const HOLD_TIMES: u64 = 40;
/// The longest time for which it does not linger before it tries again.
const HOLD_MAX: Nanos = Nanos::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Notes stretches of 50 ms until `until`, of which `waited` each was spent waiting; returns
    /// the time of the first verdict that the processor is shared.
    fn first_shared(
        verdict: &mut ShareVerdict,
        from: u64,
        until: u64,
        waited: &mut Nanos,
        each: Nanos,
    ) -> Option<u64> {
        (from..until).step_by(50).find(|now| {
            *waited = waited.saturating_add(each);
            verdict.note(at(*now), *waited)
        })
    }

    #[test]
    fn threads_of_the_same_weight_are_noticed_at_once_and_for_two_seconds() {
        let (mut verdict, mut waited) = (ShareVerdict::default(), Nanos::from_secs(9));
        assert!(!verdict.note(at(1_000), waited), "what was before says nothing");
        waited = waited.saturating_add(Nanos::from_millis(25));
        assert!(verdict.note(at(1_050), waited));
        assert!(verdict.note(at(3_049), waited), "nobody wants it any more, and it holds on");
        assert!(!verdict.note(at(3_050), waited));
    }

    /// Goal: a thread of the least weight beside a worker of the greatest gets 1.1 % of the time,
    /// and is noticed within half a second.
    #[test]
    fn threads_of_the_least_weight_are_noticed_within_half_a_second() {
        let (mut verdict, mut waited) = (ShareVerdict::default(), Nanos::ZERO);
        assert!(!verdict.note(at(1_000), waited));
        let each = Nanos::from_micros(50 * 1_024 * 1_000 / (88_761 + 1_024));
        let noticed = first_shared(&mut verdict, 1_050, 9_000, &mut waited, each);
        assert!(noticed.is_some_and(|at| at <= 1_500), "{noticed:?}");
    }

    #[test]
    fn kernel_threads_that_come_by_are_not_noticed() {
        let (mut verdict, mut waited) = (ShareVerdict::default(), Nanos::ZERO);
        assert!(!verdict.note(at(1_000), waited));
        let each = Nanos::from_micros(240);
        assert_eq!(first_shared(&mut verdict, 1_050, 60_000, &mut waited, each), None);
        waited = waited.saturating_add(Nanos::from_millis(3));
        assert!(!verdict.note(at(60_000), waited), "a burst of one");
        assert_eq!(first_shared(&mut verdict, 60_050, 90_000, &mut waited, Nanos::ZERO), None);
    }

    /// Goal: what the kernel counts for this thread is read, and read anew.
    #[test]
    fn the_kernels_counters_are_read() {
        let linger = WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::from_millis(2) };
        let Some(counters) = ProcessorShare::new(linger).counters else {
            println!("SKIPPED the_kernels_counters_are_read: no schedstat");
            return;
        };
        let first = waited(&counters).unwrap();
        std::thread::yield_now();
        assert!(waited(&counters).unwrap() >= first);
        assert!(ProcessorShare::new(WaitMode::Spin).counters.is_none(), "it never sleeps");
    }
}
