// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slow actuator on a thread of its own, so that the control loops of other routers do not wait
//! for it.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_control::CapRange;
use weir_units::{CpuShare, Nanos};

use super::actuator::{Actuator, CapError};
use crate::error::HostError;

/// Another actuator, behind a thread.
///
/// **A call waits for at most [`PATIENCE`]. If the answer takes longer, the call fails but its
/// execution continues; until it ends, every other call fails at once.** The late answer is
/// discarded, so the caller must repeat its command, as after any failure. A drop waits for the
/// call under way, which must end by itself.
#[derive(Debug)]
pub struct ThreadedActuator {
    name: &'static str,
    range: CapRange,
    period: Nanos,
    /// One at a time.
    calls: Option<SyncSender<Call>>,
    answers: Receiver<Answer>,
    /// The start of the call whose answer is late.
    late: Option<Instant>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Call {
    InForce,
    Set(CpuShare),
    Refresh,
    Release,
}

/// The cap in force, for a call that returns one; otherwise `None`.
type Answer = Result<Option<CpuShare>, CapError>;

impl ThreadedActuator {
    /// Starts the actuator's thread, which ends with the value.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(mut actuator: impl Actuator + 'static) -> Result<Self, HostError> {
        let (calls, inbox) = sync_channel::<Call>(1);
        let (outbox, answers) = sync_channel::<Answer>(1);
        let (name, range, period) = (actuator.name(), actuator.range(), actuator.period());
        let work = move || {
            for call in inbox {
                let answer = match call {
                    Call::InForce => actuator.in_force(),
                    Call::Set(cap) => actuator.set(cap).map(Some),
                    Call::Refresh => actuator.refresh().map(|()| None),
                    Call::Release => actuator.release().map(|()| None),
                };
                if outbox.send(answer).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("weir-actuator".into())
            .spawn(work)
            .map_err(|error: io::Error| HostError::io("start", "an actuator's thread", error))?;
        let (calls, thread) = (Some(calls), Some(thread));
        Ok(Self { name, range, period, calls, answers, late: None, thread })
    }

    fn ask(&mut self, call: Call) -> Answer {
        let refused =
            |answer: String| Err(CapError::Refused { what: format!("ask {}", self.name), answer });
        if let Some(since) = self.late {
            // The late answer is discarded: its call has failed already.
            if self.answers.try_recv().is_err() {
                let waited = since.elapsed().as_millis();
                return refused(format!("it has not answered for {waited} ms"));
            }
            self.late = None;
        }
        let asked = Instant::now();
        if self.calls.as_ref().is_none_or(|calls| calls.try_send(call).is_err()) {
            return refused("its thread has ended".to_owned());
        }
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.late = Some(asked);
                refused(format!("it did not answer within {} ms", PATIENCE.as_millis()))
            }
            Err(RecvTimeoutError::Disconnected) => refused("its thread has ended".to_owned()),
        }
    }
}

impl Actuator for ThreadedActuator {
    fn name(&self) -> &'static str {
        self.name
    }

    fn range(&self) -> CapRange {
        self.range
    }

    fn period(&self) -> Nanos {
        self.period
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        self.ask(Call::InForce)
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        Ok(self.ask(Call::Set(cap))?.unwrap_or(cap))
    }

    fn refresh(&mut self) -> Result<(), CapError> {
        self.ask(Call::Refresh).map(drop)
    }

    fn release(&mut self) -> Result<(), CapError> {
        self.ask(Call::Release).map(drop)
    }
}

impl Drop for ThreadedActuator {
    fn drop(&mut self) {
        // A call under way ends before any undo of it begins.
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            // At most one answer waits, so the thread is not blocked. A thread that panicked has
            // ended.
            let _ended = thread.join();
        }
    }
}

/// The longest wait for an answer: a call of `xl` takes tens of milliseconds.
pub const PATIENCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// An actuator that sets a cap only once the test releases it.
    struct Slow(Receiver<()>, Option<CpuShare>);

    impl Actuator for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn range(&self) -> CapRange {
            CapRange::WHOLE
        }

        fn period(&self) -> Nanos {
            Nanos::from_millis(10)
        }

        fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
            Ok(self.1)
        }

        fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
            self.0.recv().map_err(|_| CapError::Gone { what: "guest vr".to_owned() })?;
            self.1 = Some(cap);
            Ok(cap)
        }

        fn release(&mut self) -> Result<(), CapError> {
            self.1 = None;
            Ok(())
        }
    }

    /// Goal: a call that hangs costs its caller one wait; later calls fail at once until it has
    /// ended.
    #[test]
    fn a_call_that_hangs_is_waited_for_once() {
        let (release, wait) = channel();
        let mut cap = ThreadedActuator::new(Slow(wait, None)).unwrap();
        assert_eq!((cap.name(), cap.range()), ("slow", CapRange::WHOLE));
        let [twenty, thirty] = [20, 30].map(CpuShare::from_percent);
        release.send(()).unwrap();
        assert_eq!(cap.set(twenty).unwrap(), twenty);
        assert_eq!(cap.in_force().unwrap(), Some(twenty));
        let late = cap.set(thirty).unwrap_err().to_string();
        assert_eq!(late, "cannot ask slow: it did not answer within 50 ms");
        let start = Instant::now();
        for _ in 0..100 {
            let late = cap.in_force().unwrap_err().to_string();
            assert!(late.starts_with("cannot ask slow: it has not answered for "), "{late}");
        }
        assert!(start.elapsed() < 100 * PATIENCE, "none of them waits");
        release.send(()).unwrap();
        let start = Instant::now();
        while cap.in_force().ok() != Some(Some(thirty)) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        cap.release().unwrap();
        assert_eq!(cap.in_force().unwrap(), None);
        drop(release);
        assert!(matches!(cap.set(thirty), Err(CapError::Gone { .. })));
    }
}
