// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keeper of one Weir node: it compares the node with what it is to have, at an interval, and
//! puts right what differs.
//!
//! The configuration alone decides what a node is to have, and a keeper follows it as it changes.
//! So it needs no queue, unlike a router ([`crate::node_queue`]). The node's interface makes each
//! call whole or not at all, and the keeper reads back what was done.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};
use weir_broker_api_types::RouterState;
use weir_client::{Client, ClientError};

use crate::config::BrokerConfig;
use crate::node_queue::QueueSettings;
use crate::physical::WeirNodeConfig;
use crate::weir_node::{self, NodeParts, ReadNode};

/// The keepers of all Weir nodes, by name.
pub(crate) type WeirNodes = Arc<BTreeMap<String, WeirNode>>;

/// Clients of all Weir nodes, by name.
pub(crate) type NodeClients = Arc<BTreeMap<String, Client>>;

/// A handle of a keeper.
#[derive(Clone)]
pub(crate) struct WeirNode {
    status: Arc<Mutex<WeirNodeStatus>>,
}

/// State of a node as its keeper knows it.
#[derive(Clone, Debug)]
pub(crate) struct WeirNodeStatus {
    pub(crate) node: RouterState,
    /// The time since which it does not answer, or does not have what it is to have; none while it
    /// has.
    pub(crate) unsound_since: Option<Instant>,
    /// Calls that change something, and those of them that failed.
    pub(crate) calls: u64,
    pub(crate) failed_calls: u64,
}

/// Makes the clients of all nodes; they do not connect yet.
///
/// # Errors
/// A file with a token or with authorities cannot be read, or an address has another form.
pub(crate) fn clients(config: &BrokerConfig) -> io::Result<NodeClients> {
    let each = config.node.iter().map(|node| Ok((node.name.clone(), client(node)?)));
    each.collect::<io::Result<_>>().map(Arc::new)
}

/// Starts the keepers of all nodes. A keeper ends when nobody has its handle any more.
pub(crate) fn start(
    config: &watch::Sender<Arc<BrokerConfig>>,
    clients: &NodeClients,
    changed: &Arc<Notify>,
) -> WeirNodes {
    let now = Arc::clone(&config.borrow());
    let mut wanted = weir_node::wanted(&now);
    let each = clients.iter().map(|(name, client)| {
        let settings = QueueSettings { check: now.broker.check, changed: Arc::clone(changed) };
        let state = RouterState { name: name.clone(), reachable: false, repaired: 0, fault: None };
        let status = WeirNodeStatus::new(state, Some(Instant::now()));
        let status = Arc::new(Mutex::new(status));
        let keeper = NodeKeeper {
            name: name.clone(),
            client: client.clone(),
            wanted: wanted.remove(name).unwrap_or_default(),
            config: config.subscribe(),
            was_sound: false,
            status: Arc::clone(&status),
        };
        tokio::spawn(keeper.serve(settings));
        (name.clone(), WeirNode { status })
    });
    Arc::new(each.collect())
}

impl WeirNodeStatus {
    pub(crate) const fn new(node: RouterState, unsound_since: Option<Instant>) -> Self {
        Self { node, unsound_since, calls: 0, failed_calls: 0 }
    }
}

impl WeirNode {
    /// Returns the state of the node as its keeper knows it.
    pub(crate) fn status(&self) -> WeirNodeStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The keeper of a node.
struct NodeKeeper {
    name: String,
    client: Client,
    wanted: NodeParts,
    config: watch::Receiver<Arc<BrokerConfig>>,
    /// True if the node had everything when it was last read.
    was_sound: bool,
    status: Arc<Mutex<WeirNodeStatus>>,
}

/// Why a node does not have what it is to have.
#[derive(Debug)]
enum KeepFault {
    /// No exchange with the node.
    Silent(String),
    /// It answers, and refuses or has something else.
    Unsound(String),
}

impl NodeKeeper {
    async fn serve(mut self, QueueSettings { check, changed }: QueueSettings) {
        let mut ticks = tokio::time::interval_at(Instant::now(), check);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = self.config.changed() => self.follow(),
            }
            if Arc::strong_count(&self.status) == 1 {
                return;
            }
            let kept = self.keep().await;
            if self.note(kept) {
                changed.notify_one();
            }
        }
    }

    /// Takes what the node is to have from now on. A difference is then no drift.
    fn follow(&mut self) {
        let config = Arc::clone(&self.config.borrow_and_update());
        self.wanted = weir_node::wanted(&config).remove(&self.name).unwrap_or_default();
        self.was_sound = false;
    }

    /// Compares the node with what is wanted, and repairs it.
    async fn keep(&mut self) -> Result<(), KeepFault> {
        let mut said = None;
        for round in 0..=ROUNDS {
            let ReadNode { parts, ports } = self.read().await?;
            let calls = weir_node::plan(&self.wanted, &parts);
            if calls.is_empty() {
                let fault = weir_node::fault(&self.config.borrow(), &self.name, &ports);
                return fault.map_or(Ok(()), |fault| Err(KeepFault::Unsound(fault)));
            }
            if round == ROUNDS {
                break;
            }
            if std::mem::take(&mut self.was_sound) {
                self.locked(|status| status.node.repaired += 1);
            }
            for call in calls {
                let ask = move |client: &Client| {
                    client.ask::<Value>(call.method, &call.path, call.body.as_ref())
                };
                let answer = self.ask(ask).await;
                self.locked(|status| {
                    status.calls += 1;
                    status.failed_calls += u64::from(answer.is_err());
                });
                match answer {
                    Ok(_) => {}
                    // Another call may still succeed; the node is read again in any case.
                    Err(ClientError::Refused(refusal)) => said = Some(refusal.message),
                    Err(error) => return Err(KeepFault::Silent(error.to_string())),
                }
            }
        }
        let said = said.unwrap_or_else(|| "it has something else after each round".to_owned());
        Err(KeepFault::Unsound(said))
    }

    async fn read(&self) -> Result<ReadNode, KeepFault> {
        let document = self.ask(|client| client.text("/v1/document")).await;
        let document = document.map_err(|error| match error {
            // It answers, but not to the broker: a tenant's token, or none.
            ClientError::Refused(refusal) => KeepFault::Unsound(refusal.message),
            error => KeepFault::Silent(error.to_string()),
        })?;
        weir_node::read(&document).map_err(KeepFault::Unsound)
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Client) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<T, ClientError> {
        on_a_thread(&self.name, &self.client, question).await
    }

    /// Keeps what came of a comparison. Returns true if the node's soundness changed.
    fn note(&mut self, kept: Result<(), KeepFault>) -> bool {
        self.was_sound = kept.is_ok();
        self.locked(|status| {
            let before = (status.unsound_since.is_some(), status.node.fault.clone());
            let (reachable, fault) = match kept {
                Ok(()) => (true, None),
                Err(KeepFault::Unsound(text)) => (true, Some(text)),
                Err(KeepFault::Silent(text)) => (false, Some(text)),
            };
            match fault {
                None => status.unsound_since = None,
                Some(_) => _ = status.unsound_since.get_or_insert_with(Instant::now),
            }
            (status.node.reachable, status.node.fault) = (reachable, fault);
            before != (status.unsound_since.is_some(), status.node.fault.clone())
        })
    }

    fn locked<T>(&self, change: impl FnOnce(&mut WeirNodeStatus) -> T) -> T {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Asks the node of that name on a thread that may wait.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    name: &str,
    client: &Client,
    question: impl FnOnce(&Client) -> Result<T, ClientError> + Send + 'static,
) -> Result<T, ClientError> {
    let client = client.clone();
    let asked = tokio::task::spawn_blocking(move || question(&client)).await;
    asked.unwrap_or_else(|error| {
        let error = io::Error::other(error.to_string());
        Err(ClientError::Io { endpoint: name.to_owned(), error })
    })
}

/// Makes the client of a node; it does not connect yet.
fn client(node: &WeirNodeConfig) -> io::Result<Client> {
    let named = |what: &dyn std::fmt::Display, error: io::Error| {
        io::Error::new(error.kind(), format!("node \"{}\": {what}: {error}", node.name))
    };
    let client = Client::at(&node.api, node.ca.as_deref());
    let client = client.map_err(|error| named(&"api", error))?.with_patience(PATIENCE);
    let Some(file) = &node.token_file else { return Ok(client) };
    let token = fs::read_to_string(file).map_err(|error| named(&file.display(), error))?;
    Ok(client.with_token(token.trim()))
}

/// Rounds of calls. After the last one the node is only read.
const ROUNDS: usize = 3;

/// The longest wait for an answer, as for a router's.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use axum::Router;
    use axum::http::{Method, StatusCode};
    use tokio::net::UnixListener;

    use super::*;
    use crate::store::random_digits;
    use crate::test_config;
    use crate::weir_node::NodePart;

    /// A node that refuses all calls before the last round, and then takes one for all.
    #[derive(Debug, Default)]
    struct LateNode {
        /// Times that its document was read.
        read: usize,
        refused: usize,
        has_all: bool,
    }

    /// Returns a node's document with these parts.
    fn document(parts: &NodeParts) -> String {
        let mut text = "[[port]]\nname = \"p\"\nrate = \"100Mbit\"\n".to_owned();
        for (name, part) in &parts.slices {
            let NodePart::Sound(slice) = part else { continue };
            let vlan = slice.vlan;
            writeln!(text, "[[slice]]\nname = \"{name}\"\nvlan = {vlan}").unwrap();
        }
        for (name, part) in &parts.vifs {
            let NodePart::Sound(vif) = part else { continue };
            let (slice, port, device, share) = (&vif.slice, &vif.port, &vif.device, vif.share);
            let terms = format!("{{ min_rate = \"{share}\" }}");
            write!(
                text,
                "[[vif]]\nname = \"{name}\"\nslice = \"{slice}\"\nport = \"{port}\"\n\
                 device = \"{device}\"\nsend = {terms}\nreceive = {terms}\n"
            )
            .unwrap();
        }
        text
    }

    /// Goal: a node that takes the calls of the last round has everything, and is not reported as
    /// unsound.
    #[tokio::test]
    async fn the_last_round_is_read_back() {
        let config = test_config::parse(&test_config::shared("60Mbit", "30Mbit")).unwrap();
        let wanted = weir_node::wanted(&config).remove("n1").unwrap();
        let (empty, full) = (document(&NodeParts::default()), document(&wanted));
        let node = Arc::new(Mutex::new(LateNode::default()));
        let shared = Arc::clone(&node);
        let answer = move |method: Method| {
            let mut node = shared.lock().unwrap();
            let answer = if method == Method::GET {
                node.read += 1;
                (StatusCode::OK, if node.has_all { full.clone() } else { empty.clone() })
            } else if node.read < ROUNDS {
                node.refused += 1;
                let refusal = r#"{ "code": "conflict", "message": "not yet" }"#;
                (StatusCode::CONFLICT, refusal.to_owned())
            } else {
                node.has_all = true;
                (StatusCode::OK, "null".to_owned())
            };
            std::future::ready(answer)
        };
        let socket = std::env::temp_dir().join(format!("weir-t-late-{}", random_digits()));
        let listener = UnixListener::bind(&socket).unwrap();
        let served = axum::serve(listener, Router::new().fallback(answer)).into_future();
        let served = tokio::spawn(served);
        let state =
            RouterState { name: "n1".to_owned(), reachable: false, repaired: 0, fault: None };
        let mut keeper = NodeKeeper {
            name: "n1".to_owned(),
            client: Client::new(&socket),
            wanted,
            config: watch::channel(Arc::new(config)).1,
            was_sound: false,
            status: Arc::new(Mutex::new(WeirNodeStatus::new(state, None))),
        };
        keeper.keep().await.unwrap();
        let (read, refused) = {
            let node = node.lock().unwrap();
            (node.read, node.refused)
        };
        assert_eq!(read, ROUNDS + 1);
        assert!(refused > 0);
        served.abort();
        fs::remove_file(&socket).unwrap();
    }
}
