// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node in Prometheus' text format: base units, counters ending in `_total`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

use weir_api_types::status::{Amount, DirectionStatus, IfaceStatus, NodeStatus};
use weir_loops::{LoopsLoad, RouterStatus};
use weir_policy::{Direction, Policy};
use weir_report::{ReportSubject, Service};
use weir_units::BitRate;

use crate::app::App;
use crate::caller::Caller;

mod xtc;

/// What the node and the recorder of service have counted.
pub(crate) struct Counted<'s> {
    pub(crate) status: &'s NodeStatus,
    /// Routers that are held at a rate, and what that takes.
    pub(crate) routers: &'s (Vec<RouterStatus>, LoopsLoad),
    /// Since the node started, send and receive.
    pub(crate) service: &'s BTreeMap<ReportSubject, [Service; 2]>,
}

/// Everything that the caller sees.
pub(crate) fn text(app: &App, of: &Counted<'_>, caller: &Caller, policy: &Policy) -> String {
    let mut page = node(of, caller, policy);
    if caller.slice().is_none() {
        interface(&mut page, app);
    }
    page.0
}

fn node(of: &Counted<'_>, caller: &Caller, policy: &Policy) -> Page {
    let (status, all) = (of.status, caller.slice().is_none());
    let mut ifaces: Vec<(&str, &IfaceStatus)> = Vec::new();
    if all {
        ifaces.extend(status.ports.iter().map(|port| ("port", port)));
    }
    let vifs = status.vifs.iter().filter(|vif| all || caller.sees_vif(policy, &vif.name));
    ifaces.extend(vifs.map(|vif| ("vif", vif)));
    let mut page = Page(String::new());
    amounts(&mut page, &ifaces);
    drops(&mut page, &ifaces);
    devices(&mut page, &ifaces);
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
    if all {
        let answers = !routers.is_empty();
        if answers || policy.routers.iter().any(|router| router.xtc.is_some()) {
            xtc::answers(&mut page, answers);
        }
        if answers {
            xtc::load(&mut page, load);
        }
        worker(&mut page, status);
    }
    page
}

fn amounts(page: &mut Page, ifaces: &[(&str, &IfaceStatus)]) {
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

fn devices(page: &mut Page, ifaces: &[(&str, &IfaceStatus)]) {
    page.family("weir_device_present", "Whether the device is there.", "gauge");
    for (kind, iface) in ifaces {
        let labels = [(*kind, iface.name.as_str())];
        page.sample("weir_device_present", &labels, u64::from(!iface.waiting));
    }
}

/// One series a reason, whether the frame was dropped before its queue or after it.
fn drops(page: &mut Page, ifaces: &[(&str, &IfaceStatus)]) {
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

/// What the policy says, to be drawn beside what is measured.
fn rates(page: &mut Page, caller: &Caller, policy: &Policy) {
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
fn service(page: &mut Page, seen: &[(&ReportSubject, &[Service; 2])]) {
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

fn worker(page: &mut Page, status: &NodeStatus) {
    let worker = status.worker.unwrap_or_default();
    let removed = status.removed.unwrap_or_default();
    page.family("weir_uptime_seconds", "Time since the worker started.", "gauge");
    page.sample("weir_uptime_seconds", &[], seconds(status.uptime_ns));
    let name = "weir_report_disk_failed";
    page.family(name, "Whether no service report is kept, since its disk fails.", "gauge");
    page.sample(name, &[], u64::from(status.report_failed.is_some()));
    page.family("weir_worker_turns_total", "Turns of the worker's loop.", "counter");
    page.sample("weir_worker_turns_total", &[], worker.turns);
    page.family("weir_worker_busy_turns_total", "Turns in which something moved.", "counter");
    page.sample("weir_worker_busy_turns_total", &[], worker.busy_turns);
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

fn interface(page: &mut Page, app: &App) {
    page.family("weir_api_refused_total", "Requests turned away at the door.", "counter");
    for (why, count) in
        ["unknown", "wrong_tokens", "requests", "untold"].iter().zip(&app.turned_away)
    {
        page.sample("weir_api_refused_total", &[("reason", why)], count.load(Ordering::Relaxed));
    }
    let places = [
        ("connections", &app.connections),
        ("remote_connections", &app.remote_connections),
        ("listeners", &app.listeners),
        ("root_listeners", &app.root_listeners),
    ];
    for (reason, slots) in places {
        let refused = u64::try_from(slots.refused()).unwrap_or(u64::MAX);
        page.sample("weir_api_refused_total", &[("reason", reason)], refused);
    }
    let addresses = u64::try_from(app.remote_addresses.refused()).unwrap_or(u64::MAX);
    page.sample("weir_api_refused_total", &[("reason", "address")], addresses);
    let stalled = app.stalled.load(Ordering::Relaxed);
    page.sample("weir_api_refused_total", &[("reason", "reader")], stalled);
    page.family("weir_api_refusals_total", "Answers that refuse, by status.", "counter");
    for (status, count) in app.refusals() {
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

/// A name, what it means, where it is.
type Family = (&'static str, &'static str, fn(&DirectionStatus) -> Amount);

const AMOUNTS: &[Family] = &[
    ("received", "Arrived, in UNIT.", |of| of.received),
    ("enqueued", "Taken into a queue, in UNIT.", |of| of.enqueued),
    ("sent", "Handed on, in UNIT.", |of| of.sent),
    ("redirected", "Of those sent, in the kernel, in UNIT.", |of| of.redirected),
    ("backlog", "In the queue now, in UNIT.", |of| of.backlog),
];

/// A name, what it means, where it is.
type ServiceFamily = (&'static str, &'static str, fn(&Service) -> String);

const SERVICE: &[ServiceFamily] = &[
    ("guaranteed_bytes", "Bytes that the guarantee came to", |of| of.guaranteed_bytes.to_string()),
    ("offered_bytes", "Bytes that came in", |of| of.offered.bytes.to_string()),
    ("got_bytes", "Bytes handed on", |of| of.got.bytes.to_string()),
    ("below_guarantee_seconds", "Seconds below the guarantee", |of| {
        seconds(of.below.as_nanos()).to_string()
    }),
];

fn seconds(ns: u64) -> impl Display {
    // Nine digits behind the point: nothing is rounded.
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, help: &str, kind: &str) {
        // A string takes whatever is written.
        let _written = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (key, text)) in labels.iter().enumerate() {
            let mark = if index == 0 { '{' } else { ',' };
            // Names of a policy have no character that needs an escape.
            let _written = write!(self.0, "{mark}{key}=\"{text}\"");
        }
        let _written = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests;
