// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP in virtual time: connections of a real protocol stack that send as much as they can.
//!
//! Two hosts run smoltcp, each behind a device that is a pair of queues. What the sender's device
//! sends passes a shaper; acknowledgements come back after half of the round trip. The stack reads
//! no clock: it is asked when it wants to act, and polled then.

use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address};
use weir_units::{Instant, Nanos};

use crate::EventQueue;
use crate::shaper::ShapedSource;

/// Congestion control of a [`TcpSenders`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpCongestion {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

/// Connections that send without end, from one host to another.
pub struct TcpSenders {
    sender: TcpHost,
    receiver: TcpHost,
    /// Packets on their way, and whether they go to the receiver.
    on_the_way: EventQueue<(bool, Vec<u8>)>,
    offered: Option<Vec<u8>>,
    half_trip: Nanos,
    now: Instant,
    started: bool,
}

/// A host with its connections.
struct TcpHost {
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<SocketHandle>,
    device: QueueDevice,
    /// When the stack wants to act next.
    next: Instant,
}

/// A device of two queues.
#[derive(Debug, Default)]
struct QueueDevice {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

/// A packet that was received.
struct QueueRxToken(Vec<u8>);

/// Room for a packet to send.
struct QueueTxToken<'a>(&'a mut VecDeque<Vec<u8>>);

impl TcpSenders {
    /// Connections that begin at instant 0. Each may have `window` bytes under way.
    #[must_use]
    pub fn new(
        connections: u16,
        window: usize,
        congestion: TcpCongestion,
        round_trip: Nanos,
    ) -> Self {
        let mut receiver = TcpHost::new(RECEIVER);
        let mut sender = TcpHost::new(SENDER);
        for port in 1..=connections {
            let mut socket = connection(window, congestion);
            let listens = socket.listen(port);
            debug_assert!(listens.is_ok(), "a fresh socket listens");
            receiver.add(socket);
            let mut socket = connection(window, congestion);
            let to = (IpAddress::from(RECEIVER), port);
            let connects = socket.connect(sender.interface.context(), to, FIRST_PORT + port);
            debug_assert!(connects.is_ok(), "a fresh socket connects");
            sender.add(socket);
        }
        Self {
            sender,
            receiver,
            on_the_way: EventQueue::new(ON_THE_WAY_MAX),
            offered: None,
            half_trip: Nanos::new(round_trip.as_nanos() / 2),
            now: Instant::ZERO,
            started: false,
        }
    }

    fn send(&mut self, at: Instant, to_receiver: bool, packet: Vec<u8>) {
        // A full link loses packets; so does this one.
        let _lost = self.on_the_way.push(at + self.half_trip, (to_receiver, packet));
    }
}

impl ShapedSource for TcpSenders {
    fn due(&self) -> Instant {
        if !self.sender.device.outgoing.is_empty() {
            return self.now;
        }
        // The stack may leave work undone for want of time; it is not polled again at once.
        let hosts = self.sender.next.min(self.receiver.next).max(self.now + STACK_TICK);
        let hosts = if self.started { hosts } else { self.now };
        self.on_the_way.next().unwrap_or(Instant::FAR_FUTURE).min(hosts)
    }

    fn offer(&mut self, now: Instant) -> Option<u32> {
        (self.now, self.started) = (now, true);
        while let Some((_, (to_receiver, packet))) = self.on_the_way.pop_due(now) {
            let host = if to_receiver { &mut self.receiver } else { &mut self.sender };
            host.device.incoming.push_back(packet);
        }
        self.receiver.poll(now, drain);
        while let Some(packet) = self.receiver.device.outgoing.pop_front() {
            self.send(now, false, packet);
        }
        self.sender.poll(now, fill);
        let packet = self.sender.device.outgoing.pop_front()?;
        let bytes = u32::try_from(packet.len()).ok()? + ETHERNET;
        self.offered = Some(packet);
        Some(bytes)
    }

    fn outcome(&mut self, _: Instant, leaves: Option<Instant>) {
        if let (Some(packet), Some(leaves)) = (self.offered.take(), leaves) {
            self.send(leaves, true, packet);
        }
    }
}

impl TcpHost {
    fn new(address: Ipv4Address) -> Self {
        let mut device = QueueDevice::default();
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut device, StackInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let added = addresses.push(IpCidr::new(IpAddress::from(address), 24));
            debug_assert!(added.is_ok(), "there is room for an address");
        });
        let (sockets, connections) = (SocketSet::new(Vec::new()), Vec::new());
        Self { interface, sockets, connections, device, next: Instant::ZERO }
    }

    fn add(&mut self, socket: tcp::Socket<'static>) {
        self.connections.push(self.sockets.add(socket));
    }

    /// Lets the stack act, and each connection's user by `serve`.
    fn poll(&mut self, now: Instant, serve: fn(&mut tcp::Socket<'static>)) {
        let now = stack_time(now);
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        for connection in &self.connections {
            serve(self.sockets.get_mut(*connection));
        }
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        let next = self.interface.poll_at(now, &self.sockets);
        self.next = next.map_or(Instant::FAR_FUTURE, |next| simulated_time(next.max(now)));
    }
}

impl Device for QueueDevice {
    type RxToken<'a> = QueueRxToken;
    type TxToken<'a> = QueueTxToken<'a>;

    fn receive(&mut self, _: StackInstant) -> Option<(QueueRxToken, QueueTxToken<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((QueueRxToken(packet), QueueTxToken(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<QueueTxToken<'_>> {
        Some(QueueTxToken(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 1500;
        capabilities.medium = Medium::Ip;
        capabilities
    }
}

impl RxToken for QueueRxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for QueueTxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut packet = vec![0; length];
        let written = write(&mut packet);
        self.0.push_back(packet);
        written
    }
}

fn connection(window: usize, congestion: TcpCongestion) -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; window]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_congestion_control(match congestion {
        TcpCongestion::Reno => tcp::CongestionControl::Reno,
        TcpCongestion::Cubic => tcp::CongestionControl::Cubic,
    });
    socket
}

/// Hands the stack as much as it takes.
fn fill(socket: &mut tcp::Socket<'static>) {
    while socket.can_send() && matches!(socket.send(|room| (room.len(), room.len())), Ok(1..)) {}
}

/// Takes what came.
fn drain(socket: &mut tcp::Socket<'static>) {
    while socket.can_recv() && matches!(socket.recv(|data| (data.len(), data.len())), Ok(1..)) {}
}

fn stack_time(now: Instant) -> StackInstant {
    StackInstant::from_micros(i64::try_from(now.as_nanos() / 1000).unwrap_or(i64::MAX))
}

fn simulated_time(at: StackInstant) -> Instant {
    Instant::from_nanos(u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000))
}

const SENDER: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
const RECEIVER: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);
const FIRST_PORT: u16 = 40_000;
const ETHERNET: u32 = 14;
/// The stack's clock counts microseconds.
const STACK_TICK: Nanos = Nanos::from_micros(1);
/// Packets under way at once.
const ON_THE_WAY_MAX: usize = 1 << 16;
