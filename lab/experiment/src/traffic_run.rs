// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measured run on a star: build the lab, put a forwarder in the middle, let traffic flow, and
//! return the counts of independent sinks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use weir_api_types::status::NodeStatus;
use weir_policy::Policy;
use weir_traffic::{Order, ReceiveResult, ReceiveSpec, SendResult, SendSpec, Sent};

use crate::node_process::NodeProcess;
use crate::star::StarTopology;
use crate::testbed::{Forwarder, Testbed};
use crate::{ExperimentError, Result, clock};

/// A change of the policy during a run.
#[derive(Clone, Debug)]
pub struct TimedPolicy {
    /// Time of the change, from the start of the traffic.
    pub at: Duration,
    /// The policy from then on.
    pub policy: Policy,
}

/// The description of a run.
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
    /// Length of the traffic; [`UNTIL_DONE`]: until the work beside it is done.
    pub length: Duration,
}

/// Senders and receivers in any namespaces of a lab.
#[derive(Clone, Copy, Debug)]
pub struct TrafficFlows<'f> {
    /// The senders; `start_ns` counts from the common start.
    pub senders: &'f [SendSpec],
    /// The receivers.
    pub receivers: &'f [ReceiveSpec],
    /// Length of the traffic; [`UNTIL_DONE`]: until the work beside it is done.
    pub length: Duration,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct TrafficRecord {
    /// When the senders began, ns on the monotonic clock.
    pub start_ns: u64,
    /// Full seconds of traffic.
    pub seconds: usize,
    /// Each sender's own count of its traffic.
    pub sent: Vec<SendResult>,
    /// Each receiver's count.
    pub received: Vec<ReceiveResult>,
    /// The node's counters once its queues were empty; `None` for a bridge.
    pub status: Option<NodeStatus>,
}

impl TrafficRun {
    /// Makes a run of that many seconds, without senders and receivers yet.
    pub fn new(star: &StarTopology, middle: impl Into<Forwarder>, seconds: usize) -> Self {
        Self {
            star: star.clone(),
            middle: middle.into(),
            senders: Vec::new(),
            receivers: Vec::new(),
            changes: Vec::new(),
            length: Duration::from_secs(seconds as u64),
        }
    }

    /// Makes the run. First undoes the leftovers of an earlier run of the same lab that was killed.
    /// Afterwards nothing of the lab is left, also after an error.
    pub fn run(self) -> Result<TrafficRecord> {
        Ok(self.run_beside(|_| Ok(()))?.0)
    }

    /// Makes the run, and calls `beside` once traffic flows and all changes are made. Receivers
    /// count until `beside` has returned; senders stop when their time is over.
    pub fn run_beside<T>(
        self,
        beside: impl FnOnce(&Testbed) -> Result<T>,
    ) -> Result<(TrafficRecord, T)> {
        let mut rig = Testbed::up(&self.star)?;
        rig.put(&self.middle)?;
        let flowed = self.flow(&rig, beside);
        rig.down()?;
        flowed
    }

    /// Lets the traffic of this run flow over a testbed that is up, in place of the run's own
    /// `star` and `middle`.
    pub fn flow<T>(
        &self,
        rig: &Testbed,
        beside: impl FnOnce(&Testbed) -> Result<T>,
    ) -> Result<(TrafficRecord, T)> {
        let node = rig.node();
        let (senders, receivers, length) = (&self.senders[..], &self.receivers[..], self.length);
        TrafficFlows { senders, receivers, length }.run(node, |start_ns| {
            node.map_or(Ok(()), |node| self.make_changes(node, start_ns))?;
            clock::sleep_until(start_ns)?;
            beside(rig)
        })
    }

    fn make_changes(&self, node: &NodeProcess, start_ns: u64) -> Result {
        for change in &self.changes {
            clock::sleep_until(start_ns.saturating_add(clock::nanos(change.at)))?;
            node.reload(&change.policy)?;
        }
        Ok(())
    }
}

impl TrafficFlows<'_> {
    /// Lets the traffic flow, and calls `beside` with the time at which it starts. Receivers count
    /// until `beside` has returned; senders stop when their time is over. The counters of `node`
    /// are read at the end, once its queues are empty.
    pub fn run<T>(
        &self,
        node: Option<&NodeProcess>,
        beside: impl FnOnce(u64) -> Result<T>,
    ) -> Result<(TrafficRecord, T)> {
        // Receivers begin first, then all senders at the same instant. Receivers end last.
        let (stop_sending, stop_receiving) = (AtomicBool::new(false), AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let interrupted = weir_traffic::stop_on_signals()?;
        std::thread::scope(|scope| {
            let (ended, is_ended) = mpsc::channel::<()>();
            let stop = &stop_sending;
            scope.spawn(move || {
                // The loop ends when `ended` is dropped, at the latest with this closure.
                while is_ended.recv_timeout(clock::SIGNAL_POLL) == Err(RecvTimeoutError::Timeout) {
                    stop.fetch_or(interrupted.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            });
            let receive = |spec| {
                let (stop, mut ready) = (&stop_receiving, Some(ready.clone()));
                // The first call says that packets are counted from now on. Later calls report
                // progress, which is not needed: they must not pass for another receiver's first.
                let mut tell = move |_| {
                    if let Some(ready) = ready.take() {
                        let _waited_for = ready.send(());
                    }
                };
                scope.spawn(move || weir_traffic::receive(spec, stop, &mut tell))
            };
            let receivers: Vec<_> = self.receivers.iter().map(receive).collect();
            for _ in &receivers {
                // A receiver that failed never gets ready. Its error comes when it is joined.
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
            let done = beside(start_ns);
            let ends = done.is_err() || self.length == UNTIL_DONE;
            stop_sending.fetch_or(ends, Ordering::Relaxed);
            let sent: Result<Vec<_>> = senders.into_iter().map(joined).collect();
            // After a signal this sleep fails at once; the error is returned below.
            let status = clock::sleep(DRAIN).and_then(|()| node.map(drained).transpose());
            let end_ns = clock::monotonic_ns();
            stop_receiving.store(true, Ordering::Relaxed);
            let received: Result<Vec<_>> = receivers.into_iter().map(joined).collect();
            drop(ended);
            if interrupted.load(Ordering::Relaxed) {
                return Err(ExperimentError::Interrupted);
            }
            let (done, sent, received, status) = (done?, sent?, received?, status?);
            let length = self.length.min(Duration::from_nanos(end_ns.saturating_sub(start_ns)));
            let seconds = usize::try_from(length.as_secs()).unwrap_or(0);
            Ok((TrafficRecord { start_ns, seconds, sent, received, status }, done))
        })
    }
}

impl TrafficRecord {
    /// Returns the layer-2 bits that the sender of a stream put on its device in each full second.
    pub fn offered(&self, stream: u16) -> Vec<f64> {
        self.bits(self.sent_of(stream).next().map(|sent| &sent.series), SECOND_NS, self.seconds)
    }

    /// Returns the senders' own counts of a stream.
    pub fn sent_of(&self, stream: u16) -> impl Iterator<Item = &Sent> {
        let sent = self.sent.iter().flat_map(|sender| &sender.streams);
        sent.filter(move |sent| sent.stream == stream)
    }

    /// Returns the packets of a stream that its senders sent.
    pub fn packets_sent(&self, stream: u16) -> u64 {
        self.sent_of(stream).map(|sent| sent.packets).sum()
    }

    /// Returns the packets of a stream that a receiver saw.
    pub fn packets(&self, receiver: usize, stream: u16) -> u64 {
        self.stream(receiver, stream).map_or(0, |seen| seen.packets)
    }

    /// Returns the gaps and the disorder in the sequence numbers of a stream at a receiver.
    pub fn order(&self, receiver: usize, stream: u16) -> Order {
        self.stream(receiver, stream).map(|seen| seen.order).unwrap_or_default()
    }

    /// Returns the bits of a stream in each full second.
    pub fn got(&self, receiver: usize, stream: u16) -> Vec<f64> {
        self.bits_each_second(receiver, stream, self.seconds)
    }

    /// Returns the bits of several streams together in each full second.
    pub fn got_together(
        &self,
        receiver: usize,
        streams: impl IntoIterator<Item = u16>,
    ) -> Vec<f64> {
        let mut all = vec![0.0; self.seconds];
        for stream in streams {
            all.iter_mut().zip(self.got(receiver, stream)).for_each(|(sum, bits)| *sum += bits);
        }
        all
    }

    /// Returns the packets of stream `stream` at receiver `receiver`; `None` if none arrived.
    pub fn stream(&self, receiver: usize, stream: u16) -> Option<&weir_traffic::Received> {
        self.received.get(receiver)?.streams.iter().find(|seen| seen.stream == stream)
    }

    /// Returns the layer-2 bits of a stream in each full second from the start of the traffic.
    pub fn bits_each_second(&self, receiver: usize, stream: u16, seconds: usize) -> Vec<f64> {
        let series = self.stream(receiver, stream).map(|seen| &seen.series);
        self.bits(series, SECOND_NS, seconds)
    }

    /// Returns the bits that arrived from a source in each full second.
    pub fn got_from(&self, receiver: usize, mac: weir_traffic::Mac) -> Vec<f64> {
        let sources = self.received.get(receiver).map_or(&[][..], |seen| &seen.sources);
        let source = sources.iter().find(|source| source.mac == mac);
        self.bits(source.map(|source| &source.series), SECOND_NS, self.seconds)
    }

    /// Returns the layer-2 bits in each of `count` windows of `width_ns` from the start of the
    /// traffic; zero where nothing arrived.
    pub fn bits(
        &self,
        series: Option<&weir_traffic::Cells>,
        width_ns: u64,
        count: usize,
    ) -> Vec<f64> {
        let windows = series.map_or_else(Vec::new, |series| {
            let cells = usize::try_from(width_ns / series.cell_ns.max(1)).unwrap_or(1);
            // A receiver's series begins before the traffic, so take the windows from its start.
            series.windows(self.start_ns, cells)
        });
        let mut bits: Vec<f64> = windows.iter().map(|(_, bytes)| crate::float(bytes * 8)).collect();
        bits.resize(count, 0.0);
        bits
    }
}

/// Returns the node's counters once its queues are empty, after [`DRAIN_MAX`] at the latest.
/// Packets that it still held would be missing from this run, and be counted in the next one over
/// the same testbed.
fn drained(node: &NodeProcess) -> Result<NodeStatus> {
    let drained = clock::wait_for(DRAIN_MAX, DRAIN_POLL, || {
        let status = node.status()?;
        let queued: u64 = status.vifs.iter().map(|vif| vif.send.backlog.packets).sum();
        Ok((queued == 0).then_some(status))
    })?;
    drained.map_or_else(|| node.status(), Ok)
}

fn joined<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, weir_traffic::TrafficError>>,
) -> Result<T> {
    let ended =
        thread.join().map_err(|_| ExperimentError::Node("a traffic thread panicked".into()))?;
    Ok(ended?)
}

/// The length of a run that ends when `beside` returns.
pub const UNTIL_DONE: Duration = Duration::MAX;

const SECOND_NS: u64 = 1_000_000_000;

/// The wait for a receiver to get ready. Loading and attaching a sink takes some 50 ms.
const READY_PATIENCE: Duration = Duration::from_secs(5);

/// Time for all senders to open their sockets before the common start.
const START_DELAY_NS: u64 = 500_000_000;

/// The wait after the senders' end: longer than a bridge takes to empty its queue, and than a
/// packet is on its way.
const DRAIN: Duration = Duration::from_millis(300);

/// The longest wait for a node's queues: 64 of 1000 frames last 0.8 s at 1 Gb/s.
const DRAIN_MAX: Duration = Duration::from_secs(3);

const DRAIN_POLL: Duration = Duration::from_millis(50);
