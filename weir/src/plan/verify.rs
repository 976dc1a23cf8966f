// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan verify`: whether running nodes hold what was planned.
//!
//! The nodes' own counters are read twice. They count what left for the wire, so that nothing needs
//! to be connected; a tester outside is `weir measure`, on the interfaces of one slice.
//!
//! Between the two readings, each node's queues are sampled for how long frames wait in them: see
//! [`super::delay`].
//!
//! Counters show nothing about a plan that is not in force. So each node is asked before and after
//! what an apply would change on it. Both answers must be "nothing", with the same number of the
//! next change: then nobody changed the policy in between. Both readings must also be of one run of
//! the node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use weir_api_types::change::{ChangeView, EditView};
use weir_api_types::policy::PolicyView;
use weir_api_types::status::NodeStatus;
use weir_api_types::xtc::XtcView;
use weir_plan::{NodePlan, PlanRequest, PlannedNode, Resource};
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output;
use weir_units::{CpuShare, Nanos};

use super::apply::{foresee, policy_of};
use super::delay::{DelayPromise, WaitSamples};
use super::file::{NOT_HELD, UNPROVEN, placed, print_refused, read};
use super::running::{self, RunningNode, pairs};
use super::verdict::{PlanVerdict, PlannedSide, RouterLoads, side, worker_ppm};
use super::verified::{VerifiedNodeView, VerifiedSliceView, VerifiedView};

/// Measure on the running nodes whether what was planned is in force and held: each slice 99 % of
/// its rate and its delay in the node, each node at most 3 points of a processor above what was
/// planned. A slice that offers less than its rate proves nothing: then the answer says what load
/// would.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct PlanVerify {
    /// The plan's file, where each node has its address: docs/planning.md
    file: PathBuf,
    /// Measure for so long, 1s to 1h
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    span: Nanos,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PlanVerify {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if !(SPAN_MIN..=SPAN_MAX).contains(&self.span) {
            let text = format!("--for is {}; it must be {SPAN_MIN} to {SPAN_MAX}", self.span);
            return Err(UsageError(text).into());
        }
        let request = read(&self.file)?;
        let plan = match placed(&request) {
            Ok(plan) => plan,
            Err(answer) => return print_refused(&request, &answer, self.json),
        };
        let view = self.measured(&request, &plan)?;
        if self.json {
            output::print_own(&view)?;
        } else {
            output::print(&view.text())?;
        }
        Ok(ExitCode::from(match view.verdict {
            PlanVerdict::Held => 0,
            PlanVerdict::Broken => NOT_HELD,
            PlanVerdict::Unproven => UNPROVEN,
        }))
    }

    /// Measures the nodes of a plan.
    ///
    /// # Errors
    /// A node does not answer, or takes the caller for a tenant.
    fn measured(&self, request: &PlanRequest, plan: &NodePlan) -> Result<VerifiedView, Failure> {
        let nodes = running::nodes(request, plan, &self.file)?;
        let begin = read_all(request, plan, &nodes)?;
        let promised = pairs(plan, &nodes).zip(&begin);
        let mut samples: Vec<_> = promised
            .map(|((planned, _), begin)| NodeSamples::new(request, planned, &begin.policy))
            .collect();
        sample(request, &nodes, &mut samples, Duration::from_nanos(self.span.as_nanos()))?;
        let end = read_all(request, plan, &nodes)?;
        let found = pairs(plan, &nodes).zip(&samples).zip(begin.iter().zip(&end));
        let found = found.map(|(((planned, node), samples), ends)| {
            verified(request, planned, &node.name, samples, ends)
        });
        Ok(VerifiedView::of(found.collect()))
    }
}

/// A node at one end of the measurement.
struct NodeReading {
    status: NodeStatus,
    policy: PolicyView,
    /// Reasons why the plan is not in force.
    problems: Vec<String>,
    /// The number that the next change would have.
    number: Option<u64>,
}

fn read_all(
    request: &PlanRequest,
    plan: &NodePlan,
    nodes: &[RunningNode],
) -> Result<Vec<NodeReading>, Failure> {
    let read = |(planned, node): (&PlannedNode, &RunningNode)| {
        let status = node.get::<NodeStatus>("/v1/status")?;
        let policy = policy_of(node)?;
        let (problems, number) = match foresee(request, planned, node, &policy, VERIFY)? {
            Ok((_, change)) => (not_in_force(&change), Some(change.id)),
            Err(problems) => (problems, None),
        };
        Ok(NodeReading { status, policy, problems, number })
    };
    pairs(plan, nodes).map(read).collect()
}

/// Names each key that is not as planned.
fn not_in_force(change: &ChangeView) -> Vec<String> {
    let name = |edit: &EditView| {
        let EditView { table, name, key, before, after } = edit;
        format!("{table} {name}: {key} is {before}, planned {after}")
    };
    change.effective_edits().map(name).collect()
}

/// The samples of a node, taken between both ends of the measurement.
struct NodeSamples {
    routers: RouterLoads,
    /// The policy at the beginning of the measurement.
    policy: PolicyView,
    /// Waits of the slices with a delay to judge, by their number in the request.
    waits: BTreeMap<usize, WaitSamples>,
}

impl NodeSamples {
    fn new(request: &PlanRequest, planned: &PlannedNode, policy: &PolicyView) -> Self {
        let kind = &request.kinds[planned.kind];
        let waits = planned.slices.iter().filter_map(|of| {
            let promise = DelayPromise::of(&request.slices[of.slice], kind, of, policy)?;
            Some((of.slice, WaitSamples::new(promise)))
        });
        Self { routers: RouterLoads::default(), waits: waits.collect(), policy: policy.clone() }
    }

    /// Reads how long frames wait. Returns the time that the node took to answer, or that of a slow
    /// node if this one is too busy to answer.
    fn read_waits(
        &mut self,
        request: &PlanRequest,
        node: &RunningNode,
    ) -> Result<Duration, Failure> {
        let asked = Instant::now();
        let Some(status) = node.get_if_idle::<NodeStatus>("/v1/status")? else {
            return Ok(SAMPLE / READ_PART);
        };
        for (slice, waits) in &mut self.waits {
            waits.read(&request.slices[*slice].name, &self.policy, &status);
        }
        Ok(asked.elapsed())
    }
}

/// Samples the nodes until `span` is over: the processor time of held routers, and how long frames
/// wait where there is a delay to judge.
fn sample(
    request: &PlanRequest,
    nodes: &[RunningNode],
    samples: &mut [NodeSamples],
    span: Duration,
) -> Result<(), Failure> {
    let has_waits = samples.iter().any(|samples| !samples.waits.is_empty());
    let (start, mut routers_due, mut slowest) = (Instant::now(), SAMPLE, Duration::ZERO);
    for turn in 0.. {
        let left = span.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        let pause = if has_waits { pause(turn).max(slowest * READ_PART) } else { SAMPLE };
        thread::sleep(left.min(pause));
        let is_due = start.elapsed() >= routers_due.min(span);
        slowest = Duration::ZERO;
        for (node, samples) in nodes.iter().zip(&mut *samples) {
            if !samples.waits.is_empty() {
                slowest = slowest.max(samples.read_waits(request, node)?);
            }
            if is_due && let Some(xtc) = node.get_if_idle::<XtcView>("/v1/xtc")? {
                samples.routers.add(&xtc);
            }
        }
        if is_due {
            routers_due += SAMPLE;
        }
    }
    Ok(())
}

/// Returns the time before a sample of waits: 25 to 75 ms, by a sequence in step with nothing.
fn pause(turn: u32) -> Duration {
    // The golden part of 2^32: multiples of it are spread evenly.
    let spread = u64::from(turn.wrapping_mul(0x9e37_79b9));
    Duration::from_micros(25_000 + ((spread * 50_000) >> 32))
}

fn verified(
    request: &PlanRequest,
    planned: &PlannedNode,
    node: &str,
    samples: &NodeSamples,
    (begin, end): (&NodeReading, &NodeReading),
) -> VerifiedNodeView {
    let (then, now) = (&begin.status, &end.status);
    let slices = planned.slices.iter().map(|of| {
        let slice = &request.slices[of.slice];
        let judge = |planned| side(slice, planned, &end.policy, [then, now]);
        VerifiedSliceView {
            name: slice.name.clone(),
            send: judge(PlannedSide::send(slice)),
            receive: judge(PlannedSide::receive(slice)),
            delay: samples.waits.get(&of.slice).map(|waits| waits.view(slice)),
        }
    });
    // A router's processor time is judged only where the plan bounds it.
    let of = |name: &str| {
        planned.slices.iter().map(|of| &request.slices[of.slice]).find(|of| of.name == name)
    };
    let routers =
        samples.routers.ppm(|name| of(name).is_some_and(|of| of.router_cpu > CpuShare::ZERO));
    let cpu_ppm = worker_ppm(then, now).zip(routers).map(|(worker, routers)| worker + routers);
    let base = u64::from(request.kinds[planned.kind].cpu_base.as_ppm());
    let cpu_planned_ppm = base + planned.used.of(Resource::Cpu);
    let measured = VerifiedNodeView {
        name: node.to_owned(),
        verdict: PlanVerdict::Held,
        problems: problems(begin, end),
        cpu_ppm,
        cpu_planned_ppm,
        slices: slices.collect(),
    };
    measured.judged()
}

/// Returns why two readings of a node say nothing about the plan.
fn problems(begin: &NodeReading, end: &NodeReading) -> Vec<String> {
    let mut problems = begin.problems.clone();
    problems.extend(end.problems.iter().filter(|one| !begin.problems.contains(one)).cloned());
    let started = |of: &NodeStatus| of.now_ns.saturating_sub(of.uptime_ns);
    if started(&begin.status).abs_diff(started(&end.status)) > SAME_START_NS {
        problems.push("the node was started anew during the measurement".to_owned());
    } else if begin.number != end.number {
        problems.push("its policy was changed during the measurement".to_owned());
    }
    problems
}

const EXIT_STATUS: &str = "\
Exit status: 0 all of the plan is held, 6 something is broken or not in force, 7 nothing is broken
and not all is proven: then the answer says which load would prove it.";
const SPAN_MIN: Nanos = Nanos::from_secs(1);
const SPAN_MAX: Nanos = Nanos::from_secs(3600);
/// Time between two samples of routers.
const SAMPLE: Duration = Duration::from_secs(1);
/// A node is read for at most one part in this many of the time: answering costs it time, too.
const READ_PART: u32 = 4;
/// The start of a node differs by less than this between two readings of one run.
const SAME_START_NS: u64 = 100_000_000;
/// The id under which the nodes only check.
const VERIFY: &str = "verify";

#[cfg(test)]
mod tests {
    use weir_api_types::status::{Amount, IfaceStatus, WorkerStatus};

    use super::super::fake_node::FakeNode;
    use super::super::verdict::UnprovenReason;
    use super::*;

    fn reading(now_ns: u64, uptime_ns: u64, number: u64) -> NodeReading {
        let status = NodeStatus { now_ns, uptime_ns, ..NodeStatus::default() };
        let policy = PolicyView::default();
        NodeReading { status, policy, problems: vec![], number: Some(number) }
    }

    #[test]
    fn readings_of_two_runs_or_two_policies_say_nothing() {
        let second = 1_000_000_000;
        let begin = reading(100 * second, 2 * second, 7);
        assert_eq!(problems(&begin, &reading(110 * second, 12 * second, 7)), [""; 0]);
        // Its uptime is longer than before, yet it is another run.
        let anew = problems(&begin, &reading(110 * second, 9 * second, 7));
        assert_eq!(anew, ["the node was started anew during the measurement"]);
        let changed = problems(&begin, &reading(110 * second, 12 * second, 8));
        assert_eq!(changed, ["its policy was changed during the measurement"]);
    }

    /// Returns a vif that has sent frames of 996 bytes, with a tag of four on the link 8 Mb/s,
    /// which wait for 1 ms, and received nothing.
    fn sending(elapsed: Duration) -> NodeStatus {
        let now_ns = u64::try_from(elapsed.as_nanos()).unwrap();
        let packets = now_ns / 1_000_000;
        let sent = Amount { packets, bytes: packets * 996 };
        let mut vif = IfaceStatus { name: "v".to_owned(), ..IfaceStatus::default() };
        (vif.send.received, vif.send.enqueued, vif.send.sent) = (sent, sent, sent);
        vif.send.wait_ns = 1_000_000;
        let worker = Some(WorkerStatus::default());
        let (vifs, uptime_ns) = (vec![vif], now_ns);
        NodeStatus { now_ns, uptime_ns, vifs, worker, ..NodeStatus::default() }
    }

    /// Goal: what is asked for and held is told from what nobody asked for, from the node's
    /// interface to the exit status.
    #[test]
    fn a_slice_that_receives_nothing_leaves_a_plan_unproven() {
        let fake = FakeNode::start("verified");
        let share = r#"{"priority":1,"min_rate_bps":0,"min_pps":0,"burst_bytes":1}"#;
        let queue = r#"{"kind":"fifo","packets":1,"bytes":1}"#;
        let policy = format!(
            r#"{{"node":"n","routers":[],"ports":[{{"name":"up0","rate_bps":1000000000}}],
                "slices":[{{"name":"gold","send":{share},"receive":{share}}}],
                "vifs":[{{"name":"v","slice":"gold","port":"up0","device":"v","send":{share},
                    "send_queue":{queue},"receive":{share},"receive_queue":{queue},
                    "overhead_bytes":0,"header_bytes":4}}]}}"#
        );
        fake.carry(serde_json::from_str(&policy).unwrap(), sending);
        let file = std::env::temp_dir().join(format!("weir-t-verify-{}.toml", std::process::id()));
        let plan = format!(
            "[[node]]\nname = \"n\"\nlink = \"1Gbit\"\ncpu = \"100%\"\napi = \"{}\"\n\
             [[slice]]\nname = \"gold\"\nsend = \"8Mbit\"\nframes = \"1004B\"\ncpu = \"1%\"\n\
             delay = \"2ms\"\n",
            fake.api().display()
        );
        std::fs::write(&file, plan).unwrap();
        let verify = || PlanVerify { file: file.clone(), span: Nanos::from_secs(2), json: true };
        let request = read(&file).unwrap();
        let view = verify().measured(&request, &placed(&request).unwrap()).unwrap();
        let node = &view.nodes[0];
        assert_eq!((view.verdict, &node.problems[..]), (PlanVerdict::Unproven, &[][..]));
        let gold = &node.slices[0];
        assert_eq!(gold.send.verdict, PlanVerdict::Held, "{gold:?}");
        let unproven = gold.receive.unproven.as_ref().unwrap();
        assert_eq!(unproven.reason, UnprovenReason::OfferedNothing);
        let delay = gold.delay.as_ref().unwrap();
        assert_eq!((delay.verdict, delay.longest_ns), (PlanVerdict::Held, 1_000_000), "{delay:?}");
        let code = verify().run().unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(7)));
        std::fs::remove_file(&file).unwrap();
    }

    /// Goal: a cycle of whole milliseconds is not met at the same place again and again.
    #[test]
    fn samples_are_taken_at_uneven_intervals() {
        let pauses: Vec<_> = (0..100).map(|turn| pause(turn).as_micros()).collect();
        assert!(pauses.iter().all(|pause| (25_000..75_000).contains(pause)), "{pauses:?}");
        let mut places: Vec<_> = pauses.iter().map(|pause| pause % 1000 / 100).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 10, "each tenth of a millisecond is met");
    }

    #[test]
    fn keys_that_are_not_as_planned_are_named() {
        let edit = |key: &str, before: &str| EditView {
            table: "slice".into(),
            name: "gold".into(),
            key: key.into(),
            before: before.into(),
            after: "5Mbit".into(),
        };
        let edits = vec![edit("send.rate", "5Mbit"), edit("send.min_rate", "1Mbit")];
        let (who, kind) = ("uid 0".to_owned(), weir_api_types::change::ChangeOrigin::Change);
        let change =
            ChangeView { id: 1, at_unix_ms: 0, who, kind, undoes: None, apply: None, edits };
        let named = not_in_force(&change);
        assert_eq!(named, ["slice gold: send.min_rate is \"1Mbit\", planned \"5Mbit\""]);
    }
}
