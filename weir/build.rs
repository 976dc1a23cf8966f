// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts the commit into the version, so that two programs can tell whether one build made both.

fn main() {
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    let commit = std::env::var("WEIR_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo:rustc-env=WEIR_COMMIT={commit}");
    println!("cargo:rustc-env=WEIR_VERSION={} ({commit})", env!("CARGO_PKG_VERSION"));
}
