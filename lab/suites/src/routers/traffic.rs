// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic through the routers of a lab while an experiment works with it: small UDP packets from
//! the XDP generator, or TCP through kernel sockets. Both are counted where they arrive.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_experiment::senders::{hardly_reading_the_clock, traffic_cpus};
use weir_traffic::{
    self, FrameSizes, Mac, ReceiveMethod, ReceiveResult, ReceiveSpec, RunSpec, SendMethod,
    SendResult, SendSpec, SinkSpec, SocketsSpec, TcpBulk, TcpSend, XdpSend, XdpStream,
};

use super::lab::RouterLab;
use super::plan::{self, At, Plan};

/// The load of one router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouterLoad {
    /// UDP in frames of 64 bytes, at that many a second; `None`: as fast as possible.
    Udp(Option<u64>),
    /// TCP without a bound, over that many connections.
    Tcp(u32),
}

/// A load for each router, by its number.
#[derive(Clone, Debug)]
pub(crate) struct RouterTraffic {
    loads: Vec<(usize, RouterLoad)>,
    /// Bits of records a second of all TCP together, as on one server's link: what one router does
    /// not take goes to the others.
    tcp_bps: Option<u64>,
}

/// The traffic that flowed.
#[derive(Clone, Debug)]
pub(crate) struct Flowed {
    /// The record of each sink, in the order of the loads.
    pub(crate) received: Vec<ReceiveResult>,
    /// Packets that the meter of the last router counted meanwhile, in the order of the loads.
    pub(crate) metered: Vec<u64>,
    sent: Vec<SendResult>,
    /// The records of TCP's servers.
    served: Vec<ReceiveResult>,
}

impl RouterTraffic {
    /// Returns a load for each router, without a limit on TCP.
    pub(crate) fn new(loads: Vec<(usize, RouterLoad)>) -> Self {
        Self { loads, tcp_bps: None }
    }

    /// Returns one load, for the first router.
    pub(crate) fn one(load: RouterLoad) -> Self {
        Self::new(vec![(0, load)])
    }

    /// Limits all TCP together to half of what arrived when it had no limit.
    pub(crate) fn eased_tcp(self, flowed: &Flowed) -> Result<Self, ExperimentError> {
        match flowed.tcp_bps() {
            0 => Err(ExperimentError::Node("no TCP gets through".to_owned())),
            bps => Ok(Self { tcp_bps: Some((bps / 2).max(1)), ..self }),
        }
    }

    /// Does `work` while the traffic flows.
    pub(crate) fn beside<T>(
        &self,
        lab: &mut RouterLab,
        work: impl FnOnce(&mut RouterLab) -> Result<T, ExperimentError>,
    ) -> Result<(T, Flowed), ExperimentError> {
        let (senders, sinks, servers) = (self.senders(lab), self.sinks(lab), self.servers(lab));
        let (stop_sending, stop_receiving) = (AtomicBool::new(false), AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let before = self.count(lab)?;
        std::thread::scope(|scope| {
            let receive = |spec: &ReceiveSpec| {
                let (spec, ready, stop) = (spec.clone(), ready.clone(), &stop_receiving);
                // The first call says that packets are counted from now on.
                let mut tell = move |_| {
                    // Nobody waits for the calls after the first.
                    let _waited_for = ready.send(());
                };
                scope.spawn(move || weir_traffic::receive(&spec, stop, &mut tell))
            };
            let counting: Vec<_> = sinks.iter().map(receive).collect();
            let serving: Vec<_> = servers.iter().map(receive).collect();
            for _ in 0..counting.len() + serving.len() {
                // A thread that failed says nothing. Its error comes when it is joined.
                let _late = is_ready.recv_timeout(READY_PATIENCE);
            }
            let send = |spec: &SendSpec| {
                let (spec, stop) = (spec.clone(), &stop_sending);
                scope.spawn(move || weir_traffic::send(&spec, stop, &mut |_| {}))
            };
            let sending: Vec<_> = senders.iter().map(send).collect();
            let done = clock::sleep(WARM_UP).and_then(|()| work(lab));
            stop_sending.store(true, Ordering::Relaxed);
            let sent: Result<Vec<_>, ExperimentError> = sending.into_iter().map(joined).collect();
            let drained = clock::sleep(DRAIN);
            stop_receiving.store(true, Ordering::Relaxed);
            let received: Result<Vec<_>, ExperimentError> =
                counting.into_iter().map(joined).collect();
            let served: Result<Vec<_>, ExperimentError> = serving.into_iter().map(joined).collect();
            let done = done?;
            let sent = sent?;
            drained?;
            let after = self.count(lab)?;
            let metered = after.iter().zip(&before).map(|(now, then)| now.wrapping_sub(*then));
            let metered = metered.collect();
            Ok((done, Flowed { received: received?, metered, sent, served: served? }))
        })
    }

    /// Reads the packets that each load's last router has forwarded so far.
    fn count(&self, lab: &mut RouterLab) -> Result<Vec<u64>, ExperimentError> {
        let last = |(router, _): &(usize, RouterLoad)| {
            let [_, last] = lab.plan().crossed(*router);
            lab.forwarded(last)
        };
        self.loads.iter().map(last).collect()
    }

    fn senders(&self, lab: &RouterLab) -> Vec<SendSpec> {
        let plan = lab.plan();
        let run = || RunSpec {
            netns: Some(plan.namespace("src")),
            cpus: traffic_cpus(),
            ..RunSpec::default()
        };
        let udp = self.loads.iter().filter_map(|(router, load)| match load {
            RouterLoad::Udp(pps) => Some(stream(plan, *router, pps.map(Rate::Pps))),
            RouterLoad::Tcp(_) => None,
        });
        let streams: Vec<XdpStream> = udp.collect();
        let mut senders = Vec::new();
        if !streams.is_empty() {
            let method = SendMethod::Xdp(XdpSend::new(streams));
            let generator = SendSpec { run: run(), start_ns: None, method };
            senders.push(hardly_reading_the_clock(generator));
        }
        let tcp = self.loads.iter().filter_map(|(router, load)| match load {
            RouterLoad::Tcp(connections) => {
                let (to, connections) = (server(plan, *router), *connections);
                Some(TcpBulk { stream: number(*router), to, connections })
            }
            RouterLoad::Udp(_) => None,
        });
        // Streams that share a rate have one sender.
        let senders_of_tcp: Vec<Vec<TcpBulk>> = match self.tcp_bps {
            Some(_) => vec![tcp.collect()],
            None => tcp.map(|bulk| vec![bulk]).collect(),
        };
        for streams in senders_of_tcp.into_iter().filter(|streams| !streams.is_empty()) {
            let method = SendMethod::Tcp(TcpSend { streams, rate_bps: self.tcp_bps });
            senders.push(SendSpec { run: run(), start_ns: None, method });
        }
        senders
    }

    fn sinks(&self, lab: &RouterLab) -> Vec<ReceiveSpec> {
        let sink = |router: usize| {
            let [_, last] = lab.plan().crossed(router);
            let method = ReceiveMethod::Sink(SinkSpec::new(&plan::device(last, At::Sink)));
            receiver(lab.plan(), method)
        };
        self.loads.iter().map(|(router, _)| sink(*router)).collect()
    }

    fn servers(&self, lab: &RouterLab) -> Vec<ReceiveSpec> {
        let tcp = self.loads.iter().filter(|(_, load)| matches!(load, RouterLoad::Tcp(_)));
        let server = |(router, _): &(usize, RouterLoad)| {
            let tcp = vec![server(lab.plan(), *router)];
            let sockets = SocketsSpec { udp: vec![], tcp, buffer_bytes: None };
            receiver(lab.plan(), ReceiveMethod::Sockets(sockets))
        };
        tcp.map(server).collect()
    }
}

impl Flowed {
    /// Returns the number of packets that arrived at each sink, of any kind.
    pub(crate) fn arrived(&self) -> impl Iterator<Item = u64> + '_ {
        self.received.iter().map(|seen| seen.totals.packets)
    }

    /// Returns the bits a second of all TCP together that arrived, over the whole time of sending.
    fn tcp_bps(&self) -> u64 {
        let bytes = self.served.iter().flat_map(|one| &one.streams).map(|one| one.bytes);
        let bits = u128::from(bytes.sum::<u64>()) * 8;
        let nanos = self.tcp().map(nanos).max().unwrap_or(0).max(1);
        u64::try_from(bits * 1_000_000_000 / u128::from(nanos)).unwrap_or(u64::MAX)
    }

    /// Returns the part of the time of sending that TCP with a rate left unused, because nobody
    /// took its data or its sender was kept from sending.
    pub(crate) fn given_up(&self) -> f64 {
        let skipped = |one: &SendResult| one.streams.first().map_or(0, |stream| stream.skipped_ns);
        let part = |one| float(skipped(one)) / float(nanos(one).max(1));
        self.tcp().map(part).fold(0.0, f64::max)
    }

    fn tcp(&self) -> impl Iterator<Item = &SendResult> {
        self.sent.iter().filter(|one| matches!(one.spec.method, SendMethod::Tcp(_)))
    }
}

/// Returns the time of sending.
fn nanos(sent: &SendResult) -> u64 {
    sent.span.end_ns.saturating_sub(sent.span.start_ns)
}

fn receiver(plan: &Plan, method: ReceiveMethod) -> ReceiveSpec {
    let run =
        RunSpec { netns: Some(plan.namespace("dst")), cpus: traffic_cpus(), ..RunSpec::default() };
    ReceiveSpec { run, ..ReceiveSpec::new(method) }
}

/// Returns a stream of small frames for a router to forward.
fn stream(plan: &Plan, router: usize, rate: Option<Rate>) -> XdpStream {
    let [first, last] = plan.crossed(router);
    let mac = |at| Mac(plan::mac(first, at).0);
    let sizes = FrameSizes::Fixed(UDP_FRAME_BYTES);
    XdpStream {
        rate,
        weight: TURN,
        source_mac: Some(mac(At::Source)),
        source: plan::address(first, At::Source).into(),
        destination: plan::address(last, At::Sink).into(),
        ..XdpStream::new(number(router), &plan::device(first, At::Source), mac(At::Inside), sizes)
    }
}

/// Returns the server of a router's TCP.
fn server(plan: &Plan, router: usize) -> SocketAddr {
    let [_, last] = plan.crossed(router);
    SocketAddr::new(IpAddr::V4(plan::address(last, At::Sink)), TCP_PORT)
}

/// Returns a router's stream number.
fn number(router: usize) -> u16 {
    u16::try_from(router).unwrap_or(u16::MAX)
}

fn joined<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, weir_traffic::TrafficError>>,
) -> Result<T, ExperimentError> {
    let ended =
        thread.join().map_err(|_| ExperimentError::Node("a traffic thread panicked".into()))?;
    Ok(ended?)
}

/// The length of the text's UDP packets, without FCS.
const UDP_FRAME_BYTES: u16 = 64;

/// Frames of a router in a row, where several are flooded.
const TURN: u32 = 16;

const TCP_PORT: u16 = 9_001;

/// The longest wait for a sink. Loading and attaching one takes some 50 ms.
const READY_PATIENCE: Duration = Duration::from_secs(5);

/// The time for senders to connect, and for TCP to find its rate.
const WARM_UP: Duration = Duration::from_millis(700);

/// The wait for the last packets: longer than any of them waits on the way.
const DRAIN: Duration = Duration::from_millis(300);
