// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A BPF file system of the node's own, for hosts whose service manager mounts none: without one
//! nothing outlives the process.

use std::path::Path;

use super::Change;
use crate::run::Command;
use crate::undo::Undo;

/// What mounts a BPF file system at `folder`, which is made if it is missing, and takes both away.
#[must_use]
pub fn bpf_system(folder: &Path) -> Change {
    let path = folder.display().to_string();
    Change {
        what: format!("{path}: a BPF file system, on which the data plane outlives the node"),
        run: vec![
            Command::new("mkdir", ["-p", path.as_str()]),
            Command::new("mount", ["-t", "bpf", "bpf", path.as_str()]),
        ],
        // Lazily, since a process that looks at it must not keep the node from ending. `rmdir`
        // refuses a folder that somebody else keeps something in.
        undo: Undo::Run(vec![
            Command::new("umount", ["-l", path.as_str()]),
            Command::new("rmdir", [path.as_str()]),
        ]),
    }
}
