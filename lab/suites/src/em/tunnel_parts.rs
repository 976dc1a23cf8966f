// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of tunnels at routers: those that the broker's list of connections needs, and those
//! that routers have, read from outside.
//!
//! A part is a line of text that says everything about it, such as `b1 fd0f:b::1:7:1 via fd10:12::2
//! dev b2`. So a route with a wrong next hop, a bucket with a wrong rate and a rule with a wrong
//! port differ as much as parts that are missing, and each difference names itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use serde_json::Value;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, ROUTERS, parsed};

/// Counts parts that routers lack, and parts that they have and no connection needs.
pub(super) fn differences(lab: &BrokerLab, connections: &[Value]) -> Result<u64> {
    // Waits for one comparison by the broker, which removes what a killed broker left.
    clock::sleep(Duration::from_millis(1500))?;
    let ends = TunnelEnds::of(&lab.read("broker.toml")?)?;
    let mut there = Vec::new();
    for router in ROUTERS {
        there.extend(RouterAnswers::of(lab, router)?.parts(router));
    }
    let needed = connections.iter().flat_map(|of| ends.parts(of)).chain(shared(connections));
    // A router at which tunnels entered once keeps what the next ones share.
    let needed: BTreeSet<_> = needed.collect();
    let kept = ["table of 7 rules", "passes over", "refuses"];
    let is_kept = |part: &String| kept.iter().any(|kept| part.ends_with(kept));
    there.retain(|part| needed.contains(part) || !is_kept(part));
    let different = different(needed.into_iter(), there);
    different.iter().for_each(|part| eprintln!("{part}"));
    Ok(different.len() as u64)
}

/// Returns a line for each part that is missing, and for each that is there without need.
fn different(needed: impl Iterator<Item = String>, there: Vec<String>) -> Vec<String> {
    let mut lacks: BTreeMap<String, i64> = BTreeMap::new();
    needed.for_each(|part| *lacks.entry(part).or_default() += 1);
    there.into_iter().for_each(|part| *lacks.entry(part).or_default() -= 1);
    let mut lines = Vec::new();
    for (part, lack) in lacks {
        let text = if lack > 0 { "missing" } else { "left" };
        lines.extend((0..lack.abs()).map(|_| format!("{text}: {part}")));
    }
    lines
}

/// Returns the parts that the tunnels which enter at a router share.
fn shared(connections: &[Value]) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for tunnel in connections.iter().flat_map(|of| each(&of["tunnels"])) {
        let (router, number) = (text(&tunnel["routers"][0]), tunnel["number"].as_u64());
        let group = number.unwrap_or_default() / GROUP;
        for part in ["table of 7 rules", "passes over", "refuses", &format!("leads to {group}")] {
            parts.insert(format!("{router} {part}"));
        }
    }
    parts
}

/// The ends of links and the end nodes in a broker's file.
struct TunnelEnds {
    /// Device and address by link and router.
    links: BTreeMap<[String; 2], [String; 2]>,
    /// Router, its device and the end node's address by end node.
    hosts: BTreeMap<String, [String; 3]>,
    /// True if tunnels are devices of `ip6tnl`.
    has_devices: bool,
}

impl TunnelEnds {
    fn of(file: &str) -> Result<Self> {
        let wrong = |error: toml::de::Error| ExperimentError::Node(error.to_string());
        let has_devices = file.contains("encapsulation = \"ip6tnl\"");
        let file: Value = toml::from_str(file).map_err(wrong)?;
        let (mut links, mut hosts) = (BTreeMap::new(), BTreeMap::new());
        for network in each(&file["network"]) {
            for link in each(&network["link"]) {
                for end in [&link["a"], &link["b"]] {
                    let key = [&link["name"], &end["router"]].map(text);
                    links.insert(key, [&end["device"], &end["address"]].map(text));
                }
            }
            for host in each(&network["host"]) {
                let of = [&host["router"], &host["device"], &host["address"]].map(text);
                hosts.insert(text(&host["name"]), of);
            }
        }
        Ok(Self { links, hosts, has_devices })
    }

    /// Returns the parts that a connection of the broker's list needs.
    fn parts(&self, connection: &Value) -> Vec<String> {
        let mut parts = Vec::new();
        for tunnel in each(&connection["tunnels"]) {
            let routers: Vec<_> = each(&tunnel["routers"]).map(text).collect();
            let links: Vec<_> = each(&tunnel["links"]).map(text).collect();
            let outer = text(&tunnel["outer"]);
            let Some((entry, others)) = routers.split_first() else { continue };
            for (index, router) in others.iter().enumerate() {
                parts.push(match links.get(index + 1) {
                    Some(link) => {
                        let next = &routers[index + 2];
                        format!("{router} {outer} {}", self.next_hop(link, [router, next]))
                    }
                    None => format!("{router} {outer} ends"),
                });
            }
            let (Some(link), Some(next)) = (links.first(), others.first()) else { continue };
            let next_hop = self.next_hop(link, [entry, next]);
            parts.extend(self.entry(&connection["request"], tunnel, entry, &next_hop));
        }
        parts
    }

    /// Returns the parts of a tunnel's entry at its router.
    fn entry(&self, request: &Value, tunnel: &Value, router: &str, next_hop: &str) -> Vec<String> {
        let host = |key: &str| self.hosts.get(&text(&request[key])).cloned().unwrap_or_default();
        let (mut from, mut to) = (host("from"), host("to"));
        let mut ports = [&request["from_port"], &request["to_port"]];
        if from[0] != router {
            std::mem::swap(&mut from, &mut to);
            ports.reverse();
        }
        let [_, access, source] = from;
        let [.., destination] = to;
        let [from_port, to_port] = ports.map(text);
        let protocol = text(&request["protocol"]);
        let outer = text(&tunnel["outer"]);
        let rate = tunnel["limit_bps"].as_u64().unwrap_or_default().div_ceil(8);
        let mut parts = vec![
            "device".to_owned(),
            "far device".to_owned(),
            format!("rate {rate}"),
            format!("takes {source} {destination} {protocol} {from_port} {to_port} from {access}"),
            "default".to_owned(),
            "guard before".to_owned(),
            "guard after".to_owned(),
            format!("mark before from {access} leads there"),
            "mark after leads there".to_owned(),
            format!("{destination} into {outer}"),
            format!("{outer} {next_hop}"),
        ];
        if self.has_devices {
            parts.push(format!("device to {outer} marks its packets"));
        }
        let name = format!("{router} wc{}", text(&tunnel["number"]));
        parts.into_iter().map(|part| format!("{name} {part}")).collect()
    }

    fn next_hop(&self, link: &str, [near, far]: [&str; 2]) -> String {
        let end = |router: &str| self.links.get(&[link.to_owned(), router.to_owned()]);
        let ([device, _], [_, address]) =
            (end(near).cloned().unwrap_or_default(), end(far).cloned().unwrap_or_default());
        format!("via {address} dev {device}")
    }
}

/// What a router's programs say of it.
struct RouterAnswers {
    routes: Vec<Value>,
    rules: Vec<Value>,
    buckets: Vec<Value>,
    devices: Vec<Value>,
    /// Objects of the table that marks packets.
    table: Vec<Value>,
}

impl RouterAnswers {
    fn of(lab: &BrokerLab, router: &str) -> Result<Self> {
        let answer = |line: &str| parsed(&lab.run(router, Command::line(line))?);
        // A router at which no tunnel enters has no table.
        let table = lab.run(router, Command::line("nft -j list table ip6 weir_tunnels"));
        let table: Value = table.map_or(Ok(Value::Null), |text| parsed(&text))?;
        Ok(Self {
            routes: answer("ip -6 -j route show table all proto 87")?,
            rules: answer("ip -6 -j rule")?,
            buckets: answer("tc -j qdisc show")?,
            devices: answer("ip -d -j link show")?,
            table: each(&table["nftables"]).cloned().collect(),
        })
    }

    /// Returns the parts of tunnels that the router has.
    fn parts(&self, router: &str) -> Vec<String> {
        let mut parts: Vec<_> = self.routes.iter().map(|route| self.route(route)).collect();
        parts.extend(self.rules.iter().filter_map(rule));
        let bucket = |of: &Value| {
            let tunnel = text(&of["dev"]).strip_prefix("wc")?.parse::<u16>().ok()?;
            let rate = text(&of["options"]["rate"]);
            (of["kind"] == "tbf").then(|| format!("wc{tunnel} rate {rate}"))
        };
        parts.extend(self.buckets.iter().filter_map(bucket));
        parts.extend(self.devices.iter().filter_map(device));
        parts.extend(self.rules.iter().filter_map(shared_rule));
        let rules = self.table.iter().filter(|object| object.get("rule").is_some()).count();
        if !self.table.is_empty() {
            parts.push(format!("table of {rules} rules"));
        }
        for map in self.table.iter().filter_map(|object| object.get("map")) {
            parts.extend(each(&map["elem"]).map(|element| flow(&text(&map["name"]), element)));
        }
        parts.into_iter().map(|part| format!("{router} {part}")).collect()
    }

    fn route(&self, route: &Value) -> String {
        let [to, device, gateway] = ["dst", "dev", "gateway"].map(|key| text(&route[key]));
        let next_hop = || format!("via {gateway} dev {device}");
        match tunnel_of(route) {
            None if route["action"] == "End.DT6" => format!("{to} ends"),
            None => format!("{to} {}", next_hop()),
            Some((tunnel, place)) if route["type"] == "unreachable" => {
                format!("wc{tunnel} guard {place}")
            }
            Some((tunnel, "before")) if to == "default" && device == format!("wc{tunnel}") => {
                format!("wc{tunnel} default")
            }
            Some((tunnel, _)) if !route["gateway"].is_null() => {
                format!("wc{tunnel} {to} {}", next_hop())
            }
            Some((tunnel, _)) => {
                let of = self.devices.iter().find(|of| of["ifname"] == device.as_str());
                let remote = of.map(|of| text(&of["linkinfo"]["info_data"]["remote"]));
                let into = route["segs"][0].as_str().map(str::to_owned).or(remote);
                format!("wc{tunnel} {to} into {}", into.unwrap_or_default())
            }
        }
    }
}

/// Returns the part that a rule is; none if it is not of a tunnel.
fn rule(rule: &Value) -> Option<String> {
    let (tunnel, place) = tunnel_of(rule).filter(|_| rule["protocol"] == "87")?;
    let mark = MARKS + tunnel + if place == "after" { BEHIND } else { 0 };
    let found = text(&rule["fwmark"]);
    let access = rule["iif"].as_str().map(|access| format!(" from {access}")).unwrap_or_default();
    let of = if found == format!("{mark:#x}") { "mark".to_owned() } else { found };
    Some(format!("wc{tunnel} {of} {place}{access} leads there"))
}

/// Returns the part that a rule is which all tunnels of a router share.
fn shared_rule(rule: &Value) -> Option<String> {
    let mark = u64::from_str_radix(rule["fwmark"].as_str()?.strip_prefix("0x")?, 16).ok()?;
    let (mask, to) = (rule["fwmask"].as_str()?, text(&rule["goto"]));
    Some(match mask {
        "0xff000000" if rule.get("not").is_some() && to == REFUSAL => "passes over".to_owned(),
        "0xff000000" if rule["action"] == "unreachable" => "refuses".to_owned(),
        _ => format!("leads to {}", mark.wrapping_sub(MARKS) / GROUP),
    })
}

/// Returns the part that an element of a hash table is: the packets that it marks.
fn flow(map: &str, element: &Value) -> String {
    let key: Vec<_> = each(&element[0]["concat"]).map(text).collect();
    let [access, source, destination, rest @ ..] = key.as_slice() else {
        return format!("{map} {element}");
    };
    let rest: Vec<_> = rest.iter().map(String::as_str).collect();
    let [protocol, from, to] = match (map, rest.as_slice()) {
        ("tcp_ports", [from, to]) => ["tcp", from, to],
        ("udp_ports", [from, to]) => ["udp", from, to],
        ("source_ports", [protocol, from]) => [*protocol, from, "-"],
        ("destination_ports", [protocol, to]) => [*protocol, "-", to],
        ("protocols", [protocol]) => [*protocol, "-", "-"],
        ("addresses", []) => ["-"; 3],
        _ => return format!("{map} {element}"),
    };
    let tunnel = element[1].as_u64().unwrap_or_default().wrapping_sub(MARKS);
    format!("wc{tunnel} takes {source} {destination} {protocol} {from} {to} from {access}")
}

/// Returns the part that a device is; none if it is not of a tunnel.
fn device(device: &Value) -> Option<String> {
    let name = text(&device["ifname"]);
    let data = &device["linkinfo"]["info_data"];
    if name.starts_with("wd") {
        return Some(format!("{} ends", text(&data["local"])));
    }
    let of = name.strip_prefix("wc")?;
    if of.contains('t') {
        let (tunnel, _) = of.split_once('t')?;
        let mark = MARKS + BEHIND + tunnel.parse::<u64>().ok()?;
        let is_marked = text(&data["fwmark"]) == format!("{mark:#x}");
        let marks = if is_marked { " marks its packets" } else { "" };
        return Some(format!("wc{tunnel} device to {}{marks}", text(&data["remote"])));
    }
    Some(match of.strip_suffix('x') {
        Some(tunnel) => format!("wc{tunnel} far device"),
        None => format!("wc{of} device"),
    })
}

/// Returns the tunnel whose table a route is in or a rule leads to, and whether packets look there
/// before its bucket or after it.
fn tunnel_of(value: &Value) -> Option<(u64, &'static str)> {
    let table: u64 = value["table"].as_str()?.parse().ok()?;
    let (place, first) = if table < AFTER { ("before", BEFORE) } else { ("after", AFTER) };
    Some((table.checked_sub(first)?, place))
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns a text or a number as text, `-` for nothing, and an address always in the same form.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => {
            text.parse::<Ipv6Addr>().map_or_else(|_| text.clone(), |address| address.to_string())
        }
        other => other.to_string(),
    }
}

/// The tables of tunnels begin here.
const BEFORE: u64 = 1_000_000;
const AFTER: u64 = 2_000_000;

/// The mark of tunnel 0 before its bucket, and the bit of those behind one.
const MARKS: u64 = 0x5700_0000;
const BEHIND: u64 = 1 << 16;

/// Tunnels whose rules one rule leads to, and the preference of the rule that refuses others.
const GROUP: u64 = 64;
const REFUSAL: &str = "30200";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = r#"
        [[network]]
        [[network.host]]
        name = "bh1"
        router = "b1"
        device = "bh1"
        address = "fd10:1::2"
        [[network.host]]
        name = "bh2"
        router = "b4"
        device = "bh2"
        address = "fd10:2::2"
        [[network.link]]
        name = "b1-b2"
        a = { router = "b1", device = "b2", address = "fd10:12::1" }
        b = { router = "b2", device = "b1", address = "fd10:12::2" }
        [[network.link]]
        name = "b2-b4"
        a = { router = "b2", device = "b4", address = "fd10:24::1" }
        b = { router = "b4", device = "b2", address = "fd10:24::2" }
    "#;

    fn connection() -> Value {
        json!({
            "request": { "from": "bh1", "to": "bh2", "protocol": "udp", "to_port": 6000 },
            "tunnels": [{
                "number": 7, "outer": "fd0f:b::1:7:1", "limit_bps": 1_002_001,
                "routers": ["b1", "b2", "b4"], "links": ["b1-b2", "b2-b4"]
            }]
        })
    }

    type Answers = [(&'static str, RouterAnswers); 3];

    /// The answers of b1, b2 and b4 for [`connection`].
    fn answers() -> Answers {
        let list = |value: Value| value.as_array().cloned().unwrap_or_default();
        let router = |routes: Value| RouterAnswers {
            routes: list(routes),
            rules: list(json!([{ "priority": 0, "src": "all", "table": "local" }])),
            buckets: list(json!([{ "kind": "htb", "dev": "b2", "options": {} }])),
            devices: list(json!([{ "ifname": "b2" }])),
            table: Vec::new(),
        };
        let mut entry = router(json!([
            { "dst": "default", "gateway": "fe80::2", "dev": "wc7", "table": "1000007" },
            { "type": "unreachable", "dst": "default", "dev": "lo", "table": "1000007" },
            { "type": "unreachable", "dst": "default", "dev": "lo", "table": "2000007" },
            { "dst": "fd10:2::2", "encap": "seg6", "segs": ["fd0f:b::1:7:1"], "dev": "b2",
                "table": "2000007" },
            { "dst": "fd0f:b::1:7:1", "gateway": "fd10:12::2", "dev": "b2", "table": "2000007" },
        ]));
        entry.rules.extend(list(json!([
            { "priority": 30_000, "not": null, "fwmark": "0x57000000", "fwmask": "0xff000000",
                "goto": 30_200, "protocol": "87" },
            { "priority": 30_001, "fwmark": "0x57000000", "fwmask": "0xfffeffc0",
                "goto": 30_100, "protocol": "87" },
            { "priority": 30_200, "fwmark": "0x57000000", "fwmask": "0xff000000",
                "action": "unreachable", "protocol": "87" },
            { "priority": 30_100, "fwmark": "0x57010007", "table": "2000007", "protocol": "87" },
            { "priority": 30_100, "fwmark": "0x57000007", "iif": "bh1", "table": "1000007",
                "protocol": "87" },
        ])));
        let element =
            json!([{ "concat": ["bh1", "fd10:1::2", "fd10:2::2", "udp", 6000] }, MARKS + 7]);
        let map = json!({ "name": "destination_ports", "elem": [element] });
        entry.table.push(json!({ "map": map }));
        entry.table.extend((0..7).map(|_| json!({ "rule": {} })));
        entry.buckets.push(json!({ "kind": "tbf", "dev": "wc7", "options": { "rate": 125_251 } }));
        entry.devices.extend(list(json!([{ "ifname": "wc7" }, { "ifname": "wc7x" }])));
        let transit = json!([{ "dst": "fd0f:b::1:7:1", "gateway": "fd10:24::2", "dev": "b4" }]);
        let exit = json!([
            { "dst": "fd0f:b::1:7:1", "encap": "seg6local", "action": "End.DT6", "dev": "b2" }
        ]);
        [("b1", entry), ("b2", router(transit)), ("b4", router(exit))]
    }

    fn compare(answers: &[(&str, RouterAnswers)]) -> Vec<String> {
        let ends = TunnelEnds::of(FILE).unwrap();
        let there = answers.iter().flat_map(|(name, of)| of.parts(name)).collect();
        let needed = ends.parts(&connection()).into_iter().chain(shared(&[connection()]));
        different(needed, there)
    }

    /// Goal: a wrong next hop, rate or selector, and a route that is missing at one place beside
    /// one too many, are differences, though each router has as many parts as it needs.
    #[test]
    fn parts_are_compared_and_not_counted() {
        assert_eq!(compare(&answers()), Vec::<String>::new());
        let damages: [fn(&mut Answers); 6] = [
            |of| of[1].1.routes[0]["gateway"] = json!("fd10:24::3"),
            |of| of[0].1.buckets[1]["options"]["rate"] = json!(250_000),
            |of| of[0].1.table[0]["map"]["elem"][0][0]["concat"][4] = json!(6001),
            |of| of[0].1.rules[5]["fwmark"] = json!("0x57000008"),
            |of| drop(of[0].1.table.pop()),
            |of| of[1].1.routes[0]["dst"] = json!("fd0f:b::1:8:1"),
        ];
        for damage in damages {
            let mut damaged = answers();
            damage(&mut damaged);
            let different = compare(&damaged);
            assert_eq!(different.len(), 2, "{different:?}");
        }
        let mut doubled = answers();
        let again = doubled[0].1.rules[5].clone();
        doubled[0].1.rules.push(again);
        assert_eq!(compare(&doubled).len(), 1);
    }

    /// Goal: devices of `ip6tnl` are ends and ways into tunnels as routes of segment routing are.
    #[test]
    fn devices_are_parts() {
        let mut all = answers();
        let [(_, entry), _, (_, exit)] = &mut all;
        let way = |remote: &str, local: &str| {
            let data = json!({ "remote": remote, "local": local, "fwmark": "0x57010007" });
            json!({ "info_data": data })
        };
        let into = way("fd0f:b::1:7:1", "fd10:12::1");
        entry.devices.push(json!({ "ifname": "wc7t1", "linkinfo": into }));
        entry.routes[3] = json!({ "dst": "fd10:2::2", "dev": "wc7t1", "table": "2000007" });
        exit.routes.clear();
        let end = way("any", "fd0f:b::1:7:1");
        exit.devices.push(json!({ "ifname": "wd1", "linkinfo": end }));
        let file = FILE.replace("[[network]]", "[[network]]\n# encapsulation = \"ip6tnl\"");
        let ends = TunnelEnds::of(&file).unwrap();
        let there = all.iter().flat_map(|(name, of)| of.parts(name)).collect();
        let needed = ends.parts(&connection()).into_iter().chain(shared(&[connection()]));
        let different = different(needed, there);
        assert_eq!(different, Vec::<String>::new());
    }
}
