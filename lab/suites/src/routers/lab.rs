// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lab of routers that is up.
//!
//! Each router stands behind a running `weir node run`, whose control loop holds it as the policy
//! says. An experiment changes that policy, as an operator would, and counts packets beside the
//! node, at its ends of the devices. It takes caps, limits and CPU times from the node's log.

use std::ops::Range;

use weir_api_types::xtc::{DecisionView, RouterView};
use weir_control::{Reading, Sample};
use weir_experiment::clock;
use weir_experiment::lab_process::LabProcess;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_platform::cpu::{CpuRequest, CpuReservation, SchedulingClass};
use weir_platform::meter::{LinkMeter, Side};
use weir_platform::process::Identity;
use weir_platform::run::{Host, Platform};
use weir_policy::{ControllerKind, Policy, RouterXtc, XtcState};
use weir_testbed::{Lab, Topology};
use weir_units::CpuShare;

use super::lab_policy::{self, name, pid_file};
use super::plan::{Plan, RouterLine};
use super::sample::{RouterSample, mean, pps, rate};

/// Running routers behind nodes that hold none of them yet. Dropping this value takes everything
/// down.
pub(crate) struct RouterLab {
    plan: Plan,
    // In the order of dropping: first the nodes hand back what they hold.
    nodes: Vec<LabNode>,
    forwarders: Vec<(usize, LabProcess)>,
    _lab: Lab,
    _places: Vec<RunFolder>,
}

/// A node, and the routers behind it.
struct LabNode {
    process: NodeProcess,
    policy: Policy,
    /// Counts what each of its routers forwards, then what comes to each from the side of the
    /// source.
    meter: LinkMeter,
    routers: Range<usize>,
}

impl RouterLab {
    /// Brings a lab up. Leftovers of an earlier run of the same name are undone first. Call it from
    /// a thread that lives as long as the lab should.
    pub(crate) fn up(plan: Plan) -> Result<Self, ExperimentError> {
        plan.check()?;
        if !weir_platform::process::is_root() {
            let (what, needs) = (format!("lab {}", plan.name), "root".to_owned());
            return Err(ExperimentError::Missing { what, needs });
        }
        // From here on a signal ends the run, which takes down what was built.
        weir_traffic::stop_on_signals()?;
        let (state, fronts) = (StateDir::from_env(), plan.nodes());
        // Each node has a folder of its own; the first node's is the lab's, and is taken last.
        // Leftovers of the other nodes are therefore undone before the lab's devices.
        let names = (0..fronts.len()).map(|number| plan.node_name(number)).rev();
        let mut places =
            names.map(|name| RunFolder::take(&name, &state)).collect::<Result<Vec<_>, _>>()?;
        places.reverse();
        let topology = Topology::parse(&plan.topology())
            .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
        let lab = Lab::up(topology, &state)?;
        for command in plan.receiving() {
            Host::default().run(&command)?;
        }
        let (mut nodes, mut forwarders) = (Vec::new(), Vec::new());
        for (number, ((node, routers), place)) in fronts.into_iter().zip(&places).enumerate() {
            for router in plan.processes(routers.clone()) {
                forwarders.push((router, forwarder(&plan, &lab, place, router)?));
            }
            let namespace = lab.namespace(&node)?;
            let meter = namespace.run(|| meter(&plan.lines()[routers.clone()]))??;
            let policy = lab_policy::policy(&plan, number, place, routers.clone());
            let process = NodeProcess::start(namespace, &policy, place)?;
            nodes.push(LabNode { process, policy, meter, routers });
        }
        Ok(Self { plan, nodes, forwarders, _lab: lab, _places: places })
    }

    /// Returns its plan.
    pub(crate) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the process of a router; `None` if the router is a namespace.
    pub(crate) fn process(&self, router: usize) -> Option<Identity> {
        let (_, found) = self.forwarders.iter().find(|(number, _)| *number == router)?;
        found.identity()
    }

    /// Changes the node's policy of a router. The new settings are in force on return.
    pub(crate) fn control(
        &mut self,
        router: usize,
        change: impl FnOnce(&mut RouterXtc),
    ) -> Result<(), ExperimentError> {
        let node = self.nodes.iter_mut().find(|node| node.routers.contains(&router));
        let node = node.ok_or_else(|| no_router(router))?;
        let own = node.policy.routers.iter_mut().find(|one| one.name == name(router));
        change(own.and_then(|one| one.xtc.as_mut()).ok_or_else(|| no_router(router))?);
        // A node that is busy with its routers refuses.
        let mut reloaded = node.process.reload(&node.policy);
        for _ in 1..RELOADS_MAX {
            if reloaded.is_ok() {
                break;
            }
            clock::sleep(RELOAD_PAUSE)?;
            reloaded = node.process.reload(&node.policy);
        }
        reloaded
    }

    /// Has its node hold a router at a rate by a controller.
    pub(crate) fn hold(
        &mut self,
        router: usize,
        controller: ControllerKind,
        set_point: PacketRate,
    ) -> Result<(), ExperimentError> {
        self.control(router, |xtc| {
            (xtc.controller, xtc.set_point) = (controller, Some(set_point));
            xtc.state = XtcState::Active;
        })
    }

    /// Has the nodes hold each router at its rate in `wanted`, in packets a second.
    pub(crate) fn hold_all(
        &mut self,
        controller: ControllerKind,
        wanted: &[f64],
    ) -> Result<(), ExperimentError> {
        let mut routers = wanted.iter().enumerate();
        routers.try_for_each(|(router, wanted)| self.hold(router, controller, pps(*wanted)))
    }

    /// Has the node take cap and limit of a router away.
    pub(crate) fn release(&mut self, router: usize) -> Result<(), ExperimentError> {
        self.control(router, |xtc| xtc.state = XtcState::Off)
    }

    /// Holds a router by a constant cap for `count` samples, the first of which begins with it.
    pub(crate) fn hold_cap(
        &mut self,
        router: usize,
        cap: CpuShare,
        count: usize,
    ) -> Result<Vec<RouterSample>, ExperimentError> {
        self.control(router, |xtc| {
            (xtc.controller, xtc.map) = (ControllerKind::Fixed, lab_policy::CAP_BY_RATE.to_vec());
            xtc.set_point = Some(PacketRate::from_pps(cap.as_ppm().into()));
            xtc.state = XtcState::Active;
        })?;
        let cap = self.cap(router)?;
        let taken = self.watch(router, count)?.into_iter();
        Ok(taken.map(|one| RouterSample { cap, ..one }).collect())
    }

    /// Measures what a router forwards with its largest cap.
    pub(crate) fn capacity(&mut self, router: usize) -> Result<PacketRate, ExperimentError> {
        Ok(mean(&self.at_capacity(router)?))
    }

    /// Watches a router with its largest cap for some seconds, in which it forwards something.
    pub(super) fn at_capacity(
        &mut self,
        router: usize,
    ) -> Result<Vec<RouterSample>, ExperimentError> {
        let second = self.plan.samples(1);
        self.hold_cap(router, CpuShare::ONE, second)?;
        let taken = self.watch(router, CAPACITY_S * second)?;
        // A set-point that is a part of zero would always hold.
        let nothing = "the router forwards nothing with its largest cap";
        (mean(&taken) > PacketRate::ZERO)
            .then_some(taken)
            .ok_or_else(|| ExperimentError::Node(nothing.to_owned()))
    }

    /// Returns the cap in force on a router.
    pub(crate) fn cap(&self, router: usize) -> Result<CpuShare, ExperimentError> {
        let none = || ExperimentError::Node("the node holds the router by no cap".to_owned());
        Ok(CpuShare::from_ppm(self.status(router)?.cap_ppm.ok_or_else(none)?))
    }

    /// Asks the node for the status of a router.
    pub(crate) fn status(&self, router: usize) -> Result<RouterView, ExperimentError> {
        self.ask(router, "")
    }

    /// Asks the node for the newest decisions on a router, oldest first.
    pub(crate) fn log(
        &self,
        router: usize,
        newest: usize,
    ) -> Result<Vec<DecisionView>, ExperimentError> {
        self.ask(router, &format!("/log?newest={newest}"))
    }

    fn ask<T: serde::de::DeserializeOwned>(
        &self,
        router: usize,
        what: &str,
    ) -> Result<T, ExperimentError> {
        let node = self.nodes.iter().find(|node| node.routers.contains(&router));
        let client = node.ok_or_else(|| no_router(router))?.process.client();
        let asked = client.get(&format!("/v1/xtc/{}{what}", name(router)));
        asked.map_err(|error| ExperimentError::Node(error.to_string()))
    }

    /// Counts what a router forwards in each of `count` periods from now on, beside the decisions
    /// that the node makes meanwhile.
    pub(crate) fn watch(
        &mut self,
        router: usize,
        count: usize,
    ) -> Result<Vec<RouterSample>, ExperimentError> {
        let newest = self.log(router, 1)?.last().map(|decision| decision.number);
        let samples = self.watch_all(count)?.into_iter().nth(router).unwrap_or_default();
        let mut made = self.log(router, lab_policy::LOG as usize)?;
        // The sample of the first new decision began before this call.
        made.retain(|one| Some(one.number) > newest.map(|number| number + 1));
        made.retain(|one| one.rate_pps.is_some());
        let part = |at: usize| at * made.len() / samples.len().max(1);
        let beside = |(at, sample): (usize, &Sample)| {
            beside(*sample, made.get(part(at)..part(at + 1)).unwrap_or_default())
        };
        Ok(samples.iter().enumerate().map(beside).collect())
    }

    /// Counts what each router forwards in each of `count` periods from now on, and, as offered,
    /// what comes to its node from the side of the source.
    pub(crate) fn watch_all(&mut self, count: usize) -> Result<Vec<Vec<Sample>>, ExperimentError> {
        let _urgent = urgent()?;
        let mut before = self.read()?;
        let mut next_ns = clock::monotonic_ns();
        let mut samples = vec![Vec::with_capacity(count); before.len()];
        for _ in 0..count {
            next_ns = next_ns.saturating_add(self.plan.sampling.as_nanos());
            clock::sleep_until(next_ns)?;
            let now = self.read()?;
            for ((now, before), samples) in now.iter().zip(&before).zip(&mut samples) {
                let packets = now.packets.wrapping_sub(before.packets);
                let span = now.at.saturating_since(before.at);
                let offered = now.offered.zip(before.offered);
                let offered = offered.map(|(now, before)| now.wrapping_sub(before));
                samples.push(Sample { span, packets, offered, ..Sample::default() });
            }
            before = now;
        }
        Ok(samples)
    }

    /// Measures what each router forwards in the mean of `count` periods from now on, in packets a
    /// second.
    pub(crate) fn rates(&mut self, count: usize) -> Result<Vec<f64>, ExperimentError> {
        Ok(self.watch_all(count)?.iter().map(|samples| rate(samples, |one| one.packets)).collect())
    }

    /// Reads the packets that a router has forwarded so far.
    pub(crate) fn forwarded(&mut self, router: usize) -> Result<u64, ExperimentError> {
        let readings = self.read()?;
        readings.get(router).map(|reading| reading.packets).ok_or_else(|| no_router(router))
    }

    fn read(&mut self) -> Result<Vec<Reading>, ExperimentError> {
        let mut readings = Vec::with_capacity(self.plan.kinds.len());
        for node in &mut self.nodes {
            node.meter.read(weir_dataplane::clock::now())?;
            for (place, router) in node.routers.clone().enumerate() {
                let of = |place| {
                    let gone =
                        || ExperimentError::Node(format!("router {router}: an interface is gone"));
                    node.meter.reading(place).ok_or_else(gone)
                };
                let (forwarded, came) = (of(place)?, of(node.routers.len() + place)?);
                readings.push(Reading { offered: Some(came.packets), ..forwarded });
            }
        }
        Ok(readings)
    }
}

/// Adds to a sample what the node decided meanwhile.
fn beside(sample: Sample, decisions: &[DecisionView]) -> RouterSample {
    let span_ns = u128::from(sample.span.as_nanos());
    let mean = |value: fn(&DecisionView) -> Option<u64>| {
        let seen: Vec<u64> = decisions.iter().filter_map(value).collect();
        seen.iter().sum::<u64>().checked_div(seen.len() as u64)
    };
    // Scales a value a second, or in millionths, to the length of the sample.
    let part = |value: u64, whole: u128| {
        u64::try_from(u128::from(value) * span_ns / whole).unwrap_or(u64::MAX)
    };
    let cap = mean(|one| one.cap_ppm.map(u64::from)).unwrap_or(0);
    let used = mean(|one| one.used_ppm.map(u64::from));
    RouterSample {
        sample: Sample {
            offered: mean(|one| one.offered_pps).map(|pps| part(pps, 1_000_000_000)),
            cpu: used.map(|ppm| Nanos::new(part(ppm, 1_000_000))),
            ..sample
        },
        cap: CpuShare::from_ppm(u32::try_from(cap).unwrap_or(u32::MAX)),
        limit: mean(|one| one.limit_pps).map(PacketRate::from_pps),
        reason: decisions.last().and_then(|one| one.reason.clone()),
    }
}

/// Starts the process of a router in its namespace, and leaves its number in a file for the node.
fn forwarder(
    plan: &Plan,
    lab: &Lab,
    place: &RunFolder,
    router: usize,
) -> Result<LabProcess, ExperimentError> {
    let batch = plan.contends().then(|| "--batch".to_owned());
    let sides = plan.sides(router).map(|side| side.to_string());
    let arguments = batch.into_iter().chain(sides);
    let started = LabProcess::start("router", arguments, &lab.namespace(&name(router))?)?;
    let file = pid_file(place, router);
    std::fs::write(&file, started.id().to_string())
        .map_err(|error| ExperimentError::io(&file, error))?;
    Ok(started)
}

/// Makes the meter of the routers of one node and, after them, of its ports towards the source.
/// Call it in the node's namespace: it counts at that end of the devices.
fn meter(lines: &[RouterLine]) -> Result<LinkMeter, ExperimentError> {
    let mut meter = LinkMeter::open()?;
    for line in lines {
        let [_, inside, outside, ..] = line.devices.clone();
        meter.add(&[(inside, Side::Host), (outside, Side::Host)])?;
    }
    for line in lines {
        let [source, ..] = line.devices.clone();
        meter.add(&[(source, Side::Host)])?;
    }
    Ok(meter)
}

fn no_router(router: usize) -> ExperimentError {
    ExperimentError::Node(format!("no router {router}"))
}

/// Gives the calling thread priority on a busy processor. It sleeps nearly all the time.
fn urgent() -> Result<CpuReservation, ExperimentError> {
    Ok(CpuReservation::take(CpuRequest {
        cpu: None,
        class: SchedulingClass::Fifo { priority: 1 },
    })?)
}

/// The attempts to have a node take a policy, and the time between them. On a busy machine a node
/// may need seconds to give the threads of a namespace back and to take them again.
const RELOADS_MAX: usize = 5;
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// Seconds in which a capacity is measured.
const CAPACITY_S: usize = 3;

#[cfg(test)]
mod tests {
    use weir_platform::{netns, process};

    use super::*;
    use crate::routers::{RouterKind, RouterLoad, RouterTraffic, SAMPLING};

    const TRIES: usize = 8;

    /// Goal: packets flow through a namespace router, meter and sink agree, the limit at ingress
    /// lets in what it says, and nothing is left. Method: four times as much comes as may.
    #[test]
    fn a_namespace_router_forwards_what_its_limit_lets_in() {
        const TEST: &str = "a_namespace_router_forwards_what_its_limit_lets_in";
        if !process::is_root() {
            return println!("SKIPPED {TEST}: needs root");
        }
        println!("ON THE HOST");
        let plan = Plan::one("xtc-test", RouterKind::Namespace, SAMPLING).redirected();
        let mut lab = RouterLab::up(plan).unwrap();
        let load = RouterTraffic::one(RouterLoad::Udp(Some(20_000)));
        let (counts, flowed) = load
            .beside(&mut lab, |lab| {
                lab.hold(0, ControllerKind::Combined, PacketRate::from_pps(5000))?;
                let mut seconds = (0..TRIES).map(|_| lab.watch(0, 10));
                let holds = |seen: &Vec<RouterSample>| {
                    let samples: Vec<Sample> = seen.iter().map(|one| one.sample).collect();
                    let offered = rate(&samples, |one| one.offered.unwrap_or(0));
                    let forwarded = rate(&samples, |one| one.packets);
                    println!("{offered:.0} packets a second offered, {forwarded:.0} forwarded");
                    (10_000.0..22_000.0).contains(&offered)
                        && (4_500.0..5_500.0).contains(&forwarded)
                };
                seconds.find(|seen| seen.as_ref().map_or(true, holds)).transpose()
            })
            .unwrap();
        // Generator and router wait for their processors, for half a second where the machine's
        // host takes them; a limit that lets in too much does so in each second.
        assert!(counts.is_some(), "in none of {TRIES} seconds");
        assert_eq!(flowed.metered, flowed.arrived().collect::<Vec<u64>>());
        let threads = weir_platform::cap::napi::threads_named("i1");
        assert!(!threads.is_empty() && netns::exists("xtc-test-namespace-vr1"));
        drop(lab);
        assert!(
            !netns::exists("xtc-test-namespace-vr1") && !netns::exists("xtc-test-namespace-src")
        );
    }

    /// Goal: settings and CPU time are those of the decisions, by the length of the sample.
    #[test]
    fn a_sample_has_what_the_node_decided_meanwhile() {
        let decision = |cap_ppm, offered_pps| DecisionView {
            number: 0,
            at_unix_ms: 0,
            set_point_pps: 1000,
            rate_pps: Some(1000),
            offered_pps: Some(offered_pps),
            used_ppm: Some(100_000),
            error_pps: None,
            cap_ppm: Some(cap_ppm),
            limit_pps: None,
            reason: Some("held".to_owned()),
            no_headroom: false,
            text: String::new(),
        };
        let span = Nanos::from_millis(500);
        let sample = Sample { span, packets: 400, ..Sample::default() };
        let seen = beside(sample, &[decision(200_000, 1000), decision(400_000, 3000)]);
        assert_eq!((seen.cap, seen.limit), (CpuShare::from_percent(30), None));
        assert_eq!(
            (seen.sample.offered, seen.sample.cpu),
            (Some(1000), Some(Nanos::from_millis(50)))
        );
        assert_eq!(
            (seen.rate().to_bits(), seen.reason.as_deref()),
            (800_f64.to_bits(), Some("held"))
        );
        let alone = beside(sample, &[]);
        assert_eq!((alone.cap, alone.sample.cpu, alone.reason), (CpuShare::ZERO, None, None));
    }
}
