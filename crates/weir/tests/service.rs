// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node as a service manager runs it: with the rights that the unit names and no others, and
//! with somebody who waits for signs of life.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use common::Site;

/// It says when it forwards, by XDP, that it is alive, and when it ends.
#[test]
fn the_rights_that_the_unit_names_are_enough() {
    let Some(site) = Site::up("weir-t-unit", TOPOLOGY, POLICY) else { return };
    let before = site.devices();
    let manager = UnixDatagram::bind(site.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let hear = || {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    // Without names of namespaces the node takes itself to be in the host's, as a service is.
    let script = "mount -t tmpfs none /run/netns && exec setpriv --no-new-privs \
                  --bounding-set \"$1\" --inh-caps \"$1\" \"$2\" node run --config \"$3\"";
    let mut command = site.inside("sw", "sh");
    command.args(["-c", script, "sh", &rights(), env!("CARGO_BIN_EXE_weir")]);
    command.arg(site.path("node.toml")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("NOTIFY_SOCKET", site.path("notify")).env("WATCHDOG_USEC", "400000");
    let node = command.spawn().unwrap();
    assert_eq!(hear(), "READY=1");
    assert_eq!([hear(), hear()], ["WATCHDOG=1", "WATCHDOG=1"]);
    assert!(site.ping("a", "10.9.0.9"));
    let status = site.status();
    for iface in ["ports", "vifs"].map(|list| &status[list][0]) {
        assert!(iface["driver"].as_str().unwrap().starts_with("xdp"), "{iface:#}");
    }
    // Without a BPF file system nothing could go on: to leave is to stop.
    assert!(site.weir(&["node", "leave"]).status.success());
    let said = String::from_utf8(node.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("undoing everything instead"), "{said}");
    while hear() != "STOPPING=1" {}
    site.is_again(&before);
}

/// The unit's capabilities, as setpriv takes them.
fn rights() -> String {
    let unit = include_str!("../../../packaging/weir-node@.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.unwrap().split(' ').map(|name| name.strip_prefix("CAP_").unwrap());
    names.fold("-all".to_owned(), |all, name| format!("{all},+{}", name.to_lowercase()))
}

const TOPOLOGY: &str = r#"
name = "NAME"
node = [{ name = "a" }, { name = "sw" }, { name = "wire" }]

[[link]]
a = { at = "a:eth0", addresses = ["10.9.0.1/24"], offloads = false }
b = "sw:a0"

[[link]]
a = { at = "wire:eth0", addresses = ["10.9.0.9/24"], offloads = false }
b = "sw:up0"
"#;

const POLICY: &str = r#"
version = 1

[[port]]
name = "up0"
rate = "1Gbit"

[[slice]]
name = "gold"

[[vif]]
name = "a.0"
slice = "gold"
device = "a0"
"#;
