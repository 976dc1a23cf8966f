// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of rows, as they are written and as other brokers read them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};
use weir_network::ConnectionId;

use super::fault::BrokerStoreError;
use crate::history::AddedEntry;
use crate::ids::{StoredId, id_text};
use crate::record::{ObservedParts, StoredConnection, StoredKey, StoredShare};
use crate::remembered_keys::{KEYS_MAX, request_digest};

/// A change of rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Gives a network's link another share than the file does.
    SetShare(Box<StoredShare>),
    /// Forgets such a share: the file says something else now.
    DropShare {
        network: String,
        link: String,
    },
    /// Adds an entry to the history, and forgets those that it pushes out.
    AddHistory(Box<AddedEntry>),
    /// Says what the broker that configures routers sees of them.
    Observe(Box<ObservedParts>),
}

/// Writes the changes of a transaction. Connections, names and the history are written together,
/// each connection once: for each statement the database is waited for.
pub(super) async fn write(
    changes: &[RowChange],
    connection: &mut AnyConnection,
) -> Result<(), BrokerStoreError> {
    let (mut connections, mut history, mut names) = (BTreeMap::new(), Vec::new(), Vec::new());
    for change in changes {
        match change {
            RowChange::PutConnection(row) => {
                connections.insert(row.connection.id, Some(row));
            }
            RowChange::DeleteConnection(id) => {
                connections.insert(*id, None);
            }
            RowChange::AddHistory(added) => {
                let number = i64::try_from(added.entry.number).unwrap_or(i64::MAX);
                history.push((number, serde_json::to_string(&added.entry)?));
            }
            RowChange::PutId(name) => names.push(name),
            other => write_one(other, connection).await?,
        }
    }
    let (mut put, mut gone) = (Vec::new(), Vec::new());
    for (id, row) in connections {
        match row {
            Some(row) => put.push((id_text(id), serde_json::to_string(row)?)),
            None => gone.push(id_text(id)),
        }
    }
    let text = ["INSERT INTO connection (id, record)", CONNECTION_CONFLICT];
    insert(connection, text, 2, put, |query, (id, record)| query.bind(id).bind(record)).await?;
    for id in gone {
        let query = sqlx::query("DELETE FROM connection WHERE id = $1").bind(id);
        query.execute(&mut *connection).await?;
    }
    let text = ["INSERT INTO history (number, entry)", ""];
    insert(connection, text, 2, history, |query, (number, entry)| query.bind(number).bind(entry))
        .await?;
    let text = ["INSERT INTO name (kind, name, id)", ""];
    let bind = |query: RowQuery, StoredId { kind, name, id }: &StoredId| {
        query.bind(kind.clone()).bind(name.clone()).bind(i64::from(*id))
    };
    insert(connection, text, 3, names, bind).await
}

/// Writes rows of so many values each, by few statements. `before` and `after` stand around them.
async fn insert<T>(
    connection: &mut AnyConnection,
    [before, after]: [&str; 2],
    values: usize,
    mut rows: Vec<T>,
    bind: impl Fn(RowQuery, T) -> RowQuery,
) -> Result<(), BrokerStoreError> {
    while let Some(count) = together(rows.len()) {
        let text = format!("{before} VALUES {}{after}", places(count, values));
        let query = rows.drain(..count).fold(sqlx::query(AssertSqlSafe(text)), &bind);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// A statement, and the values for its places.
type RowQuery = Query<'static, Any, AnyArguments>;

/// Entries of the history that one statement takes away.
const FORGOTTEN_AT_ONCE: usize = 500;

const CONNECTION_CONFLICT: &str = " ON CONFLICT (id) DO UPDATE SET record = excluded.record";

/// Returns how many of so many rows the next statement writes; none of none. Few numbers are
/// possible, so that the database keeps the statements prepared.
fn together(rows: usize) -> Option<usize> {
    [64, 16, 4, 1].into_iter().find(|count| *count <= rows)
}

/// Returns the places of so many rows, each with so many values.
fn places(rows: usize, values: usize) -> String {
    let place = |row: usize| {
        let each = (1..=values).map(|value| format!("${}", row * values + value));
        format!("({})", each.collect::<Vec<_>>().join(", "))
    };
    (0..rows).map(place).collect::<Vec<_>>().join(", ")
}

/// Writes a change of another kind.
async fn write_one(
    change: &RowChange,
    connection: &mut AnyConnection,
) -> Result<(), BrokerStoreError> {
    let query = match change {
        // Written together with others.
        RowChange::PutConnection(_)
        | RowChange::DeleteConnection(_)
        | RowChange::AddHistory(_)
        | RowChange::PutId(_) => return Ok(()),
        RowChange::PutKey(StoredKey { key, request, connection }) => sqlx::query(
            "INSERT INTO request_key (key, request, connection, made) \
             VALUES ($1, $2, $3, (SELECT coalesce(max(made), 0) + 1 FROM request_key)) \
             ON CONFLICT (key) DO UPDATE SET request = excluded.request, \
             connection = excluded.connection, made = excluded.made",
        )
        .bind(key.clone())
        .bind(request_digest(request))
        .bind(connection.clone()),
        RowChange::SetLink { network, link, up } => {
            let text = match up {
                true => "DELETE FROM link_down WHERE network = $1 AND link = $2",
                false => {
                    "INSERT INTO link_down (network, link) VALUES ($1, $2) ON CONFLICT DO NOTHING"
                }
            };
            sqlx::query(text).bind(network.clone()).bind(link.clone())
        }
        RowChange::SetShare(share) => sqlx::query(
            "INSERT INTO share (network, link, share) VALUES ($1, $2, $3) \
             ON CONFLICT (network, link) DO UPDATE SET share = excluded.share",
        )
        .bind(share.network.clone())
        .bind(share.link.clone())
        .bind(serde_json::to_string(share)?),
        RowChange::DropShare { network, link } => {
            sqlx::query("DELETE FROM share WHERE network = $1 AND link = $2")
                .bind(network.clone())
                .bind(link.clone())
        }
        RowChange::Observe(parts) => sqlx::query(
            "INSERT INTO observed (id, parts) VALUES (1, $1) \
             ON CONFLICT (id) DO UPDATE SET parts = excluded.parts",
        )
        .bind(serde_json::to_string(parts)?),
    };
    query.execute(connection).await?;
    Ok(())
}

/// Forgets what is beyond the bounds of the tables that grew.
pub(super) async fn trim(
    changes: &[RowChange],
    connection: &mut AnyConnection,
) -> Result<(), BrokerStoreError> {
    if changes.iter().any(|change| matches!(change, RowChange::PutKey(_))) {
        sqlx::query(
            "DELETE FROM request_key WHERE made <= (SELECT max(made) FROM request_key) - $1",
        )
        .bind(i64::try_from(KEYS_MAX).unwrap_or(i64::MAX))
        .execute(&mut *connection)
        .await?;
    }
    let forgotten = changes.iter().flat_map(|change| match change {
        RowChange::AddHistory(added) => added.forgotten.as_slice(),
        _ => &[],
    });
    let forgotten: Vec<i64> = forgotten.filter_map(|of| i64::try_from(*of).ok()).collect();
    // After an upgrade thousands go at once, which may not be as many statements.
    for chunk in forgotten.chunks(FORGOTTEN_AT_ONCE) {
        let places: Vec<String> = (1..=chunk.len()).map(|place| format!("${place}")).collect();
        let text = format!("DELETE FROM history WHERE number IN ({})", places.join(", "));
        let query = sqlx::query(AssertSqlSafe(text));
        let bound = chunk.iter().fold(query, |query, number| query.bind(*number));
        bound.execute(&mut *connection).await?;
    }
    Ok(())
}
