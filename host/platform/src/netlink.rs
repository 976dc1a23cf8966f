// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to the kernel over netlink, and their answers.
//!
//! Source: netlink(7), linux/netlink.h.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use crate::error::HostError;

/// A socket to the kernel of the namespace that its thread was in when it was opened.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    /// A netlink socket uses the same calls as any datagram socket; without an address it sends to
    /// the kernel.
    socket: UdpSocket,
    /// The part of the kernel that answers, as errors name it.
    name: &'static str,
    sequence: u32,
    buffer: Vec<u8>,
}

/// One message of an answer.
pub(crate) struct NetlinkMessage<'b> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) body: &'b [u8],
}

impl NetlinkSocket {
    /// Opens a socket of a protocol, such as `NETLINK_ROUTE`.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn open(protocol: i32, name: &'static str) -> Result<Self, HostError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes three numbers and touches no memory of ours.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
        if fd < 0 {
            return Err(HostError::last_os("open a socket to", name));
        }
        // SAFETY: the call just gave this descriptor to us alone.
        let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let set = socket.set_read_timeout(Some(PATIENCE));
        set.map_err(|error| failed(name, error))?;
        Ok(Self { socket, name, sequence: 0, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub(crate) fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), HostError> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
        let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
        request.extend_from_slice(&length.to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(body);
        self.socket.send(&request).map(drop).map_err(|error| failed(self.name, error))
    }

    /// Reads one datagram and hands out its messages; returns true if the answer is complete. The
    /// rest of an abandoned answer has another sequence number and is skipped.
    ///
    /// # Errors
    /// The kernel does not answer within a second, refuses, or its answer is malformed.
    pub(crate) fn answer(
        &mut self,
        mut each: impl FnMut(NetlinkMessage<'_>),
    ) -> Result<bool, HostError> {
        let length =
            self.socket.recv(&mut self.buffer).map_err(|error| failed(self.name, error))?;
        let mut rest = self.buffer.get(..length).unwrap_or_default();
        while !rest.is_empty() {
            let (message, sequence, after) =
                split(rest).ok_or_else(|| garbled(self.name, rest.len()))?;
            rest = after;
            if sequence != self.sequence {
                continue;
            }
            match message.kind {
                NLMSG_DONE => return Ok(true),
                NLMSG_ERROR => return acknowledged(self.name, message.body),
                _ => each(message),
            }
        }
        Ok(false)
    }
}

/// Returns the first message, its sequence number, and the bytes behind it.
pub(crate) fn split(bytes: &[u8]) -> Option<(NetlinkMessage<'_>, u32, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let body = bytes.get(HEADER_BYTES..length)?;
    let message = NetlinkMessage { kind: u16_at(bytes, 4)?, flags: u16_at(bytes, 6)?, body };
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((message, u32_at(bytes, 8)?, after))
}

/// Returns the value of the first attribute of a kind.
pub(crate) fn attribute(mut rest: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        if u16_at(rest, 2)? == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// Appends an attribute, padded to four bytes.
pub(crate) fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(ATTRIBUTE_BYTES + value.len()).unwrap_or(u16::MAX);
    body.extend_from_slice(&length.to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Reads the error code of an answer, in which 0 acknowledges the request.
fn acknowledged(name: &str, body: &[u8]) -> Result<bool, HostError> {
    let code = u32_at(body, 0).ok_or_else(|| garbled(name, body.len()))?.cast_signed();
    match code {
        0 => Ok(true),
        code => Err(failed(name, io::Error::from_raw_os_error(code.saturating_neg()))),
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn failed(name: &str, error: io::Error) -> HostError {
    HostError::io("ask", name, error)
}

fn garbled(name: &str, bytes: usize) -> HostError {
    HostError::Refused(format!("{name}: {bytes} bytes that are no message"))
}

/// Linux fills at most this much of an answer at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The longest wait for an answer. The kernel answers at once unless a change of the configuration
/// takes long.
const PATIENCE: Duration = Duration::from_secs(1);

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
const NLM_F_REQUEST: u16 = 1;
/// The kernel acknowledges the request.
pub(crate) const NLM_F_ACK: u16 = 4;
/// The answer is a list.
pub(crate) const NLM_F_DUMP: u16 = 0x300;
/// The list changed meanwhile.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
