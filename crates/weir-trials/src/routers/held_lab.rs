// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lab of routers whose node is a running `weir node run`: it holds them, and is asked as an
//! operator asks. What is judged is counted beside it, at the node's ends of the routers' devices.

use std::process::Child;

use weir_api::client::Method;
use weir_api::xtc::{DecisionView, RouterView, XtcChange};
use weir_control::Sample;
use weir_control::manage::Reading;
use weir_host::StateDir;
use weir_host::lab::{Lab, Topology};
use weir_host::meter::LinkMeter;
use weir_host::process::Identity;
use weir_host::run::{Host, Platform};
use weir_host::{cpu, traffic};
use weir_policy::{
    ActuatorKind, ControllerKind, Interface, MacAddr, Policy, Port, Reservation, Router, RouterXtc,
    Slice, SliceId, Vif, XtcState,
};
use weir_units::{BitRate, CpuShare, Nanos, PacketRate};

use super::plan::{self, At, Plan};
use super::sampling::{Taken, urgent};
use super::{Crossed, Kind, lab, router};
use crate::node::NodeProcess;
use crate::place::Place;
use crate::{TrialError, clock};

/// Routers that are up behind a node that holds none of them yet. All of it is gone with this
/// value.
pub(crate) struct HeldLab {
    plan: Plan,
    // Here in the order in which they go: the node hands back what it holds.
    node: NodeProcess,
    forwarders: Vec<Forwarder>,
    meter: LinkMeter,
    _lab: Lab,
    _place: Place,
}

/// The process of a router that is one.
struct Forwarder {
    router: usize,
    child: Child,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // It has no state to save; a cap could make it slow to end by itself.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl HeldLab {
    /// Brings it up. What an earlier run of the same name left when it was killed is undone first.
    /// Call it from a thread that lives as long as the lab should.
    ///
    /// # Errors
    /// The lab cannot be made, or its node does not start; another process runs the same lab.
    pub(crate) fn up(plan: Plan) -> Result<Self, TrialError> {
        // From here on a signal ends the run, which takes down what was built.
        traffic::stop_on_signals()?;
        let place = Place::take(&plan.name, &StateDir::from_env())?;
        let topology = Topology::parse(&plan.topology())
            .map_err(|problems| TrialError::Node(problems.to_string()))?;
        let lab = Lab::up(topology, place.state())?;
        for command in plan.receiving() {
            Host::default().run(&command)?;
        }
        let mut forwarders = Vec::new();
        for (number, kind) in plan.kinds.iter().enumerate() {
            if *kind == Kind::Process {
                let namespace = lab.namespace(&format!("vr{}", number + 1))?;
                let child = router::forward_in(&namespace, number)?;
                let file = pid_file(&place, number);
                std::fs::write(&file, child.id().to_string())
                    .map_err(|error| TrialError::io(&file, error))?;
                forwarders.push(Forwarder { router: number, child });
            }
        }
        let namespace = lab.namespace("node")?;
        let meter = namespace.run(|| lab::meter(&plan))??;
        let node = NodeProcess::start(namespace, &policy(&plan, &place), &place)?;
        Ok(Self { plan, node, forwarders, meter, _lab: lab, _place: place })
    }

    /// Has the node hold a router at a rate; what was decided by then is in force.
    ///
    /// # Errors
    /// The node refuses it, or does not answer.
    pub(crate) fn hold(&self, router: usize, set_point: PacketRate) -> Result<(), TrialError> {
        let state = Some(XtcState::Active.name().to_owned());
        let set_point_pps = Some(set_point.as_pps());
        self.change(router, &XtcChange { set_point_pps, state, ..XtcChange::default() })
    }

    /// Has the node hold a router at a rate in one of its ways.
    ///
    /// # Errors
    /// As [`Self::hold`].
    pub(crate) fn hold_by(
        &self,
        router: usize,
        controller: ControllerKind,
        set_point: PacketRate,
    ) -> Result<(), TrialError> {
        let controller = Some(controller.name().to_owned());
        self.change(router, &XtcChange { controller, ..XtcChange::default() })?;
        self.hold(router, set_point)
    }

    /// Has the node take cap and limit of a router away.
    ///
    /// # Errors
    /// As [`Self::hold`].
    pub(crate) fn release(&self, router: usize) -> Result<(), TrialError> {
        let state = Some(XtcState::Off.name().to_owned());
        self.change(router, &XtcChange { state, ..XtcChange::default() })
    }

    /// Has a router never get a larger cap than this.
    ///
    /// # Errors
    /// As [`Self::hold`].
    pub(crate) fn bound(&self, router: usize, most: CpuShare) -> Result<(), TrialError> {
        let cap_max_ppm = Some(most.as_ppm());
        self.change(router, &XtcChange { cap_max_ppm, ..XtcChange::default() })
    }

    fn change(&self, router: usize, change: &XtcChange) -> Result<(), TrialError> {
        let client = self.node.client();
        let asked = client.ask::<serde_json::Value>(Method::PATCH, &path(router), Some(change));
        asked.map(drop).map_err(|error| TrialError::Node(error.to_string()))
    }

    /// How the node says that a router is.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) fn status(&self, router: usize) -> Result<RouterView, TrialError> {
        let asked = self.node.client().get(&path(router));
        asked.map_err(|error| TrialError::Node(error.to_string()))
    }

    /// The node's newest decisions on a router, oldest first.
    ///
    /// # Errors
    /// The node does not answer.
    pub(crate) fn log(
        &self,
        router: usize,
        newest: usize,
    ) -> Result<Vec<DecisionView>, TrialError> {
        let path = format!("{}/log?newest={newest}", path(router));
        self.node.client().get(&path).map_err(|error| TrialError::Node(error.to_string()))
    }

    /// Counts what a router forwards in each of `count` periods from now on; with the node's caps,
    /// limits and CPU times of about the same periods.
    ///
    /// # Errors
    /// An interface is gone; the node does not answer.
    pub(crate) fn watch(&mut self, router: usize, count: usize) -> Result<Vec<Taken>, TrialError> {
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
            Taken {
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

    /// Counts what each router forwards in each of `count` periods from now on.
    ///
    /// # Errors
    /// An interface is gone.
    pub(crate) fn watch_all(&mut self, count: usize) -> Result<Vec<Vec<Sample>>, TrialError> {
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
                samples.push(Sample { span, packets, ..Sample::default() });
            }
            before = now;
        }
        Ok(samples)
    }

    fn read(&mut self) -> Result<Vec<Reading>, TrialError> {
        self.meter.read(weir_node::clock::now())?;
        let of = |router| {
            let missing = || TrialError::Node(format!("router {router}: an interface is gone"));
            self.meter.reading(router).ok_or_else(missing)
        };
        (0..self.plan.kinds.len()).map(of).collect()
    }
}

impl Crossed for HeldLab {
    fn namespace(&self, node: &str) -> String {
        self.plan.namespace(node)
    }

    fn process(&self, router: usize) -> Option<Identity> {
        let found = self.forwarders.iter().find(|one| one.router == router)?;
        Identity::of(found.child.id())
    }

    fn forwarded(&mut self, router: usize) -> Result<u64, TrialError> {
        let missing = || TrialError::Node(format!("no router {router}"));
        self.read()?.get(router).map(|reading| reading.packets).ok_or_else(missing)
    }
}

/// For each router a port towards its source and one towards its sink, its own two vifs on them,
/// and a vif each for who probes and who answers.
fn policy(plan: &Plan, place: &Place) -> Policy {
    let mut policy = Policy::new(&plan.name);
    // The routers have the processor that a worker would choose.
    policy.node.worker_cpu = cpu::division().others.last().copied();
    policy.node.reservation = Reservation::Fifo;
    let slice = policy.add_slice(Slice::new("gold"));
    for (number, (line, kind)) in plan.lines().into_iter().zip(&plan.kinds).enumerate() {
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
        for (device, mac, port) in [(prober, asks, ports[0]), (answerer, answers, ports[1])] {
            policy.add_vif(vif(&device, slice, port, mac));
        }
    }
    let needed = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    policy.node.frames = policy.node.frames.max(needed);
    policy
}

fn vif(device: &str, slice: SliceId, port: weir_policy::PortId, mac: weir_host::lab::Mac) -> Vif {
    let mut vif = Vif::new(device, slice, port);
    vif.macs = vec![MacAddr(mac.0)];
    for queue in [&mut vif.send_queue, &mut vif.receive_queue] {
        queue.packets = QUEUE_PACKETS;
        queue.bytes = weir_units::ByteCount::new(u64::from(QUEUE_PACKETS) * 1536);
    }
    vif
}

/// Off at first: whoever wants it held says so.
fn xtc(plan: &Plan, place: &Place, number: usize, kind: Kind) -> RouterXtc {
    let actuator = match kind {
        Kind::Process => ActuatorKind::Cgroup,
        Kind::Namespace => ActuatorKind::Napi,
    };
    let mut xtc = RouterXtc::new(PacketRate::from_pps(1), actuator);
    (xtc.set_point, xtc.state) = (None, XtcState::Off);
    xtc.period = plan.sampling;
    // As the text's routers have it: one processor.
    xtc.cap_max = Some(CpuShare::ONE);
    match kind {
        Kind::Process => {
            xtc.process = Some(pid_file(place, number).display().to_string());
        }
        Kind::Namespace => {
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

fn pid_file(place: &Place, number: usize) -> std::path::PathBuf {
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

/// Room for 10 ms of 200 kp/s, twice.
const QUEUE_PACKETS: u32 = 4096;

/// More than any router of the lab forwards: held at it, a router is held by its largest cap alone.
pub(crate) const UNLIMITED: PacketRate = PacketRate::from_pps(5_000_000);

/// The period of all rows that hold routers so.
pub(crate) const SAMPLING: Nanos = Nanos::from_millis(100);
