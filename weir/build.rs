// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts the commit into the version, so that two programs can tell whether one build made both.
//!
//! `./x` names the commit in `WEIR_COMMIT`. A plain `cargo build` asks git, again at each new
//! commit, and says `unchecked`: the tree may differ, and does not run this script when it changes.
//! Outside of a repository the commit is `unknown`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    let named = std::env::var("WEIR_COMMIT").ok();
    let commit = named.or_else(checked_out).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=WEIR_COMMIT={commit}");
    println!("cargo:rustc-env=WEIR_VERSION={} ({commit})", env!("CARGO_PKG_VERSION"));
}

/// The commit that is checked out.
fn checked_out() -> Option<String> {
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    Some(format!("{}-unchecked", git(&["rev-parse", "HEAD"])?))
}

/// Runs git and returns its output; `None` if git fails or is not installed.
fn git(arguments: &[&str]) -> Option<String> {
    let told = Command::new("git").args(arguments).output().ok()?;
    let text = told.status.success().then(|| String::from_utf8(told.stdout).ok()).flatten()?;
    Some(text.trim().to_owned())
}
