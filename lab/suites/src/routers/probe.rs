// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A probe through routers while something else is done: 100 small UDP packets a second, each
//! answered at the other end. A packet that was not sent when due, or whose answer did not come
//! within a second, failed, and has no round-trip time.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_experiment::prelude::*;
use weir_experiment::{clock, joined};
use weir_platform::cpu::{CpuRequest, CpuReservation, SchedulingClass};
use weir_platform::netns::Namespace;
use weir_ports::{WaitMode, Waiter};
use weir_units::Instant;

use super::lab::RouterLab;
use super::plan::ProbePath;

/// The result of probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProbeResult {
    /// Round-trip times of the answered probes, in seconds.
    pub(crate) times_s: Vec<f64>,
    /// The number of probes that were due.
    pub(crate) due: u64,
    /// The number of probes that were not sent, or sent late by a whole turn.
    pub(crate) unsent: u64,
}

impl ProbeResult {
    /// Returns the number of probes without an answer, for any reason.
    pub(crate) fn failed(&self) -> u64 {
        self.due.saturating_sub(self.times_s.len() as u64)
    }

    /// Adds the results of further probes.
    pub(crate) fn add(&mut self, more: Self) {
        self.times_s.extend(more.times_s);
        self.due += more.due;
        self.unsent += more.unsent;
    }

    /// Keeps times and counts under names that begin with `before`.
    pub(crate) fn keep(
        &self,
        trial: &mut Recording<'_>,
        before: &str,
    ) -> Result<(), ExperimentError> {
        if !self.times_s.is_empty() {
            let times = Series::unordered("s", self.times_s.clone());
            trial.keep(&format!("{before}/times"), times)?;
        }
        let counts = [
            ("due", self.due),
            ("failed", self.failed()),
            ("unsent", self.unsent),
            ("answered", self.times_s.len() as u64),
        ];
        for (name, count) in counts {
            trial.keep(&format!("{before}/{name}"), Series::count("packet", count))?;
        }
        Ok(())
    }

    /// Returns the part of all probes that had no answer.
    pub(crate) fn loss(&self) -> f64 {
        float(self.failed()) / float(self.due.max(1))
    }
}

/// Does `work` with the lab while router `router`, and those before it in a chain, are probed.
pub(crate) fn probing<T>(
    lab: &mut RouterLab,
    router: usize,
    way: ProbePath,
    work: impl FnOnce(&mut RouterLab) -> Result<T, ExperimentError>,
) -> Result<(T, ProbeResult), ExperimentError> {
    let [from, to] = lab.plan().probe(router, way).map(|(namespace, address)| {
        (Namespace::open(&namespace), SocketAddr::from((address, PORT)))
    });
    let open = |(namespace, address): (Result<Namespace, _>, SocketAddr)| {
        let socket = namespace?.run(|| UdpSocket::bind(address))?;
        let socket = socket.map_err(|error| ExperimentError::io(address.to_string(), error))?;
        Ok::<_, ExperimentError>((socket, address))
    };
    let ((prober, _), (answerer, to)) = (open(from)?, open(to)?);
    let failed = |error| ExperimentError::io("a probe's socket", error);
    answerer.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    prober.connect(to).and_then(|()| prober.set_nonblocking(true)).map_err(failed)?;
    let (stop, stop_answering) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&answerer, &stop_answering));
        let probing = scope.spawn(|| probe(&prober, &stop));
        let done = work(lab);
        stop.store(true, Ordering::Relaxed);
        let probed = joined(probing);
        stop_answering.store(true, Ordering::Relaxed);
        joined(answering);
        Ok((done?, probed?))
    })
}

/// Sends back what arrives.
fn answer(socket: &UdpSocket, stop: &AtomicBool) {
    let _urgent = urgent();
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // An answer that cannot be sent counts as lost.
            let _sent = socket.send_to(buffer.get(..length).unwrap_or_default(), from);
        }
    }
}

/// Probes until told to stop, and waits for the last answers. The socket is connected and does not
/// block.
///
/// The socket's own time limit is not used: its timer is as coarse as the kernel's tick and runs
/// among soft interrupts, so that a flood delays it by more than a turn.
fn probe(socket: &UdpSocket, stop: &AtomicBool) -> Result<ProbeResult, ExperimentError> {
    let mut waiter = Waiter::new(WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO })?;
    let watched = waiter.add(socket.as_fd());
    watched.map_err(|error| ExperimentError::io("a probe's socket", error))?;
    let _urgent = urgent();
    let mut probed = ProbeResult::default();
    let mut back: Vec<bool> = Vec::new();
    let mut due_ns = clock::monotonic_ns();
    while !stop.load(Ordering::Relaxed) && back.len() < PROBES_MAX {
        let late = clock::monotonic_ns().saturating_sub(due_ns) >= EVERY_NS;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(back.len() as u64).to_be_bytes());
        bytes[8..].copy_from_slice(&clock::monotonic_ns().to_be_bytes());
        if late || socket.send(&bytes).is_err() {
            probed.unsent += 1;
        }
        back.push(false);
        due_ns += EVERY_NS;
        receive_until(socket, &mut waiter, due_ns, &mut back, &mut probed);
    }
    probed.due = back.len() as u64;
    receive_until(socket, &mut waiter, due_ns + LAST_NS, &mut back, &mut probed);
    Ok(probed)
}

fn receive_until(
    socket: &UdpSocket,
    waiter: &mut Waiter,
    until_ns: u64,
    back: &mut [bool],
    probed: &mut ProbeResult,
) {
    loop {
        let mut bytes = [0; 16];
        let received = socket.recv(&mut bytes);
        let now_ns = clock::monotonic_ns();
        match received {
            Ok(16) => note(&bytes, back, probed),
            Err(error) if error.kind() == ErrorKind::WouldBlock && now_ns < until_ns => {
                waiter.wait(Instant::from_nanos(now_ns), Instant::from_nanos(until_ns));
            }
            // A packet of somebody else, or an error that an earlier probe found nobody there.
            _ => {}
        }
        if now_ns >= until_ns {
            return;
        }
    }
}

/// Counts an answer if it is the first to its probe, and not too late.
fn note(bytes: &[u8; 16], back: &mut [bool], probed: &mut ProbeResult) {
    let word = |at: usize| {
        let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
        part.map_or(0, |part| u64::from_be_bytes(*part))
    };
    let time_ns = clock::monotonic_ns().saturating_sub(word(8));
    let place = usize::try_from(word(0)).ok().and_then(|number| back.get_mut(number));
    if let Some(seen) = place.filter(|seen| !**seen && time_ns <= LAST_NS) {
        *seen = true;
        probed.times_s.push(float(time_ns) / 1e9);
    }
}

/// Gives the thread priority, so that a probe times the router and not the machine's other work.
/// Without the right to it the times are those of a busy machine.
fn urgent() -> Option<CpuReservation> {
    CpuReservation::take(CpuRequest { cpu: None, class: SchedulingClass::Fifo { priority: 2 } })
        .ok()
}

const PORT: u16 = 9_002;

/// The time between probes: 0.1 kp/s, as in the text.
const EVERY_NS: u64 = 10_000_000;

/// The longest round trip in nanoseconds. An answer that takes longer counts as lost.
const LAST_NS: u64 = 1_000_000_000;

/// The most probes: 17 minutes of them.
const PROBES_MAX: usize = 100_000;

/// The longest time until the end is noticed.
const PATIENCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a stopped probe ends whatever arrives, and each answered probe counts once. Method: an
    /// end that answers each probe twice, and in between sends other things without a pause.
    #[test]
    fn answers_count_once_and_others_prolong_nothing() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        far.set_nonblocking(true).unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        let to = near.local_addr().unwrap();
        let (stop, end) = (AtomicBool::new(false), AtomicBool::new(false));
        let probed = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [0; 64];
                while !end.load(Ordering::Relaxed) {
                    // If there is no room for the packet, it is lost.
                    let _full = far.send_to(b"other", to);
                    if let Ok((length, from)) = far.recv_from(&mut buffer) {
                        let _full = [0; 2].map(|_| far.send_to(&buffer[..length], from));
                    }
                }
            });
            let probing = scope.spawn(|| probe(&near, &stop));
            std::thread::sleep(PATIENCE);
            stop.store(true, Ordering::Relaxed);
            let probed = probing.join();
            end.store(true, Ordering::Relaxed);
            probed.unwrap().unwrap()
        });
        assert!(probed.due >= 1 && probed.times_s.len() as u64 <= probed.due, "{probed:?}");
        assert!(!probed.times_s.is_empty(), "{probed:?}");
    }

    #[test]
    fn what_was_not_answered_failed_whyever() {
        let mut probed = ProbeResult { times_s: vec![0.001; 8], due: 10, unsent: 1 };
        assert_eq!((probed.failed(), probed.loss().to_bits()), (2, 0.2_f64.to_bits()));
        probed.add(ProbeResult { times_s: vec![0.002; 10], due: 10, unsent: 0 });
        assert_eq!((probed.failed(), probed.due, probed.unsent), (2, 20, 1));
        assert_eq!(ProbeResult::default().loss().to_bits(), 0.0_f64.to_bits());
    }
}
