// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker of a configuration, until a signal.

use std::sync::{Arc, Mutex};

use russh::keys::load_secret_key;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};

use crate::app::router;
use crate::clock;
use crate::config::{BrokerConfig, NetworkConfig};
use crate::error::BrokerError;
use crate::execution::NodeQueues;
use crate::history::ChangeHistory;
use crate::ids::StableIds;
use crate::item::{LinkItem, NodeItem};
use crate::linux::LinuxDriver;
use crate::node_queue::{NodeQueue, QueueSettings};
use crate::routes::BrokerInterface;
use crate::server::HttpsServer;
use crate::shell::ShellAccess;
use crate::state::BrokerState;
use crate::store::{BrokerStore, RowChange};
use crate::traffic::TrafficReader;
use crate::writer::{Writer, WriterSettings};

/// Runs the broker until SIGTERM or SIGINT. Connections stay as they are on the nodes.
///
/// # Errors
/// [`BrokerError`].
pub fn run(config: &BrokerConfig, say: impl Fn(&str)) -> Result<(), BrokerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, say))
}

async fn serve(config: &BrokerConfig, say: impl Fn(&str)) -> Result<(), BrokerError> {
    let settings = &config.broker;
    let key = load_secret_key(&settings.ssh_key, None)
        .map_err(|error| BrokerError::Key(format!("{}: {error}", settings.ssh_key.display())))?;
    let (stop, stopped) = watch::channel(false);
    // From here on a signal ends the broker in order.
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _gone = stop.send(true);
    });
    let holder = format!("{}/{}", settings.name, std::process::id());
    let mut stopping = stopped.clone();
    let mut store = tokio::select! {
        taken = BrokerStore::take(&settings.store, &holder, settings.lease) => taken?,
        _ = stopping.changed() => return Ok(()),
    };
    let stored = store.read().await?;
    let mut ids = StableIds::new(stored.ids);
    let mut state = BrokerState::new(config, &mut ids, stored.connections, stored.keys)
        .map_err(BrokerError::Configuration)?;
    state.restore_links(stored.links_down);
    state.history = ChangeHistory::new(stored.history);
    state.renew_all(clock::now());
    let added: Vec<_> = ids.take_added().into_iter().map(RowChange::PutId).collect();
    store.commit(&added).await?;
    let access = ShellAccess {
        key: Arc::new(key),
        store: store.identity().to_owned(),
        fence: store.fence(),
    };
    let changed = Arc::new(Notify::new());
    let nodes = start_nodes(config, &state, &access, &changed);
    let server = HttpsServer::bind(settings).await?;
    say(&format!(
        "broker \"{}\": {} connections, {} under way; lease {}; https://{}",
        settings.name,
        state.all().count(),
        state.under_way().len(),
        store.fence(),
        settings.listen
    ));
    let state = Arc::new(Mutex::new(state));
    let (orders, waiting) = mpsc::channel(settings.requests);
    let interface = BrokerInterface {
        state: Arc::clone(&state),
        orders,
        nodes: Arc::clone(&nodes),
        tokens: settings.token.clone(),
        traffic: TrafficReader::new(),
    };
    let serving = tokio::spawn(server.serve(router(Arc::new(interface))));
    let router_patience = settings.router_patience;
    let rearrange = settings.rearrange;
    let preempt = settings.preempt;
    let settings = WriterSettings { router_patience, rearrange, preempt, changed };
    let ended = Writer::serve(state, store, nodes, waiting, stopped, settings).await;
    serving.abort();
    ended
}

/// Starts the queues of all routers, each with what it is to have.
fn start_nodes(
    config: &BrokerConfig,
    state: &BrokerState,
    access: &ShellAccess,
    changed: &Arc<Notify>,
) -> NodeQueues {
    let mut wanted = state.present();
    for network in &config.network {
        for (router, item) in link_items(network) {
            let items = wanted.entry(router.to_owned()).or_default();
            items.extend(item.key().map(|key| (key, item)));
        }
    }
    let routers = config.network.iter().flat_map(|network| &network.router);
    let queues = routers.map(|router| {
        let items = wanted.remove(&router.name).unwrap_or_default();
        let settings = QueueSettings { check: config.broker.check, changed: Arc::clone(changed) };
        let queue = NodeQueue::start(router.clone(), LinuxDriver, access.clone(), items, settings);
        (router.name.clone(), queue)
    });
    Arc::new(queues.collect())
}

/// Returns the classes of a network's links, each with its router.
fn link_items(network: &NetworkConfig) -> impl Iterator<Item = (&str, NodeItem)> {
    let ends = network.link.iter().flat_map(|link| [(link, &link.a), (link, &link.b)]);
    ends.map(|(link, end)| {
        let item = NodeItem::Link(LinkItem {
            device: end.device.clone(),
            rate_bytes: link.rate.as_bps() / 8,
            tunnels_bytes: link.reservable().as_bps() / 8,
            pool: network.outer,
        });
        (end.router.as_str(), item)
    })
}
