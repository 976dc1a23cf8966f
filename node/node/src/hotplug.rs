// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches devices come and go, on a thread of its own, and calls the node to follow.
//!
//! The kernel reports each step in which a device is made, so the thread waits a little before it
//! calls. A call that fails is repeated with exponential backoff.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_platform::cpu::CpuRequest;
use weir_ports::LinkEvents;

use weir_dataplane::reservation;

/// The thread that watches. It ends with [`Self::end`].
#[derive(Debug)]
pub(crate) struct DeviceWatch {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl DeviceWatch {
    /// Starts the thread. It calls `follow` at once, after each of these `events` of a device, and
    /// whenever `look`, which it calls every [`END_POLL`], returns true. While `follow` returns
    /// true (it failed), it is called again after [`RETRY`], twice that and so on, up to
    /// [`RETRY_MAX`]. `request` is the reservation of the thread: on the worker's processor it
    /// would wait up to a second for its turn.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn start(
        events: Option<LinkEvents>,
        request: Option<CpuRequest>,
        mut look: impl FnMut() -> bool + Send + 'static,
        mut follow: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let watch = move || {
            // Without the reservation the thread works all the same.
            let _reserved = reservation::take(request);
            let (mut due, mut pause) = (Some(Instant::now()), RETRY);
            while !end.load(Ordering::Relaxed) {
                let happened = match &events {
                    // If the socket fails, each round counts as an event.
                    Some(events) => events.wait(END_POLL).unwrap_or_else(|_| {
                        std::thread::sleep(END_POLL);
                        true
                    }),
                    None => {
                        std::thread::sleep(END_POLL);
                        false
                    }
                };
                if happened {
                    // A device is made in several steps, each of which is an event.
                    std::thread::sleep(SETTLE);
                }
                let looked = look();
                if happened {
                    pause = RETRY;
                }
                if happened || looked || due.is_some_and(|due| Instant::now() >= due) {
                    let failed = follow();
                    due = failed.then(|| Instant::now() + pause);
                    pause = if failed { (2 * pause).min(RETRY_MAX) } else { RETRY };
                }
            }
        };
        let thread = std::thread::Builder::new().name("weir-devices".into()).spawn(watch)?;
        Ok(Self { ended, thread })
    }

    /// Ends the thread, and waits until it has.
    pub(crate) fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        // A thread that panicked has ended, too.
        let _ended = self.thread.join();
    }
}

/// The time before the first retry. Most failures concern a device that is still being made, which
/// takes some milliseconds; its guest is promised service within a second.
const RETRY: Duration = Duration::from_millis(100);

/// The longest time between two retries, so that a lasting failure is no load.
const RETRY_MAX: Duration = Duration::from_secs(32);

/// The time from the first event of a device to the call.
const SETTLE: Duration = Duration::from_millis(20);

/// The time within which the thread notices that it is to end.
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
        let events = LinkEvents::open().unwrap();
        let watch = DeviceWatch::start(Some(events), None, || false, follow).unwrap();
        let first = tells.recv_timeout(Duration::from_secs(5)).unwrap();
        let second = tells.recv_timeout(Duration::from_secs(5)).unwrap();
        // A device of the machine may change meanwhile, which is another reason for a call.
        assert!(second > first);
        watch.end();
    }

    /// Goal: a node without device events still looks after the devices that it has.
    #[test]
    fn it_looks_and_retries_without_events() {
        let (told, tells) = mpsc::channel();
        let (mut looks, mut calls) = (0, 0);
        let look = move || {
            looks += 1;
            looks == 3
        };
        let follow = move || {
            calls += 1;
            let _gone = told.send(calls);
            calls == 2
        };
        let watch = DeviceWatch::start(None, None, look, follow).unwrap();
        let called: Vec<u32> = tells.iter().take(3).collect();
        assert_eq!(called, [1, 2, 3], "at once, after a look, and since that failed");
        watch.end();
        assert!(tells.recv().is_err(), "nothing else happened");
    }
}
