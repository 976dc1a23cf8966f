// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP through kernel sockets: records of equal length over any number of connections, as fast as
//! each connection takes them or at a rate that all share in turn.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weir_result::Cells;

use super::error::TrafficError;
use super::header::{HEADER_BYTES, Header};
use super::pace::Pace;
use super::result::{SendResult, Sent};
use super::socket::{self, Epoll};
use super::spec::{Rate, SendSpec, TcpBulk, TcpSend};
use super::stop::{Course, NAP_NS, OnProgress};
use super::thread::{monotonic_ns, sleep_until};

/// Connects, then sends until the run is over.
///
/// # Errors
/// A connection could not be made, or all of them ended.
pub(super) fn send(
    spec: &SendSpec,
    tcp: &TcpSend,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<SendResult, TrafficError> {
    let mut connections = connect(tcp)?;
    let epoll = watch(&connections).map_err(failed)?;
    let mut course = Course::begin(&spec.run, spec.start_ns, stop, progress);
    let mut pace = Pace::new(tcp.rate_bps.map(Rate::Bps), course.start_ns());
    let begin = |stream: &TcpBulk| Sent {
        stream: stream.stream,
        series: Cells::new(course.start_ns(), spec.run.cell_ns()),
        ..Sent::default()
    };
    let mut streams: Vec<Sent> = tcp.streams.iter().map(begin).collect();
    let (records, mut skipped_ns) = (records(tcp.rate_bps), 0);
    sleep_until(course.start_ns());
    let mut writable = Writable::new(connections.len());
    loop {
        let now = monotonic_ns();
        course.report(now, || {
            let of = |count: fn(&Sent) -> u64| streams.iter().map(count).sum();
            (of(|sent| sent.packets), of(|sent| sent.bytes))
        });
        if course.is_over(now) {
            break;
        }
        if let Err(due) = pace.ready(now) {
            epoll.wait(Duration::ZERO).for_each(|token| writable.put(token));
            course.nap_until(due);
            continue;
        }
        let Some(token) = writable.take() else {
            epoll.wait(Duration::from_nanos(NAP_NS)).for_each(|token| writable.put(token));
            continue;
        };
        let Some(connection) = connections.get_mut(token) else { continue };
        let Some(sent) = streams.get_mut(connection.place) else { continue };
        match connection.write(sent.stream, now, records) {
            Ok((packets, bytes)) => {
                skipped_ns += pace.sent(now, bytes);
                sent.packets += packets;
                sent.bytes += bytes;
                sent.series.add(now, packets, bytes);
                writable.put(token);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => writable.wait_for(token),
            Err(error) if error.kind() == ErrorKind::Interrupted => writable.put(token),
            Err(error) => return Err(connection.failed(error)),
        }
        if writable.is_round() {
            epoll.wait(Duration::ZERO).for_each(|token| writable.put(token));
        }
    }
    let span = course.span();
    skipped_ns += pace.lateness_ns(span.end_ns);
    end(&connections).map_err(failed)?;
    for sent in &mut streams {
        sent.skipped_ns = skipped_ns;
        sent.series.extend_to(span.end_ns);
    }
    Ok(SendResult { spec: spec.clone(), span, streams })
}

struct Connection {
    stream: TcpStream,
    /// The place of its stream among those of the sender.
    place: usize,
    sequence: u64,
    /// The end of a record that the socket took only the beginning of.
    rest: Vec<u8>,
}

fn failed(error: io::Error) -> TrafficError {
    TrafficError::system("send by TCP", error)
}

fn watch(connections: &[Connection]) -> io::Result<Epoll> {
    let epoll = Epoll::new()?;
    for (token, connection) in connections.iter().enumerate() {
        // Edge-triggered: told once each time that it can take more.
        let events = libc::EPOLLOUT | libc::EPOLLET;
        epoll.add(&connection.stream, events, token)?;
    }
    Ok(epoll)
}

impl Connection {
    /// Names the other end, as far as it is still known.
    fn failed(&self, error: io::Error) -> TrafficError {
        match self.stream.peer_addr() {
            Ok(to) => TrafficError::system(format!("send to {to}"), error),
            Err(_) => failed(error),
        }
    }

    /// Writes the rest of the last record, or `records` new ones. Gives the records begun and the
    /// bytes written.
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
    /// True if the connection is in `turn`.
    queued: Vec<bool>,
    /// Writes since the last look at the others.
    writes: usize,
}

impl Writable {
    fn new(count: usize) -> Self {
        Self { turn: (0..count).collect(), queued: vec![true; count], writes: 0 }
    }

    fn take(&mut self) -> Option<usize> {
        let token = self.turn.pop_front()?;
        self.wait_for(token);
        self.writes += 1;
        Some(token)
    }

    fn put(&mut self, token: usize) {
        if self.queued.get_mut(token).is_some_and(|queued| !std::mem::replace(queued, true)) {
            self.turn.push_back(token);
        }
    }

    fn wait_for(&mut self, token: usize) {
        if let Some(queued) = self.queued.get_mut(token) {
            *queued = false;
        }
    }

    /// Returns whether it is time to ask for others that have become writable.
    fn is_round(&mut self) -> bool {
        let round = self.writes >= WRITES_A_ROUND;
        if round {
            self.writes = 0;
        }
        round
    }
}

/// The connections of all streams.
fn connect(tcp: &TcpSend) -> Result<Vec<Connection>, TrafficError> {
    let all = tcp.streams.iter().map(|stream| u64::from(stream.connections)).sum::<u64>();
    if all > 500 {
        socket::allow_many_files();
    }
    let mut connections = Vec::new();
    for (place, bulk) in tcp.streams.iter().enumerate() {
        for _ in 0..bulk.connections {
            let stream = connect_to(bulk.to)?;
            connections.push(Connection { stream, place, sequence: 0, rest: Vec::new() });
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

/// Records of one write: at a rate what is due every half millisecond, at least one and at most
/// [`RECORDS`], so that from 22 to 700 Mb/s it stays even at the cost of 2000 calls a second.
fn records(rate_bps: Option<u64>) -> usize {
    let due = |bps: u64| bps.div_ceil(8 * RECORD_BYTES as u64 * WRITES_A_SECOND);
    let records = rate_bps.map_or(RECORDS as u64, due);
    usize::try_from(records).unwrap_or(RECORDS).clamp(1, RECORDS)
}

/// Ends the connections. What the other end did not take within a moment is thrown away with
/// them: a run that is over sends no more.
fn end(connections: &[Connection]) -> io::Result<()> {
    let give_up_ns = monotonic_ns() + DRAIN_NS;
    let is_idle = |one: &Connection| socket::unacknowledged(&one.stream) == 0;
    while !connections.iter().all(is_idle) && monotonic_ns() < give_up_ns {
        sleep_until(monotonic_ns() + DRAIN_NS / 20);
    }
    let abort = libc::linger { l_onoff: 1, l_linger: 0 };
    let mut busy = connections.iter().filter(|one| !is_idle(one));
    busy.try_for_each(|one| socket::set_option(&one.stream, libc::SO_LINGER, &abort))
}

/// Length of a record; a little below what a segment carries with MTU 1500.
pub(super) const RECORD_BYTES: usize = 1_400;
/// Records of one write at most: 44 KB, a few of which fill a default send buffer.
const RECORDS: usize = 32;
/// At a rate.
const WRITES_A_SECOND: u64 = 2_000;
/// Often enough that no connection waits long, seldom enough to cost little.
const WRITES_A_ROUND: usize = 16;
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
