// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The embedded store: connections with their plans, and the lease of the broker that may write.
//!
//! There is one writer, which commits what waits as one transaction, so the price of the disk's
//! confirmation is shared. The write-ahead log and `synchronous = FULL` make a commit durable
//! before it returns (<https://sqlite.org/wal.html>). Each transaction first renews the lease under
//! its fencing number: a broker that was overtaken cannot commit anything.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row};
use weir_broker_api_types::HistoryEntry;
use weir_network::ConnectionId;

use crate::history::HISTORY_MAX;
use crate::ids::{StoredId, id_text};
use crate::record::{StoredConnection, StoredKey, StoredState};
use crate::state::KEYS_MAX;

/// The store, held by its lease.
#[derive(Debug)]
pub(crate) struct BrokerStore {
    connection: SqliteConnection,
    /// Identity of the store, drawn when it was made.
    identity: String,
    fence: u64,
    lease: Duration,
}

/// A change of rows.
#[derive(Debug)]
pub(crate) enum RowChange {
    PutConnection(Box<StoredConnection>),
    DeleteConnection(ConnectionId),
    /// Remembers the key of a request.
    PutKey(StoredKey),
    /// Gives a name its number.
    PutId(StoredId),
    /// Sets a link of a network down, or up again.
    SetLink {
        network: String,
        link: String,
        up: bool,
    },
    /// Adds an entry to the history, and forgets the oldest beyond the bound.
    AddHistory(Box<HistoryEntry>),
}

/// Why the store cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokerStoreError {
    /// SQLite refused.
    #[error("store: {0}")]
    Database(#[from] sqlx::Error),
    /// Another broker has the lease.
    #[error("store: another broker has taken the lease")]
    Fenced,
    /// A row does not have the form of one.
    #[error("store: {0}")]
    Row(#[from] serde_json::Error),
    /// A later version of Weir wrote it.
    #[error("store: version {0}; this Weir reads {VERSION}")]
    Version(i64),
}

impl BrokerStore {
    /// Opens the store, and waits until its lease is free. Takes it with the next fencing number.
    pub(crate) async fn take(
        path: &Path,
        holder: &str,
        lease: Duration,
    ) -> Result<Self, BrokerStoreError> {
        let connection = open(path).await?;
        let mut store = Self { connection, identity: String::new(), fence: 0, lease };
        while !store.try_take(holder).await? {
            tokio::time::sleep(LEASE_POLL).await;
        }
        Ok(store)
    }

    /// Returns the fencing number.
    pub(crate) const fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns the time for which the lease holds without renewal.
    pub(crate) const fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns the identity of the store, within which fencing numbers grow.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    async fn try_take(&mut self, holder: &str) -> Result<bool, BrokerStoreError> {
        let (now, until) = (now_ms(), self.until_ms());
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        let taken = sqlx::query(
            "UPDATE lease SET holder = $1, fence = fence + 1, until_ms = $2 \
             WHERE id = 1 AND until_ms < $3",
        )
        .bind(holder)
        .bind(until)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        let row = sqlx::query("SELECT fence, store FROM lease WHERE id = 1");
        let row = row.fetch_one(&mut *transaction).await?;
        let (fence, identity): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        transaction.commit().await?;
        if taken.rows_affected() == 0 {
            return Ok(false);
        }
        (self.fence, self.identity) = (u64::try_from(fence).unwrap_or_default(), identity);
        Ok(true)
    }

    /// Commits the changes, durably, and renews the lease.
    pub(crate) async fn commit(&mut self, changes: &[RowChange]) -> Result<(), BrokerStoreError> {
        let (until, fence) = (self.until_ms(), i64::try_from(self.fence).unwrap_or(i64::MAX));
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        let renewed = sqlx::query("UPDATE lease SET until_ms = $1 WHERE id = 1 AND fence = $2")
            .bind(until)
            .bind(fence)
            .execute(&mut *transaction)
            .await?;
        if renewed.rows_affected() == 0 {
            return Err(BrokerStoreError::Fenced);
        }
        for change in changes {
            write(change, &mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Gives the lease back.
    pub(crate) async fn release(mut self) -> Result<(), BrokerStoreError> {
        sqlx::query("UPDATE lease SET until_ms = 0 WHERE id = 1 AND fence = $1")
            .bind(i64::try_from(self.fence).unwrap_or(i64::MAX))
            .execute(&mut self.connection)
            .await?;
        self.connection.close().await?;
        Ok(())
    }

    /// Reads everything.
    pub(crate) async fn read(&mut self) -> Result<StoredState, BrokerStoreError> {
        let mut state = StoredState::default();
        let rows = sqlx::query("SELECT record FROM connection ORDER BY id");
        for row in rows.fetch_all(&mut self.connection).await? {
            state.connections.push(serde_json::from_str(row.try_get(0)?)?);
        }
        let rows = sqlx::query("SELECT key, request, connection FROM request_key ORDER BY made");
        for row in rows.fetch_all(&mut self.connection).await? {
            let (key, request) = (row.try_get(0)?, row.try_get(1)?);
            state.keys.push(StoredKey { key, request, connection: row.try_get(2)? });
        }
        let rows = sqlx::query("SELECT kind, name, id FROM name");
        for row in rows.fetch_all(&mut self.connection).await? {
            let (kind, name) = (row.try_get(0)?, row.try_get(1)?);
            let id = u32::try_from(row.try_get::<i64, _>(2)?).unwrap_or(u32::MAX);
            state.ids.push(StoredId { kind, name, id });
        }
        let rows = sqlx::query("SELECT network, link FROM link_down");
        for row in rows.fetch_all(&mut self.connection).await? {
            state.links_down.push((row.try_get(0)?, row.try_get(1)?));
        }
        let rows = sqlx::query("SELECT entry FROM history ORDER BY number");
        for row in rows.fetch_all(&mut self.connection).await? {
            state.history.push(serde_json::from_str(row.try_get(0)?)?);
        }
        Ok(state)
    }

    fn until_ms(&self) -> i64 {
        now_ms().saturating_add(i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX))
    }
}

async fn open(path: &Path) -> Result<SqliteConnection, BrokerStoreError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .thread_name(|_| "weir-broker-store".to_owned())
        .disable_statement_logging();
    let mut connection = options.connect().await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let version = sqlx::query("PRAGMA user_version").fetch_one(&mut *transaction).await?;
    let version: i64 = version.try_get(0)?;
    match version {
        VERSION => transaction.rollback().await?,
        0..VERSION => {
            for (made, schema) in (1..).zip(SCHEMAS) {
                if version < made {
                    sqlx::raw_sql(schema).execute(&mut *transaction).await?;
                }
            }
            transaction.commit().await?;
        }
        other => return Err(BrokerStoreError::Version(other)),
    }
    Ok(connection)
}

async fn write(
    change: &RowChange,
    transaction: &mut SqliteConnection,
) -> Result<(), BrokerStoreError> {
    match change {
        RowChange::PutConnection(row) => {
            sqlx::query("INSERT OR REPLACE INTO connection (id, record) VALUES ($1, $2)")
                .bind(id_text(row.connection.id))
                .bind(serde_json::to_string(row)?)
                .execute(transaction)
                .await?;
        }
        RowChange::DeleteConnection(id) => {
            sqlx::query("DELETE FROM connection WHERE id = $1")
                .bind(id_text(*id))
                .execute(transaction)
                .await?;
        }
        RowChange::PutKey(StoredKey { key, request, connection }) => {
            sqlx::query(
                "INSERT OR REPLACE INTO request_key (key, request, connection, made) \
                 VALUES ($1, $2, $3, (SELECT coalesce(max(made), 0) + 1 FROM request_key))",
            )
            .bind(key)
            .bind(request)
            .bind(connection)
            .execute(&mut *transaction)
            .await?;
            sqlx::query(
                "DELETE FROM request_key WHERE made <= \
                 (SELECT max(made) FROM request_key) - $1",
            )
            .bind(i64::try_from(KEYS_MAX).unwrap_or(i64::MAX))
            .execute(transaction)
            .await?;
        }
        RowChange::SetLink { network, link, up } => {
            let text = match up {
                true => "DELETE FROM link_down WHERE network = $1 AND link = $2",
                false => "INSERT OR REPLACE INTO link_down (network, link) VALUES ($1, $2)",
            };
            sqlx::query(text).bind(network).bind(link).execute(transaction).await?;
        }
        RowChange::AddHistory(entry) => {
            let number = i64::try_from(entry.number).unwrap_or(i64::MAX);
            sqlx::query("INSERT INTO history (number, entry) VALUES ($1, $2)")
                .bind(number)
                .bind(serde_json::to_string(entry)?)
                .execute(&mut *transaction)
                .await?;
            sqlx::query("DELETE FROM history WHERE number <= $1")
                .bind(number - i64::try_from(HISTORY_MAX).unwrap_or_default())
                .execute(transaction)
                .await?;
        }
        RowChange::PutId(StoredId { kind, name, id }) => {
            sqlx::query("INSERT INTO name (kind, name, id) VALUES ($1, $2, $3)")
                .bind(kind)
                .bind(name)
                .bind(i64::from(*id))
                .execute(transaction)
                .await?;
        }
    }
    Ok(())
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

const VERSION: i64 = 3;

/// Additions of each version.
const SCHEMAS: [&str; 3] = [
    "
CREATE TABLE lease (
    id BIGINT PRIMARY KEY, store TEXT NOT NULL, holder TEXT NOT NULL, fence BIGINT NOT NULL,
    until_ms BIGINT NOT NULL
);
INSERT INTO lease VALUES (1, lower(hex(randomblob(8))), '', 0, 0);
CREATE TABLE connection (id TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE name (
    kind TEXT NOT NULL, name TEXT NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (kind, name)
);
CREATE TABLE request_key (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, connection TEXT NOT NULL, made BIGINT NOT NULL
);
",
    "
CREATE TABLE link_down (network TEXT NOT NULL, link TEXT NOT NULL, PRIMARY KEY (network, link));
",
    "
CREATE TABLE history (number BIGINT PRIMARY KEY, entry TEXT NOT NULL);
PRAGMA user_version = 3;
",
];

const LEASE_POLL: Duration = Duration::from_millis(50);
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
