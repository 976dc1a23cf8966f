// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual routers behind domain 0 as data. The files are in `lab/scenarios/sim`;
//! `docs/simulator.md` has their keys.

use std::fmt::Display;

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_sim::CreditAccounting;
use weir_units::CpuShare;

use crate::reproduce::scenario::{length, maybe_unit, unit};

/// Hosts of virtual routers, and the orderings that must hold between their cases.
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
    /// The time for which a case is measured, in whole seconds.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
    /// The settling and measuring time of a quick run.
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
    /// The likenesses.
    #[serde(rename = "alike", default)]
    pub likenesses: Vec<RouterLikeness>,
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
    /// The number of hosts in a line, each of which has all routers of a case; 1 if it is left out.
    #[serde(default = "one")]
    pub hosts: usize,
    /// The host's version of Xen, on which its accounting depends; 3.4 if it is left out.
    #[serde(default)]
    pub xen: XenVersion,
    /// Processor time of domain 0 to carry a packet up to a router.
    #[serde(deserialize_with = "unit")]
    pub up: Nanos,
    /// Processor time of domain 0 to carry a packet from a router to the wire.
    #[serde(deserialize_with = "unit")]
    pub down: Nanos,
    /// A router's own processor time of a packet.
    #[serde(deserialize_with = "unit")]
    pub cost: Nanos,
    /// The most packets that wait for domain 0 in front of each interface of a router.
    pub queue: usize,
    /// The most packets in each ring of an interface.
    pub ring: usize,
    /// The most bytes of a connection in flight.
    pub window: usize,
    /// The length of the longest IP packet, and of a flood's packets.
    pub mtu: usize,
    /// The round trip without the host.
    #[serde(deserialize_with = "unit")]
    pub round_trip: Nanos,
    /// The time that a lone segment waits for its acknowledgment.
    #[serde(deserialize_with = "unit")]
    pub ack_delay: Nanos,
}

/// The version of Xen, which decides how processor time is accounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum XenVersion {
    /// Xen samples which domain runs.
    #[default]
    #[serde(rename = "3.4")]
    V3_4,
    /// Xen meters how long each domain runs.
    #[serde(rename = "4.1")]
    V4_1,
}

impl XenVersion {
    pub(super) const fn accounting(self) -> CreditAccounting {
        match self {
            Self::V3_4 => CreditAccounting::Sampled,
            Self::V4_1 => CreditAccounting::Metered,
        }
    }
}

/// The model and the bounds of the controllers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterControl {
    /// The text's a.
    pub a: f64,
    /// The text's b, in kp/s per decade of cap.
    pub b: f64,
    /// The poles of the PI controller: the real part, and the imaginary part of either.
    pub poles: Option<[f64; 2]>,
    /// The least cap of a controller that names none.
    #[serde(deserialize_with = "unit")]
    pub cap_min: CpuShare,
    /// The dead zone: errors that leave the cap as it is, in parts per million of the set-point.
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
    /// The least and the greatest rate of all routers together, in kp/s.
    pub aggregate_kpps: Option<[f64; 2]>,
    /// A router's own processor time of a packet, if it differs from the host's.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub cost: Option<Nanos>,
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
    /// The rate at which the router is held, by its cap.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub set_point: Option<PacketRate>,
    /// The controller that holds it.
    #[serde(default)]
    pub controller: RouterController,
    /// True if the controller works as the text describes: it begins at the least cap, remembers
    /// the whole per cent that is in force, and knows nothing of processor time.
    #[serde(default)]
    pub published: bool,
    /// The least cap of its controller.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub cap_min: Option<CpuShare>,
    /// A fixed cap. The set-point is then the rate that this cap is meant to give.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub cap: Option<CpuShare>,
    /// True if the set-point is a limit in front of domain 0 instead.
    #[serde(default)]
    pub early_drop: bool,
}

/// The gains of a router's controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouterController {
    /// Gains that cancel the model's pole.
    #[default]
    DeadBeat,
    /// Gains that place the poles of the scenario.
    Pi,
}

/// A measure that is alike at all places.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterLikeness {
    /// The finding.
    pub text: String,
    /// The measure.
    pub measure: OrderMeasure,
    /// The places, named as in an ordering.
    pub places: Vec<String>,
    /// The most by which the greatest may exceed the least, as a part of the least.
    pub within: f64,
}

/// A measure that falls from place to place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterOrder {
    /// The finding.
    pub text: String,
    /// The measure.
    pub measure: OrderMeasure,
    /// The places, the greatest first: `CASE/ROUTER`, or `CASE` for a measure of all routers. In a
    /// line of hosts, a probe's place is `CASE/HOST`; the number behind the last host is the
    /// receiver's.
    pub falls: Vec<String>,
}

/// The measure of an ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderMeasure {
    /// The packets of data a second of a router.
    Rate,
    /// The mean delay of probes through a router, or in a line until the answer.
    Delay,
    /// The part of a router's packets that is lost.
    Loss,
    /// The part of the probes that is lost.
    ProbeLoss,
    /// The relative RMSE of the rates of a router's seconds.
    Rmse,
    /// The distance of a router's rate from its set-point, as a part of it.
    Off,
    /// The packets of data a second of all routers.
    Aggregate,
    /// The least rate, divided by the greatest.
    MinMax,
}

impl RouterScenario {
    /// Returns the number of places of a case that have a measure: its routers, or for a probe in a
    /// line of hosts those that answer it.
    #[must_use]
    pub const fn places(&self, case: &RouterCase, measure: OrderMeasure) -> usize {
        match measure {
            OrderMeasure::Delay | OrderMeasure::ProbeLoss if self.host.hosts > 1 => {
                self.host.hosts + 1
            }
            _ => case.routers.len(),
        }
    }

    /// Returns the orderings and likenesses of one figure or table of the text, and the cases that
    /// they compare, all of which a quick run has too. Returns `None` if there are none. Their
    /// texts begin with `label`, such as `figure 9`.
    #[must_use]
    pub fn of_figure(&self, label: &str) -> Option<Self> {
        let is_of = |text: &str| text.strip_prefix(label).is_some_and(|rest| rest.starts_with(':'));
        let mut own = self.clone();
        own.orders.retain(|order| is_of(&order.text));
        own.likenesses.retain(|likeness| is_of(&likeness.text));
        let falls = own.orders.iter().flat_map(|order| &order.falls);
        let places = falls.chain(own.likenesses.iter().flat_map(|likeness| &likeness.places));
        let name = |place: &String| place.split('/').next().unwrap_or(place).to_owned();
        let named: Vec<String> = places.map(name).collect();
        own.cases.retain(|case| named.contains(&case.name));
        own.cases.iter_mut().for_each(|case| case.quick = true);
        (!own.cases.is_empty()).then_some(own)
    }

    /// Returns how long a case settles and is measured, in seconds.
    #[must_use]
    pub fn lengths(&self, quick: bool) -> (u64, u64) {
        let (settle, duration) = match quick {
            true => (self.quick.settle, self.quick.duration),
            false => (self.settle, self.duration),
        };
        (settle.as_secs(), duration.as_secs())
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
            Self::Loss | Self::ProbeLoss | Self::Rmse | Self::Off | Self::MinMax => "1",
        }
    }

    /// Returns the least difference between two places that counts as an order.
    pub(super) const fn least_difference(self) -> f64 {
        match self {
            Self::Rate | Self::Aggregate | Self::Delay => 0.1,
            Self::Loss | Self::ProbeLoss | Self::Rmse | Self::Off | Self::MinMax => 0.001,
        }
    }
}

const fn one() -> usize {
    1
}
