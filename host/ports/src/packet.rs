// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port over a packet socket (packet(7)): for any device, where XDP is missing.
//!
//! A packet socket gets frames as the kernel's own stack would see them, after offloads. So the
//! port puts stripped tags back, finishes checksums, and cuts super-frames into frames of the wire.
//! The stack must not see the frames too, or the host would answer them: a program at the device's
//! ingress hook drops them. It runs after the packet socket has its copy.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_switch::Frame;

use crate::discard::Discard;
use crate::error::PortError;
use crate::facts::DeviceProperties;
use crate::intake::Intake;
use crate::messages::{Messages, SendOutcome};
use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::port::{FramePort, PortStatistics};
use crate::xdp::Devices;
use crate::{link, sys};

/// A port that reads and writes its device through a packet socket.
#[derive(Debug)]
pub struct PacketPort {
    name: String,
    socket: OwnedFd,
    discard: Option<Discard>,
    messages: Messages,
    intake: Intake,
    outbox: Outbox,
    counted: PortStatistics,
    properties: Arc<DeviceProperties>,
}

/// The settings for opening a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketConfig {
    /// The Linux device.
    pub device: String,
    /// Bytes that may wait in the socket, the kernel's overhead included.
    pub receive_buffer: u32,
    /// Frames that may be queued for the device, 1 to 4096.
    pub transmit_limit: u32,
}

impl PacketConfig {
    /// Returns the usual sizes: a receive buffer of 8 MiB, 256 frames to transmit.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self { device: device.to_owned(), receive_buffer: 8 << 20, transmit_limit: 256 }
    }
}

impl PacketPort {
    /// Opens the device. With the `devices` of a data plane, the kernel's own stack does not see
    /// its frames.
    ///
    /// # Errors
    /// The device does not exist, a setting is out of bounds, or a system call fails.
    pub fn open(config: &PacketConfig, devices: Option<&Devices>) -> Result<Self, PortError> {
        let name = &config.device;
        if !(1..=4096).contains(&config.transmit_limit) {
            let message = format!("transmit_limit is {}; 1 to 4096", config.transmit_limit);
            return Err(PortError::bound(name, message));
        }
        let ifindex = link::ifindex(name)?;
        // Protocol 0: nothing is received before the socket is bound to its device.
        let socket = link::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)
            .map_err(|error| PortError::system(name, "open a packet socket", error))?;
        for (option, step) in [
            (PACKET_VNET_HDR, "ask a packet socket for offload headers"),
            (libc::PACKET_AUXDATA, "ask a packet socket for stripped tags"),
            (libc::PACKET_QDISC_BYPASS, "bypass the device's queueing"),
            (PACKET_IGNORE_OUTGOING, "ignore what leaves by the device"),
        ] {
            sys::set_option(socket.as_fd(), libc::SOL_PACKET, option, &1_u32)
                .map_err(|error| PortError::system(name, step, error))?;
        }
        let buffer = config.receive_buffer;
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &buffer)
            .map_err(|error| PortError::system(name, "size the receive buffer", error))?;
        enter(name, ifindex, socket.as_fd())?;
        let discard = match devices {
            Some(devices) => Some(Discard::attach(devices.discard_program(), name, ifindex)?),
            None => None,
        };
        Ok(Self {
            name: name.clone(),
            socket,
            discard,
            messages: Messages::new(),
            intake: Intake::new(),
            outbox: Outbox::new(config.transmit_limit),
            counted: PortStatistics::default(),
            properties: DeviceProperties::of(ifindex),
        })
    }

    /// Closes the socket and returns the port's chunks to the pool. Queued frames are lost.
    pub fn close(mut self, pool: &mut Pool) {
        self.release(pool);
    }

    /// Returns the port's chunks to the pool; afterwards it can be closed without one.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.messages.release(pool);
        self.outbox.clear(pool);
    }

    /// Returns whether frames of the device are hidden from the kernel's own stack.
    #[must_use]
    pub fn hides_from_stack(&self) -> bool {
        self.discard.is_some()
    }

    /// Returns the cached properties of the device.
    #[must_use]
    pub fn properties(&self) -> &Arc<DeviceProperties> {
        &self.properties
    }

    /// Returns the descriptor, to poll it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Adds the frames that the socket dropped since the last call; reading clears the kernel's
    /// counter.
    fn count_losses(&mut self) {
        let read = sys::option::<libc::tpacket_stats>(
            self.socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        );
        if let Ok(read) = read {
            self.counted.receive_ring_full += u64::from(read.tp_drops);
        }
    }
}

impl FramePort for PacketPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize {
        let first = out.len();
        let most = out.capacity().min(first.saturating_add(max));
        while self.intake.drain(pool, most, out) && out.len() < most {
            if self.messages.is_empty() {
                self.messages.read(self.socket.as_fd(), pool, most - out.len());
            }
            let Some(message) = self.messages.next(pool) else { break };
            match message.frame {
                Some(frame) => {
                    let rest = self.messages.rest(&message);
                    self.intake.take(&message.header, frame, rest, pool, out);
                }
                None => self.intake.drop_one(),
            }
        }
        let frames = &out[first..];
        self.counted.count_received(frames);
        frames.len()
    }

    fn transmit_room(&mut self, _pool: &mut Pool) -> usize {
        self.outbox.room()
    }

    fn transmit(&mut self, _pool: &mut Pool, frame: Frame) -> Result<(), Frame> {
        self.outbox.push(frame, &mut self.counted)
    }

    fn flush(&mut self, pool: &mut Pool) -> io::Result<usize> {
        while !self.outbox.frames().is_empty() {
            let result = self.messages.send(self.socket.as_fd(), pool, self.outbox.frames());
            let (done, goes_on) = match result {
                SendOutcome::Sent(count) => (count, true),
                SendOutcome::Full => (0, false),
                SendOutcome::Unfit => {
                    self.counted.transmit_invalid += 1;
                    (1, true)
                }
                SendOutcome::Failed(error) => return Err(error),
            };
            self.outbox.done(done, pool);
            if !goes_on {
                break;
            }
        }
        Ok(self.outbox.frames().len())
    }

    fn pending(&mut self) -> usize {
        self.outbox.frames().len()
    }

    fn statistics(&mut self) -> PortStatistics {
        self.count_losses();
        PortStatistics {
            receive_dropped: self.intake.dropped(),
            device_dropped: self.properties.dropped(),
            transmit_outstanding: self.outbox.frames().len() as u64,
            ..self.counted
        }
    }
}

/// Binds to the device. From then on the socket receives all its frames, including those to other
/// addresses.
fn enter(name: &str, ifindex: u32, socket: BorrowedFd<'_>) -> Result<(), PortError> {
    let ifindex = i32::try_from(ifindex).unwrap_or(0);
    let membership = libc::packet_mreq {
        mr_ifindex: ifindex,
        mr_type: MR_PROMISC,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
        .map_err(|error| PortError::system(name, "receive frames for all addresses", error))?;
    let address = libc::sockaddr_ll {
        sll_family: AF_PACKET,
        sll_protocol: ETH_P_ALL.to_be(),
        sll_ifindex: ifindex,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    sys::bind(socket, &address)
        .map_err(|error| PortError::system(name, "bind a packet socket", error))
}

/// From `linux/if_packet.h`; libc lacks the first two on some targets and has the rest as `int`.
const PACKET_VNET_HDR: i32 = 15;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const MR_PROMISC: u16 = 1;
const AF_PACKET: u16 = 17;
const ETH_P_ALL: u16 = 3;
