// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic of a network's links, from the counters of its routers.
//!
//! However many ask, a router is read once a second at most: the last reading is kept.

use std::collections::BTreeMap;
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
    kept: Mutex<BTreeMap<String, KeptReading>>,
}

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
        Self { since: Instant::now(), kept: Mutex::default() }
    }

    /// Reads the counters of a network's links. A link whose router does not answer is left out.
    pub(crate) async fn read(
        &self,
        network: &str,
        links: Vec<LinkDevice>,
        nodes: &NodeQueues,
    ) -> Vec<LinkTraffic> {
        // A caller that comes while a reading is under way waits for it, and gets it.
        let mut kept = self.kept.lock().await;
        if let Some(reading) = kept.get(network).filter(|of| of.at.elapsed() < KEPT_FOR) {
            return reading.links.clone();
        }
        let each = links.into_iter().map(|link| self.read_link(link, nodes));
        let links: Vec<_> = join_all(each).await.into_iter().flatten().collect();
        let reading = KeptReading { at: Instant::now(), links: links.clone() };
        kept.insert(network.to_owned(), reading);
        links
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
