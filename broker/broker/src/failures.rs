// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failed parts of the networks: devices without a carrier, routers that do not answer, nodes
//! that do not have what they are to have, and links that an administrator has set down.
//!
//! A link has failed if either of its ends says so, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::directory::KnownArc;
use crate::node_keeper::KeptNodeStatus;
use crate::node_queue::QueuedNodeStatus;
use crate::weir_node::vif_name;

/// Failed parts, by the names of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailedParts {
    /// Routers that do not answer.
    pub(crate) routers: BTreeSet<String>,
    /// Nodes that do not answer or do not have what they are to have, and why.
    #[serde(default)]
    pub(crate) nodes: BTreeMap<String, String>,
    /// Vifs that nodes lack or have otherwise, by their names there, and the node.
    #[serde(default)]
    pub(crate) vifs: BTreeMap<String, String>,
    /// Devices of links without a carrier: router and device.
    pub(crate) devices: BTreeSet<(String, String)>,
    /// Links that an administrator has set down: network and link.
    pub(crate) links: BTreeSet<(String, String)>,
}

impl FailedParts {
    /// Returns what the routers and nodes said, as far as it is known. One of them has failed if it
    /// has been silent for `patience`; none while one was neither read nor has failed.
    pub(crate) fn observed<'s>(
        routers: impl Iterator<Item = (&'s String, QueuedNodeStatus)>,
        nodes: impl Iterator<Item = (&'s String, KeptNodeStatus)>,
        patience: Duration,
        now: Instant,
    ) -> Option<Self> {
        let mut failed = Self::default();
        for (name, status) in routers {
            let silent = status.silent_since.map(|since| now.saturating_duration_since(since));
            if silent.is_some_and(|silent| silent >= patience) {
                failed.routers.insert(name.clone());
                continue;
            }
            let devices = status.devices_down?;
            failed.devices.extend(devices.into_iter().map(|device| (name.clone(), device)));
        }
        for (name, status) in nodes {
            for (vif, since) in status.lacks {
                if now.saturating_duration_since(since) >= patience {
                    failed.vifs.insert(vif, name.clone());
                }
            }
            let Some(since) = status.unsound_since else { continue };
            // Without a fault nothing is known of it yet.
            let fault = status.node.fault?;
            if now.saturating_duration_since(since) >= patience {
                let what = if status.node.reachable { fault } else { SILENT.to_owned() };
                failed.nodes.insert(name.clone(), what);
            }
        }
        Some(failed)
    }

    /// Returns true if an administrator has set a link of a network down.
    pub(crate) fn is_set_down(&self, network: &str, link: &str) -> bool {
        !self.links.is_empty() && self.links.contains(&(network.to_owned(), link.to_owned()))
    }

    /// Returns why a direction of a link of a network cannot be used; none if it can.
    pub(crate) fn fault_of(&self, network: &str, arc: &KnownArc) -> Option<String> {
        self.fault_in(network, arc, |what| what)
    }

    /// Returns the same for who sees that network alone: nothing of the node's other networks.
    pub(crate) fn own_fault_of(&self, network: &str, arc: &KnownArc) -> Option<String> {
        self.fault_in(network, arc, |what| in_brief(what == SILENT))
    }

    fn fault_in(
        &self,
        network: &str,
        arc: &KnownArc,
        words: impl for<'w> Fn(&'w str) -> &'w str,
    ) -> Option<String> {
        if self.is_set_down(network, &arc.link) {
            return Some("set down".to_owned());
        }
        // A node before the routers that are its guests: it is the cause.
        for name in &arc.nodes {
            let Some(what) = self.nodes.get(name) else { continue };
            let separator = if what == SILENT { " " } else { ": " };
            return Some(format!("node \"{name}\"{separator}{}", words(what)));
        }
        for (router, device) in [(&arc.from, &arc.device), (&arc.to, &arc.far_device)] {
            if self.routers.contains(router) {
                return Some(format!("router \"{router}\" {SILENT}"));
            }
            if !self.vifs.is_empty()
                && let Some(node) = self.vifs.get(&vif_name(router, device))
            {
                return Some(format!("node \"{node}\" does not have \"{router}:{device}\""));
            }
            // Without failures nothing is copied: every link is asked for at once.
            let any = !self.devices.is_empty();
            if any && self.devices.contains(&(router.clone(), device.clone())) {
                return Some(format!("device \"{router}:{device}\" has no carrier"));
            }
        }
        None
    }
}

/// Returns what is wrong with a node, without the parts that other networks have of it.
pub(crate) const fn in_brief(is_silent: bool) -> &'static str {
    if is_silent { SILENT } else { "a part of it is not as it is to be" }
}

const SILENT: &str = "does not answer";

#[cfg(test)]
mod tests {
    use weir_broker_api_types::RouterState;

    use super::*;
    use crate::ids::StableIds;
    use crate::state::BrokerState;
    use crate::test_config;

    /// Goal: a node that is silent, or lacks what it is to have, fails after `patience`, and the
    /// links that it carries say why; nothing is said before it was read.
    #[test]
    fn a_node_fails_after_the_patience_and_its_links_say_why() {
        let (patience, since) = (Duration::from_secs(5), Instant::now());
        let observed = |reachable, fault: Option<&str>, is_sound: bool, after| {
            let fault = fault.map(str::to_owned);
            let node = RouterState { name: "n1".to_owned(), reachable, repaired: 0, fault };
            let unsound_since = (!is_sound).then_some(since);
            let (name, status) = ("n1".to_owned(), KeptNodeStatus::new(node, unsound_since));
            let nodes = [(&name, status)].into_iter();
            FailedParts::observed(std::iter::empty(), nodes, patience, since + after)
        };
        assert!(observed(false, None, false, patience).is_none(), "it was not read yet");
        assert_eq!(observed(true, None, true, patience), Some(FailedParts::default()));
        let early = observed(false, Some("no route"), false, patience / 2);
        assert_eq!(early, Some(FailedParts::default()));
        let config = test_config::parse(&test_config::shared("60Mbit", "30Mbit")).unwrap();
        let state =
            BrokerState::new(&config, &mut StableIds::default(), Vec::new(), Vec::new()).unwrap();
        // A vif that the node lacks is a fault of its own link only.
        let (_, network, lacking) = state.directory.all_arcs().next().unwrap();
        let node = RouterState { name: "n1".to_owned(), reachable: true, repaired: 0, fault: None };
        let mut status = KeptNodeStatus::new(node, None);
        status.lacks.insert(vif_name(&lacking.from, &lacking.device), since);
        let name = "n1".to_owned();
        let nodes = [(&name, status)].into_iter();
        let failed =
            FailedParts::observed(std::iter::empty(), nodes, patience, since + patience).unwrap();
        for (_, of, arc) in state.directory.all_arcs() {
            let is_its = (of, &arc.link) == (network, &lacking.link);
            assert_eq!(failed.fault_of(of, arc).is_some(), is_its, "{of} {}", arc.link);
        }
        for (reachable, why) in
            [(false, "node \"n1\" does not answer"), (true, "node \"n1\": it has no port \"p\"")]
        {
            let failed =
                observed(reachable, Some("it has no port \"p\""), false, patience).unwrap();
            let faults = state.directory.all_arcs().map(|(_, of, arc)| failed.fault_of(of, arc));
            assert_eq!(faults.collect::<Vec<_>>(), vec![Some(why.to_owned()); 4]);
            let why = why.replace("it has no port \"p\"", "a part of it is not as it is to be");
            let arcs = state.directory.all_arcs();
            let faults = arcs.map(|(_, of, arc)| failed.own_fault_of(of, arc));
            assert_eq!(faults.collect::<Vec<_>>(), vec![Some(why); 4]);
        }
    }
}
