// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control of routers that a node holds at a packet rate: the policy's part, not the loop.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{CpuShare, Nanos, PacketRate};

use crate::bounds::SECOND;
use crate::decimal::Decimal;
use crate::format::{Factor, Text};

/// The settings for all routers that are held at a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xtc {
    /// True to decide and log only, without changes on the host.
    pub dry_run: bool,
    /// Share the node's capacity among routers without a set-point while they contend for it, and
    /// restrict those that do not yield.
    pub police: bool,
    /// Time for which the last cap stays while the meter or the actuator fails.
    pub release_after: Nanos,
    /// Decisions kept of each router, 1 to 10 000.
    pub log: u32,
    /// A rate above any router of this node; a higher reading is a fault of the meter.
    pub rate_most: PacketRate,
}

/// The control of one router that is held at a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterXtc {
    /// The set-point; `None` while the state is off, or where the node shares its capacity.
    pub set_point: Option<PacketRate>,
    /// The state of the control.
    pub state: XtcState,
    /// The controller.
    pub controller: ControllerKind,
    /// The sampling period, 10 ms to 1 s.
    pub period: Nanos,
    /// The actuator of the cap.
    pub actuator: ActuatorKind,
    /// The least cap; `None`: the actuator's.
    pub cap_min: Option<CpuShare>,
    /// The largest cap; `None`: the actuator's.
    pub cap_max: Option<CpuShare>,
    /// Errors that do not move the cap, in thousandths; `None`: the controller's own dead zone.
    pub dead_zone: Option<u32>,
    /// The process that is the router: its id, or the path of a file with it.
    pub process: Option<String>,
    /// The router's control group, if somebody else made it.
    pub group: Option<String>,
    /// The router's network namespace; `None`: the node's.
    pub namespace: Option<String>,
    /// The guest, as Xen knows it.
    pub domain: Option<String>,
    /// The router's interfaces, if they are no vifs of this node, or have threads to cap.
    pub interfaces: Vec<Interface>,
    /// The model for which published controllers are designed.
    pub model: Option<RouterModel>,
    /// The settling time of the published PI, in samples.
    pub settling: u32,
    /// The overshoot of the published PI, in thousandths of a step.
    pub overshoot: u32,
    /// The map of the fixed controller: rising rates, and the caps that gave them.
    pub map: Vec<(PacketRate, CpuShare)>,
}

/// An interface of a router, by its devices in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The host's end.
    pub device: String,
    /// The router's end, in its namespace.
    pub inside: Option<String>,
}

/// A first-order model, y(k+1) = a·y(k) + b·u(k): y is the rate in thousand packets a second, u
/// the log10 of the cap in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterModel {
    /// The part of a rate that remains after one sample, above −1 and below 1.
    pub a: Decimal,
    /// Thousand packets a second that one decade of cap adds within one sample, above 0.
    pub b: Decimal,
}

/// The state of a router's control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "control-state")]
pub enum XtcState {
    /// The router is held at its rate.
    #[default]
    Active,
    /// The last cap and the limit stay as they are.
    Paused,
    /// The router has neither cap nor limit.
    Off,
}

/// The controller of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerKind {
    /// A limit at ingress holds the rate, and the cap is a ceiling above it. Needs a vif of this
    /// node.
    Combined,
    /// The cap alone, computed from the CPU time that a packet takes.
    FeedForward,
    /// The published PI: poles from `settling` and `overshoot`, for a `model`.
    Pi,
    /// The published dead-beat controller, for a `model`.
    DeadBeat,
    /// A PI whose `model` is learned; the given one is the first estimate.
    SelfTuning,
    /// A `map` from rate to cap, and no feedback.
    Fixed,
}

/// The actuator of a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActuatorKind {
    /// The quota of a control group: of a `process`, which gets a group of its own, or of a
    /// `group`.
    Cgroup,
    /// Deadline budgets of the threads that serve the router's interfaces.
    Napi,
    /// The cap of a guest of Xen, its `domain`.
    Xl,
    /// No cap: the limit at ingress alone.
    None,
}

/// Settings for all routers that are held at a packet rate.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "xtc")]
pub(crate) struct XtcTable {
    /// Decide and log, and change nothing on the host.
    #[schemars(extend("default" = false))]
    dry_run: Option<bool>,
    /// Share the node's `capacity` among routers without a `set_point` while they contend for it,
    /// by `receive.min_pps`, `max_pps`, `priority` and use. Routers that do not yield get early
    /// drops, then a lower set-point, and are stopped at last.
    #[schemars(extend("default" = false))]
    police: Option<bool>,
    /// Time for which the last cap of a router stays while its meter or actuator fails. Then the
    /// cap is taken away, and set again when the fault is over.
    #[schemars(extend("default" = RELEASE_AFTER.to_string()))]
    #[schemars(extend("x-minimum" = SECOND / 10, "x-maximum" = 3600 * SECOND))]
    release_after: Option<Text<Nanos>>,
    /// Decisions of each router that are kept in memory; of all routers at most 2 500 000.
    #[schemars(range(min = 1, max = 10_000), extend("default" = LOG))]
    log: Option<u32>,
    /// A rate above any router of this node; a higher reading is a fault of the meter.
    #[schemars(extend("default" = RATE_MOST.to_string()))]
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = RATE_MOST.as_pps()))]
    rate_most: Option<Text<PacketRate>>,
}

/// The control of a router that is held at a packet rate under any load: see `xtc.md`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "router-xtc")]
pub(crate) struct RouterXtcTable {
    /// The set-point, within `receive.min_pps` and `receive.max_pps` of the router.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = RATE_MOST.as_pps()))]
    #[schemars(extend("x-default" = "none: `xtc.police` shares, or `state` must be \"off\""))]
    set_point: Option<Text<PacketRate>>,
    /// The state of the control.
    #[schemars(extend("default" = "active"))]
    state: Option<XtcState>,
    /// The controller.
    #[schemars(extend("default" = "combined"))]
    controller: Option<ControllerKind>,
    /// The sampling period: at least three periods of the actuator.
    #[schemars(extend("default" = PERIOD.to_string()))]
    #[schemars(extend("x-minimum" = SECOND / 100, "x-maximum" = SECOND))]
    period: Option<Text<Nanos>>,
    /// The actuator of the cap.
    #[schemars(required)]
    actuator: Option<ActuatorKind>,
    /// The least cap.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = SHARE_MOST))]
    #[schemars(extend("x-default" = "the actuator's"))]
    cap_min: Option<Text<CpuShare>>,
    /// The largest cap.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = SHARE_MOST))]
    #[schemars(extend("x-default" = "the actuator's"))]
    cap_max: Option<Text<CpuShare>>,
    /// Errors that do not move the cap, as a part of the set-point: a larger zone saves calls and
    /// costs precision.
    #[schemars(range(min = 0, max = 1), extend("x-default" = "the controller's"))]
    dead_zone: Option<Factor>,
    /// The process that is the router: its id, or the path of a file with its id, which is read
    /// again when the process is gone. For `cgroup`.
    #[schemars(extend("format" = "process", "x-default" = "none"))]
    process: Option<String>,
    /// The path of the router's control group, if somebody else made it. For `cgroup`.
    #[schemars(extend("format" = "path", "x-default" = "none"))]
    group: Option<String>,
    /// The router's network namespace, by its name in `ip netns`. For `napi`.
    #[schemars(extend("format" = "name", "x-default" = "the node's"))]
    namespace: Option<String>,
    /// The guest, by its name in `xl list`. For `xl`.
    #[schemars(extend("format" = "guest", "x-default" = "none"))]
    domain: Option<String>,
    /// The router's interfaces, if they are no vifs of this node: the kernel counts their packets.
    /// `napi` caps the threads of those with an `inside`.
    #[schemars(length(max = INTERFACES_MAX))]
    interface: Option<Vec<InterfaceTable>>,
    /// The model for which `pi` and `dead-beat` are designed; `self-tuning` begins with it.
    model: Option<ModelTable>,
    /// The settling time of `pi` and `self-tuning`, in samples.
    #[schemars(range(min = 1, max = 100), extend("default" = SETTLING))]
    settling: Option<u32>,
    /// The overshoot of `pi` and `self-tuning`, as a part of a step.
    #[schemars(range(min = 0, max = 1), extend("x-default" = "0.08"))]
    overshoot: Option<Factor>,
    /// The map of `fixed`, by rising rate, with straight lines between its points.
    #[schemars(length(max = POINTS_MAX))]
    map: Option<Vec<PointTable>>,
}

/// An interface of a router, by its devices in the kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "interface")]
pub(crate) struct InterfaceTable {
    /// The Linux device at the host's end.
    #[schemars(required, extend("format" = "device-name"))]
    device: Option<String>,
    /// The router's own end of it, in its `namespace`.
    #[schemars(extend("format" = "device-name", "x-default" = "not known"))]
    inside: Option<String>,
}

/// A first-order model: the next rate is `a` times the rate plus `b` times the log10 of the cap in
/// per cent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "model")]
pub(crate) struct ModelTable {
    /// The part of a rate that remains after one sample: above −1 and below 1.
    #[schemars(required)]
    a: Option<Text<Decimal>>,
    /// Thousand packets a second that a tenfold cap adds within one sample: 0.001 to 1000000.
    #[schemars(required)]
    b: Option<Text<Decimal>>,
}

/// A rate and the cap that gave it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "point")]
pub(crate) struct PointTable {
    /// The rate.
    #[schemars(required, extend("x-minimum" = 0, "x-maximum" = RATE_MOST.as_pps()))]
    rate: Option<Text<PacketRate>>,
    /// The cap.
    #[schemars(required, extend("x-minimum" = 1, "x-maximum" = SHARE_MOST))]
    cap: Option<Text<CpuShare>>,
}

impl Default for Xtc {
    fn default() -> Self {
        Self {
            dry_run: false,
            police: false,
            release_after: RELEASE_AFTER,
            log: LOG,
            rate_most: RATE_MOST,
        }
    }
}

impl RouterXtc {
    /// Makes a control with this set-point and actuator, and every other value at its default.
    #[must_use]
    pub const fn new(set_point: PacketRate, actuator: ActuatorKind) -> Self {
        Self {
            set_point: Some(set_point),
            state: XtcState::Active,
            controller: ControllerKind::Combined,
            period: PERIOD,
            actuator,
            cap_min: None,
            cap_max: None,
            dead_zone: None,
            process: None,
            group: None,
            namespace: None,
            domain: None,
            interfaces: Vec::new(),
            model: None,
            settling: SETTLING,
            overshoot: OVERSHOOT,
            map: Vec::new(),
        }
    }
}

impl ControllerKind {
    /// Returns the name in the document.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::FeedForward => "feed-forward",
            Self::Pi => "pi",
            Self::DeadBeat => "dead-beat",
            Self::SelfTuning => "self-tuning",
            Self::Fixed => "fixed",
        }
    }
}

impl XtcState {
    /// Returns the name in the document.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Off => "off",
        }
    }
}

impl ActuatorKind {
    /// Returns the name in the document.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Napi => "napi",
            Self::Xl => "xl",
            Self::None => "none",
        }
    }
}

impl XtcTable {
    pub(crate) fn resolve(&self) -> Xtc {
        let base = Xtc::default();
        Xtc {
            dry_run: self.dry_run.unwrap_or(base.dry_run),
            police: self.police.unwrap_or(base.police),
            release_after: self.release_after.map_or(base.release_after, |text| text.0),
            log: self.log.unwrap_or(base.log),
            rate_most: self.rate_most.map_or(base.rate_most, |text| text.0),
        }
    }

    /// Returns the table; `None` where every value is the default.
    pub(crate) fn of(xtc: &Xtc) -> Option<Self> {
        (*xtc != Xtc::default()).then_some(Self {
            dry_run: Some(xtc.dry_run),
            police: Some(xtc.police),
            release_after: Some(Text(xtc.release_after)),
            log: Some(xtc.log),
            rate_most: Some(Text(xtc.rate_most)),
        })
    }
}

impl InterfaceTable {
    /// Returns the interface that the table describes. A missing device was reported already.
    pub(crate) fn resolve(&self) -> Interface {
        Interface { device: self.device.clone().unwrap_or_default(), inside: self.inside.clone() }
    }

    /// Returns the table of an interface.
    pub(crate) fn of(interface: &Interface) -> Self {
        Self { device: Some(interface.device.clone()), inside: interface.inside.clone() }
    }
}

impl RouterXtcTable {
    /// Returns the control that the table describes. Missing keys were reported already.
    pub(crate) fn resolve(&self) -> RouterXtc {
        let base = RouterXtc::new(PacketRate::ZERO, self.actuator.unwrap_or(ActuatorKind::None));
        let zero = Text(Decimal(0));
        let model = |table: &ModelTable| RouterModel {
            a: table.a.unwrap_or(zero).0,
            b: table.b.unwrap_or(zero).0,
        };
        let point = |table: &PointTable| Some((table.rate?.0, table.cap?.0));
        RouterXtc {
            set_point: self.set_point.map(|text| text.0),
            state: self.state.unwrap_or(base.state),
            controller: self.controller.unwrap_or(base.controller),
            period: self.period.map_or(base.period, |text| text.0),
            actuator: base.actuator,
            cap_min: self.cap_min.map(|text| text.0),
            cap_max: self.cap_max.map(|text| text.0),
            dead_zone: self.dead_zone.map(|factor| factor.0),
            process: self.process.clone(),
            group: self.group.clone(),
            namespace: self.namespace.clone(),
            domain: self.domain.clone(),
            interfaces: self.interface.iter().flatten().map(InterfaceTable::resolve).collect(),
            model: self.model.as_ref().map(model),
            settling: self.settling.unwrap_or(base.settling),
            overshoot: self.overshoot.map_or(base.overshoot, |factor| factor.0),
            map: self.map.iter().flatten().filter_map(point).collect(),
        }
    }

    /// Returns the table of a router.
    pub(crate) fn of(xtc: &RouterXtc) -> Self {
        let point = |(rate, cap): &(PacketRate, CpuShare)| PointTable {
            rate: Some(Text(*rate)),
            cap: Some(Text(*cap)),
        };
        let list = |empty: bool| (!empty).then_some(());
        Self {
            set_point: xtc.set_point.map(Text),
            state: Some(xtc.state),
            controller: Some(xtc.controller),
            period: Some(Text(xtc.period)),
            actuator: Some(xtc.actuator),
            cap_min: xtc.cap_min.map(Text),
            cap_max: xtc.cap_max.map(Text),
            dead_zone: xtc.dead_zone.map(Factor),
            process: xtc.process.clone(),
            group: xtc.group.clone(),
            namespace: xtc.namespace.clone(),
            domain: xtc.domain.clone(),
            interface: list(xtc.interfaces.is_empty())
                .map(|()| xtc.interfaces.iter().map(InterfaceTable::of).collect()),
            model: xtc
                .model
                .map(|model| ModelTable { a: Some(Text(model.a)), b: Some(Text(model.b)) }),
            settling: Some(xtc.settling),
            overshoot: Some(Factor(xtc.overshoot)),
            map: list(xtc.map.is_empty()).map(|()| xtc.map.iter().map(point).collect()),
        }
    }
}

/// A router that has been gone for ten seconds will not be back soon.
const RELEASE_AFTER: Nanos = Nanos::from_secs(10);
/// Five minutes at one sample a second, half a minute at ten.
const LOG: u32 = 300;
/// Minimal frames on 100 Gb/s are 149 Mpps.
const RATE_MOST: PacketRate = PacketRate::from_pps(200_000_000);
/// The text's sampling period (§5.1), and three periods of every actuator.
const PERIOD: Nanos = Nanos::from_secs(1);
/// Together with [`OVERSHOOT`] this gives the published poles.
const SETTLING: u32 = 5;
const OVERSHOOT: u32 = 80;
/// Interfaces of a router; a server has no more links.
pub(crate) const INTERFACES_MAX: usize = 64;
/// Points of a map.
const POINTS_MAX: usize = 256;
/// 4096 processors, in millionths of one.
const SHARE_MOST: u32 = 4_096_000_000;

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    /// All logs together are bounded, not only each log and the number of routers.
    #[test]
    fn the_logs_of_all_routers_have_a_bound() {
        let document = |routers: usize, log: u32| {
            let mut text = format!(
                "version = 1\nxtc = {{ log = {log} }}\nport = [{{ name = \"up0\", rate = \
                 \"1Gbit\" }}]\nslice = [{{ name = \"gold\" }}]\n"
            );
            for number in 0..routers {
                text += &format!(
                    "[[router]]\nname = \"vr{number}\"\nslice = \"gold\"\nxtc = {{ set_point = \
                     \"1kpps\", controller = \"feed-forward\", actuator = \"cgroup\", group = \
                     \"/g{number}\", interface = [{{ device = \"v{number}\" }}] }}\n"
                );
            }
            text
        };
        assert!(crate::parse(&document(250, 10_000)).is_ok());
        let problems = crate::parse(&document(251, 10_000)).unwrap_err().to_string();
        let bound = "10000 decisions of each of 251 routers are 2510000, at most 2500000 are kept: \
                     at most 9960 of each";
        assert!(problems.contains(bound), "{problems}");
    }
}
