// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links of a generic Linux router: the tree of classes at each, and whether it has a carrier.
//!
//! A link's root is HTB with three classes: tunnels by their outer addresses, OSPFv3, and all that
//! is left. OSPFv3 has a tenth of what is not for tunnels, so that a flood outside of tunnels does
//! not end it. Its packets are recognised by their protocol and their link-local source, which no
//! router forwards. A root that somebody else put there stays, and is named: the kernel's own
//! default has the handle `0:`, and the kernel too takes any other handle for somebody's
//! (`tc_modify_qdisc` in `net/sched/sch_api.c`). `tc` prints classes and filters for people only,
//! so their words are read here. It rounds a rate down to a unit of which there are at least 1000:
//! rates that differ by less than a thousandth count as equal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::item::{Items, LinkItem, NodeItem};

/// Links as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkReading {
    /// Links with a tree: as wanted, broken, or of others.
    pub(crate) items: Items,
    /// Devices that are missing or have no carrier.
    pub(crate) devices_down: BTreeSet<String>,
}

/// A command that prints a line for each change, and the words of lines that matter.
#[derive(Clone, Debug)]
pub(crate) struct LinkWatch {
    pub(crate) command: &'static str,
    pub(crate) words: Vec<String>,
}

/// A tree's rates and filter, as printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReadTree {
    rate: u64,
    tunnels: u64,
    tunnels_ceil: u64,
    rest: u64,
    rest_ceil: u64,
    routing: u64,
    routing_ceil: u64,
    /// The words of addresses that lead to the tunnels' class.
    pool: [Option<u32>; 2],
    /// The words with the number of OSPF and a link-local source, which lead to the class of
    /// routing.
    ospf: [Option<u32>; 2],
}

/// Writes the lines that put a link's tree in the place of `actual`. The filters of a broken tree
/// are deleted first: a filter that is replaced keeps what it matches.
pub(crate) fn put(link: &LinkItem, actual: Option<&NodeItem>, tc: &mut String) {
    let LinkItem { device, rate_bytes, tunnels_bytes, pool, .. } = link;
    let [routing, rest] = others_bytes(link);
    let burst = (rate_bytes / 500).max(BURST_LEAST);
    let class = "quantum 3000 burst";
    match actual {
        Some(NodeItem::Foreign(_)) => return,
        Some(NodeItem::Broken) => {
            let _ = writeln!(tc, "filter del dev {device} parent 57: protocol ipv6 prio 1");
        }
        Some(_) => {}
        // `add` replaces only the kernel's default, whatever root came since the reading.
        None => {
            let _ = writeln!(tc, "qdisc add dev {device} root handle 57: htb default 2");
        }
    }
    let _ = write!(
        tc,
        "class replace dev {device} parent 57: classid 57:1 htb \
         rate {rate_bytes}bps ceil {rate_bytes}bps {class} {burst}\n\
         class replace dev {device} parent 57:1 classid 57:10 htb prio 0 \
         rate {tunnels_bytes}bps ceil {rate_bytes}bps {class} {burst}\n\
         class replace dev {device} parent 57:1 classid 57:3 htb prio 0 \
         rate {routing}bps ceil {rate_bytes}bps {class} {burst}\n\
         class replace dev {device} parent 57:1 classid 57:2 htb prio 1 \
         rate {rest}bps ceil {rate_bytes}bps {class} {burst}\n\
         filter replace dev {device} parent 57: protocol ipv6 prio 1 handle 800::800 u32 \
         match ip6 dst {pool}/64 flowid 57:10\n\
         filter replace dev {device} parent 57: protocol ipv6 prio 1 handle 800::801 u32 \
         match u8 {OSPF} 0xff at 6 match u16 0xfe80 0xffc0 at 8 flowid 57:3\n"
    );
}

/// Returns the script that reads carriers and classes of the links.
pub(crate) fn reading(wanted: &Items) -> String {
    let mut script = "ip -j -force -batch - 2>/dev/null <<'WEIR'\n".to_owned();
    let mut names = String::new();
    for LinkItem { device, .. } in links(wanted) {
        let _ = writeln!(script, "link show dev {device}");
        let _ = write!(names, " {device}");
    }
    let _ = write!(
        script,
        "WEIR\nfor dev in{names}; do echo; echo \"{MARK} $dev\"; \
         tc qdisc show dev $dev; tc class show dev $dev; \
         tc filter show dev $dev parent 57:; done 2>/dev/null\n"
    );
    script
}

/// Reads the answer to [`reading`]. Links that it does not have, or not in this form, are left out.
pub(crate) fn read(answer: &str, wanted: &Items) -> LinkReading {
    let mark = format!("\n{MARK} ");
    let mut parts = answer.split(&mark);
    let devices = parts.next().unwrap_or_default();
    let trees: Vec<_> = parts.filter_map(|part| part.split_once('\n')).collect();
    let up = carriers(devices);
    let mut reading = LinkReading::default();
    for link in links(wanted) {
        if !up.contains(&link.device) {
            reading.devices_down.insert(link.device.clone());
        }
        let text = trees.iter().find(|(device, _)| *device == link.device);
        let Some((device, text)) = text else { continue };
        let wanted = NodeItem::Link(link.clone());
        let Some(key) = wanted.key() else { continue };
        let item = match (foreign_root(device, text), read_tree(text)) {
            (Some(words), _) => NodeItem::Foreign(words),
            (None, Some(tree)) if tree.is(link) => wanted,
            (None, Some(_)) => NodeItem::Broken,
            (None, None) => continue,
        };
        reading.items.insert(key, item);
    }
    reading
}

/// Returns a command that prints a line for each change of a device.
pub(crate) fn watch(wanted: &Items) -> LinkWatch {
    let words =
        links(wanted).flat_map(|link| [":", "@"].map(|end| format!(" {}{end}", link.device)));
    // `cat` ends with the session, which leaves other processes running.
    let command = "ip -o monitor link & monitor=$!; cat >/dev/null; kill $monitor";
    LinkWatch { command, words: words.collect() }
}

fn links(items: &Items) -> impl Iterator<Item = &LinkItem> {
    items.values().filter_map(|item| match item {
        NodeItem::Link(link) => Some(link),
        _ => None,
    })
}

/// Returns the devices that are up and have a carrier.
fn carriers(answer: &str) -> BTreeSet<String> {
    let documents = serde_json::Deserializer::from_str(answer).into_iter::<Vec<Value>>();
    let devices = documents.map_while(Result::ok).flatten();
    let up = devices.filter_map(|device| {
        let flags = device["flags"].as_array()?;
        let has = |flag: &str| flags.iter().any(|of| of == flag);
        let name = device["ifname"].as_str().filter(|_| has("UP") && has("LOWER_UP"))?;
        (!has("NO-CARRIER")).then(|| name.to_owned())
    });
    up.collect()
}

/// Returns the root discipline of others at a device, in words; none if there is none.
fn foreign_root(device: &str, text: &str) -> Option<String> {
    let (kind, handle) = text.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["qdisc", kind, handle, "root", ..] => Some((*kind, *handle)),
            _ => None,
        }
    })?;
    let is_foreign = handle != "0:" && (kind, handle) != ("htb", "57:");
    is_foreign.then(|| {
        format!(
            "device {device} has the root discipline {kind} {handle} of somebody else, which \
             stays: remove it by tc qdisc del dev {device} root"
        )
    })
}

/// Reads what `tc` printed of a device; none if it has no tree of ours.
fn read_tree(text: &str) -> Option<ReadTree> {
    let mut tree = None;
    let (mut flow, mut at) = (None, 0);
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let after = |key: &str| {
            let place = words.iter().position(|word| *word == key)?;
            words.get(place + 1).copied()
        };
        let rate = |key: &str| after(key).and_then(rate_bits).unwrap_or_default();
        match words.as_slice() {
            ["qdisc", "htb", "57:", "root", ..] => {
                tree.get_or_insert_with(ReadTree::default);
            }
            ["class", "htb", "57:1", ..] => {
                tree.get_or_insert_with(ReadTree::default).rate = rate("rate");
            }
            ["class", "htb", "57:10", ..] => {
                let tree = tree.get_or_insert_with(ReadTree::default);
                (tree.tunnels, tree.tunnels_ceil) = (rate("rate"), rate("ceil"));
            }
            ["class", "htb", "57:2", ..] => {
                let tree = tree.get_or_insert_with(ReadTree::default);
                (tree.rest, tree.rest_ceil) = (rate("rate"), rate("ceil"));
            }
            ["class", "htb", "57:3", ..] => {
                let tree = tree.get_or_insert_with(ReadTree::default);
                (tree.routing, tree.routing_ceil) = (rate("rate"), rate("ceil"));
            }
            ["filter", ..] => {
                // With a hardware's answer the word is "*flowid".
                (flow, at) = (after("flowid").or_else(|| after("*flowid")), 0);
            }
            ["match", value, ..] => {
                let value = value.split('/').next().unwrap_or_default();
                let value = u32::from_str_radix(value, 16).ok();
                let tree = tree.get_or_insert_with(ReadTree::default);
                let words = match flow {
                    Some("57:10") => &mut tree.pool,
                    Some("57:3") => &mut tree.ospf,
                    _ => continue,
                };
                words.get_mut(at).into_iter().for_each(|word| *word = value);
                at += 1;
            }
            _ => {}
        }
    }
    tree
}

impl ReadTree {
    /// Returns true if it is the tree of a link.
    fn is(&self, link: &LinkItem) -> bool {
        let LinkItem { rate_bytes, tunnels_bytes, pool, .. } = link;
        let [routing, rest] = others_bytes(link);
        let pool = pool.octets();
        let word =
            |at: usize| u32::from_be_bytes([pool[at], pool[at + 1], pool[at + 2], pool[at + 3]]);
        let rates = [
            (self.rate, *rate_bytes),
            (self.tunnels, *tunnels_bytes),
            (self.tunnels_ceil, *rate_bytes),
            (self.rest, rest),
            (self.rest_ceil, *rate_bytes),
            (self.routing, routing),
            (self.routing_ceil, *rate_bytes),
        ];
        let near = |(read, bytes): (u64, u64)| {
            let bits = bytes.saturating_mul(8);
            read <= bits && bits - read <= bits / 1000
        };
        rates.into_iter().all(near)
            && self.pool == [Some(word(0)), Some(word(4))]
            && self.ospf == [Some(OSPF << 8), Some(LINK_LOCAL)]
    }
}

/// Returns the parts of routing and of everything else in what is not for tunnels.
fn others_bytes(link: &LinkItem) -> [u64; 2] {
    let others = link.rate_bytes.saturating_sub(link.tunnels_bytes);
    let routing = others / 10;
    [routing.max(1), (others - routing).max(1)]
}

/// Reads a rate as `tc` prints it, in bits a second.
fn rate_bits(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "bit" => 1,
        "Kbit" => 1_000,
        "Mbit" => 1_000_000,
        "Gbit" => 1_000_000_000,
        "Tbit" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// The word that begins the part of each device in an answer.
const MARK: &str = "WEIR-LINK";

/// The number of OSPF (RFC 5340, section 2.2).
const OSPF: u32 = 89;
/// The first word of a link-local address (RFC 4291, section 2.5.6).
const LINK_LOCAL: u32 = 0xfe80_0000;

/// Least burst in bytes: ten full frames.
pub(crate) const BURST_LEAST: u64 = 15_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> LinkItem {
        LinkItem {
            neighbour: "fd10:12::2".parse().unwrap(),
            device: "b2".to_owned(),
            rate_bytes: 12_500_000,
            tunnels_bytes: 11_234_567,
            pool: "fd0f:b::".parse().unwrap(),
        }
    }

    /// Answer of a router with [`link`], whose second link has no carrier and no tree.
    const ANSWER: &str = r#"[{"ifname":"b2","flags":["BROADCAST","UP","LOWER_UP"]}]
[{"ifname":"b3","flags":["NO-CARRIER","BROADCAST","UP"]}]

WEIR-LINK b2
qdisc htb 57: root refcnt 3 r2q 10 default 0x2 direct_packets_stat 0 direct_qlen 1000
class htb 57:1 root rate 100Mbit ceil 100Mbit burst 25000b cburst 1600b
class htb 57:10 parent 57:1 prio 0 rate 89876Kbit ceil 100Mbit burst 25000b cburst 1600b
class htb 57:3 parent 57:1 prio 0 rate 1012Kbit ceil 100Mbit burst 25000b cburst 1600b
class htb 57:2 parent 57:1 prio 1 rate 9111Kbit ceil 100Mbit burst 25000b cburst 1600b
filter protocol ipv6 pref 1 u32 chain 0
filter protocol ipv6 pref 1 u32 chain 0 fh 800: ht divisor 1
filter protocol ipv6 pref 1 u32 chain 0 fh 800::800 order 2048 key ht 800 *flowid 57:10
  match fd0f000b/ffffffff at 24
  match 00000000/ffffffff at 28
filter protocol ipv6 pref 1 u32 chain 0 fh 800::801 order 2049 key ht 800 bkt 0 flowid 57:3
  match 00005900/0000ff00 at 4
  match fe800000/ffc00000 at 8

WEIR-LINK b3
qdisc mq 0: root
qdisc fq_codel 0: parent :1 limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms
"#;

    fn wanted() -> Items {
        let other = LinkItem { device: "b3".to_owned(), ..link() };
        let items = [link(), other].map(NodeItem::Link);
        items.into_iter().filter_map(|item| Some((item.key()?, item))).collect()
    }

    #[test]
    fn a_link_is_read_as_it_was_put() {
        let read = read(ANSWER, &wanted());
        assert_eq!(read.items.get("link/b2"), Some(&NodeItem::Link(link())));
        assert_eq!(read.items.get("link/b3"), None);
        assert_eq!(read.devices_down, BTreeSet::from(["b3".to_owned()]));
    }

    /// Goal: a discipline that somebody put at a link stays, and is named with what is to be done;
    /// a tree is added to the kernel's default alone, and one of ours is not made again.
    #[test]
    fn a_root_of_others_stays() {
        for root in ["htb 1: root refcnt 2", "fq_codel 8001: root", "prio 57: root"] {
            let answer = ANSWER.replace("mq 0: root", root);
            let read = read(&answer, &wanted());
            let Some(NodeItem::Foreign(words)) = read.items.get("link/b3") else {
                panic!("{root}: {read:?}");
            };
            let named = root.replace(" root", "").replace(" refcnt 2", "");
            for part in ["device b3 ", &named, "tc qdisc del dev b3 root"] {
                assert!(words.contains(part), "{words}");
            }
            let mut tc = String::new();
            put(&link(), read.items.get("link/b3"), &mut tc);
            assert_eq!(tc, "");
            assert_eq!(read.items.get("link/b2"), Some(&NodeItem::Link(link())));
        }
        for (actual, adds) in
            [(None, true), (Some(NodeItem::Broken), false), (Some(NodeItem::Link(link())), false)]
        {
            let mut tc = String::new();
            put(&link(), actual.as_ref(), &mut tc);
            assert_eq!(tc.contains("qdisc add dev b2 root handle 57:"), adds, "{tc}");
            assert!(!tc.contains("qdisc replace") && tc.contains("classid 57:1 "), "{tc}");
        }
        // Its classes and filters are missing.
        let root = "qdisc htb 57: root refcnt 3";
        let read = read(&format!("\n{MARK} b2\n{root}\n"), &wanted());
        assert_eq!(read.items.get("link/b2"), Some(&NodeItem::Broken));
    }

    /// Goal: whatever part of a tree is missing or was changed, the link is broken; whatever is
    /// missing of a device's line, it has no carrier.
    #[test]
    fn a_changed_tree_is_broken() {
        for (part, other) in [
            ("57:10 parent 57:1 prio 0 rate 89876Kbit", "57:10 parent 57:1 prio 0 rate 89000Kbit"),
            ("57:10 parent", "57:11 parent"),
            ("rate 9111Kbit ceil 100Mbit", "rate 9111Kbit ceil 20Mbit"),
            ("rate 1012Kbit", "rate 1Mbit"),
            ("match 00005900", "match 00001100"),
            ("  match fe800000/ffc00000 at 8\n", ""),
            ("flowid 57:3", "flowid 57:2"),
            ("flowid 57:10", "flowid 57:2"),
            ("match fd0f000b", "match fd0f000c"),
            ("class htb 57:1 root rate 100Mbit", "class htb 57:1 root rate 1Gbit"),
        ] {
            let answer = ANSWER.replace(part, other);
            assert_ne!(answer, ANSWER, "{part}");
            let read = read(&answer, &wanted());
            assert_eq!(read.items.get("link/b2"), Some(&NodeItem::Broken), "{part}");
        }
        let answer = ANSWER.replace("\"LOWER_UP\"", "\"M-DOWN\"");
        assert_eq!(read(&answer, &wanted()).devices_down.len(), 2);
        assert_eq!(read("", &wanted()).devices_down.len(), 2);
    }
}
