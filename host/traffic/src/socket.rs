// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on sockets that the standard library lacks: options, batches, readiness.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::thread::timespec;

/// Returns the packets that the kernel dropped because the socket's buffer was full; 0 if it does
/// not tell.
pub(super) fn dropped(socket: &impl AsFd) -> u64 {
    let mut memory = [0_u32; SK_MEMINFO_VARS];
    let mut length = libc::socklen_t::try_from(size_of_val(&memory)).unwrap_or(0);
    // SAFETY: `memory` is valid for writing `length` bytes.
    unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    memory.last().copied().map_or(0, u64::from)
}

/// Returns the bytes that were written to a TCP socket and not yet acknowledged by the other end.
pub(super) fn unacknowledged(socket: &impl AsFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes one int, which `bytes` is.
    unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    u64::try_from(bytes).unwrap_or(0)
}

/// Lets the process open as many files as the system allows it to.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this is refused, opening one file too many fails with an error of its own.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Sends messages of two parts each on a connected socket; returns how many went.
pub(super) fn send_batch(socket: &impl AsFd, messages: &[[&[u8]; 2]]) -> io::Result<usize> {
    // SAFETY: all zeros is a valid message header, and a valid buffer of length zero.
    let (mut headers, mut buffers): ([libc::mmsghdr; BATCH], [[libc::iovec; 2]; BATCH]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let count = messages.len().min(BATCH);
    for ((header, buffers), parts) in headers.iter_mut().zip(&mut buffers).zip(messages) {
        for (buffer, part) in buffers.iter_mut().zip(parts) {
            buffer.iov_base = part.as_ptr().cast_mut().cast();
            buffer.iov_len = part.len();
        }
        header.msg_hdr.msg_iov = buffers.as_mut_ptr();
        header.msg_hdr.msg_iovlen = buffers.len() as _;
    }
    let length = u32::try_from(count).unwrap_or(0);
    // SAFETY: `length` headers are filled in; they point to `buffers`, which point to `messages`;
    // the kernel only reads what they point to. All outlive the call.
    let answer =
        unsafe { libc::sendmmsg(socket.as_fd().as_raw_fd(), headers.as_mut_ptr(), length, 0) };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Receives into `buffers` of equal length without waiting; returns the length of each message.
pub(super) fn receive_batch(
    socket: BorrowedFd<'_>,
    buffers: &mut [u8],
    length: usize,
) -> io::Result<impl Iterator<Item = usize> + use<>> {
    // SAFETY: all zeros is a valid message header, and a valid buffer of length zero.
    let (mut headers, mut vectors): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    let chunks = buffers.chunks_exact_mut(length.max(1));
    for ((header, vector), chunk) in headers.iter_mut().zip(&mut vectors).zip(chunks) {
        vector.iov_base = chunk.as_mut_ptr().cast();
        vector.iov_len = chunk.len();
        header.msg_hdr.msg_iov = &raw mut *vector;
        header.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: `count` headers are filled in; they point to `vectors`, which point to chunks of
    // `buffers` that do not overlap. All outlive the call.
    let answer = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    let received = usize::try_from(answer).map_err(|_| io::Error::last_os_error())?;
    Ok(headers.into_iter().take(received).map(|header| header.msg_len as usize))
}

/// Readiness of many sockets.
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches a socket; [`Self::wait`] returns `token` for it.
    pub(super) fn add(
        &self,
        socket: &impl AsFd,
        events: EventFlags,
        token: usize,
    ) -> io::Result<()> {
        Ok(epoll::add(&self.0, socket, EventData::new_u64(token as u64), events)?)
    }

    /// Waits at most `timeout_ns` and returns the tokens that are ready.
    pub(super) fn wait(&self, timeout_ns: u64) -> impl Iterator<Item = usize> + use<> {
        let mut events = [const { MaybeUninit::uninit() }; BATCH];
        let mut tokens = [0; BATCH];
        // An error means that a signal came, which is the same as nothing being ready.
        let ready = epoll::wait(&self.0, &mut events, Some(&timespec(timeout_ns)));
        let ready = ready.map_or(&[][..], |(ready, _)| &*ready);
        let count = ready.len();
        for (token, event) in tokens.iter_mut().zip(ready) {
            *token = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
        }
        tokens.into_iter().take(count)
    }
}

/// The most messages or events of one system call.
pub(super) const BATCH: usize = 32;
/// `SO_MEMINFO` and the number of its values, the last of which counts drops
/// (`linux/sock_diag.h`).
const SO_MEMINFO: i32 = 55;
const SK_MEMINFO_VARS: usize = 9;
