// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about a device that only slow questions tell: the kernel answers them under its one lock
//! over all devices, which somebody may hold for a tenth of a second while another device comes or
//! goes. Whoever moves frames reads the last answer; somebody else asks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::link;

/// The last answers about a device.
#[derive(Debug)]
pub struct DeviceAnswers {
    ifindex: u32,
    dropped_before: u64,
    dropped: AtomicU64,
    redirects: AtomicBool,
}

/// The devices of a node, to be asked about from time to time, on whatever thread.
#[derive(Debug, Default)]
pub struct Questions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    of: Vec<Weak<DeviceAnswers>>,
    asked: Option<Instant>,
}

impl DeviceAnswers {
    /// Asks about a device of this network namespace at once.
    pub(crate) fn of(ifindex: u32) -> Arc<Self> {
        let dropped_before = link::dropped_on_transmit(ifindex).unwrap_or(0);
        Arc::new(Self {
            ifindex,
            dropped_before,
            dropped: AtomicU64::new(dropped_before),
            redirects: AtomicBool::new(link::takes_redirects(ifindex)),
        })
    }

    /// Asks the kernel; whether the device takes redirected frames otherwise than before. What is
    /// not answered (the device was deleted) stays as it was.
    pub fn ask(&self) -> bool {
        if let Ok(dropped) = link::dropped_on_transmit(self.ifindex) {
            self.dropped.store(dropped, Ordering::Relaxed);
        }
        let takes = link::takes_redirects(self.ifindex);
        self.redirects.swap(takes, Ordering::Relaxed) != takes
    }

    /// Frames that the device dropped on transmission since it was opened, as it said last.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed).saturating_sub(self.dropped_before)
    }

    /// Returns whether it took redirected frames when it was asked last.
    #[must_use]
    pub fn takes_redirects(&self) -> bool {
        self.redirects.load(Ordering::Relaxed)
    }
}

impl Questions {
    /// Asks about this device, too, as long as somebody has its port.
    pub fn add(&self, facts: &Arc<DeviceAnswers>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.of.retain(|other| other.strong_count() > 0);
        state.of.push(Arc::downgrade(facts));
    }

    /// Asks about every device, unless that was done lately: within `EACH` for each device, and
    /// within `LEAST` in any case. Returns true if a device has begun or ceased to take
    /// redirected frames.
    pub fn ask(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = u32::try_from(state.of.len()).unwrap_or(u32::MAX);
        let age = EACH.saturating_mul(devices).max(LEAST);
        if state.asked.is_some_and(|asked| asked.elapsed() < age) {
            return false;
        }
        state.asked = Some(Instant::now());
        let of: Vec<Arc<DeviceAnswers>> = state.of.iter().filter_map(Weak::upgrade).collect();
        // Another thread may open a device while the kernel is asked.
        drop(state);
        of.iter().fold(false, |changed, facts| facts.ask() | changed)
    }
}

/// The kernel is asked about some 200 devices a second, which leaves its lock to others.
const EACH: Duration = Duration::from_millis(5);

/// The time after which drops are known.
const LEAST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_asked_about_while_somebody_has_its_port() {
        let questions = Questions::default();
        let facts = DeviceAnswers::of(link::ifindex("lo").unwrap());
        questions.add(&facts);
        assert!(!questions.ask(), "nothing is otherwise");
        assert_eq!(facts.dropped(), 0);
        assert!(!facts.takes_redirects(), "the loopback device takes none");
        drop(facts);
        questions.add(&DeviceAnswers::of(1));
        assert_eq!(questions.state.lock().unwrap().of.len(), 1, "the first is forgotten");
        let before = questions.state.lock().unwrap().asked;
        questions.ask();
        assert_eq!(questions.state.lock().unwrap().asked, before, "too soon");
    }
}
