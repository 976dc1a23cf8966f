// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metrics of routers that are held at a packet rate.

use weir_api_types::exposition::{Exposition, seconds};
use weir_control::control_loop::LoopPhase;
use weir_loops::{LoopsLoad, RouterStatus};
use weir_units::{CpuShare, PacketRate};

/// Writes the state of each router, labelled with its slice.
pub(super) fn routers(page: &mut Exposition, seen: &[&RouterStatus]) {
    for (name, help, kind, of) in FAMILIES {
        let values: Vec<_> = seen.iter().filter_map(|one| Some((one, of(one)?))).collect();
        if values.is_empty() {
            continue;
        }
        page.family(name, help, kind);
        for (one, value) in values {
            let labels = [("router", one.router.as_str()), ("slice", one.slice.as_str())];
            page.sample(name, &labels, value);
        }
    }
}

/// Writes whether the control loops answer. If they do not, no other metric of routers is written.
pub(super) fn answers(page: &mut Exposition, answers: bool) {
    let name = "weir_xtc_answers";
    page.family(name, "Whether the control loops answer.", "gauge");
    page.sample(name, &[], u64::from(answers));
}

/// Writes the load of all control loops.
pub(super) fn load(page: &mut Exposition, load: &LoopsLoad) {
    for (name, help, value) in [
        ("weir_xtc_ticks_total", "Passes over the counters of all routers.", load.ticks),
        ("weir_xtc_steps_total", "Steps of instances.", load.steps),
        (
            "weir_xtc_leases_expired_total",
            "Set-points withdrawn since their controller did not renew them.",
            load.leases_expired,
        ),
        ("weir_xtc_clock_jumps_total", "How often the clock went back.", load.clock_jumps),
    ] {
        page.family(name, help, "counter");
        page.sample(name, &[], value);
    }
    let name = "weir_xtc_cpu_seconds_total";
    page.family(name, "CPU time of the thread that holds routers.", "counter");
    page.sample(name, &[], seconds(load.cpu.as_nanos()));
    let Some(policing) = load.policing else { return };
    let contended = "Whether routers are held because they ask for too much.";
    for (name, help, kind, value) in [
        ("weir_xtc_contended", contended, "gauge", u64::from(policing.contended)),
        (
            "weir_xtc_demand_packets_per_second",
            "What all routers ask for.",
            "gauge",
            policing.demand.as_pps(),
        ),
        (
            "weir_xtc_contention_changes_total",
            "How often contention began or ended.",
            "counter",
            policing.changes,
        ),
    ] {
        page.family(name, help, kind);
        page.sample(name, &[], value);
    }
}

/// A name, a help text, a type, and the value.
type Family = (&'static str, &'static str, &'static str, fn(&RouterStatus) -> Option<String>);

const FAMILIES: &[Family] = &[
    ("weir_xtc_active", "Whether the router is held now.", "gauge", |of| {
        Some(u64::from(of.phase == Some(LoopPhase::Active)).to_string())
    }),
    ("weir_xtc_leased", "Whether a controller of several nodes holds it.", "gauge", |of| {
        Some(u64::from(of.lease.is_some()).to_string())
    }),
    ("weir_xtc_trouble", "Whether something is wrong with it now.", "gauge", |of| {
        Some(u64::from(of.trouble.is_some()).to_string())
    }),
    ("weir_xtc_set_point_packets_per_second", "The rate that it is held at.", "gauge", |of| {
        of.set_point.map(pps)
    }),
    ("weir_xtc_rate_packets_per_second", "What it forwarded in its last sample.", "gauge", |of| {
        of.sample.map(|sample| pps(sample.rate()))
    }),
    ("weir_xtc_offered_packets_per_second", "What came for it.", "gauge", |of| {
        Some(pps(of.sample?.offered_rate()?))
    }),
    ("weir_xtc_used_ratio", "CPU time that it used, of one processor.", "gauge", |of| {
        Some(ratio(of.sample?.used()?))
    }),
    ("weir_xtc_cap_ratio", "Its cap, of one processor.", "gauge", |of| of.cap.map(ratio)),
    ("weir_xtc_limit_packets_per_second", "What is let in to it.", "gauge", |of| of.limit.map(pps)),
    ("weir_xtc_samples_total", "Samples.", "counter", |of| Some(of.samples.to_string())),
    ("weir_xtc_faults_total", "Readings that gave no sample.", "counter", |of| {
        Some(of.faults.to_string())
    }),
    ("weir_xtc_commands_total", "Calls of what caps and limits it.", "counter", |of| {
        Some(of.commands.to_string())
    }),
    ("weir_xtc_failures_total", "Of these, what failed.", "counter", |of| {
        Some(of.failures.to_string())
    }),
    ("weir_xtc_late_samples_total", "Samples late by more than a period.", "counter", |of| {
        Some(of.late.to_string())
    }),
    ("weir_xtc_grade", "Punishment: 0 none, 1 early drop, 2 lower, 3 stopped.", "gauge", |of| {
        Some(of.police?.grade.number().to_string())
    }),
    ("weir_xtc_judged_total", "How often its punishment changed.", "counter", |of| {
        Some(of.police?.judged.to_string())
    }),
    (
        "weir_xtc_lost_total",
        "How often its process, guest or threads were gone.",
        "counter",
        |of| Some(of.lost.to_string()),
    ),
];

fn pps(rate: PacketRate) -> String {
    rate.as_pps().to_string()
}

/// Returns a share with six digits after the point, so that nothing is rounded.
fn ratio(share: CpuShare) -> String {
    format!("{}.{:06}", share.as_ppm() / 1_000_000, share.as_ppm() % 1_000_000)
}
