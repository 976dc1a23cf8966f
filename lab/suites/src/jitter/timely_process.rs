// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines of experiments with real-time classes: hidden commands of `weir-lab`.
//!
//! A *worker* is activated by the clock: it works and sends a datagram. A *server* is activated by
//! requests, datagrams or those of HTTP: it works and answers. A *bulk sender* sends over TCP as
//! much as it can, and a *sink* counts that. An *echo* answers pings. A *neighbour* never waits.
//! Each is one thread, and says what it measured as one line of JSON when it ends.

use std::io::{BufRead, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use weir_experiment::clock::{monotonic_ns, thread_ns};
use weir_experiment::{ExperimentError, Result};
use weir_platform::cpu::{CpuRequest, CpuReservation, SchedulingClass};
use weir_traffic::{StampedListener, StampedSocket, wall_ns};
use weir_units::Nanos;

/// A machine of an experiment.
#[derive(Clone, Copy, Debug)]
pub enum TimelyMachine {
    /// Works `work` each `every`, `times` times, and sends a datagram to `to` each time. It begins
    /// once a line comes on its standard input.
    Worker {
        /// The time between two activations.
        every: Nanos,
        /// The processor time of each.
        work: Nanos,
        /// The number of activations.
        times: u32,
        /// The receiver of its datagrams.
        to: SocketAddr,
    },
    /// Works `work` for each datagram that comes, and answers, `times` times.
    Server {
        /// The processor time of each.
        work: Nanos,
        /// The number of requests.
        times: u32,
        /// Its address.
        at: SocketAddr,
    },
    /// Works `work` for each request of one HTTP connection, and answers it, until the peer closes.
    Web {
        /// The processor time of each.
        work: Nanos,
        /// The length of what it answers.
        bytes: u32,
        /// Its address.
        at: SocketAddr,
    },
    /// Sends over TCP for `length`, as much as it can. It begins once a line comes on its standard
    /// input.
    Bulk {
        /// The time for which it sends.
        length: Nanos,
        /// The sink.
        to: SocketAddr,
    },
    /// Takes one TCP connection to its end, and measures its rate in bits a second.
    Sink {
        /// Its address.
        at: SocketAddr,
    },
    /// Sends each datagram back to its sender, without end.
    Echo {
        /// Its address.
        at: SocketAddr,
    },
    /// Works without end.
    Neighbour,
}

/// Runs a machine to its end; `core`: the only processor it runs on.
///
/// # Errors
/// A socket failed, or nothing came for [`PATIENCE`].
pub fn run(machine: TimelyMachine, core: Option<u32>) -> Result {
    let ordinary = CpuRequest { cpu: core, class: SchedulingClass::Normal { nice: 0 } };
    let _pinned = core.map(|_| CpuReservation::take(ordinary)).transpose()?;
    let samples = match machine {
        TimelyMachine::Worker { every, work, times, to } => work_on_time(every, work, times, to),
        TimelyMachine::Server { work, times, at } => serve(work, times, at),
        TimelyMachine::Web { work, bytes, at } => serve_web(work, bytes, at),
        TimelyMachine::Bulk { length, to } => send_bulk(length, to),
        TimelyMachine::Sink { at } => take_bulk(at),
        TimelyMachine::Echo { at } => weir_traffic::echo(at).map(|()| Vec::new()),
        TimelyMachine::Neighbour => loop {
            std::hint::spin_loop();
        },
    };
    let samples = samples.map_err(|error| ExperimentError::io("a machine", error))?;
    let line = serde_json::to_string(&samples).unwrap_or_default();
    writeln!(std::io::stdout(), "{line}").map_err(|error| ExperimentError::io("stdout", error))
}

/// Returns how late it woke up each time, in nanoseconds.
fn work_on_time(
    every: Nanos,
    work: Nanos,
    times: u32,
    to: SocketAddr,
) -> std::io::Result<Vec<u64>> {
    let socket = UdpSocket::bind(SocketAddr::new(to.ip(), 0))?;
    socket.connect(to)?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let mut late = Vec::new();
    let mut due = monotonic_ns() + every.as_nanos();
    for number in 0..times {
        sleep_until(due);
        late.push(monotonic_ns().saturating_sub(due));
        burn(work);
        // Nobody may listen where only the wake-up or the share is of interest.
        let _refused = socket.send(&number.to_le_bytes());
        due += every.as_nanos();
    }
    Ok(late)
}

/// Returns the time of each response beyond its work, from the kernel's receipt of the request, in
/// nanoseconds.
fn serve(work: Nanos, times: u32, at: SocketAddr) -> std::io::Result<Vec<u64>> {
    let socket = StampedSocket::bind(at, PATIENCE)?;
    let mut response = Vec::new();
    for _ in 0..times {
        let mut request = [0; 2];
        let got = match socket.receive(&mut request) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            other => other?,
        };
        burn(work);
        // The port that is to be answered is the request.
        let to = SocketAddr::new(at.ip(), u16::from_le_bytes(request));
        socket.socket().send_to(&request, to)?;
        let took = wall_ns().saturating_sub(got.at_ns);
        response.push(took.saturating_sub(work.as_nanos()));
    }
    Ok(response)
}

/// Returns as [`serve`] does, for the requests of one connection.
fn serve_web(work: Nanos, bytes: u32, at: SocketAddr) -> std::io::Result<Vec<u64>> {
    let stream = StampedListener::bind(at)?.accept(PATIENCE)?;
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + bytes as usize, b'.');
    let (mut response, mut request, mut length) = (Vec::new(), [0; REQUEST_MAX], 0);
    while let Some(got) = stream.receive(&mut request[length..])? {
        length += got.length;
        if !request[..length].ends_with(REQUEST_END) {
            if length == REQUEST_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            continue;
        }
        length = 0;
        burn(work);
        stream.stream().write_all(&answer)?;
        let took = wall_ns().saturating_sub(got.at_ns);
        response.push(took.saturating_sub(work.as_nanos()));
    }
    Ok(response)
}

fn send_bulk(length: Nanos, to: SocketAddr) -> std::io::Result<Vec<u64>> {
    std::io::stdin().lock().read_line(&mut String::new())?;
    let mut stream = TcpStream::connect(to)?;
    let block = vec![0; BULK_BLOCK];
    let until = monotonic_ns() + length.as_nanos();
    while monotonic_ns() < until {
        stream.write_all(&block)?;
    }
    Ok(Vec::new())
}

/// The kernel discards the bytes: the sender, not the sink, is to be what limits the rate.
fn take_bulk(at: SocketAddr) -> std::io::Result<Vec<u64>> {
    let (stream, _) = TcpListener::bind(at)?.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; BULK_TAKEN];
    let (begin, mut bytes) = (monotonic_ns(), 0);
    loop {
        match recv(&stream, buffer.as_mut_slice(), RecvFlags::TRUNC)? {
            (_, 0) => break,
            (_, length) => bytes += length as u64,
        }
    }
    let took = monotonic_ns() - begin;
    let rate = u128::from(bytes) * 8 * u128::from(NANOS) / u128::from(took.max(1));
    Ok(vec![u64::try_from(rate).unwrap_or(u64::MAX)])
}

/// Uses so much processor time.
fn burn(work: Nanos) {
    let until = thread_ns() + work.as_nanos();
    while thread_ns() < until {
        std::hint::spin_loop();
    }
}

fn sleep_until(until_ns: u64) {
    let until = Timespec {
        tv_sec: i64::try_from(until_ns / NANOS).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(until_ns % NANOS).unwrap_or(0),
    };
    // A signal ends the process, not the sleep.
    let _slept = clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

const NANOS: u64 = 1_000_000_000;

/// The end of a request without a body.
pub const REQUEST_END: &[u8] = b"\r\n\r\n";
const REQUEST_MAX: usize = 1024;
const BULK_BLOCK: usize = 64 << 10;
const BULK_TAKEN: usize = 1 << 20;

/// The longest wait for a request.
pub const PATIENCE: Duration = Duration::from_secs(10);
