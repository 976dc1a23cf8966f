// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Senders and receivers of the star, by tenant.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weir_platform::cpu;
use weir_traffic::{
    FrameSizes, Rate, ReceiveMethod, ReceiveSpec, RunSpec, SendMethod, SendSpec, SinkSpec,
    SocketsSpec, TcpSend, UdpSend, XdpSend, XdpStream,
};

use crate::star::StarTopology;
use crate::{ExperimentError, Result};

/// UDP port on the wire's end that receives the senders' datagrams.
const UDP_PORT: u16 = 9_000;
/// TCP port on the wire's end that accepts connections.
const TCP_PORT: u16 = 9_001;

impl StarTopology {
    /// UDP from a kernel socket of tenant `index` to the wire; `rate` `None`: as fast as it goes.
    pub fn udp(&self, index: usize, stream: u16, size: u16, rate: Option<Rate>) -> SendSpec {
        self.udp_from(&self.tenants[index], Self::wire_address(), stream, size, rate)
    }

    /// UDP from a kernel socket of any node to an address.
    pub fn udp_from(
        &self,
        node: &str,
        to: Ipv4Addr,
        stream: u16,
        size: u16,
        rate: Option<Rate>,
    ) -> SendSpec {
        let method = SendMethod::Udp(UdpSend {
            stream,
            to: SocketAddr::new(IpAddr::V4(to), UDP_PORT),
            from: None,
            connections: 1,
            rate,
            sizes: FrameSizes::Fixed(size),
            count: None,
            buffer_bytes: None,
        });
        self.sender(node, method)
    }

    /// Bulk TCP from tenant `index` to the wire over that many connections.
    pub fn tcp(&self, index: usize, stream: u16, connections: u32) -> SendSpec {
        let to = SocketAddr::new(IpAddr::V4(Self::wire_address()), TCP_PORT);
        let send = TcpSend::one(stream, to, connections);
        self.sender(&self.tenants[index], SendMethod::Tcp(send))
    }

    /// A stream of the XDP generator from tenant `index` to the wire.
    pub fn stream(&self, index: usize, stream: u16, size: u16, rate: Option<Rate>) -> XdpStream {
        XdpStream {
            netns: Some(self.namespace(&self.tenants[index])),
            rate,
            source_mac: Some(Self::mac(index)),
            source: Self::address(index).into(),
            destination: Self::wire_address().into(),
            source_port: UDP_PORT,
            destination_port: UDP_PORT,
            ..XdpStream::new(stream, "eth0", Self::wire_mac(), FrameSizes::Fixed(size))
        }
    }

    /// A stream of the XDP generator from the wire to tenant `index`.
    pub fn stream_towards(
        &self,
        index: usize,
        stream: u16,
        size: u16,
        rate: Option<Rate>,
    ) -> XdpStream {
        XdpStream {
            netns: Some(self.namespace("wire")),
            source_mac: Some(Self::wire_mac()),
            destination_mac: Self::mac(index),
            source: Self::wire_address().into(),
            destination: Self::address(index).into(),
            ..self.stream(index, stream, size, rate)
        }
    }

    /// A stream of the XDP generator from tenant `index` to tenant `to`.
    pub fn stream_between(
        &self,
        index: usize,
        to: usize,
        stream: u16,
        rate: Option<Rate>,
    ) -> XdpStream {
        XdpStream {
            destination_mac: Self::mac(to),
            destination: Self::address(to).into(),
            ..self.stream(index, stream, 1500, rate)
        }
    }

    /// All streams from one generator.
    pub fn generator(&self, streams: Vec<XdpStream>) -> SendSpec {
        let xdp = XdpSend { streams, catch_up_us: CATCH_UP_US, clock_every: 1 };
        self.sender("wire", SendMethod::Xdp(xdp))
    }

    /// A sink at the wire's end: counts everything, drops measured packets, passes on the rest.
    pub fn sink(&self) -> ReceiveSpec {
        self.sink_at("wire")
    }

    /// A sink at the device of a node.
    pub fn sink_at(&self, node: &str) -> ReceiveSpec {
        self.receiver(node, ReceiveMethod::Sink(SinkSpec::new("eth0")))
    }

    /// The sockets behind the sink: TCP connections end here.
    pub fn tcp_server(&self) -> ReceiveSpec {
        let tcp = vec![SocketAddr::new(IpAddr::V4(Self::wire_address()), TCP_PORT)];
        let method = ReceiveMethod::Sockets(SocketsSpec { udp: vec![], tcp, buffer_bytes: None });
        self.receiver("wire", method)
    }

    fn sender(&self, node: &str, method: SendMethod) -> SendSpec {
        SendSpec { run: self.run_of(node), start_ns: None, method }
    }

    fn receiver(&self, node: &str, method: ReceiveMethod) -> ReceiveSpec {
        let run = self.run_of(node);
        ReceiveSpec { run, streams_max: 1024, ..ReceiveSpec::new(method) }
    }

    fn run_of(&self, node: &str) -> RunSpec {
        RunSpec { netns: Some(self.namespace(node)), cpus: traffic_cpus(), ..RunSpec::default() }
    }
}

/// Limits how far a generator catches up after a pause, so that a well-behaved stream stays
/// well-behaved on a busy machine: at 100 Mb/s it catches up by at most 2 frames.
pub fn hardly_catching_up(mut sender: SendSpec) -> SendSpec {
    if let SendMethod::Xdp(xdp) = &mut sender.method {
        xdp.catch_up_us = HARDLY_US;
    }
    sender
}

/// Has a generator read the clock once for up to 32 frames, which take less than 10 µs: for a flood
/// whose delays nobody reads. Reading the clock is a tenth of a frame's cost.
pub fn hardly_reading_the_clock(mut sender: SendSpec) -> SendSpec {
    if let SendMethod::Xdp(xdp) = &mut sender.method {
        xdp.clock_every = 32;
    }
    sender
}

/// Has a receiver count in cells of `cell_us`.
pub fn in_cells(mut receiver: ReceiveSpec, cell_us: u64) -> ReceiveSpec {
    receiver.run.cell_us = cell_us;
    receiver
}

/// Returns the processors for traffic: those that are not the worker's, or the only one.
pub fn traffic_cpus() -> Vec<usize> {
    cpu::division().others.into_iter().filter_map(|cpu| usize::try_from(cpu).ok()).collect()
}

/// The catch-up time of [`hardly_catching_up`]: longer than a batch of the generator takes through
/// a bridge.
pub const HARDLY_US: u64 = 250;

/// Returns the worker's processor, as a node chooses it.
pub fn worker_cpu() -> u32 {
    cpu::division().worker
}

/// Calls `measure` on the worker's processor, on a thread of its own. The processor is free again
/// when the thread ends.
pub fn on_worker_cpu<T: Send>(measure: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let class = cpu::SchedulingClass::Normal { nice: -20 };
            let request = cpu::CpuRequest { cpu: Some(worker_cpu()), class };
            let _alone = cpu::CpuReservation::take(request)?;
            measure()
        });
        thread.join().unwrap_or_else(|_| Err(ExperimentError::Node("the bench panicked".into())))
    })
}

/// The default catch-up time of a generator after a pause.
pub const CATCH_UP_US: u64 = 20_000;

/// Has a sender through UDP sockets send this number of packets, from `start_ns` after the common
/// start.
pub fn burst_of(mut sender: SendSpec, packets: u64, start_ns: u64) -> SendSpec {
    sender.start_ns = Some(start_ns);
    if let SendMethod::Udp(udp) = &mut sender.method {
        udp.count = Some(packets);
    }
    sender
}
