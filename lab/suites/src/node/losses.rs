// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The losses of a flow by place: each counter on its path names its drops, and packets that no
//! counter names are reported as unexplained.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_api_types::status::{DirectionStatus, IfaceStatus, NodeStatus};
use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

/// Drops of the switch node's devices, by device: at receipt, at sending.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceDrops(BTreeMap<String, [u64; 2]>);

/// The path of a flow through the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowPath {
    /// The vif that sends it; none: it comes from the port.
    pub(super) from: Option<&'static str>,
    /// The vif that receives it; none: it leaves by the port.
    pub(super) to: Option<&'static str>,
}

/// The fate of a flow's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowLoss {
    /// Packets that the generator handed over.
    pub(super) sent: u64,
    /// Packets that the sink counted.
    pub(super) arrived: u64,
}

impl DeviceDrops {
    /// Reads the drops so far.
    pub(super) fn read(rig: &Testbed) -> Result<Self, ExperimentError> {
        let text = rig.ask("sw", Command::new("ip", ["-j", "-s", "link", "show"]))?;
        let links: Vec<Value> = serde_json::from_str(&text)
            .map_err(|error| ExperimentError::Node(error.to_string()))?;
        let of = |link: &Value| {
            let dropped = |side: &str| link["stats64"][side]["dropped"].as_u64().unwrap_or(0);
            Some((link["ifname"].as_str()?.to_owned(), [dropped("rx"), dropped("tx")]))
        };
        Ok(Self(links.iter().filter_map(of).collect()))
    }

    /// Returns the drops of a device since `before`; 0 if the device was made since.
    fn since(&self, before: &Self, device: &str, side: usize) -> u64 {
        let of = |devices: &Self| devices.0.get(device).map_or(0, |both| both[side]);
        of(self).saturating_sub(of(before))
    }
}

/// Keeps, by where, what was lost of a flow, and claims that every lost packet is named. The
/// counters are those of a node that was started for the run and of vifs with this flow alone, and
/// so are the devices': but for the port's as it sends, where all meet, which names nothing.
pub(super) fn judge(
    rec: &mut Recording<'_>,
    name: &str,
    way: FlowPath,
    FlowLoss { sent, arrived }: FlowLoss,
    status: Option<&NodeStatus>,
    (before, after): (&DeviceDrops, &DeviceDrops),
) -> Result<(), ExperimentError> {
    let mut named: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |what: String, count: u64| {
        if count > 0 {
            *named.entry(what).or_default() += count;
        }
    };
    let [came_by, left_by] = [way.from, way.to].map(|vif| vif.unwrap_or(UPLINK));
    add(format!("device-{came_by}-received"), after.since(before, came_by, 0));
    if way.to.is_some() {
        add(format!("device-{left_by}-sent"), after.since(before, left_by, 1));
    } else {
        let dropped = after.since(before, left_by, 1);
        rec.keep(&format!("{name}/port-dropped"), Series::count("packet", dropped))?;
    }
    let vif = |name: Option<&str>| name.and_then(|name| status?.vif(name));
    for (what, iface, direction) in [
        ("send", vif(way.from), (|vif| &vif.send) as fn(&IfaceStatus) -> &DirectionStatus),
        ("receive", vif(way.to), |vif| &vif.receive),
    ] {
        let Some(iface) = iface else { continue };
        let counted = direction(iface);
        for (reason, amount) in counted.dropped.iter().chain(&counted.dropped_after_by) {
            // A sender counts once more what its receiver refused.
            if reason != "refused_by_receiver" {
                add(format!("{what}-{reason}"), amount.packets);
            }
        }
        add(format!("{what}-backlog"), counted.backlog.packets);
    }
    for (reason, count) in &named {
        rec.keep(&format!("{name}/lost-at/{reason}"), Series::count("packet", *count))?;
    }
    let (lost, all) = (sent.saturating_sub(arrived), named.values().sum::<u64>());
    // What two counters name could hide what none does.
    rec.keep(&format!("{name}/named-twice"), Series::count("packet", all.saturating_sub(lost)))?;
    let unnamed = lost.saturating_sub(all);
    let id = format!("{name}/named");
    rec.claim_samples(
        &id,
        "packets lost that no counter names",
        Series::count("packet", unnamed),
        Rule::Sum,
        Bound::equal(0.0),
    )
}
