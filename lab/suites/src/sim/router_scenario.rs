// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual routers behind domain 0 as data. The file is `lab/scenarios/sim/virtual-routers.toml`;
//! `docs/simulator.md` has its keys.

use std::fmt::Display;

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_sim::TcpConnection;
use weir_units::CpuShare;

use crate::reproduce::scenario::{length, maybe_unit, unit};

/// Hosts of virtual routers, and the orderings that are to hold between them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterScenario {
    /// A title of one line.
    pub title: String,
    /// The finding of the text.
    pub text: String,
    /// The time before a case is measured, in whole seconds.
    #[serde(deserialize_with = "length")]
    pub settle: Duration,
    /// The time for which it is measured, in whole seconds.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
    /// Both of a quick run.
    pub quick: RouterLengths,
    /// The host of all cases.
    pub host: RouterHostSpec,
    /// The controller of routers with a set-point.
    pub control: RouterControl,
    /// The cases.
    #[serde(rename = "case")]
    pub cases: Vec<RouterCase>,
    /// The orderings.
    #[serde(rename = "order", default)]
    pub orders: Vec<RouterOrder>,
}

/// The lengths of a quick run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterLengths {
    /// The time before a case is measured.
    #[serde(deserialize_with = "length")]
    pub settle: Duration,
    /// The time for which it is measured.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
}

/// A host of virtual routers, and the path of its connections.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterHostSpec {
    /// Processor time of domain 0 to carry a packet up to a router.
    #[serde(deserialize_with = "unit")]
    pub up: Nanos,
    /// Processor time of domain 0 to carry a packet from a router to the wire.
    #[serde(deserialize_with = "unit")]
    pub down: Nanos,
    /// A router's own processor time of a packet.
    #[serde(deserialize_with = "unit")]
    pub cost: Nanos,
    /// Packets that wait for domain 0 in front of each router.
    pub queue: usize,
    /// Packets in each of a router's rings.
    pub ring: usize,
    /// Most bytes under way of a connection.
    pub window: usize,
    /// The length of the longest IP packet, and of those of a flood.
    pub mtu: usize,
    /// The round trip without the host.
    #[serde(deserialize_with = "unit")]
    pub round_trip: Nanos,
    /// The time that a lone segment waits for its acknowledgment.
    #[serde(deserialize_with = "unit")]
    pub ack_delay: Nanos,
}

/// The model and the bounds of the dead-beat controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterControl {
    /// The text's a.
    pub a: f64,
    /// The text's b, in kp/s per decade of cap.
    pub b: f64,
    /// The least cap.
    #[serde(deserialize_with = "unit")]
    pub cap_min: CpuShare,
    /// Errors that move nothing, in parts per million of the set-point.
    pub dead_zone_ppm: u32,
}

/// Routers on a host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterCase {
    /// Its name, for orderings and series.
    pub name: String,
    /// True if a quick run has it too.
    #[serde(default)]
    pub quick: bool,
    /// The least and the most of all routers together, in kp/s.
    pub aggregate_kpps: Option<[f64; 2]>,
    /// The routers.
    #[serde(rename = "router")]
    pub routers: Vec<RoutedLoad>,
}

/// A router and what goes through it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutedLoad {
    /// TCP connections that send as much as they can.
    #[serde(default)]
    pub tcp: usize,
    /// The rate of a flood.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub udp: Option<PacketRate>,
    /// The rate that it is held at, by its cap.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub set_point: Option<PacketRate>,
    /// True if the set-point is a limit in front of domain 0 instead.
    #[serde(default)]
    pub early_drop: bool,
}

/// A measure that falls from place to place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterOrder {
    /// The finding.
    pub text: String,
    /// The measure.
    pub measure: OrderMeasure,
    /// The places, the greatest first: `CASE/ROUTER`, or `CASE` for a measure of all routers.
    pub falls: Vec<String>,
}

/// The measure of an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderMeasure {
    /// The packets of data a second of a router.
    Rate,
    /// The mean delay of probes through a router.
    Delay,
    /// The part of a router's packets that is lost.
    Loss,
    /// The packets of data a second of all routers.
    Aggregate,
    /// The least rate by the greatest.
    MinMax,
}

impl RouterScenario {
    /// Reads a scenario; `file` is for errors.
    ///
    /// # Errors
    /// It is none, or an ordering names no router of a case.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let wrong = |what: String| ExperimentError::Scenario { name: file.to_owned(), what };
        let scenario: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        for order in &scenario.orders {
            for place in &order.falls {
                let (case, router) = place.split_once('/').unwrap_or((place, "0"));
                let of = scenario.cases.iter().find(|one| one.name == case);
                let router = router.parse::<usize>().ok();
                if of.zip(router).is_none_or(|(of, at)| at >= of.routers.len()) {
                    return Err(wrong(format!("order.falls: {place:?} is no router of a case")));
                }
            }
        }
        let mut loads = scenario.cases.iter().flat_map(|case| &case.routers);
        if loads.any(|load| load.early_drop && load.set_point.is_none()) {
            return Err(wrong("case.router.early_drop: it needs a set_point".to_owned()));
        }
        scenario.check_sizes().map_err(wrong)?;
        Ok(scenario)
    }

    /// Checks what memory depends on.
    fn check_sizes(&self) -> std::result::Result<(), String> {
        let RouterHostSpec { queue, ring, window, mtu, .. } = self.host;
        let within = |key: &str, value: usize, least: usize, most: usize| {
            let holds = (least..=most).contains(&value);
            holds.then_some(()).ok_or_else(|| format!("{key}: {value}, may be {least} to {most}"))
        };
        within("host.queue", queue, 1, PLACES_MAX)?;
        within("host.ring", ring, 1, PLACES_MAX)?;
        within("host.window", window, 1, TcpConnection::WINDOW)?;
        within("host.mtu", mtu, MTU_LEAST, MTU_MAX)?;
        for case in &self.cases {
            let tcp = case.routers.iter().fold(0_usize, |sum, load| sum.saturating_add(load.tcp));
            within(&format!("case {}: tcp of all routers", case.name), tcp, 0, CONNECTIONS_MAX)?;
        }
        Ok(())
    }

    /// Returns how long a case settles and is measured, in seconds, at least 1 each.
    #[must_use]
    pub fn lengths(&self, quick: bool) -> (u64, u64) {
        let (settle, duration) = match quick {
            true => (self.quick.settle, self.quick.duration),
            false => (self.settle, self.duration),
        };
        (settle.as_secs().max(1), duration.as_secs().max(1))
    }

    pub(super) fn wrong(&self, place: &str, error: &(impl Display + ?Sized)) -> ExperimentError {
        let what = format!("{place}: {error}");
        ExperimentError::Scenario { name: self.title.clone(), what }
    }
}

impl OrderMeasure {
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Rate | Self::Aggregate => "kp/s",
            Self::Delay => "ms",
            Self::Loss | Self::MinMax => "1",
        }
    }

    /// Returns the least difference between two places that is an order.
    pub(super) const fn least_difference(self) -> f64 {
        match self {
            Self::Rate | Self::Aggregate | Self::Delay => 0.1,
            Self::Loss | Self::MinMax => 0.001,
        }
    }
}

/// Places of a queue or a ring, at most.
const PLACES_MAX: usize = 65_536;
/// The least that an IPv4 host must take (RFC 791).
const MTU_LEAST: usize = 68;
/// A jumbo frame.
const MTU_MAX: usize = 9000;
/// Connections of a case, at most: those of a `TcpNetwork`.
const CONNECTIONS_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../scenarios/sim/virtual-routers.toml");

    #[test]
    fn what_is_wrong_is_named() {
        let why = |from: &str, to: &str| {
            RouterScenario::parse("x.toml", &TEXT.replace(from, to)).unwrap_err().to_string()
        };
        assert!(RouterScenario::parse("x.toml", TEXT).is_ok());
        let text = why("\"b/3\"]", "\"b/6\"]");
        assert!(text.contains("order.falls: \"b/6\" is no router of a case"), "{text}");
        let text = why("set_point = \"20kpps\", early", "early");
        assert!(text.contains("early_drop: it needs a set_point"), "{text}");
        assert!(why("queue = 256", "queues = 256").contains("queues"));
        let text = why("mtu = 510", "mtu = 65536");
        assert!(text.contains("host.mtu: 65536, may be 68 to 9000"), "{text}");
        let text = why("{ tcp = 4 }", "{ tcp = 120 }");
        assert!(text.contains("tcp of all routers: 121, may be 0 to 120"), "{text}");
    }
}
