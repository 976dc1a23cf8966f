// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads what earlier versions of Weir kept instead of the [database](crate::policy_store): the
//! overlay, `overlay-NAME.json`, and the record of changes, `changes-NAME.jsonl`.
//!
//! Each file had two versions. The first was plain JSON. The second had lines `["89abcdef",…]`,
//! each with the CRC-32 of the JSON behind it. A last line whose checksum did not match counted as
//! never written, as after a crash. The overlay was its last line, the record all lines behind a
//! header.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use weir_platform::StateDir;
use weir_policy::{Edit, KeyPath};

use crate::changes::PolicyChange;
use crate::policy_store::{EDITS_MAX, StoredEdit};

/// Returns the paths of the files of the node `name`: the overlay, then the record.
#[must_use]
pub fn paths(state: &StateDir, name: &str) -> [PathBuf; 2] {
    let folder = state.lasting();
    [folder.join(format!("overlay-{name}.json")), folder.join(format!("changes-{name}.jsonl"))]
}

/// One key of an old overlay.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverlayEntry {
    /// Table, name, and the segments of the key.
    path: Vec<String>,
    /// The file's value when the entry was made, defaults included.
    base: Option<Value>,
    /// The value that holds instead.
    value: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverlayLine {
    version: u32,
    entries: Vec<OverlayEntry>,
}

#[derive(Deserialize)]
struct RecordHeader {
    format: String,
    version: u32,
}

/// Reads an overlay; a missing file counts as one without entries. Every value that differed from
/// the file is an entry, even one that was derived from another, as a burst is from its rate.
///
/// # Errors
/// The file cannot be read, is larger than it may be, of another version, or damaged.
pub(crate) fn overlay(path: &Path) -> io::Result<Vec<StoredEdit>> {
    let Some(text) = read(path, OVERLAY_BYTES_MAX)? else { return Ok(Vec::new()) };
    let (expected, value) = match text.starts_with('{') {
        true => (PLAIN, Some(text.as_str())),
        false => (WITH_CHECKSUMS, values(&text)?.pop()),
    };
    let value = value.ok_or_else(|| io::Error::other("no line of it is whole"))?;
    let OverlayLine { version, entries } = serde_json::from_str(value).map_err(io::Error::other)?;
    if version != expected {
        let text = format!("version {version}; this Weir reads {PLAIN} and {WITH_CHECKSUMS}");
        return Err(io::Error::other(text));
    }
    if entries.len() > EDITS_MAX {
        let count = entries.len();
        return Err(io::Error::other(format!("{count} entries, at most {EDITS_MAX}")));
    }
    let mut edits: Vec<StoredEdit> = entries.into_iter().filter_map(OverlayEntry::edit).collect();
    edits.sort_by(|a, b| a.edit.order(&b.edit));
    Ok(edits)
}

impl OverlayEntry {
    fn edit(self) -> Option<StoredEdit> {
        let [table, name, keys @ ..] = self.path.as_slice() else { return None };
        let place = KeyPath::of(table, name, &keys.join("."));
        let edit = Edit { place, before: self.base.clone(), after: self.value, index: None };
        Some(StoredEdit { edit, file_meaning: self.base })
    }
}

/// Reads a record of changes, oldest first; a missing file counts as one without changes.
///
/// # Errors
/// The file cannot be read, is larger than it may be, of another version, or damaged.
pub(crate) fn record(path: &Path) -> io::Result<Vec<PolicyChange>> {
    let Some(text) = read(path, RECORD_BYTES_MAX)? else { return Ok(Vec::new()) };
    let plain = text.starts_with('{');
    let lines = match plain {
        true => text.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect(),
        false => values(&text)?,
    };
    let mut lines = lines.into_iter();
    let first = lines.next().ok_or_else(|| io::Error::other("no line of it is whole"))?;
    let RecordHeader { format, version } = serde_json::from_str(first).map_err(io::Error::other)?;
    let expected = if plain { PLAIN } else { WITH_CHECKSUMS };
    if (format.as_str(), version) != (RECORD_FORMAT, expected) {
        return Err(io::Error::other(format!(
            "{format} of version {version} is not {RECORD_FORMAT} of version {PLAIN} or \
             {WITH_CHECKSUMS}"
        )));
    }
    lines.map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

/// Returns the text of a file; `None` if there is no such file. If a crash cut a character, a
/// replacement stands in its place, so that the line's checksum does not match.
fn read(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
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

/// Returns the JSON of lines with checksums. The last line is left out if its checksum does not
/// match.
fn values(text: &str) -> io::Result<Vec<&str>> {
    let (mut values, mut rest, mut number) = (Vec::new(), text, 0_u64);
    while let Some((line, behind)) = rest.split_once('\n') {
        number += 1;
        match value(line) {
            Some(value) => values.push(value),
            // The line that was being written. Only blanks or zeros may follow it.
            None if behind.bytes().all(|byte| matches!(byte, b' ' | b'\n' | 0)) => break,
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

/// Renames each file to `FILE.old`, in the place of one that was put aside before.
///
/// # Errors
/// A file cannot be renamed.
pub(crate) fn put_aside(paths: &[PathBuf]) -> io::Result<()> {
    for path in paths {
        let mut aside = path.clone().into_os_string();
        aside.push(".old");
        match fs::rename(path, aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match paths.first().and_then(|path| path.parent()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

const RECORD_FORMAT: &str = "weir-changes";
const PLAIN: u32 = 1;
const WITH_CHECKSUMS: u32 = 2;
/// The bounds that the versions which wrote the files had.
const OVERLAY_BYTES_MAX: u64 = 8 << 20;
const RECORD_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this text.
    fn file(name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let name = format!("weir-old-files-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn line(json: &str) -> String {
        format!("[\"{:08x}\",{json}]\n", crc32fast::hash(json.as_bytes()))
    }

    fn entry(rate: &str) -> String {
        format!(r#"{{"path":["vif","a","send","rate"],"base":null,"value":"{rate}"}}"#)
    }

    fn rates(path: &Path) -> Vec<String> {
        let edits = overlay(path).unwrap();
        edits.iter().map(|stored| stored.edit.to_string()).collect()
    }

    #[test]
    fn both_versions_of_an_overlay_are_read_another_and_damage_are_refused() {
        let plain = format!("{{ \"version\": 1,\n \"entries\": [{}] }}", entry("7Mbit"));
        let path = file("overlay", plain);
        let seven = "vif \"a\".send.rate: nothing -> \"7Mbit\"";
        assert_eq!(rates(&path), [seven]);
        let whole = |rate| format!(r#"{{"version":2,"entries":[{}]}}"#, entry(rate));
        fs::write(&path, format!("{}{}    ", line(&whole("8Mbit")), line(&whole("7Mbit"))))
            .unwrap();
        assert_eq!(rates(&path), [seven], "the last line holds");
        fs::write(&path, line(r#"{"version":3,"entries":[]}"#)).unwrap();
        assert!(overlay(&path).unwrap_err().to_string().contains("version 3"));
        for damaged in ["{\"version\":1", "", "[\"12345678\",{}]\n"] {
            fs::write(&path, damaged).unwrap();
            assert!(overlay(&path).is_err(), "{damaged}");
        }
        fs::write(&path, b"{\"version\":1,\"who\":\"\xc3\"}").unwrap();
        assert!(overlay(&path).is_err(), "nothing would tell that it is not what was written");
        fs::remove_file(&path).unwrap();
        assert_eq!(overlay(&path).unwrap(), []);
    }

    #[test]
    fn both_versions_of_a_record_are_read_another_and_damage_are_refused() {
        let header = |version| format!(r#"{{"format":"weir-changes","version":{version}}}"#);
        let change = r#"{"id":41,"at_unix_ms":0,"who":"uid 0","kind":"change","edits":[]}"#;
        let path = file("record", format!("{}\n{change}\n{{\"id\":", header(1)));
        assert_eq!(record(&path).unwrap()[0].id, 41);
        fs::write(&path, line(&header(2)) + &line(change) + "[\"1234\",{\"id\"  ").unwrap();
        assert_eq!(record(&path).unwrap().len(), 1);
        fs::write(&path, line(&header(3))).unwrap();
        let refused = record(&path).unwrap_err().to_string();
        assert!(refused.contains("version 3 is not weir-changes of version 1 or 2"), "{refused}");
        for damaged in ["", "[\"12345678\",{}]\n\0\0", "{\"format\":"] {
            fs::write(&path, damaged).unwrap();
            let refused = record(&path).unwrap_err().to_string();
            assert_eq!(refused, "no line of it is whole", "{damaged}");
        }
        fs::remove_file(&path).unwrap();
    }

    /// Goal: if any subset of the last line's 8-byte pieces is missing on disk, the line counts as
    /// never written. The same of an earlier line is damage.
    #[test]
    fn whatever_a_crash_leaves_of_the_last_line_it_was_never_written() {
        let (first, last) = (line("\"first\""), line("\"a line of some length\""));
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
        assert_eq!(values(&(first.clone() + &last)).unwrap().len(), 2);
        let zeros = format!("{first}{}\n\0\0\0", "\0".repeat(9));
        assert_eq!(values(&zeros).unwrap(), ["\"first\""]);
    }

    /// Goal: a crash in the middle of a two-byte character costs the last line only.
    #[test]
    fn a_character_that_was_cut_is_no_reason_to_read_nothing() {
        let [first, second] = ["\"first\"", "\"zweit\u{e4}\""].map(|json| line(json).into_bytes());
        let cut = second.iter().position(|byte| *byte > 127).unwrap() + 1;
        for end in [&b"    "[..], b" \"]\n  "] {
            let torn = [&first, &second[..cut], end].concat();
            let path = file("cut", &torn);
            let length = torn.len() as u64;
            let text = read(&path, length).unwrap().unwrap();
            assert_eq!(values(&text).unwrap(), ["\"first\""], "{text}");
            let longer = read(&path, length - 1).unwrap_err().to_string();
            assert_eq!(longer, format!("more than {} bytes", length - 1));
            fs::remove_file(path).unwrap();
        }
    }
}
