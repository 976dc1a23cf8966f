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
    news: Receiver<FeedMessage>,
}

/// A message of the node, or the reason why there are no more.
#[derive(Debug)]
pub(super) enum FeedMessage {
    Sample(Box<StatusSample>),
    Lost(String),
}

impl Feed {
    /// Listens until this value is dropped.
    pub(super) fn start(client: Client, interval: Duration) -> Self {
        let (tell, news) = sync_channel(MESSAGES_MAX);
        std::thread::spawn(move || {
            // Ends with the receiver.
            while let Err(FeedEnd::Lost(why)) = listen(&client, interval, &tell) {
                if tell.send(FeedMessage::Lost(why)).is_err() {
                    return;
                }
                std::thread::sleep(AGAIN);
            }
        });
        Self { news }
    }

    /// Returns the next message, if one has come.
    pub(super) fn next(&self) -> Option<FeedMessage> {
        self.news.try_recv().ok()
    }

    /// Waits for the next message, at most that long.
    pub(super) fn wait(&self, patience: Duration) -> Option<FeedMessage> {
        self.news.recv_timeout(patience).ok()
    }
}

/// The reason why the feed ended.
enum FeedEnd {
    /// The receiver was dropped.
    ReceiverGone,
    Lost(String),
}

fn listen(
    client: &Client,
    interval: Duration,
    tell: &SyncSender<FeedMessage>,
) -> Result<(), FeedEnd> {
    let lost = |error: &dyn std::fmt::Display| FeedEnd::Lost(error.to_string());
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
                tell.send(FeedMessage::Sample(Box::new(sample)))
                    .map_err(|_| FeedEnd::ReceiverGone)?;
            }
            // What a later node may say, too.
            _ => {}
        }
    }
}

fn read<T: DeserializeOwned>(event: &ServerEvent) -> Result<T, FeedEnd> {
    let wrong = |error| FeedEnd::Lost(format!("event {:?} cannot be read: {error}", event.name));
    serde_json::from_str(&event.data).map_err(wrong)
}

/// Most messages that are not drawn yet; with more, the sender waits.
const MESSAGES_MAX: usize = 4;
/// The pause between two attempts to find a node again.
const AGAIN: Duration = Duration::from_secs(1);
/// A node that is late by this much counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(5);
