// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A generic Linux router: turns items into commands of `ip`, `tc` and `nft`, and the JSON of these
//! programs back into items.
//!
//! A tunnel's entry is a veth pair. [`steering`] leads the packets of the connection into the near
//! end, whose root is the token bucket; at the far end they are encapsulated by segment routing
//! with one segment, which is plain IPv6 in IPv6, or by a device of [`ip6tnl`]. The pair is there
//! for three reasons: the bucket has a device of its own, a packet that is too large gets the right
//! Packet Too Big, and a change of path is one replaced route behind the bucket.
//!
//! Without the `unreachable` routes a missing tunnel would silently become best effort.
//!
//! The broker's own objects are marked: devices `wcNUMBER` and those of [`ip6tnl`], rules and
//! routes of protocol 87, the table `weir_tunnels` of nftables, queueing disciplines with handle
//! `57:` on links. Other objects are left alone; a root discipline of others at a link is reported
//! as foreign.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use serde_json::Value;
use weir_network::TUNNEL_MTU;
use weir_platform::inspect::without_plain_options;

use crate::bucket;
use crate::config::Encapsulation;
use crate::edge_guard;
use crate::ip6tnl;
use crate::item::{
    EntryItem, EntryPath, ExitItem, Items, LinkItem, NodeItem, PROTOCOL, RelayItem, SteeringItem,
    TunnelFlow, entry_key, outer_key,
};
use crate::links::{self, LinkReading, LinkWatch};

mod entry_reading;
#[cfg(test)]
mod kernel_tests;
mod steering;

use entry_reading::{EntryReading, Numbers, address, text};
use steering::BaseChange;

/// Translation of items for one kind of router. Implementations are pure.
pub(crate) trait NodeDriver {
    /// Returns the script that takes a node from `actual` to `wanted`; empty if they are equal.
    fn plan(&self, wanted: &Items, actual: &Items) -> String;

    /// Returns the script that reads a node.
    fn reading(&self) -> String;

    /// Parses the answer to [`Self::reading`].
    ///
    /// # Errors
    /// The answer is malformed.
    fn read(&self, answer: &str) -> Result<Items, String>;

    /// Returns the script that reads carrier and classes of the links among the wanted items.
    fn reading_links(&self, wanted: &Items) -> String;

    /// Parses the answer to [`Self::reading_links`].
    fn read_links(&self, answer: &str, wanted: &Items) -> LinkReading;

    /// Returns a command that reports changes of the wanted links' devices.
    fn watch(&self, wanted: &Items) -> LinkWatch;
}

/// The driver of a generic Linux router.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinuxDriver {
    pub(crate) encapsulation: Encapsulation,
    /// The source address of tunnels by segment routing, an address of the router. Without one, the
    /// kernel would choose a source for each packet, among the addresses of all devices.
    pub(crate) tunnel_source: Option<Ipv6Addr>,
}

impl NodeDriver for LinuxDriver {
    fn plan(&self, wanted: &Items, actual: &Items) -> String {
        let (mut ip, mut tc) = (String::new(), String::new());
        let (mut new_ip, mut new_tc) = (String::new(), String::new());
        remove(actual.iter().filter(|(key, old)| is_removed(old, wanted.get(*key))), &mut ip);
        // Routes are put before entries, since a new entry sends at once; entries in the order of
        // their numbers, which is the order of their admission.
        let rank = |item: &NodeItem| match item {
            NodeItem::Entry(entry) => u32::from(entry.tunnel) + 1,
            _ => 0,
        };
        let mut puts: Vec<_> =
            wanted.iter().filter(|(key, item)| item.replaces(actual.get(*key))).collect();
        puts.sort_by_key(|(_, item)| rank(item));
        let mut neighbours = String::new();
        let mut holds: BTreeMap<u16, Vec<HeldChange<'_>>> = BTreeMap::new();
        for (key, item) in puts {
            let before = actual.get(key);
            ask_for_neighbour(item, before, &mut neighbours);
            if let Some(entry) = held(item, before) {
                let change = HeldChange { key, item, entry, before };
                holds.entry(hold_class(entry.hold_ms)).or_default().push(change);
            } else if is_new_entry(item, before) {
                put(key, item, before, &mut new_ip, &mut new_tc);
            } else {
                put(key, item, before, &mut ip, &mut tc);
            }
        }
        // iproute2 has `neigh … use` since 5.16. Without it, the first packets trigger the
        // discovery.
        let neighbours = batch("ip -6", neighbours, ">/dev/null 2>&1");
        let [ip, new_ip] = [ip, new_ip].map(|lines| batch("ip -6", lines, "2>&1"));
        let [tc, new_tc] = [tc, new_tc].map(|lines| batch("tc", lines, "2>&1"));
        let shared = steering::change(wanted, actual);
        // `nft` ends long after it has deleted a mark, since it waits for readers in the kernel. So
        // it runs in the background, unless the base changes.
        let is_aside = shared.base.is_none() && !shared.first.is_empty();
        let first = nft(shared.first, if is_aside { " &" } else { "" });
        let last = if is_aside { "wait\n" } else { "" }.to_owned() + &nft(shared.last, "");
        let (old, new) = (ip + &tc, new_ip + &new_tc + &last);
        let script = self.with_shared(shared.base, [first, shared.ip, old, new]);
        let script = neighbours + &script;
        if holds.is_empty() {
            return script;
        }
        // The shortest holds come first, since they delay the others only a little.
        let holds: String = holds.into_values().map(|changes| hold_script(&changes)).collect();
        // A shell reads a whole group before it executes any of it.
        format!("{{\n{script}{holds}}}\n")
    }

    fn reading(&self) -> String {
        let devices = match self.encapsulation {
            Encapsulation::SegmentRouting => "",
            Encapsulation::Ip6tnl => ip6tnl::READING,
        };
        format!(
            "found=$(ip -6 -j -batch - <<'WEIR'\nroute show table all proto {PROTOCOL}\nrule show\n\
             WEIR\n)\nprintf '%s\\n' \"$found\"\ntc -j qdisc show\n{}\n{devices}\n",
            steering::READING
        )
    }

    fn read(&self, answer: &str) -> Result<Items, String> {
        if let Some(failure) = steering::failure(answer) {
            return Err(failure.to_owned());
        }
        let answer = without_plain_options(answer);
        let documents: Result<Vec<Document>, _> =
            serde_json::Deserializer::from_str(&answer).into_iter().collect();
        let documents = documents.map_err(|error| format!("{error}: {answer:.200}"))?;
        let (count, wanted) = (documents.len(), self.documents());
        let lists: Vec<&[Value]> = documents.iter().map(Document::list).collect();
        let (routes, rules, qdiscs, table, devices) = match lists.as_slice() {
            [routes, rules, qdiscs, table, devices @ ..] if count == wanted => {
                (*routes, *rules, *qdiscs, *table, devices)
            }
            _ => return Err(format!("{count} documents instead of {wanted}")),
        };
        let devices = devices.iter().flat_map(|of| ip6tnl::read(of)).collect();
        let mut items = read_outer(routes);
        items.extend(ip6tnl::exits(&devices));
        items.extend(read_trees(qdiscs));
        items.extend(edge_guard::read(rules));
        let reading = EntryReading::new(routes, rules, qdiscs, &devices);
        let shared = steering::read(rules, table);
        items.extend(read_entries(&reading, shared.as_ref()));
        items.extend(shared.map(|of| (steering::KEY.to_owned(), NodeItem::Steering(of))));
        let unused = ip6tnl::unused(&devices, &items);
        items.extend(unused);
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

impl LinuxDriver {
    /// Returns the script that first changes what all entries share (lines of `nft`, then of `ip`),
    /// then items and new entries.
    fn with_shared(self, base: Option<BaseChange>, parts: [String; 4]) -> String {
        let [first, shared, old, new] = parts;
        let shared = batch("ip -6", shared, "2>&1");
        match base {
            None => [first, shared, old, new].concat(),
            // Without `nft`, or the kernel's part of it, a router keeps what it has and gets no new
            // entries.
            Some(BaseChange::Put) => {
                let source = self.set_source(BaseChange::Put);
                let new = [shared, source, new].concat();
                format!("{first}marked=$?\n{old}if [ $marked = 0 ]; then\n{new}fi\n")
            }
            // If the table cannot be removed, its rules stay: only with them does the next reading
            // look for it.
            Some(BaseChange::Removed) => {
                let source = self.set_source(BaseChange::Removed);
                format!("{first}case $? in 0 | 127)\n{shared};;\nesac\n{source}{old}")
            }
        }
    }

    /// Returns the line that sets the source of tunnels when the first entry comes, and has the
    /// kernel choose again after the last. What somebody else has set stays.
    fn set_source(self, base: BaseChange) -> String {
        let (Some(source), Encapsulation::SegmentRouting) =
            (self.tunnel_source, self.encapsulation)
        else {
            return String::new();
        };
        let (chosen, own) = (Ipv6Addr::UNSPECIFIED.to_string(), source.to_string());
        let (before, after) = match base {
            BaseChange::Put => (chosen, own),
            BaseChange::Removed => (own, chosen),
        };
        let (show, set) = ("ip sr tunsrc show", "ip sr tunsrc set");
        format!("case $({show} 2>&1) in *' {before}') {set} {after} 2>&1 ;; esac\n")
    }

    /// Returns the number of documents in an answer to [`Self::reading`].
    fn documents(self) -> usize {
        match self.encapsulation {
            Encapsulation::SegmentRouting => 4,
            Encapsulation::Ip6tnl => 5,
        }
    }
}

/// A document that a router's programs print.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Document {
    /// The answer of a command of `ip` or `tc`.
    List(Vec<Value>),
    /// The answer of `nft`, whose list is empty if there is no table.
    Table {
        #[serde(default)]
        nftables: Vec<Value>,
    },
}

impl Document {
    fn list(&self) -> &[Value] {
        match self {
            Self::List(list) | Self::Table { nftables: list } => list,
        }
    }
}

/// Returns true if an item is to be removed: nothing is wanted under its key, or it cannot be
/// changed in place into what is wanted. The kernel removes many devices as fast as one.
fn is_removed(old: &NodeItem, wanted: Option<&NodeItem>) -> bool {
    match (old, wanted) {
        (_, None) => true,
        (NodeItem::Entry(old), Some(NodeItem::Entry(entry))) => !old.can_become(entry),
        (_, Some(NodeItem::Entry(_))) => true,
        _ => false,
    }
}

/// Returns true if an item is an entry that is made anew, since `actual` cannot be changed into it.
fn is_new_entry(item: &NodeItem, actual: Option<&NodeItem>) -> bool {
    matches!(item, NodeItem::Entry(_)) && actual.is_none_or(|old| is_removed(old, Some(item)))
}

/// Writes the line that has the kernel discover the next router's link-layer address before packets
/// arrive, since the kernel queues only few packets for an unknown neighbour.
fn ask_for_neighbour(item: &NodeItem, actual: Option<&NodeItem>, lines: &mut String) {
    let (neighbour, device) = match item {
        NodeItem::Link(LinkItem { neighbour, device, .. }) => (neighbour, device),
        NodeItem::Relay(RelayItem { next_hop, device, .. }) => (next_hop, device),
        NodeItem::Entry(EntryItem { path, .. }) => match actual {
            Some(NodeItem::Entry(old)) if old.path == *path => return,
            _ => (&path.next_hop, &path.next_device),
        },
        NodeItem::Exit(_)
        | NodeItem::Guard(_)
        | NodeItem::Steering(_)
        | NodeItem::Foreign(_)
        | NodeItem::Broken
        | NodeItem::Unused => return,
    };
    let _ = writeln!(lines, "neigh replace {neighbour} dev {device} nud none use");
}

/// Returns the script that has a program execute these lines, with its output redirected by `said`;
/// empty if there are no lines.
fn batch(program: &str, lines: String, said: &str) -> String {
    if lines.is_empty() {
        return lines;
    }
    format!("{program} -force -batch - {said} <<'WEIR'\n{lines}WEIR\n")
}

/// Returns the script that has `nft` execute these lines, all or none, with `after` at the end of
/// its command line; empty if there are no lines.
fn nft(lines: String, after: &str) -> String {
    if lines.is_empty() {
        return lines;
    }
    format!("nft -f - 2>&1 <<'WEIR'{after}\n{lines}WEIR\n")
}

/// A change of an entry whose packets are held meanwhile.
struct HeldChange<'i> {
    key: &'i String,
    item: &'i NodeItem,
    /// The entry that `item` is.
    entry: &'i EntryItem,
    before: Option<&'i NodeItem>,
}

/// Returns the class of a hold. Holds of one class are less than a factor of two apart, so that no
/// entry is held much longer than it needs, and the pauses of all classes together take less than
/// six times the longest hold.
fn hold_class(hold_ms: u16) -> u16 {
    hold_ms.checked_next_power_of_two().unwrap_or(u16::MAX)
}

/// Returns the lines that change entries while their packets are held, all for the longest hold
/// among them.
fn hold_script(changes: &[HeldChange<'_>]) -> String {
    let hold_ms = changes.iter().map(|change| change.entry.hold_ms).max().unwrap_or(0);
    let (mut stop, mut ip, mut tc) = (String::new(), String::new(), String::new());
    for HeldChange { key, item, entry, before } in changes {
        bucket::stop(entry, hold_ms, &mut stop);
        put(key, item, *before, &mut ip, &mut tc);
    }
    let [stop, ip, tc] =
        [("tc", stop), ("ip -6", ip), ("tc", tc)].map(|(of, lines)| batch(of, lines, "2>&1"));
    let pause = format!("sleep {}.{:03}\n", hold_ms / 1000, hold_ms % 1000);
    format!("{stop}{pause}{ip}{pause}{tc}")
}

/// Returns the entry if its packets are to be held while its path is replaced.
fn held<'i>(item: &'i NodeItem, actual: Option<&NodeItem>) -> Option<&'i EntryItem> {
    let (NodeItem::Entry(entry), Some(NodeItem::Entry(old))) = (item, actual) else { return None };
    (entry.hold_ms > 0 && old.path != entry.path && old.can_become(entry)).then_some(entry)
}

/// Writes the lines that remove items. The kernel waits some milliseconds until nothing uses a
/// removed device any more. It waits once for a whole group of devices, so they are removed as a
/// group.
fn remove<'i>(items: impl Iterator<Item = (&'i String, &'i NodeItem)>, ip: &mut String) {
    let (mut devices, mut tables) = (Vec::new(), Vec::new());
    for (key, item) in items {
        devices.extend(ip6tnl::device_of_key(key).map(str::to_owned));
        devices.extend(ip6tnl::device_of(item));
        edge_guard::remove(key, ip);
        if let Some(tunnel) = tunnel_of_key(key) {
            let of = Numbers::of(tunnel);
            steering::remove_rules(tunnel, *item != NodeItem::Broken, ip);
            devices.push(format!("wc{tunnel}"));
            tables.extend([of.before_bucket, of.after_bucket]);
        } else if let (Some(outer), None) = (key.strip_prefix("outer/"), ip6tnl::device_of(item)) {
            let _ = writeln!(ip, "route del {outer}/128 proto {PROTOCOL}");
        }
    }
    if let [device] = devices.as_slice() {
        let _ = writeln!(ip, "link del {device}");
    } else if !devices.is_empty() {
        for device in devices {
            let _ = writeln!(ip, "link set dev {device} group {GONE_GROUP}");
        }
        let _ = writeln!(ip, "link del group {GONE_GROUP}");
    }
    for table in tables {
        let _ = writeln!(ip, "route flush table {table}");
    }
}

/// Returns the tunnel of an entry's key.
fn tunnel_of_key(key: &str) -> Option<u16> {
    key.strip_prefix("entry/")?.parse().ok()
}

/// Writes the lines that put an item in the place of `actual`.
fn put(key: &String, item: &NodeItem, actual: Option<&NodeItem>, ip: &mut String, tc: &mut String) {
    match item {
        NodeItem::Relay(RelayItem { outer, next_hop, device }) => {
            let _ = writeln!(
                ip,
                "route replace {outer}/128 via {next_hop} dev {device} proto {PROTOCOL}"
            );
        }
        NodeItem::Exit(ExitItem { outer, device }) => {
            let old = actual.filter(|old| ip6tnl::device_of(old) != ip6tnl::device_of(item));
            remove(old.map(|old| (key, old)).into_iter(), ip);
            let Some(device) = device else { return ip6tnl::put_exit(*outer, ip) };
            let _ = writeln!(
                ip,
                "route replace {outer}/128 encap seg6local action End.DT6 table 254 \
                 dev {device} proto {PROTOCOL}"
            );
        }
        NodeItem::Link(link) => links::put(link, actual, tc),
        NodeItem::Guard(guard) => edge_guard::put(guard, actual, ip),
        NodeItem::Entry(entry) => match actual {
            Some(NodeItem::Entry(old)) if old.can_become(entry) => {
                change_entry(old, entry, ip, tc);
            }
            _ => put_entry(entry, ip, tc),
        },
        NodeItem::Steering(_) | NodeItem::Broken | NodeItem::Unused | NodeItem::Foreign(_) => {}
    }
}

/// Writes the lines of a new entry.
fn put_entry(entry: &EntryItem, ip: &mut String, tc: &mut String) {
    let tunnel = entry.tunnel;
    let Numbers { before_bucket, after_bucket } = Numbers::of(tunnel);
    let mac = format!("02:57:01:00:{:02x}:{:02x}", tunnel >> 8, tunnel & 0xff);
    // `gso_max_segs 1` keeps super-frames out: the kernel would charge the bucket for one as a
    // single packet with one header. The kernel searches the addresses of all devices, so these
    // devices get none.
    let _ = write!(
        ip,
        "link add wc{tunnel} mtu {TUNNEL_MTU} type veth peer name wc{tunnel}x mtu {TUNNEL_MTU} \
         address {mac}\n\
         link set wc{tunnel} addrgenmode none gso_max_segs 1 up\n\
         link set wc{tunnel}x addrgenmode none up\n\
         neigh replace fe80::2 lladdr {mac} dev wc{tunnel} nud permanent\n\
         route replace default via fe80::2 dev wc{tunnel} table {before_bucket} proto {PROTOCOL}\n\
         route replace unreachable default metric 9999 table {before_bucket} proto {PROTOCOL}\n\
         route replace unreachable default metric 9999 table {after_bucket} proto {PROTOCOL}\n"
    );
    // A device of `ip6tnl` caches the first route that it finds, so the rules are put before it.
    steering::put_rules(entry, ip);
    put_path(entry, ip);
    bucket::put(entry, tc);
}

/// Writes the lines that move an entry to another path or rate without loss of packets. The old
/// path's device is removed only after the router was read with the new path.
fn change_entry(old: &EntryItem, entry: &EntryItem, ip: &mut String, tc: &mut String) {
    if old.path != entry.path {
        put_path(entry, ip);
        // An old path without a next hop went down with its device, and its route is gone.
        let outer = old.path.outer;
        if outer != entry.path.outer && !old.path.next_hop.is_unspecified() {
            let table = Numbers::of(entry.tunnel).after_bucket;
            let _ = writeln!(ip, "route del {outer}/128 table {table} proto {PROTOCOL}");
        }
    }
    if (old.rate_bytes, old.hold_ms) != (entry.rate_bytes, entry.hold_ms) {
        bucket::put(entry, tc);
    }
}

/// Writes the route of the outer address, then the route into the tunnel.
///
/// The latter is for the destination's address alone, because the packet with its outer header is
/// looked up in the same table again.
fn put_path(entry: &EntryItem, ip: &mut String) {
    let EntryItem { tunnel, path, .. } = entry;
    let EntryPath { destination, outer, source, next_hop, next_device } = path;
    let table = Numbers::of(*tunnel).after_bucket;
    let _ = writeln!(
        ip,
        "route replace {outer}/128 via {next_hop} dev {next_device} table {table} proto {PROTOCOL}"
    );
    let into = match source {
        Some(source) => format!("dev {}", ip6tnl::put_entry(*tunnel, *outer, *source, ip)),
        None => format!("encap seg6 mode encap.red segs {outer} dev {next_device}"),
    };
    let _ = writeln!(ip, "route replace {destination}/128 table {table} {into} proto {PROTOCOL}");
}

fn read_outer(routes: &[Value]) -> Items {
    let main = routes.iter().filter(|route| matches!(text(route, "table"), None | Some("main")));
    let read = main.filter_map(|route| {
        let outer: Ipv6Addr = text(route, "dst")?.parse().ok()?;
        let device = text(route, "dev")?.to_owned();
        let item = match (text(route, "action"), address(route, "gateway")) {
            (Some("End.DT6"), None) => NodeItem::Exit(ExitItem { outer, device: Some(device) }),
            (None, Some(next_hop)) => NodeItem::Relay(RelayItem { outer, next_hop, device }),
            _ => NodeItem::Broken,
        };
        Some((outer_key(outer), item))
    });
    read.collect()
}

fn read_entries(reading: &EntryReading<'_>, shared: Option<&SteeringItem>) -> Items {
    let flow = |tunnel| steering::flow(shared?, tunnel).cloned();
    let read = |tunnel| read_entry(tunnel, flow(tunnel), reading).map(NodeItem::Entry);
    let each = reading.tunnels.iter().copied();
    each.map(|tunnel| (entry_key(tunnel), read(tunnel).unwrap_or(NodeItem::Broken))).collect()
}

/// Reads an entry; `None` if a part of it is missing.
fn read_entry(
    tunnel: u16,
    flow: Option<TunnelFlow>,
    reading: &EntryReading<'_>,
) -> Option<EntryItem> {
    let of = Numbers::of(tunnel);
    let device = format!("wc{tunnel}");
    let in_table = |table: u32| reading.routes(table).iter().copied();
    in_table(of.before_bucket).find(|route| text(route, "dev") == Some(&device))?;
    let rules = [of.before_bucket, of.after_bucket].map(|table| reading.rules(table));
    if !steering::are_whole(tunnel, flow.as_ref(), rules) {
        return None;
    }
    let destination = flow.as_ref().map(|flow| flow.selector.destination);
    let path = read_path(tunnel, destination, reading)?;
    let (rate_bytes, hold_ms) = bucket::read(reading.buckets.get(device.as_str())?)?;
    Some(EntryItem { tunnel, flow, path, rate_bytes, hold_ms })
}

/// Reads the path of an entry; `None` if a part of it is missing. When a device goes down, the
/// kernel removes its routes but not the `unreachable` one. Such a path is read without a next hop,
/// so that only its routes are put anew; the marks still tell the destination.
fn read_path(
    tunnel: u16,
    destination: Option<Ipv6Addr>,
    reading: &EntryReading<'_>,
) -> Option<EntryPath> {
    let routes = reading.routes(Numbers::of(tunnel).after_bucket);
    let to = |to: Ipv6Addr| routes.iter().find(|route| address(route, "dst") == Some(to));
    let has_guard = || routes.iter().any(|route| text(route, "type") == Some("unreachable"));
    // Without the flow, the route into the tunnel is the one that has no next hop.
    let is_into = |route: &&&Value| route["gateway"].is_null() && address(route, "dst").is_some();
    let into = destination.map_or_else(|| routes.iter().find(is_into), to);
    let destination = destination.or_else(|| address(into?, "dst"))?;
    let lost = |outer, source| {
        let (next_hop, next_device) = (Ipv6Addr::UNSPECIFIED, String::new());
        has_guard().then_some(EntryPath { destination, outer, source, next_hop, next_device })
    };
    let Some(into) = into else { return lost(Ipv6Addr::UNSPECIFIED, None) };
    let (outer, source) = match text(into, "encap") {
        Some("seg6") => {
            let [outer] = into["segs"].as_array()?.as_slice() else { return None };
            (outer.as_str()?.parse().ok()?, None)
        }
        Some(_) => return None,
        None => {
            let (outer, source) = ip6tnl::entry(tunnel, text(into, "dev")?, reading.devices)?;
            (outer, Some(source))
        }
    };
    match to(outer) {
        Some(onwards) => {
            let next_hop = address(onwards, "gateway")?;
            let next_device = text(onwards, "dev")?.to_owned();
            Some(EntryPath { destination, outer, source, next_hop, next_device })
        }
        None if source.is_some() => lost(outer, source),
        None => None,
    }
}

/// Reads which links have the broker's tree. The answer does not include its classes.
fn read_trees(qdiscs: &[Value]) -> Items {
    let ours = qdiscs
        .iter()
        .filter(|qdisc| text(qdisc, "kind") == Some("htb") && text(qdisc, "handle") == Some("57:"));
    let links = ours.filter_map(|qdisc| {
        let device = text(qdisc, "dev")?.to_owned();
        let (rate_bytes, tunnels_bytes, pool) = (0, 0, Ipv6Addr::UNSPECIFIED);
        let neighbour = Ipv6Addr::UNSPECIFIED;
        let link = LinkItem { device, rate_bytes, tunnels_bytes, pool, neighbour };
        let link = NodeItem::Link(link);
        Some((link.key()?, link))
    });
    links.collect()
}

/// The group of devices that are about to be removed. Its number spells "WEIR", so that no foreign
/// device is in it.
const GONE_GROUP: u32 = 0x5745_4952;

#[cfg(test)]
mod tests {
    use weir_network::{FlowSelector, TransportProtocol};

    use super::*;

    fn entry() -> EntryItem {
        EntryItem {
            tunnel: 1,
            flow: Some(TunnelFlow {
                access: "acc".to_owned(),
                selector: FlowSelector {
                    source: "fd01:1::2".parse().unwrap(),
                    destination: "fd01:3::2".parse().unwrap(),
                    protocol: Some(TransportProtocol::Udp),
                    source_port: Some(1000),
                    destination_port: Some(2000),
                },
            }),
            path: EntryPath {
                destination: "fd01:3::2".parse().unwrap(),
                outer: "fd0f::1:1".parse().unwrap(),
                source: None,
                next_hop: "fd01:12::2".parse().unwrap(),
                next_device: "n2".to_owned(),
            },
            rate_bytes: 2_500_000,
            hold_ms: 0,
        }
    }

    const SEGMENT_ROUTING: LinuxDriver =
        LinuxDriver { encapsulation: Encapsulation::SegmentRouting, tunnel_source: None };

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
         {"priority":30000,"not":null,"src":"all","fwmark":"0x57000000","fwmask":"0xff000000",
          "goto":30200,"protocol":"87"},
         {"priority":30001,"src":"all","fwmark":"0x57000000","fwmask":"0xfffeffc0","goto":30100,
          "protocol":"87"},
         {"priority":30100,"src":"all","fwmark":"0x57000001","iif":"acc","table":"1000001",
          "protocol":"87"},
         {"priority":30100,"src":"all","fwmark":"0x57010001","table":"2000001","protocol":"87"},
         {"priority":30200,"src":"all","fwmark":"0x57000000","fwmask":"0xff000000",
          "action":"unreachable","protocol":"87"},
         {"priority":32766,"src":"all","table":"main"}]
        [{"kind":"noqueue","handle":"0:","dev":"wc1x","root":true},
         {"kind":"tbf","handle":"84c4:","dev":"wc1","root":true,
          "options":{"rate":2500000,"burst":15040,"lat":19984,"overhead":40}}]
        {"nftables":[{"metainfo":{}},{"table":{"family":"ip6","name":"weir_tunnels"}},
         {"map":{"name":"tcp_ports"}},
         {"map":{"name":"udp_ports",
          "elem":[[{"concat":["acc","fd01:1::2","fd01:3::2",1000,2000]},1459617793]]}},
         {"map":{"name":"source_ports"}},{"map":{"name":"destination_ports"}},
         {"map":{"name":"protocols"}},{"map":{"name":"addresses"}},
         {"chain":{"name":"tunnels","hook":"prerouting","prio":-101,"policy":"accept"}},
         {"rule":{"comment":"tunnels 1"}},{"rule":{"comment":"tcp_ports"}},
         {"rule":{"comment":"udp_ports"}},{"rule":{"comment":"source_ports"}},
         {"rule":{"comment":"destination_ports"}},{"rule":{"comment":"protocols"}},
         {"rule":{"comment":"addresses"}}]}"#;

    /// Reads the answer of a router by segment routing, without what its entries share.
    fn items(answer: &str) -> Items {
        let mut items = SEGMENT_ROUTING.read(answer).unwrap();
        items.remove(steering::KEY);
        items
    }

    /// Returns items as a router has them, with what their entries share.
    fn there(mut items: Items) -> Items {
        let shared = NodeItem::Steering(steering::steering_of(&items, &SteeringItem::default()));
        items.insert(steering::KEY.to_owned(), shared);
        items
    }

    #[test]
    fn an_entry_is_read_as_it_was_put() {
        assert_eq!(items(ANSWER), with(NodeItem::Entry(entry())));
        let read = SEGMENT_ROUTING.read(ANSWER).unwrap();
        assert_eq!(SEGMENT_ROUTING.plan(&items(ANSWER), &read), "");
    }

    /// Goal: a discipline of HFSC, which Debian 12 prints as JSON with plain text in it, does not
    /// hide the items.
    #[test]
    fn a_foreign_hfsc_is_passed_over() {
        let hfsc =
            r#"[{"kind":"hfsc","handle":"1:","dev":"e","options":{default 2 }},{"kind":"noq"#;
        let answer = ANSWER.replace("[{\"kind\":\"noq", hfsc);
        assert_ne!(answer, ANSWER);
        assert_eq!(items(&answer), with(NodeItem::Entry(entry())));
    }

    /// Answer of a router with [`entry`] by `ip6tnl`, and with an exit.
    fn answer_of_ip6tnl() -> String {
        let into = r#""encap":"seg6","mode":"encap.red","segs":["fd0f::1:1"],"dev":"n2""#;
        let answer = ANSWER.replace(into, r#""dev":"wc1t1""#);
        answer
            + r#"[{},{"ifname":"wc1t1","flags":["POINTOPOINT","NOARP","UP","LOWER_UP"],
                "linkinfo":{"info_kind":"ip6tnl","info_data":{"proto":"ip6ip6",
                "remote":"fd0f::1:1","local":"fd01:12::1","ip6_tnl_f_ign_encap_limit":true,
                "fwmark":"0x57010001","ttl":64}},
                "addr_info":[{"family":"inet6","local":"fe80::1","prefixlen":64}]},
               {"ifname":"wda003","flags":["NOARP","UP","LOWER_UP"],
                "linkinfo":{"info_kind":"ip6tnl","info_data":{"proto":"ip6ip6",
                "remote":"any","local":"fd0f::5:3","ip6_tnl_f_ign_encap_limit":true}},
                "addr_info":[{"family":"inet6","local":"fd0f::5:3","prefixlen":128}]}]"#
    }

    const IP6TNL: LinuxDriver =
        LinuxDriver { encapsulation: Encapsulation::Ip6tnl, tunnel_source: None };

    /// Returns [`entry`] by `ip6tnl`, to this outer address.
    fn entry_of_ip6tnl(outer: &str) -> NodeItem {
        let (outer, source) = (outer.parse().unwrap(), Some("fd01:12::1".parse().unwrap()));
        NodeItem::Entry(EntryItem { path: EntryPath { outer, source, ..entry().path }, ..entry() })
    }

    #[test]
    fn devices_of_ip6tnl_are_read_as_they_were_put() {
        let mut wanted = with(entry_of_ip6tnl("fd0f::1:1"));
        let (outer, device) = ("fd0f::5:3".parse().unwrap(), None);
        wanted.extend(with(NodeItem::Exit(ExitItem { outer, device })));
        let mut read = IP6TNL.read(&answer_of_ip6tnl()).unwrap();
        assert_eq!(IP6TNL.plan(&wanted, &read), "");
        read.remove(steering::KEY);
        assert_eq!(read, wanted);
    }

    /// Goal: if any part of a device is missing or was changed, the entry that needs it is put
    /// anew; devices of others stay.
    #[test]
    fn a_damaged_device_of_ip6tnl_is_put_anew() {
        let (outer, device) = ("fd0f::5:3".parse().unwrap(), None);
        let mut wanted = with(entry_of_ip6tnl("fd0f::1:1"));
        wanted.extend(with(NodeItem::Exit(ExitItem { outer, device })));
        for (part, other, name) in [
            (r#"UP","LOWER_UP"],"#, r#"LOWER_UP"],"#, "wc1t1"),
            (r#""proto":"ip6ip6""#, r#""proto":"any""#, "wc1t1"),
            (r#","ip6_tnl_f_ign_encap_limit":true"#, "", "wc1t1"),
            (r#""fwmark":"0x57010001","ttl""#, r#""ttl""#, "wc1t1"),
            (r#""local":"fd0f::5:3","prefixlen""#, r#""local":"fe80::7","prefixlen""#, "wda003"),
        ] {
            let answer = answer_of_ip6tnl().replacen(part, other, 1);
            assert_ne!(answer, answer_of_ip6tnl(), "{part}");
            let read = IP6TNL.read(&answer).unwrap();
            let script = IP6TNL.plan(&wanted, &read);
            let removed = script.find(&format!("link del {name}\n"));
            let removed = removed.or_else(|| script.find(&format!("link set dev {name} group")));
            let put = script.find(&format!("link add {name} "));
            assert!(removed.is_some() && removed < put, "{part}: {script}");
        }
        for (part, other) in [
            (r#""remote":"fd0f::1:1""#, r#""remote":"fd0f::1:2""#),
            (r#""remote":"any""#, r#""remote":"fd0f::7""#),
            ("wda003", "wda004"),
            ("wda003", "ip6tnl1"),
        ] {
            let answer = answer_of_ip6tnl().replace(part, other);
            let script = IP6TNL.plan(&Items::new(), &IP6TNL.read(&answer).unwrap());
            let foreign = if part.contains("1:1") { "wc1t1" } else { "wda" };
            assert!(!script.contains(foreign) && !script.contains("ip6tnl1"), "{script}");
        }
        assert_eq!(IP6TNL.read(ANSWER).unwrap_err(), "4 documents instead of 5");
    }

    /// Goal: a new path gets a device of its own. The old path's device stays until the router was
    /// read with the new path, and is then removed.
    #[test]
    fn a_path_of_ip6tnl_is_made_before_the_old_one_goes() {
        let old = IP6TNL.read(&answer_of_ip6tnl()).unwrap();
        let mut wanted = with(entry_of_ip6tnl("fd0f::1:2"));
        wanted.extend(
            old.iter()
                .filter(|(key, _)| key.starts_with("outer/"))
                .map(|(key, item)| (key.clone(), item.clone())),
        );
        let script = IP6TNL.plan(&wanted, &old);
        let order = [
            "route replace fd0f::1:2/128 via fd01:12::2 dev n2 table 2000001",
            "link add wc1t2 up ",
            "route replace fd01:3::2/128 table 2000001 dev wc1t2",
            "route del fd0f::1:1/128 table 2000001",
        ];
        let places = order.map(|line| script.find(line));
        assert!(places.is_sorted() && places[0].is_some(), "{script}");
        let untouched = ["wc1 ", "tc ", "link del", "rule del", "group"];
        assert!(untouched.iter().all(|word| !script.contains(word)), "{script}");
        // Read after that, with both paths.
        let both = answer_of_ip6tnl();
        let both = both.replace(r#""dev":"wc1t1","#, r#""dev":"wc1t2","#);
        let both =
            both.replace(r#"{"dst":"fd0f::1:1","gateway""#, r#"{"dst":"fd0f::1:2","gateway""#);
        let device = r#"{"ifname":"wc1t1","#;
        let begin = both.find(device).unwrap();
        let end = begin + both[begin..].find(r#"{"ifname":"wda003""#).unwrap();
        let other = both[begin..end].replace("wc1t1", "wc1t2").replace("fd0f::1:1", "fd0f::1:2");
        let both = format!("{}{other}{}", &both[..begin], &both[begin..]);
        let read = IP6TNL.read(&both).unwrap();
        assert_eq!(read.get("entry/1"), Some(&entry_of_ip6tnl("fd0f::1:2")), "{both}");
        let script = IP6TNL.plan(&wanted, &read);
        assert_eq!(script.lines().nth(1), Some("link del wc1t1"), "{script}");
        assert_eq!(script.lines().count(), 3, "{script}");
    }

    /// Goal: an entry changes in place if it can. A device cannot change its addresses, so another
    /// source for the same outer address needs a new entry. A route that was lost with its device
    /// is put alone. With segment routing configured instead, only the path changes.
    #[test]
    fn an_entry_of_ip6tnl_changes_in_place_where_it_can() {
        let old = IP6TNL.read(&answer_of_ip6tnl()).unwrap();
        let NodeItem::Entry(mut other) = entry_of_ip6tnl("fd0f::1:1") else { panic!("an entry") };
        other.path.source = Some("fd01:12::9".parse().unwrap());
        let script = IP6TNL.plan(&with(NodeItem::Entry(other)), &old);
        assert!(
            script.find("link set dev wc1t1 group") < script.find("link add wc1t1"),
            "{script}"
        );
        let whole = answer_of_ip6tnl();
        let begin = whole.find(r#"{"dst":"fd0f::1:1","gateway""#).unwrap();
        let end = begin + whole[begin..].find("},").unwrap() + 2;
        let lost = format!("{}{}", &whole[..begin], &whole[end..]);
        let script = IP6TNL.plan(&with(entry_of_ip6tnl("fd0f::1:1")), &IP6TNL.read(&lost).unwrap());
        assert!(script.contains("route replace fd0f::1:1/128 via fd01:12::2"), "{script}");
        assert!(!script.contains("wc1 "), "{script}");
        let script = SEGMENT_ROUTING.plan(&with(NodeItem::Entry(entry())), &old);
        assert!(script.contains("encap seg6") && !script.contains("link add"), "{script}");
    }

    /// Goal: many entries are removed by one command for all their devices, and put in the order of
    /// their numbers.
    #[test]
    fn many_entries_go_together() {
        let entries = |numbers: &[u16]| -> Items {
            let each = numbers.iter().map(|tunnel| EntryItem { tunnel: *tunnel, ..entry() });
            each.flat_map(|entry| with(NodeItem::Entry(entry))).collect()
        };
        let script = SEGMENT_ROUTING.plan(&entries(&[2]), &entries(&[2, 9, 10]));
        assert!(!script.contains("link del wc"), "{script}");
        assert_eq!(script.matches("link del group").count(), 1, "{script}");
        let grouped =
            ["wc9 ", "wc10 "].map(|name| format!("link set dev {name}group {GONE_GROUP}"));
        assert!(grouped.iter().all(|line| script.contains(line)), "{script}");
        assert_eq!(script.matches("route flush table").count(), 4, "{script}");
        let script = SEGMENT_ROUTING.plan(&entries(&[2, 9, 10]), &Items::new());
        let places = ["wc2", "wc9", "wc10"].map(|name| script.find(&format!("link add {name} ")));
        assert!(places.is_sorted() && places[0].is_some(), "{script}");
    }

    /// Goal: if any part of an entry is missing, the entry is read as broken and put anew.
    #[test]
    fn a_damaged_entry_is_put_anew() {
        for (part, other) in [
            ("\"segs\":[\"fd0f::1:1\"]", "\"segs\":[]"),
            ("\"fwmark\":\"0x57000001\"", "\"fwmark\":\"0x57000002\""),
            ("\"priority\":30100,\"src\":\"all\",\"fwmark\":\"0x5701", "\"fwmark\":\"0x5701"),
            ("\"overhead\":40", "\"overhead\":0"),
            ("\"kind\":\"tbf\"", "\"kind\":\"fq\""),
        ] {
            let answer = ANSWER.replace(part, other);
            assert_ne!(answer, ANSWER, "{part}");
            let read = SEGMENT_ROUTING.read(&answer).unwrap();
            assert_eq!(read.get("entry/1"), Some(&NodeItem::Broken), "{part}");
            let script = SEGMENT_ROUTING.plan(&with(NodeItem::Entry(entry())), &read);
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
        let read = SEGMENT_ROUTING.read(&answer).unwrap();
        let script = SEGMENT_ROUTING.plan(&with(NodeItem::Entry(entry())), &read);
        assert!(script.contains("route replace fd0f::1:1/128"), "{script}");
        let untouched = ["link", "rule", "tc ", "del"];
        assert!(untouched.iter().all(|word| !script.contains(word)), "{script}");
        // Without its guard, packets would become best effort, so the entry is put anew.
        let guard = answer.rfind("{\"type\":\"unreachable\"").unwrap();
        let end = guard + answer[guard..].find('}').unwrap() + 1;
        let before = answer[..guard].trim_end().trim_end_matches(',');
        let answer = format!("{before}{}", &answer[end..]);
        let read = SEGMENT_ROUTING.read(&answer).unwrap();
        assert_eq!(read.get("entry/1"), Some(&NodeItem::Broken), "{answer}");
    }

    /// Goal: if somebody flushes nftables, or the rules that all entries share, these are put again
    /// with all marks, and nothing else is touched.
    #[test]
    fn lost_marks_are_put_alone() {
        let wanted = with(NodeItem::Entry(entry()));
        let table = ANSWER.find("{\"nftables\"").unwrap();
        let flushed = format!("{}{{}}", &ANSWER[..table]);
        let refusal = ANSWER.replace("\"unreachable\",\"protocol\"", "\"to_table\",\"protocol\"");
        let no_rule = ANSWER.replace(r#"{"rule":{"comment":"udp_ports"}},"#, "");
        let foreign = ANSWER.replace("1459617793", "1459617793],[{\"concat\":[\"a\"]},7");
        for answer in [flushed, refusal, no_rule, foreign] {
            assert_ne!(answer, ANSWER);
            let read = SEGMENT_ROUTING.read(&answer).unwrap();
            assert!(matches!(&read["entry/1"], NodeItem::Entry(entry) if entry.flow.is_none()));
            let script = SEGMENT_ROUTING.plan(&wanted, &read);
            let order = [
                "delete table ip6 weir_tunnels",
                "map udp_ports { type ifname . ipv6_addr . ipv6_addr . inet_service .",
                "add element ip6 weir_tunnels udp_ports { \"acc\" . fd01:1::2 . fd01:3::2 . 1000 . \
                 2000 : 0x57000001 }",
                "rule add pref 30000 not fwmark 0x57000000/0xff000000 goto 30200",
            ];
            let places = order.map(|line| script.find(line));
            assert!(places.is_sorted() && places[0].is_some(), "{places:?} {script}");
            let untouched = ["link", "tc ", "route", "lookup"];
            assert!(untouched.iter().all(|word| !script.contains(word)), "{script}");
        }
    }

    /// Goal: the marks come last and go first, so that no packet is refused on its way into a
    /// tunnel; the last entry takes with it what all share, and the source of tunnels.
    #[test]
    fn the_last_entry_leaves_nothing() {
        let source = Some("fd01:12::1".parse().unwrap());
        let driver = LinuxDriver { tunnel_source: source, ..SEGMENT_ROUTING };
        let wanted = with(NodeItem::Entry(entry()));
        let script = driver.plan(&wanted, &Items::new());
        let order = [
            "table ip6 weir_tunnels {",
            "rule add pref 30000 not",
            "rule add pref 30001 fwmark 0x57000000/0xfffeffc0 goto 30100 ",
            "case $(ip sr tunsrc show 2>&1) in *' ::') ip sr tunsrc set fd01:12::1 ",
            "link add wc1 ",
            "rule add pref 30100 fwmark 0x57010001 lookup 2000001 ",
            "tbf rate",
            "add element",
        ];
        let places = order.map(|line| script.find(line));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} {script}");
        let script = driver.plan(&Items::new(), &driver.read(ANSWER).unwrap());
        let order = [
            "delete table ip6 weir_tunnels",
            "case $? in 0 | 127)\nip -6 ",
            "rule del pref 30000 ",
            "rule del pref 30200 ",
            "rule del pref 30001 ",
            "case $(ip sr tunsrc show 2>&1) in *' fd01:12::1') ip sr tunsrc set :: ",
            "rule del pref 30100 lookup 1000001 ",
            "link del wc1",
        ];
        let places = order.map(|line| script.find(line));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} {script}");
        assert!(!script.contains("element"), "{script}");
        let mut other = EntryItem { tunnel: 64, ..entry() };
        let same = with(NodeItem::Entry(other.clone())).into_iter().chain(wanted.clone()).collect();
        assert_eq!(driver.plan(&same, &Items::new()).matches("add element").count(), 1);
        other.flow.as_mut().unwrap().selector.source_port = Some(1001);
        let other = NodeItem::Entry(other);
        let two = wanted.clone().into_iter().chain(with(other)).collect();
        let script = driver.plan(&wanted, &there(two));
        let order =
            ["delete element", "rule del pref 30002 ", "rule del pref 30101 lookup 1000064 "];
        let places = order.map(|line| script.find(line));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} {script}");
        assert!(!script.contains("tunsrc") && !script.contains("add"), "{script}");
    }

    /// Goal: a change of rate touches the bucket alone, a change of path replaces one route.
    #[test]
    fn a_change_is_in_place() {
        let old = there(with(NodeItem::Entry(entry())));
        let rate = with(NodeItem::Entry(EntryItem { rate_bytes: 5_000_000, ..entry() }));
        let script = SEGMENT_ROUTING.plan(&rate, &old);
        assert!(script.contains("tbf rate 5000000bps") && !script.contains("ip "), "{script}");
        let outer = "fd0f::1:2".parse().unwrap();
        let path = EntryPath { outer, ..entry().path };
        let path = with(NodeItem::Entry(EntryItem { path, ..entry() }));
        let script = SEGMENT_ROUTING.plan(&path, &old);
        assert!(!script.contains("link") && !script.contains("tc "), "{script}");
        let order = ["route replace fd0f::1:2", "route replace fd01:3::2", "route del fd0f::1:1"];
        let places = order.map(|line| script.find(line));
        assert!(places.is_sorted() && places[0].is_some(), "{script}");
    }

    /// Goal: for a move to a shorter path the bucket is stopped; after the hold time the route is
    /// replaced, and after another hold time the bucket is opened. The shell has the whole script
    /// before it begins.
    #[test]
    fn packets_are_held_before_and_after_their_path_is_replaced() {
        let old = there(with(NodeItem::Entry(entry())));
        let outer = "fd0f::1:2".parse().unwrap();
        let path = EntryPath { outer, ..entry().path };
        let held = with(NodeItem::Entry(EntryItem { path, hold_ms: 7, ..entry() }));
        let script = SEGMENT_ROUTING.plan(&held, &old);
        let words = script.split_whitespace().collect::<Vec<_>>().join(" ");
        let order = [
            "{ ip",
            "use WEIR tc",
            "overhead 65000 WEIR sleep 0.007 ip",
            "route replace fd0f::1:2",
            "WEIR sleep 0.007 tc",
            "tbf rate 2500000bps burst 15000 latency 134ms overhead 40 WEIR }",
        ];
        let places = order.map(|line| words.find(line));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} {script}");
        let open = with(NodeItem::Entry(EntryItem {
            path: EntryPath { outer, ..entry().path },
            ..entry()
        }));
        let script = SEGMENT_ROUTING.plan(&open, &there(held));
        assert!(script.contains("latency 20ms") && !script.contains("sleep"), "{script}");
    }

    /// Goal: an entry is stopped for as long as the pauses around its change take, whatever others
    /// of the same script need; much longer holds of others come after it.
    #[test]
    fn a_short_hold_does_not_wait_for_a_long_one() {
        let entries = |outer: &str, holds: [u16; 3]| -> Items {
            let path = EntryPath { outer: outer.parse().unwrap(), ..entry().path };
            let each = (1..).zip(holds).map(|(tunnel, hold_ms)| EntryItem {
                tunnel,
                hold_ms,
                path: path.clone(),
                ..entry()
            });
            each.flat_map(|entry| with(NodeItem::Entry(entry))).collect()
        };
        let changed = entries("fd0f::1:2", [500, 5, 7]);
        let script = SEGMENT_ROUTING.plan(&changed, &entries("fd0f::1:1", [0; 3]));
        let pauses: Vec<_> = script.lines().filter(|line| line.starts_with("sleep")).collect();
        assert_eq!(pauses, ["sleep 0.007", "sleep 0.007", "sleep 0.500", "sleep 0.500"]);
        let line = |number: u16| {
            let start = format!("qdisc replace dev wc{number} ");
            script.lines().find(|line| line.starts_with(&start)).unwrap().to_owned()
        };
        let room = |line: &str| line.split_once("limit ").map(|(_, rest)| rest.to_owned());
        assert_eq!(room(&line(2)), room(&line(3)), "both are stopped for 14 ms: {script}");
        assert_ne!(room(&line(1)), room(&line(2)));
        let at = |text: &str| script.find(text).unwrap();
        assert!(at(&line(2)) < at("sleep 0.007") && at("sleep 0.007") < at(&line(1)), "{script}");
    }
}
