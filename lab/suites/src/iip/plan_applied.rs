// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The circle closed on three running nodes: measured, modelled, planned, enforced, measured again.
//!
//! Each node carries three slices; the third offers more than the link has left, at a hundred times
//! the others' priority, and the last node has a cycle. Twice what is planned is offered towards
//! each slice. Loads of one slice at a time give each node's CPU model, whose upper bounds go into
//! the plan. A plan with other rates and phases and then the plan are applied while traffic flows,
//! and sinks count. Then a plan that nodes refuse, one that does not fit, and applies that are
//! killed.

use std::fmt::Write;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use weir_experiment::prelude::*;
use weir_experiment::{UNTIL_DONE, clock, mean, product};
use weir_policy::{Layer, PortCycle, Reservation};
use weir_tester::{CpuPoint, CpuSurface};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let stars: Vec<_> = (0..NODES).map(star).collect();
    let mut rigs = stars.iter().map(Testbed::up).collect::<Result<Vec<_>>>()?;
    let each = rigs.iter_mut().zip(&stars).enumerate();
    each.map(|(n, (rig, star))| rig.put(&policy(star, n).into())).collect::<Result<Vec<()>>>()?;
    let cpu = calibrated(&rigs)?;
    rec.say(&format!("planned processor time, percent: {cpu:.1?}"));
    for plan in PLANS {
        write(&rigs, plan, &cpu)?;
    }
    measured(rec, &rigs, &cpu)?;
    let before = documents(&rigs)?;
    let codes = ["refused.toml", "unfit.toml"].map(|plan| ended(&rigs, APPLY, plan));
    let codes = codes.into_iter().collect::<Result<Vec<_>>>()?;
    rec.none("refused/changed", "nodes changed by refused plans", differing(&rigs, &before)?)?;
    let refused = u64::from(codes == [Some(1), Some(5)]);
    rec.at_least("refused", "plans refused by nodes and by the planner", refused, 1)?;
    killed(rec, &rigs)?;
    rigs.into_iter().try_for_each(Testbed::down)
}

/// Fits a model of each node, and returns the upper bound for each slice, percent of a processor.
fn calibrated(rigs: &[Testbed]) -> Result<Vec<Vec<f64>>> {
    let mut points = vec![Vec::new(); NODES];
    for (slice, part) in (0..SLICES.len()).flat_map(|slice| [(slice, 1), (slice, 2)]) {
        let mut loads = Vec::new();
        let mut read = || cpu_percent(rigs, 1).map(|read| loads = read);
        flow_all(rigs, &[slice], part, &mut read)?;
        let each = points.iter_mut().zip(&loads);
        each.for_each(|(points, load)| points.push(SLICES[slice].point(part, *load)));
    }
    let fits = points.iter().map(|points| CpuSurface::of(points, false));
    let fits = fits.collect::<std::result::Result<Vec<_>, _>>();
    let fits = fits.map_err(|error| ExperimentError::Node(error.to_string()))?;
    let upper = |fit: &CpuSurface| {
        SLICES.iter().map(|slice| fit.upper(&slice.point(1, 0.0)).max(0.1)).collect()
    };
    Ok(fits.iter().map(upper).collect())
}

/// Applies a plan while traffic flows, and judges what the sinks and the meters saw.
fn measured(rec: &mut Recording<'_>, rigs: &[Testbed], cpu: &[Vec<f64>]) -> Result {
    let (runs, seconds) = if rec.quick { (1, 3) } else { (5, 10) };
    let (mut held, mut offered, mut lost, mut over) = (vec![], vec![], vec![], vec![]);
    let (mut verified, mut phases) = (0, PhaseChanges::default());
    for _ in 0..runs {
        let (mut applied_ns, mut loads) = (0, Vec::new());
        let records = flow_all(rigs, &[0, 1, 2], 1, &mut || {
            clock::sleep(Duration::from_secs(1))?;
            must(rigs, APPLY, "less.toml")?;
            phases.note(phases_ns(rigs)?, 1);
            must(rigs, APPLY, "plan.toml")?;
            applied_ns = clock::monotonic_ns();
            phases.note(phases_ns(rigs)?, 0);
            loads = cpu_percent(rigs, seconds)?;
            let verify = ["plan", "verify", "--json", "--for", "2s"];
            let answer = answered(rigs, &verify, "plan.toml")?;
            if is_verified(&answer) {
                verified += 1;
            } else {
                let (code, text) = (answer.status.code(), String::from_utf8_lossy(&answer.stdout));
                rec.say(&format!("{code:?}: {text}"));
            }
            Ok(())
        })?;
        let each = || records.iter().flat_map(|record| SLICES.iter().map(move |of| (record, of)));
        let sides = each().flat_map(|(record, of)| of.sides().map(|side| (record, side)));
        let shares = sides.map(|(record, side)| side.shares(record, applied_ns, seconds));
        let shares: Vec<_> = shares.collect();
        held.push(shares.iter().map(|of| of[0]).fold(1.0, f64::min));
        offered.push(shares.iter().map(|of| of[1]).fold(1.0, f64::min));
        let whole = each().filter(|(_, of)| of.offers == of.plan);
        let sum = whole.map(|(record, of)| float(of.lost(record)));
        lost.push(sum.sum());
        let planned = cpu.iter().map(|slices| slices.iter().sum::<f64>());
        over.push(planned.zip(&loads).map(|(planned, load)| load - planned).fold(-100.0, f64::max));
    }
    let keep = Series::unordered;
    let text = "worst slice and direction: offered of planned by its sender, median of runs";
    rec.claim_samples("offered", text, keep("1", offered), Rule::Median, Bound::at_least(0.99))?;
    let text = "worst slice and direction: arrived of planned, or of offered if that is less, \
                median of runs";
    rec.claim_samples("held", text, keep("1", held), Rule::Median, Bound::at_least(0.99))?;
    let text = "packets lost of slices that keep to their rate, over all applies";
    rec.claim_samples("lost", text, keep("packet", lost), Rule::Sum, Bound::equal(0.0))?;
    let text = "worst node: processor time above the plan, median of runs";
    rec.claim_samples("cpu", text, keep("%", over), Rule::Median, Bound::at_most(3.0))?;
    let text = "phases of the node with a cycle that changed under traffic";
    rec.at_least("phases/changed", text, phases.changed, 2 * runs)?;
    let text = "phases of that node that are not as the plan just applied says";
    rec.none("phases/wrong", text, phases.wrong)?;
    rec.at_least("verified", "runs in which weir plan verify agrees", verified, runs)
}

/// The phases that applies changed.
#[derive(Default)]
struct PhaseChanges {
    last: Option<Vec<Option<u64>>>,
    changed: u64,
    wrong: u64,
}

impl PhaseChanges {
    /// Compares the phases after an apply with those before it, and with those of the plan.
    fn note(&mut self, now: Vec<Option<u64>>, plan: usize) {
        let planned = SLICES.iter().map(|of| Some(of.phases_us[plan] * 1_000));
        self.wrong += now.len().abs_diff(SLICES.len()) as u64;
        self.wrong +=
            now.iter().zip(planned).filter(|(now, planned)| **now != *planned).count() as u64;
        let last = self.last.replace(now.clone()).unwrap_or_else(|| now.clone());
        self.changed += now.iter().zip(&last).filter(|(now, then)| now != then).count() as u64;
    }
}

/// The phases of the node with a cycle, by slice.
fn phases_ns(rigs: &[Testbed]) -> Result<Vec<Option<u64>>> {
    let policy = rigs[NODES - 1].running()?.policy()?;
    Ok(policy.slices.iter().map(|slice| slice.phase_ns).collect())
}

/// Tells whether a verification found nothing broken, and those held that offer twice their rate:
/// towards every slice, and from some. Others may fall behind theirs, so not all may be proven.
fn is_verified(answer: &Output) -> bool {
    let told: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
    let each = |of: &serde_json::Value| of.as_array().cloned().unwrap_or_default();
    let slices: Vec<_> =
        each(&told["nodes"]).into_iter().flat_map(|node| each(&node["slices"])).collect();
    let is_held = |name: &str, side: &str| {
        let own = slices.iter().find(|slice| slice["name"] == name);
        own.is_some_and(|slice| slice[side]["verdict"] == "held")
    };
    let names = |of: &LabSlice| (0..NODES).map(|n| format!("{}{n}", of.name)).collect::<Vec<_>>();
    let more = SLICES.iter().filter(|of| of.offers > of.plan);
    let sends = more.flat_map(names).all(|name| is_held(&name, "send"));
    let receives = SLICES.iter().flat_map(names).all(|name| is_held(&name, "receive"));
    matches!(answer.status.code(), Some(0 | UNPROVEN)) && sends && receives
}

/// Kills applies at instants that close in on the middle and recovers them, those between two nodes
/// in turns by undo and by completion. Counts nodes that are not as before, or as planned, as the
/// recovery says.
fn killed(rec: &mut Recording<'_>, rigs: &[Testbed]) -> Result {
    must(rigs, APPLY, "less.toml")?;
    let less = documents(rigs)?;
    let start = Instant::now();
    must(rigs, APPLY, "plan.toml")?;
    let (whole, plan) = (start.elapsed(), documents(rigs)?);
    let (mut from, mut to, mut midway, mut wrong) = (Duration::ZERO, whole, [0; 2], 0);
    for attempt in 0..KILLS {
        let mut apply = weir(rigs, APPLY, "less.toml")?.spawn().map_err(failed)?;
        let at = (from + to) / 2;
        clock::sleep(at)?;
        apply.kill().and_then(|()| apply.wait()).map_err(failed)?;
        let changed = differing(rigs, &plan)?;
        let is_midway = changed > 0 && changed < NODES as u64;
        match changed {
            0 => from = at,
            _ if is_midway => {}
            _ => to = at,
        }
        if to - from < whole / 50 {
            (from, to) = (at.saturating_sub(whole / 4), at + whole / 4);
        }
        let completes = if is_midway { midway[0] > midway[1] } else { attempt % 2 == 1 };
        // Killed before its journal or after the last change, an apply leaves nothing to recover.
        let expected = match recovered(rigs, completes)?.as_str() {
            "undone" if !completes => &plan,
            "completed" if completes => &less,
            "nothing" if changed == 0 => &plan,
            "nothing" if !is_midway => &less,
            other => return Err(ExperimentError::Node(format!("recovered: {other}"))),
        };
        wrong += differing(rigs, expected)?;
        midway[usize::from(completes)] += u64::from(is_midway);
        must(rigs, APPLY, "plan.toml")?;
    }
    let text = "applies killed between two nodes and taken back";
    rec.at_least("killed/undone", text, midway[0], 1)?;
    let text = "applies killed between two nodes and completed";
    rec.at_least("killed/completed", text, midway[1], 1)?;
    let text = "nodes that are not as the recovery says: as before, or as planned";
    rec.none("killed/mixed", text, wrong)
}

/// Recovers an apply of `less.toml`; returns what the command says it did.
fn recovered(rigs: &[Testbed], completes: bool) -> Result<String> {
    let words = ["plan", "recover", "--json", "--complete"];
    let words = if completes { &words[..] } else { &words[..3] };
    let answer = answered(rigs, words, "less.toml")?;
    let told: serde_json::Value = serde_json::from_slice(&answer.stdout)
        .map_err(|error| ExperimentError::Node(format!("weir plan recover: {error}")))?;
    Ok(told["recovered"].as_str().unwrap_or_default().to_owned())
}

/// Lets a part of what these slices send and receive flow on all nodes at once until `beside`
/// returns.
fn flow_all(
    rigs: &[Testbed],
    slices: &[usize],
    part: u64,
    beside: &mut dyn FnMut() -> Result,
) -> Result<Vec<TrafficRecord>> {
    let Some((rig, others)) = rigs.split_first() else { return beside().map(|()| Vec::new()) };
    let star = rig.star();
    let streams = slices.iter().flat_map(|&slice| {
        let of = &SLICES[slice];
        let [send, receive] = of.sides();
        let rate = |bps: u64| Some(Rate::Bps(bps / part));
        let bytes = of.bytes - FCS;
        [
            star.stream(slice, send.stream, bytes, rate(of.offers)),
            star.stream_towards(slice, receive.stream, bytes, rate(RECEIVE_OFFERS)),
        ]
    });
    let tenants = star.tenants.iter().map(|tenant| star.sink_at(tenant));
    let run = TrafficRun {
        senders: vec![star.generator(streams.collect())],
        receivers: std::iter::once(star.sink()).chain(tenants).collect(),
        length: UNTIL_DONE,
        ..TrafficRun::new(star, Forwarder::Bridge, 0)
    };
    let (record, mut more) = run.flow(rig, |_| flow_all(others, slices, part, beside))?;
    more.insert(0, record);
    Ok(more)
}

/// The load of each node's worker over some seconds, percent of a processor.
fn cpu_percent(rigs: &[Testbed], seconds: u64) -> Result<Vec<f64>> {
    let read = || -> Result<Vec<[u64; 2]>> {
        let each = rigs.iter().map(|rig| rig.running()?.status());
        let worker = |status: Result<weir_api_types::status::NodeStatus>| {
            status.map(|one| [one.now_ns, one.worker.map_or(0, |worker| worker.cpu_ns)])
        };
        each.map(worker).collect()
    };
    let then = read()?;
    clock::sleep(Duration::from_secs(seconds))?;
    let load = |(now, then): (&[u64; 2], &[u64; 2])| {
        100.0 * float(now[1] - then[1]) / float(now[0] - then[0])
    };
    Ok(read()?.iter().zip(&then).map(load).collect())
}

fn star(n: usize) -> StarTopology {
    let mut star = StarTopology::new(&format!("iip-plan{n}"), SLICES.len(), LINK);
    star.tenants = SLICES.iter().map(|slice| format!("{}{n}", slice.name)).collect();
    star
}

/// Slices with the guarantees of an earlier plan; the third has none.
fn policy(star: &StarTopology, n: usize) -> Policy {
    let mut policy = star.policy();
    policy.node.reservation = Reservation::Fifo;
    policy.ports[0].catch_up = Nanos::from_millis(10);
    if n + 1 == NODES {
        policy.ports[0].layer = Layer::L1;
        policy.ports[0].catch_up = Nanos::from_micros(250);
        policy.ports[0].cycle = Some(PortCycle { length: Nanos::from_millis(2), borrow: true });
    }
    for (slice, of) in policy.slices.iter_mut().zip(&SLICES) {
        slice.send.min_rate = BitRate::from_bps(of.plan * u64::from(of.plan == of.offers));
        slice.send.priority = if of.plan == of.offers { 1 } else { 100 };
        slice.phase = (n + 1 == NODES).then_some(Nanos::from_micros(of.phases_us[0]));
    }
    policy
}

/// Writes a plan in which each node carries its own slices.
fn write(rigs: &[Testbed], plan: LabPlan, cpu: &[Vec<f64>]) -> Result {
    let LabPlan { name, mbps, phases } = plan;
    let mut text = String::new();
    for (n, rig) in rigs.iter().enumerate() {
        let (api, cycle) = (rig.running()?.socket().display(), n + 1 == NODES);
        // Room for a worker that is late by 60 µs, as on a shared machine.
        let phase = |of: &LabSlice| match cycle && mbps[2] > 0 {
            true => format!("phase = \"{}us\"\n", of.phases_us[phases]),
            false => String::new(),
        };
        let cycle = if cycle { "cycle = \"2ms\"\n" } else { "" };
        let _ = write!(
            text,
            "[[node]]\nname = \"n{n}\"\nlink = \"{LINK}\"\ncpu = \"100%\"\napi = \"{api}\"\n{cycle}"
        );
        for ((of, mbps), cpu) in SLICES.iter().zip(mbps).zip(&cpu[n]).filter(|((_, m), _)| *m > 0) {
            let _ = write!(
                text,
                "[[slice]]\nname = \"{}{n}\"\nsend = \"{mbps}Mbit\"\nreceive = \"{}bit\"\n\
                 frames = \"{}B\"\ncpu = \"{cpu:.2}%\"\nnodes = [\"n{n}\"]\n{}",
                of.name,
                RECEIVE_PLAN,
                of.bytes,
                phase(of)
            );
        }
    }
    let path = rigs[0].file(name);
    std::fs::write(&path, text).map_err(|error| ExperimentError::io(&path, error))
}

fn weir(rigs: &[Testbed], words: &[&str], plan: &str) -> Result<Command> {
    let mut command = Command::new(product::path()?);
    command.args(words).arg(rigs[0].file(plan)).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn ended(rigs: &[Testbed], words: &[&str], plan: &str) -> Result<Option<i32>> {
    Ok(weir(rigs, words, plan)?.status().map_err(failed)?.code())
}

/// Runs a command whose output is read; its errors go to the run's own.
fn answered(rigs: &[Testbed], words: &[&str], plan: &str) -> Result<Output> {
    let mut command = weir(rigs, words, plan)?;
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output().map_err(failed)
}

fn must(rigs: &[Testbed], words: &[&str], plan: &str) -> Result {
    match ended(rigs, words, plan)? {
        Some(0) => Ok(()),
        code => Err(ExperimentError::Node(format!("weir {} {plan}: {code:?}", words.join(" ")))),
    }
}

fn failed(error: std::io::Error) -> ExperimentError {
    ExperimentError::io("weir plan", error)
}

fn documents(rigs: &[Testbed]) -> Result<Vec<String>> {
    rigs.iter().map(|rig| rig.running()?.document()).collect()
}

fn differing(rigs: &[Testbed], from: &[String]) -> Result<u64> {
    let now = documents(rigs)?;
    Ok(now.iter().zip(from).filter(|(now, then)| now != then).count() as u64)
}

/// A slice on each node.
struct LabSlice {
    name: &'static str,
    /// The length of a frame with its checksum.
    bytes: u16,
    /// Bits of layer 2 a second.
    plan: u64,
    offers: u64,
    /// The slice's phase in each cycle of 2 ms, on the node with a cycle: planned, and before.
    phases_us: [u64; 2],
}

/// A direction of a slice: who counts it, and what is planned.
#[derive(Clone, Copy)]
struct SliceSide {
    receiver: usize,
    stream: u16,
    /// Bits of layer 2 a second.
    plan: u64,
}

/// A plan of the three slices.
#[derive(Clone, Copy)]
struct LabPlan {
    name: &'static str,
    /// Rates in Mbit/s; 0: not in the plan.
    mbps: [u64; 3],
    /// Which of the slices' phases.
    phases: usize,
}

impl LabSlice {
    /// A measured load of this slice alone, at a part of what it sends and receives.
    fn point(&self, part: u64, cpu_percent: f64) -> CpuPoint {
        let bytes = f64::from(self.bytes - FCS);
        let kpps = float((self.offers + RECEIVE_OFFERS) / part) / 8e3 / bytes;
        CpuPoint { kpps, frame_bytes: f64::from(self.bytes), cpu_percent, ..CpuPoint::default() }
    }

    fn stream(&self) -> u16 {
        SLICES.iter().zip(0..).find(|(of, _)| of.name == self.name).map_or(0, |(_, at)| at)
    }

    /// The directions: sent, received.
    fn sides(&self) -> [SliceSide; 2] {
        let stream = self.stream();
        let (receiver, towards) = (usize::from(stream) + 1, stream + TOWARDS);
        [
            SliceSide { receiver: 0, stream, plan: self.plan },
            SliceSide { receiver, stream: towards, plan: RECEIVE_PLAN },
        ]
    }

    fn lost(&self, record: &TrafficRecord) -> u64 {
        let sent = record.packets_sent(self.stream());
        sent.saturating_sub(record.packets(0, self.stream()))
    }
}

impl SliceSide {
    /// The part of what it is owed that arrived in so many whole seconds after an instant, and the
    /// part of the planned rate that it is owed, since it offers that.
    fn shares(&self, record: &TrafficRecord, since_ns: u64, seconds: u64) -> [f64; 2] {
        let skip = since_ns.saturating_sub(record.start_ns) / 1_000_000_000 + 1;
        let whole = |count: u64| usize::try_from(count).unwrap_or(0);
        let after = |bits: Vec<f64>| {
            mean(&bits.into_iter().skip(whole(skip)).take(whole(seconds)).collect::<Vec<_>>())
        };
        let [got, offered] =
            [record.got(self.receiver, self.stream), record.offered(self.stream)].map(after);
        let owed = offered.min(float(self.plan));
        [got / owed.max(1.0), owed / float(self.plan)]
    }
}

const SLICES: [LabSlice; 3] = [
    LabSlice { name: "a", bytes: 512, plan: 15_000_000, offers: 15_000_000, phases_us: [600, 640] },
    LabSlice {
        name: "b",
        bytes: 1024,
        plan: 10_000_000,
        offers: 10_000_000,
        phases_us: [480, 480],
    },
    LabSlice {
        name: "c",
        bytes: 1518,
        plan: 20_000_000,
        offers: 40_000_000,
        phases_us: [880, 640],
    },
];
const NODES: usize = 3;
const LINK: BitRate = BitRate::from_mbps(60);
const FCS: u16 = 4;
/// Planned towards each slice, and offered: bits of layer 2 a second.
const RECEIVE_PLAN: u64 = 1_000_000;
const RECEIVE_OFFERS: u64 = 2_000_000;
/// The first stream towards a slice.
const TOWARDS: u16 = 3;
const PLANS: [LabPlan; 4] = [
    LabPlan { name: "plan.toml", mbps: [15, 10, 20], phases: 0 },
    LabPlan { name: "less.toml", mbps: [15, 10, 12], phases: 1 },
    // What the nodes hold for the third is not in it, so that they alone can refuse it.
    LabPlan { name: "refused.toml", mbps: [22, 24, 0], phases: 0 },
    LabPlan { name: "unfit.toml", mbps: [40, 40, 0], phases: 0 },
];
const APPLY: &[&str] = &["plan", "apply", "--confirm"];
const KILLS: usize = 16;
/// The exit status of a verification that found nothing broken, and not all proven.
const UNPROVEN: i32 = 7;

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    /// Goal: an apply that leaves phases as they are is seen, and so is one that sets others.
    #[test]
    fn phases_that_stay_are_seen() {
        let of = |plan: usize| SLICES.iter().map(|of| Some(of.phases_us[plan] * 1_000)).collect();
        let told = |applies: [(Vec<Option<u64>>, usize); 2]| {
            let mut phases = PhaseChanges::default();
            applies.into_iter().for_each(|(now, plan)| phases.note(now, plan));
            (phases.changed, phases.wrong)
        };
        assert_eq!(told([(of(1), 1), (of(0), 0)]), (2, 0));
        assert_eq!(told([(of(0), 1), (of(0), 0)]), (0, 2));
        assert_eq!(told([(vec![None; 3], 1), (vec![None; 3], 0)]), (0, 6));
    }

    /// Goal: a verification in which nobody received what was planned does not count.
    #[test]
    fn a_verification_without_the_receive_half_does_not_count() {
        let answer = |receive: &str, code: i32| {
            let slice = |of: &LabSlice, n: usize| {
                format!(
                    r#"{{"name":"{}{n}","send":{{"verdict":"held"}},
                        "receive":{{"verdict":"{receive}"}}}}"#,
                    of.name
                )
            };
            let node = |n| SLICES.iter().map(|of| slice(of, n)).collect::<Vec<_>>().join(",");
            let nodes = (0..NODES).map(|n| format!(r#"{{"slices":[{}]}}"#, node(n)));
            let nodes = nodes.collect::<Vec<_>>().join(",");
            let status = ExitStatus::from_raw(code << 8);
            Output { status, stdout: format!(r#"{{"nodes":[{nodes}]}}"#).into(), stderr: vec![] }
        };
        assert!(is_verified(&answer("held", 0)));
        assert!(is_verified(&answer("held", UNPROVEN)));
        assert!(!is_verified(&answer("held", 6)));
        assert!(!is_verified(&answer("unproven", UNPROVEN)));
        assert!(!is_verified(&answer("broken", 0)));
    }
}
