// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keeper of a node that carries networks: it compares the node with what it is to have, at an
//! interval, and puts right what differs.
//!
//! The configuration alone decides what a node is to have, and a keeper follows it as it changes.
//! So it needs no queue, unlike a router ([`crate::node_queue`]). A node is a Weir node
//! ([`crate::weir_node_keeper`]) or a Linux host ([`crate::linux_host_keeper`]).

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use weir_broker_api_types::RouterState;

use crate::config::BrokerConfig;
use crate::node_queue::QueueSettings;
use crate::weir_node::{self, NodeParts};

/// A handle of a keeper.
#[derive(Clone)]
pub(crate) struct KeptNode {
    status: Arc<Mutex<KeptNodeStatus>>,
}

/// State of a node as its keeper knows it.
#[derive(Clone, Debug)]
pub(crate) struct KeptNodeStatus {
    pub(crate) node: RouterState,
    /// The time since which it does not answer, or does not have what it is to have; none while it
    /// has.
    pub(crate) unsound_since: Option<Instant>,
    /// Vifs that it has not or has otherwise, though it answers and has its ports; and since when.
    pub(crate) lacks: BTreeMap<String, Instant>,
    /// Calls that change something, and those of them that failed.
    pub(crate) calls: u64,
    pub(crate) failed_calls: u64,
}

/// A kind of node: what it is to have, and how it is brought there.
pub(crate) trait KeptKind: Send + 'static {
    /// Takes what the node is to have from now on.
    fn follow(&mut self, config: &Arc<BrokerConfig>, parts: NodeParts);

    /// Compares the node with what it is to have, and repairs it.
    fn keep(
        &mut self,
        tally: &mut KeeperTally,
    ) -> impl Future<Output = Result<(), KeepFault>> + Send;
}

/// Counts of a keeper.
pub(crate) struct KeeperTally {
    /// True if the node had everything when it was last read.
    was_sound: bool,
    status: Arc<Mutex<KeptNodeStatus>>,
}

/// The reason why a Weir node or a plain Linux host lacks its configuration.
#[derive(Debug)]
pub(crate) enum KeepFault {
    /// No exchange with the node.
    Silent(String),
    /// It answers, and refuses or has something else.
    Unsound(String),
    /// It has all but parts that nothing else depends on. `vifs` are those that links lack there,
    /// by their names at the node, as far as the keeper can tell.
    InPart { said: String, vifs: BTreeSet<String> },
}

/// Starts the keeper of a node. It ends when nobody has its handle any more.
pub(crate) fn spawn(
    name: &str,
    kind: impl KeptKind,
    config: watch::Receiver<Arc<BrokerConfig>>,
    settings: QueueSettings,
) -> KeptNode {
    let name = name.to_owned();
    let state = RouterState { name: name.clone(), reachable: false, repaired: 0, fault: None };
    let status = KeptNodeStatus::new(state, Some(Instant::now()));
    let status = Arc::new(Mutex::new(status));
    let tally = KeeperTally { was_sound: false, status: Arc::clone(&status) };
    let keeper = NodeKeeper { name, kind, config, tally };
    tokio::spawn(keeper.serve(settings));
    KeptNode { status }
}

impl KeptNodeStatus {
    pub(crate) const fn new(node: RouterState, unsound_since: Option<Instant>) -> Self {
        Self { node, unsound_since, lacks: BTreeMap::new(), calls: 0, failed_calls: 0 }
    }
}

impl KeptNode {
    /// Returns the state of the node as its keeper knows it.
    pub(crate) fn status(&self) -> KeptNodeStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The keeper of a node.
struct NodeKeeper<K> {
    name: String,
    kind: K,
    config: watch::Receiver<Arc<BrokerConfig>>,
    tally: KeeperTally,
}

impl<K: KeptKind> NodeKeeper<K> {
    async fn serve(mut self, QueueSettings { check, changed }: QueueSettings) {
        self.follow();
        let mut ticks = tokio::time::interval_at(Instant::now(), check);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = self.config.changed() => self.follow(),
            }
            if Arc::strong_count(&self.tally.status) == 1 {
                return;
            }
            let kept = self.kind.keep(&mut self.tally).await;
            if self.tally.note(kept) {
                changed.notify_one();
            }
        }
    }

    /// Takes what the node is to have from now on. A difference is then no drift.
    fn follow(&mut self) {
        let config = Arc::clone(&self.config.borrow_and_update());
        let parts = weir_node::wanted(&config, &self.name);
        self.kind.follow(&config, parts);
        self.tally.was_sound = false;
    }
}

impl KeeperTally {
    #[cfg(test)]
    pub(crate) fn of(status: KeptNodeStatus) -> Self {
        Self { was_sound: false, status: Arc::new(Mutex::new(status)) }
    }

    /// Counts a difference that is put right, if the node had everything before.
    pub(crate) fn repairs(&mut self) {
        if std::mem::take(&mut self.was_sound) {
            self.locked(|status| status.node.repaired += 1);
        }
    }

    /// Counts a call that changes something.
    pub(crate) fn called(&self, succeeded: bool) {
        self.locked(|status| {
            status.calls += 1;
            status.failed_calls += u64::from(!succeeded);
        });
    }

    /// Keeps what came of a comparison. Returns true if the node's soundness changed.
    fn note(&mut self, kept: Result<(), KeepFault>) -> bool {
        self.was_sound = kept.is_ok();
        self.locked(|status| {
            let before = (status.unsound_since.is_some(), status.node.fault.clone());
            let is_sound = matches!(kept, Ok(()) | Err(KeepFault::InPart { .. }));
            let (reachable, fault, vifs) = match kept {
                Ok(()) => (true, None, BTreeSet::new()),
                Err(KeepFault::Unsound(text)) => (true, Some(text), BTreeSet::new()),
                Err(KeepFault::InPart { said, vifs }) => (true, Some(said), vifs),
                Err(KeepFault::Silent(text)) => (false, Some(text), BTreeSet::new()),
            };
            let now = Instant::now();
            let since = |name: &String| status.lacks.get(name).copied().unwrap_or(now);
            status.lacks = vifs.iter().map(|name| (name.clone(), since(name))).collect();
            if is_sound {
                status.unsound_since = None;
            } else {
                status.unsound_since.get_or_insert_with(Instant::now);
            }
            (status.node.reachable, status.node.fault) = (reachable, fault);
            before != (status.unsound_since.is_some(), status.node.fault.clone())
        })
    }

    fn locked<T>(&self, change: impl FnOnce(&mut KeptNodeStatus) -> T) -> T {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
