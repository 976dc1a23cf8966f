// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A root file system in memory, and its archive, which a kernel unpacks as its initramfs.
//!
//! Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst ("newc").

use std::collections::BTreeMap;

/// Entries by their paths, without a slash in front; folders are made as they are needed.
#[derive(Default)]
pub(super) struct Root(BTreeMap<String, Entry>);

enum Entry {
    Folder,
    File { mode: u32, content: Vec<u8> },
    Link(String),
}

impl Root {
    pub(super) fn folder(&mut self, path: &str) {
        self.add(path, Entry::Folder);
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { mode: 0o755, content: content.into() });
    }

    pub(super) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { mode: 0o644, content: content.into() });
    }

    /// Adds a symbolic link, unless something is there already.
    pub(super) fn link(&mut self, path: &str, to: &str) {
        if !self.has(path) {
            self.add(path, Entry::Link(to.to_owned()));
        }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path.trim_start_matches('/'))
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            self.0.entry(path[..end].to_owned()).or_insert(Entry::Folder);
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// Returns the archive. Names come in order, so that a folder precedes its content.
    pub(super) fn archive(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, (path, entry)) in (1..).zip(&self.0) {
            let (mode, content) = match entry {
                Entry::Folder => (0o040_755, &[][..]),
                Entry::File { mode, content } => (0o100_000 | mode, content.as_slice()),
                Entry::Link(to) => (0o120_777, to.as_bytes()),
            };
            append(&mut out, number, mode, path, content);
        }
        append(&mut out, 0, 0, "TRAILER!!!", &[]);
        out
    }
}

fn append(out: &mut Vec<u8>, inode: u32, mode: u32, path: &str, content: &[u8]) {
    let [links, none] = [1, 0];
    // The owner is root, and times are 0, so that the same tree gives the same bytes.
    let fields = [inode, mode, none, none, links, none].map(u64::from);
    let [size, name] = [content.len() as u64, path.len() as u64 + 1];
    let rest = [size, 0, 0, 0, 0, name, 0];
    out.extend_from_slice(b"070701");
    for field in fields.into_iter().chain(rest) {
        out.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(content);
    pad(out);
}

/// Pads to a multiple of four bytes.
fn pad(out: &mut Vec<u8>) {
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: a header of 110 bytes, the name with its zero, the content, each to four bytes.
    #[test]
    fn folders_come_first_and_everything_is_padded() {
        let mut root = Root::default();
        root.program("/bin/sh", *b"12345");
        root.link("/bin/sh", "busybox");
        root.link("/init", "bin/sh");
        assert!(root.has("/bin/sh") && !root.has("/bin/ls"));
        let archive = root.archive();
        let text = String::from_utf8_lossy(&archive);
        let places: Vec<_> = text.match_indices("070701").map(|(at, _)| at).collect();
        // "bin": 110 + 4 → 116; "bin/sh": 110 + 7 → 120, + 5 → 128; "init": 110 + 5 → 116, + 6.
        assert_eq!(places, [0, 116, 244, 368]);
        assert_eq!(&text[116 + 14..116 + 22], "000081ED", "a file, 0755");
        assert_eq!(&text[236..241], "12345");
        assert!(text.contains("TRAILER!!!") && archive.len().is_multiple_of(4));
    }
}
