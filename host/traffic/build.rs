// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the generator and the sink; the crate embeds the objects.

#[path = "../../bpf/compile.rs"]
mod compile;

fn main() -> std::io::Result<()> {
    compile::programs(&["classifier", "drops", "generator", "sink", "softirq"])
}
