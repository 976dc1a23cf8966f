// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of each part of a lab, compared with its topology.

use std::fmt;

use serde::Serialize;

use weir_units::Nanos;

use super::build::{Actual, find, is_whole};
use super::topology::{End, Topology, TopologyLink};
use weir_platform::inspect::QdiscView;
use weir_traffic::delay_line::Pair;

/// A lab as it is, compared with its topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The name of the lab.
    pub lab: String,
    /// True if everything is up as described.
    pub up: bool,
    /// Each namespace, link end and bridge.
    pub items: Vec<Item>,
}

/// One thing of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// `namespace`, `device`, `bridge` or `delay`.
    pub kind: &'static str,
    /// The namespace, or NODE:DEVICE.
    pub name: String,
    /// Its state.
    pub state: State,
    /// A difference, or a description; may be empty.
    pub detail: String,
}

/// The state of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is as described.
    Up,
    /// There, but not as described.
    Differs,
    /// Not there.
    Missing,
}

impl Status {
    pub(super) fn compare(
        topology: &Topology,
        actual: &Actual,
        qdiscs: &[Vec<QdiscView>],
        netem: bool,
    ) -> Self {
        let mut items = Vec::new();
        for (index, node) in topology.nodes.iter().enumerate() {
            // Every namespace has a loopback device.
            let there = actual.get(index).is_some_and(|links| !links.is_empty());
            let state = if there { State::Up } else { State::Missing };
            let name = topology.namespace(node);
            items.push(Item { kind: "namespace", name, state, detail: String::new() });
        }
        for link in &topology.links {
            for end in &link.ends {
                let of_node = qdiscs.get(end.node).map_or(&[][..], Vec::as_slice);
                let mut item = device(topology, link, end, actual);
                item.compare_queue(end, of_node, netem);
                items.push(item);
            }
        }
        for bridge in &topology.bridges {
            let name = format!("{}:{}", topology.nodes[bridge.node].name, bridge.name);
            let there = find(actual, bridge.node, &bridge.name).is_some_and(|b| b.is("bridge"));
            let is_port = |member: &&String| {
                let device = find(actual, bridge.node, member);
                device.is_some_and(|device| device.master.as_ref() == Some(&bridge.name))
            };
            let ports = bridge.members.iter().filter(is_port).count();
            let detail = format!("{ports} of {} ports", bridge.members.len());
            let state = match there {
                false => State::Missing,
                true if ports < bridge.members.len() => State::Differs,
                true => State::Up,
            };
            items.push(Item { kind: "bridge", name, state, detail });
        }
        let up = items.iter().all(|item| item.state == State::Up);
        Self { lab: topology.name.clone(), up, items }
    }

    /// Adds a delay line.
    pub(super) fn add_line(&mut self, pair: &Pair, runs: bool) {
        let state = if runs { State::Up } else { State::Missing };
        let [a, b] = &pair.devices;
        let [there, back] = pair.delays;
        let (name, detail) = (format!("{a} {b}"), format!("{there} there, {back} back"));
        self.items.push(Item { kind: "delay", name, state, detail });
        self.up &= runs;
    }
}

impl Item {
    /// Compares the queue at the end of a link, if the device is there.
    fn compare_queue(&mut self, end: &End, qdiscs: &[QdiscView], netem: bool) {
        if self.state == State::Missing {
            return;
        }
        let root = qdiscs.iter().find(|q| q.dev == end.device && q.root);
        let kind = root.map_or("none", |root| root.kind.as_str());
        let expected = match end.rate {
            Some(_) => "tbf",
            None if netem && end.delay > Nanos::ZERO => "netem",
            None => "pfifo",
        };
        let rate = root.and_then(rate_bps);
        let wanted = end.rate.map(|rate| rate.as_bps());
        if kind != expected {
            self.differ(&format!("queue {kind} instead of {expected}"));
        } else if rate != wanted {
            let text = |bps: Option<u64>| bps.map_or_else(|| "none".into(), |b| format!("{b}bit"));
            self.differ(&format!("rate {} instead of {}", text(rate), text(wanted)));
        }
    }

    fn differ(&mut self, what: &str) {
        self.detail = match self.state {
            State::Differs => format!("{}, {what}", self.detail),
            _ => what.to_owned(),
        };
        self.state = State::Differs;
    }
}

fn device(topology: &Topology, link: &TopologyLink, end: &End, actual: &Actual) -> Item {
    let name = format!("{}:{}", topology.nodes[end.node].name, end.device);
    let Some(view) = find(actual, end.node, &end.device) else {
        let detail = String::new();
        return Item { kind: "device", name, state: State::Missing, detail };
    };
    let mut differs = Vec::new();
    if !is_whole(link, actual) {
        differs.push("has another peer".to_owned());
    }
    if !view.has("UP") {
        differs.push("is down".to_owned());
    }
    if view.mtu != link.mtu {
        differs.push(format!("mtu {} instead of {}", view.mtu, link.mtu));
    }
    if let Some(mac) = end.mac
        && view.address.as_ref() != Some(&mac.to_string())
    {
        differs.push(format!("mac {} instead of {mac}", view.address.as_deref().unwrap_or("none")));
    }
    for wanted in &end.addresses {
        let has = view.addr_info.iter().any(|have| {
            have.prefixlen == wanted.prefix && have.local.parse() == Ok(wanted.address)
        });
        if !has {
            differs.push(format!("without address {wanted}"));
        }
    }
    let (state, detail) = match differs.is_empty() {
        true => (State::Up, end.rate.map(|rate| rate.to_string()).unwrap_or_default()),
        false => (State::Differs, differs.join(", ")),
    };
    Item { kind: "device", name, state, detail }
}

/// The rate of a token bucket; tc prints bytes a second.
fn rate_bps(root: &QdiscView) -> Option<u64> {
    root.options.get("rate")?.as_u64().map(|bytes| bytes * 8)
}

/// One line for the lab, one for each thing.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = self.items.iter().filter(|item| item.state != State::Missing).count();
        let all = self.items.len();
        match (self.up, there) {
            (true, _) => writeln!(f, "lab {}: up, {all} of {all}", self.lab)?,
            (false, 0) => writeln!(f, "lab {}: down", self.lab)?,
            (false, _) => writeln!(f, "lab {}: damaged, {there} of {all} there", self.lab)?,
        }
        for Item { kind, name, state, detail } in &self.items {
            let state = match state {
                State::Up => "up",
                State::Differs => "differs",
                State::Missing => "missing",
            };
            writeln!(f, "{}", format!("  {kind:<9} {name:<28} {state:<7} {detail}").trim_end())?;
        }
        Ok(())
    }
}
