// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of lines that grows at its end; each is on disk when the call that wrote it returns.
//!
//! Blanks stand behind the lines, and the next line takes their place: on a file system that writes
//! in place, such as ext4, what changes neither a file's length nor its blocks is synced without a
//! commit of its journal, which would wait for whatever else the machine writes. What a crash
//! leaves of a line may be any part of it, since sectors come to the disk in any order: so each has
//! a checksum, and the last one counts as never written if its own does not hold.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;

/// The file, and where its lines end.
#[derive(Debug)]
pub(crate) struct Lines {
    file: File,
    /// Bytes of lines.
    end: u64,
    /// Bytes of lines and blanks.
    length: u64,
}

impl Lines {
    /// A new file of `lines` and, behind them, `room` bytes of blanks; it takes the place of the
    /// one at `path` when it is whole. The folder is made.
    ///
    /// # Errors
    /// The file cannot be written: then the old one is there, or the new one if nothing but the
    /// folder could not be synced.
    pub(crate) fn anew(path: &Path, lines: &[u8], room: usize) -> io::Result<Self> {
        let folder = folder_of(path);
        fs::create_dir_all(folder)?;
        let beside = path.with_extension("new");
        let mut file = create_anew(&beside)?;
        file.write_all(lines)?;
        file.write_all(&vec![BLANK; room])?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(folder)?.sync_all()?;
        let end = lines.len() as u64;
        Ok(Self { file, end, length: end + room as u64 })
    }

    /// Writes a [`line`] behind the others. Where there is no room left, the file grows.
    ///
    /// # Errors
    /// It cannot be written, and is blanked again as far as that can be; then nothing may be added.
    pub(crate) fn add(&mut self, line: &[u8]) -> io::Result<()> {
        let end = self.end + line.len() as u64;
        let written = if end <= self.length {
            self.file.write_all_at(line, self.end)
        } else {
            let grown = [line, &vec![BLANK; GROWTH]].concat();
            self.length = end + GROWTH as u64;
            self.file.write_all_at(&grown, self.end)
        };
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // The asker is told of the first error.
            let blanked = self.file.write_all_at(&vec![BLANK; line.len()], self.end);
            let _told = blanked.and_then(|()| self.file.sync_data());
            return Err(error);
        }
        self.end = end;
        Ok(())
    }

    /// Bytes of lines.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that can be added before the file grows.
    pub(crate) const fn room(&self) -> u64 {
        self.length - self.end
    }

    /// Whether the file is at `path`, and as long as it was left: nobody has put another there, or
    /// cut it.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let seen = |meta: fs::Metadata| ((meta.dev(), meta.ino()), meta.len());
        let named = fs::symlink_metadata(path).map(seen);
        match (self.file.metadata().map(seen), named) {
            (Ok((held, _)), Ok((named, length))) => held == named && length == self.length,
            _ => false,
        }
    }
}

/// A value as a line of JSON, `["89abcdef",…]`: its checksum, CRC-32, and itself.
pub(crate) fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let value = serde_json::to_string(value).map_err(io::Error::other)?;
    Ok(format!("[\"{:08x}\",{value}]\n", crc32fast::hash(value.as_bytes())).into_bytes())
}

/// The text of a file of at most `bytes_max` bytes; `None` if there is no such file. Where a crash
/// cut a character of a line, something else stands in its place: the checksum does not hold.
///
/// # Errors
/// It cannot be read, is larger, or is no text and has no checksums, as in the first version.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("more than {bytes_max} bytes")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.as_bytes().starts_with(b"[") => {
            Ok(Some(String::from_utf8_lossy(error.as_bytes()).into_owned()))
        }
        Err(error) => Err(io::Error::other(error.utf8_error())),
    }
}

/// The values of a file's lines, as text. The last one is left out if its checksum does not hold.
///
/// # Errors
/// The checksum of a line before does not.
pub(crate) fn values(text: &str) -> io::Result<Vec<&str>> {
    let (mut values, mut rest, mut number) = (Vec::new(), text, 0_u64);
    while let Some((line, behind)) = rest.split_once('\n') {
        number += 1;
        match value(line) {
            Some(value) => values.push(value),
            // What is left of a line that was being written, where a file system may leave zeros.
            None if behind.bytes().all(|byte| matches!(byte, BLANK | b'\n' | 0)) => break,
            None => {
                let message = format!("line {number} is damaged: its checksum does not hold");
                return Err(io::Error::other(message));
            }
        }
        rest = behind;
    }
    Ok(values)
}

fn value(line: &str) -> Option<&str> {
    let (sum, value) = line.strip_prefix("[\"")?.split_once("\",")?;
    let value = value.strip_suffix(']')?;
    (u32::from_str_radix(sum, 16) == Ok(crc32fast::hash(value.as_bytes()))).then_some(value)
}

/// Removes a file, if it is there, so that it stays away.
///
/// # Errors
/// It cannot be removed, or the folder not be synced.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| File::open(folder_of(path))?.sync_all()),
    }
}

/// A file for root's eyes that was not there, so that no link decides what is written.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("/"))
}

/// Nothing to who reads the file as text or as JSON.
const BLANK: u8 = b' ';

/// Some 200 changes.
pub(crate) const GROWTH: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn path(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-lines-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        folder.join("some.lines")
    }

    fn text(lines: &[&str]) -> String {
        lines.iter().map(|text| String::from_utf8(line(text).unwrap()).unwrap()).collect()
    }

    #[test]
    fn lines_take_the_place_of_blanks_and_the_file_grows_when_none_are_left() {
        let path = path("grow");
        let [first, second, third] = ["first", "second", "third"].map(|text| line(&text).unwrap());
        let mut lines = Lines::anew(&path, &first, second.len() + 3).unwrap();
        lines.add(&second).unwrap();
        assert_eq!(lines.room(), 3);
        assert_eq!(fs::read_to_string(&path).unwrap(), text(&["first", "second"]) + "   ");
        lines.add(&third).unwrap();
        assert_eq!(lines.room(), GROWTH as u64);
        lines.add(&first).unwrap();
        let all = fs::read_to_string(&path).unwrap();
        assert_eq!(all.len(), text(&["first", "second", "third"]).len() + GROWTH);
        let values = values(&all).unwrap();
        assert_eq!(values, ["\"first\"", "\"second\"", "\"third\"", "\"first\""]);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    /// Each part of the last line on disk and the others not, in pieces of 8 bytes: it was never
    /// written. The same of a line before: that is damage.
    #[test]
    fn whatever_a_crash_leaves_of_the_last_line_it_was_never_written() {
        let (first, last) = (text(&["first"]), text(&["a line of some length", ""]));
        let last = last.split_inclusive('\n').next().unwrap();
        let pieces: Vec<&str> =
            (0..last.len()).step_by(8).map(|at| &last[at..(at + 8).min(last.len())]).collect();
        for mask in 0..(1_u32 << pieces.len()) - 1 {
            let kept = pieces.iter().zip(0..).map(|(piece, bit)| match mask >> bit & 1 {
                1 => (*piece).to_owned(),
                _ => " ".repeat(piece.len()),
            });
            let torn = first.clone() + &kept.collect::<String>();
            assert_eq!(values(&(torn.clone() + "    ")).unwrap(), ["\"first\""], "{torn:?}");
            if torn.ends_with('\n') {
                let refused = values(&(torn + &first)).unwrap_err().to_string();
                assert_eq!(refused, "line 2 is damaged: its checksum does not hold");
            }
        }
        assert_eq!(values(&(first.clone() + last)).unwrap().len(), 2);
        let zeros = format!("{first}{}\n\0\0\0", "\0".repeat(9));
        assert_eq!(values(&zeros).unwrap(), ["\"first\""]);
    }

    /// A crash in the middle of a character of two bytes.
    #[test]
    fn a_character_that_was_cut_is_no_reason_to_read_nothing() {
        let path = path("cut");
        let [first, second] = ["first", "zweit\u{e4}"].map(|text| line(&text).unwrap());
        assert_eq!(read(&path, 9).unwrap(), None);
        let cut = second.iter().position(|byte| *byte > 127).unwrap() + 1;
        for end in [&b"    "[..], b" \"]\n  "] {
            let torn = [&first, &second[..cut], end].concat();
            drop(Lines::anew(&path, &torn, 0).unwrap());
            let length = torn.len() as u64;
            let text = read(&path, length).unwrap().unwrap();
            assert_eq!(values(&text).unwrap(), ["\"first\""], "{text}");
            let longer = read(&path, length - 1).unwrap_err().to_string();
            assert_eq!(longer, format!("more than {} bytes", length - 1));
        }
        fs::write(&path, b"{\"version\":1,\"who\":\"\xc3\"}").unwrap();
        assert!(read(&path, 99).is_err(), "nothing would tell that it is not what was written");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was() {
        let path = path("whole");
        let lines = Lines::anew(&path, b"old\n", 0).unwrap();
        fs::create_dir(path.with_extension("new")).unwrap();
        assert!(Lines::anew(&path, b"new\n", 0).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
        assert!(lines.is_at(&path));
        fs::copy(&path, path.with_extension("other")).unwrap();
        fs::rename(path.with_extension("other"), &path).unwrap();
        assert!(!lines.is_at(&path), "somebody else's");
        fs::remove_dir(path.with_extension("new")).unwrap();
        let lines = Lines::anew(&path, b"old\n", 9).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(4).unwrap();
        assert!(!lines.is_at(&path), "cut by somebody else");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    /// A file that is full for whoever writes: nothing is there of what was refused.
    #[test]
    fn what_could_not_be_added_is_not_there() {
        let path = path("full");
        let mut lines = Lines::anew(&path, b"", 100).unwrap();
        lines.file = File::open(&path).unwrap();
        assert!(lines.add(&line(&"more").unwrap()).is_err(), "opened for reading");
        assert_eq!((lines.room(), fs::read_to_string(&path).unwrap()), (100, " ".repeat(100)));
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
