// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port that is the user's side of a TAP device: it reads what the kernel sends to the device,
//! and the kernel receives from the device what the port writes.
//!
//! The device lives as long as the port, unless it existed before. It drops frames that are not
//! read in time; their senders are not held back.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use weir_switch::{Frame, FramePool};

use crate::error::PortError;
use crate::facts::DeviceProperties;
use crate::intake::{Intake, SUPER_FRAME_MAX};
use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::port::{FramePort, PortStatistics};
use crate::segment::VnetHeader;
use crate::{link, sys};

/// The user's side of a TAP device.
#[derive(Debug)]
pub struct TapPort {
    name: String,
    file: File,
    intake: Intake,
    overflow: Box<[u8]>,
    outbox: Outbox,
    counted: PortStatistics,
    properties: Arc<DeviceProperties>,
}

/// The settings for opening a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The device, at most 15 bytes; it is made if it does not exist.
    pub device: String,
    /// Let the kernel leave segmentation and checksums of TCP to this port: fewer system calls for
    /// bulk traffic. Else the kernel does both before the frames get here.
    pub offloads: bool,
    /// Frames that may wait here for the device, 1 ..= 4096.
    pub transmit_limit: u32,
}

impl TapConfig {
    /// Returns the usual settings for a device.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self { device: device.to_owned(), offloads: true, transmit_limit: 256 }
    }
}

impl TapPort {
    /// Opens the device; it is not brought up.
    ///
    /// # Errors
    /// A bound is broken, TAP is not available, or the device is in use.
    pub fn open(config: &TapConfig) -> Result<Self, PortError> {
        let name = &config.device;
        if !(1..=4096).contains(&config.transmit_limit) {
            let message = format!("transmit_limit is {}; 1 to 4096", config.transmit_limit);
            return Err(PortError::bound(name, message));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(|error| PortError::system(name, "open /dev/net/tun", error))?;
        let mut request = link::request(name)
            .map_err(|error| PortError::system(name, "name a TAP device", error))?;
        request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
        let offloads = if config.offloads { TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 } else { 0 };
        // SAFETY: the first call reads and writes a live `ifreq`, the second takes a number.
        let (made, set) = unsafe {
            let made = libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request);
            (sys::check(made), sys::check(libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, offloads)))
        };
        made.map_err(|error| PortError::system(name, "make or join the TAP device", error))?;
        set.map_err(|error| PortError::system(name, "set the TAP device's offloads", error))?;
        let ifindex = link::ifindex(name)?;
        Ok(Self {
            name: name.clone(),
            file,
            intake: Intake::new(),
            overflow: vec![0; SUPER_FRAME_MAX].into(),
            outbox: Outbox::new(config.transmit_limit),
            counted: PortStatistics::default(),
            properties: DeviceProperties::of(ifindex),
        })
    }

    /// Closes the device and returns the port's chunks. What waits to be sent is lost.
    pub fn close(mut self, pool: &mut Pool) {
        self.release(pool);
    }

    /// Returns the port's chunks; closing it then takes no pool.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.outbox.clear(pool);
    }

    /// Returns the cached properties of the device.
    #[must_use]
    pub fn properties(&self) -> &Arc<DeviceProperties> {
        &self.properties
    }

    /// Returns the descriptor, for a poll.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads one message. Returns false if there is none, or no chunk for it.
    fn read(&mut self, pool: &mut Pool, out: &mut Vec<Frame>) -> bool {
        let room = pool.frame_max() as usize;
        let Some(frame) = pool.frame(u16::try_from(room).unwrap_or(u16::MAX)) else {
            return false;
        };
        let mut header = [0; VnetHeader::LENGTH];
        let read = self.file.read_vectored(&mut [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(pool.data(frame)),
            IoSliceMut::new(&mut self.overflow),
        ]);
        let Ok(length) = read else {
            pool.free(frame.id);
            return false;
        };
        let length = length.saturating_sub(header.len());
        if length < ETHERNET {
            self.intake.drop_one();
            pool.free(frame.id);
            return true;
        }
        let rest = length.saturating_sub(room).min(self.overflow.len());
        let frame = Frame { len: u16::try_from(length.min(room)).unwrap_or(u16::MAX), ..frame };
        let header = VnetHeader::from_bytes(&header);
        self.intake.take(&header, frame, &self.overflow[..rest], pool, out);
        true
    }
}

impl FramePort for TapPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize {
        let first = out.len();
        let most = out.capacity().min(first.saturating_add(max));
        while self.intake.drain(pool, most, out) && out.len() < most {
            if !self.read(pool, out) {
                break;
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
        let header = [0; VnetHeader::LENGTH];
        while let Some(frame) = self.outbox.frames().front().copied() {
            let parts = [IoSlice::new(&header), IoSlice::new(pool.data(frame))];
            if let Err(error) = self.file.write_vectored(&parts) {
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => break,
                    Some(libc::EINVAL | libc::EMSGSIZE) => self.counted.transmit_invalid += 1,
                    // EIO: the device is down. The frames wait until it is up.
                    _ => return Err(error),
                }
            }
            self.outbox.done(1, pool);
        }
        Ok(self.outbox.frames().len())
    }

    fn pending(&mut self) -> usize {
        self.outbox.frames().len()
    }

    /// Returns the counters. `receive_ring_full` counts the frames that the kernel wanted to send
    /// while the device's queue was full; the device counts them as dropped on transmission.
    fn statistics(&mut self) -> PortStatistics {
        PortStatistics {
            receive_dropped: self.intake.dropped(),
            receive_ring_full: self.properties.dropped(),
            transmit_outstanding: self.outbox.frames().len() as u64,
            ..self.counted
        }
    }
}

/// From `linux/if_tun.h`.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const IFF_TAP: libc::c_short = 0x0002;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 1;
const TUN_F_TSO4: libc::c_ulong = 2;
const TUN_F_TSO6: libc::c_ulong = 4;

const ETHERNET: usize = 14;
