// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metrics of the real-time classes of routers.

use weir_api_types::exposition::{Exposition, seconds};
use weir_loops::ClassStatus;
use weir_policy::RealtimeKind;
use weir_units::{CpuShare, Nanos};

/// Writes the state of each class, labelled with its router and slice.
pub(super) fn classes(page: &mut Exposition, seen: &[&ClassStatus]) {
    for (name, help, kind, of) in FAMILIES {
        let values: Vec<_> = seen.iter().filter_map(|one| Some((one, of(one)?))).collect();
        if values.is_empty() {
            continue;
        }
        page.family(name, help, kind);
        for (one, value) in values {
            let labels = [
                ("router", one.router.as_str()),
                ("slice", one.slice.as_str()),
                ("class", one.kind.name()),
            ];
            page.sample(name, &labels, value);
        }
    }
}

/// A name, a help text, a type, and the value.
type Family = (&'static str, &'static str, &'static str, fn(&ClassStatus) -> Option<String>);

const FAMILIES: &[Family] = &[
    ("weir_realtime_in_force", "Whether the class is in force.", "gauge", |of| {
        Some(u64::from(of.is_in_force()).to_string())
    }),
    ("weir_realtime_guarantee_ratio", "Guaranteed share of one processor.", "gauge", |of| {
        guaranteed(of).then(|| ratio(of.cpu))
    }),
    ("weir_realtime_budget_ratio", "Budget in force, of one processor.", "gauge", |of| {
        Some(ratio(of.applied?.budget?))
    }),
    ("weir_realtime_used_ratio", "CPU time used lately, of one processor.", "gauge", |of| {
        Some(ratio(of.applied?.used?))
    }),
    ("weir_realtime_deadline_seconds", "Deadline of an activation.", "gauge", |of| {
        guaranteed(of).then(|| time(of.deadline))
    }),
    ("weir_realtime_period_seconds", "Least time between two activations.", "gauge", |of| {
        guaranteed(of).then(|| time(of.period))
    }),
    ("weir_realtime_weight", "Weight among normal processes.", "gauge", |of| {
        (!guaranteed(of)).then(|| of.weight.to_string())
    }),
    ("weir_realtime_threads", "Threads with the class, or processes.", "gauge", |of| {
        Some(of.applied?.threads.to_string())
    }),
    ("weir_realtime_applications_total", "Times that it came into force.", "counter", |of| {
        Some(of.applications.to_string())
    }),
    (
        "weir_realtime_refused_total",
        "Times that it could not be put into force.",
        "counter",
        |of| Some(of.refusals.to_string()),
    ),
    ("weir_realtime_exhausted_total", "Looks at which a budget was used up.", "counter", |of| {
        Some(of.exhausted.to_string())
    }),
];

fn guaranteed(of: &ClassStatus) -> bool {
    of.kind != RealtimeKind::Normal
}

fn ratio(share: CpuShare) -> String {
    format!("{}.{:06}", share.as_ppm() / 1_000_000, share.as_ppm() % 1_000_000)
}

fn time(of: Nanos) -> String {
    seconds(of.as_nanos()).to_string()
}
