// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laboratory says something only of the `weir` that was built with it.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The version of the stand-in is another one, or the program is missing: the demonstration ends
/// before it makes anything, with a text that names the program and both versions.
#[test]
fn a_weir_of_another_build_is_refused() {
    let folder = std::env::temp_dir().join(format!("weir-t-build-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let lab = folder.join("weir-lab");
    std::fs::copy(env!("CARGO_BIN_EXE_weir-lab"), &lab).unwrap();
    let (status, said) = demo(&lab);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("weir: not there"), "{said}");
    let weir = folder.join("weir");
    std::fs::write(&weir, "#!/bin/sh\necho weir 9.9.9 '(f00)'\n").unwrap();
    std::fs::set_permissions(&weir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (status, said) = demo(&lab);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("9.9.9 (f00)") && said.contains("expected"), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

fn demo(lab: &Path) -> (Option<i32>, String) {
    let output = Command::new(lab).args(["demo", "--quick"]).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}
