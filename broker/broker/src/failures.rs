// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failed parts of the networks: devices without a carrier, routers that do not answer, and links
//! that an administrator has set down.
//!
//! A link has failed if either of its ends says so, in both directions.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::directory::KnownArc;
use crate::node_queue::QueuedNodeStatus;

/// Failed parts, by the names of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailedParts {
    /// Routers that do not answer.
    pub(crate) routers: BTreeSet<String>,
    /// Devices of links without a carrier: router and device.
    pub(crate) devices: BTreeSet<(String, String)>,
    /// Links that an administrator has set down: network and link.
    pub(crate) links: BTreeSet<(String, String)>,
}

impl FailedParts {
    /// Returns what the routers said, as far as it is known. A router has failed if it has been
    /// silent for `patience`; none while one of them was neither read nor has failed.
    pub(crate) fn observed<'s>(
        routers: impl Iterator<Item = (&'s String, QueuedNodeStatus)>,
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
        Some(failed)
    }

    /// Returns true if an administrator has set a link of a network down.
    pub(crate) fn is_set_down(&self, network: &str, link: &str) -> bool {
        self.links.contains(&(network.to_owned(), link.to_owned()))
    }

    /// Returns why a direction of a link of a network cannot be used; none if it can.
    pub(crate) fn fault_of(&self, network: &str, arc: &KnownArc) -> Option<String> {
        if self.is_set_down(network, &arc.link) {
            return Some("set down".to_owned());
        }
        for (router, device) in [(&arc.from, &arc.device), (&arc.to, &arc.far_device)] {
            if self.routers.contains(router) {
                return Some(format!("router \"{router}\" does not answer"));
            }
            if self.devices.contains(&(router.clone(), device.clone())) {
                return Some(format!("device \"{router}:{device}\" has no carrier"));
            }
        }
        None
    }
}
