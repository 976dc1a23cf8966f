// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keeping of a Weir node. The node's interface makes each call whole or not at all, and the
//! keeper reads back what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_client::{Client, ClientError};

use crate::config::BrokerConfig;
use crate::node_keeper::{KeepFault, KeeperTally, KeptKind};
use crate::physical::NodeAccess;
use crate::weir_node::{self, NodeParts, ReadNode};

/// Clients of all Weir nodes, by name.
pub(crate) type NodeClients = Arc<BTreeMap<String, Client>>;

/// The keeper's part that knows a Weir node.
pub(crate) struct WeirNodeKeeper {
    name: String,
    client: Client,
    wanted: NodeParts,
    config: Option<Arc<BrokerConfig>>,
}

/// Makes the clients of all Weir nodes; they do not connect yet.
///
/// # Errors
/// A file with a token or with authorities cannot be read, or an address has another form.
pub(crate) fn clients(config: &BrokerConfig) -> io::Result<NodeClients> {
    let mut clients = BTreeMap::new();
    for node in &config.node {
        if let Ok(NodeAccess::Interface { api, ca, token_file }) = node.access() {
            clients.insert(node.name.clone(), client(&node.name, (api, ca, token_file))?);
        }
    }
    Ok(Arc::new(clients))
}

/// Returns the clients of a broker that has the lease of this store under this fencing number: no
/// node takes a request of an earlier holder after the first of this one.
pub(crate) fn fenced(clients: &NodeClients, store: &str, fence: u64) -> NodeClients {
    let each = clients.iter();
    let each = each.map(|(name, client)| (name.clone(), client.clone().with_fence(store, fence)));
    Arc::new(each.collect())
}

impl WeirNodeKeeper {
    pub(crate) fn new(name: &str, client: Client) -> Self {
        Self { name: name.to_owned(), client, wanted: NodeParts::default(), config: None }
    }

    /// Returns why the node cannot hold what its physical links are to carry; none if it can.
    fn fault(&self, ReadNode { ports, .. }: &ReadNode) -> Option<String> {
        weir_node::fault(self.config.as_ref()?, &self.name, ports)
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
}

impl KeptKind for WeirNodeKeeper {
    fn follow(&mut self, config: &Arc<BrokerConfig>, parts: NodeParts) {
        (self.wanted, self.config) = (parts, Some(Arc::clone(config)));
    }

    async fn keep(&mut self, tally: &mut KeeperTally) -> Result<(), KeepFault> {
        let mut said = None;
        let mut rounds = 0..ROUNDS;
        let left = loop {
            let read = self.read().await?;
            let calls = weir_node::plan(&self.wanted, &read.parts);
            if calls.is_empty() {
                return self.fault(&read).map_or(Ok(()), |fault| Err(KeepFault::Unsound(fault)));
            }
            if rounds.next().is_none() {
                break read;
            }
            tally.repairs();
            for call in calls {
                let ask = move |client: &Client| {
                    client.ask::<Value>(call.method, &call.path, call.body.as_ref())
                };
                let answer = self.ask(ask).await;
                tally.called(answer.is_ok());
                match answer {
                    Ok(_) => {}
                    // Another call may still succeed; the node is read again in any case.
                    Err(ClientError::Refused(refusal)) => said = Some(refusal.message),
                    Err(error) => return Err(KeepFault::Silent(error.to_string())),
                }
            }
        };
        let said = said.unwrap_or_else(|| "it has something else after each round".to_owned());
        // One network's vif must not take the others off the node.
        let vifs: BTreeSet<String> = self.wanted.lacking(&left.parts).map(str::to_owned).collect();
        match vifs.is_empty() || self.fault(&left).is_some() {
            true => Err(KeepFault::Unsound(said)),
            false => Err(KeepFault::InPart { said, vifs }),
        }
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
fn client(
    name: &str,
    (api, ca, token_file): (&str, Option<&Path>, Option<&Path>),
) -> io::Result<Client> {
    let named = |what: &dyn std::fmt::Display, error: io::Error| {
        io::Error::new(error.kind(), format!("node \"{name}\": {what}: {error}"))
    };
    let client = Client::at(api, ca);
    let client = client.map_err(|error| named(&"api", error))?.with_patience(PATIENCE);
    let Some(file) = token_file else { return Ok(client) };
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
    use std::sync::Mutex;

    use axum::Router;
    use axum::http::{Method, StatusCode};
    use tokio::net::UnixListener;

    use weir_broker_api_types::RouterState;

    use super::*;
    use crate::node_keeper::KeptNodeStatus;
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
        let wanted = weir_node::wanted(&config, "n1");
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
        kept(config, wanted, Router::new().fallback(answer)).await.unwrap();
        let (read, refused) = {
            let node = node.lock().unwrap();
            (node.read, node.refused)
        };
        assert_eq!(read, ROUNDS + 1);
        assert!(refused > 0);
    }

    /// Goal: a vif that the node refuses is lacking alone; one more port than it has is the node's
    /// own fault.
    #[tokio::test]
    async fn a_refused_vif_is_the_fault_of_its_link_alone() {
        let config = test_config::parse(&test_config::shared("60Mbit", "30Mbit")).unwrap();
        let wanted = weir_node::wanted(&config, "n1");
        let mut has = wanted.clone();
        let (refused, _) = has.vifs.pop_first().unwrap();
        for (port, is_part) in [("p", true), ("q", false)] {
            let document = document(&has).replace("name = \"p\"", &format!("name = \"{port}\""));
            let answer = move |method: Method| {
                let refusal = r#"{ "code": "refused", "message": "its device is taken" }"#;
                std::future::ready(match method == Method::GET {
                    true => (StatusCode::OK, document.clone()),
                    false => (StatusCode::UNPROCESSABLE_ENTITY, refusal.to_owned()),
                })
            };
            let router = Router::new().fallback(answer);
            match kept(config.clone(), wanted.clone(), router).await.unwrap_err() {
                KeepFault::InPart { said, vifs } => {
                    assert!(is_part && said == "its device is taken", "{said}");
                    assert_eq!(vifs, BTreeSet::from([refused.clone()]));
                }
                other => assert!(!is_part, "{other:?}"),
            }
        }
    }

    /// Has a keeper keep a node that answers so.
    async fn kept(
        config: BrokerConfig,
        wanted: NodeParts,
        answers: Router,
    ) -> Result<(), KeepFault> {
        let socket = std::env::temp_dir().join(format!("weir-t-kept-{}", random_digits().unwrap()));
        let listener = UnixListener::bind(&socket).unwrap();
        let served = tokio::spawn(axum::serve(listener, answers).into_future());
        let state =
            RouterState { name: "n1".to_owned(), reachable: false, repaired: 0, fault: None };
        let mut keeper = WeirNodeKeeper::new("n1", Client::new(&socket));
        keeper.follow(&Arc::new(config), wanted);
        let mut tally = KeeperTally::of(KeptNodeStatus::new(state, None));
        let kept = keeper.keep(&mut tally).await;
        served.abort();
        fs::remove_file(&socket).unwrap();
        kept
    }
}
