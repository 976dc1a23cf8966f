// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments with shapers as data: who sends how through which rate. The files are
//! `lab/scenarios/jitter/*.toml`; `docs/reproduce.md` has their keys.

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_sched::SmoothConfig;
use weir_sim::{
    BulkSender, CongestionControl, DiscardingReader, HttpClients, ShapedLink, ShapedPacket,
    ShapedSource, Shaper, TcpConnection, TcpNetwork, TcpSimError, VideoSource, run_shaped,
};
use weir_units::Instant;

use crate::reproduce::scenario::{length, maybe_unit, unit};

/// An experiment with shapers at one rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapedScenario {
    /// A title of one line.
    pub title: String,
    /// The finding of the text.
    pub text: String,
    /// The rate of the shapers.
    #[serde(deserialize_with = "unit")]
    pub rate: BitRate,
    /// Most delay of the smooth windows; their default if absent.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub delay_max: Option<Nanos>,
    /// Length of the run.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
    /// Most spread of the smooth window's delay, in that of Xen's own bucket.
    pub spread_by_xen: f64,
    /// The sender.
    pub sender: ShapedSender,
}

/// A sender through a shaper.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ShapedSender {
    /// Video over RTP.
    Video {
        /// Its rate.
        #[serde(deserialize_with = "unit")]
        rate: BitRate,
    },
    /// A web server whose clients ask again as soon as they have their answer.
    Web {
        /// Length of the file.
        bytes: u32,
        /// Clients at work.
        clients: u32,
    },
    /// A connection that sends as much as it can.
    Bulk {
        /// `reno` or `cubic`.
        control: BulkControl,
        /// Bytes that it may have under way: its socket buffer.
        #[serde(deserialize_with = "unit")]
        window: ByteCount,
    },
}

/// The congestion control of a bulk sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkControl {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

/// The scenarios, each with its name.
pub const SHAPED: [(&str, &str); 5] = [
    ("rtp-85", include_str!("../../../scenarios/jitter/rtp-85.toml")),
    ("rtp-100", include_str!("../../../scenarios/jitter/rtp-100.toml")),
    ("http-8k", include_str!("../../../scenarios/jitter/http-8k.toml")),
    ("http-16k", include_str!("../../../scenarios/jitter/http-16k.toml")),
    ("reno", include_str!("../../../scenarios/jitter/reno.toml")),
];

impl ShapedScenario {
    /// The scenario of that name.
    ///
    /// # Errors
    /// There is none, or its file is wrong.
    pub fn named(name: &str) -> Result<Self> {
        let problem = |what: String| ExperimentError::Scenario { name: name.to_owned(), what };
        let (_, text) = SHAPED.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let names = SHAPED.map(|(name, _)| name).join(", ");
            problem(format!("there are {names}"))
        })?;
        toml::from_str(text).map_err(|error| problem(error.to_string()))
    }

    /// The smooth window of this rate.
    pub(super) fn smooth(&self) -> SmoothConfig {
        let config = SmoothConfig::new(self.rate);
        SmoothConfig { delay_max: self.delay_max.unwrap_or(config.delay_max), ..config }
    }

    /// The end of the run.
    pub(super) fn end(&self) -> Instant {
        let length = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        Instant::ZERO + Nanos::new(length)
    }

    /// Sends through a shaper until the end. A web server's clients go on until then: the text's
    /// requests take that long.
    pub(super) fn run(&self, mut shaper: Box<dyn Shaper>) -> Result<Vec<ShapedPacket>> {
        let mut source: Box<dyn ShapedSource> = match self.sender {
            ShapedSender::Video { rate } => Box::new(VideoSource::new(rate, Instant::ZERO)),
            ShapedSender::Web { bytes, clients } => {
                let steps = vec![(Instant::ZERO, clients)];
                Box::new(HttpClients::new(bytes, ROUND_TRIP, steps, u64::MAX))
            }
            ShapedSender::Bulk { control, window } => {
                return bulk(shaper, (control, window), self.end());
            }
        };
        Ok(run_shaped(&mut *shaper, &mut *source, self.end()))
    }

    /// Tells whether the sender takes whatever it can get. What clients ask for follows from what
    /// they got, so that no rate can be judged by what arrived.
    pub(super) const fn is_greedy(&self) -> bool {
        matches!(self.sender, ShapedSender::Bulk { .. } | ShapedSender::Web { .. })
    }
}

/// Sends as much as one connection can through a shaper.
fn bulk(
    shaper: Box<dyn Shaper>,
    (control, window): (BulkControl, ByteCount),
    end: Instant,
) -> Result<Vec<ShapedPacket>> {
    let connection = TcpConnection {
        control: match control {
            BulkControl::Reno => CongestionControl::Reno,
            BulkControl::Cubic => CongestionControl::Cubic,
        },
        window: usize::try_from(window.get()).unwrap_or(usize::MAX),
        round_trip: ROUND_TRIP,
        client: Box::new(BulkSender { start: Instant::ZERO }),
        server: Box::new(DiscardingReader),
    };
    let failed = |error: TcpSimError| ExperimentError::Node(error.to_string());
    let link = ShapedLink::new(shaper);
    let mut network = TcpNetwork::new(link, vec![connection], Vec::new(), 1).map_err(failed)?;
    network.run(end, &mut |_, _, _| ()).map_err(failed)?;
    Ok(network.bottleneck.packets().to_vec())
}

/// A network of one switch, and the server's own work.
pub(super) const ROUND_TRIP: Nanos = Nanos::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_read() {
        for (name, _) in SHAPED {
            let scenario = ShapedScenario::named(name).unwrap();
            assert!(scenario.end() > Instant::ZERO && scenario.spread_by_xen < 1.0, "{name}");
        }
        assert!(ShapedScenario::named("none").unwrap_err().to_string().contains("http-16k"));
    }
}
