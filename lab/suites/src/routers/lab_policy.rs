// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy of a node in a lab of routers.

use std::ops::Range;

use weir_experiment::provide_frames;
use weir_experiment::run_folder::RunFolder;
use weir_platform::cpu;
use weir_policy::{
    ActuatorKind, Interface, Kind, MacAddr, Policy, Port, PortId, Reservation, Router, RouterXtc,
    Slice, SliceId, Vif, XtcState,
};
use weir_units::{BitRate, ByteCount, CpuShare, PacketRate};

use super::kinds::RouterKind;
use super::plan::{self, At, Plan};

/// Makes the policy of node `number`: for each of its routers a port towards the source and one
/// towards the sink, the router's two vifs on them, and a vif each for the ends of a probe.
pub(super) fn policy(
    plan: &Plan,
    number: usize,
    place: &RunFolder,
    routers: Range<usize>,
) -> Policy {
    let mut policy = Policy::new(&plan.node_name(number));
    // The routers have the processor that a worker would choose.
    policy.node.worker_cpu = cpu::division().others.last().copied();
    policy.node.reservation = Reservation::Fifo;
    policy.node.redirect = plan.redirect;
    policy.xtc.log = LOG;
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
        policy.ports.iter_mut().for_each(|port| port.kind = Kind::Xdp);
        policy.vifs.iter_mut().for_each(|vif| vif.kind = Kind::Xdp);
    }
    provide_frames(&mut policy);
    policy
}

fn vif(device: &str, slice: SliceId, port: PortId, mac: MacAddr) -> Vif {
    let mut vif = Vif::new(device, slice, port);
    vif.macs = vec![mac];
    for queue in [&mut vif.send_queue, &mut vif.receive_queue] {
        queue.packets = QUEUE_PACKETS;
        queue.bytes = ByteCount::new(u64::from(QUEUE_PACKETS) * 1536);
    }
    vif
}

/// Makes the control of a router, off at first.
fn xtc(plan: &Plan, place: &RunFolder, number: usize, kind: RouterKind) -> RouterXtc {
    let actuator = match kind {
        RouterKind::Process => ActuatorKind::Cgroup,
        RouterKind::Namespace => ActuatorKind::Napi,
    };
    let mut xtc = RouterXtc::new(PacketRate::from_pps(1), actuator);
    (xtc.set_point, xtc.state) = (None, XtcState::Off);
    xtc.period = plan.sampling;
    // One processor, as the text's routers have.
    xtc.cap_max = Some(CpuShare::ONE);
    match kind {
        RouterKind::Process => {
            xtc.process = Some(pid_file(place, number).display().to_string());
        }
        RouterKind::Namespace => {
            xtc.namespace = Some(plan.namespace(&name(number)));
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

/// Returns the file with the number of a router's process.
pub(super) fn pid_file(place: &RunFolder, router: usize) -> std::path::PathBuf {
    place.folder().join(format!("{}.pid", name(router)))
}

/// Returns the name of a router.
pub(super) fn name(router: usize) -> String {
    format!("vr{}", router + 1)
}

/// The map of a Fixed Cap whose set-point, in packets a second, is the cap in parts per million.
pub(super) const CAP_BY_RATE: [(PacketRate, CpuShare); 2] = [
    (PacketRate::from_pps(1), CpuShare::from_ppm(1)),
    (PacketRate::from_pps(1_000_000), CpuShare::from_ppm(1_000_000)),
];

/// Decisions that a node keeps of each router: more than a router is held for.
pub(super) const LOG: u32 = 2000;

/// More than any router of the lab forwards: only packets are limited.
const PORT_MBPS: u64 = 10_000;

/// Room for 50 ms of 40 kp/s, twice.
const QUEUE_PACKETS: u32 = 4096;
