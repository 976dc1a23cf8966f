// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of TCP through one queue in virtual time, and what is seen of them.

use weir_experiment::prelude::*;
use weir_policy::{Codel, Queue};
use weir_sched::{
    AnyScheduler, ClassConfig, ClassId, CodelConfig, FlowQueueConfig, LinkConfig, QueueConfig,
    Scheduler, SchedulerAlgorithm,
};
use weir_sim::{
    Bottleneck, BulkSender, CongestionControl, Crossing, DiscardingReader, FifoLink, ProbeSource,
    ScheduledLink, TcpConnection, TcpNetwork,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// The queue under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestedQueue {
    /// Weir's flow queues, with the defaults of a policy.
    Flows,
    /// Weir's queue in order of arrival, with the defaults of a policy.
    Fifo,
    /// TBF with `latency 50ms`: a queue of 50 ms of bytes.
    Tbf,
    /// HTB over a pfifo of 1000 packets, as a device's `txqueuelen` has it.
    HtbPfifo,
}

/// Greedy connections and a sparse flow through one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueCase {
    pub(super) queue: TestedQueue,
    pub(super) control: CongestionControl,
    pub(super) rate: BitRate,
    pub(super) round_trip: Nanos,
}

/// Samples of the time after the warm-up.
#[derive(Default)]
pub(super) struct QueueRun {
    /// Delays of the sparse flow's packets, s.
    pub(super) sparse: Vec<f64>,
    /// Delays of some of the bulk packets, s.
    pub(super) bulk: Vec<f64>,
    /// Bytes that crossed in each second.
    pub(super) seconds: Vec<f64>,
    /// Bytes of each connection.
    pub(super) flows: Vec<f64>,
}

impl TestedQueue {
    pub(super) const ALL: [Self; 4] = [Self::Flows, Self::Fifo, Self::Tbf, Self::HtbPfifo];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Fifo => "fifo",
            Self::Tbf => "tbf",
            Self::HtbPfifo => "htb-pfifo",
        }
    }

    /// Makes the queue, before a link of that rate.
    pub(crate) fn bottleneck(self, rate: BitRate) -> Result<Box<dyn Bottleneck>, ExperimentError> {
        let bytes = rate.bytes_in_floor(Nanos::from_millis(50));
        Ok(match self {
            Self::Flows | Self::Fifo => {
                let queue = if self == Self::Flows { flow_queue(rate) } else { one_queue() };
                let class = ClassConfig { queue, ..ClassConfig::default() };
                Box::new(scheduled(rate, SchedulerAlgorithm::Drr, &[class])?)
            }
            Self::Tbf => Box::new(FifoLink::new(rate, usize::MAX, bytes)),
            Self::HtbPfifo => Box::new(FifoLink::new(rate, 1000, ByteCount::new(u64::MAX))),
        })
    }
}

impl QueueCase {
    /// Runs for `warm_up` unseen, then for `seconds`.
    pub(super) fn run(&self, warm_up: u64, seconds: u64) -> Result<QueueRun, ExperimentError> {
        let connection = |index: usize| TcpConnection {
            control: self.control,
            window: TcpConnection::WINDOW,
            round_trip: self.round_trip,
            // Not all at once.
            client: Box::new(BulkSender { start: Instant::from_nanos(37_000_000 * index as u64) }),
            server: Box::new(DiscardingReader),
        };
        let connections: Vec<_> = (0..GREEDY).map(connection).collect();
        // 50 packets a second as of a call, at no multiple of a round trip.
        let probe = ProbeSource {
            start: Instant::ZERO,
            period: Nanos::from_micros(19_937),
            bytes: 200,
            is_drawn: false,
        };
        let bottleneck = self.queue.bottleneck(self.rate)?;
        let mut network =
            TcpNetwork::new(bottleneck, connections, vec![probe], 1).map_err(failed)?;
        let begin = Instant::ZERO + Nanos::from_millis(warm_up * 1000);
        let end = begin + Nanos::from_millis(seconds * 1000);
        let mut run = QueueRun {
            seconds: vec![0.0; usize::try_from(seconds).unwrap_or(0)],
            flows: vec![0.0; GREEDY],
            ..QueueRun::default()
        };
        let mut count = 0_u64;
        // At 1 Gb/s one of 500 is enough for a median.
        let every = (self.rate.as_bps() / 2_000_000).max(1);
        let mut crossed = |packet: Crossing, starts: Instant, _: Instant| {
            if starts < begin {
                return;
            }
            let delay = float(starts.saturating_since(packet.offered).as_nanos()) * 1e-9;
            let second = starts.saturating_since(begin).as_nanos() / 1_000_000_000;
            let second = usize::try_from(second).ok().and_then(|at| run.seconds.get_mut(at));
            if let Some(second) = second {
                *second += f64::from(packet.bytes);
            }
            match run.flows.get_mut(packet.flow) {
                None => run.sparse.push(delay),
                Some(flow) => {
                    *flow += f64::from(packet.bytes);
                    count += 1;
                    if count.is_multiple_of(every) {
                        run.bulk.push(delay);
                    }
                }
            }
        };
        network.run(end, &mut crossed).map_err(failed)?;
        Ok(run)
    }
}

/// A scheduler with classes before a link; flow number n is of class n modulo their count.
pub(super) fn scheduled(
    rate: BitRate,
    kind: SchedulerAlgorithm,
    classes: &[ClassConfig],
) -> Result<ScheduledLink, ExperimentError> {
    let classes_max = u32::try_from(classes.len()).unwrap_or(u32::MAX);
    let link =
        LinkConfig { rate: Some(rate), catch_up: Nanos::ZERO, classes_max, packets_max: 1 << 16 };
    let mut scheduler = AnyScheduler::new(kind, &link);
    let mut ids: Vec<ClassId> = Vec::new();
    for class in classes {
        let id = scheduler.add_class(Instant::ZERO, None, class);
        ids.push(id.map_err(|error| ExperimentError::Node(error.to_string()))?);
    }
    let class_of = move |flow: usize| ids.get(flow % ids.len()).copied().unwrap_or(ClassId(0));
    Ok(ScheduledLink::new(scheduler, (&link, rate), Box::new(class_of)))
}

/// The queue that a policy gives a vif of that rate.
pub(super) fn flow_queue(rate: BitRate) -> QueueConfig {
    let queue = default_queue(rate);
    let Codel { target, interval, ecn } = queue.codel.unwrap_or_default();
    QueueConfig {
        packets: queue.packets,
        bytes: queue.bytes,
        codel: Some(CodelConfig { target, interval, ecn }),
        flows: Some(FlowQueueConfig { flows: 1024, l4s: None }),
    }
}

/// The queue that a policy gives a vif which says nothing else, at a port of that rate.
pub(crate) fn default_queue(rate: BitRate) -> Queue {
    let document = format!(
        "version = 1\nport = [{{ name = \"p\", rate = \"{rate}\" }}]\n\
         slice = [{{ name = \"s\" }}]\nvif = [{{ name = \"v\", slice = \"s\" }}]\n"
    );
    let queue = weir_policy::parse(&document).ok();
    let queue = queue.and_then(|policy| Some(policy.vifs.first()?.send_queue.clone()));
    queue.unwrap_or_default()
}

/// The queue of a policy that says `queue = "fifo"`.
pub(super) fn one_queue() -> QueueConfig {
    QueueConfig::default()
}

fn failed(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Node(error.to_string())
}

/// Greedy connections.
pub(super) const GREEDY: usize = 16;
