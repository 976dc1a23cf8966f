// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker of a configuration, until a signal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::keys::{PrivateKey, load_secret_key};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use weir_units::Instant;

use crate::answer_counts::AnswerCounts;
use crate::app::router;
use crate::callers::KnownCallers;
use crate::clock;
use crate::config::{BrokerConfig, BrokerSettings};
use crate::error::BrokerError;
use crate::history::ChangeHistory;
use crate::ids::StableIds;
use crate::node_starter::NodeStarter;
use crate::orders::{SharedState, WriterOrder};
use crate::record::StoredShare;
use crate::routes::BrokerInterface;
use crate::server::HttpsServer;
use crate::state::BrokerState;
use crate::store::{BrokerStore, RowChange, listen, random_digits};
use crate::traffic::TrafficReader;
use crate::weir_node_keeper;
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
    let key = router_key(settings)?;
    let (stop, mut stopped) = watch::channel(false);
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
    let opening = StoreOpening::new(config)?;
    let (store, state) = tokio::select! {
        opened = opening.open(&say) => opened?,
        _ = stopped.changed() => return Ok(()),
    };
    let (nodes, seen_nodes) = watch::channel(Arc::default());
    let (kept_nodes, seen_kept_nodes) = watch::channel(Arc::default());
    let (policing, seen_policing) = watch::channel(Arc::default());
    let clients = weir_node_keeper::clients(config)?;
    let (changed, committed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    if store.is_shared() {
        let (url, holder) = (opening.url.clone(), opening.holder.clone());
        tokio::spawn(listen(url, holder, Arc::clone(&committed)));
    }
    let server = HttpsServer::bind(settings).await?;
    say(&greeting(config, &store, &state));
    let state = Arc::new(Mutex::new(state));
    let (orders, mut waiting) = mpsc::channel(settings.requests);
    let weak = orders.downgrade();
    let interface = BrokerInterface {
        state: Arc::clone(&state),
        orders,
        nodes: seen_nodes,
        kept_nodes: seen_kept_nodes,
        policing: seen_policing,
        callers: KnownCallers::new(settings),
        traffic: TrafficReader::new(),
        answers: AnswerCounts::default(),
        addresses: server.addresses(),
        is_shared: store.is_shared(),
    };
    let serving = tokio::spawn(server.serve(router(Arc::new(interface))));
    let nodes = NodeStarter {
        config: watch::channel(Arc::new(config.clone())).0,
        key,
        changed: Arc::clone(&changed),
        nodes,
        clients,
        kept_nodes,
        orders: weak,
        policing,
    };
    let settings = WriterSettings {
        router_patience: settings.router_patience,
        rearrange: settings.rearrange,
        preempt: settings.preempt,
        changed,
        committed,
        nodes,
    };
    let session = BrokerSession { opening, state, settings, say: &say };
    let ended = session.serve(store, &mut waiting, &mut stopped).await;
    serving.abort();
    ended
}

/// Reads the key that the routers accept; none if they are simulated.
fn router_key(settings: &BrokerSettings) -> Result<Option<Arc<PrivateKey>>, BrokerError> {
    if settings.simulate {
        return Ok(None);
    }
    let wrong = |error| BrokerError::Key(format!("{}: {error}", settings.ssh_key.display()));
    let key = load_secret_key(&settings.ssh_key, None).map_err(wrong)?;
    Ok(Some(Arc::new(key)))
}

/// Says how a broker begins.
fn greeting(config: &BrokerConfig, store: &BrokerStore, state: &BrokerState) -> String {
    let settings = &config.broker;
    let lease = match store.fence() {
        Some(fence) => format!("lease {fence}"),
        None => "another broker has the lease".to_owned(),
    };
    format!(
        "broker \"{}\": {} connections, {} under way; {lease}; https://{}",
        settings.name,
        state.all().count(),
        state.under_way().len(),
        settings.listen
    )
}

/// A broker with its store, which it opens again after a fault.
pub(crate) struct BrokerSession<'c> {
    pub(crate) opening: StoreOpening<'c>,
    pub(crate) state: SharedState,
    pub(crate) settings: WriterSettings,
    pub(crate) say: &'c dyn Fn(&str),
}

impl BrokerSession<'_> {
    /// Serves orders until `stop`. A broker that alone has its store ends with the first fault.
    pub(crate) async fn serve(
        &self,
        mut store: BrokerStore,
        orders: &mut mpsc::Receiver<WriterOrder>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), BrokerError> {
        let is_shared = store.is_shared();
        loop {
            let (state, settings) = (Arc::clone(&self.state), self.settings.clone());
            let served = Writer::serve(state, store, orders, stop, settings).await;
            let Err(error) = served else { return Ok(()) };
            if !is_shared || !error.may_pass() {
                return Err(error);
            }
            self.settings.nodes.end();
            (self.say)(&format!("{error}; reading the store again"));
            let (opened, state) = tokio::select! {
                opened = self.again() => opened?,
                // The writer may have seen it already.
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            };
            store = opened;
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
            (self.say)("the store is read");
        }
    }

    /// Opens the store as soon as that is possible.
    async fn again(&self) -> Result<(BrokerStore, BrokerState), BrokerError> {
        let mut said = String::new();
        loop {
            tokio::time::sleep(RETRY).await;
            match self.opening.open(self.say).await {
                Err(error) if error.may_pass() => {
                    let text = error.to_string();
                    if text != said {
                        (self.say)(&text);
                        said = text;
                    }
                }
                opened => return opened,
            }
        }
    }
}

/// Address and names that a store is opened with.
pub(crate) struct StoreOpening<'c> {
    config: &'c BrokerConfig,
    /// It may have a password.
    pub(crate) url: String,
    /// Names this broker as the holder of the lease: name, process, and digits of its own.
    pub(crate) holder: String,
}

impl<'c> StoreOpening<'c> {
    pub(crate) fn new(config: &'c BrokerConfig) -> Result<Self, BrokerError> {
        let settings = &config.broker;
        let url = settings.store.url(settings.store_password.as_deref());
        let url = url.map_err(BrokerError::Configuration)?;
        let own = random_digits()?;
        let holder = format!("{}/{}/{own}", settings.name, std::process::id());
        Ok(Self { config, url, holder })
    }

    /// Opens the store and reads it. Takes the lease if it is free; a store that is not shared is
    /// waited for until it is, and `say` is told once by whom.
    pub(crate) async fn open(
        &self,
        say: &dyn Fn(&str),
    ) -> Result<(BrokerStore, BrokerState), BrokerError> {
        let lease = self.config.broker.lease;
        let mut store = BrokerStore::open(&self.url, &self.holder, lease).await?;
        let mut said = false;
        while !store.is_shared() && !store.try_take().await? {
            if !std::mem::replace(&mut said, true) {
                // Long, if the clock was set back since.
                let (holder, left) = store.lease_holder().await?;
                let left = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
                let until = Instant::from_nanos(clock::now().as_nanos().saturating_add(left));
                let (name, rest) = holder.split_once('/').unwrap_or((&holder, ""));
                let process = rest.split('/').next().unwrap_or_default();
                let until = clock::text(until);
                say(&format!(
                    "waiting for the store: broker \"{name}\", process {process}, has its lease \
                     until {until}"
                ));
            }
            tokio::time::sleep(LEASE_POLL).await;
        }
        let mut state = self.read(&mut store).await?;
        // Only now: reading a full store may take longer than the lease is good for.
        if store.is_shared() && store.try_take().await? {
            let news = store.look().await?;
            state.follow(news.changes).map_err(BrokerError::Configuration)?;
        }
        Ok((store, state))
    }

    /// Reads the store, gives numbers to names of the file that have none, and drops shares that
    /// the file overrides.
    async fn read(&self, store: &mut BrokerStore) -> Result<BrokerState, BrokerError> {
        let (mut state, mut added) = self.begin_reading(store, false).await?;
        let changes = !added.is_empty();
        if changes {
            store.end_reading().await?;
            // Numbers are given, and shares dropped, while nobody else can.
            (state, added) = self.begin_reading(store, true).await?;
        }
        let take = |row| state.take_over(row).map_err(BrokerError::Configuration);
        store.read_connections(take).await?;
        match changes {
            true => store.commit(&added).await?,
            false => store.end_reading().await?,
        }
        Ok(state)
    }

    /// Reads all but the connections. Returns the numbers that names of the file are given, too,
    /// and the shares that the file overrides.
    async fn begin_reading(
        &self,
        store: &mut BrokerStore,
        to_change: bool,
    ) -> Result<(BrokerState, Vec<RowChange>), BrokerError> {
        let stored = store.read(to_change).await?;
        let mut ids = StableIds::new(stored.ids);
        let (config, overridden) =
            self.config.with_shares(stored.shares).map_err(BrokerError::Configuration)?;
        let mut state = BrokerState::new(&config, &mut ids, Vec::new(), stored.keys)
            .map_err(BrokerError::Configuration)?;
        state.file_config = Arc::new(self.config.clone());
        state.restore_links(stored.links_down);
        state.observe(stored.observed.failed.clone());
        state.observed = stored.observed;
        state.history = ChangeHistory::new(stored.history);
        let dropped = overridden.into_iter();
        let dropped =
            dropped.map(|StoredShare { network, link, .. }| RowChange::DropShare { network, link });
        let added = ids.take_added().into_iter().map(RowChange::PutId);
        Ok((state, added.chain(dropped).collect()))
    }
}

const LEASE_POLL: Duration = Duration::from_millis(50);

/// The pause before a store that was lost is opened again.
const RETRY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::test_config;

    /// Goal: a broker that waits for its store says once for whom, and until when.
    #[tokio::test]
    async fn who_has_the_store_is_said_once() {
        let file = format!("weir-t-run-{}", random_digits().unwrap());
        let file = std::env::temp_dir().join(file).display().to_string();
        let mut config = test_config::with(&[test_config::TRIANGLE]);
        config.broker.store = file.clone().try_into().unwrap();
        config.broker.lease = Duration::from_secs(600);
        let said = RefCell::new(Vec::new());
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let (first, second) =
            (StoreOpening::new(&config).unwrap(), StoreOpening::new(&config).unwrap());
        let (store, _) = first.open(&say).await.unwrap();
        assert!(said.borrow().is_empty());
        let waiting = async {
            tokio::time::sleep(LEASE_POLL * 4).await;
            store.release().await.unwrap();
        };
        let (opened, ()) = tokio::join!(second.open(&say), waiting);
        opened.unwrap().0.release().await.unwrap();
        let expected = "waiting for the store: broker \"t\", process ";
        let said = said.into_inner();
        assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
        assert!(said[0].contains(" has its lease until 2"), "{said:?}");
        for end in ["", "-wal", "-shm"] {
            let _gone = std::fs::remove_file(format!("{file}{end}"));
        }
    }
}
