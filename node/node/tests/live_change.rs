// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: a live change writes the policy's document once and reads it once, however large it is.
//! Method: `weir-policy` counts both, for this test alone in its process, while a node with 1000
//! vifs in memory is changed, one change is taken back, and a change is refused.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write;
use std::path::Path;

use weir_node::control::ChangeRequest;
use weir_node::rehearsal::Rehearsal;
use weir_platform::StateDir;
use weir_policy::count::{DocumentCounts, documents};
use weir_policy::{Edit, KeyPath};
use weir_units::Instant;

const VIFS: usize = 1000;

#[test]
fn a_change_writes_and_reads_the_document_once() {
    if !weir_platform::process::is_root() {
        println!("SKIPPED a_change_writes_and_reads_the_document_once: needs root for BPF");
        return;
    }
    let folder = std::env::temp_dir().join(format!("weir-live-change-{}", std::process::id()));
    let state = StateDir::at(&folder);
    let config = Path::new("node.toml");
    let mut node = Rehearsal::start(&policy(), config, &state, Instant::ZERO).unwrap();
    let request = ChangeRequest {
        who: "uid 0",
        own: false,
        number: None,
        apply: None,
        may: &|_, _, _| Ok(()),
        sees: &|_, _| true,
    };
    let rate =
        |vif: usize, rate: &str| [Edit::set(KeyPath::vif(&format!("t{vif}"), "send.rate"), rate)];
    let once = DocumentCounts { parsed: 1, serialised: 1 };
    // The first one makes the database.
    for vif in [0, 1, 2, 999] {
        let of_change = counted(|| drop(node.change(&request, &rate(vif, "5Mbit")).unwrap()));
        assert_eq!(of_change, once, "change of vif {vif}");
    }
    assert_eq!(counted(|| drop(node.undo(&request, None).unwrap())), once, "undo");
    let refused = counted(|| assert!(node.change(&request, &rate(5, "much")).is_err()));
    assert_eq!(refused, once, "a change that is refused");
    assert_eq!(node.policy().vifs[2].send.rate.unwrap().to_string(), "5Mbit");
    assert_eq!(node.policy().vifs[999].send.rate, None);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn counted(what: impl FnOnce()) -> DocumentCounts {
    let before = documents().unwrap();
    what();
    let after = documents().unwrap();
    DocumentCounts {
        parsed: after.parsed - before.parsed,
        serialised: after.serialised - before.serialised,
    }
}

/// Small queues: the pool has a frame for each place in them.
fn policy() -> String {
    let mut text = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"10Gbit\"\nkind = \"memory\"\n\
                    [[slice]]\nname = \"gold\"\n"
        .to_owned();
    for vif in 0..VIFS {
        let queue = "queue = { packets = 8 }";
        write!(
            text,
            "[[vif]]\nname = \"t{vif}\"\nslice = \"gold\"\nkind = \"memory\"\n\
             send = {{ {queue} }}\nreceive = {{ {queue} }}\n"
        )
        .unwrap();
    }
    text
}
