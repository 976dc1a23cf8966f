// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiver through kernel sockets: one thread counts UDP datagrams and TCP records in the same
//! way as the sink counts frames.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use rustix::event::epoll::EventFlags;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use weir_result::{Cells, Histogram, Sequence};

use super::error::TrafficError;
use super::header::Header;
use super::result::{Connection, ReceiveResult, Received, Record, Totals};
use super::socket::{self, BATCH, Epoll};
use super::spec::{ReceiveSpec, SocketsSpec};
use super::stop::{Course, NAP_NS, NextStep, OnProgress, TrafficEndpoint};
use super::tcp_receive::{Chunk, Incoming};
use super::thread::monotonic_ns;
use super::udp_send::overhead;

/// Receives until the run is over. The first call of the progress function says that all sockets
/// are bound.
pub(super) fn receive(
    spec: &ReceiveSpec,
    sockets: &SocketsSpec,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<ReceiveResult, TrafficError> {
    let receiver = Receiver::open(sockets)?;
    let mut course = Course::begin(&spec.run, None, stop, progress);
    let counts = Counts {
        spec,
        empty: course.cells(),
        streams: BTreeMap::new(),
        totals: Totals::default(),
        records: Vec::new(),
    };
    let mut serving = Serving { receiver, counts, end_ns: course.end_ns() };
    let span = course.run(&mut serving)?;
    let Serving { receiver, mut counts, .. } = serving;
    counts.totals.socket_dropped = receiver.udp.iter().map(|udp| socket::dropped(&udp.0)).sum();
    let open = receiver.tcp.values().map(Incoming::summary);
    let connections = receiver.ended.into_iter().chain(open).collect();
    Ok(ReceiveResult {
        spec: spec.clone(),
        span,
        mode: "sockets".to_owned(),
        streams: counts.streams.into_values().map(|counted| counted.end(span.end_ns)).collect(),
        sources: Vec::new(),
        connections,
        totals: counts.totals,
        records: counts.records,
    })
}

/// A receiver during its run.
struct Serving<'a> {
    receiver: Receiver,
    counts: Counts<'a>,
    end_ns: u64,
}

impl TrafficEndpoint for Serving<'_> {
    fn step(&mut self, now_ns: u64) -> Result<NextStep, TrafficError> {
        for token in self.receiver.epoll.wait(NAP_NS.min(self.end_ns - now_ns)) {
            self.receiver.serve(token, &mut self.counts);
        }
        Ok(NextStep::Again)
    }

    fn counts(&self) -> (u64, u64) {
        (self.counts.totals.packets, self.counts.totals.bytes)
    }
}

/// The sockets. Tokens: UDP sockets, then listeners, then connections.
struct Receiver {
    epoll: Epoll,
    /// Each socket with the bytes of a frame before its payload.
    udp: Vec<(UdpSocket, usize)>,
    listeners: Vec<TcpListener>,
    tcp: BTreeMap<usize, Incoming>,
    ended: Vec<Connection>,
    token_next: usize,
    buffer: Vec<u8>,
}

impl Receiver {
    fn open(sockets: &SocketsSpec) -> Result<Self, TrafficError> {
        socket::allow_many_files();
        let epoll = Epoll::new().map_err(|error| TrafficError::system("wait", error))?;
        let mut receiver = Self {
            epoll,
            udp: Vec::new(),
            listeners: Vec::new(),
            tcp: BTreeMap::new(),
            ended: Vec::new(),
            token_next: sockets.udp.len() + sockets.tcp.len(),
            buffer: vec![0; BATCH * DATAGRAM_BYTES],
        };
        let failed =
            |address| move |error| TrafficError::system(format!("listen on {address}"), error);
        let buffer = sockets.buffer_bytes.unwrap_or(BUFFER_BYTES) as usize;
        for address in &sockets.udp {
            let udp = UdpSocket::bind(address).map_err(failed(address))?;
            // FORCE exceeds the system's bound and needs root. Without root the bound holds, and
            // packets that it costs are counted as dropped.
            set_socket_recv_buffer_size_force(&udp, buffer)
                .or_else(|_| set_socket_recv_buffer_size(&udp, buffer))
                .map_err(|error| failed(address)(error.into()))?;
            let token = receiver.udp.len();
            receiver.epoll.add(&udp, EventFlags::IN, token).map_err(failed(address))?;
            receiver.udp.push((udp, overhead(address.ip())));
        }
        for address in &sockets.tcp {
            let listener = TcpListener::bind(address).map_err(failed(address))?;
            listener.set_nonblocking(true).map_err(failed(address))?;
            let token = receiver.udp.len() + receiver.listeners.len();
            receiver.epoll.add(&listener, EventFlags::IN, token).map_err(failed(address))?;
            receiver.listeners.push(listener);
        }
        Ok(receiver)
    }

    fn serve(&mut self, token: usize, counts: &mut Counts<'_>) {
        if let Some((udp, overhead)) = self.udp.get(token) {
            read_udp(udp, *overhead, &mut self.buffer, counts);
            return;
        }
        if token < self.udp.len() + self.listeners.len() {
            // The connection ended before it was accepted, or no file descriptor is left. The other
            // end sees the failure; the next connection may succeed.
            let _ = self.accept(token);
            return;
        }
        let Some(incoming) = self.tcp.get_mut(&token) else { return };
        let Some(chunk) = incoming.read(&mut self.buffer) else { return };
        if chunk.bytes == 0 {
            self.ended.extend(self.tcp.remove(&token).map(|incoming| incoming.summary()));
            return;
        }
        counts.add_tcp(monotonic_ns(), &chunk);
    }

    fn accept(&mut self, token: usize) -> io::Result<()> {
        let Some(listener) = self.listeners.get(token - self.udp.len()) else { return Ok(()) };
        let (stream, peer) = listener.accept()?;
        if self.tcp.len() + self.ended.len() >= CONNECTIONS_MAX {
            // Dropping the stream closes the connection.
            return Ok(());
        }
        let incoming = Incoming::new(stream, peer.to_string())?;
        self.epoll.add(incoming.socket(), EventFlags::IN, self.token_next)?;
        self.tcp.insert(self.token_next, incoming);
        self.token_next += 1;
        Ok(())
    }
}

fn read_udp(socket: &UdpSocket, overhead: usize, buffer: &mut [u8], counts: &mut Counts<'_>) {
    // Read at most eight batches, so that the other sockets have their turn.
    for _ in 0..8 {
        match socket::receive_batch(socket.as_fd(), buffer, DATAGRAM_BYTES) {
            Ok(lengths) => {
                let now = monotonic_ns();
                let mut count = 0;
                for (length, datagram) in lengths.zip(buffer.chunks_exact(DATAGRAM_BYTES)) {
                    let payload = datagram.get(..length).unwrap_or(datagram);
                    counts.add_udp(now, payload, (overhead + length) as u64);
                    count += 1;
                }
                if count < BATCH {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The counts of what arrived.
struct Counts<'a> {
    spec: &'a ReceiveSpec,
    empty: Cells,
    streams: BTreeMap<u16, Counted>,
    totals: Totals,
    records: Vec<Record>,
}

impl Counts<'_> {
    fn add_udp(&mut self, now_ns: u64, payload: &[u8], bytes: u64) {
        self.totals.packets += 1;
        self.totals.bytes += bytes;
        let Some(header) = Header::parse(payload) else {
            self.totals.malformed += 1;
            return;
        };
        let Some(counted) = self.stream(header.stream) else { return };
        counted.sequence.add(header.sequence);
        counted.delays.add(header.delay_ns(now_ns));
        counted.add(now_ns, 1, bytes);
        if let Some(wanted) = self.spec.record.filter(|wanted| wanted.stream == header.stream) {
            if self.records.len() < wanted.packets_max as usize {
                let delay_ns = header.delay_ns(now_ns).unwrap_or(0);
                let (time_ns, sequence) = (now_ns, header.sequence);
                self.records.push(Record { time_ns, sequence, bytes, delay_ns });
            } else {
                self.totals.records_full += 1;
            }
        }
    }

    /// Counts records of TCP. Their sequence numbers are not checked: TCP loses and reorders none.
    fn add_tcp(&mut self, now_ns: u64, chunk: &Chunk) {
        let records = chunk.headers.len() as u64;
        self.totals.packets += records;
        self.totals.bytes += chunk.bytes;
        let Some(counted) = chunk.stream.and_then(|number| self.stream(number)) else { return };
        chunk.headers.iter().for_each(|header| counted.delays.add(header.delay_ns(now_ns)));
        counted.add(now_ns, records, chunk.bytes);
    }

    fn stream(&mut self, number: u16) -> Option<&mut Counted> {
        if number >= self.spec.streams_max {
            self.totals.stream_unknown += 1;
            return None;
        }
        let series = &self.empty;
        Some(self.streams.entry(number).or_insert_with(|| Counted {
            received: Received { stream: number, series: series.clone(), ..Received::default() },
            sequence: Sequence::default(),
            delays: Histogram::new(),
        }))
    }
}

/// The counts of a stream during the run.
struct Counted {
    received: Received,
    sequence: Sequence,
    delays: Histogram,
}

impl Counted {
    fn add(&mut self, now_ns: u64, packets: u64, bytes: u64) {
        let received = &mut self.received;
        if received.bytes == 0 {
            received.first_ns = now_ns;
        }
        received.last_ns = now_ns;
        received.packets += packets;
        received.bytes += bytes;
        received.series.add(now_ns, packets, bytes);
    }

    fn end(mut self, end_ns: u64) -> Received {
        self.received.series.extend_to(end_ns);
        Received { order: self.sequence.order(), delays: self.delays.delays(), ..self.received }
    }
}

/// More than the largest datagram of a sender; a longer one is truncated.
const DATAGRAM_BYTES: usize = 9_216;
/// Most connections in a result; later ones are closed at once.
const CONNECTIONS_MAX: usize = 65_536;
/// The default receive buffer of a UDP socket.
const BUFFER_BYTES: u32 = 4 << 20;
