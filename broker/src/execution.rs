// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Execution of a plan's steps: one after the other, the routers of a step at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::item::ItemChange;
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
            node.change(changes).await
        });
        try_join_all(each).await?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
    Ok(())
}
