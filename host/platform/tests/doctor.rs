// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The doctor's findings are right, and looking for them leaves nothing behind.
// A test may panic.
#![allow(clippy::unwrap_used)]

mod common;

use common::is_root;
use weir_platform::{doctor, netns};

#[test]
fn what_the_kernel_offers_is_found_by_trying() {
    if !is_root("what_the_kernel_offers_is_found_by_trying") {
        return;
    }
    let before = netns::current().unwrap();
    let facts = doctor::probe().unwrap();
    println!("{}", serde_json::to_string_pretty(&facts).unwrap());
    // The tests of this crate need these, so they are here.
    assert!(facts.namespaces && facts.commands["ip"] && facts.qdiscs["pfifo"]);
    assert!(facts.links["veth"] && facts.af_packet);
    assert!(facts.devices.iter().any(|device| device.name == "lo"));
    assert!(!doctor::offers_qdisc("no_such_discipline"));
    assert_eq!(netns::current().unwrap(), before, "this thread is where it was");
}
