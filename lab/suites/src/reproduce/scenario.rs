// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure as data: who sends what, when and how often, and what the text found. The files are
//! `lab/scenarios/netback/*.toml`; `docs/reproduce.md` has their keys.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use weir_experiment::prelude::*;
use weir_result::ResultFile;

use super::problem;
use super::series::Key;
use super::stage::{VARIANTS, Variant};

/// An experiment of a text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is about, in one line.
    pub title: String,
    /// What the text found.
    pub text: String,
    /// The rate of the link that all share.
    #[serde(deserialize_with = "unit")]
    pub link: BitRate,
    /// How long traffic flows; the other times are of this length.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
    /// How often each run is made.
    pub repetitions: u32,
    /// Where the sender threads run.
    pub pinning: Pinning,
    /// What makes the packets.
    #[serde(default)]
    pub sender: Sender,
    /// What one connection at full speed offers.
    #[serde(deserialize_with = "unit")]
    pub connection: BitRate,
    /// What is measured.
    pub measure: Measure,
    /// Schedulers whose bounds are claimed; the others are shown without a claim.
    #[serde(default = "both")]
    pub claimed: Vec<Scheduler>,
    /// What `--quick` shortens.
    pub quick: Quick,
    /// Priorities that change.
    pub sweep: Option<Sweep>,
    /// Disk work.
    pub disk: Option<Disk>,
    /// What the text's figure has beside each other.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
    /// What went wrong in the text, and how much of it there must be to count.
    #[serde(rename = "defect", default)]
    pub defects: Vec<Defect>,
}

/// What `--quick` shortens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// How long traffic flows.
    #[serde(deserialize_with = "length")]
    pub duration: Duration,
    /// How often each run is made.
    pub repetitions: u32,
    /// The panels that are shown; all if empty.
    #[serde(default)]
    pub panels: Vec<String>,
}

/// One graph of a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Names it in series and cases.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Shows why a defect is absent elsewhere, and is run before alone.
    #[serde(default)]
    pub control: bool,
    /// Who sends.
    #[serde(rename = "tenant")]
    pub tenants: Vec<Tenant>,
}

/// A virtual machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Its name; with a count, what its copies' names begin with.
    pub name: String,
    /// How many of it there are.
    #[serde(default = "one")]
    pub count: u32,
    /// Connections, each trying to use its full speed.
    #[serde(default = "one")]
    pub connections: u32,
    /// The parameter `rate` of its interface.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub rate: Option<BitRate>,
    /// What of `rate` it may make up for at once, before; by default what Netback lets it.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub credit: Option<ByteCount>,
    /// The nice value of its senders: less processor time than others above 0.
    #[serde(default)]
    pub nice: i32,
    /// What it offers by each connection, if it is not the full speed.
    #[serde(default, deserialize_with = "maybe_unit")]
    pub offers: Option<BitRate>,
    /// When it begins to send.
    #[serde(default, deserialize_with = "length")]
    pub start: Duration,
    /// Smallest frame, layer 2 without FCS; sizes are uniformly random where it is not the largest.
    #[serde(default = "frame")]
    pub frame_min: u16,
    /// Largest frame.
    #[serde(default = "frame")]
    pub frame_max: u16,
}

/// Where the sender threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// All on one processor.
    One,
    /// Each tenant's on one of its own, as far as there are processors.
    Own,
}

/// What makes the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sender {
    /// A thread with a kernel socket for each connection, as the text had.
    #[default]
    Sockets,
    /// One generator for all, where threads would need more processors than there are.
    Generator,
}

/// What a figure measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// How near each tenant is to its `rate`.
    Rates,
    /// How equal the tenants are, and how full the link is.
    Balance,
    /// How much of its throughput a tenant keeps while another one's disk works.
    Disturbance,
    /// How near the shares are to the priorities.
    Weights,
}

/// A scheduler of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// Weighted round robin, the text's own.
    Wrr,
    /// Weir's default.
    Hfsc,
}

/// Priorities of two tenants, from `from`:1 to 1:`from` in equal ratios.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The first ratio.
    pub from: u32,
    /// The time between two changes. A shorter run has fewer of them.
    #[serde(deserialize_with = "length")]
    pub every: Duration,
}

/// Disk work on the machine of a tenant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Whose machine.
    pub tenant: String,
    /// t0 of the text.
    #[serde(deserialize_with = "length")]
    pub from: Duration,
    /// t1 of the text.
    #[serde(deserialize_with = "length")]
    pub to: Duration,
}

/// What went wrong in the text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defect {
    /// In a few words.
    pub what: String,
    /// The claim whose value shows it.
    pub claim: String,
    /// Panels in which it is looked for; all if empty.
    #[serde(default)]
    pub panels: Vec<String>,
    /// The tenant that it favours: it is there only if nobody gets more.
    pub favours: Option<String>,
    /// It is there if the worst value is at most this.
    pub at_most: Option<f64>,
    /// It is there if the worst value is at least this.
    pub at_least: Option<f64>,
    /// Why it may be absent on a kernel of today.
    pub otherwise: String,
}

impl Scenario {
    /// Reads a scenario; `name` is for the error.
    pub fn parse(name: &str, text: &str) -> Result<Self, ExperimentError> {
        let wrong = |what: String| ExperimentError::Scenario { name: name.to_owned(), what };
        let scenario: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        scenario.checked(name)
    }

    /// The same, if nothing in it is out of bounds.
    pub fn checked(self, name: &str) -> Result<Self, ExperimentError> {
        match problem::of(&self) {
            Some(what) => Err(ExperimentError::Scenario { name: name.to_owned(), what }),
            None => Ok(self),
        }
    }

    /// The same with other lengths: all times but those between changes keep their proportion.
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

    /// The same with another start of all who do not start at once.
    pub fn starting(mut self, at: Duration) -> Self {
        let tenants = self.panels.iter_mut().flat_map(|panel| &mut panel.tenants);
        for tenant in tenants.filter(|tenant| !tenant.start.is_zero()) {
            tenant.start = at;
        }
        self
    }

    /// The same as `--quick` makes it.
    pub fn quickly(mut self) -> Self {
        let Quick { duration, repetitions, panels } = self.quick.clone();
        self.repetitions = repetitions;
        self.panels.retain(|panel| panels.is_empty() || panels.contains(&panel.name));
        // A defect of panels that are gone is looked for nowhere, not everywhere.
        let shown: Vec<&String> = self.panels.iter().map(|panel| &panel.name).collect();
        self.defects.retain_mut(|defect| {
            let everywhere = defect.panels.is_empty();
            defect.panels.retain(|name| shown.contains(&name));
            everywhere || !defect.panels.is_empty()
        });
        self.lasting(duration)
    }

    /// The same as the run was that made a result: its panels, its length, its repetitions.
    pub fn as_run(mut self, result: &ResultFile) -> Self {
        let first = |panel: &Panel| {
            let tenant = panel.all().into_iter().next()?;
            VARIANTS.iter().find_map(|variant| {
                let key = Key { prefix: "", panel: &panel.name, variant: *variant, repetition: 0 };
                let series = result.series().get(&key.of(&tenant.name))?;
                let count = key.repeated(result, &tenant.name).len();
                let seconds = series.interval_s? * float(series.samples.len() as u64);
                Some((Duration::from_secs_f64(seconds), count))
            })
        };
        let runs: Vec<_> = self.panels.iter().map(first).collect();
        let mut made = runs.iter();
        self.panels.retain(|_| made.next().is_some_and(Option::is_some));
        match runs.into_iter().flatten().next() {
            None => self,
            Some((duration, count)) => {
                self.repetitions = u32::try_from(count).unwrap_or(u32::MAX);
                self.lasting(duration)
            }
        }
    }

    /// Width of a sample: a second, or a tenth of one in a run of less than five.
    pub fn interval(&self) -> Duration {
        if self.sweep.is_some() || self.duration >= Duration::from_secs(5) {
            return Duration::from_secs(1);
        }
        Duration::from_millis(100)
    }

    /// Samples at the beginning of a tenant's traffic that nothing is held against: buckets are
    /// full then, and threads find their places.
    pub fn settle(&self) -> usize {
        if self.interval() < Duration::from_secs(1) { 3 } else { 2 }
    }

    /// Samples of a run.
    pub fn samples(&self) -> usize {
        samples(self.duration, self.interval())
    }

    /// The priorities of the two tenants at change number `step`, in ten-thousandths.
    pub fn priorities(&self, step: usize) -> [u32; 2] {
        let Some(sweep) = self.sweep else { return [1, 1] };
        let last = samples(self.duration, sweep.every).saturating_sub(1).max(1);
        let place = 1.0 - 2.0 * float(step as u64) / float(last as u64);
        let root = f64::from(sweep.from).powf(place / 2.0);
        [whole(PRIORITY_UNIT * root), whole(PRIORITY_UNIT / root)]
    }
}

impl Measure {
    /// The words by which a defect names what is claimed.
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
    /// Whether it is looked for in a panel.
    pub fn concerns(&self, panel: &Panel) -> bool {
        self.panels.is_empty() || self.panels.contains(&panel.name)
    }
}

impl Panel {
    /// Whether it is run with this in the middle.
    pub fn has(&self, variant: Variant) -> bool {
        !self.control || variant == Variant::Before
    }

    /// Its tenants, copies told apart by their numbers.
    pub fn all(&self) -> Vec<Tenant> {
        let copies = |tenant: &Tenant| {
            let one = tenant.clone();
            (1..=tenant.count).map(move |number| match one.count {
                1 => one.clone(),
                _ => Tenant { name: format!("{}{number}", one.name), ..one.clone() },
            })
        };
        self.tenants.iter().flat_map(copies).collect()
    }
}

impl Scheduler {
    /// Its key in series and policies.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Wrr => "wrr",
            Self::Hfsc => "hfsc",
        }
    }
}

/// Whole intervals in a length.
fn samples(length: Duration, interval: Duration) -> usize {
    usize::try_from(length.as_millis() / interval.as_millis().max(1)).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^6")]
fn whole(priority: f64) -> u32 {
    priority.round().clamp(1.0, 1e6) as u32
}

fn unit<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

fn maybe_unit<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    unit(from).map(Some)
}

fn length<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    unit::<D, Nanos>(from).map(|length| Duration::from_nanos(length.as_nanos()))
}

fn both() -> Vec<Scheduler> {
    vec![Scheduler::Wrr, Scheduler::Hfsc]
}

const fn one() -> u32 {
    1
}

/// An IP packet of 1500 bytes, and its Ethernet header.
const fn frame() -> u16 {
    1514
}

/// Priorities are this times the root of their ratio, so that whole numbers are near enough.
const PRIORITY_UNIT: f64 = 10_000.0;
