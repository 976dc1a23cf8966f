// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A page of a node with a bit of everything, and the files for Prometheus and Grafana against it.

use std::collections::{BTreeMap, BTreeSet};

use weir_api_types::status::{
    Amount, CpuModelDrift, CpuModelReading, CpuModelStatus, DirectionStatus, FlowsStatus,
    IfaceStatus, InFlightStatus, NodeStatus, PhaseStatus, SmoothStatus,
};
use weir_control::Sample;
use weir_control::police::Grade;
use weir_loops::{
    AppliedClass, ClassStatus, LoopsLoad, PolicingLoad, PolicingStatus, RouterStatus,
};
use weir_policy::{Policy, Port, PortId, RealtimeKind, Slice, Vif};
use weir_report::{ReportSubject, Service};
use weir_units::{BitRate, CpuShare, Nanos, PacketRate};

use super::{Counted, node};
use crate::caller::{Caller, CallerRole};

mod checks;
mod reference;

use checks::{names_only_what_there_is, promtool_takes, promtool_takes_rules};

/// Every reason in both places, which no node does, and nothing twice.
fn page() -> String {
    let mut policy = Policy::new("edge");
    policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
    let slice = policy.add_slice(Slice::new("gold"));
    let mut vif = Vif::new("gold.0", slice, PortId(0));
    vif.send.rate = Some(BitRate::from_mbps(8));
    policy.add_vif(vif);
    let one = Amount { packets: 1, bytes: 100 };
    let reasons = ["spoofed_mac", "spoofed_address", "moved", "codel", "removed", "no_credit"];
    let all: BTreeMap<_, _> = reasons.iter().map(|reason| ((*reason).to_owned(), one)).collect();
    let side = DirectionStatus {
        dropped: all.clone(),
        dropped_after_by: all,
        ..DirectionStatus::default()
    };
    let smooth = Some(SmoothStatus::default());
    let iface = |name: &str, flows: Option<FlowsStatus>| IfaceStatus {
        name: name.into(),
        send: DirectionStatus { flows, smooth, marked: 4, ..side.clone() },
        receive: DirectionStatus { unlearned: 5, ..side.clone() },
        in_flight: Some(InFlightStatus::default()),
        phases: Some(PhaseStatus::default()),
        ..IfaceStatus::default()
    };
    let flows = FlowsStatus { active: 3, sparse: 1, started: 9, shared: 2 };
    let status = status(vec![iface("up0", None)], vec![iface("gold.0", Some(flows))]);
    let of =
        |vif: Option<&str>| ReportSubject { slice: "gold".into(), vif: vif.map(str::to_owned) };
    let both = [Service { got: one, ..Service::default() }, Service::default()];
    let service = [(of(Some("gold.0")), both), (of(None), both)].into();
    let caller = Caller { who: "uid 0".into(), role: CallerRole::Administrator, token: None };
    let set_point = Some(PacketRate::from_pps(40_000));
    let police =
        PolicingStatus { held: true, allowed: PacketRate::ZERO, grade: Grade::Stopped, judged: 5 };
    let policing = PolicingLoad {
        capacity: PacketRate::from_pps(100_000),
        demand: PacketRate::from_pps(97_500),
        contended: true,
        changes: 3,
        judged: 5,
    };
    let router = RouterStatus {
        router: "vr1".into(),
        slice: "gold".into(),
        set_point,
        police: Some(police),
        cap: Some(CpuShare::from_percent(30)),
        limit: set_point,
        sample: Some(Sample {
            span: Nanos::from_secs(1),
            packets: 39_000,
            offered: Some(41_000),
            cpu: Some(Nanos::from_millis(290)),
        }),
        ..RouterStatus::default()
    };
    let routers =
        (vec![router], LoopsLoad { ticks: 7, policing: Some(policing), ..LoopsLoad::default() });
    let classes = classes();
    let (routers, classes) = (&routers, classes.as_slice());
    let counted = Counted { status: &status, routers, classes, service: &service };
    node(&counted, &caller, &policy).into_text()
}

/// A node with these interfaces and a fault of each kind.
fn status(ports: Vec<IfaceStatus>, vifs: Vec<IfaceStatus>) -> NodeStatus {
    NodeStatus {
        ports,
        vifs,
        uptime_ns: 1_500_000_000,
        report_failed: Some("no service report is kept".into()),
        device_faults: vec!["port \"up0\".device: foreign".into()],
        cpu_model: Some(CpuModelStatus {
            drift: CpuModelDrift::Above,
            reason: Some("the worker takes more".into()),
            latest: Some(CpuModelReading {
                rate_pps: 20_000,
                frame_bytes: 1000,
                cpu_ppm: 400_000,
                expected_ppm: Some(120_000),
                most_ppm: Some(150_000),
            }),
        }),
        ..NodeStatus::default()
    }
}

/// A class in force, and a weight that is not.
fn classes() -> [ClassStatus; 2] {
    let class = |router: &str, kind| ClassStatus {
        router: router.into(),
        slice: "gold".into(),
        kind,
        cpu: CpuShare::from_percent(20),
        deadline: Nanos::from_millis(5),
        period: Nanos::from_millis(10),
        core: None,
        weight: 300,
        applied: None,
        trouble: None,
        refusals: 2,
        applications: 1,
        exhausted: 4,
    };
    let mut periodic = class("vr1", RealtimeKind::Periodic);
    periodic.applied = Some(AppliedClass {
        budget: Some(CpuShare::from_percent(25)),
        threads: 2,
        used: Some(CpuShare::from_percent(10)),
        exhausted: 0,
    });
    [periodic, class("vr2", RealtimeKind::Normal)]
}

#[test]
fn no_series_comes_twice_and_sums_are_right() {
    let page = page();
    let mut seen = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        assert!(seen.insert(line.rsplit_once(' ').unwrap().0), "twice: {line}");
    }
    for line in [
        "weir_dropped_packets_total{vif=\"gold.0\",direction=\"send\",reason=\"codel\"} 2",
        "weir_dropped_bytes_total{port=\"up0\",direction=\"send\",reason=\"codel\"} 200",
        "weir_marked_packets_total{port=\"up0\",direction=\"send\"} 4",
        "weir_unlearned_packets_total{port=\"up0\"} 5",
        "weir_flows_active{vif=\"gold.0\",direction=\"send\"} 3",
        "weir_flows_sparse{vif=\"gold.0\",direction=\"send\"} 1",
        "weir_flows_started_total{vif=\"gold.0\",direction=\"send\"} 9",
        "weir_flows_shared_packets_total{vif=\"gold.0\",direction=\"send\"} 2",
        "weir_limit_bytes_per_second{vif=\"gold.0\",direction=\"send\"} 1000000",
        "weir_uptime_seconds 1.500000000",
        "weir_report_disk_failed 1",
        "weir_device_faults 1",
        "weir_xtc_set_point_packets_per_second{router=\"vr1\",slice=\"gold\"} 40000",
        "weir_xtc_answers 1",
        "weir_xtc_ticks_total 7",
        "weir_xtc_grade{router=\"vr1\",slice=\"gold\"} 3",
        "weir_xtc_contended 1",
        "weir_xtc_demand_packets_per_second 97500",
        "weir_realtime_in_force{router=\"vr2\",slice=\"gold\",class=\"normal\"} 0",
        "weir_realtime_budget_ratio{router=\"vr1\",slice=\"gold\",class=\"periodic\"} 0.250000",
        "weir_realtime_weight{router=\"vr2\",slice=\"gold\",class=\"normal\"} 300",
        "weir_slice_got_bytes_total{slice=\"gold\",direction=\"send\"} 100",
        "weir_vif_got_bytes_total{slice=\"gold\",vif=\"gold.0\",direction=\"send\"} 100",
    ] {
        assert!(page.lines().any(|one| one == line), "no {line} in:\n{page}");
    }
}

#[test]
fn a_drifted_model_is_told_with_both_sides() {
    let page = page();
    for line in [
        "weir_cpu_model_drifted 1",
        "weir_cpu_model_unusable 0",
        "weir_cpu_model_measured_ratio 0.400000",
        "weir_cpu_model_expected_ratio 0.120000",
    ] {
        assert!(page.lines().any(|one| one == line), "{line}");
    }
}

#[test]
fn rules_and_dashboard_name_only_what_there_is() {
    names_only_what_there_is("prometheus/weir.rules.yml", &page());
    names_only_what_there_is("grafana/weir.json", &page());
}

#[test]
fn promtool_finds_nothing_wrong() {
    promtool_takes(&page());
    promtool_takes_rules("prometheus/weir.rules.yml");
}
