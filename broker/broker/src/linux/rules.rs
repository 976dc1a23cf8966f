// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of a tunnel's entry, and the order in which a router meets them.
//!
//! A router takes the first rule that matches a packet. Selectors of the same two addresses may
//! match one packet, so the more specific one has the smaller preference; admission refuses pairs
//! that may match one and are equally specific.
//!
//! Earlier versions gave other preferences. Such a rule is moved while packets pass: it is deleted
//! once the router has it in its new place.

use std::fmt::Write as _;

use weir_network::{FlowSelector, SelectorSpecificity};

use super::entry_reading::{EntryReading, Numbers, text};
use crate::item::{EntryItem, Items, NodeItem, PROTOCOL, entry_key, protocol_name};

/// A rule that leads packets from a device to a table.
struct EntryRule {
    preference: u32,
    table: u32,
    device: String,
    /// The fields of the packets, each with a space after it.
    fields: String,
}

impl EntryRule {
    fn add(&self, ip: &mut String) {
        let Self { preference, table, device, fields } = self;
        let _ = writeln!(
            ip,
            "rule add pref {preference} {fields}iif {device} lookup {table} protocol {PROTOCOL}"
        );
    }
}

/// Returns the rule behind an entry's bucket, and that before it.
fn rules_of(entry: &EntryItem) -> [EntryRule; 2] {
    let EntryItem { tunnel, access, selector, .. } = entry;
    let FlowSelector { source, destination, protocol, source_port, destination_port } = selector;
    let Numbers { behind, before_bucket, after_bucket, .. } = Numbers::of(*tunnel);
    let mut fields = format!("from {source} to {destination} ");
    if let Some(protocol) = protocol {
        let _ = write!(fields, "ipproto {} ", protocol_name(*protocol));
        for (key, port) in [("sport", source_port), ("dport", destination_port)] {
            if let Some(port) = port {
                let _ = write!(fields, "{key} {port} ");
            }
        }
    }
    let behind = EntryRule {
        preference: behind,
        table: after_bucket,
        device: format!("wc{tunnel}x"),
        fields: String::new(),
    };
    let preference = preference(*tunnel, selector);
    [behind, EntryRule { preference, table: before_bucket, device: access.clone(), fields }]
}

/// Returns the preference of the rule that leads a tunnel's packets to its bucket. Each kind has
/// room for [`crate::tunnel_numbers::TUNNELS_PER_ROUTER_MAX`] numbers, and begins with 1.
fn preference(tunnel: u16, selector: &FlowSelector) -> u32 {
    let first = match selector.specificity() {
        SelectorSpecificity::BothPorts => 5_000,
        SelectorSpecificity::OnePort => 10_000,
        SelectorSpecificity::Protocol => 15_000,
        SelectorSpecificity::Addresses => 20_000,
    };
    first + u32::from(tunnel)
}

/// Writes the lines that add the rules of a new entry.
pub(super) fn put(entry: &EntryItem, ip: &mut String) {
    for rule in rules_of(entry) {
        rule.add(ip);
    }
}

/// Writes the lines that delete the rules of an entry, by their tables: whatever their preferences
/// are. An entry that is not whole may have each twice: a move may have ended between its lines.
pub(super) fn remove(tunnel: u16, is_whole: bool, ip: &mut String) {
    let Numbers { before_bucket, after_bucket, .. } = Numbers::of(tunnel);
    for _each in 0..if is_whole { 1 } else { 2 } {
        // Rules for outer addresses lead to the second table, too.
        let _ = write!(
            ip,
            "rule del lookup {before_bucket} protocol {PROTOCOL}\n\
             rule del iif wc{tunnel}x lookup {after_bucket} protocol {PROTOCOL}\n"
        );
    }
}

/// Returns the rules of whole entries that have another preference than they are to have.
pub(super) fn misplaced(reading: &EntryReading<'_>, items: &Items) -> Items {
    let mut misplaced = Items::new();
    for item in items.values() {
        let NodeItem::Entry(entry) = item else { continue };
        for EntryRule { preference, table, device, .. } in rules_of(entry) {
            let rules = reading.rules(table).iter();
            let own = rules.filter(|rule| text(rule, "iif") == Some(&device));
            let at = own.filter_map(|rule| rule["priority"].as_u64());
            let elsewhere = at.filter(|at| *at != u64::from(preference));
            let key = |at| format!("misplaced/{}/{table}/{at}", entry.tunnel);
            misplaced.extend(elsewhere.map(|at| (key(at), NodeItem::Unused)));
        }
    }
    misplaced
}

/// Returns tunnel, table and preference of a rule's key that [`misplaced`] made.
fn misplaced_of_key(key: &str) -> Option<(u16, u32, u32)> {
    let (tunnel, rule) = key.strip_prefix("misplaced/")?.split_once('/')?;
    let (table, preference) = rule.split_once('/')?;
    Some((tunnel.parse().ok()?, table.parse().ok()?, preference.parse().ok()?))
}

/// Writes the lines that move misplaced rules of entries that stay. Others lose theirs with the
/// entry.
pub(super) fn put_in_place(wanted: &Items, actual: &Items, ip: &mut String) {
    for (tunnel, table, preference) in actual.keys().filter_map(|key| misplaced_of_key(key)) {
        let key = entry_key(tunnel);
        let (Some(NodeItem::Entry(old)), Some(NodeItem::Entry(entry))) =
            (actual.get(&key), wanted.get(&key))
        else {
            continue;
        };
        let rules = rules_of(entry);
        let rule = rules.iter().find(|rule| rule.table == table);
        if let Some(rule) = rule.filter(|_| old.can_become(entry)) {
            rule.add(ip);
            let device = &rule.device;
            let _ = writeln!(
                ip,
                "rule del pref {preference} iif {device} lookup {table} protocol {PROTOCOL}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_network::TransportProtocol;

    use super::*;

    /// Goal: the more specific of two selectors is met first, whatever the tunnels' numbers; and no
    /// two rules of any tunnels have one preference.
    #[test]
    fn the_more_specific_selector_is_met_first() {
        let udp = Some(TransportProtocol::Udp);
        let kinds =
            [(udp, Some(1), Some(2)), (udp, None, Some(2)), (udp, None, None), (None, None, None)];
        let kinds = kinds.map(|(protocol, source_port, destination_port)| FlowSelector {
            source: "fd01:1::2".parse().unwrap(),
            destination: "fd01:3::2".parse().unwrap(),
            protocol,
            source_port,
            destination_port,
        });
        let most = crate::tunnel_numbers::TUNNELS_PER_ROUTER_MAX;
        let ends = kinds.map(|kind| [preference(1, &kind), preference(most, &kind)]);
        let behind = [Numbers::of(1).behind, Numbers::of(most).behind];
        let outer = [Numbers::of(1).outer, Numbers::of(most).outer];
        let all = [&[behind], &ends[..], &[outer]].concat().concat();
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        // Smaller ones are the kernel's, larger ones those of its tables main and default.
        assert!(all.first() > Some(&0) && all.last() < Some(&32_766), "{all:?}");
    }
}
