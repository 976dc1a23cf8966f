// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scenarios of the suite as data: `lab/scenarios/conformance/*.toml`.
//!
//! A scenario has *variants*, each of which is one run: how many tenants, which link, which frames.
//! *Groups* say what tenants are promised and what they send; a tenant belongs to the first group
//! that names it, or to the first that names nobody. Amounts are parts of something that differs
//! between variants and tenants: of the link, of a tenant's share, minimum or rate. *Judgements*
//! say what must hold; their bounds are the suite's.

use serde::Deserialize;
use weir_sim::Ability;
use weir_traffic::{FrameSizes, Rate};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

use super::intent::{FRAME_BYTES, LinkIntent, TenantIntent, TenantLimits, burst_lasting};
use super::measure::{LoadPath, TenantLoad};
use super::scale::RunScale;

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConformanceScenario {
    /// Its name; its cases are `conformance.NAME/PART`.
    pub name: String,
    /// The claim in a few words.
    pub title: String,
    /// The procedure in a sentence or two.
    pub does: String,
    /// The bounds in words, with the names of the suite's numbers in braces.
    pub bounds: String,
    /// Means that the data plane needs.
    #[serde(default, deserialize_with = "abilities")]
    pub needs: Vec<Ability>,
    /// Width of the cells that packets are counted in.
    #[serde(default = "ten_millis")]
    pub(super) cell_us: u64,
    /// Senders skip what they were kept from sending, instead of catching up.
    #[serde(default)]
    pub(super) even: bool,
    /// Length of a run without phases, of which the first second is not judged.
    pub(super) seconds: Option<usize>,
    /// Seconds of traffic after that.
    #[serde(default)]
    pub(super) spare_seconds: usize,
    #[serde(rename = "variant")]
    pub(super) variants: Vec<ScenarioVariant>,
    #[serde(rename = "group")]
    pub(super) groups: Vec<Group>,
    /// Judgements of each run.
    pub(super) judge: Vec<JudgementSpec>,
    #[serde(default)]
    pub(super) phase: Vec<PhaseSpec>,
    #[serde(default)]
    pub(super) quick_phase: Vec<PhaseSpec>,
}

/// One run of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioVariant {
    pub(super) name: Option<String>,
    pub(super) tenants: Option<usize>,
    pub(super) link_mbps: u64,
    pub(super) frames: Frames,
    #[serde(default)]
    pub(super) weights: Vec<u32>,
    #[serde(default)]
    pub(super) rates_mbps: Vec<u64>,
    #[serde(default)]
    pub(super) rates_pps: Vec<u64>,
    /// The factor of all rates.
    #[serde(skip)]
    scale: RunScale,
}

/// Lengths of frames, layer 2 without FCS.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Frames {
    /// All of one length.
    Of(u16),
    /// By name.
    Named(NamedFrames),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NamedFrames {
    /// Each of a length of its own: random, 64 to 1500.
    Mixed,
    /// Tenants in turn 64, 512, 1500 and mixed.
    Apart,
}

/// Promises to some tenants, and their loads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    /// Indices of the tenants; empty: all that no other group names.
    #[serde(default)]
    pub(super) tenants: Vec<usize>,
    pub(super) weight: Option<u32>,
    #[serde(default)]
    pub(super) send: Promise,
    #[serde(default)]
    pub(super) receive: Promise,
    network: Option<u32>,
    /// A delay bound of so many frames of 1518 bytes.
    pub(super) delay_frames: Option<u64>,
    #[serde(default)]
    pub(super) load: Vec<Stream>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Promise {
    /// Guaranteed rate, in per cent of the link.
    pub(super) min_percent: Option<u64>,
    /// Maximum rate, in per cent of the link.
    pub(super) rate_percent: Option<u64>,
    pub(super) burst_ms: Option<u64>,
    pub(super) burst_frames: Option<u64>,
}

/// The base of an amount in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Base {
    /// The link's rate.
    Link,
    /// The tenant's share of the link by its weight.
    Share,
    /// Its minimum in the direction of the load.
    Minimum,
    Rate,
    /// Its packet rate.
    PacketRate,
}

/// A load from a tenant or towards it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    #[serde(default)]
    pub(super) way: StreamWay,
    /// The neighbour that receives it.
    pub(super) to: Option<usize>,
    pub(super) frames: Option<u16>,
    pub(super) pps: Option<u64>,
    pub(super) percent: Option<u64>,
    pub(super) of: Option<Base>,
    /// All tenants of the group divide the amount.
    #[serde(default)]
    pub(super) together: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StreamWay {
    #[default]
    Send,
    Receive,
}

/// Values that hold for a second of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PhaseSpec {
    /// Weights of the first two tenants.
    #[serde(default = "equal")]
    pub(super) weights: [u32; 2],
    /// The second tenant's rate, of the link.
    pub(super) rate_percent: Option<u64>,
}

/// A claim about a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum JudgementSpec {
    /// All tenants share the link in proportion to their weights, and the link is full.
    Shares,
    /// Each tenant with a minimum gets it.
    Minimums {
        /// Cases are named after tenant and direction.
        #[serde(default)]
        by_way: bool,
    },
    /// The loads towards the link fill it.
    Full {
        /// Names of its series.
        streams: Label,
    },
    /// Each tenant with a rate reaches it, and exceeds it by its burst at most.
    Maximums,
    /// A load between neighbours reaches the rate of one of them, and exceeds it by the burst at
    /// most.
    MaximumBetween {
        case: String,
        load: usize,
        /// The neighbour whose rate limits it.
        limit_of: NeighbourEnd,
    },
    /// Each tenant with a packet rate reaches it, and exceeds it by its burst at most.
    PacketRates,
    /// A tenant's packets wait no longer than its delay bound says.
    Delay { tenant: usize },
    /// The first two tenants get in each phase what its weights and rate say.
    Follows,
    /// A tenant loses no packet, and all arrive in order.
    Untouched {
        tenant: usize,
        /// Its least offer, in per cent of the link.
        percent_of_link: u64,
    },
    /// A load was sent at all: the lesser of the link and so many frames a second.
    Offered {
        case: String,
        load: usize,
        /// Frames a second.
        frames: u64,
        bytes: u64,
    },
    /// Traffic between tenants never reaches the link.
    Inside,
}

/// The naming of series of loads.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Label {
    Tenant,
    /// Tenant, direction and load.
    Way,
    Load,
}

/// An end of a load between neighbours.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NeighbourEnd {
    Sender,
    Receiver,
}

impl ConformanceScenario {
    /// Returns the variants to run: the first one alone if quick. With `rates_max`, scales each
    /// variant down so that its tenants together are promised at most that.
    pub(super) fn variants(
        &self,
        quick: bool,
        rates_max: Option<BitRate>,
    ) -> impl Iterator<Item = ScenarioVariant> + '_ {
        let count = if quick { 1 } else { self.variants.len() };
        let variants = self.variants.iter().take(count);
        variants.map(move |variant| match rates_max {
            Some(most) => ScenarioVariant { scale: variant.scale_to(most), ..variant.clone() },
            None => variant.clone(),
        })
    }

    /// Returns true if the scenario judges delays, packet rates or an offer in frames, which a slow
    /// machine cannot show.
    pub(super) fn is_about_speed(&self) -> bool {
        self.judge.iter().any(|judgement| {
            matches!(
                judgement,
                JudgementSpec::Delay { .. }
                    | JudgementSpec::PacketRates
                    | JudgementSpec::Offered { .. }
            )
        })
    }

    /// Returns the phases, if there are any.
    pub(super) fn phases(&self, quick: bool) -> &[PhaseSpec] {
        if quick { &self.quick_phase } else { &self.phase }
    }

    /// Returns the length of a run, and how much of it is judged, in seconds.
    pub(super) fn seconds(&self, quick: bool) -> (usize, usize) {
        let judged = match self.phases(quick).len() {
            0 if quick => QUICK_SECONDS,
            0 => self.seconds.unwrap_or(SECONDS),
            phases => phases + 2,
        };
        (judged + self.spare_seconds, judged)
    }

    /// Returns the promises of a variant at the start.
    pub(super) fn intent(&self, variant: &ScenarioVariant) -> LinkIntent {
        let tenants = (0..variant.tenants()).map(|tenant| self.tenant(variant, tenant));
        // Only beside a limit of packets: a bucket of the kernel's plane is as deep as burst and
        // queue, and a sender that pauses empties a short queue.
        let has_packet_rates = !variant.rates_pps.is_empty();
        let queue_packets = variant.scale.queue_packets().filter(|_| has_packet_rates);
        LinkIntent { link: variant.link(), tenants: tenants.collect(), queue_packets }
    }

    /// Returns the promises of a variant in a phase.
    pub(super) fn intent_in(&self, variant: &ScenarioVariant, phase: &PhaseSpec) -> LinkIntent {
        let mut intent = self.intent(variant);
        for (tenant, weight) in intent.tenants.iter_mut().zip(phase.weights) {
            tenant.send.weight = weight;
            tenant.receive.weight = weight;
        }
        if let Some(second) = intent.tenants.get_mut(1) {
            second.send.rate = phase.rate(variant.link()).map(BitRate::from_bps);
        }
        intent
    }

    /// Returns the loads of a variant: load k is stream k.
    pub(super) fn loads(&self, variant: &ScenarioVariant) -> Result<Vec<TenantLoad>, String> {
        let intent = self.intent(variant);
        let mut loads = Vec::new();
        for (tenant, promised) in intent.tenants.iter().enumerate() {
            let group = self.group(tenant).ok_or_else(|| format!("tenant {tenant}: no group"))?;
            let is_same =
                |other: &usize| self.group(*other).is_some_and(|its| std::ptr::eq(its, group));
            let count = (0..variant.tenants()).filter(is_same).count().max(1) as u64;
            let share = share_of(&intent, tenant);
            for stream in &group.load {
                let way = match (stream.way, stream.to) {
                    (_, Some(to)) => LoadPath::Between(tenant, to),
                    (StreamWay::Send, None) => LoadPath::Send(tenant),
                    (StreamWay::Receive, None) => LoadPath::Receive(tenant),
                };
                let rate = match stream.pps {
                    Some(pps) => Rate::Pps(variant.scale.of(pps)),
                    None => stream.rate(way, promised, intent.link, share, count)?,
                };
                let frames = stream.frames.map(FrameSizes::Fixed);
                let sizes = frames.unwrap_or_else(|| variant.frames.sizes(tenant));
                loads.push(TenantLoad { way, sizes, rate });
            }
        }
        Ok(loads)
    }

    fn tenant(&self, variant: &ScenarioVariant, tenant: usize) -> TenantIntent {
        let Some(group) = self.group(tenant) else { return TenantIntent::default() };
        let link = variant.link();
        let weight = variant.weights.get(tenant).copied().or(group.weight).unwrap_or(1);
        let mut send = group.send.limits(link, weight);
        let rate = variant.rates_mbps.get(tenant).map(|mbps| variant.scale.of_mbps(*mbps));
        send.rate = rate.or(send.rate);
        send.max_pps = variant.rates_pps.get(tenant).map(|pps| variant.scale.of_packets(*pps));
        let receive = group.receive.limits(link, weight);
        let frames = |count| link.time_for_ceil(ByteCount::new(count * DELAY_FRAME_BYTES));
        let delay = group.delay_frames.map(frames);
        TenantIntent { send, receive, network: group.network, delay }
    }

    pub(super) fn group(&self, tenant: usize) -> Option<&Group> {
        let named = self.groups.iter().find(|group| group.tenants.contains(&tenant));
        named.or_else(|| self.groups.iter().find(|group| group.tenants.is_empty()))
    }
}

impl ScenarioVariant {
    /// Returns a name that describes the whole variant.
    pub(super) fn name(&self) -> String {
        let frames = match self.frames {
            Frames::Of(bytes) => format!("{bytes}B"),
            Frames::Named(NamedFrames::Mixed) => "mixed".to_owned(),
            Frames::Named(NamedFrames::Apart) => "apart".to_owned(),
        };
        let whole = || format!("{}x{}M-{frames}", self.tenants(), self.link_mbps);
        let name = self.name.clone().unwrap_or_else(whole);
        if self.scale.is_whole() { name } else { format!("{name}-scaled") }
    }

    /// Returns the factor with which its tenants together are promised `most` (or 1 if they are
    /// promised less): their rates, or packet rates in the suite's longest frames, or else the
    /// whole link.
    fn scale_to(&self, most: BitRate) -> RunScale {
        let (rates, packets) = (self.rates_mbps.iter().sum(), self.rates_pps.iter().sum::<u64>());
        let promised = match (rates, packets) {
            (0, 0) => BitRate::from_mbps(self.link_mbps),
            (0, packets) => BitRate::from_bps(packets * FRAME_BYTES * 8),
            (rates, _) => BitRate::from_mbps(rates),
        };
        RunScale::to(most, promised)
    }

    /// Returns the factor of its rates.
    pub(super) const fn scale(&self) -> RunScale {
        self.scale
    }

    /// Returns the rate of its link.
    pub(super) fn link(&self) -> BitRate {
        self.scale.of_mbps(self.link_mbps)
    }

    /// Returns how many tenants there are: as many as it has values for.
    pub(super) fn tenants(&self) -> usize {
        let listed = self.weights.len().max(self.rates_mbps.len()).max(self.rates_pps.len());
        self.tenants.unwrap_or(listed)
    }
}

impl Frames {
    /// Returns the frame sizes of a tenant.
    fn sizes(self, tenant: usize) -> FrameSizes {
        let mixed = FrameSizes::Uniform { min: SIZES[0], max: SIZES[SIZES.len() - 1] };
        match self {
            Self::Of(bytes) => FrameSizes::Fixed(bytes),
            Self::Named(NamedFrames::Mixed) => mixed,
            Self::Named(NamedFrames::Apart) => SIZES
                .get(tenant % (SIZES.len() + 1))
                .map_or(mixed, |bytes| FrameSizes::Fixed(*bytes)),
        }
    }
}

impl Promise {
    fn limits(&self, link: BitRate, weight: u32) -> TenantLimits {
        let of_link = |percent: u64| BitRate::from_bps(link.as_bps() * percent / 100);
        let rate = self.rate_percent.map(of_link);
        let lasting = self.burst_ms.map(|ms| burst_lasting(rate, Nanos::from_millis(ms)));
        let frames = ByteCount::new(self.burst_frames.unwrap_or(0) * FRAME_BYTES);
        TenantLimits {
            weight,
            min_rate: self.min_percent.map_or(BitRate::ZERO, of_link),
            rate,
            burst: lasting.map(|burst| burst.max(frames)),
            max_pps: None,
        }
    }
}

impl Stream {
    /// Returns the rate of this load. Its tenant's share of the link is `share`, and the tenant's
    /// group has `count` tenants.
    fn rate(
        &self,
        way: LoadPath,
        tenant: &TenantIntent,
        link: BitRate,
        share: u64,
        count: u64,
    ) -> Result<Rate, String> {
        let limits = way.limits(tenant);
        let (Some(percent), Some(of)) = (self.percent, self.of) else {
            return Err("a load has neither pps, nor percent and of".to_owned());
        };
        let base = match of {
            Base::Link => Some(link.as_bps()),
            Base::Share => Some(share),
            Base::Minimum => Some(limits.min_rate.as_bps()).filter(|bps| *bps > 0),
            Base::Rate => limits.rate.map(BitRate::as_bps),
            Base::PacketRate => limits.max_pps.map(PacketRate::as_pps),
        };
        let base = base.ok_or_else(|| format!("{way:?}: {percent} % of {of:?}: it has none"))?;
        let amount = base * percent / 100 / if self.together { count } else { 1 };
        Ok(if of == Base::PacketRate { Rate::Pps(amount) } else { Rate::Bps(amount) })
    }
}

impl PhaseSpec {
    /// Returns the second tenant's rate in bits a second.
    pub(super) fn rate(&self, link: BitRate) -> Option<u64> {
        self.rate_percent.map(|percent| link.as_bps() * percent / 100)
    }
}

/// Returns a tenant's share of the link by its weight, in bits a second.
fn share_of(intent: &LinkIntent, tenant: usize) -> u64 {
    let weight = |tenant: &TenantIntent| u64::from(tenant.send.weight);
    let all: u64 = intent.tenants.iter().map(weight).sum();
    intent.link.as_bps() * intent.tenants.get(tenant).map_or(0, weight) / all.max(1)
}

fn abilities<'de, D: serde::Deserializer<'de>>(names: D) -> Result<Vec<Ability>, D::Error> {
    let ability = |name: String| {
        let known = ABILITIES.iter().find(|(known, _)| *known == name);
        known.map(|(_, ability)| *ability).ok_or_else(|| format!("no ability '{name}'"))
    };
    let names = Vec::<String>::deserialize(names)?;
    let all: Result<Vec<_>, _> = names.into_iter().map(ability).collect();
    all.map_err(serde::de::Error::custom)
}

const fn ten_millis() -> u64 {
    10_000
}

const fn equal() -> [u32; 2] {
    [1, 1]
}

/// Seconds of a run that says nothing else, and of a quick one.
const SECONDS: usize = 6;
const QUICK_SECONDS: usize = 3;

/// The largest frame with a VLAN tag, without FCS.
const DELAY_FRAME_BYTES: u64 = 1518;

const SIZES: [u16; 3] = [64, 512, 1500];

const ABILITIES: [(&str, Ability); 8] = [
    ("weight", Ability::Weight),
    ("minimum", Ability::Minimum),
    ("receive-minimum", Ability::ReceiveMinimum),
    ("maximum", Ability::Maximum),
    ("neighbour-maximum", Ability::NeighbourMaximum),
    ("packet-rate", Ability::PacketRate),
    ("delay", Ability::Delay),
    ("change", Ability::Change),
];
