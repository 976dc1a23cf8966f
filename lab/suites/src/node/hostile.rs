// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hostile requests: bodies of 4 MiB, heads that never end, 10 000 connections at once, and
//! whatever schemathesis makes of the OpenAPI document. Each is answered by a clear refusal, none
//! by a failure, and the node's memory is freed again.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use weir_experiment::prelude::*;

use crate::schemathesis;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("node-hostile", 2, BitRate::from_mbps(100));
    let mut policy = star.policy();
    policy.api.request_time = Nanos::from_millis(1000);
    // All requests of schemathesis come from one caller.
    policy.api.requests_per_second = 1_000_000;
    let connections = f64::from(policy.api.connections);
    let mut rig = Testbed::up(&star)?;
    rig.put(&policy.into())?;
    let shown = attack(rec, &rig, connections);
    rig.down()?;
    shown
}

fn attack(rec: &mut Recording<'_>, rig: &Testbed, connections_max: f64) -> Result {
    let node = rig.running()?;
    let (socket, pid) = (node.socket().to_owned(), node.pid());
    let failed = |error| ExperimentError::io(&socket, error);
    // The memory after the node's first hundred answers, not at its start.
    for _ in 0..100 {
        node.status()?;
    }
    let before = memory(pid)?;
    // From here on the peak is measured.
    let reset = format!("/proc/{pid}/clear_refs");
    std::fs::write(&reset, "5").map_err(|error| ExperimentError::io(&reset, error))?;
    let bodies: Vec<u16> =
        (0..BODIES).map(|_| long_body(&socket)).collect::<io::Result<_>>().map_err(failed)?;
    refused(rec, "bodies", "4 MiB bodies not refused with 413", &bodies, 413)?;
    let heads = slow_heads(&socket).map_err(failed)?;
    refused(rec, "slow", "slow heads not refused with 408", &heads, 408)?;
    node.status()?;
    let connections = if rec.quick { 1000 } else { 10_000 };
    let many = many_connections(&socket, connections).map_err(failed)?;
    refused(rec, "connections", "connections beyond not refused with 429", &many, 429)?;
    let (held, most) = (connections - many.len(), Bound::at_most(connections_max));
    rec.count("held", "connections held at once", held as u64, most)?;
    // Connections that were held get an answer in time, and their places are free again.
    std::thread::sleep(Duration::from_secs(2));
    node.status()?;
    let tested = test_document(rec, &socket);
    std::thread::sleep(Duration::from_secs(2));
    node.status()?;
    let after = memory(pid)?;
    for (name, what, bytes, most) in [
        ("peak", "memory at its peak above that before", after.peak, 64.0),
        ("memory", "memory afterwards above that before", after.now, 16.0),
    ] {
        let grown = float(bytes.saturating_sub(before.now)) / f64::from(1 << 20);
        let grown = Series::unordered("MiB", vec![grown]);
        rec.claim_samples(name, what, grown, Rule::Sum, Bound::at_most(most))?;
    }
    // Without its first part the row is not shown, whatever the others found.
    tested
}

/// Sends a body of 4 MiB. Returns the status of the answer.
fn long_body(socket: &Path) -> io::Result<u16> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = "PATCH /v1/vifs/t0 HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\n\
                content-length: 4194304\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    stream.write_all(&vec![b' '; 4 << 20])?;
    status(&mut stream)
}

/// Opens many connections, each of which sends half a head and waits.
fn slow_heads(socket: &Path) -> io::Result<Vec<u16>> {
    let mut streams = Vec::new();
    for _ in 0..SLOW {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: we")?;
        streams.push(stream);
    }
    streams.iter_mut().map(status).collect()
}

/// Opens that many connections at once that send nothing. Returns the statuses of those refused.
fn many_connections(socket: &Path, count: usize) -> io::Result<Vec<u16>> {
    let start = Instant::now();
    let (mut open, mut heard) = (Vec::with_capacity(count), Vec::new());
    for _ in 0..count {
        let stream = UnixStream::connect(socket)?;
        stream.set_nonblocking(true)?;
        open.push(stream);
    }
    // A connection that is held gets an answer when its time is over, which is no refusal.
    std::thread::sleep(HELD.saturating_sub(start.elapsed()));
    for stream in &mut open {
        if let Ok(status) = status(stream) {
            if status == 408 {
                continue;
            }
            heard.push(status);
        }
    }
    Ok(heard)
}

/// Reads the status in an answer's first line.
fn status(stream: &mut UnixStream) -> io::Result<u16> {
    let mut line = [0; 12];
    stream.read_exact(&mut line)?;
    let text = std::str::from_utf8(&line).unwrap_or_default();
    text.split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| io::Error::other(format!("not the first line of an answer: {text:?}")))
}

fn refused(rec: &mut Recording<'_>, name: &str, what: &str, seen: &[u16], wanted: u16) -> Result {
    let others = seen.iter().filter(|status| **status != wanted).count();
    rec.none(name, format!("{what}, of {}", seen.len()), others as u64)?;
    rec.at_least(format!("{name}/asked"), "that many were refused", seen.len() as u64, 10)
}

/// Resident memory, in bytes.
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

/// Reads the resident memory of a process, now and at its peak.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| ExperimentError::io(&path, error))?;
    let of = |key: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    Ok(Memory { now: of("VmRSS:"), peak: of("VmHWM:") })
}

/// Runs schemathesis, if it is installed, on all endpoints but the two streams and those that end
/// the node.
fn test_document(rec: &mut Recording<'_>, socket: &Path) -> Result {
    let Some(program) = schemathesis::program() else {
        let skipped = format!("SKIPPED schemathesis: {}", schemathesis::LACKS);
        rec.say(&skipped);
        return Err(ExperimentError::Node(skipped));
    };
    let port = forward(socket).map_err(|error| ExperimentError::io("127.0.0.1", error))?;
    let url = format!("http://127.0.0.1:{port}/v1/openapi.json");
    let folder = socket.parent().unwrap_or_else(|| Path::new("/"));
    let mut command = schemathesis::command(&program, folder, &url, rec.quick);
    command.args(["--exclude-path-regex", "(capture|events|stop|leave)$"]);
    let output = command.output().map_err(|error| ExperimentError::io(&program, error))?;
    schemathesis::judge(rec, &output)
}

/// Carries TCP connections on this machine to the node's socket until the process ends, since a
/// tester of HTTP speaks TCP.
fn forward(socket: &Path) -> io::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Ok(node) = UnixStream::connect(&socket) {
                let _broken = carry(stream, node);
            }
        }
    });
    Ok(port)
}

fn carry(tcp: TcpStream, unix: UnixStream) -> io::Result<()> {
    let (mut from_tcp, mut to_tcp) = (tcp.try_clone()?, tcp);
    let (mut from_unix, mut to_unix) = (unix.try_clone()?, unix);
    std::thread::spawn(move || {
        let _ended = io::copy(&mut from_tcp, &mut to_unix);
        let _closed = to_unix.shutdown(std::net::Shutdown::Write);
    });
    std::thread::spawn(move || {
        let _ended = io::copy(&mut from_unix, &mut to_tcp);
        let _closed = to_tcp.shutdown(std::net::Shutdown::Both);
    });
    Ok(())
}

const BODIES: usize = 20;
/// The number of slow heads: fewer than the connections that a node holds.
const SLOW: usize = 100;
/// The time for which connections are held: longer than a head may take.
const HELD: Duration = Duration::from_millis(2500);
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
