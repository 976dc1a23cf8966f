// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic of a network's links, from the counters of its routers.
//!
//! However many ask, a router is read once a second at most: the last reading is kept. Networks are
//! read apart: routers of one that answer slowly keep only its own callers waiting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as ShortMutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::Instant;
use weir_broker_api_types::LinkTraffic;

use crate::directory::KnownArc;
use crate::execution::NodeQueues;

/// The last reading of each network.
pub(crate) struct TrafficReader {
    since: Instant,
    kept: ShortMutex<BTreeMap<String, NetworkReading>>,
}

/// The last reading of a network. It is locked while the network's routers are read.
type NetworkReading = Arc<Mutex<Option<KeptReading>>>;

struct KeptReading {
    at: Instant,
    links: Vec<LinkTraffic>,
}

/// One direction of a link, with the device that sends.
pub(crate) struct LinkDevice {
    link: String,
    from: String,
    to: String,
    device: String,
}

impl From<&KnownArc> for LinkDevice {
    fn from(arc: &KnownArc) -> Self {
        let KnownArc { link, from, to, device, .. } = arc;
        let [link, from, to, device] = [link, from, to, device].map(Clone::clone);
        Self { link, from, to, device }
    }
}

impl TrafficReader {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), kept: ShortMutex::default() }
    }

    /// Reads the counters of a network's links. A link whose router does not answer is left out.
    pub(crate) async fn read(
        &self,
        network: &str,
        links: Vec<LinkDevice>,
        nodes: &NodeQueues,
    ) -> Vec<LinkTraffic> {
        // A caller that comes while a reading is under way waits for it, and gets it.
        let kept = self.of(network);
        let mut kept = kept.lock().await;
        if let Some(reading) = kept.as_ref().filter(|of| of.at.elapsed() < KEPT_FOR) {
            return reading.links.clone();
        }
        let each = links.into_iter().map(|link| self.read_link(link, nodes));
        let links: Vec<_> = join_all(each).await.into_iter().flatten().collect();
        *kept = Some(KeptReading { at: Instant::now(), links: links.clone() });
        links
    }

    fn of(&self, network: &str) -> NetworkReading {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(kept.entry(network.to_owned()).or_default())
    }

    async fn read_link(&self, link: LinkDevice, nodes: &NodeQueues) -> Option<LinkTraffic> {
        let LinkDevice { link, from, to, device } = link;
        let node = nodes.get(&from).filter(|node| node.status().router.reachable)?;
        let answer = tokio::time::timeout(PATIENCE, node.counters(device)).await.ok()?.ok()?;
        let root = answer.as_array()?.iter().find(|of| of["root"] == true)?;
        let count = |key: &str| root[key].as_u64().unwrap_or_default();
        Some(LinkTraffic {
            link,
            from,
            to,
            at_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            passed_bytes: count("bytes"),
            passed_packets: count("packets"),
            dropped_packets: count("drops"),
        })
    }
}

const KEPT_FOR: Duration = Duration::from_secs(1);

/// The time for one router's answer.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a network whose routers are being read, however long, keeps no other waiting.
    #[tokio::test]
    async fn networks_are_read_apart() {
        let reader = TrafficReader::new();
        let blue = reader.of("blue");
        let _under_way = blue.lock().await;
        let nodes = NodeQueues::default();
        let read = |network| {
            tokio::time::timeout(Duration::from_millis(50), reader.read(network, vec![], &nodes))
        };
        assert!(read("red").await.unwrap().is_empty());
        read("blue").await.unwrap_err();
    }
}
