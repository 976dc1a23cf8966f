// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices that others want the worker's processor, and has the worker leave it to them.
//!
//! **Problem.** A worker that is bound to a processor stays awake between packets, so that it is on
//! time for the next one. Where guests' threads of the same priority share the processor, the
//! packets wait for those threads: the worker burns the time that would move them on.
//!
//! **Idea.** Linux counts for how long a thread was ready to run and did not (the second number of
//! `/proc/thread-self/schedstat`, `Documentation/scheduler/sched-stats.rst`). On a processor of its
//! own the worker waits for hardly anything. If it waited for a tenth of a stretch of 50 ms, the
//! processor is shared: the worker does not linger for two seconds, and then tries again, so that
//! lingering costs the others 2.5 % at most. Threads of lower priority are not noticed, since the
//! worker does not wait for them.

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
    shared_until: Instant,
}

impl ProcessorShare {
    /// Begins to watch the processor of the calling thread, which waits in this mode.
    pub(crate) fn new(mode: WaitMode) -> Self {
        let lingers = matches!(mode, WaitMode::Sleep { linger, .. } if linger > Nanos::ZERO);
        let counters = lingers.then(|| File::open("/proc/thread-self/schedstat").ok()).flatten();
        Self { counters, mode, verdict: ShareVerdict::default() }
    }

    /// Has the thread linger after packets, or not. To be called in each turn; reads the counters
    /// once in 50 ms.
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
    /// Ends a stretch; `waited` is the time that the thread has waited in its life. Returns whether
    /// others want the processor.
    fn note(&mut self, now: Instant, waited: Nanos) -> bool {
        let lasted = now.saturating_since(self.begun).as_nanos();
        let share = waited.saturating_sub(self.waited).as_nanos();
        // The first stretch begins at the origin of the clock, and is no evidence.
        if self.begun != Instant::ZERO && share >= lasted / SHARED_PART {
            self.shared_until = now + HOLD;
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
/// A thread that waited for this part of a stretch shares its processor. Kernel threads that come
/// by take less.
const SHARED_PART: u64 = 10;
/// The time after which a thread that shared its processor tries whether it still does.
const HOLD: Nanos = Nanos::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_tenth_of_a_stretch_is_shared_for_two_seconds() {
        let mut verdict = ShareVerdict::default();
        assert!(!verdict.note(at(1_000), Nanos::from_secs(9)), "what was before says nothing");
        let below = Nanos::from_secs(9).saturating_add(Nanos::from_micros(4_999));
        assert!(!verdict.note(at(1_050), below));
        let shared = below.saturating_add(Nanos::from_millis(5));
        assert!(verdict.note(at(1_100), shared));
        assert!(verdict.note(at(3_099), shared), "nobody wants it any more, and it holds on");
        assert!(!verdict.note(at(3_100), shared));
        assert!(verdict.note(at(3_150), shared.saturating_add(Nanos::from_millis(40))));
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
