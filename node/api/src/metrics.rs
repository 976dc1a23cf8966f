// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node in Prometheus' text format: base units, counters ending in `_total`.

use std::collections::BTreeMap;

use weir_api_types::exposition::{Exposition, seconds};
use weir_api_types::status::{Amount, CpuModelDrift, DirectionStatus, IfaceStatus, NodeStatus};
use weir_loops::{ClassStatus, LoopsLoad, RouterStatus};
use weir_platform::slots::Slots;
use weir_policy::{Direction, Policy};
use weir_report::{ReportSubject, Service};
use weir_units::BitRate;

use crate::app::App;
use crate::caller::Caller;
use crate::refused::{RefusalCounts, TurnAwayReason};

mod realtime;
mod xtc;

/// The counts of the node and of its recorder of service.
pub(crate) struct Counted<'s> {
    pub(crate) status: &'s NodeStatus,
    /// Routers that are held at a rate, and the load of their control loops.
    pub(crate) routers: &'s (Vec<RouterStatus>, LoopsLoad),
    /// The classes of routers.
    pub(crate) classes: &'s [ClassStatus],
    /// Service since the node started, send and receive.
    pub(crate) service: &'s BTreeMap<ReportSubject, [Service; 2]>,
}

/// Returns everything that the caller may see.
pub(crate) fn text(app: &App, of: &Counted<'_>, caller: &Caller, policy: &Policy) -> String {
    let mut page = node(of, caller, policy);
    if caller.slice().is_none() {
        let addresses = u64::try_from(app.remote_addresses.refused()).unwrap_or(u64::MAX);
        interface(&mut page, &app.refused, app.places(), addresses);
    }
    page.into_text()
}

fn node(of: &Counted<'_>, caller: &Caller, policy: &Policy) -> Exposition {
    let (status, all) = (of.status, caller.slice().is_none());
    let mut ifaces: Vec<(&str, &IfaceStatus)> = Vec::new();
    if all {
        ifaces.extend(status.ports.iter().map(|port| ("port", port)));
    }
    let vifs = status.vifs.iter().filter(|vif| all || caller.sees_vif(policy, &vif.name));
    ifaces.extend(vifs.map(|vif| ("vif", vif)));
    let mut page = Exposition::default();
    amounts(&mut page, &ifaces);
    drops(&mut page, &ifaces);
    devices(&mut page, &ifaces);
    in_flight(&mut page, &ifaces);
    smooth(&mut page, &ifaces);
    unlearned(&mut page, &ifaces);
    flows(&mut page, &ifaces);
    rates(&mut page, caller, policy);
    let sees = |subject: &ReportSubject| caller.slice().is_none_or(|slice| slice == subject.slice);
    let seen: Vec<_> = of.service.iter().filter(|(subject, _)| sees(subject)).collect();
    service(&mut page, &seen);
    let (routers, load) = of.routers;
    let seen: Vec<_> = routers
        .iter()
        .filter(|one| caller.slice().is_none_or(|slice| slice == one.slice))
        .collect();
    xtc::routers(&mut page, &seen);
    let own = |one: &&ClassStatus| caller.slice().is_none_or(|slice| slice == one.slice);
    let seen: Vec<_> = of.classes.iter().filter(own).collect();
    realtime::classes(&mut page, &seen);
    if all {
        let answers = !routers.is_empty();
        if answers || policy.routers.iter().any(|router| router.xtc.is_some()) {
            xtc::answers(&mut page, answers);
        }
        if answers {
            xtc::load(&mut page, load);
        }
        worker(&mut page, status);
        phases(&mut page, &status.ports);
    }
    page
}

fn amounts(page: &mut Exposition, ifaces: &[(&str, &IfaceStatus)]) {
    for (name, help, of) in AMOUNTS {
        for (unit, count) in [("packets", true), ("bytes", false)] {
            let kind = if *name == "backlog" { "gauge" } else { "counter" };
            let suffix = if kind == "counter" { "_total" } else { "" };
            let name = format!("weir_{name}_{unit}{suffix}");
            page.family(&name, &help.replace("UNIT", unit), kind);
            for (kind, iface) in ifaces {
                for (direction, counters) in directions(iface) {
                    let amount = of(counters);
                    let value = if count { amount.packets } else { amount.bytes };
                    let labels = [(*kind, iface.name.as_str()), ("direction", direction)];
                    page.sample(&name, &labels, value);
                }
            }
        }
    }
}

fn devices(page: &mut Exposition, ifaces: &[(&str, &IfaceStatus)]) {
    page.family("weir_device_present", "Whether the device is there.", "gauge");
    for (kind, iface) in ifaces {
        let labels = [(*kind, iface.name.as_str())];
        page.sample("weir_device_present", &labels, u64::from(!iface.waiting));
    }
}

/// Writes a series for each reason, for drops before the queue and after it together.
fn drops(page: &mut Exposition, ifaces: &[(&str, &IfaceStatus)]) {
    for (name, unit, bytes) in [
        ("weir_dropped_packets_total", "Packets", false),
        ("weir_dropped_bytes_total", "Bytes", true),
    ] {
        page.family(name, &format!("{unit} dropped, by reason."), "counter");
        for (kind, iface) in ifaces {
            for (direction, counters) in directions(iface) {
                let mut by: BTreeMap<&str, u64> = BTreeMap::new();
                for (reason, of) in counters.dropped.iter().chain(&counters.dropped_after_by) {
                    *by.entry(reason).or_default() += if bytes { of.bytes } else { of.packets };
                }
                for (reason, value) in by {
                    let labels = [
                        (*kind, iface.name.as_str()),
                        ("direction", direction),
                        ("reason", reason),
                    ];
                    page.sample(name, &labels, value);
                }
            }
        }
    }
    let name = "weir_lost_packets_total";
    page.family(
        name,
        "Packets lost by devices, before they were read or after they were sent.",
        "counter",
    );
    for (kind, iface) in ifaces {
        for (place, lost) in
            [("before", iface.lost_before_receive), ("after", iface.lost_after_transmit)]
        {
            page.sample(name, &[(*kind, iface.name.as_str()), ("place", place)], lost);
        }
    }
}

/// Writes the frames on their way to each device, and how often due frames waited for them.
fn in_flight(page: &mut Exposition, ifaces: &[(&str, &IfaceStatus)]) {
    let each = || {
        let known = ifaces.iter().filter_map(|(kind, iface)| Some((kind, iface, iface.in_flight?)));
        known.map(|(kind, iface, of)| ([(*kind, iface.name.as_str())], of))
    };
    if each().next().is_none() {
        return;
    }
    let name = "weir_in_flight_bytes";
    page.family(name, "Bytes handed to a device and not taken by its receiver.", "gauge");
    for (labels, of) in each() {
        page.sample(name, &labels, of.now.bytes);
    }
    let name = "weir_in_flight_held_total";
    let help = "Times that due frames waited since as many were in flight as may be.";
    page.family(name, help, "counter");
    for (labels, of) in each() {
        page.sample(name, &labels, of.held);
    }
}

/// Writes where the smooth windows are, and what did not fit into them.
fn smooth(page: &mut Exposition, ifaces: &[(&str, &IfaceStatus)]) {
    let each = || of_sides(ifaces, |side| side.smooth);
    if each().next().is_none() {
        return;
    }
    let name = "weir_smooth_delay_seconds";
    page.family(name, "Least delay of a packet through a smooth window.", "gauge");
    for (labels, window) in each() {
        page.sample(name, &labels, seconds(window.position_ns));
    }
    let name = "weir_smooth_late_packets_total";
    page.family(name, "Packets that left after the end of their smooth window.", "counter");
    for (labels, window) in each() {
        page.sample(name, &labels, window.late);
    }
    let name = "weir_smooth_refused_packets_total";
    page.family(name, "Packets that a smooth window refused at entry.", "counter");
    for (labels, window) in each() {
        page.sample(name, &labels, window.refused);
    }
}

/// Writes the packets at ports whose source address found no room in the bridge's table.
fn unlearned(page: &mut Exposition, ifaces: &[(&str, &IfaceStatus)]) {
    let name = "weir_unlearned_packets_total";
    page.family(name, "Packets whose source address found no room to be learned.", "counter");
    for (kind, iface) in ifaces.iter().filter(|(kind, _)| *kind == "port") {
        page.sample(name, &[(*kind, iface.name.as_str())], iface.receive.unlearned);
    }
}

/// Writes how many flows have queues, and what congestion did to packets.
fn flows(page: &mut Exposition, ifaces: &[(&str, &IfaceStatus)]) {
    let name = "weir_marked_packets_total";
    page.family(name, "Packets sent with the mark \"congestion experienced\".", "counter");
    for (kind, iface) in ifaces {
        for (direction, side) in directions(iface) {
            let labels = [(*kind, iface.name.as_str()), ("direction", direction)];
            page.sample(name, &labels, side.marked);
        }
    }
    let each = || of_sides(ifaces, |side| side.flows);
    if each().next().is_none() {
        return;
    }
    page.family("weir_flows_active", "Flows that have a queue now.", "gauge");
    for (labels, flows) in each() {
        page.sample("weir_flows_active", &labels, u64::from(flows.active));
    }
    page.family("weir_flows_sparse", "Active flows that go before the others.", "gauge");
    for (labels, flows) in each() {
        page.sample("weir_flows_sparse", &labels, u64::from(flows.sparse));
    }
    page.family("weir_flows_started_total", "Times that a flow became active.", "counter");
    for (labels, flows) in each() {
        page.sample("weir_flows_started_total", &labels, flows.started);
    }
    let name = "weir_flows_shared_packets_total";
    page.family(name, "Packets of flows that had no queue of their own.", "counter");
    for (labels, flows) in each() {
        page.sample(name, &labels, flows.shared);
    }
}

/// Returns the labels and a part of each direction of each vif that has this part.
fn of_sides<'s, T>(
    ifaces: &'s [(&str, &'s IfaceStatus)],
    part: impl Fn(&DirectionStatus) -> Option<T>,
) -> impl Iterator<Item = ([(&'static str, &'s str); 2], T)> {
    let sides = ifaces.iter().flat_map(|(_, iface)| {
        directions(iface).into_iter().map(|(direction, side)| (&iface.name, direction, side))
    });
    sides.filter_map(move |(name, direction, side)| {
        let labels = [("vif", name.as_str()), ("direction", direction)];
        part(side).map(|part| (labels, part))
    })
}

/// Writes the rates of the policy, to be drawn beside the measured ones.
fn rates(page: &mut Exposition, caller: &Caller, policy: &Policy) {
    let bytes = |rate: BitRate| rate.as_bps() / 8;
    let each = || {
        let seen = policy.vifs.iter().filter(|vif| caller.sees(policy, vif));
        seen.flat_map(|vif| Direction::ALL.map(|direction| (vif, direction)))
    };
    page.family("weir_guaranteed_bytes_per_second", "Guaranteed rate.", "gauge");
    for (vif, direction) in each() {
        let labels = [("vif", vif.name.as_str()), ("direction", direction.name())];
        let value = bytes(vif.share(direction).min_rate);
        page.sample("weir_guaranteed_bytes_per_second", &labels, value);
    }
    page.family("weir_limit_bytes_per_second", "Upper limit, where there is one.", "gauge");
    for (vif, direction) in each() {
        let labels = [("vif", vif.name.as_str()), ("direction", direction.name())];
        if let Some(rate) = vif.share(direction).rate {
            page.sample("weir_limit_bytes_per_second", &labels, bytes(rate));
        }
    }
    if caller.slice().is_none() {
        page.family("weir_port_rate_bytes_per_second", "Rate of a port.", "gauge");
        for port in &policy.ports {
            let labels = [("port", port.name.as_str())];
            page.sample("weir_port_rate_bytes_per_second", &labels, bytes(port.rate));
        }
    }
}

/// Writes what vifs and slices were guaranteed, asked for and got.
fn service(page: &mut Exposition, seen: &[(&ReportSubject, &[Service; 2])]) {
    for (kind, is_vif) in [("vif", true), ("slice", false)] {
        for (what, help, of) in SERVICE {
            let name = format!("weir_{kind}_{what}_total");
            page.family(&name, &format!("{help}, of each {kind}."), "counter");
            for (subject, sides) in seen.iter().filter(|(one, _)| one.vif.is_some() == is_vif) {
                for (direction, side) in Direction::ALL.into_iter().zip(sides.iter()) {
                    let mut labels = vec![("slice", subject.slice.as_str())];
                    labels.extend(subject.vif.as_deref().map(|vif| ("vif", vif)));
                    labels.push(("direction", direction.name()));
                    page.sample(&name, &labels, of(side));
                }
            }
        }
    }
}

fn worker(page: &mut Exposition, status: &NodeStatus) {
    let worker = status.worker.unwrap_or_default();
    let removed = status.removed.unwrap_or_default();
    page.family("weir_uptime_seconds", "Time since the worker started.", "gauge");
    page.sample("weir_uptime_seconds", &[], seconds(status.uptime_ns));
    let name = "weir_report_disk_failed";
    page.family(name, "Whether no service report is kept, since its disk fails.", "gauge");
    page.sample(name, &[], u64::from(status.report_failed.is_some()));
    let name = "weir_device_faults";
    page.family(name, "Faults of devices of the kernel's data plane.", "gauge");
    page.sample(name, &[], status.device_faults.len());
    cpu_model(page, status);
    page.family("weir_worker_turns_total", "Turns of the worker's loop.", "counter");
    page.sample("weir_worker_turns_total", &[], worker.turns);
    page.family("weir_worker_busy_turns_total", "Turns in which something moved.", "counter");
    page.sample("weir_worker_busy_turns_total", &[], worker.busy_turns);
    let name = "weir_worker_cpu_seconds_total";
    page.family(name, "Processor time of the worker's thread.", "counter");
    page.sample(name, &[], seconds(worker.cpu_ns));
    page.family("weir_pool_frames", "Frames in the pool.", "gauge");
    page.sample("weir_pool_frames", &[], worker.frames);
    page.family("weir_pool_free_frames", "Frames in the pool that nobody holds.", "gauge");
    page.sample("weir_pool_free_frames", &[], worker.frames_free);
    let (name, late) = ("weir_worker_lateness_seconds", &worker.lateness);
    page.family(name, "From the instant that the worker asked for to its waking.", "summary");
    for (quantile, ns) in
        [("0.5", late.p50_ns), ("0.99", late.p99_ns), ("0.999", late.p999_ns), ("1", late.max_ns)]
    {
        page.sample(name, &[("quantile", quantile)], seconds(ns));
    }
    page.sample("weir_worker_lateness_seconds_sum", &[], seconds(late.sum_ns));
    page.sample("weir_worker_lateness_seconds_count", &[], late.count);
    let name = "weir_worker_recent_lateness_seconds";
    page.family(name, "The latest waking of the last second.", "gauge");
    page.sample(name, &[], seconds(late.recent_max_ns));
    let name = "weir_removed_packets_total";
    page.family(name, "Packets lost with what a change of policy took away.", "counter");
    for (place, lost) in [("queue", removed.queued), ("device", removed.unread)] {
        page.sample(name, &[("place", place)], lost);
    }
}

/// Writes how punctually the worker served the phases of ports with a cycle.
fn phases(page: &mut Exposition, ports: &[IfaceStatus]) {
    let each = || ports.iter().filter_map(|port| Some((port.name.as_str(), port.phases?)));
    if each().next().is_none() {
        return;
    }
    let name = "weir_phases_total";
    page.family(name, "Phases whose slice had packets when they began.", "counter");
    for (port, phases) in each() {
        for (result, count) in [("met", phases.met), ("missed", phases.missed)] {
            page.sample(name, &[("port", port), ("result", result)], count);
        }
    }
    let name = "weir_phase_lateness_seconds";
    page.family(name, "From the beginning of a phase until the worker was there.", "summary");
    for (port, phases) in each() {
        let late = phases.late;
        for (quantile, ns) in [
            ("0.5", late.p50_ns),
            ("0.99", late.p99_ns),
            ("0.999", late.p999_ns),
            ("1", late.max_ns),
        ] {
            page.sample(name, &[("port", port), ("quantile", quantile)], seconds(ns));
        }
        let sum = format!("{name}_sum");
        page.sample(&sum, &[("port", port)], seconds(late.sum_ns));
        page.sample(&format!("{name}_count"), &[("port", port)], late.count);
    }
}

/// Writes what the interface refused and what is open. `addresses` counts refusals to addresses
/// that had as many connections as one may have.
fn interface(
    page: &mut Exposition,
    refused: &RefusalCounts,
    places: [(&str, &Slots); 4],
    addresses: u64,
) {
    page.family("weir_api_refused_total", "Requests turned away at the door.", "counter");
    for reason in TurnAwayReason::ALL {
        let count = refused.turned_away(reason);
        page.sample("weir_api_refused_total", &[("reason", reason.name())], count);
    }
    for (reason, slots) in places {
        let refused = u64::try_from(slots.refused()).unwrap_or(u64::MAX);
        page.sample("weir_api_refused_total", &[("reason", reason)], refused);
    }
    page.sample("weir_api_refused_total", &[("reason", "address")], addresses);
    page.family("weir_api_refusals_total", "Answers that refuse, by status.", "counter");
    for (status, count) in refused.by_status() {
        page.sample("weir_api_refusals_total", &[("status", &status.to_string())], count);
    }
    page.family("weir_api_open", "Connections and listeners now.", "gauge");
    for (what, slots) in places {
        let taken = u64::try_from(slots.taken()).unwrap_or(u64::MAX);
        page.sample("weir_api_open", &[("what", what)], taken);
    }
}

fn directions(iface: &IfaceStatus) -> [(&'static str, &DirectionStatus); 2] {
    [("send", &iface.send), ("receive", &iface.receive)]
}

/// A name, a help text, and the value.
type Family = (&'static str, &'static str, fn(&DirectionStatus) -> Amount);

const AMOUNTS: &[Family] = &[
    ("received", "Arrived, in UNIT.", |of| of.received),
    ("enqueued", "Taken into a queue, in UNIT.", |of| of.enqueued),
    ("sent", "Handed on, in UNIT.", |of| of.sent),
    ("redirected", "Of those sent, in the kernel, in UNIT.", |of| of.redirected),
    ("backlog", "In the queue now, in UNIT.", |of| of.backlog),
];

/// A name, a help text, and the value.
type ServiceFamily = (&'static str, &'static str, fn(&Service) -> String);

const SERVICE: &[ServiceFamily] = &[
    ("guaranteed_bytes", "Bytes that the guarantee came to", |of| of.guaranteed_bytes.to_string()),
    ("offered_bytes", "Bytes that came in", |of| of.offered.bytes.to_string()),
    ("got_bytes", "Bytes handed on", |of| of.got.bytes.to_string()),
    ("below_guarantee_seconds", "Seconds below the guarantee", |of| {
        seconds(of.below.as_nanos()).to_string()
    }),
];

/// Writes the verdict on the node's CPU model, if it has one.
fn cpu_model(page: &mut Exposition, status: &NodeStatus) {
    let Some(model) = &status.cpu_model else { return };
    let name = "weir_cpu_model_drifted";
    let text = "Whether the worker's processor time has left the bounds of the CPU model.";
    page.family(name, text, "gauge");
    let drifted = matches!(model.drift, CpuModelDrift::Above | CpuModelDrift::Below);
    page.sample(name, &[], u64::from(drifted));
    let name = "weir_cpu_model_unusable";
    page.family(name, "Whether the CPU model cannot be used.", "gauge");
    page.sample(name, &[], u64::from(model.drift == CpuModelDrift::Unusable));
    let Some(latest) = &model.latest else { return };
    let name = "weir_cpu_model_measured_ratio";
    page.family(name, "Processor time of the worker in the latest ten seconds.", "gauge");
    page.sample(name, &[], ratio(latest.cpu_ppm));
    let Some(expected) = latest.expected_ppm else { return };
    let name = "weir_cpu_model_expected_ratio";
    page.family(name, "Processor time by the CPU model at the same load.", "gauge");
    page.sample(name, &[], ratio(expected));
}

/// Formats millionths.
fn ratio(ppm: u64) -> String {
    format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000)
}

#[cfg(test)]
mod tests;
