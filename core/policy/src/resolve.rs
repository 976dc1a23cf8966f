// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns the document into the policy: fills in defaults and resolves names to indexes.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_units::{BitRate, ByteCount, PacketRate};

use crate::api::ApiTable;
use crate::bounds::FRAMES_MAX;
use crate::check::frames_needed;
use crate::cycle::CycleTable;
use crate::device_pattern::NameTemplate;
use crate::document::{
    Document, FilterTable, MatchTable, NodeTable, PortTable, RouterTable, RuleTable, ShaperKind,
    ShareTable, SliceTable, VifShareTable, VifTable,
};
use crate::finding::Finding;
use crate::format::{Text, quoted};
use crate::queue_defaults::{resolve_queues, resolve_rule_queues};
use crate::report::ReportTable;
use crate::rule_check::of_rule;
use crate::suggest::nearest;
use crate::xtc::{RouterXtcTable, XtcTable};
use crate::{
    Api, Filter, FilterAction, FiveTuple, FrameSize, Layer, Node, Overbooking, Policy, Port,
    PortId, Report, Router, RouterId, Share, Slice, SliceId, SmoothWindow, Vif, VifRule, Xtc,
};

/// Returns the policy that `document` describes. A reference that does not resolve becomes an index
/// that no item has.
pub(crate) fn resolve(document: &Document, findings: &mut Vec<Finding>) -> Policy {
    let node = document.node.clone().unwrap_or_default();
    let ports = document.port.as_deref().unwrap_or_default();
    let slices = document.slice.as_deref().unwrap_or_default();
    let routers = document.router.as_deref().unwrap_or_default();
    let vifs = document.vif.as_deref().unwrap_or_default();
    let mut resolver = Resolver {
        ports: names("port", ports.iter().map(|port| &port.name), findings),
        slices: names("slice", slices.iter().map(|slice| &slice.name), findings),
        routers: names("router", routers.iter().map(|router| &router.name), findings),
        packet: frame_size(&node).packet_max(),
        findings,
    };
    names("vif", vifs.iter().map(|vif| &vif.name), resolver.findings);
    let mut policy = Policy {
        node: resolver.node(&node),
        api: document.api.as_ref().map_or_else(Api::default, ApiTable::resolve),
        report: document.report.as_ref().map_or_else(Report::default, ReportTable::resolve),
        xtc: document.xtc.as_ref().map_or_else(Xtc::default, XtcTable::resolve),
        ports: ports.iter().enumerate().map(|(i, one)| resolver.port(i, one)).collect(),
        slices: slices.iter().map(|slice| resolver.slice(slice)).collect(),
        routers: routers.iter().enumerate().map(|(i, one)| resolver.router(i, one)).collect(),
        vifs: vifs.iter().enumerate().map(|(i, one)| resolver.vif(i, one)).collect(),
    };
    resolve_queues(vifs, &mut policy, findings);
    resolve_rule_queues(ports, &mut policy, findings);
    let needed = frames_needed(&policy);
    policy.node.frames = node.frames.unwrap_or_else(|| {
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        needed.clamp(Node::FRAMES_DEFAULT, FRAMES_MAX)
    });
    policy
}

struct Resolver<'f> {
    ports: BTreeMap<String, u32>,
    slices: BTreeMap<String, u32>,
    routers: BTreeMap<String, u32>,
    /// The longest packet; two of them are the smallest default burst.
    packet: ByteCount,
    findings: &'f mut Vec<Finding>,
}

impl Resolver<'_> {
    fn node(&mut self, table: &NodeTable) -> Node {
        let base = Node::new(table.name.as_deref().unwrap_or("node"));
        Node {
            dataplane: table.dataplane.unwrap_or(base.dataplane),
            idle: table.idle.unwrap_or(base.idle),
            worker_cpu: table.worker_cpu,
            reservation: table.reservation.unwrap_or(base.reservation),
            frame_size: frame_size(table),
            queue: table.queue.unwrap_or(base.queue),
            flows: table.flows.unwrap_or(base.flows),
            in_flight: table.in_flight.map_or(base.in_flight, |text| text.0),
            wake_latency: table.wake_latency.map(|text| text.0),
            overbooking: table
                .overbooking
                .map_or(base.overbooking, |factor| Overbooking::from_thousandths(factor.0)),
            capacity: table.capacity.map(|text| text.0),
            redirect: table.redirect.unwrap_or(base.redirect),
            ..base
        }
    }

    fn port(&mut self, index: usize, table: &PortTable) -> Port {
        let rules = table.rule.as_deref().unwrap_or_default().iter().enumerate();
        let rules = rules.map(|(number, rule)| self.rule((index, number), rule)).collect();
        let [host_send, host_receive] = [&table.host_send, &table.host_receive]
            .map(|host| host.as_ref().map(|host| host.resolve(self.packet)));
        Port { rules, host_send, host_receive, ..port(table) }
    }

    fn rule(&mut self, (port, number): (usize, usize), table: &RuleTable) -> VifRule {
        // A missing name was reported already.
        let slice_name = table.slice.as_ref().map(|text| text.0.clone());
        let slice_name = slice_name.unwrap_or_else(|| NameTemplate::of("slice"));
        let slice = match slice_name.literal() {
            Some(name) if table.slice.is_some() => {
                let found = find(&self.slices, "slice", name);
                let given = [
                    ("slice_send", table.slice_send.is_some()),
                    ("slice_receive", table.slice_receive.is_some()),
                ];
                let written = given.iter().filter(|(_, given)| *given && found.is_ok());
                for (key, _) in written {
                    let message = format!("belongs to slice {}, which is written", quoted(name));
                    self.findings.push(of_rule(port, number, key, message));
                }
                let found = found.map_err(|why| of_rule(port, number, "slice", why));
                SliceId(found.unwrap_or_else(|finding| {
                    self.findings.push(finding);
                    NOWHERE
                }))
            }
            _ => VifRule::NO_SLICE,
        };
        let of_port = PortId(u32::try_from(port).unwrap_or(NOWHERE));
        let base = Vif::new("", slice, of_port);
        let before = self.findings.len();
        let vif = Vif {
            macs_max: table.macs_max.unwrap_or(base.macs_max),
            send: self.vif_share(table.send.as_ref()),
            send_shaper: self.shaper(0, "send", table.send.as_ref()),
            receive: self.vif_share(table.receive.as_ref()),
            receive_shaper: self.shaper(0, "receive", table.receive.as_ref()),
            ..base
        };
        for finding in self.findings.iter_mut().skip(before) {
            let Finding { key, message, .. } = &*finding;
            *finding = of_rule(port, number, key, message.clone());
        }
        let slice = Slice {
            send: self.share(table.slice_send.as_ref()),
            receive: self.share(table.slice_receive.as_ref()),
            ..Slice::new("")
        };
        let pattern = table.pattern.as_ref().map(|text| text.0.clone());
        let devices_max = table.devices_max.unwrap_or(VifRule::DEVICES_MAX_DEFAULT);
        VifRule { pattern, slice_name, devices_max, vif, slice }
    }

    fn slice(&self, table: &SliceTable) -> Slice {
        let matches = table.matches.as_deref().unwrap_or_default();
        Slice {
            name: table.name.clone().unwrap_or_default(),
            vlan: table.vlan,
            pih: table.pih,
            five_tuples: matches.iter().map(five_tuple).collect(),
            phase: table.phase.map(|text| text.0),
            send: self.share(table.send.as_ref()),
            receive: self.share(table.receive.as_ref()),
        }
    }

    fn router(&mut self, index: usize, table: &RouterTable) -> Router {
        let realtime = table.realtime.as_ref().map(|class| class.resolve(index, self.findings));
        Router {
            name: table.name.clone().unwrap_or_default(),
            slice: SliceId(self.slice_named("router", index, table.slice.as_deref())),
            send: self.share(table.send.as_ref()),
            receive: self.share(table.receive.as_ref()),
            xtc: table.xtc.as_ref().map(RouterXtcTable::resolve),
            realtime,
        }
    }

    fn vif(&mut self, index: usize, table: &VifTable) -> Vif {
        let slice = SliceId(self.slice_named("vif", index, table.slice.as_deref()));
        let router = table.router.as_deref().map(|name| {
            let found = find(&self.routers, "router", name);
            RouterId(self.or_report("vif", index, "router", found))
        });
        let port = PortId(self.port_named(index, table.port.as_deref()));
        let base = Vif::new(table.name.as_deref().unwrap_or_default(), slice, port);
        let filter = table.filter.as_deref().unwrap_or_default();
        Vif {
            router,
            device: table.device.clone().unwrap_or_else(|| base.device.clone()),
            kind: table.kind.unwrap_or(base.kind),
            macs: values(table.mac.as_deref()),
            addresses: values(table.addresses.as_deref()),
            macs_max: table.macs_max.unwrap_or(base.macs_max),
            storm: table.storm.map(|text| text.0),
            delay: table.delay.map(|text| text.0),
            delay_packet: table.delay_packet.map_or(base.delay_packet, |text| text.0),
            send: self.vif_share(table.send.as_ref()),
            send_shaper: self.shaper(index, "send", table.send.as_ref()),
            receive: self.vif_share(table.receive.as_ref()),
            receive_shaper: self.shaper(index, "receive", table.receive.as_ref()),
            filter: filter.iter().map(rule).collect(),
            ..base
        }
    }

    fn vif_share(&self, table: Option<&VifShareTable>) -> Share {
        let table = table.map(|table| ShareTable {
            priority: table.priority,
            min_rate: table.min_rate,
            rate: table.rate,
            min_pps: table.min_pps,
            max_pps: table.max_pps,
            burst: table.burst,
            burst_packets: table.burst_packets,
        });
        self.share(table.as_ref())
    }

    fn share(&self, table: Option<&ShareTable>) -> Share {
        let nothing = ShareTable::default();
        let table = table.unwrap_or(&nothing);
        let rate = table.rate.map(|text| text.0);
        let burst = table.burst.map(|text| text.0);
        Share {
            priority: table.priority.unwrap_or(1),
            min_rate: table.min_rate.map_or(BitRate::ZERO, |text| text.0),
            rate,
            min_pps: table.min_pps.map_or(PacketRate::ZERO, |text| text.0),
            max_pps: table.max_pps.map(|text| text.0),
            burst: burst.unwrap_or_else(|| Share::default_burst(rate, self.packet)),
            burst_packets: table.burst_packets,
        }
    }

    fn shaper(
        &mut self,
        vif: usize,
        direction: &str,
        table: Option<&VifShareTable>,
    ) -> Option<SmoothWindow> {
        let table = table?;
        if table.shaper == Some(ShaperKind::Smooth) {
            if table.rate.is_none() {
                let key = format!("{direction}.shaper");
                self.findings.push(Finding::new("vif", vif, key, "needs rate"));
            }
            return Some(smooth_window(table));
        }
        let given = [
            ("credit", table.credit.is_some()),
            ("width", table.width.is_some()),
            ("interval", table.interval.is_some()),
            ("delay_max", table.delay_max.is_some()),
        ];
        for (key, _) in given.iter().filter(|(_, given)| *given) {
            let key = format!("{direction}.{key}");
            self.findings.push(Finding::new("vif", vif, key, "needs shaper = \"smooth\""));
        }
        None
    }

    fn slice_named(&mut self, table: &'static str, index: usize, name: Option<&str>) -> u32 {
        // A missing name was reported already.
        let Some(name) = name else { return NOWHERE };
        let found = find(&self.slices, "slice", name);
        self.or_report(table, index, "slice", found)
    }

    fn port_named(&mut self, index: usize, name: Option<&str>) -> u32 {
        let found = match (name, self.ports.len()) {
            (Some(name), _) => find(&self.ports, "port", name),
            (None, 1) => Ok(0),
            // A document without a port was reported already.
            (None, 0) => Ok(NOWHERE),
            (None, count) => Err(format!("is missing, and there are {count} ports")),
        };
        self.or_report("vif", index, "port", found)
    }

    fn or_report(
        &mut self,
        table: &'static str,
        index: usize,
        key: &str,
        found: Result<u32, String>,
    ) -> u32 {
        found.unwrap_or_else(|message| {
            self.findings.push(Finding::new(table, index, key, message));
            NOWHERE
        })
    }
}

/// Returns the index of each name, and reports names that occur twice.
fn names<'n>(
    table: &'static str,
    list: impl Iterator<Item = &'n Option<String>>,
    findings: &mut Vec<Finding>,
) -> BTreeMap<String, u32> {
    let mut indexes = BTreeMap::new();
    for (index, name) in list.enumerate() {
        let Some(name) = name else { continue };
        let id = u32::try_from(index).unwrap_or(NOWHERE);
        if indexes.contains_key(name) {
            let message = format!("{} is already the name of a {table}", quoted(name));
            findings.push(Finding::new(table, index, "name", message));
        } else {
            indexes.insert(name.clone(), id);
        }
    }
    indexes
}

fn find(names: &BTreeMap<String, u32>, table: &str, name: &str) -> Result<u32, String> {
    names.get(name).copied().ok_or_else(|| {
        let hint = nearest(name, names.keys().map(String::as_str));
        let hint = hint.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        format!("there is no {table} {}{hint}", quoted(name))
    })
}

fn frame_size(table: &NodeTable) -> FrameSize {
    if table.frame_size == Some(4096) { FrameSize::B4096 } else { FrameSize::B2048 }
}

fn port(table: &PortTable) -> Port {
    // A missing name or rate was reported already.
    let name = table.name.as_deref().unwrap_or_default();
    let base = Port::new(name, table.rate.map_or(BitRate::ZERO, |text| text.0));
    let cycle = table.cycle.as_ref().map(CycleTable::resolve);
    let own_layer = if cycle.is_some() { Layer::L1 } else { base.layer };
    Port {
        device: table.device.clone().unwrap_or_else(|| name.to_string()),
        bridge: table.bridge.clone(),
        kind: table.kind.unwrap_or(base.kind),
        layer: table.layer.unwrap_or(own_layer),
        overhead: table.overhead.unwrap_or(base.overhead),
        scheduler: table.scheduler.unwrap_or(base.scheduler),
        catch_up: table.catch_up.map_or(base.catch_up, |text| text.0),
        receive_ring: table.receive_ring.unwrap_or(base.receive_ring),
        pih: table.pih.unwrap_or(base.pih),
        cycle,
        ..base
    }
}

fn smooth_window(table: &VifShareTable) -> SmoothWindow {
    let base = SmoothWindow::default();
    SmoothWindow {
        credit: table.credit.map_or(base.credit, |text| text.0),
        width: table.width.map_or(base.width, |text| text.0),
        interval: table.interval.map_or(base.interval, |text| text.0),
        delay_max: table.delay_max.map_or(base.delay_max, |text| text.0),
    }
}

fn rule(table: &FilterTable) -> Filter {
    Filter {
        action: table.action.unwrap_or(FilterAction::Drop),
        direction: table.direction,
        mac: table.mac.map(|text| text.0),
        vlan: table.vlan,
        src: table.src.map(|text| text.0),
        dst: table.dst.map(|text| text.0),
        protocol: table.protocol.map(|text| text.0.0),
        port: table.port,
    }
}

fn five_tuple(table: &MatchTable) -> FiveTuple {
    FiveTuple {
        protocol: table.protocol.map(|text| text.0.0),
        src: table.src.map(|text| text.0),
        dst: table.dst.map(|text| text.0),
        src_port: table.src_port,
        dst_port: table.dst_port,
    }
}

fn values<T: Copy>(texts: Option<&[Text<T>]>) -> Vec<T> {
    texts.unwrap_or_default().iter().map(|text| text.0).collect()
}

/// An index that no item has: no table is that long.
const NOWHERE: u32 = u32::MAX;
