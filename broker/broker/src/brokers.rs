// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several brokers on one PostgreSQL, each a thread with simulated routers, while one is killed and
//! the database restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{ConnectOptions, Row};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use weir_broker_api_types::{ConnectionChange, RequestedConnection};
use weir_network::{ConnectionId, FlowDirection, RecoveryAction, recovery};

use crate::config::BrokerConfig;
use crate::ids::StableIds;
use crate::node_starter::NodeStarter;
use crate::orders::{OrderAnswer, SharedState, WaitingCaller, WriterOrder};
use crate::postgres::PostgresCluster;
use crate::record::StoredConnection;
use crate::run::{BrokerSession, StoreOpening};
use crate::state::BrokerState;
use crate::store::listen;
use crate::test_config;
use crate::writer::WriterSettings;

/// A broker in a thread of its own.
struct BrokerThread {
    orders: mpsc::Sender<WriterOrder>,
    state: SharedState,
    /// Ends it as a signal does; dropped, it ends as a killed one does.
    stop: Option<watch::Sender<bool>>,
    killed: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl BrokerThread {
    fn start(config: &BrokerConfig) -> Self {
        let ids = &mut StableIds::default();
        let state = BrokerState::new(config, ids, Vec::new(), Vec::new()).unwrap();
        let state = Arc::new(Mutex::new(state));
        let (orders, waiting) = mpsc::channel(64);
        let (stop, stopped) = watch::channel(false);
        let (killed, kill) = oneshot::channel();
        let (config, shared) = (config.clone(), Arc::clone(&state));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    () = serve(&config, shared, waiting, stopped, ready) => {}
                    _ = kill => {}
                }
            });
        });
        is_ready.recv().unwrap();
        Self { orders, state, stop: Some(stop), killed: Some(killed), thread: Some(thread) }
    }

    fn kill(&mut self) {
        let _ended = self.killed.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
    }

    fn leads(&self) -> bool {
        self.state.lock().unwrap().configured_by.is_none()
    }
}

impl Drop for BrokerThread {
    fn drop(&mut self) {
        if let (Some(stop), Some(thread)) = (self.stop.take(), self.thread.take()) {
            let _gone = stop.send(true);
            thread.join().unwrap();
        }
    }
}

async fn serve(
    config: &BrokerConfig,
    state: SharedState,
    mut waiting: mpsc::Receiver<WriterOrder>,
    mut stopped: watch::Receiver<bool>,
    ready: std::sync::mpsc::Sender<()>,
) {
    let opening = StoreOpening::new(config).unwrap();
    let (store, read) = opening.open(&|line| println!("{line}")).await.unwrap();
    *state.lock().unwrap() = read;
    let (changed, committed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (url, holder) = (opening.url.clone(), opening.holder.clone());
    tokio::spawn(listen(url, holder, Arc::clone(&committed)));
    let nodes = NodeStarter::simulated(config, &changed);
    let settings = WriterSettings {
        router_patience: Duration::from_secs(5),
        rearrange: 2,
        preempt: true,
        changed,
        committed,
        nodes,
    };
    ready.send(()).unwrap();
    let session = BrokerSession { opening, state, settings, say: &|line| println!("{line}") };
    session.serve(store, &mut waiting, &mut stopped).await.unwrap();
}

/// Asks a broker; none if it was killed or lost its store meanwhile.
fn ask(
    orders: &mpsc::Sender<WriterOrder>,
    order: impl FnOnce(WaitingCaller) -> WriterOrder,
) -> Option<OrderAnswer> {
    let (answer, answered) = oneshot::channel();
    let waiting = WaitingCaller { since: Instant::now(), by: "t".to_owned(), answer };
    orders.blocking_send(order(waiting)).ok()?;
    answered.blocking_recv().ok()
}

fn request(port: u16, draw: u64) -> RequestedConnection {
    let text = r#"{ "network": "n", "from": "x", "to": "y", "rate": "1Mbit", "protocol": "udp" }"#;
    let mut request: RequestedConnection = serde_json::from_str(text).unwrap();
    request.rate = format!("{}kbit", 500 + draw % 15_000);
    request.back_rate = draw.is_multiple_of(3).then(|| "1Mbit".to_owned());
    request.to_port = Some(port);
    request.priority = u8::try_from(draw % 3).unwrap();
    request
}

/// Connections as a caller knows them.
#[derive(Default)]
struct CallerNotes {
    /// Confirmed, and not removed since.
    kept: BTreeSet<ConnectionId>,
    /// Made, changed or removed without an answer.
    unanswered: u64,
    admitted: u64,
    refused: u64,
}

/// Makes, changes and removes connections at a broker until it is gone or `requests` were asked.
fn call(orders: &mpsc::Sender<WriterOrder>, requests: u16, caller: u16) -> CallerNotes {
    let mut notes = CallerNotes::default();
    let mut draw = 0x9e37_79b9_7f4a_7c15 ^ u64::from(caller);
    for number in 0..requests {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = draw >> 33;
        let any = notes.kept.iter().nth(usize::try_from(drawn).unwrap() % (notes.kept.len() + 1));
        let answer = match (any.copied(), drawn % 4) {
            (Some(id), 0) => {
                let rate = Some(format!("{}kbit", 100 + drawn % 9000));
                let change = ConnectionChange { rate, ..ConnectionChange::default() };
                ask(orders, |waiting| WriterOrder::Change { id, change, waiting })
            }
            (Some(id), 1 | 2) => {
                let removed = ask(orders, |waiting| WriterOrder::Remove { id, waiting });
                // Without an answer nobody knows.
                if matches!(removed, None | Some(Ok(_))) {
                    notes.kept.remove(&id);
                }
                removed
            }
            _ => {
                let requested = Box::new(request(1 + caller * 2000 + number, drawn));
                let key = None;
                let made = ask(orders, |waiting| WriterOrder::Create { requested, key, waiting });
                notes.kept.extend(made.iter().flatten());
                made
            }
        };
        match answer {
            Some(Ok(_)) => notes.admitted += 1,
            Some(Err(_)) => notes.refused += 1,
            None if orders.is_closed() => return notes,
            None => notes.unanswered += 1,
        }
    }
    notes
}

/// Reads all connections from outside.
fn stored(url: &str) -> Vec<StoredConnection> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options: AnyConnectOptions = url.parse().unwrap();
        let mut connection = options.connect().await.unwrap();
        let rows = sqlx::query("SELECT record FROM connection ORDER BY id");
        let rows = rows.fetch_all(&mut connection).await.unwrap();
        let record = |row: &sqlx::any::AnyRow| serde_json::from_str(row.get(0)).unwrap();
        rows.iter().map(record).collect()
    })
}

/// Adds up what is promised of each arc, the larger of now and next for each direction, and counts
/// tunnel numbers that are given twice at one router.
fn audit(rows: &[StoredConnection]) -> (BTreeMap<u32, u64>, usize) {
    let mut sums = BTreeMap::new();
    for StoredConnection { connection, next, suspended, .. } in rows {
        for direction in FlowDirection::BOTH {
            let now = connection.flows.of(direction).as_ref().filter(|_| !suspended);
            let next = next.as_ref().and_then(|(_, flows)| flows.of(direction).as_ref());
            let mut charges: BTreeMap<u32, u64> = BTreeMap::new();
            for flow in now.into_iter().chain(next) {
                for arc in &flow.path.arcs {
                    let charge = charges.entry(arc.0).or_default();
                    *charge = (*charge).max(flow.reserved.as_bps());
                }
            }
            for (arc, rate) in charges {
                *sums.entry(arc).or_default() += rate;
            }
        }
    }
    let entries = rows.iter().flat_map(|row| row.record.entries.present());
    let entries: Vec<_> = entries.map(|(_, entry)| (entry.node, entry.number)).collect();
    (sums, entries.len() - entries.iter().collect::<BTreeSet<_>>().len())
}

fn assert_sound(rows: &[StoredConnection]) {
    let (sums, twice) = audit(rows);
    assert_eq!(twice, 0, "numbers given twice");
    // The link `short` has arcs 0 and 1; 50 of its 100 Mbit/s are reservable, of the others 90.
    for (arc, sum) in sums {
        let most = if arc < 2 { 50_000_000 } else { 90_000_000 };
        assert!(sum <= most, "arc {arc}: {sum} of {most}");
    }
}

/// Waits until nothing is under way in the store and a broker's state is as the store.
fn settle(url: &str, brokers: &[BrokerThread]) -> Vec<StoredConnection> {
    let text = |row: &StoredConnection| serde_json::to_string(row).unwrap();
    let begun = Instant::now();
    loop {
        let rows = stored(url);
        let is_settled =
            |row: &StoredConnection| matches!(recovery(row.connection.state), RecoveryAction::None);
        let same = |broker: &BrokerThread| {
            let state = broker.state.lock().unwrap();
            let own = state.all().filter_map(|(known, _)| state.row(known.id));
            own.map(|row| text(&row)).eq(rows.iter().map(text))
        };
        if rows.iter().all(is_settled) && brokers.iter().all(same) {
            return rows;
        }
        assert!(begun.elapsed() < PATIENCE, "not settled");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Goal: three brokers admit on one store, and no link has more than it may have at any moment,
/// seen from outside. One is killed and the database restarts meanwhile: what was confirmed is
/// there, nothing stays half done, all brokers have the same state, and another one leads.
#[test]
fn brokers_on_one_store_promise_nothing_twice() {
    let Some(mut cluster) = PostgresCluster::start("brokers") else { return };
    let url = cluster.url();
    let mut config = test_config::with(&[test_config::TRIANGLE]);
    config.broker.store = url.clone().try_into().unwrap();
    (config.broker.lease, config.broker.simulate) = (Duration::from_secs(2), true);
    let named = |name: &str| {
        let mut config = config.clone();
        name.clone_into(&mut config.broker.name);
        BrokerThread::start(&config)
    };
    let mut brokers: Vec<_> = ["one", "two", "three"].into_iter().map(named).collect();
    let callers: Vec<_> = (0..6_u16)
        .map(|caller| {
            let orders = brokers[usize::from(caller) % 3].orders.clone();
            std::thread::spawn(move || call(&orders, 120, caller))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    assert_sound(&stored(&url));
    let leader = brokers.iter().position(BrokerThread::leads).unwrap();
    brokers.remove(leader).kill();
    let killed = Instant::now();
    while !brokers.iter().any(BrokerThread::leads) {
        assert!(killed.elapsed() < PATIENCE, "nobody has taken the lease");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_sound(&stored(&url));
    std::thread::sleep(Duration::from_millis(300));
    cluster.restart();
    let restarted = Instant::now();
    while !callers.iter().all(std::thread::JoinHandle::is_finished) {
        assert!(restarted.elapsed() < 3 * PATIENCE, "callers wait for their answers");
        assert_sound(&stored(&url));
        std::thread::sleep(Duration::from_millis(20));
    }
    let notes: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let rows = settle(&url, &brokers);
    assert_sound(&rows);
    let there: BTreeSet<_> = rows.iter().map(|row| row.connection.id).collect();
    let kept: BTreeSet<_> = notes.iter().flat_map(|of| of.kept.iter().copied()).collect();
    let lost: Vec<_> = kept.difference(&there).collect();
    assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
    let sum = |of: fn(&CallerNotes) -> u64| notes.iter().map(of).sum::<u64>();
    let (admitted, refused) = (sum(|of| of.admitted), sum(|of| of.refused));
    let unanswered = sum(|of| of.unanswered);
    println!("{admitted} admitted, {refused} refused, {unanswered} without an answer");
    assert!(admitted > 100 && refused > 20);
    let extra = u64::try_from(there.difference(&kept).count()).unwrap();
    // Each caller of the killed broker lost one answer at most.
    assert!(extra <= unanswered + 2, "{extra} that nobody asked for");
}

/// A machine may stand still for a while.
const PATIENCE: Duration = Duration::from_secs(60);
