// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port over AF_XDP: one socket for each receive queue, and the data-plane program before them.

mod bounce;
mod device_entry;
mod devices;
mod five_tuples;
mod gate;
mod limits;
mod pinned_links;
mod pins;
mod plane;
mod redirect;
mod ring;
mod socket;
mod stand_ins;
mod trial;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_switch::Frame;

pub use device_entry::DeviceRole;
pub use devices::{AttachMode, Devices, link as link_program};
pub use gate::{GateCounters, GateId, Gates};
pub use limits::PlaneLimits;
pub use pinned_links::{pin_link, renew_link};
pub use pins::Pins;
pub use plane::{BridgeMember, Faults, Route, XdpPlane};
pub use redirect::{BucketId, BucketLimit, Redirect, RedirectCounters};
pub use trial::FrameTrial;

use crate::error::PortError;
use crate::facts::DeviceProperties;
use crate::link;
use crate::pool::{BindMode, LentChunks, Pool, Region};
use crate::port::{FramePort, PortStatistics};
use device_entry::DeviceEntry;
use socket::{Socket, SocketConfig};

/// A device, all its receive queues, and the attached program.
///
/// Frames leave by the socket of queue 0 only, which keeps them in order. A device should have a
/// queueing discipline (see [`FramePort::needs_qdisc`]), else a full one drops instead of waiting.
#[derive(Debug)]
pub struct XdpPort {
    name: String,
    ifindex: u32,
    sockets: Vec<Socket>,
    /// The socket to be read first in the next call, so that no queue is starved.
    turn: usize,
    entry: DeviceEntry,
    /// True once the stand-in is at the device's ingress hook.
    passes: Arc<AtomicBool>,
    /// True if an earlier process left the device's entry.
    adopted: bool,
    receive_room: u32,
    gates: Arc<Gates>,
    link: OwnedFd,
    attached: AttachMode,
    bound: BindMode,
    counted: PortStatistics,
    properties: Arc<DeviceProperties>,
}

/// The settings for opening a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The Linux device.
    pub device: String,
    /// The role of the device.
    pub role: DeviceRole,
    /// Entries of each ring: a power of two, 64 ..= 32 768.
    pub ring: u32,
    /// Chunks kept ready for receiving, over all queues; each has 64 at least, and at most `ring`.
    pub fill: u32,
    /// Most frames handed to the device and not yet sent, 1 ..= `ring`.
    pub transmit_limit: u32,
    /// Let the device read and write the pool itself if its driver can.
    pub zero_copy: bool,
    /// Give its sockets bounce buffers of their own, so that no frame of the pool lies in its
    /// rings; then `zero_copy` has no effect.
    pub bounce: bool,
}

impl XdpConfig {
    /// Returns the settings with the usual sizes for a single device.
    #[must_use]
    pub fn new(device: &str, role: DeviceRole) -> Self {
        Self::sized(device, role, 1024, 256)
    }

    /// Returns the settings for a device that holds at most `fill` chunks for receiving and
    /// `transmit_limit` frames on their way out; its rings are long enough for both.
    #[must_use]
    pub fn sized(device: &str, role: DeviceRole, fill: u32, transmit_limit: u32) -> Self {
        let longest = fill.max(transmit_limit).clamp(RING_MIN, RING_MAX);
        let ring = longest.checked_next_power_of_two().unwrap_or(RING_MAX);
        let device = device.to_owned();
        Self { device, role, ring, fill, transmit_limit, zero_copy: true, bounce: false }
    }
}

impl XdpPort {
    /// Binds to every receive queue of the device, then attaches the program.
    ///
    /// # Errors
    /// The device is not there, is in use by another program, a bound is broken, or a step fails.
    pub fn open(
        config: &XdpConfig,
        plane: &mut XdpPlane,
        pool: &mut Pool,
    ) -> Result<Self, PortError> {
        let mut port = Self::prepare(config, plane.devices(), pool.region())?;
        port.adopt(pool);
        if let Err(error) = port.connect(plane.devices()) {
            port.close(plane, pool);
            return Err(error);
        }
        Ok(port)
    }

    /// Opens the device on a thread that does not own the pool. [`Self::adopt`] then gives its
    /// sockets chunks to receive into, and from [`Self::connect`] on frames reach them.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn prepare(
        config: &XdpConfig,
        devices: &Devices,
        region: &Region,
    ) -> Result<Self, PortError> {
        let ifindex = check(config)?;
        let (sockets, bound) = open_sockets(config, ifindex, region)?;
        match Self::enter(config, ifindex, sockets.len(), devices, region) {
            Ok((entry, adopted, link, attached)) => Ok(Self {
                name: config.device.clone(),
                ifindex,
                receive_room: sockets.iter().map(Socket::fill_target).sum(),
                sockets,
                turn: 0,
                passes: devices.attach_stand_in_later(&config.device, ifindex, entry),
                entry,
                adopted,
                gates: Arc::clone(devices.gates()),
                link,
                attached,
                bound,
                counted: PortStatistics::default(),
                properties: DeviceProperties::of(ifindex),
            }),
            Err(error) => {
                // None has been given a chunk.
                sockets.into_iter().filter_map(Socket::shut).for_each(|name| region.retire(name));
                Err(error)
            }
        }
    }

    /// Hands the kernel chunks of the pool to receive into, from now on.
    pub fn adopt(&mut self, pool: &mut Pool) {
        self.sockets.iter_mut().for_each(|socket| socket.refill(pool));
    }

    /// Lets the program hand frames to the sockets.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn connect(&self, devices: &Devices) -> Result<(), PortError> {
        let mut sockets = (self.entry.socket_base..).zip(&self.sockets);
        sockets.try_for_each(|(index, socket)| devices.set_socket(index, socket.as_fd()))
    }

    /// Stops the program from handing frames to the sockets. Frames already received can still be
    /// read.
    pub fn disconnect(&self, devices: &Devices) {
        devices.clear_sockets(&self.entry);
    }

    /// Detaches the program, closes the sockets and returns their chunks. Dropping the port closes
    /// the sockets without returning their chunks, and detaches the program unless its link is
    /// pinned.
    pub fn close(self, plane: &mut XdpPlane, pool: &mut Pool) {
        let lent = self.shut(plane.devices());
        pool.reclaim(lent);
    }

    /// Does [`Self::close`] on a thread that does not own the pool.
    pub fn shut(self, devices: &Devices) -> LentChunks {
        drop(self.link);
        devices.release(self.ifindex);
        devices.remove_device(self.ifindex, &self.entry);
        LentChunks(self.sockets.into_iter().filter_map(Socket::shut).collect())
    }

    /// Does the same as [`Self::shut`], but puts back what an earlier process left.
    pub fn abandon(self, devices: &Devices) -> LentChunks {
        if !self.adopted {
            return self.shut(devices);
        }
        devices.put_back(self.ifindex, &self.entry);
        LentChunks(self.sockets.into_iter().filter_map(Socket::shut).collect())
    }

    /// Does [`Self::close`] when the data plane is gone already.
    pub(crate) fn close_alone(self, pool: &mut Pool) {
        drop(self.link);
        self.sockets.into_iter().for_each(|socket| socket.close(pool));
    }

    /// Returns the index by which [`XdpPlane::set_station`] and [`XdpPlane::faults`] identify the
    /// device.
    #[must_use]
    pub fn device_index(&self) -> u32 {
        self.entry.index
    }

    /// Returns whether the device took redirected frames when its [`Self::properties`] were last
    /// refreshed.
    #[must_use]
    pub fn takes_redirects(&self) -> bool {
        self.properties.takes_redirects()
    }

    /// Returns whether the kernel transmits what the stand-in forwards, to whatever device.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.passes.load(Ordering::Relaxed)
    }

    /// Returns the cached properties of the device.
    #[must_use]
    pub fn properties(&self) -> &Arc<DeviceProperties> {
        &self.properties
    }

    /// Returns how the program is attached: in the driver or in the kernel's receive path.
    #[must_use]
    pub fn attached(&self) -> AttachMode {
        self.attached
    }

    /// Returns whether frames are copied between the device and its sockets.
    #[must_use]
    pub fn bound(&self) -> BindMode {
        self.bound
    }

    /// Returns the number of frames that its sockets can receive before they are read.
    #[must_use]
    pub fn receive_room(&self) -> u32 {
        self.receive_room
    }

    /// Returns the number of receive queues served.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the number of frames received on each queue.
    pub fn received_by_queue(&self) -> impl Iterator<Item = u64> {
        self.sockets.iter().map(Socket::received)
    }

    /// Returns the descriptor of each queue, for a poll on all of them.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    fn enter(
        config: &XdpConfig,
        ifindex: u32,
        queues: usize,
        devices: &Devices,
        region: &Region,
    ) -> Result<(DeviceEntry, bool, OwnedFd, AttachMode), PortError> {
        let (name, role) = (&config.device, config.role);
        let queues = u32::try_from(queues).unwrap_or(u32::MAX);
        let (index, socket_base, adopted) = devices.take(name, ifindex, role, queues)?;
        let frame_max = region.frame_max();
        let passes = devices.take_over_stand_in(ifindex);
        let entry = DeviceEntry { role, socket_base, queues, index, frame_max, passes };
        let attached =
            devices.set_device(ifindex, &entry).and_then(|()| devices.attach(name, ifindex));
        match attached {
            Ok((link, mode)) => Ok((entry, adopted, link, mode)),
            Err(error) if adopted => {
                devices.put_back(ifindex, &entry);
                Err(error)
            }
            Err(error) => {
                devices.release(ifindex);
                devices.remove_device(ifindex, &entry);
                Err(error)
            }
        }
    }

    /// Tells the gates which frames have arrived. A vif's frames all belong to its gate; a port's
    /// carry the number of their gate in a mark, or belong to the port's flood gate.
    fn note(&self, pool: &mut Pool, frames: &[Frame]) {
        match self.entry.role {
            DeviceRole::Vif(gate) => self.gates.note_received(gate, frames.len() as u64),
            DeviceRole::Port(flood) => {
                for frame in frames {
                    let word = pool.take_word_before(*frame).unwrap_or(0);
                    let marked = word & GATE_MARK_MASK == GATE_MARK;
                    let gate = if marked { GateId(word & !GATE_MARK_MASK) } else { flood };
                    self.gates.note_received(gate, 1);
                }
            }
        }
    }
}

impl FramePort for XdpPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize {
        let first = out.len();
        for step in 0..self.sockets.len() {
            let left = max - (out.len() - first);
            let index = (self.turn + step) % self.sockets.len();
            if left == 0 {
                break;
            }
            self.sockets[index].receive(pool, left, out);
        }
        self.turn = (self.turn + 1) % self.sockets.len().max(1);
        let frames = &out[first..];
        if !frames.is_empty() {
            self.counted.count_received(frames);
            self.note(pool, frames);
        }
        frames.len()
    }

    fn transmit_room(&mut self, pool: &mut Pool) -> usize {
        self.sockets.first_mut().map_or(0, |socket| socket.transmit_room(pool) as usize)
    }

    fn transmit(&mut self, pool: &mut Pool, frame: Frame) -> Result<(), Frame> {
        let Some(socket) = self.sockets.first_mut() else { return Err(frame) };
        socket.transmit(pool, frame)?;
        self.counted.transmitted.packets += 1;
        self.counted.transmitted.bytes += u64::from(frame.len);
        Ok(())
    }

    fn flush(&mut self, _pool: &mut Pool) -> io::Result<usize> {
        match self.sockets.first_mut() {
            Some(socket) => socket.kick().map(|pending| pending as usize),
            None => Ok(0),
        }
    }

    fn pending(&mut self) -> usize {
        self.sockets.first_mut().map_or(0, |socket| socket.pending() as usize)
    }

    fn needs_qdisc(&self) -> bool {
        self.bound == BindMode::Copy
    }

    fn bound_outstanding(&mut self, bytes: Option<u64>) -> bool {
        let bound = |socket: &mut Socket| socket.bound_outstanding(bytes.unwrap_or(u64::MAX));
        self.sockets.first_mut().map(bound).is_some()
    }

    fn statistics(&mut self) -> PortStatistics {
        let mut sum = self.counted;
        for socket in &self.sockets {
            // A failure here (the device was deleted) leaves the counts that we have ourselves.
            if let Ok(kernel) = socket.statistics() {
                sum.receive_dropped += kernel.rx_dropped;
                sum.receive_ring_full += kernel.rx_ring_full;
                sum.receive_no_chunk += kernel.rx_fill_ring_empty_descs;
                sum.transmit_invalid += kernel.tx_invalid_descs;
            }
            sum.transmit_refused += socket.busy_losses();
            sum.transmit_outstanding += u64::from(socket.outstanding());
            sum.outstanding_bytes += socket.outstanding_bytes();
        }
        sum.device_dropped = self.properties.dropped();
        sum
    }
}

/// Returns the device's index, if it exists and the size of the rings is allowed.
fn check(config: &XdpConfig) -> Result<u32, PortError> {
    if !config.ring.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&config.ring) {
        let message =
            format!("ring is {}; a power of two from {RING_MIN} to {RING_MAX}", config.ring);
        return Err(PortError::bound(&config.device, message));
    }
    link::ifindex(&config.device)
}

/// Opens one socket a queue. Tries zero copy first if it is asked for and the driver may support
/// it; either all of the queues use it or none.
///
/// An attempt that the driver refuses is expensive: it registers the whole pool, and the queue
/// stays in use until the kernel has released it. An attempt for each of 128 veths made the
/// start-up time quadratic.
fn open_sockets(
    config: &XdpConfig,
    ifindex: u32,
    region: &Region,
) -> Result<(Vec<Socket>, BindMode), PortError> {
    if config.zero_copy && !config.bounce && link::may_zero_copy(ifindex) {
        // Copying works for any reason that a driver has to refuse.
        if let Ok(sockets) = open_queues(config, ifindex, BindMode::ZeroCopy, region) {
            return Ok((sockets, BindMode::ZeroCopy));
        }
    }
    Ok((open_queues(config, ifindex, BindMode::Copy, region)?, BindMode::Copy))
}

fn open_queues(
    config: &XdpConfig,
    ifindex: u32,
    mode: BindMode,
    region: &Region,
) -> Result<Vec<Socket>, PortError> {
    let queues = link::receive_queues(&config.device, ifindex)?;
    let fill = (config.fill / queues.max(1)).max(FILL_MIN);
    let mut sockets: Vec<Socket> = Vec::new();
    for queue in 0..queues {
        let device = &config.device;
        let wanted = SocketConfig {
            device,
            ifindex,
            queue,
            mode,
            ring: config.ring,
            fill,
            transmit: config.transmit_limit,
            bounce: config.bounce,
        };
        match Socket::open(&wanted, region) {
            Ok(socket) => sockets.push(socket),
            Err(error) => {
                // None has been given a chunk.
                sockets.into_iter().filter_map(Socket::shut).for_each(|name| region.retire(name));
                return Err(error);
            }
        }
    }
    Ok(sockets)
}

/// `GATE_MARK` of `bpf/weir.h`; the other 16 bits are the gate.
const GATE_MARK: u32 = 0x57e1_0000;
const GATE_MARK_MASK: u32 = 0xffff_0000;

/// Bounds of a ring's entries.
const RING_MIN: u32 = 64;
const RING_MAX: u32 = 32_768;

/// The kernel's receive loop handles 64 frames at a time.
const FILL_MIN: u32 = 64;
