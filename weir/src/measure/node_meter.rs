// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker of a node that is measured: its own counters around each trial, as the node reads
//! them when it watches its CPU model. A model that is fitted to them is about the worker alone,
//! whatever generator, sink and interrupts take of the machine.

use std::thread;
use std::time::{Duration, Instant};

use weir_api_types::status::NodeStatus;
use weir_api_types::worker_load::WorkerCounts;
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
fn load_since(
    client: &Client,
    before: &WorkerCounts,
    trial: Duration,
) -> Result<Option<NodeLoad>, TrafficError> {
    let asked = Instant::now();
    let end = loop {
        let now = counts(client).map_err(TrafficError::Device)?;
        let passed = Duration::from_nanos(now.now_ns.saturating_sub(before.now_ns));
        if passed >= trial || asked.elapsed() > STATUS_MAX {
            break now;
        }
        thread::sleep(STATUS_LOOK);
    };
    let load = before.load_until(&end).filter(|load| load.packets > 0);
    Ok(load.map(|load| NodeLoad::of(load.span_ns, load.packets, load.bytes, load.cpu_ns)))
}

impl Measurer for NodeMeter<'_> {
    type Error = TrafficError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, TrafficError> {
        let Some(client) = self.node.as_ref().filter(|_| request.burst.is_none()) else {
            return self.wire.trial(request);
        };
        let before = counts(client).map_err(TrafficError::Device)?;
        let begun = Instant::now();
        let result = self.wire.trial(request)?;
        let node = load_since(client, &before, begun.elapsed())?;
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
