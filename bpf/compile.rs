// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the build scripts of the crates that embed a program: compiles `bpf/NAME.bpf.c` with
// clang into `OUT_DIR`. A part of each script, not a crate, so that a build needs nothing more.

use std::path::PathBuf;
use std::process::Command;
use std::{env, io};

/// Compiles these programs.
pub(crate) fn programs(names: &[&str]) -> io::Result<()> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../../bpf");
    let out = PathBuf::from(variable("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-env-changed=WEIR_CLANG");
    println!("cargo::rerun-if-env-changed=WEIR_BPF_INCLUDE");
    let clang = env::var("WEIR_CLANG").unwrap_or_else(|_| "clang".to_owned());
    for name in names {
        let source = root.join(name).with_extension("bpf.c");
        let status = Command::new(&clang)
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c"])
            .arg(format!("-I{}", include_directory()))
            .arg(&source)
            .arg("-o")
            .arg(out.join(name).with_extension("bpf.o"))
            .status()
            .map_err(|error| io::Error::other(format!("{clang}: {error}; install clang")))?;
        if !status.success() {
            let source = source.display();
            return Err(io::Error::other(format!("{clang} failed on {source}: {status}")));
        }
    }
    Ok(())
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// Debian keeps `asm/types.h` in a directory named after the architecture; gcc knows its name.
fn include_directory() -> String {
    env::var("WEIR_BPF_INCLUDE").unwrap_or_else(|_| {
        let name = Command::new("gcc").arg("-print-multiarch").output();
        let name = name.map(|output| output.stdout).unwrap_or_default();
        format!("/usr/include/{}", String::from_utf8_lossy(&name).trim())
    })
}
