// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a node holds its routers at a packet rate: what is asked for, not how it is done.

mod check;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{CpuShare, Nanos, PacketRate};

pub(crate) use self::check::check;
use crate::document::SECOND;
use crate::format::{Factor, Text};

/// What holds for all routers that are held at a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xtc {
    /// Decides and logs, and touches nothing.
    pub dry_run: bool,
    /// Shares the node's capacity among routers without a set-point while they contend for it, and
    /// punishes those that do not yield.
    pub police: bool,
    /// How long the last cap stays while nothing is known, or nothing can be set.
    pub release_after: Nanos,
    /// Decisions that are kept of each router, 1 to 10 000.
    pub log: u32,
    /// A rate that no router of this node reaches.
    pub rate_most: PacketRate,
}

/// How one router is held at a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterXtc {
    /// The rate; `None` while the state is off, or where the node polices.
    pub set_point: Option<PacketRate>,
    /// Whether it is held.
    pub state: XtcState,
    /// What decides.
    pub controller: ControllerKind,
    /// From one sample to the next, 10 ms to 1 s.
    pub period: Nanos,
    /// What enforces the cap.
    pub actuator: ActuatorKind,
    /// The least cap; `None`: the actuator's.
    pub cap_min: Option<CpuShare>,
    /// The largest cap; `None`: the actuator's.
    pub cap_max: Option<CpuShare>,
    /// Errors that do not move the cap, in thousandths; `None`: the controller's own.
    pub dead_zone: Option<u32>,
    /// The process of a router that is one: its id, or the path of a file with it.
    pub process: Option<String>,
    /// The control group that somebody else made for the router.
    pub group: Option<String>,
    /// The router's network namespace; `None`: the node's.
    pub namespace: Option<String>,
    /// The guest, as Xen knows it.
    pub domain: Option<String>,
    /// The router's interfaces, where they are no vifs of this node or have threads to be capped.
    pub interfaces: Vec<Interface>,
    /// The model that published controllers are designed with.
    pub model: Option<RouterModel>,
    /// Samples within which the published PI comes to rest.
    pub settling: u32,
    /// How far it may go beyond, in thousandths.
    pub overshoot: u32,
    /// What a fixed cap follows: rates, rising, and the caps that gave them.
    pub map: Vec<(PacketRate, CpuShare)>,
}

/// An interface of a router, as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The host's end.
    pub device: String,
    /// The router's end, in its namespace.
    pub inside: Option<String>,
}

/// y(k+1) = a·y(k) + b·u(k), y in thousand packets a second, u the log10 of the cap in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterModel {
    /// What is left of a rate after one sample, above −1 and below 1.
    pub a: Decimal,
    /// Thousand packets a second that one decade of cap adds within one sample, above 0.
    pub b: Decimal,
}

/// A number, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(pub i64);

/// Whether a router is held at its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum XtcState {
    /// It is.
    Active,
    /// The cap that its rate needed at last, and its limit, stay.
    Paused,
    /// It has neither cap nor limit.
    Off,
}

/// What decides how a router is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerKind {
    /// A limit at ingress holds the rate, the cap is a ceiling above it. Needs a vif of this node.
    Combined,
    /// The cap alone, by what a packet costs.
    FeedForward,
    /// The published PI: poles by `settling` and `overshoot`, on a `model`.
    Pi,
    /// The published dead-beat, on a `model`.
    DeadBeat,
    /// A PI whose `model` is learned; the one given is the first guess.
    SelfTuning,
    /// A `map` from rate to cap, and no feedback.
    Fixed,
}

/// What enforces a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActuatorKind {
    /// The quota of a control group: of a `process`, which gets a group of its own, or of a
    /// `group`.
    Cgroup,
    /// Deadline budgets of the threads that do the work of the router's interfaces.
    Napi,
    /// The cap of a guest of Xen, its `domain`.
    Xl,
    /// No cap: the limit at ingress alone.
    None,
}

/// Routers that are held at a packet rate: what holds for all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "xtc")]
pub(crate) struct XtcTable {
    /// Decide and log, and touch nothing.
    #[schemars(extend("default" = false))]
    dry_run: Option<bool>,
    /// Share the node's `capacity` among routers that have no `set_point` while they contend for
    /// it, by `receive.min_pps`, `max_pps` and `priority` and by what each uses; early drop, a
    /// lower set-point, a stop for routers that do not yield.
    #[schemars(extend("default" = false))]
    police: Option<bool>,
    /// How long the last cap of a router stays while nothing is known of it, or nothing can be set;
    /// then it is taken away, and set again when that is over.
    #[schemars(extend("default" = RELEASE_AFTER.to_string()))]
    #[schemars(extend("x-minimum" = SECOND / 10, "x-maximum" = 3600 * SECOND))]
    release_after: Option<Text<Nanos>>,
    /// Decisions that are kept of each router, in memory; of all together at most 2 500 000.
    #[schemars(range(min = 1, max = 10_000), extend("default" = LOG))]
    log: Option<u32>,
    /// A rate that no router of this node reaches: more is a fault of the meter.
    #[schemars(extend("default" = RATE_MOST.to_string()))]
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = RATE_MOST.as_pps()))]
    rate_most: Option<Text<PacketRate>>,
}

/// How a router is held at a packet rate, whoever wants more of it: see `xtc.md`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "router-xtc")]
pub(crate) struct RouterXtcTable {
    /// The rate, within `receive.min_pps` and `receive.max_pps` of the router.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = RATE_MOST.as_pps()))]
    #[schemars(extend("x-default" = "none: `xtc.police` shares, or `state` must be \"off\""))]
    set_point: Option<Text<PacketRate>>,
    /// Whether the router is held.
    #[schemars(extend("default" = "active"))]
    state: Option<XtcState>,
    /// What decides.
    #[schemars(extend("default" = "combined"))]
    controller: Option<ControllerKind>,
    /// From one sample to the next: at least three periods of the actuator.
    #[schemars(extend("default" = PERIOD.to_string()))]
    #[schemars(extend("x-minimum" = SECOND / 100, "x-maximum" = SECOND))]
    period: Option<Text<Nanos>>,
    /// What enforces the cap.
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
    /// Errors that do not move the cap, as a part of the set-point: fewer calls, less precision.
    #[schemars(range(min = 0, max = 1), extend("x-default" = "the controller's"))]
    dead_zone: Option<Factor>,
    /// The process that is the router: its id, or the path of a file with it, which is read again
    /// when the process is gone. For `cgroup`.
    #[schemars(extend("format" = "device", "x-default" = "none"))]
    process: Option<String>,
    /// The path of the router's control group, which somebody else made. For `cgroup`.
    #[schemars(extend("format" = "device", "x-default" = "none"))]
    group: Option<String>,
    /// The router's network namespace, as `ip netns` knows it. For `napi`.
    #[schemars(extend("format" = "name", "x-default" = "the node's"))]
    namespace: Option<String>,
    /// The guest, as `xl list` calls it. For `xl`.
    #[schemars(extend("format" = "device", "x-default" = "none"))]
    domain: Option<String>,
    /// The router's interfaces, where they are no vifs of this node: they are counted by the
    /// kernel. Of those with an `inside`, `napi` caps the threads.
    #[schemars(length(max = INTERFACES_MAX))]
    interface: Option<Vec<InterfaceTable>>,
    /// What `pi` and `dead-beat` are designed with, and `self-tuning` begins with.
    model: Option<ModelTable>,
    /// Samples within which `pi` and `self-tuning` come to rest.
    #[schemars(range(min = 1, max = 100), extend("default" = SETTLING))]
    settling: Option<u32>,
    /// How far they may go beyond, as a part of a step.
    #[schemars(range(min = 0, max = 1), extend("x-default" = "0.08"))]
    overshoot: Option<Factor>,
    /// What `fixed` follows, by rising rate; straight lines lie between.
    #[schemars(length(max = POINTS_MAX))]
    map: Option<Vec<PointTable>>,
}

/// An interface of a router, as the kernel knows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "interface")]
pub(crate) struct InterfaceTable {
    /// The Linux device at the host's end.
    #[schemars(required, extend("format" = "device"))]
    device: Option<String>,
    /// The router's own end of it, in its `namespace`.
    #[schemars(extend("format" = "device", "x-default" = "not known"))]
    inside: Option<String>,
}

/// The next rate from the rate before, times `a`, and the log10 of the cap in per cent, times `b`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "model")]
pub(crate) struct ModelTable {
    /// What is left of a rate after one sample: above −1 and below 1.
    #[schemars(required)]
    a: Option<Text<Decimal>>,
    /// Thousand packets a second that a tenfold cap adds within one sample: 0.001 to 1000000.
    #[schemars(required)]
    b: Option<Text<Decimal>>,
}

/// A rate, and the cap that gave it.
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
    /// Held at `set_point` by this actuator, of nothing; all else at its default.
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
    /// As the document writes it.
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
    /// As the document writes it.
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
    /// As the document writes it.
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

    /// The table; `None` where all is at its default.
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

impl RouterXtcTable {
    /// What the table says. What is missing was reported already.
    pub(crate) fn resolve(&self) -> RouterXtc {
        let base = RouterXtc::new(PacketRate::ZERO, self.actuator.unwrap_or(ActuatorKind::None));
        let interface = |table: &InterfaceTable| Interface {
            device: table.device.clone().unwrap_or_default(),
            inside: table.inside.clone(),
        };
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
            interfaces: self.interface.iter().flatten().map(interface).collect(),
            model: self.model.as_ref().map(model),
            settling: self.settling.unwrap_or(base.settling),
            overshoot: self.overshoot.map_or(base.overshoot, |factor| factor.0),
            map: self.map.iter().flatten().filter_map(point).collect(),
        }
    }

    /// The table of a router.
    pub(crate) fn of(xtc: &RouterXtc) -> Self {
        let interface = |one: &Interface| InterfaceTable {
            device: Some(one.device.clone()),
            inside: one.inside.clone(),
        };
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
                .map(|()| xtc.interfaces.iter().map(interface).collect()),
            model: xtc
                .model
                .map(|model| ModelTable { a: Some(Text(model.a)), b: Some(Text(model.b)) }),
            settling: Some(xtc.settling),
            overshoot: Some(Factor(xtc.overshoot)),
            map: list(xtc.map.is_empty()).map(|()| xtc.map.iter().map(point).collect()),
        }
    }
}

impl FromStr for Decimal {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !plain(whole) || !plain(fraction) || fraction.len() > 6 || whole.len() > 12 {
            return Err(());
        }
        let millionths: i64 = format!("{whole}{fraction:0<6}").parse().map_err(|_| ())?;
        Ok(Self(if negative { -millionths } else { millionths }))
    }
}

/// Exact: `0.0915`, `-63.0051`, `5`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, value) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let unit = ONE.unsigned_abs();
        let fraction = format!("{:06}", value % unit);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{sign}{}", value / unit),
            rest => write!(f, "{sign}{}.{rest}", value / unit),
        }
    }
}

/// A router that is gone for ten seconds is not coming back at once.
const RELEASE_AFTER: Nanos = Nanos::from_secs(10);
/// Five minutes at one sample a second, half a minute at ten.
const LOG: u32 = 300;
/// Minimal frames on 100 Gb/s are 149 Mpps.
const RATE_MOST: PacketRate = PacketRate::from_pps(200_000_000);
/// The text's sampling period (§5.1), and three periods of every actuator.
const PERIOD: Nanos = Nanos::from_secs(1);
/// What the published poles come to, with [`OVERSHOOT`].
const SETTLING: u32 = 5;
const OVERSHOOT: u32 = 80;
/// A router's interfaces; a server has no more links.
const INTERFACES_MAX: usize = 64;
/// Points of a map.
const POINTS_MAX: usize = 256;
/// 4096 processors, in millionths of one.
const SHARE_MOST: u32 = 4_096_000_000;
const ONE: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_both_ways() {
        for text in ["0.0915", "63.0051", "-0.5", "0", "5", "1000000"] {
            assert_eq!(text.parse::<Decimal>().unwrap().to_string(), text);
        }
        for wrong in ["", "-", ".5", "1.", "1e3", "0.1234567", "1234567890123", "+1", "1.-5"] {
            assert!(wrong.parse::<Decimal>().is_err(), "{wrong}");
        }
    }

    /// A bound for each log and one for the routers are none for all logs together.
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
