// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measured run on a star: build the lab, put a bridge or Weir in the middle, let traffic flow,
//! and keep what the sink saw.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use weir_host::StateDir;
use weir_host::lab::{Lab, Topology};
use weir_host::run::{Command, Host, Platform};
use weir_host::traffic::{self, ReceiveResult, ReceiveSpec, SendResult, SendSpec};
use weir_node::status::Status;
use weir_policy::Policy;

use crate::node::NodeProcess;
use crate::place::Place;
use crate::star::{Star, UPLINK};
use crate::{TrialError, clock};

/// What stands in the middle of the star.
#[derive(Clone, Debug)]
pub enum Middle {
    /// The kernel's bridge and a FIFO at the link's rate.
    Bridge,
    /// Weir, with this policy.
    Weir(Box<Policy>),
}

/// A change of policy during a run.
#[derive(Clone, Debug)]
pub struct Change {
    /// When, from the start of the traffic.
    pub at: Duration,
    /// To what.
    pub policy: Policy,
}

/// A run, before it runs.
#[derive(Clone, Debug)]
pub struct Run {
    /// The lab.
    pub star: Star,
    /// What is measured.
    pub middle: Middle,
    /// Who sends.
    pub senders: Vec<SendSpec>,
    /// Who counts, where it arrives.
    pub receivers: Vec<ReceiveSpec>,
    /// Changes while traffic flows, in order of time.
    pub changes: Vec<Change>,
    /// Length of the traffic.
    pub length: Duration,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the senders began, ns on the monotonic clock.
    pub start_ns: u64,
    /// What each sender says it sent.
    pub sent: Vec<SendResult>,
    /// What each receiver saw.
    pub received: Vec<ReceiveResult>,
    /// The node's counters when everything had drained; none for a bridge.
    pub status: Option<Status>,
}

impl Run {
    /// Runs it. The lab is gone afterwards, whatever happened; what an earlier run of the same lab
    /// left when it was killed is undone first.
    ///
    /// # Errors
    /// Whatever could not be made, started or measured; another process runs the same lab.
    pub fn run(self) -> Result<Outcome, TrialError> {
        let place = Place::take(&self.star.name, &StateDir::from_env())?;
        let topology = Topology::parse(&self.star.topology())
            .map_err(|problems| TrialError::Node(problems.to_string()))?;
        let lab = Lab::up(topology, place.state())?;
        let node = match &self.middle {
            Middle::Bridge => {
                make_bridge(&self.star)?;
                None
            }
            Middle::Weir(policy) => {
                Some(NodeProcess::start(&lab.namespace("sw")?, policy, &place)?)
            }
        };
        let outcome = self.flow(node.as_ref());
        if let Some(node) = node {
            node.stop()?;
        }
        lab.down()?;
        outcome
    }

    /// Receivers first, then the senders all at the same instant; receivers end last.
    fn flow(&self, node: Option<&NodeProcess>) -> Result<Outcome, TrialError> {
        let (stop_sending, stop_receiving) = (AtomicBool::new(false), AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        std::thread::scope(|scope| {
            let receive = |spec| {
                let (stop, ready) = (&stop_receiving, ready.clone());
                // The first call says that packets are counted from now on.
                let mut tell = move |_| {
                    // Nobody waits for the calls after the first.
                    let _waited_for = ready.send(());
                };
                scope.spawn(move || traffic::receive(spec, stop, &mut tell))
            };
            let receivers: Vec<_> = self.receivers.iter().map(receive).collect();
            for _ in &receivers {
                // One that failed says nothing; its error comes when it is joined.
                let _late = is_ready.recv_timeout(READY_PATIENCE);
            }
            let start_ns = clock::monotonic_ns() + START_DELAY_NS;
            let send = |spec: &SendSpec| {
                let mut spec = spec.clone();
                spec.start_ns = Some(start_ns);
                spec.run.duration_ms = u64::try_from(self.length.as_millis()).ok();
                let stop = &stop_sending;
                scope.spawn(move || traffic::send(&spec, stop, &mut |_| {}))
            };
            let senders: Vec<_> = self.senders.iter().map(send).collect();
            let changed = node.map_or(Ok(()), |node| self.make_changes(node, start_ns));
            stop_sending.store(changed.is_err(), Ordering::Relaxed);
            let sent: Result<Vec<_>, TrialError> = senders.into_iter().map(joined).collect();
            std::thread::sleep(DRAIN);
            let status = node.map(NodeProcess::status).transpose();
            stop_receiving.store(true, Ordering::Relaxed);
            let received: Result<Vec<_>, TrialError> = receivers.into_iter().map(joined).collect();
            changed?;
            Ok(Outcome { start_ns, sent: sent?, received: received?, status: status? })
        })
    }

    fn make_changes(&self, node: &NodeProcess, start_ns: u64) -> Result<(), TrialError> {
        for change in &self.changes {
            let at = start_ns.saturating_add(clock::nanos(change.at));
            let wait = at.saturating_sub(clock::monotonic_ns());
            std::thread::sleep(Duration::from_nanos(wait));
            node.reload(&change.policy)?;
        }
        Ok(())
    }
}

impl Outcome {
    /// Layer-2 bits that the senders of a stream put on their devices in each full second.
    #[must_use]
    pub fn offered_each_second(&self, stream: u16, seconds: usize) -> Vec<f64> {
        let mut streams = self.sent.iter().flat_map(|sender| &sender.streams);
        let sent = streams.find(|sent| sent.stream == stream);
        self.bits(sent.map(|sent| &sent.series), NANOS_PER_SECOND, seconds)
    }

    /// What stream `stream` brought to receiver `receiver`; nothing if nothing of it arrived.
    #[must_use]
    pub fn stream(&self, receiver: usize, stream: u16) -> Option<&traffic::Received> {
        self.received.get(receiver)?.streams.iter().find(|seen| seen.stream == stream)
    }

    /// Layer-2 bits of a stream in each full second from the start of the traffic.
    #[must_use]
    pub fn bits_each_second(&self, receiver: usize, stream: u16, seconds: usize) -> Vec<f64> {
        let series = self.stream(receiver, stream).map(|seen| &seen.series);
        self.bits(series, NANOS_PER_SECOND, seconds)
    }

    /// The same of everything that a source sent.
    #[must_use]
    pub fn source_bits_each_second(
        &self,
        receiver: usize,
        mac: traffic::Mac,
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
    #[must_use]
    pub fn bits(&self, series: Option<&traffic::Series>, width_ns: u64, count: usize) -> Vec<f64> {
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

fn joined<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, traffic::TrafficError>>,
) -> Result<T, TrialError> {
    let ended = thread.join().map_err(|_| TrialError::Node("a traffic thread panicked".into()))?;
    Ok(ended?)
}

/// A bridge over the tenants' links and the uplink, as a host without Weir has it.
fn make_bridge(star: &Star) -> Result<(), TrialError> {
    let mut lines = vec!["link add br0 type bridge".to_owned()];
    lines.extend(star.tenants.iter().map(|tenant| format!("link set {tenant} master br0")));
    lines.push(format!("link set {UPLINK} master br0"));
    lines.push("link set br0 up".to_owned());
    let command = Command::batch("ip", lines).in_namespace(&star.namespace("sw"));
    Host::default().run(&command)?;
    for device in star.tenants.iter().map(String::as_str).chain([UPLINK]) {
        // A veth takes frames of an XDP generator only with an XDP program or GRO at its peer.
        let command = Command::new("ethtool", ["-K", device, "gro", "on"]);
        Host::default().run(&command.in_namespace(&star.namespace("sw")))?;
    }
    Ok(())
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Loading and attaching a sink takes some 50 ms.
const READY_PATIENCE: Duration = Duration::from_secs(5);

/// Time for all senders to open their sockets before the common start.
const START_DELAY_NS: u64 = 500_000_000;

/// Longer than any queue of an experiment lasts at its rate.
const DRAIN: Duration = Duration::from_millis(300);
