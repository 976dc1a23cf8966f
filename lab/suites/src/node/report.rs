// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report against sinks that share nothing with the node: what it says each tenant got
//! is what arrived, over a full link, and over a restart of the node in the middle of it.

use weir_api_types::report::{ReportLine, ReportView};
use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_policy::Kind;
use weir_traffic::XdpStream;

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let star = StarTopology::new("node-report", TENANTS, BitRate::from_mbps(LINK_MBPS));
    let mut rig = Testbed::up(&star)?;
    let policy = policy(&star);
    rig.put(&Forwarder::Weir(Box::new(policy.clone())))?;
    let length = Duration::from_secs(if rec.quick { 6 } else { 20 });
    let run = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![star.generator(streams(&star))],
        receivers: ["wire", "t0"].map(|at| star.sink_at(at)).into(),
        changes: Vec::new(),
        length,
        star,
    };
    let shown = phases(rec, &rig, &run);
    rig.down()?;
    shown
}

fn phases(rec: &mut Recording<'_>, rig: &Testbed, run: &TrafficRun) -> Result<(), ExperimentError> {
    let mut before = ask(rig)?;
    for restarts in [false, true] {
        let (outcome, ()) = run.flow(rig, |rig| {
            if restarts {
                std::thread::sleep(run.length / 2);
                let node = rig.node().ok_or_else(no_node)?;
                node.leave()?;
                node.start_again(product::path()?)?;
            }
            Ok(())
        })?;
        let after = ask(rig)?;
        let phase = if restarts { "restart" } else { "steady" };
        for flow in &FLOWS {
            judge(rec, (phase, flow), &outcome, [&before, &after])?;
        }
        let name = format!("report/{phase}/torn");
        rec.count(&name, "torn records", after.torn, Bound::equal(0.0))?;
        before = after;
    }
    Ok(())
}

/// The report over all that is kept, once the last second is on record.
fn ask(rig: &Testbed) -> Result<ReportView, ExperimentError> {
    std::thread::sleep(Duration::from_millis(2_200));
    let node = rig.node().ok_or_else(no_node)?;
    let report = node.client().get("/v1/report?since_s=86400");
    report.map_err(|error| ExperimentError::Node(error.to_string()))
}

/// Compares one tenant's traffic in one direction by the report with that by a sink.
fn judge(
    rec: &mut Recording<'_>,
    (phase, flow): (&str, &ReportedFlow),
    outcome: &TrafficRecord,
    [before, after]: [&ReportView; 2],
) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("report/{phase}/{}/{part}", flow.name);
    let got = |report| line(report, flow.vif).map_or(0, |line| side(line, flow).0);
    let reported = got(after).saturating_sub(got(before));
    let seen = outcome.stream(flow.receiver, flow.stream).map_or(0, |seen| seen.bytes);
    let [by_report, by_sink] = ["reported", "sink"].map(id);
    rec.keep(&by_report, Series::count("byte", reported))?;
    rec.keep(&by_sink, Series::count("byte", seen))?;
    let least = Bound::at_least(LEAST_BYTES);
    rec.judge(Claim::new(id("arrived"), "bytes at the sink", Rule::Sum, least).of(&[&by_sink]))?;
    let both = [by_report, by_sink];
    for (part, what, bound) in [
        ("least", "reported by what arrived, not less", Bound::at_least(1.0 - ERROR)),
        ("most", "reported by what arrived, not more", Bound::at_most(1.0 + ERROR)),
    ] {
        rec.claim(id(part), what, Rule::RatioOfSums, bound, &both)?;
    }
    let below = |report| line(report, flow.vif).map_or(0, |line| side(line, flow).1);
    let short = below(after).saturating_sub(below(before));
    let name = id("below");
    rec.keep(&name, Series::unordered("s", vec![float(short) / 1e9]))?;
    if phase == "restart" {
        return Ok(());
    }
    let what = "time below the guarantee, which nobody exceeds or lacks";
    rec.claim(&name, what, Rule::Sum, Bound::equal(0.0), &[&name])?;
    offered(rec, &id, flow, outcome, [before, after])
}

/// Compares the load that its generator reports, and the slice's line with that of its only vif.
fn offered(
    rec: &mut Recording<'_>,
    id: &impl Fn(&str) -> String,
    flow: &ReportedFlow,
    outcome: &TrafficRecord,
    [before, after]: [&ReportView; 2],
) -> Result<(), ExperimentError> {
    let of = |report, slice: bool| {
        let line = if slice { slice_line(report, flow.vif) } else { line(report, flow.vif) };
        line.map_or((0, 0), |line| {
            let side = if flow.receives { &line.receive } else { &line.send };
            (side.offered_bytes, side.got_bytes)
        })
    };
    let differ = |slice| {
        let (before, after): ((u64, u64), (u64, u64)) = (of(before, slice), of(after, slice));
        (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
    };
    let sent = outcome.sent.iter().flat_map(|sender| &sender.streams);
    let sent = sent.filter(|sent| sent.stream == flow.stream).map(|sent| sent.bytes).sum();
    for (part, count) in [
        ("offered", differ(false).0),
        ("sent", sent),
        ("slice", differ(true).1),
        ("vif", differ(false).1),
    ] {
        rec.keep(&id(part), Series::count("byte", count))?;
    }
    let both = [id("offered"), id("sent")];
    for (part, what, bound) in [
        ("offered/least", "offered by what was sent, not less", Bound::at_least(1.0 - ERROR)),
        ("offered/most", "offered by what was sent, not more", Bound::at_most(1.0 + ERROR)),
    ] {
        rec.claim(id(part), what, Rule::RatioOfSums, bound, &both)?;
    }
    let both = [id("slice"), id("vif")];
    let what = "bytes that the slice's line has more than its only vif's";
    rec.claim(id("slice/same"), what, Rule::Difference, Bound::equal(0.0), &both)
}

fn slice_line<'r>(report: &'r ReportView, slice: &str) -> Option<&'r ReportLine> {
    report.lines.iter().find(|line| line.vif.is_none() && line.slice == slice)
}

fn line<'r>(report: &'r ReportView, vif: &str) -> Option<&'r ReportLine> {
    report.lines.iter().find(|line| line.vif.as_deref() == Some(vif))
}

/// Bytes got, nanoseconds below.
const fn side(line: &ReportLine, flow: &ReportedFlow) -> (u64, u64) {
    let side = if flow.receives { &line.receive } else { &line.send };
    (side.got_bytes, side.below_ns)
}

/// Tenant 0 has a guarantee both ways and keeps to it; the others want twice the link.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.ports[0].kind = Kind::Xdp;
    policy.vifs.iter_mut().for_each(|vif| vif.kind = Kind::Xdp);
    let guarantee = BitRate::from_mbps(GUARANTEE_MBPS);
    policy.vifs[0].send.min_rate = guarantee;
    policy.vifs[0].receive.min_rate = guarantee;
    policy
}

fn streams(star: &StarTopology) -> Vec<XdpStream> {
    let calm = Some(Rate::Bps(GUARANTEE_MBPS * 900_000));
    let flood = Some(Rate::Bps(LINK_MBPS * 1_000_000));
    vec![
        star.stream(0, 0, SIZE, calm),
        star.stream(1, 1, SIZE, flood),
        star.stream(2, 2, SIZE, flood),
        star.stream_towards(0, 3, SIZE, calm),
    ]
}

fn no_node() -> ExperimentError {
    ExperimentError::Node("no node in the middle".into())
}

/// A flow: its vif and direction, and the receiver that counts it.
struct ReportedFlow {
    name: &'static str,
    vif: &'static str,
    receives: bool,
    receiver: usize,
    stream: u16,
}

const FLOWS: [ReportedFlow; 4] = [
    ReportedFlow { name: "t0-sends", vif: "t0", receives: false, receiver: 0, stream: 0 },
    ReportedFlow { name: "t1-sends", vif: "t1", receives: false, receiver: 0, stream: 1 },
    ReportedFlow { name: "t2-sends", vif: "t2", receives: false, receiver: 0, stream: 2 },
    ReportedFlow { name: "t0-receives", vif: "t0", receives: true, receiver: 1, stream: 3 },
];

const TENANTS: usize = 3;
const LINK_MBPS: u64 = 100;
const GUARANTEE_MBPS: u64 = 30;
const SIZE: u16 = 1000;

/// Greatest error, as a share of the traffic that arrived.
const ERROR: f64 = 0.005;

/// A second of the slowest flow, and more.
const LEAST_BYTES: f64 = 5e6;
