// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seconds and minutes that are told apart by hand.

use std::fs;

use weir_units::ByteCount;

use super::*;
use weir_api_types::status::Amount;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-store-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn store(&self, bounds: &Report) -> ReportStore {
        ReportStore::open(&["seconds", "minutes"].map(|name| self.0.join(name)), bounds).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn record(vif: &str, from_s: u64, seconds: u64, bytes: u64) -> ServiceRecord {
    let got = Amount { packets: 1, bytes };
    let side = Service { got, ..Service::default() };
    ServiceRecord {
        first: from_s,
        last: from_s + seconds - 1,
        from_unix_ms: from_s * 1_000,
        at_unix_ms: (from_s + seconds) * 1_000,
        time: Nanos::from_secs(seconds),
        subject: ReportSubject { slice: "gold".into(), vif: Some(vif.into()) },
        sides: [side, Service::default()],
        kernel: KernelAmounts::default(),
    }
}

fn bounds() -> Report {
    Report { bytes: ByteCount::new(1 << 20), ..Report::default() }
}

fn got(store: &ReportStore, now_s: u64, since_s: u64) -> Vec<(u64, u64)> {
    let until_unix_ms = now_s * 1_000;
    let since_unix_ms = since_s * 1_000;
    let question = StoreQuery { since_unix_ms, until_unix_ms, ..StoreQuery::default() };
    let answer = store.ask(now_s * 1_000, &question).unwrap();
    let line =
        |line: &SubjectService| (line.time.as_nanos() / 1_000_000_000, line.sides[0].got.bytes);
    answer.lines.iter().map(line).collect()
}

/// One byte a second for ten minutes; the seconds of the first five are too old.
#[test]
fn every_second_counts_once_by_seconds_or_by_minutes() {
    let folder = Folder::new("once");
    let bounds = Report { seconds: Nanos::from_secs(290), ..bounds() };
    let mut store = folder.store(&bounds);
    for second in 0..630_u64 {
        let minute = record("a", second / 60 * 60, 60, 60);
        let minutes = if second % 60 == 59 { vec![minute] } else { Vec::new() };
        store.append(&NewRecords { seconds: vec![record("a", second, 1, 1)], minutes }).unwrap();
    }
    assert_eq!(got(&store, 630, 0), [(630, 630)], "ten minutes, and the seconds since");
    // Seconds are there from 340 on: the minute of 300 stands for its own, 360 begins by seconds.
    assert_eq!(got(&store, 630, 300), [(330, 330)]);
    assert_eq!(got(&store, 630, 400), [(230, 230)]);
    // By minutes alone: those that begin at 240 or later.
    assert_eq!(got(&store, 630, 200), [(390, 390)]);
    // The answer is the same after the files were closed and opened.
    drop(store);
    assert_eq!(got(&folder.store(&bounds), 630, 0), [(630, 630)]);
}

#[test]
fn who_came_in_the_middle_of_a_minute_counts_once_too() {
    let folder = Folder::new("middle");
    let mut store = folder.store(&bounds());
    for second in 0..120_u64 {
        let mut seconds = vec![record("a", second, 1, 1)];
        let mut minutes = Vec::new();
        if second >= 30 {
            seconds.push(record("b", second, 1, 1));
        }
        if second == 59 {
            minutes = vec![record("a", 0, 60, 60), record("b", 30, 30, 30)];
        }
        store.append(&NewRecords { seconds, minutes }).unwrap();
    }
    assert_eq!(got(&store, 120, 0), [(120, 120), (90, 90)]);
}

/// A node that is killed closes no minute: the next start does.
#[test]
fn the_seconds_of_a_killed_node_become_a_minute() {
    let folder = Folder::new("killed");
    let bounds = Report { seconds: Nanos::from_secs(60), ..bounds() };
    let mut store = folder.store(&bounds);
    for second in 0..30 {
        let seconds = vec![record("a", second, 1, 1)];
        store.append(&NewRecords { seconds, minutes: Vec::new() }).unwrap();
    }
    drop(store);
    let store = folder.store(&bounds);
    assert_eq!(got(&store, 30, 0), [(30, 30)]);
    assert_eq!(got(&store, 500, 0), [(30, 30)], "when its seconds are too old");
    drop(store);
    assert_eq!(got(&folder.store(&bounds), 500, 0), [(30, 30)], "and once only");
}

/// The bound on disk holds whatever is written, and what is asked for stays the newest.
#[test]
fn a_store_takes_its_bytes_at_once_and_no_more() {
    let folder = Folder::new("bytes");
    let mut store = folder.store(&bounds());
    let size = || {
        let files = fs::read_dir(&folder.0).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let at_first = size();
    assert!(at_first <= 1 << 20, "{at_first}");
    for second in 0..40_000 {
        let seconds = vec![record("a", second, 1, 1)];
        store.append(&NewRecords { seconds, minutes: Vec::new() }).unwrap();
    }
    assert_eq!(size(), at_first);
    assert_eq!(got(&store, 40_000, 39_000), [(1_000, 1_000)]);
    let question = StoreQuery { until_unix_ms: u64::MAX, ..StoreQuery::default() };
    let answer = store.ask(40_000_000, &question).unwrap();
    assert_eq!((answer.store_bytes, answer.torn), (at_first, 0));
}

#[test]
fn a_question_names_slice_vif_and_time() {
    let folder = Folder::new("question");
    let mut store = folder.store(&bounds());
    let mut other = record("c", 0, 1, 7);
    other.subject.slice = "silver".into();
    let seconds = vec![record("a", 0, 1, 1), record("b", 0, 1, 2), other];
    store.append(&NewRecords { seconds, minutes: Vec::new() }).unwrap();
    let names = |slice: Option<&str>, vif: Option<&str>, until_unix_ms| {
        let [slice, vif] = [slice, vif].map(|name| name.map(str::to_owned));
        let question = StoreQuery { since_unix_ms: 0, until_unix_ms, slice, vif };
        let lines = store.ask(1_000, &question).unwrap().lines;
        lines.into_iter().map(|line| line.subject.vif.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, None, 1_000), ["a", "b", "c"]);
    assert_eq!(names(Some("gold"), None, 1_000), ["a", "b"]);
    assert_eq!(names(Some("silver"), Some("a"), 1_000), [""; 0]);
    assert_eq!(names(None, Some("b"), 1_000), ["b"]);
    assert_eq!(names(None, None, 999), [""; 0], "it ends later");
}

/// An hour by the clock, which is then set back by an hour; then the node starts again.
#[test]
fn a_clock_that_is_set_back_makes_nothing_count_twice() {
    let folder = Folder::new("clock");
    let bounds = bounds();
    let mut store = folder.store(&bounds);
    for number in 0..300_u64 {
        // From the 180th second on the clock says 180 s less.
        let clock = |second: u64| 100_000 + second - if second >= 180 { 180 } else { 0 };
        let moved = |record: ServiceRecord, first: u64| {
            let from_unix_ms = clock(first) * 1_000;
            let at_unix_ms = from_unix_ms + record.time.as_nanos() / 1_000_000;
            ServiceRecord { from_unix_ms, at_unix_ms, ..record }
        };
        let second = moved(record("a", number, 1, 1), number);
        let first = number / 60 * 60;
        let minute = moved(record("a", first, 60, 60), first);
        let minutes = if number % 60 == 59 { vec![minute] } else { Vec::new() };
        store.append(&NewRecords { seconds: vec![second], minutes }).unwrap();
    }
    assert_eq!(got(&store, 200_000, 0), [(300, 300)]);
    drop(store);
    let store = folder.store(&Report { seconds: Nanos::from_secs(60), ..bounds.clone() });
    assert_eq!(store.resume().unwrap().0, 300);
    // By minutes alone, since all seconds are too old by then.
    assert_eq!(got(&store, 200_000, 0), [(300, 300)]);
}
