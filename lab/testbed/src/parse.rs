// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the text of a topology to its types: all problems at once, with line, key and bound.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use toml::de::DeTable;
use weir_units::{BitRate, ByteCount, Nanos};

use super::read::{Placed, Reader, Table, TopologyProblem, TopologyProblems};
use super::topology::{Bridge, Cidr, End, HEADER_BYTES, Mac, Topology, TopologyLink, TopologyNode};

impl Topology {
    /// Reads a topology.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, TopologyProblems> {
        if text.len() > TEXT_BYTES_MAX {
            let message = format!("{} bytes, and {TEXT_BYTES_MAX} is the most", text.len());
            return Err(TopologyProblems(vec![TopologyProblem {
                line: 1,
                key: String::new(),
                message,
            }]));
        }
        let reader = Reader::new(text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            reader.note(&span, "", error.message().to_owned());
        }
        let root = reader.table(String::new(), document.get_ref(), 0..0);
        let topology = read(&reader, root);
        reader.finish(topology)
    }
}

fn read(reader: &Reader<'_>, root: Table<'_, '_>) -> Topology {
    let name = root.required("name", root.string("name"));
    if let Some(name) = &name {
        check_name(reader, name);
    }
    let mut names = Names::default();
    let nodes = root.tables("node");
    if nodes.len() > NODES_MAX {
        root.note(format!("{} nodes, and {NODES_MAX} is the most", nodes.len()));
    }
    let nodes = nodes.into_iter().map(|table| node(reader, table, &mut names)).collect();
    let links = root.tables("link");
    if links.len() > LINKS_MAX {
        root.note(format!("{} links, and {LINKS_MAX} is the most", links.len()));
    }
    let links = links.into_iter().filter_map(|table| link(reader, table, &mut names)).collect();
    let bridges = root.tables("bridge");
    let bridges = bridges.into_iter().filter_map(|table| bridge(reader, table, &mut names));
    let bridges = bridges.collect();
    root.end();
    Topology { name: name.map_or_else(String::new, |name| name.value), nodes, links, bridges }
}

/// The names so far.
#[derive(Default)]
struct Names {
    nodes: Vec<String>,
    /// Node and device.
    devices: Vec<(usize, String)>,
    /// Node and device, of those that are ports of a bridge.
    members: Vec<(usize, String)>,
}

impl Names {
    fn node(&self, reader: &Reader<'_>, name: &Placed<String>, text: &str) -> Option<usize> {
        let found = self.nodes.iter().position(|node| node == text);
        if found.is_none() {
            reader.refuse(name, format!("there is no node {text:?}"));
        }
        found
    }

    fn device(&mut self, reader: &Reader<'_>, at: &Placed<String>, node: usize, device: &str) {
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '\'' | '"' | '#');
        if !(1..=DEVICE_LEN_MAX).contains(&device.len())
            || !device.chars().all(plain)
            || matches!(device, "lo" | "." | ".." | "all" | "default")
        {
            let message = format!(
                "device {device:?}: a name is 1 to {DEVICE_LEN_MAX} letters, digits or signs \
                 (no '/', ':', '#', quotes), and not \"lo\", \"all\" or \"default\""
            );
            reader.refuse(at, message);
        }
        let entry = (node, device.to_owned());
        if self.devices.contains(&entry) {
            reader.refuse(at, format!("the node has a device {device:?} already"));
        }
        self.devices.push(entry);
    }
}

fn node(reader: &Reader<'_>, table: Table<'_, '_>, names: &mut Names) -> TopologyNode {
    let name = table.required("name", table.string("name"));
    if let Some(name) = &name {
        check_name(reader, name);
        if names.nodes.contains(&name.value) {
            reader.refuse(name, format!("there is a node {:?} already", name.value));
        }
    }
    let name = name.map_or_else(String::new, |name| name.value);
    let mut sysctls = Vec::new();
    for (key, value) in table.pairs("sysctls") {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !key.starts_with("net.") || !key.chars().all(plain) {
            reader.refuse(&value, format!("{key:?}: a node has variables below \"net.\" only"));
        }
        if value.value.chars().any(char::is_control) {
            reader.refuse(&value, format!("{:?} holds a control character", value.value));
        }
        sysctls.push((key, value.value));
    }
    let mut routes = Vec::new();
    for route in table.strings("routes") {
        let plain = |c: char| c.is_ascii_alphanumeric() || " ./:_-".contains(c);
        let sane = route.value.chars().all(plain) && !route.value.trim_start().starts_with('-');
        if !sane || route.value.trim().is_empty() {
            let message = format!("{:?} is no route as `ip route replace` takes it", route.value);
            reader.refuse(&route, message);
        }
        routes.push(route.value);
    }
    table.end();
    names.nodes.push(name.clone());
    TopologyNode { name, sysctls, routes }
}

/// The settings of a link for both its ends, unless an end has its own.
struct Defaults {
    rate: Option<BitRate>,
    burst: Option<ByteCount>,
    queue: u32,
    delay: Nanos,
    offloads: bool,
    mtu: u32,
}

impl Defaults {
    fn read(reader: &Reader<'_>, table: &Table<'_, '_>, above: &Self) -> Self {
        let rate = table.parsed::<BitRate>("rate", "rate");
        let burst = table.parsed::<ByteCount>("burst", "size");
        let delay = table.parsed::<Nanos>("delay", "duration");
        bound(reader, rate.as_ref(), &(RATE_MIN..=RATE_MAX));
        let frame = ByteCount::new(u64::from(above.mtu) + HEADER_BYTES);
        bound(reader, burst.as_ref(), &(frame..=BURST_MAX));
        bound(reader, delay.as_ref(), &(Nanos::ZERO..=DELAY_MAX));
        Self {
            rate: rate.map(|rate| rate.value).or(above.rate),
            burst: burst.map(|burst| burst.value).or(above.burst),
            queue: table.integer("queue", 1, QUEUE_MAX).unwrap_or(above.queue),
            delay: delay.map_or(above.delay, |delay| delay.value),
            offloads: table.boolean("offloads").unwrap_or(above.offloads),
            mtu: above.mtu,
        }
    }
}

fn link(reader: &Reader<'_>, table: Table<'_, '_>, names: &mut Names) -> Option<TopologyLink> {
    let mtu = table.integer("mtu", 68, 65535).unwrap_or(MTU);
    let queues = table.integer("queues", 1, 64).unwrap_or(1);
    let plain =
        Defaults { rate: None, burst: None, queue: QUEUE, delay: Nanos::ZERO, offloads: true, mtu };
    let defaults = Defaults::read(reader, &table, &plain);
    let a = end(reader, &table, "a", &defaults, names);
    let b = end(reader, &table, "b", &defaults, names);
    table.end();
    Some(TopologyLink { ends: [a?, b?], mtu, queues })
}

fn end(
    reader: &Reader<'_>,
    link: &Table<'_, '_>,
    key: &'static str,
    defaults: &Defaults,
    names: &mut Names,
) -> Option<End> {
    match link.required(key, link.table_or_string(key))? {
        Err(place) => {
            let (node, device) = place_of(reader, &place, names)?;
            Some(bare_end(node, device, defaults))
        }
        Ok(table) => {
            let own = Defaults::read(reader, &table, defaults);
            let place = table.required("at", table.string("at"));
            let place = place.and_then(|place| place_of(reader, &place, names));
            let mac = table.parsed::<Mac>("mac", "MAC address").map(|mac| mac.value);
            let addresses = addresses(reader, &table);
            let neighbours = neighbours(reader, &table);
            table.end();
            let (node, device) = place?;
            Some(End { mac, addresses, neighbours, ..bare_end(node, device, &own) })
        }
    }
}

fn bare_end(node: usize, device: String, defaults: &Defaults) -> End {
    End {
        node,
        device,
        mac: None,
        addresses: Vec::new(),
        neighbours: Vec::new(),
        rate: defaults.rate,
        burst: defaults.burst,
        queue: defaults.queue,
        delay: defaults.delay,
        offloads: defaults.offloads,
    }
}

/// `NODE:DEVICE`.
fn place_of(
    reader: &Reader<'_>,
    place: &Placed<String>,
    names: &mut Names,
) -> Option<(usize, String)> {
    let Some((node, device)) = place.value.split_once(':') else {
        reader.refuse(place, format!("{:?} is not NODE:DEVICE", place.value));
        return None;
    };
    let node = names.node(reader, place, node)?;
    names.device(reader, place, node, device);
    Some((node, device.to_owned()))
}

fn addresses(reader: &Reader<'_>, table: &Table<'_, '_>) -> Vec<Cidr> {
    let mut addresses = Vec::new();
    for text in table.strings("addresses") {
        match text.value.parse() {
            Ok(address) => addresses.push(address),
            Err(error) => reader.refuse(&text, format!("{:?} is no address: {error}", text.value)),
        }
    }
    addresses
}

fn neighbours(reader: &Reader<'_>, table: &Table<'_, '_>) -> Vec<(IpAddr, Mac)> {
    let mut neighbours = Vec::new();
    for (address, mac) in table.pairs("neighbours") {
        match (address.parse(), mac.value.parse()) {
            (Ok(address), Ok(mac)) => neighbours.push((address, mac)),
            (Err(_), _) => reader.refuse(&mac, format!("{address:?} is no IP address")),
            (_, Err(error)) => {
                reader.refuse(&mac, format!("{:?} is no MAC address: {error}", mac.value));
            }
        }
    }
    neighbours
}

fn bridge(reader: &Reader<'_>, table: Table<'_, '_>, names: &mut Names) -> Option<Bridge> {
    let node = table.required("node", table.string("node"));
    let node = node.and_then(|node| names.node(reader, &node, &node.value));
    let name = table.required("name", table.string("name"));
    if let (Some(node), Some(name)) = (node, &name) {
        names.device(reader, name, node, &name.value);
    }
    let mut members = Vec::new();
    for member in table.strings("members") {
        if let Some(node) = node {
            let entry = (node, member.value.clone());
            if !names.devices.contains(&entry) {
                reader.refuse(&member, format!("the node has no device {:?}", member.value));
            }
            if names.members.contains(&entry) {
                reader.refuse(&member, format!("{:?} is in a bridge already", member.value));
            }
            names.members.push(entry);
        }
        members.push(member.value);
    }
    table.end();
    Some(Bridge { node: node?, name: name?.value, members })
}

fn check_name(reader: &Reader<'_>, name: &Placed<String>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let text = &name.value;
    if !(1..=NAME_LEN_MAX).contains(&text.len())
        || !text.chars().all(plain)
        || text.starts_with('-')
    {
        let message = format!("{text:?}: a name is 1 to {NAME_LEN_MAX} letters, digits and '-'");
        reader.refuse(name, message);
    }
}

fn bound<T: PartialOrd + fmt::Display>(
    reader: &Reader<'_>,
    value: Option<&Placed<T>>,
    range: &RangeInclusive<T>,
) {
    if let Some(placed) = value
        && !range.contains(&placed.value)
    {
        let message = format!("{} is not in {} to {}", placed.value, range.start(), range.end());
        reader.refuse(placed, message);
    }
}

/// A larger file is no topology.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// The most nodes: a namespace costs some 200 kB of kernel memory.
const NODES_MAX: usize = 1024;
/// The most links: one bridge of the kernel has at most 1023 ports.
const LINKS_MAX: usize = 4096;
/// Lab and node name with a dash between them stay below what a namespace's name may be.
const NAME_LEN_MAX: usize = 24;
/// IFNAMSIZ without its zero.
const DEVICE_LEN_MAX: usize = 15;
/// The MTU of Ethernet.
const MTU: u32 = 1500;
/// The kernel's `txqueuelen` for Ethernet.
const QUEUE: u32 = 1000;
const QUEUE_MAX: u32 = 100_000;
/// One full frame in 1.5 s.
const RATE_MIN: BitRate = BitRate::from_bps(8_000);
/// Far above what a veth pair carries.
const RATE_MAX: BitRate = BitRate::from_mbps(400_000);
const BURST_MAX: ByteCount = ByteCount::new(64 << 20);
/// Ten times the way around the earth through a geostationary satellite.
const DELAY_MAX: Nanos = Nanos::from_secs(10);

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
            "line 1: name: \"a lab\": a name is",
            "line 2: nme: unknown key; known: name, node, link, bridge",
            "line 5: node[0].sysctls.kernel.panic: \"kernel.panic\": a node has",
            "line 6: node[0].routes[0]: \"-batch /etc/passwd\" is no route",
            "line 8: node[1].name: there is a node \"x\" already",
            "line 10: link[0].a.addresses[0]: \"10.0.0.1/33\" is no address: the prefix is 0 to 32",
            "line 10: link[0].a.at: device \"interface-name-16\": a name is 1 to 15",
            "line 10: link[0].a.mac: \"01:00:00:00:00:01\" is no MAC address: a device's",
            "line 11: link[0].b: there is no node \"y\"",
            "line 12: link[0].rate: 1bit is not in 8kbit to 400Gbit",
            "line 13: link[0].mtu: 9 is not in 68 to 65535",
            "line 14: link[0].queue: must be a whole number, and is of type string",
            "line 15: link[1]: needs the key `b`",
            "line 17: link[1].delay: 11s is not in 0s to 10s",
            "line 21: bridge[0].members[0]: the node has no device \"eth9\"",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    #[test]
    fn text_that_is_no_toml_is_a_problem_with_a_line() {
        let found = problems("name = \"x\"\n[[node]\n");
        assert!(found[0].starts_with("line 2: "), "{found:?}");
        assert!(!problems("").is_empty());
    }
}
