// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues of all routers and the keepers of all nodes, as a broker starts them that has
//! taken the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use russh::keys::PrivateKey;
use tokio::sync::{Notify, mpsc, watch};
use weir_broker_api_types::PolicingReport;
use weir_network::NodeId;

use crate::config::{BrokerConfig, BrokerLink, NetworkConfig, OspfConfig};
use crate::edge_guard;
use crate::execution::NodeQueues;
use crate::item::{ItemEdit, LinkItem, NodeItem};
use crate::kept_nodes::{self, KeptNodes};
use crate::linux::LinuxDriver;
use crate::node_queue::{NodeQueue, QueueSettings, RouterWants};
use crate::orders::WriterOrder;
use crate::ospf6::{self, RouterOspf};
use crate::policing::{self, PolicingHandle};
use crate::repair_log::{NoteTaker, RepairLog};
use crate::shell::ShellAccess;
use crate::state::BrokerState;
use crate::weir_node_keeper::{NodeClients, fenced};

/// Configuration and keys that queues of routers are started with.
#[derive(Clone)]
pub(crate) struct NodeStarter {
    /// The configuration in force, which the keepers of Weir nodes follow.
    pub(crate) config: watch::Sender<Arc<BrokerConfig>>,
    /// Key that the routers accept; none if they are simulated.
    pub(crate) key: Option<Arc<PrivateKey>>,
    /// Tells of each change at routers.
    pub(crate) changed: Arc<Notify>,
    /// Shows the queues to the interface.
    pub(crate) nodes: watch::Sender<NodeQueues>,
    /// Clients of the Weir nodes.
    pub(crate) clients: NodeClients,
    /// Shows their keepers to the interface.
    pub(crate) kept_nodes: watch::Sender<KeptNodes>,
    /// Takes to the writer what is for the history: of policing, and repairs.
    pub(crate) orders: mpsc::WeakSender<WriterOrder>,
    /// Shows the report of policing to the interface.
    pub(crate) policing: watch::Sender<Arc<PolicingReport>>,
}

impl NodeStarter {
    /// Makes a starter of simulated routers, of which nobody is shown anything.
    #[cfg(test)]
    pub(crate) fn simulated(config: &BrokerConfig, changed: &Arc<Notify>) -> Self {
        Self {
            config: watch::channel(Arc::new(config.clone())).0,
            key: None,
            changed: Arc::clone(changed),
            nodes: watch::channel(Arc::default()).0,
            clients: Arc::default(),
            kept_nodes: watch::channel(Arc::default()).0,
            orders: mpsc::channel(1).0.downgrade(),
            policing: watch::channel(Arc::default()).0,
        }
    }

    /// Starts the queues of all routers, each with what it is to have, under a fencing number of a
    /// store, and the keepers of all nodes.
    pub(crate) fn start(
        &self,
        state: &BrokerState,
        store: &str,
        fence: u64,
    ) -> (NodeQueues, KeptNodes) {
        let config = &state.config;
        // A simulated router keeps nothing.
        let mut wanted = self.key.as_ref().map_or_else(BTreeMap::new, |_| state.present());
        for network in &config.network {
            let links = network.link.iter().flat_map(|link| link_items(network, link));
            for (router, item) in links.chain(edge_guard::guards(network)) {
                let items = wanted.entry(router.to_owned()).or_default();
                items.extend(item.key().map(|key| (key, item)));
            }
        }
        let ids: BTreeMap<&str, NodeId> =
            state.directory.routers().map(|(id, name)| (name, id)).collect();
        let mut ospf: BTreeMap<&str, RouterOspf> =
            config.network.iter().flat_map(|network| ospf_of(network, &ids)).collect();
        let access = self.key.as_ref().map(|key| {
            let (key, store) = (Arc::clone(key), store.to_owned());
            ShellAccess { key, store, fence, patience: config.broker.router_patience }
        });
        let routers = config
            .network
            .iter()
            .flat_map(|network| network.router.iter().map(move |router| (network, router)));
        let queues = routers.map(|(network, router)| {
            let items = wanted.remove(&router.name).unwrap_or_default();
            let wants = RouterWants { items, ospf: ospf.remove(router.name.as_str()) };
            let queue = match access.clone() {
                None => NodeQueue::simulate(&router.name),
                Some(access) => {
                    let (check, changed) = (config.broker.check, Arc::clone(&self.changed));
                    let settings = QueueSettings { check, changed };
                    let driver = LinuxDriver {
                        encapsulation: router.encapsulation,
                        tunnel_source: network.tunnel_source(&router.name),
                    };
                    let repairs = RepairLog::new(&network.name, &router.name, self.note_taker());
                    NodeQueue::start(router.server(), driver, access, wants, settings, repairs)
                }
            };
            (router.name.clone(), queue)
        });
        let queues: NodeQueues = Arc::new(queues.collect());
        let clients = fenced(&self.clients, store, fence);
        self.nodes.send_replace(Arc::clone(&queues));
        self.config.send_replace(Arc::clone(config));
        let kept_nodes = kept_nodes::start(&self.config, &clients, access.as_ref(), &self.changed);
        self.kept_nodes.send_replace(Arc::clone(&kept_nodes));
        (queues, kept_nodes)
    }

    /// Returns a taker of notes for the history, which are the writer's.
    fn note_taker(&self) -> NoteTaker {
        let orders = self.orders.clone();
        Box::new(move |subject, note| {
            let Some(orders) = orders.upgrade() else { return false };
            let Ok(place) = orders.try_reserve() else { return false };
            place.send(WriterOrder::Note { notes: vec![(subject.clone(), note)] });
            true
        })
    }

    /// Starts the policing of networks under a fencing number of a store; none if no network has an
    /// agreement.
    pub(crate) fn police(
        &self,
        config: &BrokerConfig,
        store: &str,
        fence: u64,
    ) -> Option<PolicingHandle> {
        let (clients, orders) = (fenced(&self.clients, store, fence), self.orders.clone());
        policing::start(config, &clients, orders, self.policing.clone())
    }

    /// Has nodes and routers take changed shares of these links, network and link. Those that do
    /// not answer take them as soon as they do.
    pub(crate) fn put_shares(
        &self,
        config: Arc<BrokerConfig>,
        links: &BTreeSet<(String, String)>,
        queues: &NodeQueues,
    ) {
        for (network, link) in links {
            let network = config.network.iter().find(|of| of.name == *network);
            let link = network.and_then(|of| of.link.iter().find(|own| own.name == *link));
            let items = network.zip(link).map(|(network, link)| link_items(network, link));
            for (router, item) in items.into_iter().flatten() {
                let (Some(queue), Some(key)) = (queues.get(router).cloned(), item.key()) else {
                    continue;
                };
                // A fault is in the router's status, and the item stays wanted.
                let changes = vec![(key, ItemEdit::Put(item))];
                tokio::spawn(async move { queue.change(changes).await.is_ok() });
            }
        }
        self.config.send_replace(config);
    }

    /// Takes queues and keepers from the interface: another broker configures routers and nodes.
    pub(crate) fn end(&self) {
        self.nodes.send_replace(NodeQueues::default());
        self.kept_nodes.send_replace(KeptNodes::default());
        self.policing.send_replace(Arc::default());
    }
}

/// Returns OSPFv3 of each router of a network, by its name; of none if the network has none.
fn ospf_of<'c>(
    network: &'c NetworkConfig,
    ids: &BTreeMap<&str, NodeId>,
) -> BTreeMap<&'c str, RouterOspf> {
    let Some(OspfConfig { hello, dead }) = &network.ospf6 else { return BTreeMap::new() };
    let seconds = |time: &Duration| u16::try_from(time.as_secs()).unwrap_or(u16::MAX);
    let each = network.router.iter().filter_map(|router| {
        let name = router.name.as_str();
        let ospf = RouterOspf {
            router_id: ospf6::router_id(ids.get(name)?.0),
            frr: router.frr.clone(),
            hello_s: seconds(hello),
            dead_s: seconds(dead),
            interfaces: BTreeMap::new(),
        };
        Some((name, ospf))
    });
    let mut routers: BTreeMap<&str, RouterOspf> = each.collect();
    let mut put = |router: &str, device: &String, cost| {
        let own = routers.get_mut(router).map(|ospf| &mut ospf.interfaces);
        own.into_iter().for_each(|own| _ = own.insert(device.clone(), cost));
    };
    for host in &network.host {
        put(&host.router, &host.device, None);
    }
    for link in &network.link {
        let cost = link.cost.clamp(1, OspfConfig::COST_MAX);
        [&link.a, &link.b].into_iter().for_each(|end| put(&end.router, &end.device, Some(cost)));
    }
    routers
}

/// Returns the classes of a network's link at either end, each with its router.
fn link_items<'c>(network: &NetworkConfig, link: &'c BrokerLink) -> [(&'c str, NodeItem); 2] {
    [(&link.a, &link.b), (&link.b, &link.a)].map(|(end, far)| {
        let item = NodeItem::Link(LinkItem {
            device: end.device.clone(),
            rate_bytes: link.rate.as_bps() / 8,
            tunnels_bytes: link.reservable().as_bps() / 8,
            pool: network.outer,
            neighbour: far.address,
        });
        (end.router.as_str(), item)
    })
}
