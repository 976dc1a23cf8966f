// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of a connection: smoltcp's IP interface with one TCP socket, the packets that have come
//! or are to go, and the application that uses the socket.

use std::collections::VecDeque;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant as TcpInstant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use weir_units::{Instant, Nanos};

use super::application::TcpApplication;

/// The congestion control of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// Additive increase, halving on a loss (RFC 5681).
    Reno,
    /// A cubic function of the time since the last loss (RFC 9438).
    Cubic,
}

/// The properties of one end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndpointConfig {
    /// The congestion control.
    pub(crate) control: CongestionControl,
    /// The bytes of each buffer.
    pub(crate) window: usize,
    /// The length of the longest IP packet.
    pub(crate) mtu: usize,
    /// The time that a lone segment waits for its acknowledgment; `None`: none.
    pub(crate) ack_delay: Option<Nanos>,
    /// The seed of the sequence numbers.
    pub(crate) seed: u64,
}

/// One end of a connection.
pub struct SimEndpoint {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    device: PacketDevice,
    application: Box<dyn TcpApplication>,
    /// The next instant at which [`Self::work`] has something to do.
    pub(crate) due: Instant,
}

/// The device of the interface: packets that came, and packets to go.
struct PacketDevice {
    arrived: VecDeque<Vec<u8>>,
    leaving: VecDeque<Vec<u8>>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    mtu: usize,
}

/// A packet that came.
struct ArrivedPacket(Vec<u8>);

/// Room for a packet to go.
struct LeavingPacket<'a>(&'a mut PacketDevice);

impl SimEndpoint {
    /// Makes an endpoint with the host number `host` (1 to 250) that talks to `peer`. A client
    /// connects at once.
    pub(crate) fn new(
        (host, peer): (u8, u8),
        is_client: bool,
        EndpointConfig { control, window, mtu, ack_delay, seed }: EndpointConfig,
        application: Box<dyn TcpApplication>,
    ) -> Option<Self> {
        let (arrived, leaving, spare) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let mut device = PacketDevice { arrived, leaving, spare, mtu };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut device, TcpInstant::ZERO);
        let cidr = IpCidr::new(address(host), 8);
        interface.update_ip_addrs(|known| known.extend([cidr]));
        let buffer = || tcp::SocketBuffer::new(vec![0; window]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_congestion_control(match control {
            CongestionControl::Reno => tcp::CongestionControl::Reno,
            CongestionControl::Cubic => tcp::CongestionControl::Cubic,
        });
        // Nagle's rule keeps segments full. Without it, an acknowledgment that opens the window by
        // some bytes would send a segment of that many.
        socket.set_nagle_enabled(true);
        socket.set_ack_delay(ack_delay.map(|delay| Duration::from_micros(delay.as_nanos() / 1000)));
        if is_client {
            let local = 40_000 + u16::from(host);
            socket.connect(interface.context(), (address(peer), PORT), local).ok()?;
        } else {
            socket.listen(PORT).ok()?;
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        let due = Instant::ZERO;
        Some(Self { interface, sockets, handle, device, application, due })
    }

    /// Takes a packet that came.
    pub(crate) fn receive(&mut self, packet: Vec<u8>) {
        self.device.arrived.push_back(packet);
    }

    /// Lets the protocol and the application work at `now`.
    pub(crate) fn work(&mut self, now: Instant) {
        let micros = now.as_nanos() / 1_000;
        let at = TcpInstant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX));
        self.interface.poll(at, &mut self.device, &mut self.sockets);
        let socket = self.sockets.get_mut::<tcp::Socket<'static>>(self.handle);
        let wanted = self.application.act(now, socket);
        self.interface.poll(at, &mut self.device, &mut self.sockets);
        let next = self.interface.poll_at(at, &self.sockets);
        let next = next.map_or(Instant::FAR_FUTURE, |next| {
            let micros = u64::try_from(next.total_micros()).unwrap_or(0).max(micros + 1);
            Instant::from_nanos(micros.saturating_mul(1_000))
        });
        self.due = wanted.map_or(next, |wanted| wanted.min(next));
    }

    /// Returns the next packet that it sends.
    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        self.device.leaving.pop_front()
    }

    /// Takes back the buffer of a packet.
    pub(crate) fn reuse(&mut self, buffer: Vec<u8>) {
        if self.device.spare.len() < SPARE_MAX {
            self.device.spare.push(buffer);
        }
    }
}

impl Device for PacketDevice {
    type RxToken<'a> = ArrivedPacket;
    type TxToken<'a> = LeavingPacket<'a>;

    fn receive(&mut self, _: TcpInstant) -> Option<(ArrivedPacket, LeavingPacket<'_>)> {
        let packet = self.arrived.pop_front()?;
        Some((ArrivedPacket(packet), LeavingPacket(self)))
    }

    fn transmit(&mut self, _: TcpInstant) -> Option<LeavingPacket<'_>> {
        Some(LeavingPacket(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        // Nothing is damaged on the way.
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

impl RxToken for ArrivedPacket {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for LeavingPacket<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = self.0.spare.pop().unwrap_or_default();
        packet.resize(len, 0);
        let result = write(&mut packet);
        self.0.leaving.push_back(packet);
        result
    }
}

const fn address(host: u8) -> IpAddress {
    IpAddress::v4(10, 0, 0, host)
}

const PORT: u16 = 80;
const SPARE_MAX: usize = 256;
