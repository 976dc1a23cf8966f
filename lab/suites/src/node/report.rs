// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report against sinks that share nothing with the node: what each tenant got by the
//! report is what arrived, over a full link, and over a restart of the node in between.

use weir_api_types::report::{ReportLine, ReportView, ServiceView};
use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_policy::Kind;
use weir_traffic::XdpStream;

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("node-report", TENANTS, BitRate::from_mbps(LINK_MBPS));
    let run = TrafficRun {
        senders: vec![star.generator(streams(&star))],
        receivers: ["wire", "t0"].map(|at| star.sink_at(at)).into(),
        ..TrafficRun::new(&star, policy(&star), if rec.quick { 6 } else { 20 })
    };
    let mut rig = Testbed::up(&star)?;
    rig.put(&run.middle)?;
    let mut before = ask(&rig)?;
    for (phase, restarts) in [("steady", false), ("restart", true)] {
        let (outcome, ()) = run.flow(&rig, |rig| {
            if restarts {
                std::thread::sleep(run.length / 2);
                let node = rig.running()?;
                node.leave()?;
                node.start_again(product::path()?)?;
            }
            Ok(())
        })?;
        let after = ask(&rig)?;
        for flow in &FLOWS {
            judge(rec, phase, flow, &outcome, [&before, &after])?;
        }
        rec.none(format!("report/{phase}/torn"), "torn records", after.torn)?;
        before = after;
    }
    rig.down()
}

/// Waits until the last second is on record, and requests the report over all that is kept.
fn ask(rig: &Testbed) -> Result<ReportView> {
    std::thread::sleep(Duration::from_millis(2_200));
    Ok(rig.running()?.client().get("/v1/report?since_s=86400")?)
}

/// Compares one tenant's traffic in one direction by the report with the sink's count.
fn judge(
    rec: &mut Recording<'_>,
    phase: &str,
    flow: &ReportedFlow,
    outcome: &TrafficRecord,
    [before, after]: [&ReportView; 2],
) -> Result {
    let id = |part: &str| format!("report/{phase}/{}/{part}", flow.name);
    // Returns the increase of a counter, of the vif or of its slice.
    let counted = |of_slice: bool, counter: fn(&ServiceView) -> u64| {
        let of = |report| flow.line(report, of_slice).map_or(0, |line| counter(flow.side(line)));
        of(after).saturating_sub(of(before))
    };
    let seen = outcome.stream(flow.receiver, flow.stream).map_or(0, |seen| seen.bytes);
    let sent = outcome.sent_of(flow.stream).map(|sent| sent.bytes).sum();
    for (part, bytes) in [
        ("reported", counted(false, |side| side.got_bytes)),
        ("sink", seen),
        ("offered", counted(false, |side| side.offered_bytes)),
        ("sent", sent),
        ("slice", counted(true, |side| side.got_bytes)),
        ("vif", counted(false, |side| side.got_bytes)),
    ] {
        rec.keep(&id(part), Series::count("byte", bytes))?;
    }
    let below = float(counted(false, |side| side.below_ns)) / 1e9;
    rec.keep(&id("below"), Series::unordered("s", vec![below]))?;
    let least = Bound::at_least(LEAST_BYTES);
    rec.claim(id("arrived"), "bytes at the sink", Rule::Sum, least, &[id("sink")])?;
    let mut near = |ids: [&str; 2], what: &str, series: [&str; 2]| {
        let bounds = [Bound::at_least(1.0 - ERROR), Bound::at_most(1.0 + ERROR)];
        for ((part, bound), side) in ids.iter().zip(bounds).zip(["less", "more"]) {
            let what = format!("{what}, not {side}");
            rec.claim(id(part), what, Rule::RatioOfSums, bound, &series.map(id))?;
        }
        Ok::<_, ExperimentError>(())
    };
    near(["least", "most"], "reported by what arrived", ["reported", "sink"])?;
    if phase == "restart" {
        return Ok(());
    }
    near(["offered/least", "offered/most"], "offered by what was sent", ["offered", "sent"])?;
    let none = Bound::equal(0.0);
    let what = "time below the guarantee, which nobody exceeds or lacks";
    rec.claim(id("below"), what, Rule::Sum, none, &[id("below")])?;
    let what = "bytes that the slice's line has more than its only vif's";
    rec.claim(id("slice/same"), what, Rule::Difference, none, &["slice", "vif"].map(id))
}

/// Returns a policy in which tenant 0 has a guarantee both ways and keeps to it. The others ask for
/// twice the link.
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

/// A flow: its vif and direction, and the receiver that counts it.
struct ReportedFlow {
    name: &'static str,
    /// The vif, which is alone in a slice of the same name.
    vif: &'static str,
    receives: bool,
    receiver: usize,
    stream: u16,
}

impl ReportedFlow {
    fn line<'r>(&self, report: &'r ReportView, of_slice: bool) -> Option<&'r ReportLine> {
        report.lines.iter().find(|line| match &line.vif {
            Some(vif) => !of_slice && vif == self.vif,
            None => of_slice && line.slice == self.vif,
        })
    }

    const fn side<'r>(&self, line: &'r ReportLine) -> &'r ServiceView {
        if self.receives { &line.receive } else { &line.send }
    }
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

/// The greatest error, as a part of the traffic that arrived.
const ERROR: f64 = 0.005;

/// The least traffic of a flow: more than a second of the slowest.
const LEAST_BYTES: f64 = 5e6;
