// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of any kind. An enum and not a trait object, so that the compiler can inline its calls.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_switch::Frame;

use crate::capture::CapturePort;
use crate::facts::DeviceProperties;
use crate::memory::MemoryPort;
use crate::packet::PacketPort;
use crate::pool::{LentChunks, Pool};
use crate::port::{FramePort, PortStatistics};
use crate::tap::TapPort;
use crate::xdp::{Devices, XdpPlane, XdpPort};

/// A port of any kind.
#[derive(Debug)]
pub enum AnyPort {
    /// Over AF_XDP.
    Xdp(XdpPort),
    /// Over a packet socket.
    Packet(Box<PacketPort>),
    /// A TAP device.
    Tap(Box<TapPort>),
    /// One end of a pair in memory.
    Memory(MemoryPort),
    /// Capture files.
    Capture(Box<CapturePort>),
}

/// A port that has left its worker and is not closed yet.
#[derive(Debug)]
#[must_use = "ClosingPort::shut returns its chunks"]
pub struct ClosingPort(Option<AnyPort>);

/// Makes the same call on any kind of port.
macro_rules! on_port {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            AnyPort::Xdp($port) => $call,
            AnyPort::Packet($port) => $call,
            AnyPort::Tap($port) => $call,
            AnyPort::Memory($port) => $call,
            AnyPort::Capture($port) => $call,
        }
    };
}

impl AnyPort {
    /// Closes the port and returns its chunks to the pool.
    pub fn close(self, plane: Option<&mut XdpPlane>, pool: &mut Pool) {
        match self {
            Self::Xdp(port) => match plane {
                Some(plane) => port.close(plane, pool),
                // Without a data plane the port has no entry to remove.
                None => port.close_alone(pool),
            },
            Self::Packet(port) => port.close(pool),
            Self::Tap(port) => port.close(pool),
            Self::Memory(port) => port.close(pool),
            Self::Capture(_) => {}
        }
    }

    /// Prepares a port that was opened on another thread for use on this one.
    pub fn adopt(&mut self, pool: &mut Pool) {
        if let Self::Xdp(port) = self {
            port.adopt(pool);
        }
    }

    /// Does the first half of [`Self::close`], which is fast, on the thread that owns the pool.
    /// [`ClosingPort::shut`] does the rest on another thread.
    pub fn leave(self, pool: &mut Pool) -> ClosingPort {
        match self {
            Self::Xdp(port) => ClosingPort(Some(Self::Xdp(port))),
            Self::Packet(mut port) => {
                port.release(pool);
                ClosingPort(Some(Self::Packet(port)))
            }
            Self::Tap(mut port) => {
                port.release(pool);
                ClosingPort(Some(Self::Tap(port)))
            }
            other => {
                other.close(None, pool);
                ClosingPort(None)
            }
        }
    }

    /// Calls `each` with every descriptor that becomes readable when frames arrive. A port in
    /// memory and a file have none: the worker asks them in each turn.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn descriptors(
        &self,
        mut each: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Self::Xdp(port) => port.descriptors().try_for_each(each),
            Self::Packet(port) => each(port.descriptor()),
            Self::Tap(port) => each(port.descriptor()),
            Self::Memory(_) | Self::Capture(_) => Ok(()),
        }
    }

    /// Returns the cached properties of its device, if it has one.
    #[must_use]
    pub fn properties(&self) -> Option<&Arc<DeviceProperties>> {
        match self {
            Self::Xdp(port) => Some(port.properties()),
            Self::Packet(port) => Some(port.properties()),
            Self::Tap(port) => Some(port.properties()),
            Self::Memory(_) | Self::Capture(_) => None,
        }
    }

    /// Returns its kind, as in a policy.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Xdp(_) => "xdp",
            Self::Packet(_) => "packet",
            Self::Tap(_) => "tap",
            Self::Memory(_) => "memory",
            Self::Capture(_) => "pcap",
        }
    }
}

impl ClosingPort {
    /// Closes the port, by system calls that take some 10 ms. Pass the result to
    /// [`Pool::reclaim`].
    pub fn shut(self, devices: &Devices) -> LentChunks {
        match self.0 {
            Some(AnyPort::Xdp(port)) => port.shut(devices),
            // The others have given their chunks back.
            _ => LentChunks::default(),
        }
    }
}

impl FramePort for AnyPort {
    fn name(&self) -> &str {
        on_port!(self, port => port.name())
    }

    fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize {
        on_port!(self, port => port.receive(pool, max, out))
    }

    fn transmit_room(&mut self, pool: &mut Pool) -> usize {
        on_port!(self, port => port.transmit_room(pool))
    }

    fn transmit(&mut self, pool: &mut Pool, frame: Frame) -> Result<(), Frame> {
        on_port!(self, port => port.transmit(pool, frame))
    }

    fn flush(&mut self, pool: &mut Pool) -> io::Result<usize> {
        on_port!(self, port => port.flush(pool))
    }

    fn pending(&mut self) -> usize {
        on_port!(self, port => port.pending())
    }

    fn needs_qdisc(&self) -> bool {
        on_port!(self, port => port.needs_qdisc())
    }

    fn bound_outstanding(&mut self, bytes: Option<u64>) -> bool {
        on_port!(self, port => port.bound_outstanding(bytes))
    }

    fn statistics(&mut self) -> PortStatistics {
        on_port!(self, port => port.statistics())
    }
}
