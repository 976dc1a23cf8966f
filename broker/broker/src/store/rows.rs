// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of rows, as they are written and as other brokers read them.

use serde::{Deserialize, Serialize};
use sqlx::AnyConnection;
use weir_broker_api_types::HistoryEntry;
use weir_network::ConnectionId;

use super::fault::BrokerStoreError;
use crate::history::HISTORY_MAX;
use crate::ids::{StoredId, id_text};
use crate::record::{ObservedParts, StoredConnection, StoredKey, StoredShare};
use crate::state::KEYS_MAX;

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
    /// Adds an entry to the history, and forgets the oldest beyond the bound.
    AddHistory(Box<HistoryEntry>),
    /// Says what the broker that configures routers sees of them.
    Observe(Box<ObservedParts>),
}

/// Writes a change.
pub(super) async fn write(
    change: &RowChange,
    connection: &mut AnyConnection,
) -> Result<(), BrokerStoreError> {
    let query = match change {
        RowChange::PutConnection(row) => sqlx::query(
            "INSERT INTO connection (id, record) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET record = excluded.record",
        )
        .bind(id_text(row.connection.id))
        .bind(serde_json::to_string(row)?),
        RowChange::DeleteConnection(id) => {
            sqlx::query("DELETE FROM connection WHERE id = $1").bind(id_text(*id))
        }
        RowChange::PutKey(StoredKey { key, request, connection }) => sqlx::query(
            "INSERT INTO request_key (key, request, connection, made) \
             VALUES ($1, $2, $3, (SELECT coalesce(max(made), 0) + 1 FROM request_key)) \
             ON CONFLICT (key) DO UPDATE SET request = excluded.request, \
             connection = excluded.connection, made = excluded.made",
        )
        .bind(key.clone())
        .bind(request.clone())
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
        RowChange::AddHistory(entry) => {
            sqlx::query("INSERT INTO history (number, entry) VALUES ($1, $2)")
                .bind(i64::try_from(entry.number).unwrap_or(i64::MAX))
                .bind(serde_json::to_string(entry)?)
        }
        RowChange::PutId(StoredId { kind, name, id }) => {
            sqlx::query("INSERT INTO name (kind, name, id) VALUES ($1, $2, $3)")
                .bind(kind.clone())
                .bind(name.clone())
                .bind(i64::from(*id))
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
    let newest = changes.iter().filter_map(|change| match change {
        RowChange::AddHistory(entry) => i64::try_from(entry.number).ok(),
        _ => None,
    });
    if let Some(newest) = newest.max() {
        sqlx::query("DELETE FROM history WHERE number <= $1")
            .bind(newest - i64::try_from(HISTORY_MAX).unwrap_or_default())
            .execute(connection)
            .await?;
    }
    Ok(())
}
