// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the data-plane program; the crate embeds the object.

#[path = "../../bpf/compile.rs"]
mod compile;

fn main() -> std::io::Result<()> {
    compile::programs(&["weir"])
}
