// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the text of a topology: all problems at once, with line, key, value and bound.
//!
//! The tables below are the document as it is written. The schema that follows from them holds
//! keys, types and bounds ([`read_document`]); what refers to something else (a node, a device, the
//! port of a bridge) is checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_policy::{FindingList, MacAddr, Prefix, Problems, Text, read_document};
use weir_units::{BitRate, ByteCount, Nanos};

use super::topology::{Bridge, Cidr, End, HEADER_BYTES, Topology, TopologyLink, TopologyNode};

impl Topology {
    /// Reads a topology. Fails with everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        read_document(text, topology)
    }
}

/// A topology as it is written. What is wrong or missing is left empty, so that the rest is read.
#[derive(Default, Deserialize, JsonSchema)]
struct TopologyTable {
    #[schemars(required, extend("format" = "text"))]
    name: Option<String>,
    #[serde(default)]
    #[schemars(length(max = NODES_MAX))]
    node: Vec<NodeTable>,
    #[serde(default)]
    #[schemars(length(max = LINKS_MAX))]
    link: Vec<LinkTable>,
    #[serde(default)]
    bridge: Vec<BridgeTable>,
}

#[derive(Default, Deserialize, JsonSchema)]
struct NodeTable {
    #[schemars(required, extend("format" = "text"))]
    name: Option<String>,
    #[serde(default)]
    sysctls: BTreeMap<String, Sysctl>,
    #[serde(default)]
    routes: Vec<PlainText>,
}

#[derive(Default, Deserialize, JsonSchema)]
struct LinkTable {
    #[schemars(required)]
    a: Option<EndEntry>,
    #[schemars(required)]
    b: Option<EndEntry>,
    #[schemars(range(min = 68, max = 65535))]
    mtu: Option<u32>,
    #[schemars(range(min = 1, max = 64))]
    queues: Option<u32>,
    #[serde(flatten)]
    settings: EndSettings,
}

/// The settings of an end. Those of a link are its ends', unless an end has its own.
#[derive(Default, Deserialize, JsonSchema)]
struct EndSettings {
    #[schemars(extend("x-minimum" = RATE_MIN, "x-maximum" = RATE_MAX))]
    rate: Option<Text<BitRate>>,
    #[schemars(extend("x-maximum" = BURST_MAX))]
    burst: Option<Text<ByteCount>>,
    #[schemars(extend("x-maximum" = DELAY_MAX))]
    delay: Option<Text<Nanos>>,
    #[schemars(range(min = 1, max = QUEUE_MAX))]
    queue: Option<u32>,
    offloads: Option<bool>,
}

#[derive(Default, Deserialize, JsonSchema)]
struct EndTable {
    #[schemars(required, extend("format" = "text"))]
    at: Option<String>,
    mac: Option<Text<MacAddr>>,
    #[serde(default)]
    addresses: Vec<CidrText>,
    #[serde(default)]
    neighbours: BTreeMap<String, Text<MacAddr>>,
    #[serde(flatten)]
    settings: EndSettings,
}

#[derive(Default, Deserialize, JsonSchema)]
struct BridgeTable {
    #[schemars(required, extend("format" = "text"))]
    node: Option<String>,
    #[schemars(required, extend("format" = "text"))]
    name: Option<String>,
    #[serde(default)]
    members: Vec<PlainText>,
}

/// An end: its place alone, or a table.
#[derive(Deserialize)]
#[serde(untagged)]
enum EndEntry {
    Place(String),
    Table(Box<EndTable>),
}

impl JsonSchema for EndEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "end".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = EndTable::json_schema(generator);
        schema.insert("type".to_owned(), json!(["string", "object"]));
        schema.insert("format".to_owned(), json!("text"));
        schema
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline, extend("format" = "text"))]
struct PlainText(String);

#[derive(Deserialize, JsonSchema)]
#[schemars(inline, extend("format" = "prefix"))]
struct CidrText(String);

/// The value of a kernel variable: a text or a whole number.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline, extend("type" = ["string", "integer"], "format" = "text"))]
struct Sysctl(Value);

/// Returns the topology of a document, and reports what does not go together.
fn topology(document: TopologyTable, findings: &mut FindingList) -> Topology {
    let (nodes, devices, members) = Default::default();
    let mut known = KnownNames { findings, nodes, devices, members };
    let name = document.name.unwrap_or_default();
    known.check_name("name", 0, "", &name);
    let nodes = document.node.into_iter().enumerate();
    let nodes = nodes.map(|(index, table)| known.node(index, table)).collect();
    let links = document.link.into_iter().enumerate();
    let links = links.filter_map(|(index, table)| known.link(index, table)).collect();
    let bridges = document.bridge.into_iter().enumerate();
    let bridges = bridges.filter_map(|(index, table)| known.bridge(index, table)).collect();
    Topology { name, nodes, links, bridges }
}

/// The names so far.
struct KnownNames<'f> {
    findings: &'f mut FindingList,
    nodes: Vec<String>,
    /// Node and device.
    devices: BTreeSet<(usize, String)>,
    /// Node and device, of those that are ports of a bridge.
    members: BTreeSet<(usize, String)>,
}

impl KnownNames<'_> {
    fn node(&mut self, index: usize, table: NodeTable) -> TopologyNode {
        let name = table.name.unwrap_or_default();
        self.check_name("node", index, "name", &name);
        if self.nodes.contains(&name) {
            let message = format!("there is a node {name:?} already");
            self.findings.report("node", index, "name", message);
        }
        let mut sysctls = Vec::new();
        for (key, Sysctl(value)) in table.sysctls {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            if !key.starts_with("net.") || !key.chars().all(plain) {
                let message = format!("{key:?}: a node has variables below \"net.\" only");
                self.findings.report("node", index, "sysctls", message);
            }
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if value.chars().any(char::is_control) {
                let message = format!("{key}: {value:?} holds a control character");
                self.findings.report("node", index, "sysctls", message);
            }
            sysctls.push((key, value));
        }
        let routes: Vec<String> = table.routes.into_iter().map(|PlainText(route)| route).collect();
        for (number, route) in routes.iter().enumerate() {
            let plain = |c: char| c.is_ascii_alphanumeric() || " ./:_-".contains(c);
            let sane = route.chars().all(plain) && !route.trim_start().starts_with('-');
            if !sane || route.trim().is_empty() {
                let message = format!("{route:?} is no route as `ip route replace` takes it");
                self.findings.report("node", index, format!("routes.{number}"), message);
            }
        }
        self.nodes.push(name.clone());
        TopologyNode { name, sysctls, routes }
    }

    fn link(&mut self, index: usize, table: LinkTable) -> Option<TopologyLink> {
        let mtu = table.mtu.unwrap_or(MTU);
        self.check_burst(index, "burst", &table.settings, mtu);
        let a = self.end(index, "a", table.a, &table.settings, mtu);
        let b = self.end(index, "b", table.b, &table.settings, mtu);
        Some(TopologyLink { ends: [a?, b?], mtu, queues: table.queues.unwrap_or(1) })
    }

    fn end(
        &mut self,
        link: usize,
        key: &str,
        entry: Option<EndEntry>,
        common: &EndSettings,
        mtu: u32,
    ) -> Option<End> {
        let (at_key, table) = match entry? {
            EndEntry::Place(at) => {
                (key.to_owned(), EndTable { at: Some(at), ..EndTable::default() })
            }
            EndEntry::Table(table) => (format!("{key}.at"), *table),
        };
        let own = &table.settings;
        self.check_burst(link, &format!("{key}.burst"), own, mtu);
        let mac = table.mac.map(|Text(mac)| mac);
        if mac.is_some_and(|mac| mac.is_multicast() || mac.is_zero()) {
            let message = "a device's address is no group address and not zero";
            self.findings.report("link", link, format!("{key}.mac"), message);
        }
        let mut neighbours = Vec::new();
        for (address, Text(mac)) in table.neighbours {
            match address.parse::<IpAddr>() {
                Ok(address) => neighbours.push((address, mac)),
                Err(_) => {
                    let message = format!("{address:?} is no IP address");
                    self.findings.report("link", link, format!("{key}.neighbours"), message);
                }
            }
        }
        let (node, device) = self.place(link, &at_key, &table.at?)?;
        Some(End {
            node,
            device,
            mac,
            addresses: table.addresses.iter().filter_map(|CidrText(text)| cidr(text)).collect(),
            neighbours,
            rate: own.rate.or(common.rate).map(|Text(rate)| rate),
            burst: own.burst.or(common.burst).map(|Text(burst)| burst),
            queue: own.queue.or(common.queue).unwrap_or(QUEUE),
            delay: own.delay.or(common.delay).map_or(Nanos::ZERO, |Text(delay)| delay),
            offloads: own.offloads.or(common.offloads).unwrap_or(true),
        })
    }

    fn bridge(&mut self, index: usize, table: BridgeTable) -> Option<Bridge> {
        let (node, name) = (table.node?, table.name?);
        let node = self.find_node("bridge", index, "node", &node)?;
        self.add_device("bridge", index, "name", (node, &name));
        let members: Vec<String> = table.members.into_iter().map(|PlainText(name)| name).collect();
        for (number, member) in members.iter().enumerate() {
            let (key, entry) = (format!("members.{number}"), (node, member.clone()));
            if !self.devices.contains(&entry) {
                let message = format!("the node has no device {member:?}");
                self.findings.report("bridge", index, &key, message);
            }
            if !self.members.insert(entry) {
                let message = format!("{member:?} is in a bridge already");
                self.findings.report("bridge", index, &key, message);
            }
        }
        Some(Bridge { node, name, members })
    }

    /// Reads `NODE:DEVICE`.
    fn place(&mut self, link: usize, key: &str, text: &str) -> Option<(usize, String)> {
        let Some((node, device)) = text.split_once(':') else {
            self.findings.report("link", link, key, format!("{text:?} is not NODE:DEVICE"));
            return None;
        };
        let node = self.find_node("link", link, key, node)?;
        self.add_device("link", link, key, (node, device));
        Some((node, device.to_owned()))
    }

    fn find_node(
        &mut self,
        table: &'static str,
        index: usize,
        key: &str,
        name: &str,
    ) -> Option<usize> {
        let found = self.nodes.iter().position(|node| node == name);
        if found.is_none() {
            self.findings.report(table, index, key, format!("there is no node {name:?}"));
        }
        found
    }

    fn add_device(
        &mut self,
        table: &'static str,
        index: usize,
        key: &str,
        (node, device): (usize, &str),
    ) {
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '\'' | '"' | '#');
        if !(1..=DEVICE_LEN_MAX).contains(&device.len())
            || !device.chars().all(plain)
            || matches!(device, "lo" | "." | ".." | "all" | "default")
        {
            let message = format!(
                "device {device:?}: a name is 1 to {DEVICE_LEN_MAX} letters, digits or signs \
                 (no '/', ':', '#', quotes), and not \"lo\", \"all\" or \"default\""
            );
            self.findings.report(table, index, key, message);
        }
        if !self.devices.insert((node, device.to_owned())) {
            let message = format!("the node has a device {device:?} already");
            self.findings.report(table, index, key, message);
        }
    }

    fn check_name(&mut self, table: &'static str, index: usize, key: &str, name: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !(1..=NAME_LEN_MAX).contains(&name.len())
            || !name.chars().all(plain)
            || name.starts_with('-')
        {
            let message =
                format!("{name:?}: a name is 1 to {NAME_LEN_MAX} letters, digits and '-'");
            self.findings.report(table, index, key, message);
        }
    }

    fn check_burst(&mut self, link: usize, key: &str, settings: &EndSettings, mtu: u32) {
        let frame = ByteCount::new(u64::from(mtu) + HEADER_BYTES);
        if let Some(Text(burst)) = settings.burst.filter(|Text(burst)| *burst < frame) {
            let message = format!("{burst} is less than a frame of {frame}");
            self.findings.report("link", link, key, message);
        }
    }
}

/// Reads `ADDRESS/PREFIX`; an address alone has a prefix of all its bits.
fn cidr(text: &str) -> Option<Cidr> {
    let prefix: Prefix = text.parse().ok()?;
    let address = text.split('/').next()?.parse().ok()?;
    Some(Cidr { address, prefix: prefix.length() })
}

/// The most nodes: a namespace costs some 200 kB of kernel memory.
const NODES_MAX: usize = 1024;
/// The most links: one bridge of the kernel has at most 1023 ports.
const LINKS_MAX: usize = 4096;
/// With this length, lab and node name with a dash between them fit into a namespace's name.
const NAME_LEN_MAX: usize = 24;
/// IFNAMSIZ without its zero.
const DEVICE_LEN_MAX: usize = 15;
/// The MTU of Ethernet.
const MTU: u32 = 1500;
/// The kernel's `txqueuelen` for Ethernet.
const QUEUE: u32 = 1000;
const QUEUE_MAX: u32 = 100_000;
/// In bits a second: one full frame in 1.5 s.
const RATE_MIN: u64 = 8_000;
/// In bits a second: far above what a veth pair carries.
const RATE_MAX: u64 = 400_000_000_000;
const BURST_MAX: u64 = 64 << 20;
/// In nanoseconds: ten times the way around the earth through a geostationary satellite.
const DELAY_MAX: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let Err(problems) = Topology::parse(text) else { return Vec::new() };
        problems.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_key_is_read() {
        let topology = Topology::parse(
            r#"
            name = "t"
            [[node]]
            name = "a"
            sysctls = { "net.ipv4.ip_forward" = 1 }
            routes = ["default via 10.0.0.2"]
            [[node]]
            name = "b"
            [[link]]
            a.at = "a:eth0"
            a.mac = "02:00:00:00:00:0A"
            a.addresses = ["10.0.0.1/24", "fd00::1/64"]
            a.neighbours = { "10.0.0.2" = "02:00:00:00:00:02" }
            a.rate = "5Mbit"
            b = "b:b0"
            rate = "10Mbit"
            delay = "1ms"
            mtu = 9000
            queues = 2
            queue = 50
            offloads = false
            burst = "64KiB"
            [[bridge]]
            node = "b"
            name = "br0"
            members = ["b0"]
            "#,
        )
        .unwrap();
        let [a, b] = &topology.links[0].ends;
        assert_eq!(a.mac.unwrap().to_string(), "02:00:00:00:00:0a");
        assert_eq!((a.rate, b.rate), (Some(BitRate::from_mbps(5)), Some(BitRate::from_mbps(10))));
        assert_eq!(a.addresses[1].to_string(), "fd00::1/64");
        assert_eq!((b.queue, b.offloads, b.delay), (50, false, Nanos::from_millis(1)));
        assert!(topology.speaks_ipv6(0) && !topology.speaks_ipv6(1));
        assert_eq!(topology.bridges[0].members, ["b0"]);
        assert_eq!(topology.nodes[0].sysctls[0].1, "1");
    }

    #[test]
    fn all_problems_are_named_at_once_with_line_key_value_and_bound() {
        let found = problems(
            r#"name = "a lab"
nme = 1
[[node]]
name = "x"
sysctls = { "kernel.panic" = 1 }
routes = ["-batch /etc/passwd"]
[[node]]
name = "x"
[[link]]
a = { at = "x:interface-name-16", mac = "01:00:00:00:00:01", addresses = ["10.0.0.1/33"] }
b = "y:eth0"
rate = "1bit"
mtu = 9
queue = "many"
[[link]]
a = "x:eth1"
delay = "11s"
[[bridge]]
node = "x"
name = "br0"
members = ["eth9"]
"#,
        );
        let expected = [
            "1:8: name: \"a lab\": a name is",
            "2:1: nme: unknown key; did you mean \"name\"?",
            "5:11: node \"x\".sysctls: \"kernel.panic\": a node has",
            "6:11: node \"x\".routes 1: \"-batch /etc/passwd\" is no route",
            "8:8: node \"x\".name: there is a node \"x\" already",
            "10:12: link 1.a.at: device \"interface-name-16\": a name is 1 to 15",
            "10:41: link 1.a.mac: a device's address is no group address",
            "10:75: link 1.a.addresses 1: \"10.0.0.1/33\" is not an address or prefix",
            "11:5: link 1.b: there is no node \"y\"",
            "12:8: link 1.rate: 1bit is less than 8kbit",
            "13:7: link 1.mtu: 9 is less than 68",
            "14:9: link 1.queue: \"many\" is a text, must be an integer",
            "15:1: link 2.b: is missing",
            "17:9: link 2.delay: 11s is more than 10s",
            "21:12: bridge \"br0\".members 1: the node has no device \"eth9\"",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    #[test]
    fn text_that_is_no_toml_is_a_problem_with_a_line() {
        let found = problems("name = \"x\"\n[[node]\n");
        assert!(found[0].starts_with("2:8: not TOML"), "{found:?}");
        assert!(!problems("").is_empty());
    }
}
