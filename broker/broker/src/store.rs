// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store: connections with their plans, and the lease of the broker that configures routers.
//!
//! It is a file of SQLite or a database of PostgreSQL, by the same statements (`dialect` has the
//! few that differ). Each broker has one writer, which commits what waits as one transaction, so
//! the price of the disk's confirmation is shared. A commit is durable before it returns.
//!
//! **Several brokers.** Their transactions are one after the other: each first locks the row of the
//! lease, then reads what others have committed since its last one (`change`, numbered without
//! gaps), and only then decides. So a decision is always made on all that is stored.
//!
//! **The lease** is for the routers: who has it configures them. Each transaction of its holder
//! renews it under its fencing number: a broker that was overtaken cannot commit anything.

use std::time::Duration;

use futures_util::TryStreamExt;
use ring::rand::{SecureRandom, SystemRandom};
use sqlx::AnyConnection;
use sqlx::any::AnyConnectOptions;
use sqlx::{ConnectOptions, Connection, Row};

use crate::ids::StoredId;
use crate::record::{StoredConnection, StoredKey, StoredState};

mod dialect;
mod fault;
mod listener;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use fault::BrokerStoreError;
pub(crate) use listener::listen;
pub(crate) use rows::RowChange;

use dialect::{POSTGRESQL, SQLITE, StoreDialect};
use fault::{CHANGES_KEPT, PATIENCE, VERSION};

/// The store.
#[derive(Debug)]
pub(crate) struct BrokerStore {
    connection: AnyConnection,
    dialect: &'static StoreDialect,
    /// Identity of the store, drawn when it was made.
    identity: String,
    /// This broker, as the lease names its holder.
    holder: String,
    lease: Duration,
    /// The fencing number under which this broker configures routers; none while it does not.
    fence: Option<i64>,
    /// Number of the last change that was read or written.
    number: i64,
}

/// Changes of others since the last look.
#[derive(Debug, Default)]
pub(crate) struct StoreNews {
    /// Their changes, in order.
    pub(crate) changes: Vec<RowChange>,
    /// The holder of the lease; none if it has run out.
    pub(crate) holder: Option<String>,
    /// The time for which it still holds.
    pub(crate) left: Duration,
}

impl BrokerStore {
    /// Opens the store at a URL, and makes its tables or extends them.
    pub(crate) async fn open(
        url: &str,
        holder: &str,
        lease: Duration,
    ) -> Result<Self, BrokerStoreError> {
        sqlx::any::install_default_drivers();
        let dialect = if url.starts_with("sqlite:") { &SQLITE } else { &POSTGRESQL };
        let options: AnyConnectOptions = url.parse()?;
        let options = options.disable_statement_logging();
        let opened = in_time(dialect, async {
            let mut connection = options.connect().await?;
            sqlx::raw_sql(dialect.session).execute(&mut connection).await?;
            let identity = extend(&mut connection, dialect).await?;
            Ok((connection, identity))
        });
        let (connection, identity) = opened.await?;
        let (holder, fence, number) = (holder.to_owned(), None, 0);
        Ok(Self { connection, dialect, identity, holder, lease, fence, number })
    }

    /// Returns true if several brokers work on the store at the same time.
    pub(crate) const fn is_shared(&self) -> bool {
        self.dialect.is_shared
    }

    /// Returns the fencing number; none while another broker configures the routers.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.fence.and_then(|fence| u64::try_from(fence).ok())
    }

    /// Returns the time for which the lease holds without renewal.
    pub(crate) const fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns the identity of the store, within which fencing numbers grow.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Takes the lease with the next fencing number if it is free. Returns true if this broker has
    /// it now.
    pub(crate) async fn try_take(&mut self) -> Result<bool, BrokerStoreError> {
        in_time(self.dialect, async {
            sqlx::raw_sql(self.dialect.begin).execute(&mut self.connection).await?;
            let taken = sqlx::query(self.dialect.take)
                .bind(self.holder.clone())
                .bind(self.lease_ms())
                .execute(&mut self.connection)
                .await?;
            let row = sqlx::query("SELECT fence FROM lease WHERE id = 1");
            let row = row.fetch_one(&mut self.connection).await?;
            sqlx::raw_sql("COMMIT").execute(&mut self.connection).await?;
            if taken.rows_affected() > 0 {
                self.fence = Some(row.try_get(0)?);
            }
            Ok(self.fence.is_some())
        })
        .await
    }

    /// Returns the holder of the lease, and the time for which it still holds.
    pub(crate) async fn lease_holder(&mut self) -> Result<(String, Duration), BrokerStoreError> {
        in_time(self.dialect, async {
            let row = sqlx::query(self.dialect.see).fetch_one(&mut self.connection).await?;
            let left: i64 = row.try_get(3)?;
            let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
            Ok((row.try_get(2)?, left))
        })
        .await
    }

    /// Reads what others have committed, and locks nothing.
    pub(crate) async fn look(&mut self) -> Result<StoreNews, BrokerStoreError> {
        if !self.is_shared() {
            return Ok(self.own_news());
        }
        in_time(self.dialect, self.news(self.dialect.see)).await
    }

    /// Begins a transaction, which [`Self::commit`] ends, and reads what others have committed:
    /// nobody else commits until then.
    pub(crate) async fn begin(&mut self) -> Result<StoreNews, BrokerStoreError> {
        in_time(self.dialect, async {
            sqlx::raw_sql(self.dialect.begin).execute(&mut self.connection).await?;
            match self.is_shared() {
                true => self.news(self.dialect.lock).await,
                false => Ok(self.own_news()),
            }
        })
        .await
    }

    /// Returns the news of a store that nobody else works on.
    fn own_news(&self) -> StoreNews {
        StoreNews { holder: Some(self.holder.clone()), ..StoreNews::default() }
    }

    /// Reads the lease by `statement`, and the changes up to the number that is in it.
    async fn news(&mut self, statement: &'static str) -> Result<StoreNews, BrokerStoreError> {
        let row = sqlx::query(statement).fetch_one(&mut self.connection).await?;
        let (number, fence): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let holder: String = row.try_get(2)?;
        if self.fence.is_some_and(|own| own != fence) {
            return Err(BrokerStoreError::Fenced);
        }
        let left: i64 = row.try_get(3)?;
        let holder = Some(holder).filter(|_| left >= 0);
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default() + 1);
        let mut changes = Vec::new();
        if number > self.number {
            let rows = sqlx::query(
                "SELECT changes FROM change WHERE number > $1 AND number <= $2 ORDER BY number",
            )
            .bind(self.number)
            .bind(number)
            .fetch_all(&mut self.connection)
            .await?;
            if i64::try_from(rows.len()).ok() != Some(number - self.number) {
                return Err(BrokerStoreError::Behind);
            }
            for row in rows {
                changes.extend(serde_json::from_str::<Vec<RowChange>>(row.try_get(0)?)?);
            }
            self.number = number;
        }
        Ok(StoreNews { changes, holder, left })
    }

    /// Writes the changes, renews the lease if this broker has it, and commits, durably.
    pub(crate) async fn commit(&mut self, changes: &[RowChange]) -> Result<(), BrokerStoreError> {
        in_time(self.dialect, self.write(changes)).await
    }

    async fn write(&mut self, changes: &[RowChange]) -> Result<(), BrokerStoreError> {
        let number = self.number + i64::from(!changes.is_empty());
        let (lease, connection) = (self.lease_ms(), &mut self.connection);
        if self.fence.is_none() && changes.is_empty() {
            sqlx::raw_sql("ROLLBACK").execute(connection).await?;
            return Ok(());
        }
        let renewed = match self.fence {
            Some(fence) => sqlx::query(self.dialect.renew).bind(lease).bind(number).bind(fence),
            None => sqlx::query("UPDATE lease SET number = $1 WHERE id = 1").bind(number),
        };
        if renewed.execute(&mut *connection).await?.rows_affected() == 0 {
            return Err(BrokerStoreError::Fenced);
        }
        rows::write(changes, connection).await?;
        rows::trim(changes, connection).await?;
        if self.dialect.is_shared && !changes.is_empty() {
            sqlx::query("INSERT INTO change (number, changes) VALUES ($1, $2)")
                .bind(number)
                .bind(serde_json::to_string(changes)?)
                .execute(&mut *connection)
                .await?;
            sqlx::query("DELETE FROM change WHERE number <= $1")
                .bind(number - CHANGES_KEPT)
                .execute(&mut *connection)
                .await?;
            listener::tell(&self.holder, connection).await?;
        }
        sqlx::raw_sql("COMMIT").execute(connection).await?;
        self.number = number;
        Ok(())
    }

    /// Gives the lease back, if this broker has it.
    pub(crate) async fn release(mut self) -> Result<(), BrokerStoreError> {
        in_time(self.dialect, async {
            if let Some(fence) = self.fence {
                sqlx::query("UPDATE lease SET until_ms = 0 WHERE id = 1 AND fence = $1")
                    .bind(fence)
                    .execute(&mut self.connection)
                    .await?;
                if self.is_shared() {
                    listener::tell(&self.holder, &mut self.connection).await?;
                }
            }
            Ok(self.connection.close().await?)
        })
        .await
    }

    /// Begins to read the whole store, as it is between two transactions, and returns all but the
    /// connections. [`Self::read_connections`] reads these, and [`Self::end_reading`] ends the
    /// reading. With `to_change`, nobody else commits until [`Self::commit`], which ends the
    /// reading too.
    pub(crate) async fn read(&mut self, to_change: bool) -> Result<StoredState, BrokerStoreError> {
        let (begin, lease) = match to_change {
            true => (self.dialect.begin, self.dialect.lock),
            false => (self.dialect.begin_reading, self.dialect.see),
        };
        in_time(self.dialect, async {
            sqlx::raw_sql(begin).execute(&mut self.connection).await?;
            let row = sqlx::query(lease).fetch_one(&mut self.connection).await?;
            self.number = row.try_get(0)?;
            self.read_rows().await
        })
        .await
    }

    /// Reads the connections, and hands each to `take` before the next one is read: all of them may
    /// not fit into memory twice.
    pub(crate) async fn read_connections<E: From<BrokerStoreError>>(
        &mut self,
        mut take: impl FnMut(StoredConnection) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rows = sqlx::query("SELECT record FROM connection").fetch(&mut self.connection);
        // All rows together may take long, but not a single one.
        let dialect = self.dialect;
        while let Some(row) = in_time(dialect, async { Ok(rows.try_next().await?) }).await? {
            let text = row.try_get(0).map_err(BrokerStoreError::from)?;
            take(serde_json::from_str(text).map_err(BrokerStoreError::from)?)?;
        }
        Ok(())
    }

    /// Ends what [`Self::read`] has begun.
    pub(crate) async fn end_reading(&mut self) -> Result<(), BrokerStoreError> {
        in_time(self.dialect, async {
            sqlx::raw_sql("COMMIT").execute(&mut self.connection).await?;
            Ok(())
        })
        .await
    }

    async fn read_rows(&mut self) -> Result<StoredState, BrokerStoreError> {
        let mut state = StoredState::default();
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
        let rows = sqlx::query("SELECT share FROM share ORDER BY network, link");
        for row in rows.fetch_all(&mut self.connection).await? {
            state.shares.push(serde_json::from_str(row.try_get(0)?)?);
        }
        let rows = sqlx::query("SELECT entry FROM history ORDER BY number");
        for row in rows.fetch_all(&mut self.connection).await? {
            state.history.push(serde_json::from_str(row.try_get(0)?)?);
        }
        let rows = sqlx::query("SELECT parts FROM observed WHERE id = 1");
        if let Some(row) = rows.fetch_optional(&mut self.connection).await? {
            state.observed = serde_json::from_str(row.try_get(0)?)?;
        }
        Ok(state)
    }

    fn lease_ms(&self) -> i64 {
        i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Awaits work of a database. A database that may be on another machine has [`PATIENCE`] at most,
/// since it can vanish without closing the connection; a file always answers.
async fn in_time<T>(
    dialect: &StoreDialect,
    work: impl Future<Output = Result<T, BrokerStoreError>>,
) -> Result<T, BrokerStoreError> {
    if !dialect.is_shared {
        return work.await;
    }
    tokio::time::timeout(PATIENCE, work).await.unwrap_or(Err(BrokerStoreError::Silent))
}

/// Makes the tables, or extends those of an earlier version. Returns the identity of the store.
async fn extend(
    connection: &mut AnyConnection,
    dialect: &StoreDialect,
) -> Result<String, BrokerStoreError> {
    sqlx::raw_sql(dialect.begin_schema).execute(&mut *connection).await?;
    let row = sqlx::query(dialect.version).fetch_one(&mut *connection).await?;
    let version: i64 = row.try_get(0)?;
    if !(0..=VERSION).contains(&version) {
        return Err(BrokerStoreError::Version(version));
    }
    for (made, schema) in (1..).zip(SCHEMAS) {
        if version < made {
            sqlx::raw_sql(schema).execute(&mut *connection).await?;
        }
    }
    if version == 0 {
        sqlx::query(
            "INSERT INTO lease (id, store, holder, fence, until_ms) VALUES (1, $1, '', 0, 0)",
        )
        .bind(random_digits()?)
        .execute(&mut *connection)
        .await?;
    }
    if version < VERSION {
        sqlx::raw_sql(dialect.set_version).execute(&mut *connection).await?;
    }
    let row =
        sqlx::query("SELECT store FROM lease WHERE id = 1").fetch_one(&mut *connection).await?;
    let identity = row.try_get(0)?;
    sqlx::raw_sql("COMMIT").execute(connection).await?;
    Ok(identity)
}

/// Draws 64 random bits.
///
/// # Errors
/// The system gives none.
pub(crate) fn random_bits() -> Result<u64, BrokerStoreError> {
    let mut bits = [0; 8];
    SystemRandom::new().fill(&mut bits).map_err(|_| BrokerStoreError::NoRandomBits)?;
    Ok(u64::from_be_bytes(bits))
}

/// Draws 16 hexadecimal digits.
///
/// # Errors
/// The system gives no random bits.
pub(crate) fn random_digits() -> Result<String, BrokerStoreError> {
    random_bits().map(|bits| format!("{bits:016x}"))
}

/// Additions of each version.
const SCHEMAS: [&str; 6] = [
    "
CREATE TABLE lease (
    id BIGINT PRIMARY KEY, store TEXT NOT NULL, holder TEXT NOT NULL, fence BIGINT NOT NULL,
    until_ms BIGINT NOT NULL
);
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
",
    "
ALTER TABLE lease ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
CREATE TABLE change (number BIGINT PRIMARY KEY, changes TEXT NOT NULL);
CREATE TABLE observed (id BIGINT PRIMARY KEY, parts TEXT NOT NULL);
",
    "
CREATE TABLE share (
    network TEXT NOT NULL, link TEXT NOT NULL, share TEXT NOT NULL, PRIMARY KEY (network, link)
);
",
    "
CREATE INDEX request_key_made ON request_key (made);
",
];
