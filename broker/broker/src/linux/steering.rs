// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steering: how a router finds the tunnel of a packet that comes from an end node.
//!
//! A table of nftables marks the packet by look-ups in hash tables, the most specific kind of
//! selector first; admission refuses two selectors that may match one packet and are equally
//! specific. A rule leads the mark to the tunnel's table of routes. Behind the bucket the mark gets
//! [`BEHIND`], and another rule leads it to the second table. So a packet costs the same however
//! many tunnels there are, but for the rules, which a router compares one after the other: those of
//! [`GROUP`] tunnels share a preference, and one rule before them leads to all of these.
//!
//! The first rule lets packets without a mark jump over all of ours. Our preferences are adjacent,
//! so that it passes over nobody else's. A packet whose mark leads nowhere is refused: otherwise it
//! would go on as best effort. Fragments never enter a tunnel selected by ports, which most of them
//! do not have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;
use weir_network::{FlowSelector, TransportProtocol};

use super::entry_reading::{Numbers, text};
use crate::config_values::device;
use crate::item::{EntryItem, Items, NodeItem, PROTOCOL, SteeringItem, TunnelFlow, entry_key};
use crate::marks::{BEHIND, MARKS, mark_before, mark_behind};
use crate::tunnel_numbers::TUNNELS_PER_ROUTER_MAX;

/// The bits that all marks of ours share.
const MARKS_MASK: u32 = 0xff00_0000;

/// Tunnels whose rules share a preference.
const GROUP: u16 = 64;

/// Preference of the rule by which packets without a mark pass over the others.
const SKIP: u32 = 30_000;

/// Preferences of the first group: of the rule that leads to it, and of its tunnels' rules.
const LEADING: u32 = 30_001;
const MEMBERS: u32 = 30_100;

/// Preference of the rule that refuses a mark which leads nowhere.
const REFUSAL: u32 = 30_200;

/// A hash table of the nftables table.
struct FlowMap {
    name: &'static str,
    /// Types of its keys' parts beside device, source and destination.
    types: &'static str,
    /// The expressions for these parts of a packet.
    fields: &'static str,
    has_ports: bool,
}

/// The hash tables, in the order in which a packet meets them. A key of nftables 1.0 has at most
/// five parts, so that those with both ports have no room for the protocol.
const MAPS: [FlowMap; 6] = [
    FlowMap {
        name: "tcp_ports",
        types: " . inet_service . inet_service",
        fields: " . tcp sport . tcp dport",
        has_ports: true,
    },
    FlowMap {
        name: "udp_ports",
        types: " . inet_service . inet_service",
        fields: " . udp sport . udp dport",
        has_ports: true,
    },
    FlowMap {
        name: "source_ports",
        types: " . inet_proto . inet_service",
        fields: " . meta l4proto . th sport",
        has_ports: true,
    },
    FlowMap {
        name: "destination_ports",
        types: " . inet_proto . inet_service",
        fields: " . meta l4proto . th dport",
        has_ports: true,
    },
    FlowMap {
        name: "protocols",
        types: " . inet_proto",
        fields: " . meta l4proto",
        has_ports: false,
    },
    FlowMap { name: "addresses", types: "", fields: "", has_ports: false },
];

/// Writes the lines that add the rules of an entry.
pub(super) fn put_rules(entry: &EntryItem, ip: &mut String) {
    let EntryItem { tunnel, flow, .. } = entry;
    let Numbers { before_bucket, after_bucket } = Numbers::of(*tunnel);
    let preference = MEMBERS + u32::from(tunnel / GROUP);
    // Only for packets from `access`: one that comes back from its bucket with the first mark must
    // not pass the bucket again.
    if let Some(TunnelFlow { access, .. }) = flow {
        let _ = writeln!(
            ip,
            "rule add pref {preference} fwmark {:#x} iif {access} lookup {before_bucket} \
             protocol {PROTOCOL}",
            mark_before(*tunnel)
        );
    }
    let _ = writeln!(
        ip,
        "rule add pref {preference} fwmark {:#x} lookup {after_bucket} protocol {PROTOCOL}",
        mark_behind(*tunnel)
    );
}

/// Writes the lines that delete the rules of a tunnel. If it is not whole, their preferences are
/// not known, and there may be two to each table.
pub(super) fn remove_rules(tunnel: u16, is_whole: bool, ip: &mut String) {
    let Numbers { before_bucket, after_bucket } = Numbers::of(tunnel);
    let preference = format!("pref {} ", MEMBERS + u32::from(tunnel / GROUP));
    let preferences: &[&str] = if is_whole { &[&preference] } else { &["", ""] };
    for preference in preferences {
        for table in [before_bucket, after_bucket] {
            let _ = writeln!(ip, "rule del {preference}lookup {table} protocol {PROTOCOL}");
        }
    }
}

/// Returns true if these rules to the tables of a tunnel are those of [`put_rules`].
pub(super) fn are_whole(tunnel: u16, flow: Option<&TunnelFlow>, rules: [&[&Value]; 2]) -> bool {
    let ([[before], [behind]], preference) = (rules, MEMBERS + u32::from(tunnel / GROUP)) else {
        return false;
    };
    let is_marked = |rule: &Value, mark: u32| {
        rule["priority"] == preference && text(rule, "fwmark") == Some(&format!("{mark:#x}"))
    };
    let access = text(before, "iif");
    is_marked(before, mark_before(tunnel))
        && is_marked(behind, mark_behind(tunnel))
        && access.is_some_and(|access| flow.is_none_or(|flow| flow.access == access))
        && is_plain(before, &["iif", "iif_detached", "table"])
        && is_plain(behind, &["table"])
}

/// Returns true if a rule has no fields but these and those for marks.
fn is_plain(rule: &Value, fields: &[&str]) -> bool {
    let common = ["priority", "src", "fwmark", "protocol"];
    let has_only = |of: &serde_json::Map<String, Value>| {
        of.keys().all(|key| common.contains(&key.as_str()) || fields.contains(&key.as_str()))
    };
    text(rule, "src") == Some("all") && rule.as_object().is_some_and(has_only)
}

/// Lines that change what all entries of a router share.
#[derive(Default)]
pub(super) struct SharedChange {
    /// For `nft`, before all else: packets of a removed tunnel lose their mark before its rules go.
    pub(super) first: String,
    /// For `ip`, before what else it does.
    pub(super) ip: String,
    /// For `nft`, after all else: a new tunnel's packets are marked when all is there.
    pub(super) last: String,
    pub(super) base: Option<BaseChange>,
}

/// Change of all that the entries of a router share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaseChange {
    /// It is put, or put anew.
    Put,
    /// It goes with the last entry.
    Removed,
}

/// Returns the lines that give a router the steering of the wanted entries.
pub(super) fn change(wanted: &Items, actual: &Items) -> SharedChange {
    let there = |tunnel: &u16| actual.contains_key(&entry_key(*tunnel));
    let (none, is_there) = (SteeringItem::default(), actual.contains_key(KEY));
    let actual = match actual.get(KEY) {
        Some(NodeItem::Steering(steering)) => steering,
        _ => &none,
    };
    let is_edge = wanted.values().any(|item| matches!(item, NodeItem::Guard(_)));
    let wanted = steering_of(wanted, actual);
    let mut lines = SharedChange::default();
    // An edge router keeps the table and the shared rules for the next entry: to make and delete
    // them takes longer than an entry.
    if wanted.flows.is_empty() && !(is_edge && is_there) {
        if is_there {
            lines.base = Some(BaseChange::Removed);
            lines.first = REMOVAL.to_owned();
            remove_base(&mut lines.ip);
            change_groups(&wanted, actual, &mut lines.ip);
        }
        return lines;
    }
    if !actual.is_whole {
        lines.base = Some(BaseChange::Put);
        if is_there {
            remove_base(&mut lines.ip);
        }
        put_base(&mut lines.ip);
        // A table that was not found by the reading is only flushed: the kernel takes long to
        // delete one.
        lines.first = if is_there { REMOVAL } else { FLUSH }.to_owned() + &table();
    }
    change_groups(&wanted, actual, &mut lines.ip);
    for (tunnel, flow) in &actual.flows {
        if wanted.flows.get(tunnel) != Some(flow) {
            lines.first += &element("delete", *tunnel, flow);
        }
    }
    for (tunnel, flow) in &wanted.flows {
        if actual.flows.get(tunnel) != Some(flow) {
            // Packets of an entry that has lost its mark go as best effort until the mark is back.
            let lines =
                if !actual.is_whole && there(tunnel) { &mut lines.first } else { &mut lines.last };
            *lines += &element("add", *tunnel, flow);
        }
    }
    lines
}

/// Returns the steering that the entries among these items need. If two claim the same packets,
/// while one is about to be removed, the present owner keeps them: `nft` refuses equal keys, and
/// with them the whole script.
pub(super) fn steering_of(items: &Items, actual: &SteeringItem) -> SteeringItem {
    let flows = items.values().filter_map(|item| match item {
        NodeItem::Entry(EntryItem { tunnel, flow, .. }) => Some((*tunnel, flow.as_ref()?)),
        _ => None,
    });
    let mut flows: Vec<_> = flows.collect();
    flows.sort_by_key(|(tunnel, flow)| actual.flows.get(tunnel) != Some(*flow));
    let mut taken = BTreeSet::new();
    flows.retain(|(_, flow)| taken.insert(*flow));
    let flows: BTreeMap<_, _> =
        flows.into_iter().map(|(tunnel, flow)| (tunnel, flow.clone())).collect();
    let groups = flows.keys().map(|tunnel| tunnel / GROUP).collect();
    SteeringItem { is_whole: true, groups, flows }
}

/// Writes the lines of the two rules that all tunnels share.
fn put_base(ip: &mut String) {
    let _ = write!(
        ip,
        "rule add pref {SKIP} not fwmark {MARKS:#x}/{MARKS_MASK:#x} goto {REFUSAL} \
         protocol {PROTOCOL}\n\
         rule add pref {REFUSAL} fwmark {MARKS:#x}/{MARKS_MASK:#x} unreachable \
         protocol {PROTOCOL}\n"
    );
}

/// Writes the lines that remove the rules of [`put_base`], whether they are there or not.
fn remove_base(ip: &mut String) {
    for preference in [SKIP, REFUSAL] {
        let _ = writeln!(ip, "rule del pref {preference} protocol {PROTOCOL}");
    }
}

/// Writes the lines that add and delete the rules that lead to groups.
fn change_groups(wanted: &SteeringItem, actual: &SteeringItem, ip: &mut String) {
    for group in actual.groups.difference(&wanted.groups) {
        let _ = writeln!(ip, "rule del pref {} protocol {PROTOCOL}", LEADING + u32::from(*group));
    }
    for group in wanted.groups.difference(&actual.groups) {
        let (mark, mask) = (mark_before(group * GROUP), group_mask());
        let [leading, members] = [LEADING, MEMBERS].map(|first| first + u32::from(*group));
        let _ = writeln!(
            ip,
            "rule add pref {leading} fwmark {mark:#x}/{mask:#x} goto {members} protocol {PROTOCOL}"
        );
    }
}

/// Returns the bits of a mark that all tunnels of a group share.
fn group_mask() -> u32 {
    !(BEHIND | u32::from(GROUP - 1))
}

/// Returns the lines for `nft` that make the table, without tunnels. When the table is read, rules
/// are recognised by their comments.
fn table() -> String {
    let (mut maps, mut rules) = (String::new(), String::new());
    for FlowMap { name, types, fields, has_ports } in &MAPS {
        let _ = writeln!(
            maps,
            "map {name} {{ type ifname . ipv6_addr . ipv6_addr{types} : mark; \
             size {TUNNELS_PER_ROUTER_MAX}; }}"
        );
        let whole = if *has_ports { "exthdr frag missing " } else { "" };
        let _ = writeln!(
            rules,
            "{whole}meta mark set iifname . ip6 saddr . ip6 daddr{fields} map @{name} accept \
             comment \"{name}\""
        );
    }
    let tunnels = u32::MAX ^ u32::from(u16::MAX);
    format!(
        "table {TABLE} {{\n{maps}chain {CHAIN} {{\n\
         type filter hook prerouting priority {PRIORITY}; policy accept;\n\
         iifname \"wc*\" meta mark & {tunnels:#x} == {MARKS:#x} meta mark set meta mark | \
         {BEHIND:#x} accept comment \"{VERSION}\"\n{rules}}}\n}}\n"
    )
}

/// Returns the line that adds or deletes the element that marks a tunnel's packets.
fn element(verb: &str, tunnel: u16, flow: &TunnelFlow) -> String {
    let TunnelFlow { access, selector } = flow;
    let FlowSelector { source, destination, protocol, source_port, destination_port } = selector;
    let name = map_of(selector);
    let mut key = format!("\"{access}\" . {source} . {destination}");
    let has_both = source_port.and(*destination_port).is_some();
    if let Some(protocol) = protocol.filter(|_| !has_both) {
        // By number: a small router may lack the names.
        let number = match protocol {
            TransportProtocol::Tcp => 6,
            TransportProtocol::Udp => 17,
        };
        let _ = write!(key, " . {number}");
    }
    for port in [source_port, destination_port].into_iter().flatten() {
        let _ = write!(key, " . {port}");
    }
    format!("{verb} element {TABLE} {name} {{ {key} : {:#x} }}\n", mark_before(tunnel))
}

/// Returns the name of the hash table that a selector is in.
fn map_of(selector: &FlowSelector) -> &'static str {
    let FlowSelector { protocol, source_port, destination_port, .. } = selector;
    match (protocol, source_port, destination_port) {
        (None, ..) => "addresses",
        (Some(_), None, None) => "protocols",
        (Some(_), Some(_), None) => "source_ports",
        (Some(_), None, Some(_)) => "destination_ports",
        (Some(TransportProtocol::Tcp), Some(_), Some(_)) => "tcp_ports",
        (Some(TransportProtocol::Udp), Some(_), Some(_)) => "udp_ports",
    }
}

/// Reads what all entries share; none if nothing of it is there.
pub(super) fn read(rules: &[Value], table: &[Value]) -> Option<SteeringItem> {
    let own = PROTOCOL.to_string();
    let ours: Vec<_> = rules.iter().filter(|of| text(of, "protocol") == Some(&own)).collect();
    let marked = |mark: u32, mask: u32| {
        let [mark, mask] = [mark, mask].map(|bits| format!("{bits:#x}"));
        move |of: &Value| text(of, "fwmark") == Some(&mark) && text(of, "fwmask") == Some(&mask)
    };
    let is_base = marked(MARKS, MARKS_MASK);
    let is_in_place = |of: &Value| of["priority"] == SKIP || of["priority"] == REFUSAL;
    let base: Vec<_> = ours.iter().filter(|of| is_base(of) && is_in_place(of)).collect();
    let has_base = matches!(base.as_slice(), [skip, refusal]
        if skip["priority"] == SKIP && skip["goto"] == REFUSAL
            && skip.get("not").is_some() && is_plain(skip, &["fwmask", "not", "goto"])
            && refusal["priority"] == REFUSAL && refusal["action"] == "unreachable"
            && is_plain(refusal, &["fwmask", "action"]));
    let leads = |group: &u16| {
        let is_marked = marked(mark_before(group * GROUP), group_mask());
        let [leading, members] = [LEADING, MEMBERS].map(|first| first + u32::from(*group));
        let is_leading = |of: &Value| {
            of["priority"] == leading
                && of["goto"] == members
                && is_marked(of)
                && is_plain(of, &["fwmask", "goto", "unresolved"])
        };
        ours.iter().any(|of| is_leading(of))
    };
    let groups: BTreeSet<_> = (0..=TUNNELS_PER_ROUTER_MAX / GROUP).filter(leads).collect();
    if base.is_empty() && groups.is_empty() && table.is_empty() {
        return None;
    }
    let flows = read_flows(table).filter(|_| has_base && has_all_rules(table));
    let is_whole = flows.is_some();
    Some(SteeringItem { is_whole, groups, flows: flows.unwrap_or_default() })
}

/// Returns the packets that find their way to a tunnel; none if a part of it is missing.
pub(super) fn flow(shared: &SteeringItem, tunnel: u16) -> Option<&TunnelFlow> {
    shared.flows.get(&tunnel).filter(|_| shared.groups.contains(&(tunnel / GROUP)))
}

/// Returns true if a table has the chain and rules of [`table`], in their order and no others, and
/// all of its hash tables.
fn has_all_rules(table: &[Value]) -> bool {
    let is_awake = objects(table, "table").all(|of| of.get("flags").is_none());
    let is_chain = |of: &Value| {
        (text(of, "name"), text(of, "hook")) == (Some(CHAIN), Some("prerouting"))
            && of["prio"] == PRIORITY
            && text(of, "policy") == Some("accept")
    };
    let mut chains = objects(table, "chain");
    let has_chain = chains.next().is_some_and(is_chain) && chains.next().is_none();
    let names = || MAPS.iter().map(|map| Some(map.name));
    let rules = objects(table, "rule").map(|rule| text(rule, "comment"));
    is_awake
        && has_chain
        && rules.eq(std::iter::once(Some(VERSION)).chain(names()))
        && names().all(|name| objects(table, "map").any(|map| text(map, "name") == name))
}

/// Returns the objects of a kind in a table.
fn objects<'v>(table: &'v [Value], kind: &'static str) -> impl Iterator<Item = &'v Value> {
    table.iter().filter_map(move |object| object.get(kind))
}

/// Reads the elements of a table by their tunnels; none if one is not ours.
fn read_flows(table: &[Value]) -> Option<BTreeMap<u16, TunnelFlow>> {
    let mut flows = BTreeMap::new();
    for map in objects(table, "map") {
        let elements = map["elem"].as_array().into_iter().flatten();
        for element in elements {
            let mark = u32::try_from(element.get(1)?.as_u64()?).ok()?;
            let tunnel = u16::try_from(mark ^ MARKS).ok()?;
            let flow = read_flow(text(map, "name")?, element[0]["concat"].as_array()?)?;
            if map_of(&flow.selector) != text(map, "name")? || flows.insert(tunnel, flow).is_some()
            {
                return None;
            }
        }
    }
    Some(flows)
}

/// Reads the key of an element in a hash table.
fn read_flow(map: &str, key: &[Value]) -> Option<TunnelFlow> {
    let (first, rest) = key.split_at_checked(3)?;
    let [access, source, destination] = first else { return None };
    // The name becomes part of commands, and the kernel accepts any bytes in it.
    let access = access.as_str().filter(|access| device(access).is_ok())?.to_owned();
    let protocol = |of: &Value| match (of.as_str(), of.as_u64()) {
        (Some("tcp"), _) | (_, Some(6)) => Some(TransportProtocol::Tcp),
        (Some("udp"), _) | (_, Some(17)) => Some(TransportProtocol::Udp),
        _ => None,
    };
    let port = |of: &Value| u16::try_from(of.as_u64()?).ok();
    let (protocol, source_port, destination_port) = match (map, rest) {
        ("addresses", []) => (None, None, None),
        ("protocols", [of]) => (Some(protocol(of)?), None, None),
        ("source_ports", [of, from]) => (Some(protocol(of)?), Some(port(from)?), None),
        ("destination_ports", [of, to]) => (Some(protocol(of)?), None, Some(port(to)?)),
        ("tcp_ports", [from, to]) => {
            (Some(TransportProtocol::Tcp), Some(port(from)?), Some(port(to)?))
        }
        ("udp_ports", [from, to]) => {
            (Some(TransportProtocol::Udp), Some(port(from)?), Some(port(to)?))
        }
        _ => return None,
    };
    let address = |of: &Value| of.as_str()?.parse().ok();
    let (source, destination) = (address(source)?, address(destination)?);
    let selector = FlowSelector { source, destination, protocol, source_port, destination_port };
    Some(TunnelFlow { access, selector })
}

/// Key of what all entries share, among items.
pub(super) const KEY: &str = "steering";

const TABLE: &str = "ip6 weir_tunnels";
const CHAIN: &str = "tunnels";

/// Comment of the first rule. Each form of the table has another one, since rules are recognised by
/// their comments alone.
const VERSION: &str = "tunnels 1";

/// Makes the table, without rules.
const FLUSH: &str = "add table ip6 weir_tunnels\nflush table ip6 weir_tunnels\n";

/// Removes the table, whether it is there or not.
const REMOVAL: &str = "add table ip6 weir_tunnels\ndelete table ip6 weir_tunnels\n";

/// Priority of the chain: after whatever sets or restores marks at `mangle`.
const PRIORITY: i32 = -101;

/// Shell lines that read the table of nftables where the rules, which are in `$found`, need it.
pub(super) const READING: &str = "case $found in\n\
    *'\"fwmark\":\"0x570'[01]????'\"'*)\n\
    if table=$(LC_ALL=C nft -j list table ip6 weir_tunnels 2>&1); then printf '%s\\n' \"$table\"\n\
    else case $?$table in\n\
    127* | *'No such file or directory'*) echo '{}' ;;\n\
    *) printf 'nft: %s\\n' \"$table\" ;;\n\
    esac; fi ;;\n\
    *) echo '{}' ;;\nesac";

/// Returns why `nft` could not read the table, if an answer to [`READING`] says so.
pub(super) fn failure(answer: &str) -> Option<&str> {
    answer.lines().find(|line| line.starts_with("nft: "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: each kind of selector is in a hash table of its own, which a packet meets after those
    /// of more specific ones; and is read as it was put.
    #[test]
    fn the_more_specific_selector_is_met_first() {
        let (tcp, udp) = (Some(TransportProtocol::Tcp), Some(TransportProtocol::Udp));
        let kinds = [
            ((tcp, Some(1), Some(2)), "1 . 2", json!([1, 2])),
            ((udp, Some(1), Some(2)), "1 . 2", json!([1, 2])),
            ((udp, Some(1), None), "17 . 1", json!(["udp", 1])),
            ((tcp, None, Some(2)), "6 . 2", json!([6, 2])),
            ((tcp, None, None), "6", json!(["tcp"])),
            ((None, None, None), "", json!([])),
        ];
        let mut met = Vec::new();
        for (map, ((protocol, source_port, destination_port), line, key)) in MAPS.iter().zip(kinds)
        {
            let selector = FlowSelector {
                source: "fd01:1::2".parse().unwrap(),
                destination: "fd01:3::2".parse().unwrap(),
                protocol,
                source_port,
                destination_port,
            };
            assert_eq!(map_of(&selector), map.name);
            met.push(selector.specificity());
            let flow = TunnelFlow { access: "acc".to_owned(), selector };
            let dot = if line.is_empty() { "" } else { " . " };
            let name = map.name;
            let put = format!(
                "add element ip6 weir_tunnels {name} \
                 {{ \"acc\" . fd01:1::2 . fd01:3::2{dot}{line} : 0x57001387 }}\n"
            );
            assert_eq!(element("add", 4999, &flow), put);
            let mut whole = json!(["acc", "fd01:1::2", "fd01:3::2"]);
            whole.as_array_mut().unwrap().extend(key.as_array().unwrap().iter().cloned());
            let map =
                json!([{ "map": { "name": name, "elem": [[{ "concat": whole }, 0x5700_1387]] } }]);
            let read = read_flows(map.as_array().unwrap());
            assert_eq!(read, Some(BTreeMap::from([(4999, flow)])));
        }
        assert!(met.is_sorted_by(|a, b| a >= b), "{met:?}");
    }

    /// Goal: neither marks nor preferences of any two tunnels are the same, or those of anything
    /// else.
    #[test]
    fn marks_and_preferences_have_room() {
        const { assert!((TUNNELS_PER_ROUTER_MAX as u32) < BEHIND) };
        let last = u32::from(TUNNELS_PER_ROUTER_MAX / GROUP);
        let all = [SKIP, LEADING, LEADING + last, MEMBERS, MEMBERS + last, REFUSAL, 32_000];
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        let in_group = |tunnel: u16| {
            [mark_before(tunnel), mark_behind(tunnel)]
                .map(|mark| mark & group_mask() == mark_before(tunnel / GROUP * GROUP))
        };
        assert!((1..=TUNNELS_PER_ROUTER_MAX).all(|tunnel| in_group(tunnel) == [true; 2]));
    }
}
