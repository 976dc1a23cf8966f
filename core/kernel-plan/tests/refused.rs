// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: the keys that this data plane refuses are those that it says, and those that the manual
//! lists.
//!
//! Method: each key of `REFUSED_KEYS` has an example here, a policy that is sound on the switch. It
//! is compiled for a host that has everything.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use weir_kernel_plan::{
    BridgePortFacts, HookKind, HostFacts, KernelSetup, QdiscSupport, REFUSED_KEYS, compile,
};

/// A policy with one item of each kind, and these lines added to them.
fn policy(lines: &[(&str, String)]) -> String {
    let more = |kind: &str| {
        let own = lines.iter().filter(|(item, _)| *item == kind);
        own.map(|(_, line)| line.as_str()).collect::<Vec<_>>().join("\n")
    };
    format!(
        "version = 1\n[node]\ndataplane = \"kernel\"\n\
         [[port]]\nname = \"up0\"\nbridge = \"br0\"\nrate = \"1Gbit\"\n{}\n\
         [[slice]]\nname = \"s\"\n{}\n\
         [[router]]\nname = \"r\"\nslice = \"s\"\n{}\n\
         [[vif]]\nname = \"t0\"\nslice = \"s\"\nrouter = \"r\"\n{}\n",
        more("port"),
        more("slice"),
        more("router"),
        more("vif")
    )
}

fn refusal(text: &str) -> Vec<String> {
    let policy = weir_policy::parse(text).unwrap_or_else(|problems| panic!("{problems}: {text}"));
    let qdiscs = QdiscSupport { hfsc: true, htb: true, fq_codel: true, ifb: true };
    let mut facts = HostFacts { qdiscs, hooks: Some(HookKind::Tcx), ..HostFacts::default() };
    for device in ["up0", "t0"] {
        let found = BridgePortFacts { bridge: Some("br0".to_owned()), ..Default::default() };
        facts.devices.insert(device.to_owned(), found);
    }
    match compile(&policy, &facts, &KernelSetup::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.into_iter().map(|problem| problem.place).collect(),
    }
}

/// The lines that give a key, and what it needs beside it.
fn example(key: &str) -> Vec<(&'static str, String)> {
    let macs: Vec<String> = (1..=9).map(|last| format!("\"02:00:00:00:00:{last:02x}\"")).collect();
    let of = |item, line: &str| (item, line.to_owned());
    match key {
        "port.pih" => vec![of("port", "pih = \"byte\""), of("slice", "pih = 7")],
        "port.cycle" => {
            vec![of("port", "cycle = { length = \"1ms\" }"), of("slice", "phase = \"1ms\"")]
        }
        "port.scheduler" => vec![of("port", "scheduler = \"wrr\"")],
        "port.layer" => vec![of("port", "layer = \"l1\"")],
        "slice.vlan" => vec![of("slice", "vlan = 7")],
        "slice.pih" => vec![of("slice", "pih = 7")],
        "slice.match" => vec![of("slice", "match = [{ protocol = \"udp\" }]")],
        "router.xtc" => vec![of("router", "xtc = { actuator = \"none\", state = \"off\" }")],
        "router.realtime" => {
            vec![of("router", "realtime = { type = \"normal\", process = \"1\" }")]
        }
        "vif.addresses" => vec![of("vif", "addresses = [\"10.0.0.1\"]")],
        "vif.storm" => vec![of("vif", "storm = \"100pps\"")],
        "vif.filter" => vec![of("vif", "filter = [{ action = \"drop\" }]")],
        "vif.send.shaper" => {
            vec![of("vif", "send = { rate = \"9Mbit\", shaper = \"smooth\" }")]
        }
        "vif.receive.shaper" => {
            vec![of("vif", "receive = { rate = \"9Mbit\", shaper = \"smooth\" }")]
        }
        "vif.mac" => vec![("vif", format!("mac = [{}]", macs.join(", ")))],
        other => panic!("{other} has no example"),
    }
}

#[test]
fn each_listed_key_is_refused_by_its_name() {
    assert_eq!(refusal(&policy(&[])), Vec::<String>::new());
    for listed in REFUSED_KEYS {
        let (item, key) = listed.split_once('.').unwrap();
        let names = [("port", "up0"), ("slice", "s"), ("router", "r"), ("vif", "t0")];
        let name = names.into_iter().find(|(kind, _)| *kind == item).unwrap().1;
        let refused = refusal(&policy(&example(listed)));
        assert!(refused.contains(&format!("{item} {name:?}.{key}")), "{listed}: {refused:?}");
    }
}

#[test]
fn the_manual_lists_the_same_keys() {
    let page = include_str!("../../../docs/kernel.md");
    let section = page.split("\n## What is refused\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    assert_eq!(rows.map(|(key, _)| key).collect::<Vec<_>>(), REFUSED_KEYS);
}
