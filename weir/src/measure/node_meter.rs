// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker of a node that is measured: its own counters around each trial, as the node reads
//! them when it watches its CPU model. A model that is fitted to them is about the worker alone,
//! whatever generator, sink and interrupts take of the machine.
//!
//! A trial ends in silence, at least 100 ms in which late packets may come, and begins in it. Over
//! both a load of 200 ms would look a third lower than it is. So the counters are read all the
//! time, and the load is that between two readings while packets flow. A trial within which a link
//! is lost is repeated, and has the readings of the repetition alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_api_types::status::NodeStatus;
use weir_api_types::worker_load::{WorkerCounts, WorkerLoad};
use weir_client::Client;
use weir_platform::failure::Failure;
use weir_tester::{
    Measurer, NodeLoad, RecoveryRequest, RecoveryTime, ResetRequest, ResetTime, TrialRequest,
    TrialResult,
};
use weir_traffic::{TrafficError, WireMeasurer};

use crate::node::with_token_of_environment;

/// A measurer on the wire that reads a node's worker around each trial.
pub(super) struct NodeMeter<'s> {
    pub(super) wire: WireMeasurer<'s>,
    node: Option<Client>,
}

/// Connects to a node by the path of its socket or by `https://HOST:PORT`.
pub(super) fn client(node: &str) -> Result<Client, Failure> {
    let client = with_token_of_environment(Client::at(node, None)?);
    match counts(&client) {
        Ok(_) => Ok(client),
        Err(error) => Err(format!("--node {node}: {error}").into()),
    }
}

fn counts(client: &Client) -> Result<WorkerCounts, String> {
    let status: NodeStatus = client.get("/v1/status").map_err(|error| error.to_string())?;
    let none = "its kernel forwards, so that it has no worker to meter";
    WorkerCounts::of(&status).ok_or_else(|| none.to_owned())
}

impl<'s> NodeMeter<'s> {
    pub(super) const fn new(wire: WireMeasurer<'s>, node: Option<Client>) -> Self {
        Self { wire, node }
    }
}

/// Reads the counters until their status is from after a time that began with `before`.
fn counts_after(
    client: &Client,
    before: &WorkerCounts,
    trial: Duration,
) -> Result<WorkerCounts, TrafficError> {
    let asked = Instant::now();
    loop {
        let now = counts(client).map_err(TrafficError::Device)?;
        let passed = Duration::from_nanos(now.now_ns.saturating_sub(before.now_ns));
        if passed >= trial || asked.elapsed() > STATUS_MAX {
            return Ok(now);
        }
        thread::sleep(STATUS_LOOK);
    }
}

/// The readings since a trial began, in the order of their times: one is made at a time. A reading
/// that fails is left out: those before and after the trial tell what is wrong.
struct TrialReadings<F> {
    read: F,
    readings: Mutex<Vec<WorkerCounts>>,
}

impl<F: Fn() -> Option<WorkerCounts>> TrialReadings<F> {
    fn new(read: F) -> Self {
        Self { read, readings: Mutex::default() }
    }

    /// Drops all readings so far, which are of a trial that is repeated, and makes the first.
    fn begin(&self) {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        readings.clear();
        readings.extend((self.read)());
    }

    fn add(&self) {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        readings.extend((self.read)());
    }

    fn into_readings(self) -> Vec<WorkerCounts> {
        self.readings.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the load of a worker while packets flow: between the first and the last reading at which
/// more than a tenth and less than nine tenths of its packets are forwarded. Without two such
/// readings packets were too few, or the machine too busy, to say when they flowed: then that of
/// the time from the first reading to the last, with its silence.
fn load_within(readings: &[WorkerCounts]) -> Option<WorkerLoad> {
    let (first, last) = (readings.first()?, readings.last()?);
    let whole = first.load_until(last).filter(|load| load.packets > 0)?;
    let is_flowing = |reading: &&WorkerCounts| {
        first.load_until(reading).is_some_and(|load| {
            let tenths = load.packets.saturating_mul(10) / whole.packets;
            (1..9).contains(&tenths)
        })
    };
    let mut flowing = readings.iter().filter(is_flowing);
    let within = flowing.next().zip(flowing.next_back());
    let within = within.and_then(|(begin, end)| begin.load_until(end));
    within.filter(|load| load.packets > 0 && load.span_ns > 0).or(Some(whole))
}

impl Measurer for NodeMeter<'_> {
    type Error = TrafficError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, TrafficError> {
        let Some(client) = self.node.as_ref().filter(|_| request.burst.is_none()) else {
            return self.wire.trial(request);
        };
        let before = counts(client).map_err(TrafficError::Device)?;
        let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
        let interval = Duration::from_nanos(request.duration.as_nanos() / READINGS);
        let interval = interval.clamp(READ_MIN, READ_MAX);
        let readings = TrialReadings::new(|| counts(client).ok());
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    readings.add();
                    thread::sleep(interval);
                }
            });
            let result = self.wire.trial_from(request, &mut || readings.begin());
            is_over.store(true, Ordering::Relaxed);
            result
        })?;
        let mut readings = readings.into_readings();
        readings.push(counts_after(client, &before, begun.elapsed())?);
        let node = load_within(&readings);
        let node =
            node.map(|load| NodeLoad::of(load.span_ns, load.packets, load.bytes, load.cpu_ns));
        Ok(TrialResult { node, ..result })
    }

    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, TrafficError> {
        self.wire.recovery(request)
    }

    fn reset(&mut self, request: &ResetRequest) -> Result<Option<ResetTime>, TrafficError> {
        self.wire.reset(request)
    }
}

/// A node whose status is older than that by then is read as it is.
const STATUS_MAX: Duration = Duration::from_secs(3);
const STATUS_LOOK: Duration = Duration::from_millis(50);
/// Readings within a trial. A node's answer is up to 20 ms old: to ask more often tells nothing.
const READINGS: u64 = 10;
const READ_MIN: Duration = Duration::from_millis(20);
const READ_MAX: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use weir_api_types::status::{Amount, DirectionStatus, IfaceStatus, WorkerStatus};

    use super::*;

    /// Returns the counters of a worker that had 1000 packets/s and half a processor from 50 to 250
    /// ms.
    fn at(ms: u64) -> WorkerCounts {
        counted(ms, ms.clamp(50, 250) - 50)
    }

    /// Returns the counters of a worker that has forwarded `flowed` packets, each in half a
    /// millisecond.
    fn counted(ms: u64, flowed: u64) -> WorkerCounts {
        let mut status = NodeStatus { now_ns: ms * 1_000_000, ..NodeStatus::default() };
        let used = flowed * 500_000;
        status.worker =
            Some(WorkerStatus { cpu_ns: used, busy_ns: used, ..WorkerStatus::default() });
        let sent = Amount { packets: flowed, bytes: flowed * 124 };
        let send = DirectionStatus { sent, ..DirectionStatus::default() };
        status.vifs = vec![IfaceStatus { send, ..IfaceStatus::default() }];
        WorkerCounts::of(&status).unwrap()
    }

    /// Goal: the settling of a short trial is no part of its load.
    #[test]
    fn the_silence_around_a_trial_is_not_its_load() {
        let readings: Vec<WorkerCounts> = (0..=18).map(|step| at(step * 20)).collect();
        let load = load_within(&readings).unwrap();
        assert_eq!(load.span_ns, load.packets * 1_000_000, "1000 packets/s: {load:?}");
        assert_eq!(load.cpu_ns * 2, load.span_ns, "half a processor: {load:?}");
        assert!(load.span_ns >= 100_000_000, "{load:?}");
        // A machine that was too busy to read meanwhile.
        let load = load_within(&[at(0), at(360)]).unwrap();
        assert_eq!((load.packets, load.span_ns), (200, 360_000_000));
        assert_eq!(load_within(&[at(300), at(360)]), None, "no packets");
        assert_eq!(load_within(&[]), None);
    }

    /// Goal: the packets of a trial whose link was lost, and the wait for the link, are no part of
    /// the load. Method: 100 packets, no link for 4 s, then the repetition with 200.
    #[test]
    fn a_trial_that_is_repeated_has_the_load_of_its_repetition() {
        let now = Cell::new(0);
        let flowed = |ms: u64| ms.min(100) + ms.clamp(4_100, 4_300) - 4_100;
        let readings = TrialReadings::new(|| Some(counted(now.get(), flowed(now.get()))));
        for trial in [0..4_000, 4_000..4_500] {
            now.set(trial.start);
            readings.begin();
            for ms in trial.step_by(20) {
                now.set(ms);
                readings.add();
            }
        }
        let load = load_within(&readings.into_readings()).unwrap();
        assert_eq!(load.span_ns, load.packets * 1_000_000, "1000 packets/s: {load:?}");
        assert_eq!(load.cpu_ns * 2, load.span_ns, "half a processor: {load:?}");
        assert!((100..=200).contains(&load.packets), "{load:?}");
    }
}
