// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets a second and packets per processor-second beside Linux bridge, bridge with HTB and Open
//! vSwitch: 64 bytes, the same veth pairs for all.
//!
//! *Apart*: the generator has processor 0. The forwarder (Weir's worker, Open vSwitch's packet
//! thread, or the bridge's receive threads) has the last processor for itself. *Together*:
//! everything is on processor 0, the generator included. All processor time counts, soft interrupts
//! too, except what the generator itself used on processor 0.
//!
//! Receiving costs as little as possible, since it is done on the forwarder's processor: frames are
//! for a station that is not there, and the kernel drops them *at the door*. A redirected frame
//! needs a program that takes it and drops it at once. The bridge on the same processor is measured
//! both ways, and Weir compared with each.
//!
//! All forwarders have queues of as many packets, a packet thread of the same priority, and a
//! processor that the kernel's own threads have left.

use std::time::Instant;

use weir_experiment::prelude::*;
use weir_experiment::senders::{hardly_reading_the_clock, worker_cpu};
use weir_platform::processor_time::{Busy, CpuTime};
use weir_platform::run::Command;
use weir_policy::{Kind, SliceId};
use weir_traffic::{Mac, ReceiveMethod, ReceiveSpec, SinkVerdict, XdpStream};

use super::worker::{WorkerCounters, WorkerTime};
use crate::peers::{Htb, OpenVSwitch, StarBridge, receive_on_worker_cpu, spare_worker_cpu};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let repetitions = if rec.quick { 2 } else { 5 };
    rec.keep("setting/turns", Series::count("1", repetitions))?;
    let mut forwarders = Vec::from(ALL);
    if !OpenVSwitch::is_installed() {
        forwarders.retain(|forwarder| forwarder.program != PeerProgram::OpenVSwitch);
        let text = "SKIPPED: Open vSwitch is not installed (Debian: openvswitch-switch)";
        rec.say(text);
        rec.result.add_note(text);
    }
    let _spared = spare_worker_cpu()?;
    let bench = ForwardingSetup::new();
    let mut seen: Vec<Vec<ForwardingResult>> = vec![Vec::new(); forwarders.len()];
    for _ in 0..repetitions {
        for (forwarder, seen) in forwarders.iter().zip(&mut seen) {
            let one = bench.measure(*forwarder)?;
            rec.say(&format!(
                "{}: {:.3} Mpps, {:.3} Mpps per processor",
                forwarder.name,
                one.rate / 1e6,
                one.efficiency / 1e6
            ));
            seen.push(one);
        }
    }
    for (forwarder, seen) in forwarders.iter().zip(&seen) {
        let name = forwarder.name;
        let mut keep = |what: &str, unit: &str, value: fn(&ForwardingResult) -> f64| {
            let samples = seen.iter().map(value).collect();
            rec.keep(&format!("{name}/{what}"), Series::unordered(unit, samples))
        };
        keep("rate", "packet/s", |seen| seen.rate)?;
        keep("per-cpu", "packet/s", |seen| seen.efficiency)?;
        keep("generator", "1", |seen| seen.generator)?;
        if forwarder.program == PeerProgram::WeirQueued {
            keep("in-kernel", "1", |seen| seen.worker.map_or(0.0, |it| it.in_kernel))?;
            keep("frames-a-turn", "packet", |seen| seen.worker.map_or(0.0, |it| it.frames_a_turn))?;
            let copies = |seen: &ForwardingResult| {
                f64::from(u8::from(seen.worker.is_some_and(|it| it.zero_copy)))
            };
            let copies = Series::unordered("1", seen.iter().map(copies).collect());
            rec.keep("setting/zero-copy", copies)?;
        }
    }
    for (part, text, least, pair) in [
        (
            "queued",
            "packets, queued : bridge + HTB",
            1.5,
            ["apart/weir-queued", "apart/bridge-htb"],
        ),
        (
            "redirected",
            "packets on one core, redirected : bridge",
            REDIRECTED_RATIO,
            ["together/weir-redirected", "together/bridge"],
        ),
        (
            "redirected-door",
            "packets on one core, redirected : bridge to the door",
            REDIRECTED_RATIO,
            ["together/weir-redirected", "together/bridge-to-door"],
        ),
    ] {
        let series = pair.map(|name| format!("{name}/rate"));
        rec.claim(part, text, Rule::RatioOfMedians, Bound::at_least(least), &series)?;
    }
    Ok(())
}

/// A forwarder and its place.
#[derive(Clone, Copy, Debug)]
struct PeerForwarder {
    name: &'static str,
    program: PeerProgram,
    /// True if the forwarder has a processor of its own.
    is_apart: bool,
    /// True if frames end where they enter the stack, not in a program.
    ends_at_door: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerProgram {
    WeirQueued,
    WeirRedirected,
    Bridge,
    BridgeHtb,
    OpenVSwitch,
}

/// All forwarders, in the order of each repetition.
const ALL: [PeerForwarder; 8] = [
    PeerForwarder::apart("apart/weir-queued", PeerProgram::WeirQueued),
    PeerForwarder::apart("apart/bridge", PeerProgram::Bridge),
    PeerForwarder::apart("apart/bridge-htb", PeerProgram::BridgeHtb),
    PeerForwarder::apart("apart/open-vswitch", PeerProgram::OpenVSwitch),
    PeerForwarder::together("together/weir-redirected", PeerProgram::WeirRedirected),
    PeerForwarder::together("together/bridge", PeerProgram::Bridge),
    PeerForwarder {
        ends_at_door: true,
        ..PeerForwarder::together("together/bridge-to-door", PeerProgram::Bridge)
    },
    PeerForwarder::together("together/bridge-htb", PeerProgram::BridgeHtb),
];

impl PeerForwarder {
    const fn apart(name: &'static str, program: PeerProgram) -> Self {
        Self { name, program, is_apart: true, ends_at_door: true }
    }

    const fn together(name: &'static str, program: PeerProgram) -> Self {
        Self { name, program, is_apart: false, ends_at_door: false }
    }
}

/// The result of one repetition.
#[derive(Clone, Copy, Debug)]
struct ForwardingResult {
    /// Packets that arrived, a second.
    rate: f64,
    /// Packets a second for each processor that forwarding used.
    efficiency: f64,
    /// Processors that the generator used.
    generator: f64,
    /// The work of Weir's worker, if it forwards.
    worker: Option<WorkerTime>,
}

struct ForwardingSetup {
    star: StarTopology,
}

impl ForwardingSetup {
    fn new() -> Self {
        let mut star = StarTopology::new("forwarding", 0, LINK);
        // Names that differ from those of other labs' receive threads.
        star.tenants = (0..TENANTS).map(|index| format!("fw{index}")).collect();
        Self { star }
    }

    /// Runs one repetition, on a lab of its own without leftovers.
    fn measure(&self, forwarder: PeerForwarder) -> Result<ForwardingResult> {
        let star = &self.star;
        let mut rig = Testbed::up(star)?;
        // A veth takes redirected frames once its peer has GRO or a program, and the program comes
        // later. For frames that end at the door, GRO would put a queue before it.
        let gro = if forwarder.ends_at_door { "off" } else { "on" };
        rig.ask("wire", Command::new("ethtool", ["-K", "eth0", "gro", gro]))?;
        let seen = match forwarder.program {
            PeerProgram::WeirQueued => {
                rig.put(&self.queued().into())?;
                self.flow(&rig, forwarder)
            }
            PeerProgram::WeirRedirected => {
                rig.put(&self.redirected().into())?;
                self.flow(&rig, forwarder)
            }
            PeerProgram::OpenVSwitch => {
                let _switch = OpenVSwitch::up(&rig, star, worker_cpu())?;
                self.flow(&rig, forwarder)
            }
            PeerProgram::Bridge | PeerProgram::BridgeHtb => self.bridge(&mut rig, forwarder),
        };
        rig.down()?;
        seen
    }

    fn bridge(&self, rig: &mut Testbed, forwarder: PeerForwarder) -> Result<ForwardingResult> {
        let star = &self.star;
        let bridge = StarBridge::up(rig, star)?;
        if forwarder.program == PeerProgram::BridgeHtb {
            let class = BitRate::from_bps(LINK.as_bps() / TENANTS as u64);
            let burst = ByteCount::new(LINK.as_bps() / 8 / 1000);
            Htb { link: LINK, class, burst, packets: QUEUE_PACKETS }.up(star)?;
        }
        if forwarder.is_apart {
            receive_on_worker_cpu(star)?;
        }
        let seen = self.flow(rig, forwarder);
        bridge.down()?;
        seen
    }

    /// Returns a policy in which each vif is a class of its own under HFSC, with a guarantee.
    fn queued(&self) -> Policy {
        let mut policy = self.star.policy();
        for vif in &mut policy.vifs {
            vif.send_queue.packets = QUEUE_PACKETS;
            vif.send.min_rate = BitRate::from_bps(LINK.as_bps() / 2 / TENANTS as u64);
        }
        policy
    }

    /// Returns a policy in which each vif has a policed limit. Vifs of one VLAN must be of one
    /// slice.
    fn redirected(&self) -> Policy {
        let mut policy = self.star.policy();
        policy.node.redirect = true;
        policy.node.worker_cpu = Some(0);
        policy.slices.truncate(1);
        policy.ports.iter_mut().for_each(|port| port.kind = Kind::Xdp);
        for vif in &mut policy.vifs {
            vif.kind = Kind::Xdp;
            vif.slice = SliceId(0);
            vif.send.max_pps = Some(PacketRate::from_pps(POLICED_PPS));
        }
        policy
    }

    /// Sends as many packets as the generator makes, and measures those that arrive.
    fn flow(&self, rig: &Testbed, forwarder: PeerForwarder) -> Result<ForwardingResult> {
        let star = &self.star;
        let mut streams: Vec<XdpStream> = (0..TENANTS).map(|tenant| self.stream(tenant)).collect();
        // A bridge learns the place of the receiver from frames that come from it.
        let answers = star.stream_towards(0, ANSWERS, FRAME_BYTES, Some(Rate::Pps(ANSWERS_PPS)));
        streams.push(XdpStream { source_mac: Some(RECEIVER), ..answers });
        let receivers = if forwarder.ends_at_door { vec![] } else { vec![light_sink(star)] };
        let run = TrafficRun {
            senders: vec![hardly_reading_the_clock(star.generator(streams))],
            receivers,
            length: WARM_UP + MEASURED + SPARE,
            ..TrafficRun::new(star, Forwarder::Bridge, 0)
        };
        let (outcome, (busy, rate, worker)) = run.flow(rig, |rig| {
            std::thread::sleep(WARM_UP);
            let (start, cpu, before) = (Instant::now(), CpuTime::now()?, received(rig)?);
            let worker = || rig.node().map(WorkerCounters::now).transpose();
            let worker_before = worker()?;
            std::thread::sleep(MEASURED);
            let packets = received(rig)?.saturating_sub(before);
            let rate = float(packets) / start.elapsed().as_secs_f64();
            let spent = worker()?.zip(worker_before).map(|(now, before)| now.since(&before));
            Ok((CpuTime::now()?.since(&cpu, GENERATOR_CPU), rate, spent))
        })?;
        let late = outcome.sent.iter().any(|sent| {
            sent.span.start_ns > outcome.start_ns + weir_experiment::clock::nanos(WARM_UP) / 2
        });
        if late {
            return Err(ExperimentError::Node("the generator began late: a busy machine".into()));
        }
        let Busy { all, own: generator } = busy;
        let efficiency = rate / (all - generator).max(f64::MIN_POSITIVE);
        Ok(ForwardingResult { rate, efficiency, generator, worker })
    }

    fn stream(&self, tenant: usize) -> XdpStream {
        let number = u16::try_from(tenant).unwrap_or(u16::MAX);
        let stream = self.star.stream(tenant, number, FRAME_BYTES, None);
        XdpStream { weight: TURN, destination_mac: RECEIVER, ..stream }
    }
}

/// Returns a sink that drops everything, and counts hardly more than how much.
fn light_sink(star: &StarTopology) -> ReceiveSpec {
    let mut spec = star.sink();
    spec.streams_max = 1;
    if let ReceiveMethod::Sink(sink) = &mut spec.method {
        (sink.sources_max, sink.verdict) = (0, SinkVerdict::DropUnread);
    }
    spec
}

/// Returns the number of frames that reached the wire's end, as the kernel counts them.
fn received(rig: &Testbed) -> Result<u64> {
    let links = rig.link_counters("wire")?;
    let device = links.iter().find(|link| link.name == "eth0");
    device.map(|link| link.received[0]).ok_or_else(|| ExperimentError::Node("no eth0".into()))
}

/// The number of vifs, and of HTB's classes.
const TENANTS: usize = 16;

/// A few turns of a tenant: a frame that waits longer has left the caches when it is sent.
const QUEUE_PACKETS: u32 = 128;

/// The frames of a tenant in a row.
const TURN: u32 = 32;

const FRAME_BYTES: u16 = 64;

/// The rate of the link: more than anybody forwards here.
const LINK: BitRate = BitRate::from_mbps(20_000);

/// The load of each tenant: more than its limit, so that the policer both drops and passes.
const POLICED_PPS: u64 = 2_000_000;

const REDIRECTED_RATIO: f64 = 3.5;

/// An address behind the wire's end, other than its device's.
const RECEIVER: Mac = Mac([0x02, 0, 0, 0, 0, 99]);

/// The stream from [`RECEIVER`].
const ANSWERS: u16 = 1_000;
const ANSWERS_PPS: u64 = 100;

const GENERATOR_CPU: usize = 0;

/// The wire's address is learned within 500 ms, and a flood made to pause 100 ms later.
const WARM_UP: Duration = Duration::from_millis(1_500);
const MEASURED: Duration = Duration::from_millis(2_000);
const SPARE: Duration = Duration::from_millis(100);
