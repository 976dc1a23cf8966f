// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the programs of the bridge; the crate embeds the object.

#[path = "../../bpf/compile.rs"]
mod compile;

fn main() -> std::io::Result<()> {
    compile::programs(&["bridge"])
}
