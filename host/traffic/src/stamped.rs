// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagrams and requests of a connection with the time at which the kernel got them, so that the
//! reader's own lateness is in no measurement. Over the loopback device this is the time at which
//! the sender sent.
//!
//! Source: Linux, Documentation/networking/timestamping.rst (`SO_TIMESTAMPNS`).

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::thread;

/// A UDP socket whose datagrams carry their time.
#[derive(Debug)]
pub struct StampedSocket(UdpSocket);

/// A listener whose connections carry the time of their bytes.
#[derive(Debug)]
pub struct StampedListener(TcpListener);

/// A TCP connection whose bytes carry their time.
#[derive(Debug)]
pub struct StampedStream(TcpStream);

/// A datagram that was received, or some bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedDatagram {
    /// Its length, at most that of the buffer.
    pub length: usize,
    /// When the kernel got it, as [`wall_ns`] counts.
    pub at_ns: u64,
}

impl StampedSocket {
    /// Binds a socket that waits at most `patience` for each datagram. If the process may enlarge
    /// its buffer, it keeps thousands of small ones, so that a reader that starves loses none.
    ///
    /// # Errors
    /// The address is not free, or the kernel gives no times.
    pub fn bind(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(patience))?;
        stamp_all(&socket)?;
        // Without the right to do so, the buffer has room for some two hundred, as usual.
        let _kept = set_option(&socket, libc::SO_RCVBUFFORCE, KEPT_BYTES);
        Ok(Self(socket))
    }

    /// Returns the socket, to send answers.
    #[must_use]
    pub const fn socket(&self) -> &UdpSocket {
        &self.0
    }

    /// Receives a datagram and its time; the sender is the peer, if the socket is connected.
    ///
    /// # Errors
    /// None came within the patience ([`io::ErrorKind::WouldBlock`]), or the kernel gave no time.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<StampedDatagram> {
        let (length, at_ns) = receive(&self.0, buffer)?;
        let at_ns = at_ns.ok_or_else(|| io::Error::other("the kernel gave no time"))?;
        Ok(StampedDatagram { length, at_ns })
    }
}

impl StampedListener {
    /// Binds a listener. The kernel begins to stamp a moment later: what comes at once may have no
    /// time.
    ///
    /// # Errors
    /// The address is not free, or the kernel gives no times.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // Connections inherit the option, so that their first bytes have a time.
        stamp_all(&listener)?;
        Ok(Self(listener))
    }

    /// Accepts a connection that waits at most `patience` for more.
    ///
    /// # Errors
    /// The connection was gone at once.
    pub fn accept(&self, patience: Duration) -> io::Result<StampedStream> {
        let (stream, _) = self.0.accept()?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(StampedStream(stream))
    }
}

impl StampedStream {
    /// Returns the connection, to send answers.
    #[must_use]
    pub const fn stream(&self) -> &TcpStream {
        &self.0
    }

    /// Receives some bytes, and the time at which the kernel got the last segment of them; `None`
    /// if the peer has closed.
    ///
    /// # Errors
    /// None came within the patience ([`io::ErrorKind::WouldBlock`]), or the kernel gave no time.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<StampedDatagram>> {
        match receive(&self.0, buffer)? {
            (0, _) => Ok(None),
            (length, Some(at_ns)) => Ok(Some(StampedDatagram { length, at_ns })),
            (_, None) => Err(io::Error::other("the kernel gave no time")),
        }
    }
}

/// Has the kernel stamp all that a socket receives.
fn stamp_all(socket: &impl AsRawFd) -> io::Result<()> {
    set_option(socket, libc::SO_TIMESTAMPNS, 1)
}

/// Sets an option of a socket.
fn set_option(socket: &impl AsRawFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    let (socket, value) = (socket.as_raw_fd(), &raw const value);
    // SAFETY: the kernel reads `length` bytes of `value`, which outlives the call.
    let answer =
        unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, option, value.cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives once; returns the length and the time, if the kernel gave one.
fn receive(socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: all zeros is a valid message header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points to one buffer and to `control`, with their true lengths; both
    // outlive the call.
    let answer = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
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
    let nanos = |value: i64| u64::try_from(value).unwrap_or(0);
    let at_ns = stamp.map(|stamp| nanos(stamp.tv_sec) * NANOS + nanos(stamp.tv_nsec));
    Ok((length, at_ns))
}

/// Nanoseconds since 1970, the clock of the kernel's times.
#[must_use]
pub fn wall_ns() -> u64 {
    thread::wall_ns()
}

const NANOS: u64 = 1_000_000_000;
/// Bytes of datagrams that may wait. The kernel counts some 800 of a small one, and doubles this.
const KEPT_BYTES: libc::c_int = 4 << 20;

/// Room for one time and its header, and more.
const CONTROL_WORDS: usize = 16;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_datagram_has_the_time_at_which_it_was_sent() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = StampedSocket::bind(local, Duration::from_secs(10)).unwrap();
        let sender = UdpSocket::bind(local).unwrap();
        let mut buffer = [0; 16];
        // The kernel begins to stamp a moment after it was asked to; until then a datagram has the
        // time at which it was read.
        for _ in 0..10_000 {
            let before = wall_ns();
            sender.send_to(b"tick", socket.socket().local_addr().unwrap()).unwrap();
            let after = wall_ns();
            std::thread::sleep(Duration::from_millis(5));
            let got = socket.receive(&mut buffer).unwrap();
            assert_eq!(&buffer[..got.length], b"tick");
            if (before..=after).contains(&got.at_ns) {
                return;
            }
        }
        panic!("no datagram had the time at which it was sent");
    }

    #[test]
    fn a_request_of_a_connection_has_the_time_at_which_it_was_sent() {
        let listener = StampedListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let mut client = TcpStream::connect(listener.0.local_addr().unwrap()).unwrap();
        let server = listener.accept(Duration::from_secs(10)).unwrap();
        let mut buffer = [0; 16];
        // The first ones may have no time.
        for _ in 0..10_000 {
            let before = wall_ns();
            client.write_all(b"GET").unwrap();
            let after = wall_ns();
            std::thread::sleep(Duration::from_millis(5));
            let Ok(got) = server.receive(&mut buffer) else { continue };
            let got = got.unwrap();
            assert_eq!(&buffer[..got.length], b"GET");
            if !(before..=after).contains(&got.at_ns) {
                continue;
            }
            drop(client);
            assert_eq!(server.receive(&mut buffer).unwrap(), None);
            return;
        }
        panic!("no request had a time");
    }
}
