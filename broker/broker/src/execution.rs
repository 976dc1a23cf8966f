// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Execution of a plan's steps: one after the other, the routers of a step at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use crate::item::{ItemChange, ItemEdit, is_route};
use crate::node_queue::{NodeFault, NodeQueue, QueuedNodeStatus};

/// The queues of all routers, by name.
pub(crate) type NodeQueues = Arc<BTreeMap<String, NodeQueue>>;

/// Changes of several routers that may be made at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodePhase {
    pub(crate) changes: BTreeMap<String, Vec<ItemChange>>,
    /// A pause after it, in which packets under way leave.
    pub(crate) wait: Duration,
}

/// Makes the changes and reads them back. After an error some may be made, others not. A router
/// that has not answered for `patience` has failed.
pub(crate) async fn execute(
    nodes: &NodeQueues,
    phases: Vec<NodePhase>,
    patience: Duration,
) -> Result<(), NodeFault> {
    for NodePhase { changes, wait } in phases {
        let each = changes.into_iter().map(|(name, changes)| async move {
            let Some(node) = nodes.get(&name) else {
                let what = "it is no longer configured".to_owned();
                return Err(NodeFault::Unreachable(name, what));
            };
            let only_routes = removes_only_routes(&changes);
            if is_left_to_queue(&changes, &node.status(), patience) {
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

/// Returns true if nobody waits until a router has made these changes: it loses what it is to lose
/// as soon as it answers. Routes without an entry carry nothing. An entry may still send, so that
/// is waited for, but no longer than until its router has failed.
fn is_left_to_queue(changes: &[ItemChange], status: &QueuedNodeStatus, patience: Duration) -> bool {
    let only_removes = changes.iter().all(|(_, edit)| !matches!(edit, ItemEdit::Put(_)));
    let has_failed = status.silent_since.is_some_and(|since| since.elapsed() >= patience);
    let is_left = removes_only_routes(changes) || (only_removes && has_failed);
    is_left && !status.router.reachable
}

fn removes_only_routes(changes: &[ItemChange]) -> bool {
    changes.iter().all(|(key, edit)| *edit == ItemEdit::Remove && is_route(key))
}

/// Hands the removals of all phases to their routers at once: when it returns, each router has them
/// before whatever it is asked later, and none waits for another that is silent. The future ends
/// when all routers have made them or have failed; a silent one makes them as soon as it answers.
pub(crate) fn withdraw(
    nodes: &NodeQueues,
    phases: Vec<NodePhase>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut all: BTreeMap<String, Vec<ItemChange>> = BTreeMap::new();
    for (name, changes) in phases.into_iter().flat_map(|phase| phase.changes) {
        all.entry(name).or_default().extend(changes);
    }
    let posted =
        all.into_iter().filter_map(|(name, changes)| Some(nodes.get(&name)?.post(changes)));
    let posted: Vec<_> = posted.collect();
    async move {
        // A fault is in the router's status.
        join_all(posted).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use weir_broker_api_types::RouterState;

    use super::*;
    use crate::item::{ExitItem, NodeItem, entry_key, outer_key};

    /// Goal: a removal does not wait for a router that has failed, even if its entry is there; what
    /// a router is to get is waited for.
    #[test]
    fn a_removal_does_not_wait_for_a_router_that_failed() {
        let outer = "fd0f::1".parse().unwrap();
        let route = vec![(outer_key(outer), ItemEdit::Remove)];
        let both = vec![route[0].clone(), (entry_key(1), ItemEdit::Remove)];
        let exit = NodeItem::Exit(ExitItem { outer, device: None });
        let put = vec![(outer_key(outer), ItemEdit::Put(exit))];
        let status = |reachable, silent_since| QueuedNodeStatus {
            router: RouterState { name: "a".to_owned(), reachable, repaired: 0, fault: None },
            devices_down: None,
            silent_since,
            changes: 0,
            failed_changes: 0,
        };
        let silent = status(false, Some(Instant::now()));
        let is_left = |changes: &[_], status: &_, seconds| {
            is_left_to_queue(changes, status, Duration::from_secs(seconds))
        };
        for (changes, at_once, later) in
            [(&route, true, true), (&both, false, true), (&put, false, false)]
        {
            assert_eq!(is_left(changes, &silent, 60), at_once);
            assert_eq!(is_left(changes, &silent, 0), later);
            // One that answers, and one that was not asked yet.
            assert!(!is_left(changes, &status(true, None), 0));
            assert_eq!(is_left(changes, &status(false, None), 0), at_once);
        }
    }
}
