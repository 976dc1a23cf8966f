// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store of records: one ring of seconds, one of minutes, and what is asked of both.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use weir_platform::StateDir;
use weir_policy::Report;
use weir_units::Nanos;

use super::record::{Kernel, Record, Subject};
use super::recorder::Taken;
use super::ring::{self, Ring};
use super::service::Service;

/// The records of one node on disk.
#[derive(Debug)]
pub struct Store {
    seconds: Ring,
    minutes: Ring,
    bounds: Report,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Records that begin at this time or later, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// And end at this time or earlier.
    pub until_unix_ms: u64,
    /// Of this slice alone.
    pub slice: Option<String>,
    /// Of this vif alone.
    pub vif: Option<String>,
}

/// What somebody had in the time that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Who.
    pub subject: Subject,
    /// Begin of the first record, milliseconds since 1970.
    pub from_unix_ms: u64,
    /// End of the last one.
    pub to_unix_ms: u64,
    /// Time that records tell of: less than from `from` to `to` where the node did not run.
    pub time: Nanos,
    /// Send, receive.
    pub sides: [Service; 2],
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Slices and their vifs, by name; a slice before its vifs.
    pub lines: Vec<Line>,
    /// Slices and vifs that are not among the lines, which are [`LINES_MAX`] at most.
    pub more: u64,
    /// Ends of files that a crash had torn when the store was opened, and blocks that are damaged.
    pub torn: u64,
    /// Bytes that the store takes on disk, now and ever.
    pub store_bytes: u64,
}

/// Reads a store beside its writer.
#[derive(Debug)]
pub struct Reader {
    seconds: ring::Reader,
    minutes: ring::Reader,
    bounds: Report,
    torn: u64,
    store_bytes: u64,
}

/// From where on seconds tell of somebody, minutes before.
#[derive(Clone, Copy, Debug)]
struct Cut {
    first_second: u64,
    /// The first second of the first minute all of whose seconds are there.
    first_minute: u64,
    /// The second behind the last of the other minutes.
    last_end: u64,
}

impl Store {
    /// The files of the node `name`: beside its overlay.
    #[must_use]
    pub fn paths(state: &StateDir, name: &str) -> [PathBuf; 2] {
        ["seconds", "minutes"].map(|unit| state.lasting().join(format!("service-{name}.{unit}")))
    }

    /// Opens or makes the files. Seconds that no minute tells of, since the node was killed before
    /// it ended, become one.
    ///
    /// # Errors
    /// A file cannot be made, read or written, or is of another version; the text names it.
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

    /// Writes down what a status came to.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn append(&mut self, taken: &Taken) -> io::Result<()> {
        self.seconds.append(&bytes(&taken.seconds))?;
        self.minutes.append(&bytes(&taken.minutes))
    }

    /// Waits until all of it outlives a power cut.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn sync(&mut self) -> io::Result<()> {
        self.seconds.sync()?;
        self.minutes.sync()
    }

    /// The number of the next second, and what the program in the kernel had handed on for each vif
    /// at its last record.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn resume(&self) -> io::Result<(u64, BTreeMap<Subject, Kernel>)> {
        let (mut next, mut last) = (0, BTreeMap::new());
        self.minutes.read(|bytes| {
            next = Record::read(bytes).map_or(next, |record| next.max(record.last + 1));
        })?;
        self.seconds.read(|bytes| {
            let Some(record) = Record::read(bytes) else { return };
            next = next.max(record.last + 1);
            if record.subject.vif.is_some() {
                last.insert(record.subject, record.kernel);
            }
        })?;
        Ok((next, last))
    }

    /// What reads the store while it is written to.
    ///
    /// # Errors
    /// There is no descriptor to be had.
    pub fn reader(&self) -> io::Result<Reader> {
        Ok(Reader {
            seconds: self.seconds.reader()?,
            minutes: self.minutes.reader()?,
            bounds: self.bounds.clone(),
            torn: self.seconds.torn() + self.minutes.torn(),
            store_bytes: self.seconds.bytes() + self.minutes.bytes(),
        })
    }

    /// As [`Reader::ask`].
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn ask(&self, now_unix_ms: u64, question: &Question) -> io::Result<Answer> {
        self.reader()?.ask(now_unix_ms, question)
    }

    /// Makes a minute of the seconds behind the last one.
    fn end_minute(&mut self) -> io::Result<()> {
        let mut last_end = BTreeMap::new();
        self.minutes.read(|bytes| {
            if let Some(minute) = Record::read(bytes) {
                last_end.insert(minute.subject, minute.last);
            }
        })?;
        let mut open: BTreeMap<Subject, Record> = BTreeMap::new();
        self.seconds.read(|bytes| {
            let Some(second) = Record::read(bytes) else { return };
            let told = last_end.get(&second.subject).is_some_and(|end| second.last <= *end);
            match open.get_mut(&second.subject) {
                _ if told => {}
                Some(minute) => minute.add(&second),
                None => {
                    open.insert(second.subject.clone(), second);
                }
            }
        })?;
        let minutes: Vec<Record> = open.into_values().collect();
        self.minutes.append(&bytes(&minutes))
    }
}

impl Reader {
    /// Sums up what was asked for at `now_unix_ms`: by seconds as far as there are any, by whole
    /// minutes before that.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn ask(&self, now_unix_ms: u64, question: &Question) -> io::Result<Answer> {
        let is_kept = |record: &Record, kept: Nanos| {
            record.at_unix_ms.saturating_add(kept.as_nanos() / 1_000_000) >= now_unix_ms
        };
        let is_asked = |record: &Record| {
            let subject = &record.subject;
            question.slice.as_ref().is_none_or(|slice| *slice == subject.slice)
                && (question.vif.is_none() || question.vif == subject.vif)
        };
        let [seconds_kept, minutes_kept] = [self.bounds.seconds, self.bounds.minutes];
        let mut cuts: BTreeMap<Subject, Cut> = BTreeMap::new();
        let damaged_seconds = self.seconds.read(|bytes| {
            let second = Record::read(bytes).filter(|r| is_asked(r) && is_kept(r, seconds_kept));
            if let Some(second) = second {
                let cut = cuts.entry(second.subject).or_default();
                cut.first_second = cut.first_second.min(second.first);
            }
        })?;
        let damaged_minutes = self.minutes.read(|bytes| {
            if let Some(minute) = Record::read(bytes).filter(is_asked) {
                cuts.entry(minute.subject.clone()).or_default().see(&minute);
            }
        })?;
        let (mut lines, mut more) = (BTreeMap::new(), BTreeSet::new());
        let fits = |record: &Record| {
            is_asked(record)
                && record.from_unix_ms >= question.since_unix_ms
                && record.at_unix_ms <= question.until_unix_ms
        };
        let by_seconds =
            |record: &Record| cuts.get(&record.subject).is_some_and(|cut| record.first >= cut.at());
        let mut sum = |record: Record| {
            if lines.len() < LINES_MAX || lines.contains_key(&record.subject) {
                add(&mut lines, record);
            } else if more.len() < LINES_MAX {
                more.insert(record.subject);
            }
        };
        self.minutes.read(|bytes| {
            let minute = Record::read(bytes).filter(|r| fits(r) && is_kept(r, minutes_kept));
            if let Some(minute) = minute.filter(|minute| !by_seconds(minute)) {
                sum(minute);
            }
        })?;
        self.seconds.read(|bytes| {
            let second = Record::read(bytes).filter(|r| fits(r) && is_kept(r, seconds_kept));
            if let Some(second) = second.filter(by_seconds) {
                sum(second);
            }
        })?;
        Ok(Answer {
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
    fn see(&mut self, minute: &Record) {
        if minute.first >= self.first_second {
            self.first_minute = self.first_minute.min(minute.first);
        } else {
            self.last_end = self.last_end.max(minute.last + 1);
        }
    }

    /// The minute that has not ended yet is in no record: its seconds tell of it.
    fn at(&self) -> u64 {
        self.first_minute.min(self.first_second.max(self.last_end))
    }
}

fn open(path: &Path, bytes: u64) -> io::Result<Ring> {
    Ring::open(path, bytes)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn bytes(records: &[Record]) -> Vec<Vec<u8>> {
    let each = records.iter().map(|record| {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    });
    each.collect()
}

fn add(lines: &mut BTreeMap<Subject, Line>, record: Record) {
    let from_unix_ms = record.from_unix_ms;
    let line = lines.entry(record.subject.clone()).or_insert_with(|| Line {
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

/// Lines of an answer: a megabyte or two. Who has more names his slices.
pub const LINES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
