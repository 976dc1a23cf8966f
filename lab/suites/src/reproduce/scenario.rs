// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure as data: the senders with their traffic and times, the number of repetitions, and the
//! findings of the text. The files are `lab/scenarios/netback/*.toml`; `docs/reproduce.md` has
//! their keys.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use weir_experiment::prelude::*;

/// An experiment of a text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A title of one line.
    pub title: String,
    /// The finding of the text.
    pub text: String,
    /// The rate of the link that all share.
    #[serde(deserialize_with = "unit")]
    pub link: BitRate,
    /// Length of the traffic. All other times lie within it.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
    /// Repetitions of each run.
    pub repetitions: u32,
    /// The processors of the sender threads.
    pub pinning: Pinning,
    /// The way in which packets are made.
    #[serde(default)]
    pub sender: Sender,
    /// The offer of one connection at full speed.
    #[serde(deserialize_with = "unit")]
    pub connection: BitRate,
    /// The quantity that is measured.
    pub measure: Measure,
    /// Schedulers whose bounds are claimed; the others are shown without a claim.
    #[serde(default = "both")]
    pub claimed: Vec<WeirScheduler>,
    /// The lengths of `--quick`.
    pub quick: Quick,
    /// Priorities that change.
    pub sweep: Option<PrioritySweep>,
    /// Disk work.
    pub disk: Option<DiskPhase>,
    /// The graphs of the text's figure.
    #[serde(rename = "panel")]
    pub panels: Vec<FigurePanel>,
    /// Defects that the text found, each with the size from which it counts.
    #[serde(rename = "defect", default)]
    pub defects: Vec<Defect>,
}

/// The lengths of `--quick`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Length of the traffic.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
    /// Repetitions of each run.
    pub repetitions: u32,
    /// The panels that are shown; all if empty.
    #[serde(default)]
    pub panels: Vec<String>,
}

/// One graph of a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigurePanel {
    /// Names it in series and cases.
    pub name: String,
    /// Its title.
    pub title: String,
    /// True for a control panel, which shows why a defect is absent elsewhere. It is run only with
    /// [`Variant::Before`].
    #[serde(default)]
    pub control: bool,
    /// The senders.
    #[serde(rename = "tenant")]
    pub tenants: Vec<FigureTenant>,
}

/// A virtual machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureTenant {
    /// Its name; with a `count`, the beginning of its copies' names.
    pub name: String,
    /// Number of its copies.
    #[serde(default = "one")]
    pub count: u32,
    /// Connections, each trying to use its full speed.
    #[serde(default = "one")]
    pub connections: u32,
    /// The parameter `rate` of its interface.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub rate: Option<BitRate>,
    /// Burst of `rate` with [`Variant::Before`]; Netback's default if absent.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub credit: Option<ByteCount>,
    /// The nice value of its senders. Above 0, they get less processor time than others.
    #[serde(default)]
    pub nice: i32,
    /// The offer of each connection, if it is not the full speed.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub offers: Option<BitRate>,
    /// When it begins to send.
    #[serde(default, deserialize_with = "length")]
    pub start: Duration,
    /// Smallest frame, layer 2 without FCS. Sizes are uniformly random between it and `frame_max`.
    #[serde(default = "frame")]
    pub frame_min: u16,
    /// Largest frame.
    #[serde(default = "frame")]
    pub frame_max: u16,
}

/// The processors of the sender threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// All on one processor.
    One,
    /// Each tenant's on a processor of its own, as far as there are enough.
    Own,
}

/// The way in which packets are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sender {
    /// A thread with a kernel socket for each connection, as in the text.
    #[default]
    Sockets,
    /// A single generator for all connections, where threads would need too many processors.
    Generator,
}

/// The quantity that a figure measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The distance of each tenant from its `rate`.
    Rates,
    /// The equality of the tenants, and the use of the link.
    Balance,
    /// The part of its throughput that a tenant keeps while another one's disk works.
    Disturbance,
    /// The distance of the shares from the priorities.
    Weights,
}

/// A scheduler of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeirScheduler {
    /// Weighted round robin, the text's own.
    Wrr,
    /// Weir's default.
    Hfsc,
}

/// Priorities of two tenants, from `from`:1 to 1:`from` in equal ratios.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrioritySweep {
    /// The first ratio.
    pub from: u32,
    /// The time between two changes. A shorter run has fewer of them.
    #[serde(deserialize_with = "length")]
    pub every: Duration,
}

/// Disk work on the machine of a tenant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskPhase {
    /// The tenant on whose machine the disk works.
    pub tenant: String,
    /// The time of its beginning: t0 of the text.
    #[serde(deserialize_with = "length")]
    pub from: Duration,
    /// The time of its end: t1 of the text.
    #[serde(deserialize_with = "length")]
    pub to: Duration,
}

/// A defect that the text found.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defect {
    /// Its description in a few words.
    pub what: String,
    /// The claim whose value shows it.
    pub claim: String,
    /// Panels in which the defect is looked for; all if empty.
    #[serde(default)]
    pub panels: Vec<String>,
    /// The tenant that the defect favours: it is present only if no other tenant gets more.
    pub favours: Option<String>,
    /// The defect is present if the worst value is at most this.
    pub at_most: Option<f64>,
    /// The defect is present if the worst value is at least this.
    pub at_least: Option<f64>,
    /// The reason why the defect may be absent on a kernel of today.
    pub otherwise: String,
}

impl Scenario {
    /// Returns the scenario with another length. All times are scaled with it, except the time
    /// between changes.
    pub fn lasting(mut self, duration: Duration) -> Self {
        let scale = duration.as_secs_f64() / self.duration.as_secs_f64();
        for tenant in self.panels.iter_mut().flat_map(|panel| &mut panel.tenants) {
            tenant.start = tenant.start.mul_f64(scale);
        }
        if let Some(disk) = &mut self.disk {
            (disk.from, disk.to) = (disk.from.mul_f64(scale), disk.to.mul_f64(scale));
        }
        self.duration = duration;
        self
    }

    /// Returns the scenario with another start of all tenants that do not start at once.
    pub fn starting(mut self, at: Duration) -> Self {
        let tenants = self.panels.iter_mut().flat_map(|panel| &mut panel.tenants);
        for tenant in tenants.filter(|tenant| !tenant.start.is_zero()) {
            tenant.start = at;
        }
        self
    }

    /// Returns the scenario as `--quick` runs it.
    pub fn quickly(mut self) -> Self {
        let Quick { duration, repetitions, panels } = self.quick.clone();
        self.repetitions = repetitions;
        self.panels.retain(|panel| panels.is_empty() || panels.contains(&panel.name));
        // A defect whose panels are all left out is dropped, since an empty list means all panels.
        let shown: Vec<&String> = self.panels.iter().map(|panel| &panel.name).collect();
        self.defects.retain_mut(|defect| {
            let everywhere = defect.panels.is_empty();
            defect.panels.retain(|name| shown.contains(&name));
            everywhere || !defect.panels.is_empty()
        });
        self.lasting(duration)
    }

    /// Returns the width of a sample: a second, or 100 ms in a run of less than 5 s without a
    /// sweep.
    pub fn interval(&self) -> Duration {
        if self.sweep.is_some() || self.duration >= Duration::from_secs(5) {
            return Duration::from_secs(1);
        }
        Duration::from_millis(100)
    }

    /// Returns the number of samples at the beginning of a tenant's traffic that are not judged,
    /// because buckets are still full and threads find their processors.
    pub fn settle(&self) -> usize {
        if self.interval() < Duration::from_secs(1) { 3 } else { 2 }
    }

    /// Returns the first sample of a tenant that is judged.
    pub fn first_judged(&self, tenant: &FigureTenant) -> usize {
        self.sample_at(tenant.start) + self.settle()
    }

    /// Returns the sample in which an instant lies.
    pub fn sample_at(&self, at: Duration) -> usize {
        samples(at, self.interval())
    }

    /// Returns a tenant's largest frame in one sample, as bits a second.
    pub fn packet_bps(&self, tenant: &FigureTenant) -> f64 {
        f64::from(tenant.frame_max) * 8.0 / self.interval().as_secs_f64()
    }

    /// Returns the number of samples of a run.
    pub fn samples(&self) -> usize {
        samples(self.duration, self.interval())
    }

    /// Returns the priorities of the two tenants at change number `step`, in ten-thousandths.
    pub fn priorities(&self, step: usize) -> [u32; 2] {
        let Some(sweep) = self.sweep else { return [1, 1] };
        let last = samples(self.duration, sweep.every).saturating_sub(1).max(1);
        let place = 1.0 - 2.0 * float(step as u64) / float(last as u64);
        let root = f64::from(sweep.from).powf(place / 2.0);
        [whole(PRIORITY_UNIT * root), whole(PRIORITY_UNIT / root)]
    }
}

impl Measure {
    /// Returns the words by which a defect names a claim.
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Rates => &["least", "greatest", "interval"],
            Self::Balance => &["balance", "utilization", "shares"],
            Self::Disturbance => &["kept", "gained", "own"],
            Self::Weights => &["weight"],
        }
    }
}

impl Defect {
    /// Returns true if the defect is looked for in a panel.
    pub fn concerns(&self, panel: &FigurePanel) -> bool {
        self.panels.is_empty() || self.panels.contains(&panel.name)
    }
}

impl FigurePanel {
    /// Returns true if the panel is run with this forwarder in the middle.
    pub fn has(&self, variant: Variant) -> bool {
        !self.control || variant == Variant::Before
    }

    /// Returns the panel's tenants. Copies are distinguished by their numbers.
    pub fn all(&self) -> Vec<FigureTenant> {
        let copies = |tenant: &FigureTenant| {
            let one = tenant.clone();
            (1..=tenant.count).map(move |number| match one.count {
                1 => one.clone(),
                _ => FigureTenant { name: format!("{}{number}", one.name), ..one.clone() },
            })
        };
        self.tenants.iter().flat_map(copies).collect()
    }
}

impl FigureTenant {
    /// Returns the parameter `rate` in bits a second; NaN without one.
    pub fn rate_bps(&self) -> f64 {
        self.rate.map_or(f64::NAN, |rate| float(rate.as_bps()))
    }
}

/// The forwarder in the middle of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The forwarder of the text: a bridge, and a token bucket at each interface with a `rate`.
    Before,
    /// Weir.
    After(WeirScheduler),
}

/// All variants, in the order in which they are shown.
pub const VARIANTS: [Variant; 3] =
    [Variant::Before, Variant::After(WeirScheduler::Wrr), Variant::After(WeirScheduler::Hfsc)];

impl Variant {
    /// Returns the variant's key in series.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After(WeirScheduler::Wrr) => "wrr",
            Self::After(WeirScheduler::Hfsc) => "hfsc",
        }
    }

    /// Returns the variant's name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before: bridge",
            Self::After(WeirScheduler::Wrr) => "Weir, WRR",
            Self::After(WeirScheduler::Hfsc) => "Weir, HFSC",
        }
    }
}

/// Returns the number of whole intervals in a length.
fn samples(length: Duration, interval: Duration) -> usize {
    usize::try_from(length.as_millis() / interval.as_millis().max(1)).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^6")]
fn whole(priority: f64) -> u32 {
    priority.round().clamp(1.0, 1e6) as u32
}

/// Reads a value in the notation of a policy.
pub(crate) fn unit<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

pub(crate) fn maybe_unit<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    unit(from).map(Some)
}

pub(crate) fn length<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    unit::<D, Nanos>(from).map(|length| Duration::from_nanos(length.as_nanos()))
}

fn both() -> Vec<WeirScheduler> {
    vec![WeirScheduler::Wrr, WeirScheduler::Hfsc]
}

const fn one() -> u32 {
    1
}

/// Returns the length of an IP packet of 1500 bytes with its Ethernet header.
const fn frame() -> u16 {
    1514
}

/// Priorities are this times the root of their ratio, so that rounding to integers hardly matters.
const PRIORITY_UNIT: f64 = 10_000.0;
