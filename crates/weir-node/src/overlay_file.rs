// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of an overlay: lines of JSON, each the whole overlay as one change left it; the last
//! that was written to its end holds.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::changes::line;
use crate::lines::{self, Lines};
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
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Overlay::default()),
            opened => opened?,
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes")));
        }
        // The first version was one value on as many lines as read well.
        let last = lines::whole(&text).last().filter(|line| line.starts_with('{'));
        let Stored { version, entries } =
            serde_json::from_str(last.unwrap_or(&text)).map_err(io::Error::other)?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(io::Error::other(format!("version {version}; this Weir reads {VERSION}")));
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
    /// The file cannot be written, or would be larger than it may be.
    pub(crate) fn keep(&mut self, overlay: &Overlay) -> io::Result<()> {
        let lines = self.lines.take();
        if overlay.entries().is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let text = line(&Stored { version: VERSION, entries: overlay.entries().to_vec() })?;
        if text.len() > LINE_BYTES_MAX {
            return Err(io::Error::other(format!("more than {LINE_BYTES_MAX} bytes of changes")));
        }
        // Not taken up again after an error: half a line may stand there.
        self.lines = Some(match lines {
            Some(mut lines) if text.len() as u64 <= lines.room() => {
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

/// Some 250 bytes an entry.
const LINE_BYTES_MAX: usize = 4 << 20;

/// A line, and room for as much again.
const FILE_BYTES_MAX: u64 = 2 * LINE_BYTES_MAX as u64;

/// Some 200 changes of a few vifs; the next one takes the time of a new file.
const ROOM: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_host::StateDir;

    fn overlay(rate: &str) -> Overlay {
        let path = ["vif", "a", "send", "rate"].map(str::to_owned).to_vec();
        Overlay::of(vec![Entry { path, base: None, value: Some(rate.into()) }])
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

    #[test]
    fn the_last_that_was_kept_is_read_and_an_empty_one_has_no_file() {
        let mut file = file("last");
        assert_eq!(file.read().unwrap(), Overlay::default());
        let mut sizes = Vec::new();
        // More than the room: the file is written anew on the way, and does not grow.
        for number in 0..5_000 {
            let kept = overlay(&format!("{number}Mbit"));
            file.keep(&kept).unwrap();
            if number % 100 == 0 {
                assert_eq!(file.read().unwrap(), kept);
                sizes.push(fs::metadata(file.path()).unwrap().len());
            }
        }
        assert!(sizes.iter().all(|size| *size < (ROOM + 200) as u64), "{sizes:?}");
        file.keep(&Overlay::default()).unwrap();
        assert!(!file.path().exists());
        file.keep(&overlay("1Mbit")).unwrap();
        assert_eq!(file.read().unwrap(), overlay("1Mbit"), "after none, as at first");
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
        fs::write(file.path(), "{\"version\":3,\"entries\":[]}\n").unwrap();
        assert!(file.read().unwrap_err().to_string().contains("version 3"));
        for damaged in ["{\"version\":1", "", "{\"version\":2,\"entries\":[}\n"] {
            fs::write(file.path(), damaged).unwrap();
            assert!(file.read().is_err(), "{damaged}");
        }
        gone(&file);
    }
}
