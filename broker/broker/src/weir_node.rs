// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Weir node: what the broker's networks have there, and the calls of its interface that bring
//! it there. All of it is pure.
//!
//! A network is a slice with the network's VLAN, so frames of one network never reach another. Each
//! of its links on a physical link is a vif of that slice at the link's port, whose `min_rate` is
//! the share, in both directions. The slice itself names no guarantee, so that its guarantee on
//! each port is the sum of its vifs'.
//!
//! Slices and vifs of ours are named `broker.NAME`. Others are neither read nor touched.

use std::collections::BTreeMap;

use toml::{Table, Value};
use weir_api_types::change::{ChangeSet, NewSlice, NewVif, VifChange, VifShareChange};
use weir_client::{Method, escaped};
use weir_units::BitRate;

use crate::config::BrokerConfig;

/// Parts of the broker's networks that a node is to have, or has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeParts {
    /// Slices, by name.
    pub(crate) slices: BTreeMap<String, NodePart<SlicePart>>,
    /// Vifs, by name.
    pub(crate) vifs: BTreeMap<String, NodePart<VifPart>>,
}

impl NodeParts {
    /// Returns the vifs that `actual` does not have, or not as they are here.
    pub(crate) fn lacking<'p>(&'p self, actual: &Self) -> impl Iterator<Item = &'p str> {
        self.vifs
            .iter()
            .filter(|(name, part)| actual.vifs.get(*name) != Some(*part))
            .map(|(name, _)| name.as_str())
    }
}

/// A slice or vif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodePart<T> {
    /// It is as the broker makes it.
    Sound(T),
    /// It has keys or values that the broker never gives it.
    Foreign,
}

/// A network at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlicePart {
    pub(crate) vlan: u16,
}

/// A network's link at its end of a physical link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VifPart {
    pub(crate) slice: String,
    pub(crate) port: String,
    pub(crate) device: String,
    /// The share, guaranteed in both directions.
    pub(crate) share: BitRate,
}

/// A node as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadNode {
    pub(crate) parts: NodeParts,
    /// Rates of its ports, by name.
    pub(crate) ports: BTreeMap<String, BitRate>,
}

/// A call of a node's interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeCall {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<serde_json::Value>,
}

/// Returns the parts that a node is to have. The configuration was checked.
pub(crate) fn wanted(config: &BrokerConfig, node: &str) -> NodeParts {
    let mut parts = NodeParts::default();
    for network in &config.network {
        let slice = part_name(&[&network.name]);
        for (link, physical) in network.carried(config) {
            let ends = [&link.a, &link.b].into_iter().zip(physical.ends());
            for (end, port) in ends.filter(|(_, port)| port.node == node) {
                let Some(device) = &end.vif else { continue };
                let vlan = network.vlan.unwrap_or_default();
                parts.slices.insert(slice.clone(), NodePart::Sound(SlicePart { vlan }));
                let vif = VifPart {
                    slice: slice.clone(),
                    port: port.port.clone(),
                    device: device.clone(),
                    share: link.rate,
                };
                let name = vif_name(&end.router, &end.device);
                parts.vifs.insert(name, NodePart::Sound(vif));
            }
        }
    }
    parts
}

/// Returns the calls that take a node from `actual` to `wanted`, in an order in which each can be
/// made: removals, then rates, then additions.
pub(crate) fn plan(wanted: &NodeParts, actual: &NodeParts) -> Vec<NodeCall> {
    let mut calls = Vec::new();
    let slice_stays = |name: &str| {
        let part = actual.slices.get(name);
        part.is_some() && part == wanted.slices.get(name)
    };
    // A vif that stays keeps its queue and its packets: only its share may change.
    let stays = |name: &str| match (actual.vifs.get(name), wanted.vifs.get(name)) {
        (Some(NodePart::Sound(has)), Some(NodePart::Sound(of))) => {
            VifPart { share: of.share, ..has.clone() } == *of && slice_stays(&of.slice)
        }
        _ => false,
    };
    for name in actual.vifs.keys().filter(|name| !stays(name)) {
        calls.push(NodeCall::remove("vifs", name));
    }
    for name in actual.slices.keys().filter(|name| !slice_stays(name)) {
        calls.push(NodeCall::remove("slices", name));
    }
    let mut rates = ChangeSet::default();
    for (name, part) in wanted.vifs.iter().filter(|(name, _)| stays(name)) {
        if let (NodePart::Sound(vif), true) = (part, actual.vifs.get(name) != Some(part)) {
            let (send, receive) = (Some(share(vif)), Some(share(vif)));
            let change = VifChange { send, receive, ..VifChange::default() };
            rates.vifs.insert(name.clone(), change);
        }
    }
    if !rates.vifs.is_empty() {
        // All or none, so the order of what shrinks and what grows does not matter.
        calls.push(NodeCall::post("/v1/changes", &rates));
    }
    for (name, part) in wanted.slices.iter().filter(|(name, _)| !slice_stays(name)) {
        let NodePart::Sound(slice) = part else { continue };
        let new = NewSlice { name: name.clone(), vlan: Some(slice.vlan), ..NewSlice::default() };
        calls.push(NodeCall::post("/v1/slices", &new));
    }
    for (name, part) in wanted.vifs.iter().filter(|(name, _)| !stays(name)) {
        let NodePart::Sound(vif) = part else { continue };
        let new = NewVif {
            name: name.clone(),
            slice: vif.slice.clone(),
            port: Some(vif.port.clone()),
            device: Some(vif.device.clone()),
            send: Some(share(vif)),
            receive: Some(share(vif)),
            ..NewVif::default()
        };
        calls.push(NodeCall::post("/v1/vifs", &new));
    }
    calls
}

/// Reads the document of a node's policy in force.
///
/// # Errors
/// It has another form.
pub(crate) fn read(document: &str) -> Result<ReadNode, String> {
    let document: Table = document.parse().map_err(|error| format!("its document: {error}"))?;
    let items = |kind: &str| {
        let list = document.get(kind).and_then(Value::as_array);
        let tables = list.into_iter().flatten().filter_map(Value::as_table);
        tables.filter_map(|item| Some((text(item, "name")?, item)))
    };
    let mut node = ReadNode::default();
    for (name, item) in items("port") {
        let rate = text(item, "rate").and_then(|rate| rate.parse().ok());
        node.ports.insert(name, rate.unwrap_or(BitRate::ZERO));
    }
    for (name, item) in items("slice").filter(|(name, _)| name.starts_with(PREFIX)) {
        let part = read_slice(item).map_or(NodePart::Foreign, NodePart::Sound);
        node.parts.slices.insert(name, part);
    }
    for (name, item) in items("vif").filter(|(name, _)| name.starts_with(PREFIX)) {
        let part = read_vif(item).map_or(NodePart::Foreign, NodePart::Sound);
        node.parts.vifs.insert(name, part);
    }
    Ok(node)
}

/// Returns why a node cannot hold what its physical links are to carry; none if it can.
pub(crate) fn fault(
    config: &BrokerConfig,
    node: &str,
    ports: &BTreeMap<String, BitRate>,
) -> Option<String> {
    let ends = config.link.iter().flat_map(|link| link.ends().map(|end| (link, end)));
    ends.filter(|(_, end)| end.node == node).find_map(|(link, end)| {
        let (port, link_rate) = (&end.port, link.rate);
        match ports.get(port) {
            None => Some(format!("it has no port \"{port}\"")),
            Some(rate) if *rate < link_rate => Some(format!(
                "its port \"{port}\" has rate {rate}, and link \"{}\" needs {link_rate}",
                link.name
            )),
            Some(_) => None,
        }
    })
}

/// Reads a slice as the broker makes it; none if it has anything else.
fn read_slice(item: &Table) -> Option<SlicePart> {
    let vlan = u16::try_from(item.get("vlan")?.as_integer()?).ok()?;
    (item.len() == 2).then_some(SlicePart { vlan })
}

/// Reads a vif as the broker makes it; none if it has anything else.
fn read_vif(item: &Table) -> Option<VifPart> {
    let share = |direction: &str| -> Option<BitRate> {
        let share = item.get(direction)?.as_table().filter(|share| share.len() == 1)?;
        text(share, "min_rate")?.parse().ok()
    };
    let part = VifPart {
        slice: text(item, "slice")?,
        port: text(item, "port")?,
        device: text(item, "device")?,
        share: share("send")?,
    };
    (item.len() == 6 && share("receive")? == part.share).then_some(part)
}

fn text(item: &Table, key: &str) -> Option<String> {
    item.get(key)?.as_str().map(str::to_owned)
}

fn share(vif: &VifPart) -> VifShareChange {
    let min_rate_bps = Some(Some(vif.share.as_bps()));
    VifShareChange { min_rate_bps, ..VifShareChange::default() }
}

/// Returns the name of the vif of a router's device.
pub(crate) fn vif_name(router: &str, device: &str) -> String {
    part_name(&[router, device])
}

/// Returns the name of a slice or vif of ours: unique, since names of networks, and of routers
/// among all networks, are. It has at most 63 characters, as the node asks.
fn part_name(parts: &[&str]) -> String {
    format!("{PREFIX}{}", parts.join("."))
}

impl NodeCall {
    fn remove(table: &str, name: &str) -> Self {
        let path = format!("/v1/{table}/{}", escaped(name));
        Self { method: Method::DELETE, path, body: None }
    }

    fn post(path: &str, body: &impl serde::Serialize) -> Self {
        // The body is made of texts and numbers, so this cannot fail.
        let body = serde_json::to_value(body).ok();
        Self { method: Method::POST, path: path.to_owned(), body }
    }
}

const PREFIX: &str = "broker.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_config;

    fn config() -> BrokerConfig {
        test_config::parse(&test_config::shared("60Mbit", "30Mbit")).unwrap()
    }

    fn parts() -> NodeParts {
        wanted(&config(), "n1")
    }

    /// A node of an operator, with what the calls made: its document, as the node itself edits it.
    #[derive(Clone)]
    struct FakeNode(Table);

    impl FakeNode {
        fn new() -> Self {
            let own = "[[port]]\nname = \"p\"\nrate = \"100Mbit\"\n\
                       [[slice]]\nname = \"host\"\n[[vif]]\nname = \"host\"\nslice = \"host\"\n";
            Self(own.parse().unwrap())
        }

        fn list(&mut self, table: &str) -> &mut Vec<Value> {
            self.0.get_mut(table).unwrap().as_array_mut().unwrap()
        }

        fn item(&mut self, table: &str, name: &str) -> &mut Table {
            let found =
                self.list(table).iter_mut().find(|item| item["name"].as_str() == Some(name));
            found.unwrap().as_table_mut().unwrap()
        }

        fn make(&mut self, call: &NodeCall) {
            let rate = |share: &serde_json::Value| {
                let rate = BitRate::from_bps(share["min_rate_bps"].as_u64().unwrap());
                Value::from(Table::from_iter([("min_rate".to_owned(), rate.to_string().into())]))
            };
            let words: Vec<_> = call.path.split('/').collect();
            match (&call.method, words.as_slice()) {
                (&Method::DELETE, [_, _, tables, name]) => {
                    let table = tables.strip_suffix('s').unwrap();
                    self.item(table, name);
                    self.list(table).retain(|item| item["name"].as_str() != Some(name));
                    let left =
                        self.list("vif").iter().any(|vif| vif["slice"].as_str() == Some(name));
                    assert!(table != "slice" || !left, "a slice goes after its vifs");
                }
                (&Method::POST, [_, _, "changes"]) => {
                    for (name, change) in call.body.as_ref().unwrap()["vifs"].as_object().unwrap() {
                        for direction in ["send", "receive"] {
                            let share = rate(&change[direction]);
                            self.item("vif", name).insert(direction.to_owned(), share);
                        }
                    }
                }
                (&Method::POST, [_, _, tables]) => {
                    let body = call.body.as_ref().unwrap().as_object().unwrap();
                    let item = body.iter().map(|(key, value)| {
                        let value = match value {
                            serde_json::Value::String(text) => Value::from(text.as_str()),
                            serde_json::Value::Number(number) => number.as_i64().unwrap().into(),
                            share => rate(share),
                        };
                        (key.clone(), value)
                    });
                    let item = Table::from_iter(item);
                    if let Some(slice) = item.get("slice") {
                        self.item("slice", slice.as_str().unwrap());
                    }
                    self.list(tables.strip_suffix('s').unwrap()).push(item.into());
                }
                other => panic!("{other:?}"),
            }
        }

        /// Brings the node to what is wanted, and returns the calls as `METHOD PATH`.
        fn converge(&mut self, wanted: &NodeParts) -> Vec<String> {
            let actual = read(&self.0.to_string()).unwrap().parts;
            let calls = plan(wanted, &actual);
            calls.iter().for_each(|call| self.make(call));
            assert_eq!(read(&self.0.to_string()).unwrap().parts, *wanted);
            calls.iter().map(|call| format!("{} {}", call.method, call.path)).collect()
        }
    }

    /// Goal: an empty node gets a slice and a vif for each network, with VLAN and share; once it
    /// has them nothing is done; what the operator has stays.
    #[test]
    fn a_node_gets_a_slice_and_a_guaranteed_vif_for_each_network() {
        let mut node = FakeNode::new();
        let slices_first = ["POST /v1/slices", "POST /v1/slices", "POST /v1/vifs", "POST /v1/vifs"];
        assert_eq!(node.converge(&parts()), slices_first);
        let vif = node.item("vif", "broker.blue-1.c").to_string();
        for part in ["slice = \"broker.blue\"", "device = \"blue1\"", "min_rate = \"60Mbit\""] {
            assert!(vif.contains(part), "{part}: {vif}");
        }
        assert_eq!(node.item("slice", "broker.red")["vlan"].as_integer(), Some(20));
        assert!(node.converge(&parts()).is_empty());
        assert_eq!(node.list("vif").len(), 3);
    }

    /// Goal: whatever somebody else changes of ours comes back, and a vif whose share alone differs
    /// is not taken away for it.
    #[test]
    fn what_was_changed_comes_back() {
        let mut sound = FakeNode::new();
        sound.converge(&parts());
        let damage = |edit: &dyn Fn(&mut FakeNode)| {
            let mut node = sound.clone();
            edit(&mut node);
            assert_ne!(read(&node.0.to_string()).unwrap().parts, parts());
            let calls = node.converge(&parts());
            assert_eq!(node.list("slice").len(), 3);
            calls
        };
        let set = |table: &'static str, name: &'static str, text: &str| {
            let keys: Table = text.parse().unwrap();
            damage(&|node| node.item(table, name).extend(keys.clone()))
        };
        let vif = "broker.blue-1.c";
        let both = "send.min_rate = \"1Mbit\"\nreceive.min_rate = \"1Mbit\"";
        assert_eq!(set("vif", vif, both), ["POST /v1/changes"]);
        for text in [
            "receive.min_rate = \"1Mbit\"",
            "send = { min_rate = \"60Mbit\", rate = \"61Mbit\" }",
            "device = \"other\"",
            "port = \"q\"",
            "storm = \"1pps\"",
        ] {
            let calls = set("vif", vif, text);
            assert_eq!(calls, ["DELETE /v1/vifs/broker.blue-1.c", "POST /v1/vifs"], "{text}");
        }
        for text in ["vlan = 11", "send.rate = \"1Mbit\""] {
            let calls = set("slice", "broker.blue", text);
            assert_eq!(calls.len(), 4, "{text}: {calls:?}");
        }
        damage(&|node| node.list("vif").retain(|vif| vif["slice"].as_str() != Some("broker.red")));
        // A network that the file no longer has.
        let gone = "[[slice]]\nname = \"broker.old\"\nvlan = 7\n[[vif]]\nname = \"broker.old.a\"\n\
                    slice = \"broker.old\"";
        let gone: Table = gone.parse().unwrap();
        let calls = damage(&|node| {
            for table in ["slice", "vif"] {
                node.list(table).extend(gone[table].as_array().unwrap().clone());
            }
        });
        assert_eq!(calls, ["DELETE /v1/vifs/broker.old.a", "DELETE /v1/slices/broker.old"]);
    }

    /// Goal: a port that is missing or slower than its link is named.
    #[test]
    fn a_port_that_cannot_carry_its_link_is_named() {
        let fault = |name: &str, mbps| {
            let ports = BTreeMap::from([(name.to_owned(), BitRate::from_mbps(mbps))]);
            fault(&config(), "n1", &ports)
        };
        assert_eq!(fault("p", 100), None);
        assert_eq!(fault("q", 100).unwrap(), "it has no port \"p\"");
        let slow = "its port \"p\" has rate 99Mbit, and link \"n1-n2\" needs 100Mbit";
        assert_eq!(fault("p", 99).unwrap(), slow);
    }
}
