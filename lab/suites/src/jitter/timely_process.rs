// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines of experiments with real-time classes: hidden commands of `weir-lab`.
//!
//! A *worker* is activated by the clock: it works and sends a datagram. A *server* is activated by
//! requests: it works and answers. A *neighbour* never waits. Each is one thread, and says what it
//! measured as one line of JSON when it ends.

use std::io::{BufRead, ErrorKind, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::{Timespec, clock_gettime};
use weir_experiment::{ExperimentError, Result};
use weir_platform::cpu::{Class, CpuRequest, CpuReservation};
use weir_traffic::{StampedSocket, wall_ns};
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
    /// Works without end.
    Neighbour,
}

/// Runs a machine to its end; `core`: the only processor it runs on.
///
/// # Errors
/// A socket failed, or nothing came for [`PATIENCE`].
pub fn run(machine: TimelyMachine, core: Option<u32>) -> Result {
    let ordinary = CpuRequest { cpu: core, class: Class::Normal { nice: 0 } };
    let _pinned = core.map(|_| CpuReservation::take(ordinary)).transpose()?;
    let samples = match machine {
        TimelyMachine::Worker { every, work, times, to } => work_on_time(every, work, times, to),
        TimelyMachine::Server { work, times, at } => serve(work, times, at),
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
    let mut due = now_ns(ClockId::Monotonic) + every.as_nanos();
    for number in 0..times {
        sleep_until(due);
        late.push(now_ns(ClockId::Monotonic).saturating_sub(due));
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

/// Uses so much processor time.
fn burn(work: Nanos) {
    let until = now_ns(ClockId::ThreadCPUTime) + work.as_nanos();
    while now_ns(ClockId::ThreadCPUTime) < until {
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

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * NANOS + time.tv_nsec.unsigned_abs()
}

const NANOS: u64 = 1_000_000_000;

/// The longest wait for a request.
pub const PATIENCE: Duration = Duration::from_secs(10);
