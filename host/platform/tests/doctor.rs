// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The doctor's findings are right, and looking for them leaves nothing behind.
// A test may panic.
#![allow(clippy::unwrap_used)]

use std::process::Command;

mod common;

use common::is_root;
use weir_platform::kernel_offers::{self, OfferedQdisc};
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

/// Goal: the kernel says what it has without making it: the same as a try in a new namespace finds.
#[test]
fn what_the_kernel_offers_is_found_by_asking() {
    if !is_root("what_the_kernel_offers_is_found_by_asking") {
        return;
    }
    let shown = || {
        let lines = [("tc", "qdisc"), ("ip", "link")];
        lines.map(|(tool, what)| Command::new(tool).args([what, "show"]).output().unwrap().stdout)
    };
    netns::in_new(|| {
        let before = shown();
        for (asked, tried) in [
            (OfferedQdisc::Hfsc, "hfsc"),
            (OfferedQdisc::Htb, "htb"),
            (OfferedQdisc::FqCodel, "fq_codel"),
        ] {
            let has = kernel_offers::has_qdisc(asked).unwrap();
            assert_eq!(shown(), before, "{tried}");
            assert_eq!(has, doctor::offers_qdisc(tried), "{tried}");
        }
        let has = ["veth", "no_such_kind"].map(|kind| kernel_offers::has_link(kind).unwrap());
        assert_eq!(has, [true, false]);
        assert_eq!(shown(), before);
        // A discipline that the loopback device has stays.
        let words = "qdisc add dev lo root pfifo limit 7";
        assert!(Command::new("tc").args(words.split(' ')).status().unwrap().success());
        let before = shown();
        assert!(kernel_offers::has_qdisc(OfferedQdisc::Htb).is_ok());
        assert_eq!(shown(), before);
    })
    .unwrap();
}
