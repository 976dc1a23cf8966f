// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steal: processor time that the machine's host takes during a measurement. A virtual machine's
//! processor stands still meanwhile, whatever runs on it, and every bound of a few milliseconds is
//! exceeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir_platform::processor_time::CpuTime;

/// A thread that reads the stolen time every `LOOK`. It ends when this value is dropped.
#[derive(Debug)]
pub struct StealWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<StealWindow>>>,
}

/// The time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StealWindow {
    /// Milliseconds stolen from the processor that lost most, in ticks of 10 ms.
    pub stolen_ms: f64,
    /// Length in milliseconds: `LOOK` or more, since the watching thread is stolen from, too.
    pub span_ms: f64,
}

impl StealWindow {
    /// Returns true if at least a quarter of the time was stolen, in one piece or nearly so.
    fn is_dense(&self) -> bool {
        self.stolen_ms >= self.span_ms / 4.0
    }
}

/// Returns the window in which most was stolen, of those that are dense.
pub fn worst_dense(windows: &[StealWindow]) -> StealWindow {
    worst(windows.iter().filter(|window| window.is_dense()))
}

fn worst<'w>(windows: impl IntoIterator<Item = &'w StealWindow>) -> StealWindow {
    let most = windows.into_iter().max_by(|a, b| a.stolen_ms.total_cmp(&b.stolen_ms));
    most.copied().unwrap_or_default()
}

impl StealWatch {
    /// Watches from now on.
    pub fn begin() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        Self { stop, thread: Some(thread::spawn(move || watch(&told))) }
    }

    /// Ends the watch. Returns the windows in which time was stolen, at most `WINDOWS_MAX`; none if
    /// the kernel does not count steal.
    pub fn end(mut self) -> Vec<StealWindow> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for StealWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn watch(stop: &AtomicBool) -> Vec<StealWindow> {
    let mut windows = Vec::new();
    let Ok(mut before) = CpuTime::now() else { return windows };
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        let Ok(now) = CpuTime::now() else { break };
        let span_ms = 1e3 * now.seconds_since(&before);
        note(
            &mut windows,
            StealWindow { stolen_ms: 1e3 * now.most_stolen_since(&before), span_ms },
        );
        before = now;
    }
    windows
}

/// Adds a window in which time was stolen. In a full list, the last entry becomes the worst of all
/// later ones.
fn note(windows: &mut Vec<StealWindow>, window: StealWindow) {
    if window.stolen_ms <= 0.0 {
        return;
    }
    if windows.len() < WINDOWS_MAX {
        windows.push(window);
    } else if let Some(last) = windows.last_mut() {
        *last = worst(&[*last, window]);
    }
}

/// The time between two readings.
const LOOK: Duration = Duration::from_millis(100);

/// Most windows in the list: enough for a quarter of an hour with steal in each window.
const WINDOWS_MAX: usize = 9000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_never_forgets_the_most() {
        let mut windows = Vec::new();
        for number in 0..WINDOWS_MAX + 50 {
            let stolen_ms = if number == WINDOWS_MAX + 10 { 500.0 } else { 10.0 };
            note(&mut windows, StealWindow { stolen_ms, span_ms: 600.0 });
            note(&mut windows, StealWindow { stolen_ms: 0.0, span_ms: 100.0 });
        }
        assert_eq!(windows.len(), WINDOWS_MAX);
        assert_eq!(worst(&windows), StealWindow { stolen_ms: 500.0, span_ms: 600.0 });
    }

    /// Goal: a long look in which much was taken bit by bit does not hide a short one.
    #[test]
    fn what_was_taken_in_one_piece_is_found_beside_more_that_was_not() {
        let [sparse, dense] = [[60.0, 1600.0], [40.0, 100.0]]
            .map(|[stolen_ms, span_ms]| StealWindow { stolen_ms, span_ms });
        assert_eq!(worst_dense(&[sparse, dense]), dense);
        assert_eq!(worst_dense(&[sparse]), StealWindow::default());
    }

    #[test]
    fn a_watch_ends_when_it_is_told_to() {
        let (begun, seen) = (std::time::Instant::now(), StealWatch::begin().end());
        let looks = begun.elapsed().as_millis() / LOOK.as_millis();
        assert!(seen.len() as u128 <= looks + 1, "{seen:?}");
        assert_eq!(worst_dense(&[]), StealWindow::default());
    }
}
