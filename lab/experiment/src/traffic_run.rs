// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measured run on a star: build the lab, put a bridge or Weir in the middle, let traffic flow,
//! and keep what the sink saw.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use weir_api_types::status::NodeStatus;
use weir_policy::Policy;
use weir_traffic::{ReceiveResult, ReceiveSpec, SendResult, SendSpec};
use weir_units::{BitRate, ByteCount};

use crate::node_process::NodeProcess;
use crate::star::StarTopology;
use crate::testbed::Testbed;
use crate::{ExperimentError, clock};

/// The forwarder in the middle of the star.
#[derive(Clone, Debug)]
pub enum Forwarder {
    /// The kernel's bridge and a FIFO at the link's rate.
    Bridge,
    /// The same, and a token bucket of this rate and size at the devices of the tenants that have
    /// one here.
    Limited(Vec<Option<(BitRate, ByteCount)>>),
    /// Weir, with this policy.
    Weir(Box<Policy>),
}

/// A new policy during a run.
#[derive(Clone, Debug)]
pub struct TimedPolicy {
    /// Time of the change, from the start of the traffic.
    pub at: Duration,
    /// The policy from then on.
    pub policy: Policy,
}

/// A run, before it runs.
#[derive(Clone, Debug)]
pub struct TrafficRun {
    /// The lab.
    pub star: StarTopology,
    /// The forwarder that is measured.
    pub middle: Forwarder,
    /// The senders; `start_ns` counts from the common start.
    pub senders: Vec<SendSpec>,
    /// The receivers, which count where traffic arrives.
    pub receivers: Vec<ReceiveSpec>,
    /// Changes while traffic flows, in order of time.
    pub changes: Vec<TimedPolicy>,
    /// Length of the traffic.
    pub length: Duration,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct TrafficRecord {
    /// When the senders began, ns on the monotonic clock.
    pub start_ns: u64,
    /// Each sender's own count of its traffic.
    pub sent: Vec<SendResult>,
    /// Each receiver's count.
    pub received: Vec<ReceiveResult>,
    /// The node's counters when everything had drained; none for a bridge.
    pub status: Option<NodeStatus>,
}

impl TrafficRun {
    /// Runs it. The lab is gone afterwards, whatever happened; what an earlier run of the same lab
    /// left when it was killed is undone first.
    pub fn run(self) -> Result<TrafficRecord, ExperimentError> {
        Ok(self.run_beside(|_| Ok(()))?.0)
    }

    /// Runs it, and `beside` as soon as traffic flows and all changes are made. Receivers wait for
    /// it; senders do not.
    pub fn run_beside<T>(
        self,
        beside: impl FnOnce(&Testbed) -> Result<T, ExperimentError>,
    ) -> Result<(TrafficRecord, T), ExperimentError> {
        let mut rig = Testbed::up(&self.star)?;
        rig.put(&self.middle)?;
        let seen = self.flow(&rig, beside);
        rig.down()?;
        seen
    }

    /// Lets the traffic of this run flow over a rig that is up; the run's own star and middle are
    /// of no account.
    pub fn flow<T>(
        &self,
        rig: &Testbed,
        beside: impl FnOnce(&Testbed) -> Result<T, ExperimentError>,
    ) -> Result<(TrafficRecord, T), ExperimentError> {
        let node = rig.node();
        // Receivers first, then the senders all at the same instant; receivers end last.
        let (stop_sending, stop_receiving) = (AtomicBool::new(false), AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let interrupted = weir_traffic::stop_on_signals()?;
        std::thread::scope(|scope| {
            let (ended, is_ended) = mpsc::channel::<()>();
            let stop = &stop_sending;
            scope.spawn(move || {
                // Ends when `ended` is dropped, at the latest with this closure.
                while is_ended.recv_timeout(clock::SIGNAL_POLL) == Err(RecvTimeoutError::Timeout) {
                    stop.fetch_or(interrupted.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
            let receive = |spec| {
                let (stop, ready) = (&stop_receiving, ready.clone());
                // The first call says that packets are counted from now on.
                let mut tell = move |_| {
                    // Nobody waits for the calls after the first.
                    let _waited_for = ready.send(());
                };
                scope.spawn(move || weir_traffic::receive(spec, stop, &mut tell))
            };
            let receivers: Vec<_> = self.receivers.iter().map(receive).collect();
            for _ in &receivers {
                // One that failed says nothing; its error comes when it is joined.
                let _late = is_ready.recv_timeout(READY_PATIENCE);
            }
            let start_ns = clock::monotonic_ns() + START_DELAY_NS;
            let send = |spec: &SendSpec| {
                let mut spec = spec.clone();
                let later = Duration::from_nanos(spec.start_ns.unwrap_or(0));
                spec.start_ns = Some(start_ns.saturating_add(clock::nanos(later)));
                let length = self.length.saturating_sub(later);
                spec.run.duration_ms = u64::try_from(length.as_millis()).ok();
                let stop = &stop_sending;
                scope.spawn(move || weir_traffic::send(&spec, stop, &mut |_| {}))
            };
            let senders: Vec<_> = self.senders.iter().map(send).collect();
            let changed = node.map_or(Ok(()), |node| self.make_changes(node, start_ns));
            let done = changed.and_then(|()| {
                clock::sleep_until(start_ns)?;
                beside(rig)
            });
            stop_sending.fetch_or(done.is_err(), Ordering::Relaxed);
            let sent: Result<Vec<_>, ExperimentError> = senders.into_iter().map(joined).collect();
            // What was interrupted is not looked at.
            let status = clock::sleep(DRAIN).and_then(|()| node.map(drained).transpose());
            stop_receiving.store(true, Ordering::Relaxed);
            let received: Result<Vec<_>, ExperimentError> =
                receivers.into_iter().map(joined).collect();
            drop(ended);
            if interrupted.load(Ordering::Relaxed) {
                return Err(ExperimentError::Interrupted);
            }
            let done = done?;
            Ok((
                TrafficRecord { start_ns, sent: sent?, received: received?, status: status? },
                done,
            ))
        })
    }

    fn make_changes(&self, node: &NodeProcess, start_ns: u64) -> Result<(), ExperimentError> {
        for change in &self.changes {
            clock::sleep_until(start_ns.saturating_add(clock::nanos(change.at)))?;
            node.reload(&change.policy)?;
        }
        Ok(())
    }
}

impl TrafficRecord {
    /// Layer-2 bits that the senders of a stream put on their devices in each full second.
    pub fn offered_each_second(&self, stream: u16, seconds: usize) -> Vec<f64> {
        let mut streams = self.sent.iter().flat_map(|sender| &sender.streams);
        let sent = streams.find(|sent| sent.stream == stream);
        self.bits(sent.map(|sent| &sent.series), NANOS_PER_SECOND, seconds)
    }

    /// Returns the packets of stream `stream` at receiver `receiver`; `None` if none arrived.
    pub fn stream(&self, receiver: usize, stream: u16) -> Option<&weir_traffic::Received> {
        self.received.get(receiver)?.streams.iter().find(|seen| seen.stream == stream)
    }

    /// Layer-2 bits of a stream in each full second from the start of the traffic.
    pub fn bits_each_second(&self, receiver: usize, stream: u16, seconds: usize) -> Vec<f64> {
        let series = self.stream(receiver, stream).map(|seen| &seen.series);
        self.bits(series, NANOS_PER_SECOND, seconds)
    }

    /// Returns the bits of each second of everything that a source sent.
    pub fn source_bits_each_second(
        &self,
        receiver: usize,
        mac: weir_traffic::Mac,
        seconds: usize,
    ) -> Vec<f64> {
        let source = self
            .received
            .get(receiver)
            .and_then(|seen| seen.sources.iter().find(|source| source.mac == mac));
        self.bits(source.map(|source| &source.series), NANOS_PER_SECOND, seconds)
    }

    /// Layer-2 bits in each of `count` windows of `width_ns` from the start of the traffic; zero
    /// where nothing arrived.
    pub fn bits(
        &self,
        series: Option<&weir_traffic::Cells>,
        width_ns: u64,
        count: usize,
    ) -> Vec<f64> {
        let windows = series.map_or_else(Vec::new, |series| {
            let cells = usize::try_from(width_ns / series.cell_ns.max(1)).unwrap_or(1);
            // A series begins with its receiver, before the traffic does.
            series.windows(self.start_ns, cells)
        });
        let mut bits: Vec<f64> = windows.iter().map(|(_, bytes)| crate::float(bytes * 8)).collect();
        bits.resize(count, 0.0);
        bits
    }
}

/// The node's counters once its queues are empty: what it still holds would be missing from this
/// run, and turn up in the next one over the same rig. A node that goes on queueing is not waited
/// for longer than [`DRAIN_MAX`].
fn drained(node: &NodeProcess) -> Result<NodeStatus, ExperimentError> {
    let deadline = Instant::now() + DRAIN_MAX;
    loop {
        let status = node.status()?;
        let queued = status.vifs.iter().map(|vif| vif.send.backlog.packets).sum::<u64>();
        if queued == 0 || Instant::now() > deadline {
            return Ok(status);
        }
        clock::sleep(DRAIN_POLL)?;
    }
}

fn joined<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, weir_traffic::TrafficError>>,
) -> Result<T, ExperimentError> {
    let ended =
        thread.join().map_err(|_| ExperimentError::Node("a traffic thread panicked".into()))?;
    Ok(ended?)
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Loading and attaching a sink takes some 50 ms.
const READY_PATIENCE: Duration = Duration::from_secs(5);

/// Time for all senders to open their sockets before the common start.
const START_DELAY_NS: u64 = 500_000_000;

/// Longer than the queue of a bridge lasts at its rate, or a packet is on its way.
const DRAIN: Duration = Duration::from_millis(300);

/// 64 queues of 1000 frames last 0.8 s at 1 Gb/s.
const DRAIN_MAX: Duration = Duration::from_secs(3);

const DRAIN_POLL: Duration = Duration::from_millis(50);
