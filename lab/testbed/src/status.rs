// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of each part of a lab, compared with its topology.

use std::fmt;

use serde::Serialize;

use weir_units::Nanos;

use super::build::{Actual, find, is_whole};
use super::delay_line::DelayedPair;
use super::topology::{End, Topology, TopologyLink};
use weir_platform::inspect::{LinkView, QdiscView};

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
            items.push(Item::found("namespace", topology.namespace(node), there, String::new()));
        }
        for (link, end) in
            topology.links.iter().flat_map(|link| link.ends.iter().map(move |end| (link, end)))
        {
            let name = format!("{}:{}", topology.nodes[end.node].name, end.device);
            let Some(view) = find(actual, end.node, &end.device) else {
                items.push(Item::found("device", name, false, String::new()));
                continue;
            };
            let root = qdiscs.get(end.node).into_iter().flatten();
            let root = root.filter(|qdisc| qdisc.root).find(|qdisc| qdisc.dev == end.device);
            let mut differences = device_differences(link, end, view, is_whole(link, actual));
            differences.extend(queue_difference(end, root, netem));
            let detail = end.rate.map(|rate| rate.to_string()).unwrap_or_default();
            items.push(Item::compared("device", name, &differences, detail));
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
            let mut item = Item::found("bridge", name, there, detail);
            if there && ports < bridge.members.len() {
                item.state = State::Differs;
            }
            items.push(item);
        }
        let up = items.iter().all(|item| item.state == State::Up);
        Self { lab: topology.name.clone(), up, items }
    }

    /// Adds a delay line.
    pub(super) fn add_line(&mut self, pair: &DelayedPair, runs: bool) {
        let ([a, b], [there, back]) = (&pair.devices, pair.delays);
        let detail = format!("{there} there, {back} back");
        self.items.push(Item::found("delay", format!("{a} {b}"), runs, detail));
        self.up &= runs;
    }
}

impl Item {
    fn found(kind: &'static str, name: String, there: bool, detail: String) -> Self {
        let state = if there { State::Up } else { State::Missing };
        Self { kind, name, state, detail }
    }

    /// A thing that is there: its differences, or `detail` if it has none.
    fn compared(kind: &'static str, name: String, differences: &[String], detail: String) -> Self {
        match differences {
            [] => Self { kind, name, state: State::Up, detail },
            some => Self { kind, name, state: State::Differs, detail: some.join(", ") },
        }
    }
}

fn device_differences(
    link: &TopologyLink,
    end: &End,
    view: &LinkView,
    is_whole: bool,
) -> Vec<String> {
    let mut differs = Vec::new();
    if !is_whole {
        differs.push("has another peer".to_owned());
    }
    if !view.has("UP") {
        differs.push("is down".to_owned());
    }
    if view.mtu != link.mtu {
        differs.push(format!("mtu {} instead of {}", view.mtu, link.mtu));
    }
    let own = view.address.as_deref().unwrap_or("none");
    if let Some(mac) = end.mac.filter(|mac| mac.to_string() != own) {
        differs.push(format!("mac {own} instead of {mac}"));
    }
    for wanted in &end.addresses {
        let has = view.addr_info.iter().any(|have| {
            have.prefixlen == wanted.prefix && have.local.parse() == Ok(wanted.address)
        });
        if !has {
            differs.push(format!("without address {wanted}"));
        }
    }
    differs
}

fn queue_difference(end: &End, root: Option<&QdiscView>, netem: bool) -> Option<String> {
    let kind = root.map_or("none", |root| root.kind.as_str());
    let expected = match end.rate {
        Some(_) => "tbf",
        None if netem && end.delay > Nanos::ZERO => "netem",
        None => "pfifo",
    };
    if kind != expected {
        return Some(format!("queue {kind} instead of {expected}"));
    }
    let [rate, wanted] = [root.and_then(rate_bps), end.rate.map(|rate| rate.as_bps())];
    let text = |bps: Option<u64>| bps.map_or_else(|| "none".into(), |bps| format!("{bps}bit"));
    (rate != wanted).then(|| format!("rate {} instead of {}", text(rate), text(wanted)))
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
