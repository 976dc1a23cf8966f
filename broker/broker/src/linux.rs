// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A generic Linux router: items as commands of `ip` and `tc`, and back from their JSON.
//!
//! A tunnel's entry is a veth pair. Rules steer the packets of the connection into the pair's near
//! end, whose root is the token bucket; at its far end they are encapsulated by segment routing
//! with one segment, which is plain IPv6 in IPv6. The pair is there for three reasons: the bucket
//! has a device of its own, a packet that is too large gets the right Packet Too Big, and a change
//! of path is one replaced route behind the bucket.
//!
//! Without the `unreachable` routes a missing tunnel would silently become best effort.
//!
//! Everything of ours is marked: devices `wcNUMBER`, rules and routes of protocol 87, queueing
//! disciplines with handle `57:` on links. Other lines are neither read nor touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use serde_json::Value;
use weir_network::{FlowSelector, TUNNEL_MTU, TUNNEL_OVERHEAD, TransportProtocol};
use weir_platform::inspect::without_plain_options;

use crate::item::{EntryItem, ExitItem, Items, LinkItem, NodeItem, RelayItem};
use crate::item::{entry_key, outer_key, protocol_name};
use crate::links::{self, BURST_LEAST, LinkReading, LinkWatch};

/// Translation of items for one kind of router: all of it is pure.
pub(crate) trait NodeDriver {
    /// Returns the script that takes a node from `actual` to `wanted`; empty if they are equal.
    fn plan(&self, wanted: &Items, actual: &Items) -> String;

    /// Returns the script that reads a node.
    fn reading(&self) -> String;

    /// Reads the answer to [`Self::reading`].
    ///
    /// # Errors
    /// It has another form.
    fn read(&self, answer: &str) -> Result<Items, String>;

    /// Returns the script that reads the links among the wanted items: carrier and classes.
    fn reading_links(&self, wanted: &Items) -> String;

    /// Reads the answer to [`Self::reading_links`].
    fn read_links(&self, answer: &str, wanted: &Items) -> LinkReading;

    /// Returns a command that tells of changes of the wanted links' devices.
    fn watch(&self, wanted: &Items) -> LinkWatch;
}

/// The driver of a generic Linux router.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinuxDriver;

impl NodeDriver for LinuxDriver {
    fn plan(&self, wanted: &Items, actual: &Items) -> String {
        let (mut ip, mut tc) = (String::new(), String::new());
        let mut gone = Vec::new();
        for key in actual.keys().filter(|key| !wanted.contains_key(*key)) {
            match tunnel_of_key(key) {
                Some(tunnel) => gone.push(tunnel),
                None => remove(key, &mut ip),
            }
        }
        remove_entries(&gone, &mut ip);
        // Routes before entries, since an entry sends at once; entries in the order of their
        // numbers, which is that of their admission.
        let rank = |item: &NodeItem| match item {
            NodeItem::Entry(entry) => u32::from(entry.tunnel) + 1,
            _ => 0,
        };
        let mut puts: Vec<_> =
            wanted.iter().filter(|(key, item)| actual.get(*key) != Some(item)).collect();
        puts.sort_by_key(|(_, item)| rank(item));
        for (key, item) in puts {
            put(key, item, actual.get(key), &mut ip, &mut tc);
        }
        let mut script = String::new();
        for (program, lines) in [("ip -6", ip), ("tc", tc)] {
            if !lines.is_empty() {
                let _ = write!(script, "{program} -force -batch - 2>&1 <<'WEIR'\n{lines}WEIR\n");
            }
        }
        script
    }

    fn reading(&self) -> String {
        format!(
            "ip -6 -j -batch - <<'WEIR'\nroute show table all proto {PROTOCOL}\nrule show\nWEIR\n\
             tc -j qdisc show\n"
        )
    }

    fn read(&self, answer: &str) -> Result<Items, String> {
        let answer = without_plain_options(answer);
        let documents: Result<Vec<Vec<Value>>, _> =
            serde_json::Deserializer::from_str(&answer).into_iter().collect();
        let documents = documents.map_err(|error| format!("{error}: {answer:.200}"))?;
        let [routes, rules, qdiscs] = documents.as_slice() else {
            return Err(format!("{} documents instead of three", documents.len()));
        };
        let mut items = read_outer(routes);
        items.extend(read_entries(routes, rules, qdiscs));
        items.extend(read_trees(qdiscs));
        Ok(items)
    }

    fn reading_links(&self, wanted: &Items) -> String {
        links::reading(wanted)
    }

    fn read_links(&self, answer: &str, wanted: &Items) -> LinkReading {
        links::read(answer, wanted)
    }

    fn watch(&self, wanted: &Items) -> LinkWatch {
        links::watch(wanted)
    }
}

/// Writes the lines that remove an item.
fn remove(key: &str, ip: &mut String) {
    if let Some(tunnel) = tunnel_of_key(key) {
        remove_entries(&[tunnel], ip);
    } else if let Some(outer) = key.strip_prefix("outer/") {
        let _ = writeln!(ip, "route del {outer}/128 proto {PROTOCOL}");
    }
}

/// Writes the lines that remove entries. For each device that is removed alone the kernel waits
/// until nothing uses it any more, some milliseconds; for a group of them it waits once.
fn remove_entries(tunnels: &[u16], ip: &mut String) {
    for tunnel in tunnels {
        let of = Numbers::of(*tunnel);
        for preference in [of.by_ports, of.by_addresses, of.behind] {
            let _ = writeln!(ip, "rule del pref {preference} protocol {PROTOCOL}");
        }
    }
    if let [tunnel] = tunnels {
        let _ = writeln!(ip, "link del wc{tunnel}");
    } else if !tunnels.is_empty() {
        for tunnel in tunnels {
            let _ = writeln!(ip, "link set dev wc{tunnel} group {GONE_GROUP}");
        }
        let _ = writeln!(ip, "link del group {GONE_GROUP}");
    }
    for tunnel in tunnels {
        let of = Numbers::of(*tunnel);
        for table in [of.before_bucket, of.after_bucket] {
            let _ = writeln!(ip, "route flush table {table}");
        }
    }
}

/// Returns the tunnel of an entry's key.
fn tunnel_of_key(key: &str) -> Option<u16> {
    key.strip_prefix("entry/")?.parse().ok()
}

/// Writes the lines that put an item in the place of `actual`.
fn put(key: &str, item: &NodeItem, actual: Option<&NodeItem>, ip: &mut String, tc: &mut String) {
    match item {
        NodeItem::Relay(RelayItem { outer, next_hop, device }) => {
            let _ = writeln!(
                ip,
                "route replace {outer}/128 via {next_hop} dev {device} proto {PROTOCOL}"
            );
        }
        NodeItem::Exit(ExitItem { outer, device }) => {
            let _ = writeln!(
                ip,
                "route replace {outer}/128 encap seg6local action End.DT6 table 254 \
                 dev {device} proto {PROTOCOL}"
            );
        }
        NodeItem::Link(link) => links::put(link, tc),
        NodeItem::Entry(entry) => match actual {
            Some(NodeItem::Entry(old)) if old.steering() == entry.steering() => {
                change_entry(old, entry, ip, tc);
            }
            old => {
                if old.is_some() {
                    remove(key, ip);
                }
                put_entry(entry, ip, tc);
            }
        },
        NodeItem::Broken => {}
    }
}

/// Writes the lines of a new entry.
fn put_entry(entry: &EntryItem, ip: &mut String, tc: &mut String) {
    let EntryItem { tunnel, access, selector, .. } = entry;
    let FlowSelector { source, destination, protocol, source_port, destination_port } = selector;
    let Numbers { by_ports, by_addresses, behind, before_bucket, after_bucket } =
        Numbers::of(*tunnel);
    let mac = format!("02:57:01:00:{:02x}:{:02x}", tunnel >> 8, tunnel & 0xff);
    // The kernel would let a super-frame pass the bucket as one packet with one header.
    let _ = write!(
        ip,
        "link add wc{tunnel} mtu {TUNNEL_MTU} type veth peer name wc{tunnel}x mtu {TUNNEL_MTU} \
         address {mac}\n\
         link set wc{tunnel} gso_max_segs 1 up\n\
         link set wc{tunnel}x up\n\
         neigh replace fe80::2 lladdr {mac} dev wc{tunnel} nud permanent\n\
         route replace default via fe80::2 dev wc{tunnel} table {before_bucket} proto {PROTOCOL}\n\
         route replace unreachable default metric 9999 table {before_bucket} proto {PROTOCOL}\n\
         route replace unreachable default metric 9999 table {after_bucket} proto {PROTOCOL}\n"
    );
    put_path(entry, ip);
    let (mut ports, mut preference) = (String::new(), by_addresses);
    if let Some(protocol) = protocol {
        preference = by_ports;
        let _ = write!(ports, "ipproto {} ", protocol_name(*protocol));
        for (key, port) in [("sport", source_port), ("dport", destination_port)] {
            if let Some(port) = port {
                let _ = write!(ports, "{key} {port} ");
            }
        }
    }
    let _ = write!(
        ip,
        "rule add pref {behind} iif wc{tunnel}x lookup {after_bucket} protocol {PROTOCOL}\n\
         rule add pref {preference} from {source} to {destination} iif {access} {ports}\
         lookup {before_bucket} protocol {PROTOCOL}\n"
    );
    put_bucket(entry, tc);
}

/// Writes the lines that move an entry to another path or rate: no packet is lost by them.
fn change_entry(old: &EntryItem, entry: &EntryItem, ip: &mut String, tc: &mut String) {
    let old_path = (old.outer, old.next_hop, &old.next_device);
    if old_path != (entry.outer, entry.next_hop, &entry.next_device) {
        put_path(entry, ip);
        // Routes over a device that went down are gone already.
        if old.outer != entry.outer && !old.outer.is_unspecified() {
            let table = Numbers::of(entry.tunnel).after_bucket;
            let _ = writeln!(ip, "route del {}/128 table {table} proto {PROTOCOL}", old.outer);
        }
    }
    if old.rate_bytes != entry.rate_bytes {
        put_bucket(entry, tc);
    }
}

/// Writes the route of the outer address, then that into the tunnel.
///
/// The destination's route is for that address alone: the packet with its outer header meets the
/// same table again.
fn put_path(entry: &EntryItem, ip: &mut String) {
    let EntryItem { outer, next_hop, next_device, selector, .. } = entry;
    let destination = selector.destination;
    let table = Numbers::of(entry.tunnel).after_bucket;
    let _ = write!(
        ip,
        "route replace {outer}/128 via {next_hop} dev {next_device} table {table} \
         proto {PROTOCOL}\n\
         route replace {destination}/128 table {table} encap seg6 mode encap.red segs {outer} \
         dev {next_device} proto {PROTOCOL}\n"
    );
}

fn put_bucket(entry: &EntryItem, tc: &mut String) {
    let (tunnel, rate) = (entry.tunnel, entry.rate_bytes);
    // A millisecond at the rate: timers are late by up to that.
    let burst = (rate / 1000).max(BURST_LEAST);
    let _ = writeln!(
        tc,
        "qdisc replace dev wc{tunnel} root tbf rate {rate}bps burst {burst} latency 20ms \
         overhead {TUNNEL_OVERHEAD}"
    );
}

/// Numbers of a tunnel's rules and tables.
struct Numbers {
    by_ports: u32,
    by_addresses: u32,
    behind: u32,
    before_bucket: u32,
    after_bucket: u32,
}

impl Numbers {
    fn of(tunnel: u16) -> Self {
        let tunnel = u32::from(tunnel);
        // Rules with ports are met before those without.
        Self {
            by_ports: 10_000 + tunnel,
            by_addresses: 15_000 + tunnel,
            behind: 20_000 + tunnel,
            before_bucket: TABLE_BEFORE + tunnel,
            after_bucket: TABLE_AFTER + tunnel,
        }
    }
}

impl EntryItem {
    /// Returns the part that cannot be changed in place.
    fn steering(&self) -> impl PartialEq + '_ {
        (self.tunnel, &self.access, self.selector)
    }
}

fn read_outer(routes: &[Value]) -> Items {
    let main = routes.iter().filter(|route| matches!(text(route, "table"), None | Some("main")));
    let read = main.filter_map(|route| {
        let outer: Ipv6Addr = text(route, "dst")?.parse().ok()?;
        let device = text(route, "dev")?.to_owned();
        let item = match (text(route, "action"), address(route, "gateway")) {
            (Some("End.DT6"), None) => NodeItem::Exit(ExitItem { outer, device }),
            (None, Some(next_hop)) => NodeItem::Relay(RelayItem { outer, next_hop, device }),
            _ => NodeItem::Broken,
        };
        Some((outer_key(outer), item))
    });
    read.collect()
}

/// Answers of a router about entries, by device and by table.
#[derive(Debug, Default)]
struct EntryReading<'v> {
    routes: BTreeMap<u32, Vec<&'v Value>>,
    rules: BTreeMap<u32, Vec<&'v Value>>,
    buckets: BTreeMap<&'v str, &'v Value>,
}

impl EntryReading<'_> {
    fn routes(&self, table: u32) -> &[&Value] {
        self.routes.get(&table).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the rule that looks up a table; none if there is not exactly one.
    fn rule(&self, table: u32) -> Option<&Value> {
        match self.rules.get(&table)?.as_slice() {
            [rule] => Some(rule),
            _ => None,
        }
    }
}

fn read_entries(routes: &[Value], rules: &[Value], qdiscs: &[Value]) -> Items {
    let (mut reading, mut tunnels) = (EntryReading::default(), BTreeSet::new());
    for route in routes {
        if let Some(table) = table(route) {
            reading.routes.entry(table).or_default().push(route);
            tunnels.extend(tunnel_of_table(table));
        }
    }
    for rule in rules {
        if let Some(table) = table(rule) {
            reading.rules.entry(table).or_default().push(rule);
            let is_ours = text(rule, "protocol") == Some("87");
            tunnels.extend(tunnel_of_table(table).filter(|_| is_ours));
        }
    }
    for qdisc in qdiscs {
        let Some(device) = text(qdisc, "dev") else { continue };
        let Some(number) = device.strip_prefix("wc") else { continue };
        let number = number.strip_suffix('x').unwrap_or(number);
        tunnels.extend(number.parse::<u16>().ok());
        if text(qdisc, "kind") == Some("tbf") {
            reading.buckets.entry(device).or_insert(qdisc);
        }
    }
    let read = |tunnel| read_entry(tunnel, &reading).map(NodeItem::Entry);
    let each = tunnels
        .into_iter()
        .map(|tunnel: u16| (entry_key(tunnel), read(tunnel).unwrap_or(NodeItem::Broken)));
    each.collect()
}

/// Reads an entry; none if a part of it is missing.
fn read_entry(tunnel: u16, reading: &EntryReading<'_>) -> Option<EntryItem> {
    let of = Numbers::of(tunnel);
    let (device, far) = (format!("wc{tunnel}"), format!("wc{tunnel}x"));
    let in_table = |table: u32| reading.routes(table).iter().copied();
    in_table(of.before_bucket).find(|route| text(route, "dev") == Some(&device))?;
    let behind = reading.rule(of.after_bucket)?;
    (text(behind, "iif") == Some(&far)).then_some(())?;
    let steering = reading.rule(of.before_bucket)?;
    let destination = address(steering, "dst")?;
    let into = in_table(of.after_bucket).find(|route| text(route, "encap") == Some("seg6"));
    let (outer, next_hop, next_device) = match into {
        Some(into) => {
            let [outer] = into["segs"].as_array()?.as_slice() else { return None };
            let outer: Ipv6Addr = outer.as_str()?.parse().ok()?;
            (address(into, "dst") == Some(destination)).then_some(())?;
            let onwards =
                in_table(of.after_bucket).find(|route| address(route, "dst") == Some(outer))?;
            (outer, address(onwards, "gateway")?, text(onwards, "dev")?.to_owned())
        }
        // The kernel takes routes away with a device that goes down, but not the guard. The rest is
        // as it was, and only the path is put anew.
        None => {
            let is_guard = |route: &Value| text(route, "type") == Some("unreachable");
            in_table(of.after_bucket).find(|route| is_guard(route))?;
            (Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, String::new())
        }
    };
    let bucket = reading.buckets.get(device.as_str())?;
    (bucket["options"]["overhead"] == TUNNEL_OVERHEAD).then_some(())?;
    let port = |key: &str| steering[key].as_u64().and_then(|port| u16::try_from(port).ok());
    let protocol = match text(steering, "ipproto") {
        None => None,
        Some("tcp") => Some(TransportProtocol::Tcp),
        Some("udp") => Some(TransportProtocol::Udp),
        Some(_) => return None,
    };
    Some(EntryItem {
        tunnel,
        access: text(steering, "iif")?.to_owned(),
        selector: FlowSelector {
            source: address(steering, "src")?,
            destination,
            protocol,
            source_port: port("sport"),
            destination_port: port("dport"),
        },
        outer,
        next_hop,
        next_device,
        rate_bytes: bucket["options"]["rate"].as_u64()?,
    })
}

/// Reads which links have a tree of ours. Its classes are not in this answer.
fn read_trees(qdiscs: &[Value]) -> Items {
    let ours = qdiscs
        .iter()
        .filter(|qdisc| text(qdisc, "kind") == Some("htb") && text(qdisc, "handle") == Some("57:"));
    let links = ours.filter_map(|qdisc| {
        let device = text(qdisc, "dev")?.to_owned();
        let (rate_bytes, tunnels_bytes, pool) = (0, 0, Ipv6Addr::UNSPECIFIED);
        let link = NodeItem::Link(LinkItem { device, rate_bytes, tunnels_bytes, pool });
        Some((link.key()?, link))
    });
    links.collect()
}

fn table(value: &Value) -> Option<u32> {
    text(value, "table")?.parse().ok()
}

fn tunnel_of_table(table: u32) -> Option<u16> {
    let number = table.checked_sub(TABLE_AFTER).or_else(|| table.checked_sub(TABLE_BEFORE))?;
    u16::try_from(number).ok()
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value[key].as_str()
}

fn address(value: &Value, key: &str) -> Option<Ipv6Addr> {
    text(value, key)?.parse().ok()
}

/// Routing protocol that marks routes and rules of ours.
const PROTOCOL: u32 = 87;

/// Devices that are about to be removed: "WEIR", so that no foreign one is in it.
const GONE_GROUP: u32 = 0x5745_4952;

const TABLE_BEFORE: u32 = 1_000_000;
const TABLE_AFTER: u32 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> EntryItem {
        EntryItem {
            tunnel: 1,
            access: "acc".to_owned(),
            selector: FlowSelector {
                source: "fd01:1::2".parse().unwrap(),
                destination: "fd01:3::2".parse().unwrap(),
                protocol: Some(TransportProtocol::Udp),
                source_port: Some(1000),
                destination_port: Some(2000),
            },
            outer: "fd0f::1:1".parse().unwrap(),
            next_hop: "fd01:12::2".parse().unwrap(),
            next_device: "n2".to_owned(),
            rate_bytes: 2_500_000,
        }
    }

    fn with(item: NodeItem) -> Items {
        item.key().map(|key| (key, item)).into_iter().collect()
    }

    /// Answer of a router with [`entry`].
    const ANSWER: &str = r#"
        [{"dst":"default","gateway":"fe80::2","dev":"wc1","table":"1000001","metric":1024},
         {"type":"unreachable","dst":"default","dev":"lo","table":"1000001","metric":9999},
         {"dst":"fd01:3::2","encap":"seg6","mode":"encap.red","segs":["fd0f::1:1"],"dev":"n2",
          "table":"2000001","metric":1024},
         {"dst":"fd0f::1:1","gateway":"fd01:12::2","dev":"n2","table":"2000001","metric":1024},
         {"type":"unreachable","dst":"default","dev":"lo","table":"2000001","metric":9999}]
        [{"priority":0,"src":"all","table":"local"},
         {"priority":10001,"src":"fd01:1::2","dst":"fd01:3::2","iif":"acc","ipproto":"udp",
          "sport":1000,"dport":2000,"table":"1000001","protocol":"87"},
         {"priority":20001,"src":"all","iif":"wc1x","table":"2000001","protocol":"87"},
         {"priority":32766,"src":"all","table":"main"}]
        [{"kind":"noqueue","handle":"0:","dev":"wc1x","root":true},
         {"kind":"tbf","handle":"84c4:","dev":"wc1","root":true,
          "options":{"rate":2500000,"burst":15040,"lat":19984,"overhead":40}}]"#;

    #[test]
    fn an_entry_is_read_as_it_was_put() {
        let read = LinuxDriver.read(ANSWER).unwrap();
        assert_eq!(read, with(NodeItem::Entry(entry())));
        assert_eq!(LinuxDriver.plan(&read, &read), "");
    }

    /// Goal: a discipline of HFSC, which Debian 12 prints with plain text in it, hides nothing.
    #[test]
    fn a_foreign_hfsc_is_passed_over() {
        let hfsc =
            r#"[{"kind":"hfsc","handle":"1:","dev":"e","options":{default 2 }},{"kind":"noq"#;
        let answer = ANSWER.replace("[{\"kind\":\"noq", hfsc);
        assert_ne!(answer, ANSWER);
        assert_eq!(LinuxDriver.read(&answer).unwrap(), with(NodeItem::Entry(entry())));
    }

    /// Goal: many entries are removed by one command for all their devices, and put in the order of
    /// their numbers.
    #[test]
    fn many_entries_go_together() {
        let entries = |numbers: &[u16]| -> Items {
            let each = numbers.iter().map(|tunnel| EntryItem { tunnel: *tunnel, ..entry() });
            each.flat_map(|entry| with(NodeItem::Entry(entry))).collect()
        };
        let script = LinuxDriver.plan(&entries(&[2]), &entries(&[2, 9, 10]));
        assert!(!script.contains("link del wc"), "{script}");
        assert_eq!(script.matches("link del group").count(), 1, "{script}");
        let grouped =
            ["wc9 ", "wc10 "].map(|name| format!("link set dev {name}group {GONE_GROUP}"));
        assert!(grouped.iter().all(|line| script.contains(line)), "{script}");
        assert_eq!(script.matches("route flush table").count(), 4, "{script}");
        let script = LinuxDriver.plan(&entries(&[2, 9, 10]), &Items::new());
        let places = ["wc2", "wc9", "wc10"].map(|name| script.find(&format!("link add {name} ")));
        assert!(places.is_sorted() && places[0].is_some(), "{script}");
    }

    /// Goal: whatever part of an entry is missing, it is read as broken and put anew.
    #[test]
    fn a_damaged_entry_is_put_anew() {
        for (part, other) in [
            ("\"segs\":[\"fd0f::1:1\"]", "\"segs\":[]"),
            ("\"dst\":\"fd01:3::2\",\"iif\"", "\"iif\""),
            ("wc1x\",\"table\"", "wc2x\",\"table\""),
            ("\"overhead\":40", "\"overhead\":0"),
            ("\"kind\":\"tbf\"", "\"kind\":\"fq\""),
        ] {
            let answer = ANSWER.replace(part, other);
            assert_ne!(answer, ANSWER, "{part}");
            let read = LinuxDriver.read(&answer).unwrap();
            assert_eq!(read.get("entry/1"), Some(&NodeItem::Broken), "{part}");
            let script = LinuxDriver.plan(&with(NodeItem::Entry(entry())), &read);
            let (removed, put) = (script.find("link del wc1"), script.find("link add wc1"));
            assert!(removed.is_some() && removed < put, "{part}: {script}");
        }
    }

    /// Goal: an entry whose device went down, and took the routes with it, keeps its steering and
    /// its bucket, and gets the new path.
    #[test]
    fn a_lost_path_is_put_alone() {
        let lost = ["\"fd01:3::2\",\"encap\"", "\"fd0f::1:1\",\"gateway\""];
        let answer = lost.iter().fold(ANSWER.to_owned(), |answer, route| {
            let begin = answer.find(&format!("{{\"dst\":{route}")).unwrap();
            let end = begin + answer[begin..].find("},").unwrap() + 2;
            format!("{}{}", &answer[..begin], &answer[end..])
        });
        let read = LinuxDriver.read(&answer).unwrap();
        let script = LinuxDriver.plan(&with(NodeItem::Entry(entry())), &read);
        assert!(script.contains("route replace fd0f::1:1/128"), "{script}");
        let untouched = ["link", "rule", "tc ", "del"];
        assert!(untouched.iter().all(|word| !script.contains(word)), "{script}");
        // Without its guard packets would become best effort: it is put anew.
        let guard = answer.rfind("{\"type\":\"unreachable\"").unwrap();
        let end = guard + answer[guard..].find('}').unwrap() + 1;
        let before = answer[..guard].trim_end().trim_end_matches(',');
        let answer = format!("{before}{}", &answer[end..]);
        let read = LinuxDriver.read(&answer).unwrap();
        assert_eq!(read.get("entry/1"), Some(&NodeItem::Broken), "{answer}");
    }

    /// Goal: a change of rate touches the bucket alone, a change of path replaces one route.
    #[test]
    fn a_change_is_in_place() {
        let old = with(NodeItem::Entry(entry()));
        let rate = with(NodeItem::Entry(EntryItem { rate_bytes: 5_000_000, ..entry() }));
        let script = LinuxDriver.plan(&rate, &old);
        assert!(script.contains("tbf rate 5000000bps") && !script.contains("ip "), "{script}");
        let outer = "fd0f::1:2".parse().unwrap();
        let path = with(NodeItem::Entry(EntryItem { outer, ..entry() }));
        let script = LinuxDriver.plan(&path, &old);
        assert!(!script.contains("link") && !script.contains("tc "), "{script}");
        let order = ["route replace fd0f::1:2", "route replace fd01:3::2", "route del fd0f::1:1"];
        let places = order.map(|line| script.find(line));
        assert!(places.is_sorted() && places[0].is_some(), "{script}");
    }
}
