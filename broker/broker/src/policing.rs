// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The task that polices networks over all Weir nodes, for the broker that has the lease.
//!
//! At each sample all nodes of agreements are asked for their routers (`GET /v1/xtc`), at once and
//! for a bounded time; [`NetworkPolice`] decides; one request a node sets, moves, renews or
//! withdraws what differs or is due (`POST /v1/set-points`), all nodes at once. A node that does
//! not answer is left out and counted. What is not set then differs at the next sample.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use weir_api_types::xtc::{SetPointRequest, XtcView};
use weir_broker_api_types::PolicingReport;
use weir_client::{Client, Method};
use weir_units::Instant as SampleTime;

use crate::config::BrokerConfig;
use crate::orders::WriterOrder;
use crate::police::{LeaseOutcome, NetworkPolice, PolicingNote};
use crate::weir_node_keeper::{NodeClients, on_a_thread};

/// A handle of the task, which ends with it.
#[derive(Debug)]
pub(crate) struct PolicingHandle(JoinHandle<()>);

impl Drop for PolicingHandle {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The task.
struct PolicingTask {
    police: NetworkPolice,
    /// The nodes in the mechanism's order.
    nodes: Vec<(String, Client)>,
    orders: mpsc::WeakSender<WriterOrder>,
    shown: watch::Sender<Arc<PolicingReport>>,
    /// Notes that the writer has not taken yet.
    notes: Vec<PolicingNote>,
    /// Notes that were lost.
    unrecorded: u64,
}

/// Starts the policing of the networks that have an agreement; none if there is none.
pub(crate) fn start(
    config: &BrokerConfig,
    clients: &NodeClients,
    orders: mpsc::WeakSender<WriterOrder>,
    shown: watch::Sender<Arc<PolicingReport>>,
) -> Option<PolicingHandle> {
    let police = NetworkPolice::new(config)?;
    // Each node of an agreement was checked to be in the file.
    let client = |name: &str| Some((name.to_owned(), clients.get(name)?.clone()));
    let nodes: Vec<_> = police.nodes().filter_map(client).collect();
    debug_assert_eq!(nodes.len(), police.nodes().count(), "answers are taken by position");
    let task = PolicingTask { police, nodes, orders, shown, notes: Vec::new(), unrecorded: 0 };
    Some(PolicingHandle(tokio::spawn(task.serve())))
}

impl PolicingTask {
    async fn serve(mut self) {
        let since = Instant::now();
        let mut ticks = tokio::time::interval_at(since, PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            // The time at which the sample was due: calm is counted in whole periods.
            let due = ticks.tick().await.duration_since(since);
            let now = SampleTime::from_nanos(u64::try_from(due.as_nanos()).unwrap_or(u64::MAX));
            self.sample(now).await;
        }
    }

    /// Asks all nodes, decides, and sets what differs.
    async fn sample(&mut self, now: SampleTime) {
        // Raised first: a sample with a higher number began after the number was read.
        self.shown.send_modify(|report| Arc::make_mut(report).samples += 1);
        let answers = join_all(self.nodes.iter().map(|(name, client)| ask(name, client))).await;
        let (requests, judged) = self.police.take(now, &answers);
        let each = self.nodes.iter().zip(requests);
        let made = join_all(each.map(|((name, client), request)| make(name, client, request)));
        let changed = self.police.take_outcomes(&made.await);
        self.notes.extend(judged.into_iter().chain(changed));
        self.tell();
        let period = u64::try_from(PERIOD.as_millis()).unwrap_or(u64::MAX);
        self.shown.send_replace(Arc::new(self.police.report(period, self.unrecorded)));
    }

    /// Has the writer store what happened; later if it has no room for an order.
    fn tell(&mut self) {
        if self.notes.is_empty() {
            return;
        }
        let Some(orders) = self.orders.upgrade() else { return };
        if let Ok(place) = orders.try_reserve() {
            let notes = self.notes.drain(..).map(PolicingNote::into_history);
            place.send(WriterOrder::Note { notes: notes.collect() });
        }
        // A punishment changes once in seconds, so that few wait. The oldest are lost first.
        let beyond = self.notes.len().saturating_sub(NOTES_MAX);
        self.notes.drain(..beyond);
        self.unrecorded += beyond as u64;
    }
}

/// Asks a node for its routers. An error is in words.
async fn ask(name: &str, client: &Client) -> Result<XtcView, String> {
    let client = client.clone().with_patience(ASK_PATIENCE);
    let answer = on_a_thread(name, &client, |client| client.get("/v1/xtc")).await;
    answer.map_err(|error| error.to_string())
}

/// Makes a node's request, if there is one.
async fn make(
    name: &str,
    client: &Client,
    request: Option<SetPointRequest>,
) -> Option<LeaseOutcome> {
    let request = request?;
    let client = client.clone().with_patience(SET_PATIENCE);
    let body = request.clone();
    let ask = move |client: &Client| client.ask(Method::POST, "/v1/set-points", Some(&body));
    let outcome = on_a_thread(name, &client, ask).await;
    Some((request, outcome.map_err(|error| error.to_string())))
}

/// Time from one sample to the next: that for which demand must be low until control ends.
const PERIOD: Duration = Duration::from_millis(500);

/// The longest wait for a node's routers. Within it all other nodes wait, too.
const ASK_PATIENCE: Duration = Duration::from_millis(450);

/// The longest wait for set-points to be taken. Within it all other nodes wait, too.
const SET_PATIENCE: Duration = Duration::from_secs(2);

/// Notes that wait for the writer; of more the oldest are lost.
const NOTES_MAX: usize = 64;
