// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keepers of all nodes that carry networks.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use crate::config::BrokerConfig;
use crate::linux_host_keeper::LinuxHostKeeper;
use crate::node_keeper::{KeptNode, spawn};
use crate::node_queue::QueueSettings;
use crate::physical::NodeAccess;
use crate::shell::ShellAccess;
use crate::weir_node_keeper::{NodeClients, WeirNodeKeeper};

/// The keepers of all nodes, by name.
pub(crate) type KeptNodes = Arc<BTreeMap<String, KeptNode>>;

/// Starts the keepers of all nodes, those of Linux hosts if there is access to shells.
pub(crate) fn start(
    config: &watch::Sender<Arc<BrokerConfig>>,
    clients: &NodeClients,
    access: Option<&ShellAccess>,
    changed: &Arc<Notify>,
) -> KeptNodes {
    let now = Arc::clone(&config.borrow());
    let mut nodes = BTreeMap::new();
    for node in &now.node {
        let name = &node.name;
        let settings = QueueSettings { check: now.broker.check, changed: Arc::clone(changed) };
        let subscription = config.subscribe();
        let kept = match (node.access(), clients.get(name), access) {
            (Ok(NodeAccess::Interface { .. }), Some(client), _) => {
                let kind = WeirNodeKeeper::new(name, client.clone());
                spawn(name, kind, subscription, settings)
            }
            (Ok(NodeAccess::Shell(server)), _, Some(access)) => {
                let kind = LinuxHostKeeper::new(server, access.clone());
                spawn(name, kind, subscription, settings)
            }
            // A simulated host keeps nothing; the configuration was checked.
            _ => continue,
        };
        nodes.insert(name.clone(), kept);
    }
    Arc::new(nodes)
}
