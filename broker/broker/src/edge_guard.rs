// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guards at the edge of a network: nothing from an end node's device goes to an outer address.
//!
//! A link tells the packets of tunnels by their outer addresses alone. An end node that sent to one
//! itself would use what is guaranteed to the tunnels, and an exit would take the packet for one of
//! theirs. So its gateway has a rule for each device towards end nodes, which refuses what came
//! from there for the network's pool. Packets of tunnels come from the router itself or from
//! `wcNUMBERx`, those on their way from devices of links: no guard is there.
//!
//! The rule comes after those of entries, which are for marked packets, and before the main table,
//! where the routes of outer addresses are. The table of local addresses comes before all rules:
//! the outer address of an exit by `ip6tnl` is in it, so a guard does not keep the end nodes of
//! that router from it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use serde_json::Value;

use crate::config::NetworkConfig;
use crate::item::{GuardItem, Items, NodeItem, PROTOCOL, guard_key};

/// Returns the guards of a network, each with its router. A device that is an end of a link, too,
/// has none: tunnels come in by it.
pub(crate) fn guards(network: &NetworkConfig) -> impl Iterator<Item = (&str, NodeItem)> {
    let ends = network.link.iter().flat_map(|link| [&link.a, &link.b]);
    let ends: BTreeSet<_> = ends.map(|end| (&end.router, &end.device)).collect();
    let [a, b, c, d, ..] = network.outer.segments();
    let pool = Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0);
    let edges = network.host.iter().filter(move |of| !ends.contains(&(&of.router, &of.device)));
    edges.map(move |host| {
        let guard = GuardItem { device: host.device.clone(), pool };
        (host.router.as_str(), NodeItem::Guard(guard))
    })
}

/// Writes the lines that put a guard in the place of `actual`.
pub(crate) fn put(guard: &GuardItem, actual: Option<&NodeItem>, ip: &mut String) {
    let GuardItem { device, pool } = guard;
    if actual.is_some() {
        remove(&guard_key(device, *pool), ip);
    }
    let _ = writeln!(
        ip,
        "rule add pref {PREFERENCE} iif {device} to {pool}/64 prohibit protocol {PROTOCOL}"
    );
}

/// Writes the line that removes a guard; none if the key is that of another item.
pub(crate) fn remove(key: &str, ip: &mut String) {
    let guard = key.strip_prefix("guard/").and_then(|of| of.rsplit_once('/'));
    if let Some((device, pool)) = guard {
        let _ = writeln!(
            ip,
            "rule del pref {PREFERENCE} iif {device} to {pool}/64 protocol {PROTOCOL}"
        );
    }
}

/// Reads the guards among a router's rules.
pub(crate) fn read(rules: &[Value]) -> Items {
    let guards = rules.iter().filter_map(|rule| {
        let text = |key: &str| rule[key].as_str();
        let is_ours = rule["priority"] == PREFERENCE && text("protocol")? == PROTOCOL.to_string();
        let is_pool = rule["dstlen"] == 64;
        let (device, pool) = (text("iif").filter(|_| is_ours && is_pool)?, text("dst")?);
        // It becomes part of commands, and the kernel takes any bytes there.
        if !device.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/') {
            return None;
        }
        let guard = GuardItem { device: device.to_owned(), pool: pool.parse().ok()? };
        let key = guard_key(&guard.device, guard.pool);
        // A field beside these narrows it.
        let is_plain = rule.as_object()?.keys().all(|key| FIELDS.contains(&key.as_str()));
        let is_whole = is_plain && text("action") == Some("prohibit") && text("src") == Some("all");
        Some((key, if is_whole { NodeItem::Guard(guard) } else { NodeItem::Broken }))
    });
    guards.collect()
}

/// Fields of a guard, as `ip` prints them.
const FIELDS: [&str; 8] =
    ["priority", "src", "dst", "dstlen", "iif", "iif_detached", "action", "protocol"];

/// Preference of all guards: after the rules of entries, before the main table's 32766.
const PREFERENCE: u32 = 32_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Encapsulation;
    use crate::linux::{LinuxDriver, NodeDriver};
    use crate::test_config;

    const DRIVER: LinuxDriver =
        LinuxDriver { encapsulation: Encapsulation::SegmentRouting, tunnel_source: None };

    /// Answer of a router with a guard and rules of others, as iproute2 6.1 prints them.
    const ANSWER: &str = r#"[]
        [{"priority":0,"src":"all","table":"local"},
         {"priority":32000,"src":"all","dst":"fd0f::","dstlen":64,"iif":"x","iif_detached":null,
          "action":"prohibit","protocol":"87"},
         {"priority":32000,"src":"all","dst":"fd0f::","dstlen":64,"iif":"q",
          "action":"prohibit","protocol":"boot"},
         {"priority":32001,"src":"all","dst":"fd0f::","dstlen":64,"iif":"q",
          "action":"prohibit","protocol":"87"},
         {"priority":32766,"src":"all","table":"main"}]
        [] {}"#;

    fn wanted() -> Items {
        let config = test_config::with(&[test_config::TRIANGLE]);
        let at_a = guards(&config.network[0]).filter(|(router, _)| *router == "a");
        at_a.filter_map(|(_, item)| Some((item.key()?, item))).collect()
    }

    #[test]
    fn a_guard_is_read_as_it_was_put() {
        let put = "rule add pref 32000 iif x to fd0f::/64 prohibit protocol 87\n";
        let script = DRIVER.plan(&wanted(), &Items::new());
        assert_eq!(script, format!("ip -6 -force -batch - 2>&1 <<'WEIR'\n{put}WEIR\n"));
        let read = DRIVER.read(ANSWER).unwrap();
        assert_eq!(read, wanted());
        assert_eq!(DRIVER.plan(&wanted(), &read), "");
    }

    /// Goal: a guard that was changed is put anew, one of another device or pool goes, and rules of
    /// others stay.
    #[test]
    fn a_changed_guard_is_put_anew() {
        let gone = "rule del pref 32000 iif x to fd0f::/64 protocol 87\n";
        let answer = ANSWER.replacen(r#""prohibit""#, r#""blackhole""#, 1);
        let read = DRIVER.read(&answer).unwrap();
        let script = DRIVER.plan(&wanted(), &read);
        assert!(script.find(gone).is_some_and(|at| at < script.find("rule add").unwrap()));
        let answer = ANSWER.replacen(r#""prohibit","#, r#""prohibit","ipproto":"udp","#, 1);
        assert_eq!(DRIVER.read(&answer).unwrap().values().next(), Some(&NodeItem::Broken));
        let answer = ANSWER.replacen("\"x\"", r#""x\nWEIR\nid""#, 1);
        assert_eq!(DRIVER.read(&answer).unwrap(), Items::new());
        for (part, other) in [("\"x\"", "\"y\""), ("fd0f::", "fd0f:1::")] {
            let read = DRIVER.read(&ANSWER.replacen(part, other, 1)).unwrap();
            let gone = gone.replace(" x ", if part == "fd0f::" { " x " } else { " y " });
            let gone = if part == "fd0f::" { gone.replace(part, other) } else { gone };
            let script = DRIVER.plan(&wanted(), &read);
            assert!(script.contains(&gone) && script.contains("iif x to fd0f::/64"), "{script}");
            assert_eq!(script.lines().count(), 2 + 2, "{script}");
        }
    }

    /// Goal: each device towards end nodes is guarded, and none by which tunnels come in.
    #[test]
    fn devices_of_links_have_no_guard() {
        let routers = |text: &str| {
            let config = test_config::with(&[text]);
            guards(&config.network[0]).map(|(router, _)| router.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(routers(test_config::TRIANGLE), ["a", "c"]);
        let shared = test_config::TRIANGLE.replace(r#"device = "x""#, r#"device = "b""#);
        assert_eq!(routers(&shared), ["c"]);
    }
}
