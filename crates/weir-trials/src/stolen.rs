// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine's host takes from its processors while something is measured. A virtual
//! machine's processor stands still meanwhile, whatever runs on it, and with it every promise that
//! is about milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cpu_time::CpuTime;

/// A thread that looks every [`WINDOW`]. It ends with this value.
#[derive(Debug)]
pub(crate) struct StealWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

/// What was taken meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stolen {
    /// Milliseconds that one processor lost between two looks, for the one that lost most; without
    /// the zeros. At most [`WINDOWS_MAX`].
    pub(crate) windows_ms: Vec<f64>,
}

impl StealWatch {
    /// Watches from now on.
    pub(crate) fn begin() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        Self { stop, thread: thread::spawn(move || watch(&told)) }
    }

    /// What was seen; nothing where the kernel does not say.
    pub(crate) fn end(self) -> Stolen {
        self.stop.store(true, Ordering::Relaxed);
        Stolen { windows_ms: self.thread.join().unwrap_or_default() }
    }
}

impl Stolen {
    /// The most within one window, in milliseconds.
    pub(crate) fn most_ms(&self) -> f64 {
        self.windows_ms.iter().fold(0.0, |most, window| window.max(most))
    }
}

fn watch(stop: &AtomicBool) -> Vec<f64> {
    let mut windows = Vec::new();
    let Ok(mut before) = CpuTime::now() else { return windows };
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(WINDOW);
        let Ok(now) = CpuTime::now() else { break };
        note(&mut windows, 1e3 * now.most_stolen_since(&before));
        before = now;
    }
    windows
}

/// When the list is full, its last entry is the most of all that came since.
fn note(windows: &mut Vec<f64>, ms: f64) {
    if ms <= 0.0 {
        return;
    }
    if windows.len() < WINDOWS_MAX {
        windows.push(ms);
    } else if let Some(last) = windows.last_mut() {
        *last = last.max(ms);
    }
}

/// Between two looks.
const WINDOW: Duration = Duration::from_millis(100);

/// A quarter of an hour in which something is taken in each window.
const WINDOWS_MAX: usize = 9000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_never_forgets_the_most() {
        let mut windows = Vec::new();
        for number in 0..WINDOWS_MAX + 50 {
            note(&mut windows, if number == WINDOWS_MAX + 10 { 500.0 } else { 10.0 });
            note(&mut windows, 0.0);
        }
        assert_eq!(windows.len(), WINDOWS_MAX);
        assert!((Stolen { windows_ms: windows }.most_ms() - 500.0).abs() < 1e-9);
    }

    #[test]
    fn a_watch_ends_when_it_is_told_to() {
        let seen = StealWatch::begin().end();
        assert!(seen.windows_ms.len() <= 1, "one look at most");
        assert!(Stolen::default().most_ms().abs() < 1e-9);
    }
}
