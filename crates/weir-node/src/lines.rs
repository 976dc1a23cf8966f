// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of lines that grows at its end; each is on disk when the call that wrote it returns.
//!
//! Blanks stand behind the lines, and the next line takes their place: what changes neither a
//! file's length nor its blocks is synced without a commit of the file system's journal, which
//! would wait for whatever else the machine writes. A line that a crash cut short has no end, since
//! blanks follow, and counts as never written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The file, open at its end.
#[derive(Debug)]
pub(crate) struct Lines {
    file: File,
    /// Bytes of lines.
    end: u64,
    /// Bytes of lines and blanks.
    length: u64,
}

impl Lines {
    /// A new file of `text` and, behind it, at least `room` bytes of blanks; it takes the place of
    /// the one at `path` when it is whole. The folder is made.
    ///
    /// # Errors
    /// The file cannot be written; then the old one is there.
    pub(crate) fn anew(path: &Path, text: &[u8], room: usize) -> io::Result<Self> {
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(folder)?;
        let beside = path.with_extension("new");
        let mut file = create_anew(&beside)?;
        file.write_all(text)?;
        file.write_all(&vec![BLANK; room])?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(folder)?.sync_all()?;
        let length = text.len() + room;
        Ok(Self { file, end: bytes(text.len()), length: bytes(length) })
    }

    /// Writes lines behind the others, which end with a line feed. Where there is no room left, the
    /// file grows.
    ///
    /// # Errors
    /// They cannot be written; then they may stand there in part, and nothing may be added.
    pub(crate) fn add(&mut self, lines: &[u8]) -> io::Result<()> {
        let end = self.end + bytes(lines.len());
        if end <= self.length {
            self.file.write_all_at(lines, self.end)?;
        } else {
            let grown = [lines, &vec![BLANK; GROWTH]].concat();
            self.file.write_all_at(&grown, self.end)?;
            self.length = end + bytes(GROWTH);
        }
        self.file.sync_data()?;
        self.end = end;
        Ok(())
    }

    /// Bytes that can be added before the file grows.
    pub(crate) const fn room(&self) -> u64 {
        self.length - self.end
    }
}

/// The lines of a text that were written to their ends.
pub(crate) fn whole(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter(|line| line.ends_with('\n'))
}

/// A file for root's eyes that was not there, so that no link decides what is written.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

const fn bytes(count: usize) -> u64 {
    count as u64
}

/// No part of a line, and nothing to who reads the file as text or as JSON.
const BLANK: u8 = b' ';

/// Some 200 changes.
pub(crate) const GROWTH: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-lines-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        folder.join("some.lines")
    }

    #[test]
    fn lines_take_the_place_of_blanks_and_the_file_grows_when_none_are_left() {
        let path = path("grow");
        let mut lines = Lines::anew(&path, b"first\n", 10).unwrap();
        lines.add(b"second\n").unwrap();
        assert_eq!(lines.room(), 3);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\nsecond\n   ");
        lines.add(b"third\n").unwrap();
        assert_eq!(lines.room(), bytes(GROWTH));
        lines.add(b"fourth\n").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.len(), "first\nsecond\nthird\n".len() + GROWTH);
        assert_eq!(whole(&text).collect::<String>(), "first\nsecond\nthird\nfourth\n");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    /// As a crash leaves it: the start of a line, and the blanks that it did not come to.
    #[test]
    fn a_cut_line_was_never_written() {
        assert_eq!(whole("one\ntw      ").collect::<Vec<_>>(), ["one\n"]);
        assert_eq!(whole("").count(), 0);
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was() {
        let path = path("whole");
        Lines::anew(&path, b"old\n", 0).unwrap();
        fs::create_dir(path.with_extension("new")).unwrap();
        assert!(Lines::anew(&path, b"new\n", 0).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
