// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments with shapers as data: who sends how through which rate. The files are
//! `lab/scenarios/jitter/*.toml`; `docs/reproduce.md` has their keys.

use std::ops::RangeInclusive;

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_sched::SmoothConfig;
use weir_sim::{
    BulkSender, CongestionControl, DiscardingReader, HttpClients, ShapedLink, ShapedPacket,
    ShapedSource, Shaper, TcpConnection, TcpNetwork, TcpSimError, VideoSource, run_shaped,
};
use weir_units::Instant;

use crate::checks::{RATES, accept, outside, outside_by};
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
        let (_, text) = SHAPED.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let what = format!("there are {}", SHAPED.map(|(name, _)| name).join(", "));
            ExperimentError::Scenario { name: name.to_owned(), what }
        })?;
        Self::parse(name, text)
    }

    /// Reads a scenario; `name` is for errors.
    ///
    /// # Errors
    /// It is none, or a value in it is out of bounds.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let problem = |what: String| ExperimentError::Scenario { name: name.to_owned(), what };
        let scenario: Self = toml::from_str(text).map_err(|error| problem(error.to_string()))?;
        scenario.check().map_err(problem)?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        let Self { rate, delay_max, duration, spread_by_xen, ref sender, .. } = *self;
        accept(outside("rate", rate, RATES))?;
        accept(delay_max.and_then(|most| outside("delay_max", most, DELAYS)))?;
        accept(outside_by("duration", duration, DURATIONS))?;
        if !(spread_by_xen > 0.0 && spread_by_xen <= 1.0) {
            return Err(format!("spread_by_xen is {spread_by_xen}; above 0, to 1"));
        }
        sender.check().map_err(|what| format!("sender: {what}"))?;
        let offered = match *sender {
            ShapedSender::Video { rate: offered } => rate.max(offered),
            ShapedSender::Web { .. } | ShapedSender::Bulk { .. } => rate,
        };
        let length = Nanos::new(weir_experiment::clock::nanos(duration));
        let bytes = offered.bytes_in_floor(length);
        accept(outside("bytes at the greatest rate within duration", bytes, BYTES))
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

impl ShapedSender {
    fn check(&self) -> Result<(), String> {
        match *self {
            Self::Video { rate } => accept(outside("rate", rate, RATES)),
            Self::Web { bytes, clients } => {
                accept(outside("bytes", bytes, 1..=HttpClients::FILE_MAX))?;
                accept(outside("clients", clients, CLIENTS))
            }
            Self::Bulk { window, .. } => accept(outside("window", window, WINDOWS)),
        }
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

/// Windows of 2 s are judged after the first 6 s; an hour is more than any text ran.
const DURATIONS: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(3600);

/// Shapers without a window hold packets for 5 s, too.
const DELAYS: RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(5);

/// Each packet of a run is kept: these are less than three million of a video's.
const BYTES: RangeInclusive<ByteCount> = ByteCount::ZERO..=ByteCount::new(4_000_000_000);

/// Clients of a web server. Each has 256 places for segments.
const CLIENTS: RangeInclusive<u32> = 1..=1024;

/// A segment at least, so that a byte is not a packet; the most is that of a simulated connection.
const WINDOWS: RangeInclusive<ByteCount> =
    ByteCount::new(1_460)..=ByteCount::new(TcpConnection::WINDOW as u64);

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

    /// Goal: a value that a run could only ignore, divide by or run out of memory of is refused by
    /// thing, value and bound.
    #[test]
    fn values_out_of_bounds_are_refused() {
        for (name, from, to, expected) in [
            ("rtp-85", "rate = \"2Mbit\"", "rate = \"0bit\"", "rate is 0bit; 12kbit to 1000Gbit"),
            ("rtp-85", "\"1700kbit\"", "\"0bit\"", "sender: rate is 0bit; 12kbit to 1000Gbit"),
            ("rtp-85", "\"120s\"", "\"6s\"", "duration is 6s; 10s to 3600s"),
            ("rtp-85", "\"120s\"", "\"36000s\"", "duration is 36000s; 10s to 3600s"),
            ("rtp-85", "\"1700kbit\"", "\"10Gbit\"", "within duration is 150000MB; 0B to 4000MB"),
            ("rtp-85", "= 0.1", "= nan", "spread_by_xen is NaN; above 0, to 1"),
            ("rtp-85", "= 0.1", "= 0", "spread_by_xen"),
            ("rtp-85", "= 0.1", "= 0.1\ncredit = \"1s\"", "unknown field `credit`"),
            ("rtp-85", "\"video\"", "\"radio\"", "radio"),
            ("http-8k", "bytes = 8192", "bytes = 0", "sender: bytes is 0; 1 to 370438"),
            ("http-8k", "8192", "4294967295", "sender: bytes is 4294967295; 1 to 370438"),
            ("http-8k", "clients = 1", "clients = 0", "sender: clients is 0; 1 to 1024"),
            ("http-8k", "clients = 1", "clients = 4000000000", "clients is 4000000000; 1 to 1024"),
            ("reno", "\"64KiB\"", "\"0B\"", "sender: window is 0B; 1460B to 4MiB"),
            ("reno", "\"64KiB\"", "\"1000MB\"", "sender: window is 1000MB; 1460B to 4MiB"),
            ("reno", "\"1s\"", "\"0s\"", "delay_max is 0"),
            ("reno", "\"1s\"", "\"9s\"", "delay_max is 9s; 1ms to 5s"),
        ] {
            let (_, text) = SHAPED.iter().find(|(known, _)| *known == name).unwrap();
            assert!(text.contains(from), "{name} has no {from:?} to replace");
            let wrong = ShapedScenario::parse("own.toml", &text.replacen(from, to, 1));
            let said = wrong.unwrap_err().to_string();
            assert!(said.contains("own.toml") && said.contains(expected), "{to}: {said}");
        }
    }
}
