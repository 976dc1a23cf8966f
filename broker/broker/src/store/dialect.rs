// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statements that differ between the two databases: sessions, locks, the clock.
//!
//! All other statements are the same text on both.

/// Statements of one database.
#[derive(Debug)]
pub(super) struct StoreDialect {
    /// True if several brokers work on the store at the same time.
    pub(super) is_shared: bool,
    /// Settings of a session. Each commit waits for the disk.
    pub(super) session: &'static str,
    /// Begins a transaction that makes or extends the tables.
    pub(super) begin_schema: &'static str,
    /// Reads the version of the tables, 0 for none.
    pub(super) version: &'static str,
    pub(super) set_version: &'static str,
    /// Begins a transaction that changes rows.
    pub(super) begin: &'static str,
    /// Begins a transaction whose statements all see the same rows.
    pub(super) begin_reading: &'static str,
    /// Reads the lease, and holds its row until the end of the transaction.
    pub(super) lock: &'static str,
    /// Reads the lease.
    pub(super) see: &'static str,
    /// Takes the lease: holder, milliseconds.
    pub(super) take: &'static str,
    /// Renews the lease: milliseconds, number of the last change, fencing number.
    pub(super) renew: &'static str,
}

/// Number of the last change, fencing number, holder, and the milliseconds for which the lease
/// still holds.
macro_rules! see {
    ($now:expr, $lock:expr) => {
        concat!(
            "SELECT number, fence, holder, until_ms - ",
            $now,
            " FROM lease WHERE id = 1",
            $lock
        )
    };
}

macro_rules! take {
    ($now:expr) => {
        concat!(
            "UPDATE lease SET holder = $1, fence = fence + 1, until_ms = $2 + ",
            $now,
            " WHERE id = 1 AND (until_ms < ",
            $now,
            " OR holder = $1)"
        )
    };
}

macro_rules! renew {
    ($now:expr) => {
        concat!(
            "UPDATE lease SET until_ms = $1 + ",
            $now,
            ", number = $2 WHERE id = 1 AND fence = $3"
        )
    };
}

macro_rules! sqlite_now {
    () => {
        "CAST(unixepoch('subsec') * 1000 AS BIGINT)"
    };
}

/// The database's clock: those of the brokers' machines may differ.
macro_rules! postgresql_now {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}

/// The write-ahead log and `synchronous = FULL` make a commit durable before it returns
/// (<https://sqlite.org/wal.html>).
pub(super) static SQLITE: StoreDialect = StoreDialect {
    is_shared: false,
    session: "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
    begin_schema: "BEGIN IMMEDIATE",
    version: "PRAGMA user_version",
    set_version: "PRAGMA user_version = 6",
    begin: "BEGIN IMMEDIATE",
    begin_reading: "BEGIN IMMEDIATE",
    lock: see!(sqlite_now!(), ""),
    see: see!(sqlite_now!(), ""),
    take: take!(sqlite_now!()),
    renew: renew!(sqlite_now!()),
};

/// The lock of the lease's row is what orders the brokers' transactions. A broker that stops in the
/// middle of one loses it after five seconds.
pub(super) static POSTGRESQL: StoreDialect = StoreDialect {
    is_shared: true,
    session: "SET synchronous_commit = on; SET idle_in_transaction_session_timeout = '5s'; \
              SET lock_timeout = '30s'; SET client_min_messages = warning;",
    begin_schema: "BEGIN; SELECT pg_advisory_xact_lock(2249318670); \
                   CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)",
    version: "SELECT coalesce(max(version), 0) FROM schema_version",
    set_version: "DELETE FROM schema_version; INSERT INTO schema_version VALUES (6)",
    begin: "BEGIN",
    begin_reading: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    lock: see!(postgresql_now!(), " FOR UPDATE"),
    see: see!(postgresql_now!(), ""),
    take: take!(postgresql_now!()),
    renew: renew!(postgresql_now!()),
};
