// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches devices come and go on a thread of its own, and has the node follow.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_platform::cpu::CpuRequest;
use weir_ports::LinkEvents;

use weir_dataplane::reservation;

/// The thread. It ends with [`Self::end`].
#[derive(Debug)]
pub(crate) struct Watch {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Calls `follow` now, whenever something happened to a device of this network namespace, and
    /// when `look`, which is called [`END_POLL`] after each other, says so; again after [`RETRY`],
    /// twice that and so on up to [`RETRY_MAX`], while that is true which it says. `wish`: of the
    /// thread; on the worker's processor it would wait for a second to get a hundredth of it.
    ///
    /// # Errors
    /// The kernel tells no events, or there is no thread to be had.
    pub(crate) fn start(
        wish: Option<CpuRequest>,
        mut look: impl FnMut() -> bool + Send + 'static,
        mut follow: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let events = LinkEvents::open()?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let watch = move || {
            // Without it the thread is as any other.
            let _reserved = reservation::take(wish);
            let (mut due, mut pause) = (Some(Instant::now()), RETRY);
            while !end.load(Ordering::Relaxed) {
                // Where the socket fails, a look each time round does.
                let happened = events.wait(END_POLL).unwrap_or_else(|_| {
                    std::thread::sleep(END_POLL);
                    true
                });
                if happened {
                    // A device is made in several steps, each of which is told.
                    std::thread::sleep(SETTLE);
                }
                let looked = look();
                if happened {
                    pause = RETRY;
                }
                if happened || looked || due.is_some_and(|due| Instant::now() >= due) {
                    due = follow().then(|| Instant::now() + pause);
                    pause = (2 * pause).min(RETRY_MAX);
                }
            }
        };
        let thread = std::thread::Builder::new().name("weir-devices".into()).spawn(watch)?;
        Ok(Self { ended, thread })
    }

    /// Ends the thread, and waits until it has.
    pub(crate) fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        // If it panicked, it has ended.
        let _ended = self.thread.join();
    }
}

/// What failed is tried again after this time: most often a device that is still being made, which
/// takes some milliseconds, and a second is what its guest is promised.
const RETRY: Duration = Duration::from_millis(100);

/// What fails for long is not tried so often that it is a load.
const RETRY_MAX: Duration = Duration::from_secs(32);

/// Between the first word of a device and the look at it.
const SETTLE: Duration = Duration::from_millis(20);

/// How soon the end is seen.
const END_POLL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_follows_at_once_and_again_while_it_fails() {
        let (told, tells) = mpsc::channel();
        let mut calls = 0;
        let follow = move || {
            calls += 1;
            let _gone = told.send(Instant::now());
            calls == 1
        };
        let watch = Watch::start(None, || false, follow);
        let watch = watch.unwrap();
        let first = tells.recv_timeout(Duration::from_secs(5)).unwrap();
        let second = tells.recv_timeout(Duration::from_secs(5)).unwrap();
        // A device of the machine may be changed meanwhile, which is a reason of its own.
        assert!(second > first);
        watch.end();
    }
}
