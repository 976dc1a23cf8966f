// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens to a node's events on a thread of its own, and comes back when the node does.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use serde::de::DeserializeOwned;
use weir_client::{Client, ServerEvent};

use super::model::{GrantedRates, StatusSample};

/// The messages of a node, read by a thread of its own.
#[derive(Debug)]
pub(super) struct Feed {
    news: Receiver<News>,
}

/// A message of the node, or the reason why there are no more.
#[derive(Debug)]
pub(super) enum News {
    Sample(Box<StatusSample>),
    Lost(String),
}

impl Feed {
    /// Listens until this value is dropped.
    pub(super) fn start(client: Client, interval: Duration) -> Self {
        let (tell, news) = sync_channel(NEWS_MAX);
        std::thread::spawn(move || {
            // Ends with the receiver.
            while let Err(Ended::Lost(why)) = listen(&client, interval, &tell) {
                if tell.send(News::Lost(why)).is_err() {
                    return;
                }
                std::thread::sleep(AGAIN);
            }
        });
        Self { news }
    }

    /// Returns the next message, if one has come.
    pub(super) fn next(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Waits for what comes, at most that long.
    pub(super) fn wait(&self, patience: Duration) -> Option<News> {
        self.news.recv_timeout(patience).ok()
    }
}

/// Why nothing more is heard.
enum Ended {
    /// Nobody is told any more.
    Unheard,
    Lost(String),
}

fn listen(client: &Client, interval: Duration, tell: &SyncSender<News>) -> Result<(), Ended> {
    let lost = |error: &dyn std::fmt::Display| Ended::Lost(error.to_string());
    let path = format!("/v1/events?interval_ms={}", interval.as_millis());
    let mut events = client.events(&path).map_err(|error| lost(&error))?;
    let mut granted = GrantedRates::default();
    loop {
        let event = events.event(interval + SILENCE_MAX).map_err(|error| lost(&error))?;
        let event = event.ok_or_else(|| lost(&"the node has ended the connection"))?;
        match event.name.as_str() {
            "policy" => granted = read(&event)?,
            "status" => {
                let sample = StatusSample { status: read(&event)?, granted: granted.clone() };
                tell.send(News::Sample(Box::new(sample))).map_err(|_| Ended::Unheard)?;
            }
            // What a later node may say, too.
            _ => {}
        }
    }
}

fn read<T: DeserializeOwned>(event: &ServerEvent) -> Result<T, Ended> {
    let wrong = |error| Ended::Lost(format!("a {} that is none: {error}", event.name));
    serde_json::from_str(&event.data).map_err(wrong)
}

/// Samples that wait to be drawn; whoever sends more waits, too.
const NEWS_MAX: usize = 4;
/// Between two attempts to find a node again.
const AGAIN: Duration = Duration::from_secs(1);
/// A node that is late by that much is not there.
const SILENCE_MAX: Duration = Duration::from_secs(5);
