// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store of records: a file of seconds and a file of minutes, both of fixed size, and queries
//! of both.
//!
//! A query is answered by seconds as far back as there are any, and by whole minutes before that.
//! The change from one to the other may be in the middle of a minute, so that it is found for each
//! subject (`Cut`): no second is counted twice, and none is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use weir_platform::StateDir;
use weir_policy::Report;
use weir_units::Nanos;

use super::record::{KernelAmounts, ReportSubject, ServiceRecord};
use super::recorder::NewRecords;
use super::ring::{self, RingFile};
use super::service::Service;

/// The records of one node, on disk.
#[derive(Debug)]
pub struct ReportStore {
    seconds: RingFile,
    minutes: RingFile,
    bounds: Report,
}

/// A query of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreQuery {
    /// The earliest beginning of a record, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// The latest end of a record, milliseconds since 1970.
    pub until_unix_ms: u64,
    /// The only slice to report; `None` for all.
    pub slice: Option<String>,
    /// The only vif to report; `None` for all.
    pub vif: Option<String>,
}

/// The service of one subject in the time of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectService {
    /// The vif or slice.
    pub subject: ReportSubject,
    /// The beginning of the first record, milliseconds since 1970.
    pub from_unix_ms: u64,
    /// The end of the last record, milliseconds since 1970.
    pub to_unix_ms: u64,
    /// The total time of the records: less than from `from` to `to` if the node did not run all the
    /// time.
    pub time: Nanos,
    /// Send, receive.
    pub sides: [Service; 2],
}

/// The answer to a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreAnswer {
    /// Slices and their vifs, by name; a slice before its vifs.
    pub lines: Vec<SubjectService>,
    /// Slices and vifs that are not among the lines, which are [`LINES_MAX`] at most.
    pub more: u64,
    /// Torn ends of files that a crash had left when the store was opened, and damaged blocks.
    pub torn: u64,
    /// The bytes of the store on disk, which do not change.
    pub store_bytes: u64,
}

/// Reads a store while another thread writes to it.
#[derive(Debug)]
pub struct StoreReader {
    seconds: ring::RingReader,
    minutes: ring::RingReader,
    bounds: Report,
    torn: u64,
    store_bytes: u64,
}

/// The second from which on a subject is reported by seconds, and by minutes before.
#[derive(Clone, Copy, Debug)]
struct Cut {
    first_second: u64,
    /// The first second of the first minute all of whose seconds are there.
    first_minute: u64,
    /// The second behind the last of the other minutes.
    last_end: u64,
}

impl ReportStore {
    /// Returns the paths of the files of the node `name`.
    #[must_use]
    pub fn paths(state: &StateDir, name: &str) -> [PathBuf; 2] {
        ["seconds", "minutes"].map(|unit| state.lasting().join(format!("service-{name}.{unit}")))
    }

    /// Opens the files, or makes them. Seconds that are in no minute, since the node was killed,
    /// become a minute.
    ///
    /// # Errors
    /// A file cannot be made, read or written, or has another version. The text names the file.
    pub fn open([seconds, minutes]: &[PathBuf; 2], bounds: &Report) -> io::Result<Self> {
        let bytes = bounds.bytes.get();
        let mut store = Self {
            seconds: open(seconds, bytes / 4 * 3)?,
            minutes: open(minutes, bytes / 4)?,
            bounds: bounds.clone(),
        };
        store.end_minute()?;
        Ok(store)
    }

    /// Appends new records.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn append(&mut self, taken: &NewRecords) -> io::Result<()> {
        self.seconds.append(&bytes(&taken.seconds))?;
        self.minutes.append(&bytes(&taken.minutes))
    }

    /// Syncs everything appended to the disk, so that it survives a power cut.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn sync(&mut self) -> io::Result<()> {
        self.seconds.sync()?;
        self.minutes.sync()
    }

    /// Returns the number of the next second, and the counts of the kernel at the last record of
    /// each vif.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn resume(&self) -> io::Result<(u64, BTreeMap<ReportSubject, KernelAmounts>)> {
        let (mut next, mut last) = (0, BTreeMap::new());
        self.minutes.read(|bytes| {
            next = ServiceRecord::read(bytes).map_or(next, |record| next.max(record.last + 1));
        })?;
        self.seconds.read(|bytes| {
            let Some(record) = ServiceRecord::read(bytes) else { return };
            next = next.max(record.last + 1);
            if record.subject.vif.is_some() {
                last.insert(record.subject, record.kernel);
            }
        })?;
        Ok((next, last))
    }

    /// Makes a reader, which may be used while the store is written to.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn reader(&self) -> io::Result<StoreReader> {
        Ok(StoreReader {
            seconds: self.seconds.reader()?,
            minutes: self.minutes.reader()?,
            bounds: self.bounds.clone(),
            torn: self.seconds.torn() + self.minutes.torn(),
            store_bytes: self.seconds.bytes() + self.minutes.bytes(),
        })
    }

    /// Answers a query: see [`StoreReader::ask`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn ask(&self, now_unix_ms: u64, question: &StoreQuery) -> io::Result<StoreAnswer> {
        self.reader()?.ask(now_unix_ms, question)
    }

    /// Makes a record of a minute from the seconds after the last minute, for each subject.
    fn end_minute(&mut self) -> io::Result<()> {
        let mut last_end = BTreeMap::new();
        self.minutes.read(|bytes| {
            if let Some(minute) = ServiceRecord::read(bytes) {
                last_end.insert(minute.subject, minute.last);
            }
        })?;
        let mut open: BTreeMap<ReportSubject, ServiceRecord> = BTreeMap::new();
        self.seconds.read(|bytes| {
            let Some(second) = ServiceRecord::read(bytes) else { return };
            let told = last_end.get(&second.subject).is_some_and(|end| second.last <= *end);
            match open.get_mut(&second.subject) {
                _ if told => {}
                Some(minute) => minute.add(&second),
                None => {
                    open.insert(second.subject.clone(), second);
                }
            }
        })?;
        let minutes: Vec<ServiceRecord> = open.into_values().collect();
        self.minutes.append(&bytes(&minutes))
    }
}

impl StoreReader {
    /// Answers a query at `now_unix_ms`, by seconds as far back as there are any, and by whole
    /// minutes before that.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn ask(&self, now_unix_ms: u64, question: &StoreQuery) -> io::Result<StoreAnswer> {
        let is_kept = |record: &ServiceRecord, kept: Nanos| {
            record.at_unix_ms.saturating_add(kept.as_nanos() / 1_000_000) >= now_unix_ms
        };
        let is_asked = |record: &ServiceRecord| {
            let subject = &record.subject;
            question.slice.as_ref().is_none_or(|slice| *slice == subject.slice)
                && (question.vif.is_none() || question.vif == subject.vif)
        };
        let [seconds_kept, minutes_kept] = [self.bounds.seconds, self.bounds.minutes];
        let mut cuts: BTreeMap<ReportSubject, Cut> = BTreeMap::new();
        let damaged_seconds = self.seconds.read(|bytes| {
            let second =
                ServiceRecord::read(bytes).filter(|r| is_asked(r) && is_kept(r, seconds_kept));
            if let Some(second) = second {
                let cut = cuts.entry(second.subject).or_default();
                cut.first_second = cut.first_second.min(second.first);
            }
        })?;
        let damaged_minutes = self.minutes.read(|bytes| {
            if let Some(minute) = ServiceRecord::read(bytes).filter(is_asked) {
                cuts.entry(minute.subject.clone()).or_default().see(&minute);
            }
        })?;
        let (mut lines, mut more) = (BTreeMap::new(), BTreeSet::new());
        let fits = |record: &ServiceRecord| {
            is_asked(record)
                && record.from_unix_ms >= question.since_unix_ms
                && record.at_unix_ms <= question.until_unix_ms
        };
        let by_seconds = |record: &ServiceRecord| {
            cuts.get(&record.subject).is_some_and(|cut| record.first >= cut.at())
        };
        let mut sum = |record: ServiceRecord| {
            if lines.len() < LINES_MAX || lines.contains_key(&record.subject) {
                add(&mut lines, record);
            } else if more.len() < LINES_MAX {
                more.insert(record.subject);
            }
        };
        self.minutes.read(|bytes| {
            let minute = ServiceRecord::read(bytes).filter(|r| fits(r) && is_kept(r, minutes_kept));
            if let Some(minute) = minute.filter(|minute| !by_seconds(minute)) {
                sum(minute);
            }
        })?;
        self.seconds.read(|bytes| {
            let second = ServiceRecord::read(bytes).filter(|r| fits(r) && is_kept(r, seconds_kept));
            if let Some(second) = second.filter(by_seconds) {
                sum(second);
            }
        })?;
        Ok(StoreAnswer {
            lines: lines.into_values().collect(),
            more: u64::try_from(more.len()).unwrap_or(u64::MAX),
            torn: self.torn + damaged_seconds + damaged_minutes,
            store_bytes: self.store_bytes,
        })
    }
}

impl Default for Cut {
    fn default() -> Self {
        Self { first_second: u64::MAX, first_minute: u64::MAX, last_end: 0 }
    }
}

impl Cut {
    fn see(&mut self, minute: &ServiceRecord) {
        if minute.first >= self.first_second {
            self.first_minute = self.first_minute.min(minute.first);
        } else {
            self.last_end = self.last_end.max(minute.last + 1);
        }
    }

    /// Returns the second from which on seconds are used. The unfinished minute has no record yet,
    /// so its seconds are used.
    fn at(&self) -> u64 {
        self.first_minute.min(self.first_second.max(self.last_end))
    }
}

fn open(path: &Path, bytes: u64) -> io::Result<RingFile> {
    RingFile::open(path, bytes)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn bytes(records: &[ServiceRecord]) -> Vec<Vec<u8>> {
    let each = records.iter().map(|record| {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    });
    each.collect()
}

fn add(lines: &mut BTreeMap<ReportSubject, SubjectService>, record: ServiceRecord) {
    let from_unix_ms = record.from_unix_ms;
    let line = lines.entry(record.subject.clone()).or_insert_with(|| SubjectService {
        subject: record.subject,
        from_unix_ms,
        to_unix_ms: record.at_unix_ms,
        time: Nanos::ZERO,
        sides: Default::default(),
    });
    line.from_unix_ms = line.from_unix_ms.min(from_unix_ms);
    line.to_unix_ms = line.to_unix_ms.max(record.at_unix_ms);
    line.time = line.time.saturating_add(record.time);
    line.sides.iter_mut().zip(&record.sides).for_each(|(sum, side)| sum.add(side));
}

/// The most lines of an answer, which are a megabyte or two. A caller with more names a slice.
pub const LINES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
