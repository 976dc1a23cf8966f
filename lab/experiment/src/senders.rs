// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Senders and receivers of the star, by tenant.

use std::net::{IpAddr, SocketAddr};

use weir_platform::cpu;
use weir_traffic::{
    FrameSizes, Rate, ReceiveMethod, ReceiveSpec, RunSpec, SendMethod, SendSpec, SinkSpec,
    SinkVerdict, SocketsSpec, TcpSend, UdpSend, XdpSend, XdpStream,
};

use crate::star::StarTopology;

/// UDP port on the wire's end that receives the senders' datagrams.
const UDP_PORT: u16 = 9_000;
/// TCP port on the wire's end that accepts connections.
const TCP_PORT: u16 = 9_001;

impl StarTopology {
    /// UDP from a kernel socket of tenant `index` to the wire; `rate` `None`: as fast as it goes.
    pub fn udp(&self, index: usize, stream: u16, size: u16, rate: Option<Rate>) -> SendSpec {
        let to = SocketAddr::new(IpAddr::V4(Self::wire_address()), UDP_PORT);
        let method = SendMethod::Udp(UdpSend {
            stream,
            to,
            from: None,
            connections: 1,
            rate,
            sizes: FrameSizes::Fixed(size),
            count: None,
            buffer_bytes: None,
        });
        SendSpec { run: self.run_of(&self.tenants[index]), start_ns: None, method }
    }

    /// Bulk TCP from tenant `index` to the wire over that many connections.
    pub fn tcp(&self, index: usize, stream: u16, connections: u32) -> SendSpec {
        let to = SocketAddr::new(IpAddr::V4(Self::wire_address()), TCP_PORT);
        let send = TcpSend::one(stream, to, connections);
        let run = self.run_of(&self.tenants[index]);
        SendSpec { run, start_ns: None, method: SendMethod::Tcp(send) }
    }

    /// A stream of the XDP generator from tenant `index` to the wire.
    pub fn stream(&self, index: usize, stream: u16, size: u16, rate: Option<Rate>) -> XdpStream {
        XdpStream {
            stream,
            device: "eth0".to_owned(),
            netns: Some(self.namespace(&self.tenants[index])),
            rate,
            weight: 1,
            sizes: FrameSizes::Fixed(size),
            count: None,
            source_mac: Some(Self::mac(index)),
            destination_mac: Self::wire_mac(),
            vlan: None,
            source: Self::address(index),
            destination: Self::wire_address(),
            source_port: UDP_PORT,
            destination_port: UDP_PORT,
            flows: 1,
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
            source: Self::wire_address(),
            destination: Self::address(index),
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
            destination: Self::address(to),
            ..self.stream(index, stream, 1500, rate)
        }
    }

    /// UDP from a kernel socket of any node of the star to any address.
    pub fn udp_from(&self, node: &str, send: UdpSend) -> SendSpec {
        SendSpec { run: self.run_of(node), start_ns: None, method: SendMethod::Udp(send) }
    }

    /// All streams from one generator.
    pub fn generator(&self, streams: Vec<XdpStream>) -> SendSpec {
        let method = SendMethod::Xdp(XdpSend { streams, catch_up_us: CATCH_UP_US, clock_every: 1 });
        SendSpec { run: self.run_of("wire"), start_ns: None, method }
    }

    /// A sink at the wire's end: counts everything, drops measured packets, passes on the rest.
    pub fn sink(&self) -> ReceiveSpec {
        self.sink_at("wire")
    }

    /// A sink at the device of a node.
    pub fn sink_at(&self, node: &str) -> ReceiveSpec {
        let method = ReceiveMethod::Sink(SinkSpec {
            device: "eth0".to_owned(),
            attach: Default::default(),
            verdict: SinkVerdict::DropMeasured,
            sources_max: 64,
        });
        ReceiveSpec { run: self.run_of(node), method, streams_max: 1024, record: None }
    }

    /// The sockets behind the sink: TCP connections end here.
    pub fn tcp_server(&self) -> ReceiveSpec {
        let tcp = vec![SocketAddr::new(IpAddr::V4(Self::wire_address()), TCP_PORT)];
        let method = ReceiveMethod::Sockets(SocketsSpec { udp: vec![], tcp, buffer_bytes: None });
        ReceiveSpec { run: self.run_of("wire"), method, streams_max: 1024, record: None }
    }

    fn run_of(&self, node: &str) -> RunSpec {
        RunSpec { netns: Some(self.namespace(node)), cpus: traffic_cpus(), ..RunSpec::default() }
    }
}

/// A generator that gives up most of what it was kept from sending, so that a well-behaved stream
/// stays well-behaved on a busy machine: at 100 Mb/s it is never more than 2 frames ahead.
pub fn hardly_catching_up(mut sender: SendSpec) -> SendSpec {
    if let SendMethod::Xdp(xdp) = &mut sender.method {
        xdp.catch_up_us = HARDLY_US;
    }
    sender
}

/// A generator for a flood whose delays nobody reads: up to 32 frames, less than 10 µs, share a
/// reading of the clock, which is a tenth of what a frame costs it.
pub fn hardly_reading_the_clock(mut sender: SendSpec) -> SendSpec {
    if let SendMethod::Xdp(xdp) = &mut sender.method {
        xdp.clock_every = 32;
    }
    sender
}

/// Counts in cells of `cell_us`.
pub fn in_cells(mut receiver: ReceiveSpec, cell_us: u64) -> ReceiveSpec {
    receiver.run.cell_us = cell_us;
    receiver
}

/// The processors that are not the worker's. With one processor they share it.
pub fn traffic_cpus() -> Vec<usize> {
    cpu::division().others.into_iter().filter_map(|cpu| usize::try_from(cpu).ok()).collect()
}

/// Longer than a batch of the generator takes on its way through a bridge.
const HARDLY_US: u64 = 250;

/// The worker's processor, as a node chooses it.
pub fn worker_cpu() -> u32 {
    cpu::division().worker
}

/// A generator that was kept from its processor for longer than this gives the time up.
const CATCH_UP_US: u64 = 20_000;
