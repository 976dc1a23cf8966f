// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a live change: one rate of one vif at 1000 vifs, from the edit to the moment at which
//! it is on disk and its caller is answered.
//!
//! The node is a [`Rehearsal`]: worker, live policy and database as in a running node, devices in
//! memory. The changes go around all vifs, so that the live edits grow to one each. The state is
//! below `target`, on a real disk. `./x bench live_change [-- CHANGES]`; it takes root, since the
//! data plane is loaded.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench may stop at a surprise")]

use std::fmt::Write;
use std::path::Path;
use std::time::Instant as Clock;

use weir_node::control::ChangeRequest;
use weir_node::rehearsal::Rehearsal;
use weir_platform::StateDir;
use weir_policy::{Edit, KeyPath};
use weir_units::{BitRate, Instant};

const VIFS: usize = 1000;
const CHANGES: usize = 1000;
/// Changes that are made first and not counted.
const WARM: usize = 50;

fn main() {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let changes: usize = number.unwrap_or(CHANGES);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live-change");
    let _none = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let state = StateDir::at(&folder);
    let mut node =
        Rehearsal::start(&policy(), Path::new("node.toml"), &state, Instant::ZERO).unwrap();
    let request = ChangeRequest {
        who: "uid 0",
        own: false,
        number: None,
        apply: None,
        may: &|_, _, _| Ok(()),
        sees: &|_, _| true,
    };
    let mut samples = Vec::with_capacity(changes);
    for number in 0..WARM + changes {
        let rate = BitRate::from_bps(1_000_000 + 1000 * number as u64).to_string();
        let edit = Edit::set(KeyPath::vif(&format!("t{}", number % VIFS), "send.rate"), rate);
        let begin = Clock::now();
        node.change(&request, &[edit]).unwrap();
        if number >= WARM {
            samples.push(begin.elapsed().as_secs_f64());
        }
    }
    samples.sort_by(f64::total_cmp);
    for (series, percent) in [("median", 50), ("p99", 99)] {
        let sample = samples[(samples.len() - 1) * percent / 100];
        println!("{{\"series\":\"{series}\",\"unit\":\"s\",\"samples\":[{sample}]}}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Small queues: a frame of the pool for each place in them.
fn policy() -> String {
    let mut text = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"10Gbit\"\nkind = \"memory\"\n\
                    [[slice]]\nname = \"gold\"\n"
        .to_owned();
    for vif in 0..VIFS {
        write!(
            text,
            "[[vif]]\nname = \"t{vif}\"\nslice = \"gold\"\nkind = \"memory\"\n\
             send = {{ min_rate = \"1Mbit\", queue = {{ packets = 8 }} }}\n\
             receive = {{ min_rate = \"1Mbit\", queue = {{ packets = 8 }} }}\n"
        )
        .unwrap();
    }
    text
}
