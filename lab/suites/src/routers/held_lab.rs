// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lab of routers whose nodes are running `weir node run`s: they hold them, and are asked as an
//! operator asks. What is judged is counted beside them, at the nodes' ends of the devices.

use std::ops::Range;
use std::process::Child;

use weir_api_types::xtc::{DecisionView, RouterView, XtcChange};
use weir_client::{Client, Method};
use weir_control::Reading;
use weir_control::Sample;
use weir_experiment::clock;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_platform::cpu;
use weir_platform::meter::{LinkMeter, Side};
use weir_platform::process::Identity;
use weir_platform::run::{Host, Platform};
use weir_policy::{
    ActuatorKind, ControllerKind, Interface, Port, Reservation, Router, RouterXtc, Slice, SliceId,
    Vif, XtcState,
};
use weir_testbed::{Lab, Topology};
use weir_units::CpuShare;

use super::crossed::Crossed;
use super::ingress::RouterLine;
use super::kinds::RouterKind;
use super::plan::{self, At, Plan};
use super::sampling::{RouterSample, urgent};
use super::{lab, router};

/// Routers that are up behind nodes that hold none of them yet. All of it is gone with this value.
pub(crate) struct HeldLab {
    plan: Plan,
    // Here in the order in which they go: the nodes hand back what they hold.
    nodes: Vec<Front>,
    forwarders: Vec<ForwarderProcess>,
    _lab: Lab,
    _places: Vec<RunFolder>,
}

/// A node, and the routers behind it.
struct Front {
    node: NodeProcess,
    /// Counts for each of its routers, then what comes to each from the side of the source.
    meter: LinkMeter,
    routers: Range<usize>,
}

/// The process of a router that is one.
struct ForwarderProcess {
    router: usize,
    child: Child,
}

impl ForwarderProcess {
    /// Starts a router's process, and says which one it is.
    fn start(
        plan: &Plan,
        lab: &Lab,
        place: &RunFolder,
        router: usize,
    ) -> Result<Self, ExperimentError> {
        let namespace = lab.namespace(&name(router))?;
        let started = Self { router, child: router::forward_in(plan, &namespace, router)? };
        let file = pid_file(place, router);
        std::fs::write(&file, started.child.id().to_string())
            .map_err(|error| ExperimentError::io(&file, error))?;
        Ok(started)
    }
}

impl Drop for ForwarderProcess {
    fn drop(&mut self) {
        // It has no state to save; a cap could make it slow to end by itself.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl HeldLab {
    /// Brings it up. What an earlier run of the same name left when it was killed is undone first.
    /// Call it from a thread that lives as long as the lab should.
    pub(crate) fn up(plan: Plan) -> Result<Self, ExperimentError> {
        // From here on a signal ends the run, which takes down what was built.
        weir_traffic::stop_on_signals()?;
        let (state, fronts) = (StateDir::from_env(), plan.nodes());
        // Each node has a place of its own, the first that of the lab. That is taken last: what an
        // earlier run left is undone before the devices that it is of.
        let names = (0..fronts.len()).map(|number| node_name(&plan, number)).rev();
        let mut places =
            names.map(|name| RunFolder::take(&name, &state)).collect::<Result<Vec<_>, _>>()?;
        places.reverse();
        let topology = Topology::parse(&plan.topology())
            .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
        let lab = Lab::up(topology, &state)?;
        for command in plan.receiving() {
            Host::default().run(&command)?;
        }
        let mut forwarders = Vec::new();
        let mut nodes = Vec::new();
        for (number, ((node, routers), place)) in fronts.into_iter().zip(&places).enumerate() {
            for router in
                routers.clone().filter(|router| plan.kinds[*router] == RouterKind::Process)
            {
                forwarders.push(ForwarderProcess::start(&plan, &lab, place, router)?);
            }
            let namespace = lab.namespace(&node)?;
            let lines = plan.lines()[routers.clone()].to_vec();
            let meter = namespace.run(|| meter(&lines))??;
            let policy = policy(&plan, &node_name(&plan, number), place, routers.clone());
            let node = NodeProcess::start(namespace, &policy, place)?;
            nodes.push(Front { node, meter, routers });
        }
        Ok(Self { plan, nodes, forwarders, _lab: lab, _places: places })
    }

    /// A client of the node in front of a router.
    fn client(&self, router: usize) -> Result<Client, ExperimentError> {
        let front = self.nodes.iter().find(|front| front.routers.contains(&router));
        let missing = || ExperimentError::Node(format!("no router {router}"));
        front.map(|front| front.node.client()).ok_or_else(missing)
    }

    /// Has its node hold a router at a rate; what was decided by then is in force.
    pub(crate) fn hold(&self, router: usize, set_point: PacketRate) -> Result<(), ExperimentError> {
        let state = Some(XtcState::Active.name().to_owned());
        let set_point_pps = Some(set_point.as_pps());
        self.change(router, &XtcChange { set_point_pps, state, ..XtcChange::default() })
    }

    /// Has the node hold a router at a rate in one of its ways.
    pub(crate) fn hold_by(
        &self,
        router: usize,
        controller: ControllerKind,
        set_point: PacketRate,
    ) -> Result<(), ExperimentError> {
        let controller = Some(controller.name().to_owned());
        self.change(router, &XtcChange { controller, ..XtcChange::default() })?;
        self.hold(router, set_point)
    }

    /// Has the node take cap and limit of a router away.
    pub(crate) fn release(&self, router: usize) -> Result<(), ExperimentError> {
        let state = Some(XtcState::Off.name().to_owned());
        self.change(router, &XtcChange { state, ..XtcChange::default() })
    }

    /// Has a router never get a larger cap than this.
    pub(crate) fn bound(&self, router: usize, most: CpuShare) -> Result<(), ExperimentError> {
        let cap_max_ppm = Some(most.as_ppm());
        self.change(router, &XtcChange { cap_max_ppm, ..XtcChange::default() })
    }

    fn change(&self, router: usize, change: &XtcChange) -> Result<(), ExperimentError> {
        let client = self.client(router)?;
        let asked = client.ask::<serde_json::Value>(Method::PATCH, &path(router), Some(change));
        asked.map(drop).map_err(|error| ExperimentError::Node(error.to_string()))
    }

    /// How the node says that a router is.
    pub(crate) fn status(&self, router: usize) -> Result<RouterView, ExperimentError> {
        let asked = self.client(router)?.get(&path(router));
        asked.map_err(|error| ExperimentError::Node(error.to_string()))
    }

    /// The node's newest decisions on a router, oldest first.
    pub(crate) fn log(
        &self,
        router: usize,
        newest: usize,
    ) -> Result<Vec<DecisionView>, ExperimentError> {
        let path = format!("{}/log?newest={newest}", path(router));
        self.client(router)?.get(&path).map_err(|error| ExperimentError::Node(error.to_string()))
    }

    /// Counts what a router forwards in each of `count` periods from now on; with the node's caps,
    /// limits and CPU times of about the same periods.
    pub(crate) fn watch(
        &mut self,
        router: usize,
        count: usize,
    ) -> Result<Vec<RouterSample>, ExperimentError> {
        let samples = self.watch_all(count)?.into_iter().nth(router).unwrap_or_default();
        let log = self.log(router, count)?;
        let missing = samples.len().saturating_sub(log.len());
        let decided = std::iter::repeat_n(None, missing).chain(log.iter().map(Some));
        let taken = |(sample, decision): (Sample, Option<&DecisionView>)| {
            // Of a second, or of a million: what it is of the sample.
            let part = |value: u64, of: u64| {
                let product = u128::from(value) * u128::from(sample.span.as_nanos());
                u64::try_from(product / u128::from(of)).unwrap_or(u64::MAX)
            };
            let offered = decision.and_then(|one| one.offered_pps);
            let used = decision.and_then(|one| one.used_ppm);
            RouterSample {
                sample: Sample {
                    offered: offered.map(|pps| part(pps, 1_000_000_000)),
                    cpu: used.map(|ppm| Nanos::new(part(ppm.into(), 1_000_000))),
                    ..sample
                },
                cap: decision
                    .and_then(|one| one.cap_ppm)
                    .map_or(CpuShare::ZERO, CpuShare::from_ppm),
                limit: decision.and_then(|one| one.limit_pps).map(PacketRate::from_pps),
                reason: None,
            }
        };
        Ok(samples.into_iter().zip(decided).map(taken).collect())
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

    fn read(&mut self) -> Result<Vec<Reading>, ExperimentError> {
        let mut readings = Vec::with_capacity(self.plan.kinds.len());
        for front in &mut self.nodes {
            front.meter.read(weir_dataplane::clock::now())?;
            for (place, router) in front.routers.clone().enumerate() {
                let of = |place| {
                    let gone =
                        || ExperimentError::Node(format!("router {router}: an interface is gone"));
                    front.meter.reading(place).ok_or_else(gone)
                };
                let (forwarded, came) = (of(place)?, of(front.routers.len() + place)?);
                readings.push(Reading { offered: Some(came.packets), ..forwarded });
            }
        }
        Ok(readings)
    }
}

impl Crossed for HeldLab {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn process(&self, router: usize) -> Option<Identity> {
        let found = self.forwarders.iter().find(|one| one.router == router)?;
        Identity::of(found.child.id())
    }

    fn forwarded(&mut self, router: usize) -> Result<u64, ExperimentError> {
        let missing = || ExperimentError::Node(format!("no router {router}"));
        self.read()?.get(router).map(|reading| reading.packets).ok_or_else(missing)
    }
}

/// The routers of one node, and then its ports towards the source.
fn meter(lines: &[RouterLine]) -> Result<LinkMeter, ExperimentError> {
    let mut meter = lab::meter(lines)?;
    for line in lines {
        let [source, ..] = line.devices.clone();
        meter.add(&[(source, Side::Host)])?;
    }
    Ok(meter)
}

/// The first node has the lab's name.
fn node_name(plan: &Plan, number: usize) -> String {
    match number {
        0 => plan.name.clone(),
        number => format!("{}-{}", plan.name, number + 1),
    }
}

/// For each router a port towards its source and one towards its sink, its own two vifs on them,
/// and a vif each for who probes, where he is there, and who answers.
fn policy(plan: &Plan, node: &str, place: &RunFolder, routers: Range<usize>) -> Policy {
    let mut policy = Policy::new(node);
    // The routers have the processor that a worker would choose.
    policy.node.worker_cpu = cpu::division().others.last().copied();
    policy.node.reservation = Reservation::Fifo;
    // Where processors are full, what the worker has to do is missing elsewhere.
    policy.node.redirect = plan.contends();
    let slice = policy.add_slice(Slice::new("gold"));
    let lines = plan.lines().into_iter().zip(&plan.kinds).enumerate();
    for (number, (line, kind)) in lines.filter(|(number, _)| routers.contains(number)) {
        let [source, inside, outside, sink, prober, answerer] = line.devices;
        let router = policy.add_router(Router {
            xtc: Some(xtc(plan, place, number, *kind)),
            ..Router::new(&name(number), slice)
        });
        let ports = [source, sink]
            .map(|device| policy.add_port(Port::new(&device, BitRate::from_mbps(PORT_MBPS))));
        let [_, inner, outer, _, asks, answers] = line.macs;
        for (device, mac, port) in [(inside, inner, ports[0]), (outside, outer, ports[1])] {
            policy.add_vif(Vif { router: Some(router), ..vif(&device, slice, port, mac) });
        }
        for (at, device, mac, port) in
            [(At::Prober, prober, asks, ports[0]), (At::Answerer, answerer, answers, ports[1])]
        {
            if plan.has(number, at) {
                policy.add_vif(vif(&device, slice, port, mac));
            }
        }
    }
    if policy.node.redirect {
        policy.ports.iter_mut().for_each(|port| port.kind = weir_policy::Kind::Xdp);
        policy.vifs.iter_mut().for_each(|vif| vif.kind = weir_policy::Kind::Xdp);
    }
    let needed = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    policy.node.frames = policy.node.frames.max(needed);
    policy
}

fn vif(device: &str, slice: SliceId, port: weir_policy::PortId, mac: weir_policy::MacAddr) -> Vif {
    let mut vif = Vif::new(device, slice, port);
    vif.macs = vec![mac];
    for queue in [&mut vif.send_queue, &mut vif.receive_queue] {
        queue.packets = QUEUE_PACKETS;
        queue.bytes = weir_units::ByteCount::new(u64::from(QUEUE_PACKETS) * 1536);
    }
    vif
}

/// Off at first: whoever wants it held says so.
fn xtc(plan: &Plan, place: &RunFolder, number: usize, kind: RouterKind) -> RouterXtc {
    let actuator = match kind {
        RouterKind::Process => ActuatorKind::Cgroup,
        RouterKind::Namespace => ActuatorKind::Napi,
    };
    let mut xtc = RouterXtc::new(PacketRate::from_pps(1), actuator);
    (xtc.set_point, xtc.state) = (None, XtcState::Off);
    xtc.period = plan.sampling;
    // As the text's routers have it: one processor.
    xtc.cap_max = Some(CpuShare::ONE);
    match kind {
        RouterKind::Process => {
            xtc.process = Some(pid_file(place, number).display().to_string());
        }
        RouterKind::Namespace => {
            xtc.namespace = Some(plan.namespace(&format!("vr{}", number + 1)));
            let ends = [(At::Inside, 'b'), (At::Outside, 'c')];
            xtc.interfaces = ends
                .map(|(at, letter)| Interface {
                    device: format!("{letter}{}", number + 1),
                    inside: Some(plan::device(number, at)),
                })
                .to_vec();
        }
    }
    xtc
}

fn pid_file(place: &RunFolder, number: usize) -> std::path::PathBuf {
    place.folder().join(format!("vr{}.pid", number + 1))
}

fn name(router: usize) -> String {
    format!("vr{}", router + 1)
}

fn path(router: usize) -> String {
    format!("/v1/xtc/{}", name(router))
}

/// More than any router of the lab forwards: only packets are limited.
const PORT_MBPS: u64 = 10_000;

/// Room for 50 ms of 40 kp/s, twice.
const QUEUE_PACKETS: u32 = 4096;

/// More than any router of the lab forwards: held at it, a router is held by its largest cap alone.
pub(crate) const UNLIMITED: PacketRate = PacketRate::from_pps(5_000_000);

/// The period of all rows that hold routers so.
pub(crate) const SAMPLING: Nanos = Nanos::from_millis(100);
