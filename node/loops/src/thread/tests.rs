// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread on platforms that are slow, hang or fail.

use std::sync::mpsc::{Receiver, channel};
use std::time::Instant as Moment;

use weir_control::Reading;
use weir_policy::{ActuatorKind, ControllerKind, Interface, Router, RouterXtc, Slice};
use weir_units::{Instant, PacketRate};

use super::super::error::{CounterError, RouterError};
use super::super::load::MemoryPlatform;
use super::super::parts::{
    CounterReader, CounterSource, RouterEndpoint, RouterPlatform, RouterTarget,
};
use super::*;

/// Router `vr` every 10 ms.
fn policy() -> Policy {
    let mut policy = Policy::new("thread");
    let slice = policy.add_slice(Slice::new("gold"));
    let xtc = RouterXtc {
        controller: ControllerKind::FeedForward,
        period: Nanos::from_millis(10),
        interfaces: vec![Interface { device: "v0".to_owned(), inside: None }],
        ..RouterXtc::new(PacketRate::from_pps(1000), ActuatorKind::None)
    };
    policy.add_router(Router { xtc: Some(xtc), ..Router::new("vr", slice) });
    policy
}

/// The side effect of reading the counters.
struct Faulty(Arc<dyn Fn() + Send + Sync>);

impl CounterReader for Faulty {
    fn follow(&mut self, _: &[CounterSource]) {}

    fn collect(&mut self, _: Instant) -> Instant {
        (self.0)();
        clock::now()
    }

    fn of(&mut self, _: usize) -> Result<Reading, CounterError> {
        Err(CounterError::DeviceMissing("v0".to_owned()))
    }
}

/// Takes every router, and reports each call.
struct Watched(MemoryPlatform, std::sync::mpsc::Sender<&'static str>);

impl RouterPlatform for Watched {
    fn take(&mut self, wanted: &RouterTarget) -> Result<RouterEndpoint, RouterError> {
        let _told = self.1.send("taken");
        self.0.take(wanted)
    }

    fn give_back(&mut self, router: &str) -> Result<(), RouterError> {
        self.0.give_back(router)
    }

    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), RouterError> {
        self.0.limit(limits)
    }

    fn end(&mut self) -> Result<(), RouterError> {
        let _told = self.1.send("ended");
        Ok(())
    }
}

/// Starts a thread whose reading of counters has the side effect `read`. Returns it with the calls
/// to its platform and its notes.
fn running(answer: Duration, read: impl Fn() + Send + Sync + 'static) -> (LoopsThread, Told, Told) {
    let (told, done) = channel();
    let (note, notes) = channel();
    let read: Arc<dyn Fn() + Send + Sync> = Arc::new(read);
    let make = Box::new(move || {
        let hands = Watched(MemoryPlatform, told.clone());
        LoopManager::new(Box::new(Faulty(Arc::clone(&read))), Box::new(hands))
    });
    let note = Box::new(move |line: String| {
        let _told = note.send(if line.contains("begin anew") { "anew" } else { "other" });
    });
    let patience = Patience { answer, anew: Nanos::from_millis(50) };
    let running = LoopsThread::start(LoopsStart { make, request: None, note, patience }).unwrap();
    (running, done, notes)
}

type Told = Receiver<&'static str>;

/// Longer than anything takes that is done at all.
const LONG: Duration = Duration::from_secs(60);

/// Goal: requests, changes of the policy and the end are served although each pass takes longer
/// than the period, so that one is always due.
#[test]
fn a_thread_that_is_always_late_answers() {
    let (running, done, _) = running(LONG, || std::thread::sleep(Duration::from_millis(15)));
    let asker = running.asker();
    asker.follow(&policy()).unwrap();
    assert_eq!(done.recv_timeout(LONG), Ok("taken"));
    let late = |asker: &LoopsClient| asker.status(None).unwrap().1.late_worst;
    let start = Moment::now();
    while late(&asker) == Nanos::ZERO {
        assert!(start.elapsed() < LONG);
    }
    assert_eq!(asker.status(Some("vr")).unwrap().0.len(), 1);
    assert_eq!(asker.status(Some("none")).unwrap().0, []);
    assert!(asker.log("vr", 5).unwrap().is_some_and(|lines| lines.len() <= 5));
    assert!(asker.log("none", 5).unwrap().is_none());
    assert_eq!(asker.check(&policy()), Ok(()));
    asker.follow(&Policy::new("thread")).unwrap();
    assert_eq!(asker.status(None).unwrap().0, []);
    assert_eq!(running.end(), Vec::<String>::new());
    assert_eq!(done.recv_timeout(LONG), Ok("ended"));
}

/// Goal: while a pass hangs, a caller is told so, and its request is done afterwards.
#[test]
fn a_thread_that_hangs_is_not_waited_for() {
    let (release, hangs) = channel::<()>();
    let hangs = Mutex::new(hangs);
    let (running, ..) = running(Duration::from_millis(50), move || {
        // Over as soon as the other end is dropped.
        let _over = hangs.lock().unwrap().recv();
    });
    let asker = running.asker();
    asker.follow(&policy()).unwrap();
    let start = Moment::now();
    let refused = loop {
        assert!(start.elapsed() < LONG);
        match asker.status(None) {
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.kind, RefusalKind::Busy);
    let text = "control loops: no answer within 50 ms";
    assert_eq!(refused.message, text);
    for _ in 0..=JOBS_MAX {
        assert!(asker.follow(&Policy::new("thread")).is_err());
    }
    let refused = asker.status(None).unwrap_err().message;
    assert_eq!(refused, "control loops: 64 requests are pending");
    drop(release);
    while asker.status(None).map(|(routers, _)| routers.len()) != Ok(0) {
        assert!(start.elapsed() < LONG, "the policy of then is followed");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.end();
}

/// Goal: after a panic all routers are released, the operator is told, and the routers are held
/// again a little later.
#[test]
fn a_thread_that_fails_takes_its_caps_away_and_begins_anew() {
    let first = AtomicBool::new(true);
    let (running, done, notes) = running(LONG, move || {
        assert!(!first.swap(false, Ordering::Relaxed), "a fault on purpose");
    });
    let asker = running.asker();
    // The answer may come before the fault or be lost by it.
    let _either = asker.follow(&policy());
    for expected in ["taken", "ended", "taken"] {
        assert_eq!(done.recv_timeout(LONG), Ok(expected));
    }
    assert!(notes.iter().take(5).any(|note| note == "anew"));
    let (routers, _) = asker.status(None).unwrap();
    assert_eq!(routers.len(), 1);
    assert_eq!(running.end(), Vec::<String>::new());
    assert_eq!(done.recv_timeout(LONG), Ok("ended"));
}
