// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps the report of a running node: takes one status a second until the node ends.
//!
//! Three locks keep readers apart. Whoever reads metrics or the last verdicts never waits for a
//! query of the store, and a query never keeps a second from being recorded.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_policy::{Policy, Report};
use weir_units::Nanos;

use super::record::ReportSubject;
use super::recorder::{NewRecords, ServiceRecorder};
use super::service::{Service, Verdicts};
use super::store::{ReportStore, StoreAnswer, StoreQuery};
use weir_api_types::status::NodeStatus;
use weir_dataplane::{Refusal, RefusalKind};

/// The records of the running node.
#[derive(Debug, Default)]
pub struct ReportKeeper {
    kept: Mutex<Option<OpenReport>>,
    /// Locked apart, so that a reader of metrics does not wait for a reader of the store.
    totals: Mutex<BTreeMap<ReportSubject, [Service; 2]>>,
    judged: Mutex<JudgedSecond>,
    /// The reason why no report is kept, if none is. Locked apart for the same reason.
    failed: Mutex<Option<String>>,
}

/// A thread that calls the keeper each second. It ends when this is dropped.
#[derive(Debug)]
pub struct ReportTicker {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The verdicts on the last second.
#[derive(Debug, Default)]
struct JudgedSecond {
    /// The end of the second, by the clock of [`NodeStatus::now_ns`]; `None` before the first.
    end_ns: Option<u64>,
    verdicts: Verdicts,
}

#[derive(Debug)]
struct OpenReport {
    recorder: ServiceRecorder,
    /// The store, or why there is none.
    store: Result<ReportStore, String>,
    sync: Duration,
    synced: Instant,
    /// The files of the store, to open it again.
    paths: [PathBuf; 2],
    bounds: Report,
}

impl ReportKeeper {
    /// Opens the store. Returns the reason if that failed; callers that query the report get it,
    /// too.
    pub fn open(&self, paths: &[PathBuf; 2], bounds: &Report) -> Option<String> {
        let opened = ReportStore::open(paths, bounds);
        let resumed = opened.as_ref().ok().and_then(|store| store.resume().ok());
        let (next, kernel) = resumed.unwrap_or_default();
        let store = opened.map_err(|error| format!("no service report is kept: {error}"));
        let failed = store.as_ref().err().cloned();
        self.know(failed.clone());
        *self.kept() = Some(OpenReport {
            recorder: ServiceRecorder::after(next, kernel),
            store,
            sync: Duration::from_nanos(bounds.sync.as_nanos()),
            synced: Instant::now(),
            paths: paths.clone(),
            bounds: bounds.clone(),
        });
        failed
    }

    /// Records a second. Returns the reason if the disk fails, once.
    pub fn take(&self, status: &NodeStatus, policy: &Policy) -> Option<String> {
        let mut kept = self.kept();
        let kept = kept.as_mut()?;
        let taken = kept.recorder.take(now_unix_ms(), status, policy);
        let totals = kept.recorder.totals().clone();
        let judged = JudgedSecond {
            end_ns: Some(status.now_ns),
            verdicts: kept.recorder.verdicts().clone(),
        };
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner) = totals;
        *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = judged;
        let failed = kept.write(&taken);
        self.know(kept.store.as_ref().err().cloned());
        failed
    }

    /// Records the last second and the unfinished minute. Returns the reason if that failed.
    pub fn end(&self, status: &NodeStatus, policy: &Policy) -> Option<String> {
        let mut kept = self.kept();
        let kept = kept.as_mut()?;
        let mut taken = kept.recorder.take(now_unix_ms(), status, policy);
        taken.minutes.extend(kept.recorder.end_minute());
        kept.sync = Duration::ZERO;
        kept.write(&taken)
    }

    /// Answers a query.
    ///
    /// # Errors
    /// There is no store, or it cannot be read.
    pub fn ask(&self, question: &StoreQuery) -> Result<StoreAnswer, Refusal> {
        let refused = |text: String| Refusal::new(RefusalKind::NotRecorded, text);
        let kept = self.kept();
        let starting = || Refusal::new(RefusalKind::NotRunning, "the node is starting");
        let store = kept.as_ref().ok_or_else(starting)?.store.as_ref();
        let reader = store.map_err(|why| refused(why.clone()))?.reader();
        // A long query keeps no second from being recorded.
        drop(kept);
        let answer = reader.and_then(|reader| reader.ask(now_unix_ms(), question));
        answer.map_err(|error| refused(format!("service report: {error}")))
    }

    /// Returns the service of each vif and slice since the node started: send, receive.
    pub fn totals(&self) -> BTreeMap<ReportSubject, [Service; 2]> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds to a status the verdicts on the last second, and whether a report is kept. A disk that
    /// hangs keeps seconds from being judged; older verdicts are shown for a few seconds only.
    pub fn judge(&self, status: &mut NodeStatus) {
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let age = judged.end_ns.map(|end| Nanos::new(status.now_ns.saturating_sub(end)));
        if age.is_some_and(|age| age <= VERDICT_LIFE) {
            judged.verdicts.add_to(status);
        }
        let hangs = || {
            let seconds = age.filter(|age| *age > HANGS)?.as_nanos() / SECOND.as_nanos();
            Some(format!("the report stands still: its last second was {seconds} s ago"))
        };
        status.report_failed = self.failed().or_else(hangs);
    }

    /// Returns why no report is kept, if none is.
    fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn know(&self, failed: Option<String>) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }

    /// Locks the records, which are whole even if a thread that had the lock panicked.
    fn kept(&self) -> MutexGuard<'_, Option<OpenReport>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenReport {
    fn write(&mut self, taken: &NewRecords) -> Option<String> {
        let Self { store, sync, synced, paths, bounds, .. } = self;
        if store.is_err() && synced.elapsed() >= *sync {
            *synced = Instant::now();
            // Seconds in between are in no record. The first error stands while opening fails.
            if let Ok(again) = ReportStore::open(paths, bounds) {
                *store = Ok(again);
            }
        }
        let done = store.as_mut().ok()?.append(taken).and_then(|()| match store {
            Ok(store) if synced.elapsed() >= *sync => {
                *synced = Instant::now();
                store.sync()
            }
            _ => io::Result::Ok(()),
        });
        let error = done.err()?;
        // A failed disk is tried again as often as it is synced, not every second.
        let why = format!("no service report is kept any more: {error}");
        *store = Err(why.clone());
        Some(why)
    }
}

impl ReportTicker {
    /// Calls `tick` each second, on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        begin: impl FnOnce() + Send + 'static,
        tick: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            begin();
            let mut due = Instant::now();
            loop {
                tick();
                // A missed tick is not made up for: the next one covers both seconds.
                due = (due + TICK).max(Instant::now());
                let wait = due.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("weir-report".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ReportTicker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ended = thread.join();
        }
    }
}

fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The time between two records.
const TICK: Duration = Duration::from_secs(1);

/// Verdicts older than this are not shown. A second is judged as it ends, the next a second later.
const VERDICT_LIFE: Nanos = Nanos::from_secs(3);

/// A disk may write back for seconds. One that takes longer than this hangs.
const HANGS: Nanos = Nanos::from_secs(15);

const SECOND: Nanos = Nanos::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api_types::status::Verdict;
    use weir_units::ByteCount;

    /// The reason is known as long as the disk fails, and no longer.
    #[test]
    fn why_no_report_is_kept_is_known_while_none_is() {
        let folder = std::env::temp_dir().join(format!("weir-keeper-{}", std::process::id()));
        let _absent = std::fs::remove_dir_all(&folder);
        let paths = ["seconds", "minutes"].map(|name| folder.join(name));
        // No folder can be made where a file is.
        std::fs::write(&folder, "").unwrap();
        let (sync, bytes) = (Nanos::ZERO, ByteCount::new(1 << 20));
        let bounds = Report { sync, bytes, ..Report::default() };
        let (keeper, status) = (ReportKeeper::default(), NodeStatus::default());
        let policy = Policy::new("edge");
        assert_eq!(keeper.failed(), None);
        let said = keeper.open(&paths, &bounds).unwrap();
        assert!(said.starts_with("no service report is kept: "), "{said}");
        assert_eq!(keeper.failed(), Some(said.clone()));
        assert_eq!(keeper.take(&status, &policy), None, "it was said");
        assert_eq!(keeper.failed(), Some(said));
        std::fs::remove_file(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(keeper.take(&status, &policy), None);
        assert_eq!(keeper.failed(), None, "it is kept again");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A second that was judged long ago is not shown as the last one.
    #[test]
    fn a_report_that_stands_still_is_known() {
        let at =
            |seconds: u64| NodeStatus { now_ns: seconds * 1_000_000_000, ..NodeStatus::default() };
        let keeper = ReportKeeper::default();
        let told = |seconds| {
            let mut status = at(seconds);
            keeper.judge(&mut status);
            (status.slices.len(), status.report_failed)
        };
        assert_eq!(told(100), (0, None), "nothing was judged yet");
        let mut verdicts = Verdicts::default();
        verdicts.slices.insert("gold".into(), [Verdict::Holds; 2]);
        *keeper.judged.lock().unwrap() = JudgedSecond { end_ns: Some(100_000_000_000), verdicts };
        assert_eq!(told(103), (1, None));
        assert_eq!(told(104), (0, None));
        let failed = "the report stands still: its last second was 20 s ago".to_owned();
        assert_eq!(told(120), (0, Some(failed)));
    }
}
