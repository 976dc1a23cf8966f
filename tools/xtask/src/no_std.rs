// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The proof that the pure crates need no operating system.
//!
//! `proof/no-std` links them into a static library that brings its own panic handler and its own
//! allocator. If one of them, or anything below them, named `std`, there would be two panic
//! handlers, and the compiler refuses that. The canary names `std` on purpose, and must fail:
//! else the proof would prove nothing.

use crate::command::{self, cargo, run};

/// Builds the proof, then checks that its canary does not build.
pub(crate) fn prove() -> Result<(), String> {
    let arguments = ["build", "--quiet", "--manifest-path", "proof/no-std/Cargo.toml"];
    run(&mut cargo(&arguments))?;
    let mut canary = cargo(&arguments);
    command::show(canary.args(["--features", "canary"]));
    let output = canary.output().map_err(|error| format!("canary: {error}"))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Err("the canary names std and builds: the proof proves nothing".to_string());
    }
    if !message.contains("panic_impl") {
        return Err(format!("the canary fails for another reason than std:\n{message}"));
    }
    eprintln!("the canary, which names std, is refused");
    Ok(())
}
