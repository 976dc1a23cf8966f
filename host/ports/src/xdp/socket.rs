// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One AF_XDP socket: a device's receive queue, with its four rings over the shared pool.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem, thread};

use weir_switch::{Frame, FramePool};

use super::bounce::BounceBuffers;
use super::ring::{ConsumerRing, ProducerRing};
use crate::error::PortError;
use crate::pool::{BindMode, Borrower, Pool, Region};
use crate::sys;

/// A bound socket. Chunks it holds return to the pool through [`Self::close`].
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: Arc<OwnedFd>,
    memory: SocketMemory,
    mode: BindMode,
    fill: ProducerRing<u64>,
    completion: ConsumerRing<u64>,
    rx: ConsumerRing<libc::xdp_desc>,
    tx: ProducerRing<libc::xdp_desc>,
    /// Chunks to keep ready for receiving.
    fill_target: u32,
    filled: u32,
    received: u64,
    /// Frames handed to the kernel and not yet completed.
    outstanding: u32,
    /// The lengths of these frames, in the order in which they were handed over, which is the order
    /// in which a device completes them. A veth completes a frame only when its receiver takes it,
    /// since the kernel's buffer refers to the socket until then.
    lengths: VecDeque<u16>,
    outstanding_bytes: u64,
    tx_limit: u32,
    /// Most bytes handed over and not completed; the last frame may exceed it.
    tx_bytes: u64,
    busy_losses: u64,
}

/// The memory that the kernel receives into and sends from.
#[derive(Debug)]
enum SocketMemory {
    /// The pool. Chunks that the socket holds are lent to this borrower.
    Pool(Borrower),
    /// The socket's own; frames are copied.
    Bounce(BounceBuffers),
}

/// The queue to bind to, and the sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketConfig<'a> {
    pub(super) device: &'a str,
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    pub(super) mode: BindMode,
    /// Entries of each ring, a power of two.
    pub(super) ring: u32,
    /// Chunks kept ready for receiving, at most `ring`.
    pub(super) fill: u32,
    /// Most frames handed over and not completed, 1 ..= `ring`.
    pub(super) transmit: u32,
    /// Use bounce buffers, not the pool; in copy mode only.
    pub(super) bounce: bool,
}

impl SocketConfig<'_> {
    fn fill_target(&self) -> u32 {
        self.fill.min(self.ring)
    }

    fn transmit_limit(&self) -> u32 {
        self.transmit.clamp(1, self.ring)
    }
}

impl Socket {
    /// Opens, maps and binds a socket; retries for a second while a dead process's socket still
    /// holds the queue. The socket receives nothing before [`Self::refill`].
    pub(super) fn open(config: &SocketConfig<'_>, region: &Region) -> Result<Self, PortError> {
        let name = config.device;
        // SAFETY: no pointers; the result is checked before it is owned.
        let descriptor =
            unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(PortError::last(name, "open an AF_XDP socket"));
        }
        // SAFETY: just opened, owned by nobody else.
        let descriptor = Arc::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let (bounce, anchor) = register_memory(descriptor.as_fd(), config, region)?;
        for option in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            sys::set_option(descriptor.as_fd(), libc::SOL_XDP, option, &config.ring)
                .map_err(|error| PortError::system(name, "size an AF_XDP ring", error))?;
        }
        // Refused by kernels before 6.17, which serve 32 frames a call.
        let budget = config.ring.min(BUDGET);
        let _refused =
            sys::set_option(descriptor.as_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget);
        let offsets: libc::xdp_mmap_offsets =
            sys::option(descriptor.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
                .map_err(|error| PortError::system(name, "read the AF_XDP offsets", error))?;
        let (fd, size) = (descriptor.as_fd(), config.ring);
        let fill = ProducerRing::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, size, name)?;
        let completion =
            ConsumerRing::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, size, name)?;
        let rx = ConsumerRing::map(fd, page(libc::XDP_PGOFF_RX_RING), offsets.rx, size, name)?;
        let tx = ProducerRing::map(fd, page(libc::XDP_PGOFF_TX_RING), offsets.tx, size, name)?;
        bind(fd, config, anchor.as_deref())?;
        let memory = match bounce {
            Some(buffers) => SocketMemory::Bounce(buffers),
            None => {
                region.add_anchor(config.mode, &descriptor);
                let borrower = region.new_borrower();
                let bound = || PortError::bound(name, "more than 65535 AF_XDP sockets");
                SocketMemory::Pool(borrower.ok_or_else(bound)?)
            }
        };
        Ok(Self {
            descriptor,
            memory,
            mode: config.mode,
            fill,
            completion,
            rx,
            tx,
            fill_target: config.fill_target(),
            filled: 0,
            received: 0,
            outstanding: 0,
            lengths: VecDeque::with_capacity(config.transmit_limit() as usize),
            outstanding_bytes: 0,
            tx_limit: config.transmit_limit(),
            tx_bytes: u64::MAX,
            busy_losses: 0,
        })
    }

    /// Appends up to `max` received frames to `out`, never beyond its capacity.
    pub(super) fn receive(&mut self, pool: &mut Pool, max: usize, out: &mut Vec<Frame>) -> usize {
        let max = max.min(out.capacity() - out.len());
        let (mut count, mut taken) = (0, 0);
        while count < max {
            // A frame that has to be copied waits in the ring while the pool is empty.
            if matches!(self.memory, SocketMemory::Bounce(_)) && pool.free_frames() == 0 {
                break;
            }
            let Some(entry) = self.rx.pop() else { break };
            taken += 1;
            let frame = match &self.memory {
                SocketMemory::Pool(borrower) => {
                    self.filled = self.filled.saturating_sub(1);
                    pool.take_back(entry.addr, entry.len, *borrower)
                }
                SocketMemory::Bounce(buffers) => {
                    let bytes = buffers.received(entry.addr, entry.len);
                    let frame = bytes.and_then(|bytes| pool.copy_in(bytes));
                    // Never full: it has room for all chunks to receive into.
                    let _room = self.fill.push(buffers.chunk_of(entry.addr));
                    frame
                }
            };
            if let Some(frame) = frame {
                out.push(frame);
                count += 1;
            }
        }
        if taken > 0 {
            self.rx.release();
            self.fill.submit();
            self.received += count as u64;
        }
        // Also when nothing came: the pool may have been empty the last time.
        if self.filled < self.fill_target {
            self.refill(pool);
        }
        count
    }

    /// Frees the frames that were sent. Returns how many frames can be handed over now.
    pub(super) fn transmit_room(&mut self, pool: &mut Pool) -> u32 {
        let mut reaped = false;
        while let Some(address) = self.completion.pop() {
            reaped = true;
            self.outstanding = self.outstanding.saturating_sub(1);
            let bytes = self.lengths.pop_front().unwrap_or(0);
            self.outstanding_bytes = self.outstanding_bytes.saturating_sub(bytes.into());
            match &mut self.memory {
                SocketMemory::Pool(borrower) => {
                    if let Some(frame) = pool.take_back(address, 0, *borrower) {
                        pool.free(frame.id);
                    }
                }
                SocketMemory::Bounce(buffers) => buffers.sent(address),
            }
        }
        if reaped {
            self.completion.release();
        }
        let frames = self.tx_limit.saturating_sub(self.outstanding);
        let bytes = self.tx_bytes.saturating_sub(self.outstanding_bytes);
        // The bytes are divided by the length of a long frame. If the frames are shorter, there is
        // still room after them, and the caller asks again.
        frames.min(u32::try_from(bytes.div_ceil(LONG_FRAME)).unwrap_or(u32::MAX))
    }

    /// Bounds the bytes that are handed over and not completed.
    pub(super) fn bound_outstanding(&mut self, bytes: u64) {
        self.tx_bytes = bytes;
    }

    /// Puts a frame into the transmit ring; the kernel sees it at the next [`Self::kick`].
    pub(super) fn transmit(&mut self, pool: &mut Pool, frame: Frame) -> Result<(), Frame> {
        if self.outstanding >= self.tx_limit {
            return Err(frame);
        }
        let len = u32::from(frame.len);
        match &mut self.memory {
            SocketMemory::Pool(borrower) => {
                let addr = pool.address(frame);
                if !self.tx.push(libc::xdp_desc { addr, len, options: 0 }) {
                    return Err(frame);
                }
                pool.lend(frame.id, *borrower);
            }
            SocketMemory::Bounce(buffers) => {
                let Some(addr) = buffers.transmit_copy(pool.data(frame)) else { return Err(frame) };
                if !self.tx.push(libc::xdp_desc { addr, len, options: 0 }) {
                    buffers.sent(addr);
                    return Err(frame);
                }
                pool.free(frame.id);
            }
        }
        self.outstanding += 1;
        self.lengths.push_back(frame.len);
        self.outstanding_bytes += u64::from(frame.len);
        Ok(())
    }

    /// Lets the kernel send. Frames that the device cannot take now stay in the ring, and a later
    /// kick continues with them. Returns how many stay.
    pub(super) fn kick(&mut self) -> io::Result<u32> {
        self.tx.submit();
        let mut pending = self.tx.pending();
        for _ in 0..KICKS_MAX {
            if pending == 0 || (self.mode == BindMode::ZeroCopy && !self.tx.needs_wakeup()) {
                return Ok(pending);
            }
            let result = sys::send_nothing(self.descriptor.as_fd());
            let after = self.tx.pending();
            if let Err(error) = result {
                match error.raw_os_error() {
                    // The device is full, or 32 frames were sent and more are left.
                    Some(libc::EAGAIN | libc::ENOBUFS) => {}
                    // In copy mode: one frame was taken from the ring and dropped by the device.
                    Some(libc::EBUSY) => self.busy_losses += u64::from(after < pending),
                    _ => return Err(error),
                }
            }
            if after == pending {
                return Ok(after);
            }
            pending = after;
        }
        Ok(pending)
    }

    /// Returns the number of frames in the transmit ring that the kernel has not taken.
    pub(super) fn pending(&mut self) -> u32 {
        self.tx.pending()
    }

    /// Returns the number of frames handed over and not completed.
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns the bytes of the frames handed over and not completed.
    pub(super) fn outstanding_bytes(&self) -> u64 {
        self.outstanding_bytes
    }

    /// Returns the number of chunks that the socket keeps ready for receiving.
    pub(super) fn fill_target(&self) -> u32 {
        self.fill_target
    }

    /// Returns the number of frames received since the socket was opened.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of frames that the device dropped after it had taken them.
    pub(super) fn busy_losses(&self) -> u64 {
        self.busy_losses
    }

    /// Returns the kernel's counters of this socket.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        sys::option(self.descriptor.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
    }

    /// Closes the socket and frees every chunk that it held.
    pub(super) fn close(self, pool: &mut Pool) {
        if let Some(borrower) = self.shut() {
            pool.forget(borrower);
        }
    }

    /// Closes the socket. Returns the borrower to which chunks of the pool are still lent, if the
    /// socket used the pool.
    pub(super) fn shut(self) -> Option<Borrower> {
        let Self { descriptor, memory, fill, completion, rx, tx, .. } = self;
        // In copy mode frames under way are copies; in zero-copy mode closing ends the transfer.
        drop((descriptor, fill, completion, rx, tx));
        match memory {
            SocketMemory::Pool(borrower) => Some(borrower),
            SocketMemory::Bounce(_) => None,
        }
    }

    /// Hands the kernel chunks to receive into.
    pub(super) fn refill(&mut self, pool: &mut Pool) {
        let borrower = match &self.memory {
            SocketMemory::Pool(borrower) => *borrower,
            SocketMemory::Bounce(buffers) => {
                // Once only: each chunk returns to the ring as soon as its frame is copied.
                for address in buffers.to_receive().skip(self.filled as usize) {
                    self.filled += u32::from(self.fill.push(address));
                }
                self.fill.submit();
                return;
            }
        };
        while self.filled < self.fill_target {
            let Some(id) = pool.alloc() else { break };
            let address = pool.address(Frame { id, offset: 0, len: 0 });
            if !self.fill.push(address) {
                pool.free(id);
                break;
            }
            pool.lend(id, borrower);
            self.filled += 1;
        }
        self.fill.submit();
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Registers bounce buffers of the socket's own, or the pool; or returns the socket through which
/// the pool is registered already.
fn register_memory(
    socket: BorrowedFd<'_>,
    config: &SocketConfig<'_>,
    region: &Region,
) -> Result<(Option<BounceBuffers>, Option<Arc<OwnedFd>>), PortError> {
    let (name, pool) = (config.device, region.extent());
    if config.bounce {
        let (_, _, chunk) = pool;
        let buffers = BounceBuffers::new(config.fill_target(), config.transmit_limit(), chunk)
            .map_err(|error| PortError::system(name, "map bounce buffers", error))?;
        register(socket, buffers.extent(), name)?;
        return Ok((Some(buffers), None));
    }
    let anchor = region.anchor(config.mode);
    if anchor.is_none() {
        register(socket, pool, name)?;
    }
    Ok((None, anchor))
}

/// Registers frame memory, given as start, length and bytes of a chunk, for a socket.
fn register(
    socket: BorrowedFd<'_>,
    (start, len, chunk): (*mut u8, usize, u32),
    name: &str,
) -> Result<(), PortError> {
    // SAFETY: all fields are integers; zero is a valid value for each of them.
    let mut umem: libc::xdp_umem_reg = unsafe { mem::zeroed() };
    umem.addr = start as u64;
    umem.len = len as u64;
    umem.chunk_size = chunk;
    sys::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)
        .map_err(|error| PortError::system(name, "register the frame pool", error))
}

fn bind(
    socket: BorrowedFd<'_>,
    config: &SocketConfig<'_>,
    anchor: Option<&OwnedFd>,
) -> Result<(), PortError> {
    let mode = match config.mode {
        BindMode::Copy => libc::XDP_COPY,
        BindMode::ZeroCopy => libc::XDP_ZEROCOPY,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: u16::try_from(libc::AF_XDP).unwrap_or(0),
        // A sharing socket inherits the other flags; the kernel refuses it if it states them.
        sxdp_flags: anchor.map_or(mode | libc::XDP_USE_NEED_WAKEUP, |_| libc::XDP_SHARED_UMEM),
        sxdp_ifindex: config.ifindex,
        sxdp_queue_id: config.queue,
        sxdp_shared_umem_fd: anchor.map_or(0, |fd| fd.as_raw_fd().unsigned_abs()),
    };
    for _ in 0..BIND_TRIES {
        match sys::bind(socket, &address) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => {
                return Err(PortError::system(config.device, "bind an AF_XDP socket", error));
            }
            Err(_) => thread::sleep(BIND_PAUSE),
        }
    }
    let busy = io::Error::from_raw_os_error(libc::EBUSY);
    Err(PortError::system(config.device, "bind an AF_XDP socket (queue in use)", busy))
}

/// Converts a page offset that libc types as `off_t`; its other page offsets are `u64`.
fn page(constant: libc::off_t) -> u64 {
    constant.unsigned_abs()
}

/// A frame of 1500 bytes with its header and a tag.
const LONG_FRAME: u64 = 1518;

/// A queue is freed some 10 ms after its owner was killed; a second covers a loaded machine.
const BIND_TRIES: u32 = 100;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// From `linux/if_xdp.h`: in copy mode, frames that one call may send.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// More frames than the worker hands over in a turn.
const BUDGET: u32 = 256;

/// The most calls of one kick. The kernel sends 32 frames a call, or [`BUDGET`], so this empties
/// the largest ring that makes sense. A device that frees places as fast as they are filled must
/// not keep the worker here.
const KICKS_MAX: u32 = 64;
