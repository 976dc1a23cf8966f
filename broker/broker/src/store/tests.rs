// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store on both databases: the same rows, the same lease.

use std::path::PathBuf;

use weir_broker_api_types::{HistoryChange, HistoryEntry};

use super::*;
use crate::history::AddedEntry;
use crate::ids::{StableIds, id_text};
use crate::postgres::PostgresCluster;
use crate::record::{ObservedParts, ShareOrigin, ShareTerms, StoredShare};
use crate::remembered_keys::request_digest;
use crate::state::BrokerState;
use crate::store_address::StoreAddress;
use crate::{clock, test_config};

/// A store of one of the two databases.
struct TestStore {
    url: String,
    folder: Option<PathBuf>,
    cluster: Option<PostgresCluster>,
}

impl Drop for TestStore {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

impl TestStore {
    fn sqlite(test: &str) -> Self {
        let name = format!("weir-t-store-{}-{test}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let address = StoreAddress::File(folder.join("broker store?.sqlite"));
        Self { url: address.url(None).unwrap(), folder: Some(folder), cluster: None }
    }

    /// Returns a store on each database that is there.
    fn both(test: &str) -> Vec<Self> {
        let mut all = vec![Self::sqlite(test)];
        all.extend(PostgresCluster::start(test).map(|cluster| Self {
            url: cluster.url(),
            folder: None,
            cluster: Some(cluster),
        }));
        all
    }

    async fn open(&self, holder: &str) -> BrokerStore {
        BrokerStore::open(&self.url, holder, LEASE).await.unwrap()
    }

    /// Opens the store and takes the lease.
    async fn take(&self, holder: &str) -> BrokerStore {
        let mut store = self.open(holder).await;
        assert!(store.try_take().await.unwrap());
        store
    }
}

/// Reads everything.
async fn read(store: &mut BrokerStore) -> (StoredState, Vec<StoredConnection>) {
    let (state, mut connections) = (store.read(false).await.unwrap(), Vec::new());
    let take = |row| {
        connections.push(row);
        Ok::<_, BrokerStoreError>(())
    };
    store.read_connections(take).await.unwrap();
    store.end_reading().await.unwrap();
    (state, connections)
}

/// Longer than a test takes.
const LEASE: Duration = Duration::from_secs(600);

fn row() -> StoredConnection {
    let config = test_config::with(&[test_config::TRIANGLE]);
    let mut state =
        BrokerState::new(&config, &mut StableIds::default(), Vec::new(), Vec::new()).unwrap();
    let text = r#"{ "network": "n", "from": "x", "to": "y", "rate": "1Mbit" }"#;
    let id = weir_network::ConnectionId(7);
    state.admit(id, serde_json::from_str(text).unwrap(), clock::now()).unwrap();
    state.row(id).unwrap()
}

fn entry(number: u64) -> HistoryEntry {
    let text = |text: &str| Some(text.to_owned());
    HistoryEntry {
        number,
        at: "2027-01-31T12:00:00Z".to_owned(),
        network: "n".to_owned(),
        connection: text("c7"),
        link: None,
        router: None,
        by: None,
        change: HistoryChange::Created,
        detail: text("1Mbit 'from' x"),
    }
}

fn added(number: u64, forgotten: &[u64]) -> RowChange {
    let forgotten = forgotten.to_vec();
    RowChange::AddHistory(Box::new(AddedEntry { entry: entry(number), forgotten }))
}

fn share(rate_bps: u64) -> StoredShare {
    let of_file = ShareTerms { rate_bps: 5, reservable_bps: None };
    let terms = ShareTerms { rate_bps, reservable_bps: Some(1) };
    let origin = Some(ShareOrigin { by: "o".to_owned(), at: "2027".to_owned() });
    let (network, link) = ("n".to_owned(), "short".to_owned());
    StoredShare { network, link, terms, of_file, origin }
}

fn every_change() -> Vec<RowChange> {
    let (network, link) = ("n".to_owned(), "short".to_owned());
    let mut parts = ObservedParts::default();
    parts.failed.devices.insert(("a".to_owned(), "c".to_owned()));
    let key = |key: &str, connection: &str| StoredKey {
        key: key.to_owned(),
        request: "{}".to_owned(),
        connection: connection.to_owned(),
    };
    vec![
        RowChange::PutConnection(Box::new(row())),
        RowChange::PutConnection(Box::new(row())),
        RowChange::PutKey(key("t/1", "c1")),
        RowChange::PutKey(key("t/2", "c2")),
        RowChange::PutKey(key("t/1", "c3")),
        RowChange::PutId(StoredId { kind: "link".to_owned(), name: "n/l".to_owned(), id: 0 }),
        RowChange::SetLink { network: network.clone(), link: link.clone(), up: false },
        RowChange::SetLink { network, link, up: false },
        RowChange::SetShare(Box::new(share(1))),
        RowChange::SetShare(Box::new(share(2))),
        added(1, &[]),
        added(2, &[]),
        added(4, &[]),
        added(20_000, &[1, 2, 4]),
        RowChange::Observe(Box::new(parts)),
    ]
}

/// Goal: each change is read back as it was written, on both databases and by a later broker; what
/// is beyond a bound is forgotten.
#[tokio::test]
async fn changes_are_read_back_from_either_database() {
    for place in TestStore::both("changes") {
        let mut store = place.take("a").await;
        store.begin().await.unwrap();
        store.commit(&every_change()).await.unwrap();
        store.release().await.unwrap();
        let mut store = place.take("b").await;
        let (state, connections) = read(&mut store).await;
        let text = |of: &StoredConnection| serde_json::to_string(of).unwrap();
        assert_eq!(connections.iter().map(text).collect::<Vec<_>>(), [text(&row())]);
        let keys: Vec<_> = state.keys.iter().map(|of| (&*of.key, &*of.connection)).collect();
        assert_eq!(keys, [("t/2", "c2"), ("t/1", "c3")]);
        assert!(state.keys.iter().all(|of| of.request == request_digest("{}")));
        assert_eq!(state.ids.len(), 1);
        assert_eq!(state.links_down, [("n".to_owned(), "short".to_owned())]);
        assert_eq!(state.history, [entry(20_000)]);
        assert_eq!(state.shares, [share(2)]);
        assert_eq!(state.observed.failed.devices.len(), 1);
        store.begin().await.unwrap();
        let (network, link) = ("n".to_owned(), "short".to_owned());
        let changes = [
            RowChange::DeleteConnection(weir_network::ConnectionId(7)),
            RowChange::DropShare { network: network.clone(), link: link.clone() },
            RowChange::SetLink { network, link, up: true },
        ];
        store.commit(&changes).await.unwrap();
        let (state, connections) = read(&mut store).await;
        assert!(connections.is_empty() && state.links_down.is_empty());
        assert!(state.shares.is_empty());
    }
}

/// Goal: one broker has the lease. Another gets it when it has run out or was given back, with a
/// larger number; then the first cannot commit.
#[tokio::test]
async fn a_lease_that_ran_out_is_worth_nothing() {
    for place in TestStore::both("lease") {
        let mut first = place.take("first").await;
        let mut second = place.open("second").await;
        assert_eq!(first.identity(), second.identity());
        assert!(!second.try_take().await.unwrap());
        first.lease = Duration::from_millis(1);
        first.begin().await.unwrap();
        first.commit(&[]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(second.try_take().await.unwrap());
        assert!(second.fence() > first.fence());
        // PostgreSQL says so at the beginning, SQLite at the end.
        let begun = first.begin().await;
        let fenced = match begun {
            Ok(_) => first.commit(&every_change()).await,
            Err(error) => Err(error),
        };
        assert!(matches!(fenced, Err(BrokerStoreError::Fenced)), "{fenced:?}");
        drop(first);
        assert!(read(&mut second).await.1.is_empty());
        second.release().await.unwrap();
        place.take("third").await;
    }
}

/// Goal: transactions of several brokers are one after the other, and each sees all before it:
/// numbers that each counts on from what it knows are never given twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn brokers_decide_on_all_that_is_stored() {
    let Some(cluster) = PostgresCluster::start("order") else { return };
    let place = TestStore { url: cluster.url(), folder: None, cluster: Some(cluster) };
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let mut store = place.open(name).await;
        all.push(tokio::spawn(async move {
            let mut last = 0;
            for _turn in 0..60 {
                let news = store.begin().await.unwrap();
                for change in news.changes {
                    let RowChange::AddHistory(added) = change else { continue };
                    assert_eq!(added.entry.number, last + 1, "a gap, or out of order");
                    last = added.entry.number;
                }
                last += 1;
                store.commit(&[added(last, &[])]).await.unwrap();
            }
            // Nothing was decided: nothing is committed.
            store.begin().await.unwrap();
            store.commit(&[]).await.unwrap();
        }));
    }
    for broker in all {
        broker.await.unwrap();
    }
    let mut late = place.open("late").await;
    assert_eq!(read(&mut late).await.0.history.len(), 180);
    // One that is too far behind is told to read everything again.
    let mut busy = place.open("busy").await;
    read(&mut busy).await;
    let many = format!(
        "INSERT INTO change SELECT lease.number + more, '[]' \
         FROM lease, generate_series(1, {CHANGES_KEPT}) AS more; \
         UPDATE lease SET number = number + {CHANGES_KEPT}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(many)).execute(&mut busy.connection).await.unwrap();
    busy.begin().await.unwrap();
    let id = weir_network::ConnectionId(1);
    busy.commit(&[RowChange::DeleteConnection(id)]).await.unwrap();
    let behind = late.look().await.map(|news| news.changes.len());
    assert!(matches!(behind, Err(BrokerStoreError::Behind)), "{behind:?}");
    assert!(place.cluster.is_some());
}

/// Goal: a database that goes silent in the middle of any exchange is given up after a bounded
/// time.
#[tokio::test]
async fn a_silent_database_is_given_up() {
    let Some(cluster) = PostgresCluster::start("silent") else { return };
    let url = cluster.url();
    let open = |holder| BrokerStore::open(&url, holder, LEASE);
    let mut holder = open("holder").await.unwrap();
    assert!(holder.try_take().await.unwrap());
    let (mut taker, mut reader) = (open("taker").await.unwrap(), open("reader").await.unwrap());
    let (mut looker, mut beginner) =
        (open("looker").await.unwrap(), open("beginner").await.unwrap());
    let options: AnyConnectOptions = url.parse().unwrap();
    let mut lock = options.connect().await.unwrap();
    // Nothing answers while another session has all tables to itself.
    let all = "BEGIN; LOCK TABLE lease, connection, schema_version IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(all).execute(&mut lock).await.unwrap();
    let (taken, read, looked, begun, released, opened) = tokio::join!(
        taker.try_take(),
        reader.read(false),
        looker.look(),
        beginner.begin(),
        holder.release(),
        open("late"),
    );
    let faults = [taken.err(), read.err(), looked.err(), begun.err(), released.err(), opened.err()];
    for fault in faults {
        assert!(matches!(fault, Some(BrokerStoreError::Silent)), "{fault:?}");
    }
}

/// Goal: a store of an earlier version is extended with all that is in it, one of a later version
/// is refused.
#[tokio::test]
async fn stores_of_earlier_versions_are_extended() {
    let place = TestStore::sqlite("versions");
    let options: AnyConnectOptions = place.url.parse().unwrap();
    sqlx::any::install_default_drivers();
    let mut old = options.connect().await.unwrap();
    for schema in &SCHEMAS[..3] {
        sqlx::raw_sql(*schema).execute(&mut old).await.unwrap();
    }
    let rows = "INSERT INTO lease VALUES (1, '0123456789abcdef', 'old', 41, 0); \
                INSERT INTO link_down VALUES ('n', 'l'); PRAGMA user_version = 3";
    sqlx::raw_sql(rows).execute(&mut old).await.unwrap();
    old.close().await.unwrap();
    let mut store = place.take("new").await;
    assert_eq!((store.identity(), store.fence()), ("0123456789abcdef", Some(42)));
    assert_eq!(read(&mut store).await.0.links_down.len(), 1);
    store.release().await.unwrap();
    for place in TestStore::both("later") {
        let mut store = place.open("a").await;
        let later = match store.is_shared() {
            true => "UPDATE schema_version SET version = 7",
            false => "PRAGMA user_version = 7",
        };
        sqlx::raw_sql(later).execute(&mut store.connection).await.unwrap();
        let refused = BrokerStore::open(&place.url, "b", LEASE).await;
        assert!(matches!(refused, Err(BrokerStoreError::Version(7))), "{refused:?}");
    }
    assert_eq!(id_text(weir_network::ConnectionId(7)).len(), 17);
}
