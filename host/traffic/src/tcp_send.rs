// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The TCP sender: records of equal length over any number of connections, as fast as each
//! connection takes them, or at a rate that all share in turn.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::net::sockopt::set_socket_linger;

use super::error::TrafficError;
use super::header::{HEADER_BYTES, Header};
use super::pace::Pace;
use super::result::{SendResult, Sent, totals};
use super::socket::{self, Epoll};
use super::spec::{Rate, SendSpec, TcpSend};
use super::stop::{Course, NAP_NS, NextStep, OnProgress, TrafficEndpoint};
use super::thread::{monotonic_ns, sleep_until};

/// Connects, then sends until the run is over.
pub(super) fn send(
    spec: &SendSpec,
    tcp: &TcpSend,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<SendResult, TrafficError> {
    let connections = connect(tcp)?;
    let epoll = watch(&connections).map_err(failed)?;
    let mut course = Course::begin(&spec.run, spec.start_ns, stop, progress);
    let mut sender = TcpSender {
        writable: Writable::new(connections.len()),
        connections,
        epoll,
        pace: Pace::new(tcp.rate_bps.map(Rate::Bps), course.start_ns()),
        records: records(tcp.rate_bps),
        streams: tcp.streams.iter().map(|stream| course.stream(stream.stream)).collect(),
        skipped_ns: 0,
    };
    sleep_until(course.start_ns());
    let span = course.run(&mut sender)?;
    let TcpSender { connections, pace, mut streams, skipped_ns, .. } = sender;
    end(&connections).map_err(failed)?;
    for sent in &mut streams {
        sent.skipped_ns = skipped_ns + pace.lateness_ns(span.end_ns);
        sent.series.extend_to(span.end_ns);
    }
    Ok(SendResult { spec: spec.clone(), span, streams })
}

struct TcpSender {
    connections: Vec<OutgoingConnection>,
    epoll: Epoll,
    writable: Writable,
    pace: Pace,
    /// Records in one write.
    records: usize,
    streams: Vec<Sent>,
    skipped_ns: u64,
}

impl TrafficEndpoint for TcpSender {
    fn step(&mut self, now_ns: u64) -> Result<NextStep, TrafficError> {
        if let Err(due_ns) = self.pace.ready(now_ns) {
            self.look(0);
            return Ok(NextStep::NapUntil(due_ns));
        }
        let Some(token) = self.writable.take() else {
            self.look(NAP_NS);
            return Ok(NextStep::Again);
        };
        let connection = &mut self.connections[token];
        let sent = &mut self.streams[connection.place];
        match connection.write(sent.stream, now_ns, self.records) {
            Ok((packets, bytes)) => {
                self.skipped_ns += self.pace.sent(now_ns, bytes);
                sent.packets += packets;
                sent.bytes += bytes;
                sent.series.add(now_ns, packets, bytes);
                self.writable.put(token);
            }
            // `epoll` reports when the socket takes more.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => self.writable.put(token),
            Err(error) => return Err(connection.failed(error)),
        }
        if self.writable.is_round() {
            self.look(0);
        }
        Ok(NextStep::Again)
    }

    fn counts(&self) -> (u64, u64) {
        totals(&self.streams)
    }
}

impl TcpSender {
    /// Polls for connections that can take more, and waits at most `timeout_ns` for one.
    fn look(&mut self, timeout_ns: u64) {
        self.epoll.wait(timeout_ns).for_each(|token| self.writable.put(token));
    }
}

struct OutgoingConnection {
    stream: TcpStream,
    /// The index of its stream among those of the sender.
    place: usize,
    sequence: u64,
    /// The unsent end of a record whose beginning the socket has taken.
    rest: Vec<u8>,
}

fn failed(error: io::Error) -> TrafficError {
    TrafficError::system("send by TCP", error)
}

fn watch(connections: &[OutgoingConnection]) -> io::Result<Epoll> {
    let epoll = Epoll::new()?;
    for (token, connection) in connections.iter().enumerate() {
        // Edge-triggered: one event each time that the socket can take more.
        let events = EventFlags::OUT | EventFlags::ET;
        epoll.add(&connection.stream, events, token)?;
    }
    Ok(epoll)
}

impl OutgoingConnection {
    /// Returns an error that names the other end, if it is still known.
    fn failed(&self, error: io::Error) -> TrafficError {
        match self.stream.peer_addr() {
            Ok(to) => TrafficError::system(format!("send to {to}"), error),
            Err(_) => failed(error),
        }
    }

    /// Writes the rest of the last record, or `records` new ones. Returns the records begun and
    /// the bytes written.
    fn write(&mut self, stream: u16, now_ns: u64, records: usize) -> io::Result<(u64, u64)> {
        if !self.rest.is_empty() {
            let written = self.stream.write(&self.rest)?;
            self.rest.drain(..written);
            return Ok((0, written as u64));
        }
        let mut buffer = [0; RECORDS * RECORD_BYTES];
        let records = records.min(RECORDS);
        let (chunks, _) = buffer.as_chunks_mut::<RECORD_BYTES>();
        for (sequence, record) in (self.sequence..).zip(chunks.iter_mut().take(records)) {
            let header = Header { stream, sequence, time_ns: now_ns }.build();
            record[..HEADER_BYTES].copy_from_slice(&header);
        }
        let written = self.stream.write(&buffer[..records * RECORD_BYTES])?;
        let begun = written.div_ceil(RECORD_BYTES);
        self.rest.extend_from_slice(&buffer[written..begun * RECORD_BYTES]);
        self.sequence += begun as u64;
        Ok((begun as u64, written as u64))
    }
}

/// The connections that can take more, in turn.
struct Writable {
    turn: VecDeque<usize>,
    /// By connection: true if it is in `turn`.
    queued: Vec<bool>,
    /// Writes since the other connections were last polled.
    writes: usize,
}

impl Writable {
    fn new(count: usize) -> Self {
        Self { turn: (0..count).collect(), queued: vec![true; count], writes: 0 }
    }

    /// Takes the next connection.
    fn take(&mut self) -> Option<usize> {
        let token = self.turn.pop_front()?;
        self.queued[token] = false;
        self.writes += 1;
        Some(token)
    }

    fn put(&mut self, token: usize) {
        if !std::mem::replace(&mut self.queued[token], true) {
            self.turn.push_back(token);
        }
    }

    /// Returns true if it is time to poll for others that have become writable.
    fn is_round(&mut self) -> bool {
        let round = self.writes >= WRITES_A_ROUND;
        if round {
            self.writes = 0;
        }
        round
    }
}

/// Opens the connections of all streams.
fn connect(tcp: &TcpSend) -> Result<Vec<OutgoingConnection>, TrafficError> {
    let all = tcp.streams.iter().map(|stream| u64::from(stream.connections)).sum::<u64>();
    if all > 500 {
        socket::allow_many_files();
    }
    let mut connections = Vec::new();
    for (place, bulk) in tcp.streams.iter().enumerate() {
        for _ in 0..bulk.connections {
            let stream = connect_to(bulk.to)?;
            connections.push(OutgoingConnection { stream, place, sequence: 0, rest: Vec::new() });
        }
    }
    Ok(connections)
}

fn connect_to(to: SocketAddr) -> Result<TcpStream, TrafficError> {
    let failed = |error| TrafficError::system(format!("connect to {to}"), error);
    let give_up_ns = monotonic_ns() + CONNECT_PATIENCE_NS;
    loop {
        match TcpStream::connect_timeout(&to, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nonblocking(true).map_err(failed)?;
                return Ok(stream);
            }
            // The receiver may be about to listen.
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && monotonic_ns() < give_up_ns =>
            {
                sleep_until(monotonic_ns() + NAP_NS);
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Returns the records of one write. At a rate they are those due in half a millisecond, 1 to
/// [`RECORDS`], so from 22 to 700 Mb/s the load is even, at the cost of 2000 calls a second.
fn records(rate_bps: Option<u64>) -> usize {
    let due = |bps: u64| bps.div_ceil(8 * RECORD_BYTES as u64 * WRITES_A_SECOND);
    let records = rate_bps.map_or(RECORDS as u64, due);
    usize::try_from(records).unwrap_or(RECORDS).clamp(1, RECORDS)
}

/// Ends the connections. Data that the other end has not acknowledged after [`DRAIN_NS`] is
/// discarded, since nothing may be sent after the run.
fn end(connections: &[OutgoingConnection]) -> io::Result<()> {
    let give_up_ns = monotonic_ns() + DRAIN_NS;
    let is_idle = |one: &OutgoingConnection| socket::unacknowledged(&one.stream) == 0;
    while !connections.iter().all(is_idle) && monotonic_ns() < give_up_ns {
        sleep_until(monotonic_ns() + DRAIN_NS / 20);
    }
    let mut busy = connections.iter().filter(|one| !is_idle(one));
    Ok(busy.try_for_each(|one| set_socket_linger(&one.stream, Some(Duration::ZERO)))?)
}

/// Length of a record: a little less than a segment carries with an MTU of 1500.
pub(super) const RECORD_BYTES: usize = 1_400;
/// Most records in one write: 44 KB, a few of which fill a default send buffer.
const RECORDS: usize = 32;
/// Writes a second at a rate.
const WRITES_A_SECOND: u64 = 2_000;
/// Writes between two polls for connections that can take more: few enough that none waits long,
/// enough that polling costs little.
const WRITES_A_ROUND: usize = 16;
/// The longest wait for the acknowledgement of all data at the end of a run.
const DRAIN_NS: u64 = 100_000_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_PATIENCE_NS: u64 = 3_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_every_half_millisecond() {
        let at = [None, Some(1), Some(22_400_000), Some(22_400_001), Some(240_000_000)];
        assert_eq!(at.map(records), [32, 1, 1, 2, 11]);
        assert_eq!([Some(716_800_000), Some(u64::MAX)].map(records), [32, 32]);
    }
}
