// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report against sinks that share nothing with the node: what it says each tenant got
//! is what arrived, over a full link, and over a restart of the node in the middle of it.

use std::time::Duration;

use weir_api_types::report::{ReportLine, ReportView};
use weir_policy::{Kind, Policy};
use weir_result::{Bound, Claim, Rule, Series};
use weir_traffic::{Rate, XdpStream};
use weir_units::BitRate;

use super::Row;
use crate::{Middle, Outcome, Rig, Run, Star, Trial, TrialError, product};

/// Shows this part of the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    let star = Star::new("node-report", TENANTS, BitRate::from_mbps(LINK_MBPS));
    let mut rig = Rig::up(&star)?;
    let policy = policy(&star);
    rig.put(&Middle::Weir(Box::new(policy.clone())))?;
    let length = Duration::from_secs(if trial.quick { 6 } else { 20 });
    let run = Run {
        middle: Middle::Weir(Box::new(policy)),
        senders: vec![star.generator(streams(&star))],
        receivers: ["wire", "t0"].map(|at| star.sink_at(at)).into(),
        changes: Vec::new(),
        length,
        star,
    };
    let shown = phases(trial, row, &rig, &run);
    rig.down()?;
    shown
}

fn phases(trial: &mut Trial<'_>, row: &Row, rig: &Rig, run: &Run) -> Result<(), TrialError> {
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
            judge(trial, row, (phase, flow), &outcome, [&before, &after])?;
        }
        let name = row.id(&format!("report/{phase}/torn"));
        trial.keep(&name, Series::count("1", after.torn))?;
        let claim = Claim::new(&name, "torn records", Rule::Sum, Bound::equal(0.0));
        trial.judge(claim.of(&[&name]))?;
        before = after;
    }
    Ok(())
}

/// The report over all that is kept, once the last second is on record.
fn ask(rig: &Rig) -> Result<ReportView, TrialError> {
    std::thread::sleep(Duration::from_millis(2_200));
    let node = rig.node().ok_or_else(no_node)?;
    let report = node.client().get("/v1/report?since_s=86400");
    report.map_err(|error| TrialError::Node(error.to_string()))
}

/// What one tenant got in one direction by the report, and by a sink.
fn judge(
    trial: &mut Trial<'_>,
    row: &Row,
    (phase, flow): (&str, &Flow),
    outcome: &Outcome,
    [before, after]: [&ReportView; 2],
) -> Result<(), TrialError> {
    let id = |part: &str| row.id(&format!("report/{phase}/{}/{part}", flow.name));
    let got = |report| line(report, flow.vif).map_or(0, |line| side(line, flow).0);
    let reported = got(after).saturating_sub(got(before));
    let seen = outcome.stream(flow.receiver, flow.stream).map_or(0, |seen| seen.bytes);
    let [by_report, by_sink] = ["reported", "sink"].map(id);
    trial.keep(&by_report, Series::count("byte", reported))?;
    trial.keep(&by_sink, Series::count("byte", seen))?;
    let least = Bound::at_least(LEAST_BYTES);
    trial
        .judge(Claim::new(id("arrived"), "bytes at the sink", Rule::Sum, least).of(&[&by_sink]))?;
    let both = [by_report, by_sink];
    for (part, what, bound) in [
        ("least", "reported by what arrived, not less", Bound::at_least(1.0 - ERROR)),
        ("most", "reported by what arrived, not more", Bound::at_most(1.0 + ERROR)),
    ] {
        trial.judge(Claim::new(id(part), what, Rule::RatioOfSums, bound).of(&both))?;
    }
    let below = |report| line(report, flow.vif).map_or(0, |line| side(line, flow).1);
    let short = below(after).saturating_sub(below(before));
    let name = id("below");
    trial.keep(&name, Series::unordered("s", vec![crate::float(short) / 1e9]))?;
    if phase == "restart" {
        return Ok(());
    }
    let what = "time below the guarantee, which nobody exceeds or lacks";
    let claim = Claim::new(&name, what, Rule::Sum, Bound::equal(0.0));
    trial.judge(claim.of(&[&name]))?;
    offered(trial, &id, flow, outcome, [before, after])
}

/// What its generator says it sent, and the slice's line beside its only vif's.
fn offered(
    trial: &mut Trial<'_>,
    id: &impl Fn(&str) -> String,
    flow: &Flow,
    outcome: &Outcome,
    [before, after]: [&ReportView; 2],
) -> Result<(), TrialError> {
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
        trial.keep(&id(part), Series::count("byte", count))?;
    }
    let both = [id("offered"), id("sent")];
    for (part, what, bound) in [
        ("offered/least", "offered by what was sent, not less", Bound::at_least(1.0 - ERROR)),
        ("offered/most", "offered by what was sent, not more", Bound::at_most(1.0 + ERROR)),
    ] {
        trial.judge(Claim::new(id(part), what, Rule::RatioOfSums, bound).of(&both))?;
    }
    let both = [id("slice"), id("vif")];
    let what = "bytes that the slice's line has more than its only vif's";
    let claim = Claim::new(id("slice/same"), what, Rule::Difference, Bound::equal(0.0));
    trial.judge(claim.of(&both)).map(drop)
}

fn slice_line<'r>(report: &'r ReportView, slice: &str) -> Option<&'r ReportLine> {
    report.lines.iter().find(|line| line.vif.is_none() && line.slice == slice)
}

fn line<'r>(report: &'r ReportView, vif: &str) -> Option<&'r ReportLine> {
    report.lines.iter().find(|line| line.vif.as_deref() == Some(vif))
}

/// Bytes got, nanoseconds below.
const fn side(line: &ReportLine, flow: &Flow) -> (u64, u64) {
    let side = if flow.receives { &line.receive } else { &line.send };
    (side.got_bytes, side.below_ns)
}

/// Tenant 0 has a guarantee both ways and keeps to it; the others want twice the link.
fn policy(star: &Star) -> Policy {
    let mut policy = star.policy();
    policy.ports[0].kind = Kind::Xdp;
    policy.vifs.iter_mut().for_each(|vif| vif.kind = Kind::Xdp);
    let guarantee = BitRate::from_mbps(GUARANTEE_MBPS);
    policy.vifs[0].send.min_rate = guarantee;
    policy.vifs[0].receive.min_rate = guarantee;
    policy
}

fn streams(star: &Star) -> Vec<XdpStream> {
    let calm = Some(Rate::Bps(GUARANTEE_MBPS * 900_000));
    let flood = Some(Rate::Bps(LINK_MBPS * 1_000_000));
    vec![
        star.stream(0, 0, SIZE, calm),
        star.stream(1, 1, SIZE, flood),
        star.stream(2, 2, SIZE, flood),
        star.stream_towards(0, 3, SIZE, calm),
    ]
}

fn no_node() -> TrialError {
    TrialError::Node("no node in the middle".into())
}

/// Who sends or receives what, and which sink sees it.
struct Flow {
    name: &'static str,
    vif: &'static str,
    receives: bool,
    receiver: usize,
    stream: u16,
}

const FLOWS: [Flow; 4] = [
    Flow { name: "t0-sends", vif: "t0", receives: false, receiver: 0, stream: 0 },
    Flow { name: "t1-sends", vif: "t1", receives: false, receiver: 0, stream: 1 },
    Flow { name: "t2-sends", vif: "t2", receives: false, receiver: 0, stream: 2 },
    Flow { name: "t0-receives", vif: "t0", receives: true, receiver: 1, stream: 3 },
];

const TENANTS: usize = 3;
const LINK_MBPS: u64 = 100;
const GUARANTEE_MBPS: u64 = 30;
const SIZE: u16 = 1000;

/// Of what arrived.
const ERROR: f64 = 0.005;

/// A second of the slowest flow, and more.
const LEAST_BYTES: f64 = 5e6;
