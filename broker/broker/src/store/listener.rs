// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Word of commits: a broker tells the others that there is something to read.
//!
//! Whoever misses it looks at the regular interval.

use std::sync::Arc;
use std::time::Duration;

use sqlx::AnyConnection;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::Notify;

/// Tells the others, once the transaction is committed.
pub(super) async fn tell(holder: &str, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let told = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(holder.to_owned());
    told.execute(connection).await?;
    Ok(())
}

/// Wakes `changed` whenever another broker than `holder` has committed, for as long as the process
/// lives.
pub(crate) async fn listen(url: String, holder: String, changed: Arc<Notify>) {
    loop {
        // A fault is in what the writer says of the store.
        let _lost = hear(&url, &holder, &changed).await;
        tokio::time::sleep(RETRY).await;
    }
}

async fn hear(url: &str, holder: &str, changed: &Notify) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy(url)?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    // Something may have been said before.
    changed.notify_one();
    while let Some(word) = listener.try_recv().await? {
        if word.payload() != holder {
            changed.notify_one();
        }
    }
    Ok(())
}

const CHANNEL: &str = "weir_change";

const RETRY: Duration = Duration::from_millis(200);
