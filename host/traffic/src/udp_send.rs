// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The UDP sender: connected kernel sockets in turn, in batches where several packets are due.

use std::io::ErrorKind;
use std::iter::Cycle;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::slice;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::net::sockopt::set_socket_send_buffer_size;

use super::error::TrafficError;
use super::header::{HEADER_BYTES, Header};
use super::pace::{Pace, Sizes};
use super::result::{SendResult, Sent};
use super::socket;
use super::spec::{SendSpec, UdpSend};
use super::stop::{Course, NextStep, OnProgress, TrafficEndpoint};

/// Sends until the run is over or the count is sent.
pub(super) fn send(
    spec: &SendSpec,
    udp: &UdpSend,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<SendResult, TrafficError> {
    let sockets = open(udp)?;
    let mut course = Course::begin(&spec.run, spec.start_ns, stop, progress);
    let mut sender = UdpSender {
        udp,
        turn: sockets.iter().cycle(),
        pace: Pace::new(udp.rate, course.start_ns()),
        sizes: Sizes::new(&udp.sizes),
        overhead: overhead(udp.to.ip()),
        filling: vec![0; usize::from(udp.sizes.max())],
        sent: course.stream(udp.stream),
        start_ns: course.start_ns(),
    };
    let span = course.run(&mut sender)?;
    if sender.left() > 0 {
        sender.sent.skipped_ns += sender.pace.lateness_ns(span.end_ns);
    }
    sender.sent.series.extend_to(span.end_ns);
    Ok(SendResult { spec: spec.clone(), span, streams: vec![sender.sent] })
}

struct UdpSender<'a> {
    udp: &'a UdpSend,
    turn: Cycle<slice::Iter<'a, UdpSocket>>,
    pace: Pace,
    sizes: Sizes,
    /// Bytes of a frame before the payload.
    overhead: usize,
    filling: Vec<u8>,
    sent: Sent,
    start_ns: u64,
}

impl TrafficEndpoint for UdpSender<'_> {
    fn step(&mut self, now_ns: u64) -> Result<NextStep, TrafficError> {
        if self.left() == 0 {
            return Ok(NextStep::Done);
        }
        if now_ns < self.start_ns {
            return Ok(NextStep::NapUntil(self.start_ns));
        }
        if let Err(due_ns) = self.pace.ready(now_ns) {
            return Ok(NextStep::NapUntil(due_ns));
        }
        match self.turn.next() {
            Some(socket) => self.send_due(socket, now_ns).map(|()| NextStep::Again),
            None => Ok(NextStep::Done),
        }
    }

    fn counts(&self) -> (u64, u64) {
        (self.sent.packets, self.sent.bytes)
    }
}

impl UdpSender<'_> {
    /// Packets still to send.
    fn left(&self) -> u64 {
        self.udp.count.map_or(u64::MAX, |count| count.saturating_sub(self.sent.packets))
    }

    /// Sends what is due, at most a batch, on one socket.
    fn send_due(&mut self, socket: &UdpSocket, now_ns: u64) -> Result<(), TrafficError> {
        let mut headers = [[0; HEADER_BYTES]; BATCH];
        let mut frames = [0_usize; BATCH];
        let (mut pace, mut sizes) = (self.pace.clone(), self.sizes.clone());
        let mut count = 0;
        let left = self.left();
        for (sequence, (header, frame)) in
            (self.sent.packets..).zip(headers.iter_mut().zip(&mut frames))
        {
            if count as u64 == left || pace.ready(now_ns).is_err() {
                break;
            }
            *frame = usize::from(sizes.next());
            pace.sent(now_ns, *frame as u64);
            *header = Header { stream: self.udp.stream, sequence, time_ns: now_ns }.build();
            count += 1;
        }
        let messages: [[&[u8]; 2]; BATCH] = std::array::from_fn(|i| {
            let rest = frames[i].saturating_sub(self.overhead + HEADER_BYTES);
            [headers[i].as_slice(), &self.filling[..rest]]
        });
        match socket::send_batch(socket, &messages[..count]) {
            Ok(went) => frames[..went].iter().for_each(|frame| self.count(now_ns, *frame as u64)),
            Err(error) => match error.kind() {
                // The buffer stayed full for the whole write timeout, or a signal came: the run
                // looks at its flag.
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                // The receiver refused an earlier packet, or there was no memory for this one.
                ErrorKind::ConnectionRefused => self.refuse(now_ns),
                _ if error.raw_os_error() == Some(libc::ENOBUFS) => self.refuse(now_ns),
                _ => {
                    let action = format!("send to {}", self.udp.to);
                    return Err(TrafficError::system(action, error));
                }
            },
        }
        Ok(())
    }

    fn count(&mut self, now_ns: u64, bytes: u64) {
        self.sizes.next();
        self.sent.skipped_ns += self.pace.sent(now_ns, bytes);
        self.sent.packets += 1;
        self.sent.bytes += bytes;
        self.sent.series.add(now_ns, 1, bytes);
    }

    fn refuse(&mut self, now_ns: u64) {
        let bytes = u64::from(self.sizes.next());
        self.sent.skipped_ns += self.pace.sent(now_ns, bytes);
        self.sent.refused += 1;
    }
}

fn open(udp: &UdpSend) -> Result<Vec<UdpSocket>, TrafficError> {
    if udp.connections > 500 {
        socket::allow_many_files();
    }
    let any = if udp.to.is_ipv4() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    let from = udp.from.unwrap_or(any);
    let failed = |error| TrafficError::system(format!("connect from {from} to {}", udp.to), error);
    let mut sockets = Vec::new();
    for _ in 0..udp.connections {
        let socket = UdpSocket::bind((from, 0)).map_err(failed)?;
        socket.connect(udp.to).map_err(failed)?;
        // The time-out lets a blocked sender return, so that the run looks at its flag.
        socket.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(failed)?;
        if let Some(bytes) = udp.buffer_bytes {
            set_socket_send_buffer_size(&socket, bytes as usize)
                .map_err(|error| failed(error.into()))?;
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Bytes of a frame before the UDP payload: Ethernet, IP, UDP.
pub(super) const fn overhead(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => 14 + 20 + 8,
        IpAddr::V6(_) => 14 + 40 + 8,
    }
}

/// Most packets in one call. They carry one time stamp, so the last one looks older than it is by
/// the time that the kernel takes for the others, 1 to 3 µs each. Eight are few enough for that
/// error, and enough to share the cost of a system call.
const BATCH: usize = 8;
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);
