// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Execution of a plan's steps: one after the other, the routers of a step at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use crate::item::{ItemChange, is_route};
use crate::node_queue::{NodeFault, NodeQueue};

/// The queues of all routers, by name.
pub(crate) type NodeQueues = Arc<BTreeMap<String, NodeQueue>>;

/// Changes of several routers that may be made at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodePhase {
    pub(crate) changes: BTreeMap<String, Vec<ItemChange>>,
    /// A pause after it, in which packets under way leave.
    pub(crate) wait: Duration,
}

/// Makes the changes and reads them back. After an error some may be made, others not.
pub(crate) async fn execute(nodes: &NodeQueues, phases: Vec<NodePhase>) -> Result<(), NodeFault> {
    for NodePhase { changes, wait } in phases {
        let each = changes.into_iter().map(|(name, changes)| async move {
            let Some(node) = nodes.get(&name) else {
                let what = "it is no longer configured".to_owned();
                return Err(NodeFault::Unreachable(name, what));
            };
            // Routes without an entry carry nothing. A router that does not answer loses them as
            // soon as it does, so nobody waits for that.
            let only_routes = changes.iter().all(|(key, item)| item.is_none() && is_route(key));
            if only_routes && !node.status().router.reachable {
                let node = node.clone();
                tokio::spawn(async move { node.change(changes).await });
                return Ok(());
            }
            match node.change(changes).await {
                Err(NodeFault::Unreachable(..)) if only_routes => Ok(()),
                outcome => outcome,
            }
        });
        try_join_all(each).await?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
    Ok(())
}

/// Makes the changes where routers answer. Others make them as soon as they do.
pub(crate) async fn withdraw(nodes: &NodeQueues, phases: Vec<NodePhase>) {
    for NodePhase { changes, .. } in phases {
        let each = changes.into_iter().filter_map(|(name, changes)| {
            let node = nodes.get(&name)?;
            // A fault is in the router's status.
            Some(async move { node.change(changes).await.is_ok() })
        });
        join_all(each).await;
    }
}
