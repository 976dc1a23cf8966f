// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams with the time at which the kernel got them, so that the reader's own lateness is in no
//! measurement. Over the loopback device this is the time at which the sender sent.
//!
//! Source: Linux, Documentation/networking/timestamping.rst (`SO_TIMESTAMPNS`).

use std::io;
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::thread;

/// A UDP socket whose datagrams carry their time.
#[derive(Debug)]
pub struct StampedSocket(UdpSocket);

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedDatagram {
    /// Its length, at most that of the buffer.
    pub length: usize,
    /// When the kernel got it, as [`wall_ns`] counts.
    pub at_ns: u64,
}

impl StampedSocket {
    /// Binds a socket that waits at most `patience` for each datagram.
    ///
    /// # Errors
    /// The address is not free, or the kernel gives no times.
    pub fn bind(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(patience))?;
        let on: libc::c_int = 1;
        let length = libc::socklen_t::try_from(size_of_val(&on)).unwrap_or(0);
        // SAFETY: the kernel reads `length` bytes of `on`, which outlives the call.
        let answer = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPNS,
                (&raw const on).cast(),
                length,
            )
        };
        if answer == 0 { Ok(Self(socket)) } else { Err(io::Error::last_os_error()) }
    }

    /// The socket, to answer by.
    #[must_use]
    pub const fn socket(&self) -> &UdpSocket {
        &self.0
    }

    /// Receives a datagram and its time; the sender is the peer, if the socket is connected.
    ///
    /// # Errors
    /// None came within the patience ([`io::ErrorKind::WouldBlock`]), or the kernel gave no time.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<StampedDatagram> {
        let mut vector =
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = [0_u64; CONTROL_WORDS];
        // SAFETY: all zeros is a valid message header.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the header points to one buffer and to `control`, with their true lengths; both
        // outlive the call.
        let answer = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, 0) };
        let length = usize::try_from(answer).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel filled in the header; the first control message, if there is one, lies
        // within `control`, which is aligned for it.
        let stamp = unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            let is_stamp = first.as_ref().is_some_and(|message| {
                message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SCM_TIMESTAMPNS
            });
            is_stamp.then(|| libc::CMSG_DATA(first).cast::<libc::timespec>().read_unaligned())
        };
        let stamp = stamp.ok_or_else(|| io::Error::other("the kernel gave no time"))?;
        let nanos = |value: i64| u64::try_from(value).unwrap_or(0);
        Ok(StampedDatagram { length, at_ns: nanos(stamp.tv_sec) * NANOS + nanos(stamp.tv_nsec) })
    }
}

/// Nanoseconds since 1970, the clock of the kernel's times.
#[must_use]
pub fn wall_ns() -> u64 {
    thread::wall_ns()
}

const NANOS: u64 = 1_000_000_000;
/// Room for one time and its header, and more.
const CONTROL_WORDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_has_the_time_at_which_it_was_sent() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = StampedSocket::bind(local, Duration::from_secs(10)).unwrap();
        let sender = UdpSocket::bind(local).unwrap();
        let before = wall_ns();
        sender.send_to(b"tick", socket.socket().local_addr().unwrap()).unwrap();
        let after = wall_ns();
        std::thread::sleep(Duration::from_millis(5));
        let mut buffer = [0; 16];
        let got = socket.receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..got.length], b"tick");
        assert!((before..=after).contains(&got.at_ns), "{before} {} {after}", got.at_ns);
    }
}
