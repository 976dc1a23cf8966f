// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of a tunnel's tables, and a router's answers about entries by these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use serde_json::Value;

use crate::ip6tnl::TunnelDevices;
use crate::item::PROTOCOL;

/// Numbers of a tunnel's tables.
pub(super) struct Numbers {
    pub(super) before_bucket: u32,
    pub(super) after_bucket: u32,
}

impl Numbers {
    pub(super) fn of(tunnel: u16) -> Self {
        let tunnel = u32::from(tunnel);
        Self { before_bucket: TABLE_BEFORE + tunnel, after_bucket: TABLE_AFTER + tunnel }
    }
}

/// Answers of a router about entries, by device and by table.
#[derive(Debug)]
pub(super) struct EntryReading<'v> {
    pub(super) routes: BTreeMap<u32, Vec<&'v Value>>,
    pub(super) rules: BTreeMap<u32, Vec<&'v Value>>,
    pub(super) buckets: BTreeMap<&'v str, &'v Value>,
    pub(super) devices: &'v TunnelDevices,
    /// Tunnels of which there is a part.
    pub(super) tunnels: BTreeSet<u16>,
}

impl<'v> EntryReading<'v> {
    pub(super) fn new(
        routes: &'v [Value],
        rules: &'v [Value],
        qdiscs: &'v [Value],
        devices: &'v TunnelDevices,
    ) -> Self {
        let mut reading = Self {
            routes: BTreeMap::new(),
            rules: BTreeMap::new(),
            buckets: BTreeMap::new(),
            devices,
            tunnels: BTreeSet::new(),
        };
        for route in routes {
            if let Some(table) = table(route) {
                reading.routes.entry(table).or_default().push(route);
                reading.tunnels.extend(tunnel_of_table(table));
            }
        }
        let own = PROTOCOL.to_string();
        for rule in rules {
            // Rules of others lead where they will.
            let is_ours = text(rule, "protocol") == Some(own.as_str());
            if let Some(table) = table(rule).filter(|_| is_ours) {
                reading.rules.entry(table).or_default().push(rule);
                reading.tunnels.extend(tunnel_of_table(table));
            }
        }
        for qdisc in qdiscs {
            let Some(device) = text(qdisc, "dev") else { continue };
            let Some(number) = device.strip_prefix("wc") else { continue };
            let number = number.strip_suffix('x').unwrap_or(number);
            reading.tunnels.extend(number.parse::<u16>().ok());
            if text(qdisc, "kind") == Some("tbf") {
                reading.buckets.entry(device).or_insert(qdisc);
            }
        }
        reading
    }

    pub(super) fn routes(&self, table: u32) -> &[&'v Value] {
        self.routes.get(&table).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn rules(&self, table: u32) -> &[&'v Value] {
        self.rules.get(&table).map(Vec::as_slice).unwrap_or_default()
    }
}

pub(super) fn table(value: &Value) -> Option<u32> {
    text(value, "table")?.parse().ok()
}

pub(super) fn tunnel_of_table(table: u32) -> Option<u16> {
    let number = table.checked_sub(TABLE_AFTER).or_else(|| table.checked_sub(TABLE_BEFORE))?;
    u16::try_from(number).ok()
}

pub(super) fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value[key].as_str()
}

pub(super) fn address(value: &Value, key: &str) -> Option<Ipv6Addr> {
    text(value, key)?.parse().ok()
}

const TABLE_BEFORE: u32 = 1_000_000;
const TABLE_AFTER: u32 = 2_000_000;
