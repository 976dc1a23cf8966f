// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches of messages for a packet socket: `recvmmsg` straight into chunks, `sendmmsg` out of
//! them. Each message read has its offload header and the VLAN tag that the device stripped.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use weir_switch::{Frame, FramePool};

use crate::intake::SUPER_FRAME_MAX;
use crate::pool::Pool;
use crate::segment::VnetHeader;

/// Buffers for one batch in each direction.
#[derive(Debug)]
pub(crate) struct Messages {
    slots: Box<[Slot]>,
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[[libc::iovec; 3]]>,
    /// Room for bytes that do not fit a chunk: the rest of super-frames, [`SUPER_FRAME_MAX`] bytes
    /// a slot.
    overflow: Box<[u8]>,
    /// The number of messages read, and of those that were handed out.
    ready: usize,
    taken: usize,
}

/// A message that was read.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: VnetHeader,
    /// Its first bytes; `None` if the message is unfit: truncated, or shorter than a header.
    pub(crate) frame: Option<Frame>,
    slot: usize,
    rest: usize,
}

/// The outcome of sending a batch.
#[derive(Debug)]
pub(crate) enum SendOutcome {
    /// Packets taken, at least 1.
    Sent(usize),
    /// None was taken; the device is full.
    Full,
    /// The first is one that this device never takes.
    Unfit,
    /// The device is down or gone.
    Failed(io::Error),
}

#[derive(Debug, Clone, Default)]
struct Slot {
    vnet: [u8; VnetHeader::LENGTH],
    control: Control,
    frame: Option<Frame>,
}

/// Room for one control message, aligned as the kernel wants it.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

impl Default for Control {
    fn default() -> Self {
        Self([0; CONTROL])
    }
}

// SAFETY: the raw pointers inside are set anew before each system call, to memory that the value
// itself owns or that the pool does; between calls nobody follows them.
unsafe impl Send for Messages {}

impl Messages {
    pub(crate) fn new() -> Self {
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: integers and pointers, for which zero is a value.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Self {
            slots: vec![Slot::default(); BATCH].into(),
            headers: vec![header; BATCH].into(),
            vectors: vec![[vector; 3]; BATCH].into(),
            overflow: vec![0; BATCH * SUPER_FRAME_MAX].into(),
            ready: 0,
            taken: 0,
        }
    }

    /// Returns whether all that was read has been handed out.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.ready
    }

    /// Reads a new batch of up to `max` messages; the one before must have been handed out. Reads
    /// nothing if the pool is empty, so that frames wait in the socket.
    pub(crate) fn read(&mut self, socket: BorrowedFd<'_>, pool: &mut Pool, max: usize) {
        (self.ready, self.taken) = (0, 0);
        let mut count = 0;
        let room = u16::try_from(pool.frame_max()).unwrap_or(u16::MAX);
        for (index, slot) in self.slots.iter_mut().enumerate().take(max) {
            let Some(frame) = slot.frame.take().or_else(|| pool.frame(room)) else { break };
            slot.frame = Some(frame);
            let bytes = pool.data(frame);
            let overflow = &mut self.overflow[index * SUPER_FRAME_MAX..][..SUPER_FRAME_MAX];
            self.vectors[index] = [vector(&mut slot.vnet), vector(bytes), vector(overflow)];
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = self.vectors[index].as_mut_ptr();
            header.msg_iovlen = 3;
            header.msg_control = slot.control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL;
            header.msg_flags = 0;
            count += 1;
        }
        // SAFETY: the first `count` headers point to vectors, control buffers and bytes that live
        // in `self` and in the pool, both borrowed until the call returns.
        let read = unsafe {
            let headers = self.headers.as_mut_ptr();
            let flags = libc::MSG_DONTWAIT;
            libc::recvmmsg(socket.as_raw_fd(), headers, count, flags as _, ptr::null_mut())
        };
        // An error means that nothing is there, or else the next call returns it again.
        self.ready = usize::try_from(read).unwrap_or(0);
    }

    /// Returns the next message of the batch.
    pub(crate) fn next(&mut self, pool: &mut Pool) -> Option<Message> {
        if self.is_empty() {
            return None;
        }
        let index = self.taken;
        self.taken += 1;
        let (head, slot) = (&self.headers[index], &mut self.slots[index]);
        let length = (head.msg_len as usize).saturating_sub(VnetHeader::LENGTH);
        let room = pool.frame_max() as usize;
        let mut message = Message {
            header: VnetHeader::from_bytes(&slot.vnet),
            frame: None,
            slot: index,
            rest: length.saturating_sub(room),
        };
        let truncated = head.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        if truncated || length < ETHERNET {
            // The chunk stays in its slot for the next batch.
            return Some(message);
        }
        let tag = stripped_tag(&slot.control, head.msg_hdr.msg_controllen);
        message.frame = slot.frame.take().map(|frame| {
            let len = u16::try_from(length.min(room)).unwrap_or(u16::MAX);
            let frame = Frame { len, ..frame };
            match tag {
                Some(tag) => {
                    message.header.checksum_start += 4;
                    put_back(frame, tag, pool)
                }
                None => frame,
            }
        });
        Some(message)
    }

    /// Returns the part of the message that did not fit its chunk.
    pub(crate) fn rest(&self, message: &Message) -> &[u8] {
        &self.overflow[message.slot * SUPER_FRAME_MAX..][..message.rest.min(SUPER_FRAME_MAX)]
    }

    /// Sends the first frames of `queue`, which must not be empty.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        pool: &mut Pool,
        queue: &VecDeque<Frame>,
    ) -> SendOutcome {
        // `self.headers` and `self.vectors` may belong to a batch that is not handed out yet.
        let mut plain = [0_u8; VnetHeader::LENGTH];
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut vectors = [[empty; 2]; BATCH];
        // SAFETY: integers and pointers, for which zero is a value.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        for ((frame, vectors), header) in queue.iter().zip(&mut vectors).zip(&mut headers) {
            *vectors = [vector(&mut plain), vector(pool.data(*frame))];
            header.msg_hdr.msg_iov = vectors.as_mut_ptr();
            header.msg_hdr.msg_iovlen = 2;
            count += 1;
        }
        // SAFETY: the first `count` headers point to vectors on this stack frame, which point to
        // `plain` and into the pool; all live until the call returns, which only reads.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, flags as _)
        };
        match usize::try_from(sent) {
            Ok(0) => SendOutcome::Full,
            Ok(count) => SendOutcome::Sent(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                        SendOutcome::Full
                    }
                    Some(libc::EMSGSIZE | libc::EINVAL) => SendOutcome::Unfit,
                    _ => SendOutcome::Failed(error),
                }
            }
        }
    }

    /// Returns all chunks to the pool.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        (self.ready, self.taken) = (0, 0);
        for frame in self.slots.iter_mut().filter_map(|slot| slot.frame.take()) {
            pool.free(frame.id);
        }
    }
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// Returns the tag that the device took off, as the four bytes that stood in the frame.
fn stripped_tag(control: &Control, length: usize) -> Option<[u8; 4]> {
    let bytes = control.0.get(..length)?;
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes);
    let half = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    // struct cmsghdr: size_t length, int level, int type; then struct tpacket_auxdata.
    if word(8)? != libc::SOL_PACKET || word(12)? != libc::PACKET_AUXDATA {
        return None;
    }
    let status = word(16)?.cast_unsigned();
    if status & STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & STATUS_TPID_VALID == 0 { ETHERTYPE_VLAN } else { half(34)? };
    let (tpid, tci) = (tpid.to_be_bytes(), half(32)?.to_be_bytes());
    Some([tpid[0], tpid[1], tci[0], tci[1]])
}

/// Moves the addresses four bytes to the front and writes the tag behind them.
fn put_back(frame: Frame, tag: [u8; 4], pool: &mut Pool) -> Frame {
    // Frames are read at the pool's headroom, which has these bytes.
    let grown = Frame { offset: frame.offset - 4, len: frame.len + 4, ..frame };
    let bytes = pool.data(grown);
    bytes.copy_within(4..16, 0);
    bytes[12..16].copy_from_slice(&tag);
    grown
}

/// Messages a system call: at 32 the call's own cost is below a tenth.
const BATCH: usize = 32;

const ETHERNET: usize = 14;
const ETHERTYPE_VLAN: u16 = 0x8100;

/// A `cmsghdr` of 16 bytes and a `tpacket_auxdata` of 20, rounded up.
const CONTROL: usize = 40;

/// From `linux/if_packet.h`.
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_TPID_VALID: u32 = 1 << 6;
