// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node in Prometheus' text format: base units, counters ending in `_total`.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use weir_node::status::{Amount, DirectionStatus, IfaceStatus, Status};
use weir_policy::Policy;

use crate::app::App;
use crate::caller::Caller;

/// Everything that the caller sees.
pub(crate) fn text(app: &App, status: &Status, caller: &Caller, policy: &Policy) -> String {
    let all = caller.slice().is_none();
    let mut ifaces: Vec<(&str, &IfaceStatus)> = Vec::new();
    if all {
        ifaces.extend(status.ports.iter().map(|port| ("port", port)));
    }
    let vifs = status.vifs.iter().filter(|vif| all || caller.sees_vif(policy, &vif.name));
    ifaces.extend(vifs.map(|vif| ("vif", vif)));
    let mut page = Page(String::new());
    for (name, help, of) in AMOUNTS {
        for (unit, count) in [("packets", true), ("bytes", false)] {
            let kind = if *name == "backlog" { "gauge" } else { "counter" };
            let suffix = if kind == "counter" { "_total" } else { "" };
            let name = format!("weir_{name}_{unit}{suffix}");
            page.family(&name, &help.replace("UNIT", unit), kind);
            for (kind, iface) in &ifaces {
                for (direction, counters) in directions(iface) {
                    let amount = of(counters);
                    let value = if count { amount.packets } else { amount.bytes };
                    let labels = [(*kind, iface.name.as_str()), ("direction", direction)];
                    page.sample(&name, &labels, value);
                }
            }
        }
    }
    page.family("weir_dropped_packets_total", "Packets dropped, by reason.", "counter");
    for (kind, iface) in &ifaces {
        for (direction, counters) in directions(iface) {
            for (reason, amount) in counters.dropped.iter().chain(&counters.dropped_after_by) {
                let labels =
                    [(*kind, iface.name.as_str()), ("direction", direction), ("reason", reason)];
                page.sample("weir_dropped_packets_total", &labels, amount.packets);
            }
        }
    }
    if all {
        worker(&mut page, status);
        interface(&mut page, app);
    }
    page.0
}

fn worker(page: &mut Page, status: &Status) {
    let worker = &status.worker;
    page.family("weir_worker_turns_total", "Turns of the worker's loop.", "counter");
    page.sample("weir_worker_turns_total", &[], worker.turns);
    page.family("weir_worker_busy_turns_total", "Turns in which something moved.", "counter");
    page.sample("weir_worker_busy_turns_total", &[], worker.busy_turns);
    page.family("weir_pool_frames", "Frames in the pool.", "gauge");
    page.sample("weir_pool_frames", &[], worker.frames);
    page.family("weir_pool_free_frames", "Frames in the pool that nobody holds.", "gauge");
    page.sample("weir_pool_free_frames", &[], worker.frames_free);
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
    ];
    for (reason, slots) in places {
        let refused = u64::try_from(slots.refused()).unwrap_or(u64::MAX);
        page.sample("weir_api_refused_total", &[("reason", reason)], refused);
    }
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

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, help: &str, kind: &str) {
        // A string takes whatever is written.
        let _written = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.0.push_str(name);
        for (index, (key, text)) in labels.iter().enumerate() {
            let mark = if index == 0 { '{' } else { ',' };
            // Names of a policy have no character that needs an escape.
            let _written = write!(self.0, "{mark}{key}=\"{text}\"");
        }
        let _written = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}
