// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes a policy as a TOML document, every value and default included.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use crate::api::ApiTable;
use crate::cycle::CycleTable;
use crate::document::{
    AqmKind, Document, FilterTable, MatchTable, NodeTable, PortTable, QueueTable, RouterTable,
    RuleTable, ShaperKind, ShareTable, SliceTable, VifShareTable, VifTable,
};
use crate::format::{Factor, Protocol, Text};
use crate::host_share::HostShareTable;
use crate::realtime::RouterRealtimeTable;
use crate::report::ReportTable;
use crate::xtc::{RouterXtcTable, XtcTable};
use crate::{
    Direction, Filter, FiveTuple, KeyPath, Node, Policy, Port, Problems, Router, Share, Slice, Vif,
    VifRule, count, parse,
};

impl Policy {
    /// Writes the policy as a document, defaults included. [`parse`] reads back an equal policy, if
    /// the policy is sound.
    #[must_use]
    pub fn to_toml(&self) -> String {
        count::serialised();
        let document = Document {
            version: Some(1),
            node: Some(node(&self.node)),
            api: ApiTable::of(&self.api),
            report: ReportTable::of(&self.report),
            xtc: XtcTable::of(&self.xtc),
            port: Some(self.ports.iter().map(port).collect()),
            slice: some(self.slices.iter().map(slice).collect()),
            router: some(self.routers.iter().map(|router| self.router_table(router)).collect()),
            vif: some(self.vifs.iter().map(|vif| self.vif_table(vif)).collect()),
        };
        // The document holds tables, arrays, texts and integers only: none of them can fail.
        toml::to_string(&document).unwrap_or_else(|error| format!("# not written: {error}\n"))
    }

    /// Returns the value at a place as [`Self::to_toml`] would write it, defaults included. Only
    /// the one item is written, not the whole document.
    #[must_use]
    pub fn value(&self, place: &KeyPath) -> Option<Value> {
        let named = |name: &String| *name == place.name;
        let top = match place.table.as_str() {
            "node" => serde_json::to_value(node(&self.node)),
            "api" => serde_json::to_value(ApiTable::of(&self.api)),
            "report" => serde_json::to_value(ReportTable::of(&self.report)),
            "xtc" => serde_json::to_value(XtcTable::of(&self.xtc)),
            "port" => serde_json::to_value(self.ports.iter().find(|p| named(&p.name)).map(port)),
            "slice" => serde_json::to_value(self.slices.iter().find(|s| named(&s.name)).map(slice)),
            "router" => {
                let router = self.routers.iter().find(|router| named(&router.name));
                serde_json::to_value(router.map(|router| self.router_table(router)))
            }
            "vif" => {
                let vif = self.vifs.iter().find(|vif| named(&vif.name));
                serde_json::to_value(vif.map(|vif| self.vif_table(vif)))
            }
            _ => return None,
        };
        // The tables hold texts, numbers and lists only: none of them can fail.
        let mut top = top.ok()?;
        drop_nulls(&mut top);
        let mut keys = place.key.split('.').filter(|key| !key.is_empty());
        let found = keys.try_fold(&top, |table, key| table.get(key))?;
        (!found.is_null()).then(|| found.clone())
    }

    /// Checks a policy that was built in Rust, by the same rules as a document: it is written and
    /// read back.
    ///
    /// # Errors
    /// [`Problems`], with lines and columns of [`Policy::to_toml`].
    pub fn check(&self) -> Result<(), Problems> {
        parse(&self.to_toml()).map(drop)
    }

    fn router_table(&self, router: &Router) -> RouterTable {
        RouterTable {
            name: Some(router.name.clone()),
            slice: Some(self.slice_name(router.slice.0)),
            send: Some(share(&router.send)),
            receive: Some(share(&router.receive)),
            xtc: router.xtc.as_ref().map(RouterXtcTable::of),
            realtime: router.realtime.as_ref().map(RouterRealtimeTable::of),
        }
    }

    fn vif_table(&self, vif: &Vif) -> VifTable {
        let router = vif.router.map(|id| {
            let router = self.routers.get(id.0 as usize);
            router.map_or_else(|| nameless(id.0), |router| router.name.clone())
        });
        let port = self.ports.get(vif.port.0 as usize);
        VifTable {
            name: Some(vif.name.clone()),
            slice: Some(self.slice_name(vif.slice.0)),
            router,
            port: Some(port.map_or_else(|| nameless(vif.port.0), |port| port.name.clone())),
            device: Some(vif.device.clone()),
            kind: Some(vif.kind),
            mac: texts(&vif.macs),
            addresses: texts(&vif.addresses),
            macs_max: Some(vif.macs_max),
            storm: vif.storm.map(Text),
            delay: vif.delay.map(Text),
            delay_packet: Some(Text(vif.delay_packet)),
            queue: (vif.send_queue.kind == vif.receive_queue.kind).then_some(vif.send_queue.kind),
            send: Some(vif_share(vif, Direction::Send)),
            receive: Some(vif_share(vif, Direction::Receive)),
            filter: some(vif.filter.iter().map(rule).collect()),
        }
    }

    fn slice_name(&self, id: u32) -> String {
        let slice = self.slices.get(id as usize);
        slice.map_or_else(|| nameless(id), |slice| slice.name.clone())
    }
}

/// Returns a name for a reference that leads nowhere; the check reports that there is no such name.
fn nameless(id: u32) -> String {
    format!("number-{id}")
}

fn node(node: &Node) -> NodeTable {
    NodeTable {
        name: Some(node.name.clone()),
        dataplane: Some(node.dataplane),
        idle: Some(node.idle),
        worker_cpu: node.worker_cpu,
        reservation: Some(node.reservation),
        frames: Some(node.frames),
        frame_size: Some(node.frame_size.bytes()),
        queue: Some(node.queue),
        flows: Some(node.flows),
        in_flight: Some(Text(node.in_flight)),
        wake_latency: node.wake_latency.map(Text),
        overbooking: Some(Factor(node.overbooking.thousandths())),
        capacity: node.capacity.map(Text),
        redirect: Some(node.redirect),
    }
}

fn port(port: &Port) -> PortTable {
    PortTable {
        name: Some(port.name.clone()),
        device: Some(port.device.clone()),
        bridge: port.bridge.clone(),
        kind: Some(port.kind),
        rate: Some(Text(port.rate)),
        layer: Some(port.layer),
        overhead: Some(port.overhead),
        scheduler: Some(port.scheduler),
        catch_up: Some(Text(port.catch_up)),
        receive_ring: Some(port.receive_ring),
        pih: Some(port.pih),
        cycle: port.cycle.as_ref().map(CycleTable::of),
        host_send: port.host_send.as_ref().map(HostShareTable::of),
        host_receive: port.host_receive.as_ref().map(HostShareTable::of),
        rule: some(port.rules.iter().map(vif_rule).collect()),
    }
}

fn vif_rule(rule: &VifRule) -> RuleTable {
    let vif = &rule.vif;
    // A written slice has its own.
    let of_slice = |of: &Share| rule.slice_name.literal().is_none().then(|| share(of));
    RuleTable {
        pattern: rule.pattern.clone().map(Text),
        slice: Some(Text(rule.slice_name.clone())),
        devices_max: Some(rule.devices_max),
        macs_max: Some(vif.macs_max),
        queue: (vif.send_queue.kind == vif.receive_queue.kind).then_some(vif.send_queue.kind),
        send: Some(vif_share(vif, Direction::Send)),
        receive: Some(vif_share(vif, Direction::Receive)),
        slice_send: of_slice(&rule.slice.send),
        slice_receive: of_slice(&rule.slice.receive),
    }
}

fn slice(slice: &Slice) -> SliceTable {
    SliceTable {
        name: Some(slice.name.clone()),
        vlan: slice.vlan,
        pih: slice.pih,
        matches: some(slice.five_tuples.iter().map(five_tuple).collect()),
        phase: slice.phase.map(Text),
        send: Some(share(&slice.send)),
        receive: Some(share(&slice.receive)),
    }
}

fn share(share: &Share) -> ShareTable {
    ShareTable {
        priority: Some(share.priority),
        min_rate: Some(Text(share.min_rate)),
        rate: share.rate.map(Text),
        min_pps: Some(Text(share.min_pps)),
        max_pps: share.max_pps.map(Text),
        burst: Some(Text(share.burst)),
        burst_packets: share.burst_packets,
    }
}

fn vif_share(vif: &Vif, direction: Direction) -> VifShareTable {
    let share = share(vif.share(direction));
    let (window, queue) = (vif.shaper(direction), vif.queue(direction));
    let kind = if window.is_some() { ShaperKind::Smooth } else { ShaperKind::Bucket };
    VifShareTable {
        priority: share.priority,
        min_rate: share.min_rate,
        rate: share.rate,
        min_pps: share.min_pps,
        max_pps: share.max_pps,
        burst: share.burst,
        burst_packets: share.burst_packets,
        shaper: Some(kind),
        credit: window.map(|window| Text(window.credit)),
        width: window.map(|window| Text(window.width)),
        interval: window.map(|window| Text(window.interval)),
        delay_max: window.map(|window| Text(window.delay_max)),
        queue: Some(QueueTable {
            kind: Some(queue.kind),
            packets: Some(queue.packets),
            bytes: Some(Text(queue.bytes)),
            aqm: Some(if queue.codel.is_some() { AqmKind::Codel } else { AqmKind::None }),
            target: queue.codel.map(|codel| Text(codel.target)),
            interval: queue.codel.map(|codel| Text(codel.interval)),
            ecn: queue.codel.map(|codel| codel.ecn),
            l4s: queue.l4s.map(Text),
        }),
    }
}

fn rule(rule: &Filter) -> FilterTable {
    FilterTable {
        action: Some(rule.action),
        direction: rule.direction,
        mac: rule.mac.map(Text),
        vlan: rule.vlan,
        src: rule.src.map(Text),
        dst: rule.dst.map(Text),
        protocol: rule.protocol.map(|number| Text(Protocol(number))),
        port: rule.port,
    }
}

fn five_tuple(tuple: &FiveTuple) -> MatchTable {
    MatchTable {
        protocol: tuple.protocol.map(|number| Text(Protocol(number))),
        src: tuple.src.map(Text),
        dst: tuple.dst.map(Text),
        src_port: tuple.src_port,
        dst_port: tuple.dst_port,
    }
}

fn texts<T: Copy>(values: &[T]) -> Option<Vec<Text<T>>> {
    some(values.iter().copied().map(Text).collect())
}

/// Removes keys without a value, as TOML has no null.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|_, value| !value.is_null());
            table.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Leaves an empty list out: absent and empty mean the same.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    if list.is_empty() { None } else { Some(list) }
}

impl core::fmt::Display for Policy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.to_toml())
    }
}
