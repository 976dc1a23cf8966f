// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listens to a node's events on a thread of its own, and comes back when the node does.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use weir_api::client::{Client, EventStream};
use weir_node::status::Status;

use super::model::{Granted, Sample};

/// What comes of a node.
#[derive(Debug)]
pub(super) struct Feed {
    news: Receiver<News>,
}

/// What a node says, or that it says nothing any more.
#[derive(Debug)]
pub(super) enum News {
    Sample(Box<Sample>),
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

    /// What has come, if anything has.
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
    let mut granted: Granted = client.get("/v1/policy").map_err(|error| lost(&error))?;
    let mut asked = Instant::now();
    loop {
        let Some(status) = status(&mut events, interval)? else { continue };
        // A change of policy is no part of a status: vifs show it at once, rates a moment later.
        if asked.elapsed() >= POLICY_AGE_MAX || !granted.knows(&status) {
            granted = client.get("/v1/policy").map_err(|error| lost(&error))?;
            asked = Instant::now();
        }
        let sample = Sample { status, granted: granted.clone() };
        tell.send(News::Sample(Box::new(sample))).map_err(|_| Ended::Unheard)?;
    }
}

/// The next event, if it is a status.
fn status(events: &mut EventStream, interval: Duration) -> Result<Option<Status>, Ended> {
    match events.event(interval + SILENCE_MAX) {
        Ok(Some(event)) if event.name == "status" => serde_json::from_str(&event.data)
            .map(Some)
            .map_err(|error| Ended::Lost(format!("a status that is none: {error}"))),
        Ok(Some(_)) => Ok(None),
        Ok(None) => Err(Ended::Lost("the node has ended the connection".to_owned())),
        Err(error) => Err(Ended::Lost(error.to_string())),
    }
}

/// Samples that wait to be drawn; whoever sends more waits, too.
const NEWS_MAX: usize = 4;
/// Between two attempts to find a node again.
const AGAIN: Duration = Duration::from_secs(1);
/// How old the guarantees on the screen may be.
const POLICY_AGE_MAX: Duration = Duration::from_secs(2);
/// A node that is late by that much is not there.
const SILENCE_MAX: Duration = Duration::from_secs(5);
