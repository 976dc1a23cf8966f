// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of an overlay: [lines](crate::lines) of JSON, each the whole overlay as one change left
//! it; the last whose checksum holds is what holds.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::lines::{self, Lines, line};
use crate::overlay::{ENTRIES_MAX, Entry, Overlay};

/// Where an overlay is kept for the next start.
#[derive(Debug)]
pub(crate) struct OverlayFile {
    path: PathBuf,
    /// Written anew with the first overlay.
    lines: Option<Lines>,
}

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    entries: Vec<Entry>,
}

impl OverlayFile {
    /// The file at `path`, which may not exist yet.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), lines: None }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what [`Self::keep`] wrote; no file is an empty overlay.
    ///
    /// # Errors
    /// The file cannot be read, is larger than it may be, of another version, or damaged.
    pub(crate) fn read(&self) -> io::Result<Overlay> {
        let Some(text) = lines::read(&self.path, FILE_BYTES_MAX)? else {
            return Ok(Overlay::default());
        };
        // The first version was one value, on as many lines as read well.
        let (expected, value) = match text.starts_with('{') {
            true => (FIRST_VERSION, Some(text.as_str())),
            false => (VERSION, lines::values(&text)?.pop()),
        };
        let value = value.ok_or_else(|| io::Error::other("no line of it is whole"))?;
        let Stored { version, entries } = serde_json::from_str(value).map_err(io::Error::other)?;
        if version != expected {
            return Err(io::Error::other(format!(
                "version {version}; this Weir reads {FIRST_VERSION} and {VERSION}"
            )));
        }
        if entries.len() > ENTRIES_MAX {
            let count = entries.len();
            return Err(io::Error::other(format!("{count} entries, at most {ENTRIES_MAX}")));
        }
        Ok(Overlay::of(entries))
    }

    /// Keeps an overlay, whole or not at all; an empty one has no file.
    ///
    /// # Errors
    /// The file cannot be written, or would be larger than it may be. If it cannot be written back
    /// either, it may be found at the next start all the same.
    pub(crate) fn keep(&mut self, overlay: &Overlay) -> io::Result<()> {
        if overlay.entries().is_empty() {
            self.lines = None;
            return lines::remove(&self.path);
        }
        let text = line(&Stored { version: VERSION, entries: overlay.entries().to_vec() })?;
        if text.len() > LINE_BYTES_MAX {
            return Err(io::Error::other(format!("more than {LINE_BYTES_MAX} bytes of changes")));
        }
        // Not taken up again after an error: half a line may stand there.
        self.lines = Some(match self.lines.take() {
            Some(mut lines) if text.len() as u64 <= lines.room() && lines.is_at(&self.path) => {
                lines.add(&text)?;
                lines
            }
            _ => Lines::anew(&self.path, &text, ROOM.max(text.len()))?,
        });
        Ok(())
    }
}

/// Of the format.
const VERSION: u32 = 2;
const FIRST_VERSION: u32 = 1;

/// Some 100 bytes an entry.
const LINE_BYTES_MAX: usize = 4 << 20;

/// A line, and room for as much again.
const FILE_BYTES_MAX: u64 = 2 * LINE_BYTES_MAX as u64;

/// Some 200 changes of a few vifs; the next one takes the time of a new file.
const ROOM: usize = 256 << 10;
const _: () = assert!(ROOM <= LINE_BYTES_MAX, "a file has room for two lines at most");

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use weir_platform::StateDir;

    fn entry(name: &str, rate: &str) -> Entry {
        let path = ["vif", name, "send", "rate"].map(str::to_owned).to_vec();
        Entry { path, base: None, value: Some(rate.into()) }
    }

    fn overlay(rate: &str) -> Overlay {
        Overlay::of(vec![entry("a", rate)])
    }

    fn file(name: &str) -> OverlayFile {
        let folder =
            std::env::temp_dir().join(format!("weir-overlay-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        OverlayFile::at(&Overlay::path(&StateDir::at(&folder), "edge"))
    }

    fn gone(file: &OverlayFile) {
        fs::remove_dir_all(file.path().parent().unwrap()).unwrap();
    }

    /// While there is room the file is the same one and of the same length; then it is another.
    #[test]
    fn the_last_that_was_kept_is_read_and_an_empty_one_has_no_file() {
        let mut file = file("last");
        assert_eq!(file.read().unwrap(), Overlay::default());
        let of = |file: &OverlayFile| fs::metadata(file.path()).unwrap();
        let name = "a".repeat(ROOM / 10);
        let large = |rate: &str| Overlay::of(vec![entry(&name, rate)]);
        file.keep(&large("0Mbit")).unwrap();
        let first = of(&file);
        for rate in 1..=9 {
            file.keep(&large(&format!("{rate}Mbit"))).unwrap();
            assert_eq!(file.read().unwrap(), large(&format!("{rate}Mbit")));
            assert_eq!((of(&file).ino(), of(&file).len()), (first.ino(), first.len()));
        }
        file.keep(&large("10Mbit")).unwrap();
        assert_eq!(file.read().unwrap(), large("10Mbit"));
        assert_ne!(of(&file).ino(), first.ino(), "no room was left");
        file.keep(&Overlay::default()).unwrap();
        assert!(!file.path().exists());
        file.keep(&overlay("1Mbit")).unwrap();
        assert_eq!(file.read().unwrap(), overlay("1Mbit"), "after none, as at first");
        fs::remove_file(file.path()).unwrap();
        file.keep(&overlay("2Mbit")).unwrap();
        assert_eq!(file.read().unwrap(), overlay("2Mbit"), "where somebody removed it");
        gone(&file);
    }

    #[test]
    fn what_is_too_much_is_refused_and_what_was_kept_stays() {
        let mut file = file("much");
        let largest = overlay(&"1".repeat(LINE_BYTES_MAX - 200));
        file.keep(&largest).unwrap();
        assert_eq!(file.read().unwrap(), largest, "as much as there may be");
        let refused = file.keep(&overlay(&"1".repeat(LINE_BYTES_MAX))).unwrap_err().to_string();
        assert_eq!(refused, format!("more than {LINE_BYTES_MAX} bytes of changes"));
        assert_eq!(file.read().unwrap(), largest);
        gone(&file);
    }

    /// A crash in the middle of the second: the first holds.
    #[test]
    fn a_line_that_was_cut_short_was_never_kept() {
        let mut file = file("cut");
        file.keep(&overlay("1Mbit")).unwrap();
        let before = fs::read_to_string(file.path()).unwrap();
        file.keep(&overlay("2Mbit")).unwrap();
        let cut = before.trim_end().len() + 1 + 20;
        let after = fs::read_to_string(file.path()).unwrap();
        fs::write(file.path(), [&after[..cut], &before[cut..]].concat()).unwrap();
        assert_eq!(file.read().unwrap(), overlay("1Mbit"));
        gone(&file);
    }

    #[test]
    fn the_first_version_is_read_another_and_damage_are_refused() {
        let file = file("version");
        let first = r#"{
  "version": 1,
  "entries": [
    { "path": ["vif", "a", "send", "rate"], "base": null, "value": "7Mbit" }
  ]
}"#;
        fs::write(file.path(), first).unwrap();
        assert_eq!(file.read().unwrap(), overlay("7Mbit"));
        fs::write(file.path(), line(&Stored { version: 3, entries: Vec::new() }).unwrap()).unwrap();
        assert!(file.read().unwrap_err().to_string().contains("version 3"));
        for damaged in ["{\"version\":1", "", "[\"12345678\",{}]\n"] {
            fs::write(file.path(), damaged).unwrap();
            assert!(file.read().is_err(), "{damaged}");
        }
        gone(&file);
    }
}
