// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir top`: what each tenant and vif gets now, against its guarantee.

mod draw;
mod feed;
mod model;
mod screen;
mod text;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use weir_platform::output;
use weir_units::Nanos;

use self::feed::{Feed, FeedMessage};
use self::model::ScreenModel;
use self::screen::Screen;
use crate::node::NodeName;
use weir_platform::failure::{Failure, UsageError};

/// Watch a node live: rates against guarantees, queues, delay, drops. Press ? for its keys.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub(crate) struct Top {
    /// Print one measurement as text and end, for scripts
    #[arg(long)]
    once: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Between two measurements, 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Nanos,
    #[command(flatten)]
    node: NodeName,
}

impl Top {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let interval = Duration::from_nanos(self.interval.as_nanos());
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
            let text = format!("--interval: {} is not 100ms to 60s", self.interval);
            return Err(UsageError(text).into());
        }
        let client = self.node.client()?;
        // What cannot be asked at all is no matter for a screen.
        client.get::<serde_json::Value>("/v1/policy")?;
        let feed = Feed::start(client, interval);
        if !self.once && !self.json {
            Screen::open(interval)?.run(&feed)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut model = ScreenModel::default();
        loop {
            match feed.wait(interval + PATIENCE) {
                Some(FeedMessage::Sample(sample)) => model.take(*sample),
                Some(FeedMessage::Lost(why)) => return Err(why.into()),
                None => return Err("the node says nothing".into()),
            }
            if model.is_measured() {
                break;
            }
        }
        if self.json {
            output::print_own(&model)?;
        } else {
            output::print(&text::page(&model))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

const COLUMNS: &str = "\
OFFERED is all arrivals, early drops included; RATE is the forwarded traffic.
A queue is standing if its delay stayed above 20 ms for the last second.";

/// The shortest interval at which the node sends events.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The longest wait for an answer that is due.
const PATIENCE: Duration = Duration::from_secs(10);
