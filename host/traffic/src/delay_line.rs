// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A delay line in user space, for kernels without netem: what comes in at one device leaves at
//! another a fixed time later, whole and in order.
//!
//! One thread a direction. Frames are read with what the kernel noted apart from their bytes
//! (unfinished checksums, segmentation, a VLAN tag), so that super-frames pass as they are. The
//! frames under way are bounded; then nothing is read any more, and the kernel counts what its
//! own buffer cannot hold (`ss -0 -m`, the number behind `d`).

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use weir_units::Nanos;

use weir_platform::cpu::{Class, CpuRequest, Reservation};
use weir_platform::error::HostError;

/// Two devices of this namespace and the delay between them, each way. As text:
/// `FROM,TO,DELAY,DELAY_BACK`, as in `l0a,l0b,5ms,5ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The two devices.
    pub devices: [String; 2],
    /// From the first to the second, and back.
    pub delays: [Nanos; 2],
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split(',').collect();
        let [a, b, there, back] = words[..] else {
            return Err(format!("{text:?} is not FROM,TO,DELAY,DELAY_BACK"));
        };
        let delay = |text: &str| text.parse().map_err(|error| format!("{text:?}: {error}"));
        Ok(Self { devices: [a, b].map(str::to_owned), delays: [delay(there)?, delay(back)?] })
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([a, b], [there, back]) = (&self.devices, self.delays);
        write!(f, "{a},{b},{there},{back}")
    }
}

/// Runs delay lines in the namespace of the calling thread until the process is ended
/// (`weir-lab lab delay-line PAIR…`). Prints [`READY`] on a line once every device is open.
///
/// # Errors
/// A device cannot be opened, or a direction failed: then all end.
pub fn run(pairs: &[Pair]) -> Result<(), HostError> {
    let mut lines = Vec::new();
    for Pair { devices: [a, b], delays: [there, back] } in pairs {
        lines.push(Line::open(a, b, *there)?);
        lines.push(Line::open(b, a, *back)?);
    }
    let mut output = io::stdout();
    let said = writeln!(output, "{READY}").and_then(|()| output.flush());
    said.map_err(|error| HostError::io("write to", "standard output", error))?;
    let (ends, ended) = std::sync::mpsc::channel();
    for mut line in lines {
        let ends = ends.clone();
        thread::spawn(move || ends.send(line.forward()));
    }
    drop(ends);
    // Threads forward without end; the first to fail ends the process with its error.
    ended.recv().unwrap_or(Ok(()))
}

/// One direction.
struct Line {
    from: Socket,
    to: Socket,
    delay: Duration,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Buffers of frames that have left.
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl Line {
    fn open(from: &str, to: &str, delay: Nanos) -> Result<Self, HostError> {
        Ok(Self {
            from: Socket::open(from, true)?,
            to: Socket::open(to, false)?,
            delay: Duration::from_nanos(delay.as_nanos()),
            under_way: VecDeque::new(),
            bytes: 0,
            spare: Vec::new(),
            scratch: vec![0; FRAME_BYTES_MAX],
        })
    }

    fn forward(&mut self) -> Result<(), HostError> {
        // Without the right to it, a busy machine makes the line late by more.
        let _reservation =
            Reservation::take(CpuRequest { cpu: None, class: Class::Normal { nice: -15 } });
        // SAFETY: prctl with PR_SET_TIMERSLACK takes a number; it concerns this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        loop {
            self.read_all()?;
            let blocked = self.send_due()?;
            self.wait(blocked)?;
        }
    }

    fn read_all(&mut self) -> Result<(), HostError> {
        while self.has_room() {
            let Some(range) = self.from.receive(&mut self.scratch)? else { break };
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.clear();
            frame.extend_from_slice(&self.scratch[range]);
            self.bytes += frame.len();
            self.under_way.push_back((Instant::now() + self.delay, frame));
        }
        Ok(())
    }

    /// Sends what is due. True if the device could not take all of it.
    fn send_due(&mut self) -> Result<bool, HostError> {
        while let Some((due, frame)) = self.under_way.front() {
            if *due > Instant::now() {
                break;
            }
            if !self.to.send(frame)? {
                return Ok(true);
            }
            if let Some((_, frame)) = self.under_way.pop_front() {
                self.bytes -= frame.len();
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(frame);
                }
            }
        }
        Ok(false)
    }

    /// Sleeps until a frame comes in, one is due, or a device that was full may have room.
    fn wait(&self, blocked: bool) -> Result<(), HostError> {
        let due =
            self.under_way.front().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let limit = if blocked { Some(RETRY) } else { due };
        // Without room nothing is read, and readiness to read must not end the sleep.
        let events = if self.has_room() { libc::POLLIN } else { 0 };
        self.from.wait(events, limit)
    }

    fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX && self.under_way.len() < FRAMES_MAX
    }
}

/// A packet socket of one device.
struct Socket {
    device: String,
    fd: OwnedFd,
}

impl Socket {
    fn open(device: &str, reads: bool) -> Result<Self, HostError> {
        let path = format!("/sys/class/net/{device}/ifindex");
        let index = ifindex(device).ok_or_else(|| {
            HostError::Refused(format!("device {device}: there is none ({path})"))
        })?;
        // Protocol 0 receives nothing until it is bound: no frame of another device slips in.
        // SAFETY: socket takes three numbers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(HostError::last_os("open a packet socket on", device));
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Self { device: device.to_owned(), fd };
        socket.set(libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
        if reads {
            socket.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
            socket.set(libc::SOL_PACKET, PACKET_AUXDATA, 1)?;
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BYTES)?;
        } else {
            socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BYTES)?;
        }
        let protocol = if reads { ETH_P_ALL.to_be() } else { 0 };
        // SAFETY: all zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = AF_PACKET;
        address.sll_protocol = protocol;
        address.sll_ifindex = index;
        let length = SOCKADDR_BYTES;
        // SAFETY: the address is a whole sockaddr_ll, and its length is given.
        let bound =
            unsafe { libc::bind(socket.fd.as_raw_fd(), (&raw const address).cast(), length) };
        if bound != 0 {
            return Err(HostError::last_os("bind a packet socket to", device));
        }
        Ok(socket)
    }

    fn set(&self, level: i32, option: i32, value: i32) -> Result<(), HostError> {
        let length = INT_BYTES;
        // SAFETY: the kernel reads one int at the given address.
        let done = unsafe {
            let value = (&raw const value).cast();
            libc::setsockopt(self.fd.as_raw_fd(), level, option, value, length)
        };
        if done == 0 { Ok(()) } else { Err(HostError::last_os("set an option of", &self.device)) }
    }

    /// The next frame with its header, as a range of `buffer`; none if there is none now.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<std::ops::Range<usize>>, HostError> {
        let mut control = Control([0; 64]);
        // The tag of a frame that has one is put in later, so room for it is left.
        let (head, body) = buffer.split_at_mut(TAG_BYTES + VNET_BYTES);
        let mut parts = [
            libc::iovec { iov_base: head[TAG_BYTES..].as_mut_ptr().cast(), iov_len: VNET_BYTES },
            libc::iovec { iov_base: body.as_mut_ptr().cast(), iov_len: body.len() },
        ];
        // SAFETY: all zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: the message points to two parts of `buffer` and to `control`, with their lengths;
        // all outlive the call.
        let read =
            unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(read) = usize::try_from(read) else {
            return match io::Error::last_os_error() {
                error if is_transient(&error) => Ok(None),
                error => Err(HostError::io("receive on", &self.device, error)),
            };
        };
        let end = TAG_BYTES + read;
        Ok(Some(match tag(&message) {
            Some(tag) if read >= VNET_BYTES + 12 => {
                insert_tag(&mut buffer[..end], tag);
                0..end
            }
            _ => TAG_BYTES..end,
        }))
    }

    /// False if the device takes no frame now.
    fn send(&self, frame: &[u8]) -> Result<bool, HostError> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the kernel reads `frame`, whose length is given.
        let sent =
            unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
        if sent >= 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if is_transient(&error) => Ok(false),
            error if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                // Larger than the second device carries: lost, as on any link of that size.
                Ok(true)
            }
            error => Err(HostError::io("send on", &self.device, error)),
        }
    }

    fn wait(&self, events: i16, limit: Option<Duration>) -> Result<(), HostError> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events, revents: 0 };
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one pollfd and a time that outlive the call; no signal mask.
        let ready = unsafe { libc::ppoll(&raw mut poll, 1, limit, std::ptr::null()) };
        match ready {
            0.. => Ok(()),
            _ => match io::Error::last_os_error() {
                error if is_transient(&error) => Ok(()),
                error => Err(HostError::io("wait on", &self.device, error)),
            },
        }
    }
}

/// Aligned as control messages must be.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The VLAN tag that the kernel took out of a frame: type and value.
fn tag(message: &libc::msghdr) -> Option<[u16; 2]> {
    // SAFETY: the message was filled by recvmsg, so that its control part is whole messages.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_PACKET, PACKET_AUXDATA) {
        return None;
    }
    // SAFETY: a message of this kind carries one tpacket_auxdata; unaligned is taken care of.
    let data: Auxdata =
        unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<Auxdata>()) };
    let has = |flag: u32| data.status & flag != 0;
    let kind = if has(TP_STATUS_VLAN_TPID_VALID) { data.vlan_type } else { 0x8100 };
    has(TP_STATUS_VLAN_VALID).then_some([kind, data.vlan_value])
}

/// Moves the header and the two MAC addresses forward into the room before them and writes the
/// tag into the gap; offsets in the header grow by it.
fn insert_tag(buffer: &mut [u8], [kind, value]: [u16; 2]) {
    buffer.copy_within(TAG_BYTES..TAG_BYTES + VNET_BYTES + 12, 0);
    let gap = VNET_BYTES + 12;
    buffer[gap..gap + 2].copy_from_slice(&kind.to_be_bytes());
    buffer[gap + 2..gap + 4].copy_from_slice(&value.to_be_bytes());
    // struct virtio_net_hdr: flags, kind, then 16 bits each: header length, segment size,
    // checksum start, checksum offset.
    for (field, valid) in [(2, buffer[1] != 0), (6, buffer[0] & 1 != 0)] {
        let old = u16::from_ne_bytes([buffer[field], buffer[field + 1]]);
        if valid {
            let new = old.saturating_add(TAG_GROWTH);
            buffer[field..field + 2].copy_from_slice(&new.to_ne_bytes());
        }
    }
}

fn ifindex(device: &str) -> Option<i32> {
    let name = std::ffi::CString::new(device).ok()?;
    // SAFETY: the name ends with a zero and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    i32::try_from(index).ok().filter(|index| *index > 0)
}

/// Returns whether another try may work: no frame, no room, a device that is down for a moment.
fn is_transient(error: &io::Error) -> bool {
    let code = error.raw_os_error().unwrap_or(0);
    [libc::EAGAIN, libc::EINTR, libc::ENOBUFS, libc::ENETDOWN].contains(&code)
}

/// `struct tpacket_auxdata` of linux/if_packet.h.
#[repr(C)]
struct Auxdata {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_value: u16,
    vlan_type: u16,
}

/// The text that a line prints when it is open.
pub const READY: &str = "ready";

const TAG_BYTES: usize = 4;
/// `struct virtio_net_hdr`.
const VNET_BYTES: usize = 10;
/// The largest super-frame, its Ethernet header and tag, and the header in front.
const FRAME_BYTES_MAX: usize = 65_536 + 64;
/// Under way in one direction: 100 ms at 5 Gbit/s.
const BYTES_MAX: usize = 64 << 20;
/// Under way in one direction: 1 s at 250 kpps of the smallest frames.
const FRAMES_MAX: usize = 250_000;
/// Buffers that are kept for reuse.
const SPARE_MAX: usize = 4096;
/// The buffer of each socket, above what the kernel lets ordinary programs have.
const SOCKET_BYTES: i32 = 32 << 20;
/// The time after which a full device is tried again: 10 frames of 1500 bytes at 1 Gbit/s.
const RETRY: Duration = Duration::from_micros(120);

/// The bytes that a tag adds to the offsets in the header.
const TAG_GROWTH: u16 = 4;
const _: () = assert!(TAG_GROWTH as usize == TAG_BYTES);

const AF_PACKET: u16 = 17;
const INT_BYTES: libc::socklen_t = 4;
const SOCKADDR_BYTES: libc::socklen_t = 20;
const _: () = assert!(size_of::<libc::sockaddr_ll>() == SOCKADDR_BYTES as usize);
const ETH_P_ALL: u16 = 3;
const PACKET_AUXDATA: i32 = 8;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_as_it_is_written() {
        let pair: Pair = "l0a,l0b,5ms,1500us".parse().unwrap();
        assert_eq!(pair.delays, [Nanos::from_millis(5), Nanos::from_micros(1500)]);
        assert_eq!(pair.to_string(), "l0a,l0b,5ms,1500us");
        assert!("l0a,l0b,5ms".parse::<Pair>().is_err());
        assert!("l0a,l0b,5ms,soon".parse::<Pair>().unwrap_err().contains("\"soon\""));
    }

    #[test]
    fn a_tag_goes_behind_the_addresses_and_moves_the_offsets() {
        // Room for the tag, the header (checksum to finish at 34 + 6), addresses, type, data.
        let mut buffer = vec![0; TAG_BYTES];
        buffer.extend([1, 1]);
        for field in [54_u16, 1448, 34, 16] {
            buffer.extend(field.to_ne_bytes());
        }
        buffer.extend([0xaa; 12]);
        buffer.extend([0x08, 0x00, 0x45]);
        insert_tag(&mut buffer, [0x8100, 0x2064]);
        assert_eq!(buffer[VNET_BYTES..VNET_BYTES + 12], [0xaa; 12]);
        assert_eq!(buffer[VNET_BYTES + 12..], [0x81, 0x00, 0x20, 0x64, 0x08, 0x00, 0x45]);
        let field = |at: usize| u16::from_ne_bytes([buffer[at], buffer[at + 1]]);
        assert_eq!([field(2), field(4), field(6), field(8)], [58, 1448, 38, 16]);
    }
}
