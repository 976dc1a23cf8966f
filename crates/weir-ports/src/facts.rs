// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What only slow questions tell of a device: the kernel answers them under its one lock over all
//! devices, which somebody may hold for a tenth of a second while another device comes or goes.
//! Whoever moves frames reads the last answer; somebody else asks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::link;

/// What was answered of a device last.
#[derive(Debug)]
pub struct Facts {
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
    of: Vec<Weak<Facts>>,
    asked: Option<Instant>,
}

impl Facts {
    /// Of a device of this network namespace; asks at once.
    pub(crate) fn of(ifindex: u32) -> Arc<Self> {
        let dropped_before = link::dropped_on_transmit(ifindex).unwrap_or(0);
        Arc::new(Self {
            ifindex,
            dropped_before,
            dropped: AtomicU64::new(dropped_before),
            redirects: AtomicBool::new(link::takes_redirects(ifindex)),
        })
    }

    /// Asks the kernel. What it does not answer (the device was deleted) stays as it was.
    pub fn ask(&self) {
        if let Ok(dropped) = link::dropped_on_transmit(self.ifindex) {
            self.dropped.store(dropped, Ordering::Relaxed);
        }
        self.redirects.store(link::takes_redirects(self.ifindex), Ordering::Relaxed);
    }

    /// Frames that the device dropped on transmission since it was opened, as it said last.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed).saturating_sub(self.dropped_before)
    }

    /// Whether it took redirected frames when it was asked last.
    #[must_use]
    pub fn takes_redirects(&self) -> bool {
        self.redirects.load(Ordering::Relaxed)
    }
}

impl Questions {
    /// Asks about this device, too, as long as somebody has its port.
    pub fn add(&self, facts: &Arc<Facts>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.of.retain(|other| other.strong_count() > 0);
        state.of.push(Arc::downgrade(facts));
    }

    /// Asks about every device, unless that was done less than `age` ago.
    pub fn ask(&self, age: Duration) {
        // Held meanwhile: who comes second waits for the answers instead of asking again.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.asked.is_some_and(|asked| asked.elapsed() < age) {
            return;
        }
        state.of.iter().filter_map(Weak::upgrade).for_each(|facts| facts.ask());
        state.asked = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_asked_about_while_somebody_has_its_port() {
        let questions = Questions::default();
        let facts = Facts::of(link::ifindex("lo").unwrap());
        questions.add(&facts);
        questions.ask(Duration::ZERO);
        assert_eq!(facts.dropped(), 0);
        assert!(!facts.takes_redirects(), "the loopback device takes none");
        drop(facts);
        questions.add(&Facts::of(1));
        assert_eq!(questions.state.lock().unwrap().of.len(), 1, "the first is forgotten");
        let before = questions.state.lock().unwrap().asked;
        questions.ask(Duration::from_secs(3600));
        assert_eq!(questions.state.lock().unwrap().asked, before, "too soon");
    }
}
