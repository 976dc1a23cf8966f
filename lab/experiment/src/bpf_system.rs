// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A BPF file system for the nodes of a trial, on machines whose service manager mounts none. Nodes
//! pin there what outlives their process.

use weir_platform::host::Change;
use weir_platform::run::Command;
use weir_platform::{ChangePurpose, StateDir, Undo};
use weir_ports::Pins;

use crate::Result;
use crate::host_changes::HostChanges;

/// Mounts a BPF file system in the state folder, unless nodes with this folder find one already.
pub fn mount() -> Result<Option<HostChanges>> {
    let state = StateDir::from_env();
    if Pins::of(state.path(), "trial").is_some() {
        return Ok(None);
    }
    let folder = Pins::own_system(state.path()).display().to_string();
    let change = Change {
        purpose: ChangePurpose::Other,
        what: format!("{folder}: a BPF file system"),
        run: vec![
            Command::new("mkdir", ["-p", folder.as_str()]),
            Command::new("mount", ["-t", "bpf", "bpf", folder.as_str()]),
        ],
        undo: Undo::Run(vec![
            Command::new("umount", [folder.as_str()]),
            Command::new("rmdir", [folder.as_str()]),
        ]),
    };
    HostChanges::make("bpf-system", || vec![change]).map(Some)
}
