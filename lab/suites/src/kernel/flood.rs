// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flood of 64-byte frames beyond its vif's limit, from one vif and then towards one, beside the
//! host's bridge with HTB in the same run. Weir's data plane drops what exceeds a limit before the
//! bridge sees it. It forwards the rest past the bridge (`node.redirect`) or, in a second run,
//! across it. HTB drops at the end of the path.
//!
//! The flood has the same rate before both, so that the packets carried, divided by the time that
//! all processors spent in soft interrupts, compare what carrying them costs. Bridge, programs,
//! disciplines and the sink work in soft interrupts; the generator does not. Processes beside the
//! lab hardly do, so that a busy machine disturbs the ratio little. Each soft interrupt is timed:
//! the tick's samples of `/proc/stat` differed by a factor of six between repetitions.

use std::time::Instant;

use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_traffic::{SoftirqMeter, XdpStream};

use super::setting::policy;
use crate::peers::{Htb, StarBridge};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let repetitions = if rec.quick { 2 } else { 5 };
    for way in [Way::From, Way::Towards] {
        let mut seen: [Vec<FloodResult>; 3] = Default::default();
        for _ in 0..repetitions {
            for (plane, seen) in Plane::ALL.into_iter().zip(&mut seen) {
                let one = way.measure(plane, rec.quick)?;
                rec.say(&format!(
                    "{} a vif, {}: {:.0} packets a second of soft interrupts, {:.1} % of a \
                     processor in them, the others' least second {:.2} of theirs",
                    way.name(),
                    plane.name(),
                    one.efficiency,
                    100.0 * one.soft_interrupts,
                    one.least_second,
                ));
                seen.push(one);
            }
        }
        for (plane, seen) in Plane::ALL.iter().zip(&seen) {
            let mut keep = |what: &str, unit: &str, value: fn(&FloodResult) -> f64| {
                let name = format!("{}/{}/{what}", way.name(), plane.name());
                rec.keep(&name, Series::unordered(unit, seen.iter().map(value).collect()))
            };
            keep("per-cpu", "packet/s", |seen| seen.efficiency)?;
            keep("soft-interrupts", "1", |seen| seen.soft_interrupts)?;
            keep("flood", "packet/s", |seen| seen.flood_pps)?;
            keep("offered", "packet/s", |seen| seen.offered_pps)?;
            keep("others", "1", |seen| seen.median_second)?;
            keep("others-least", "1", |seen| seen.least_second)?;
        }
        judge(rec, way)?;
    }
    Ok(())
}

fn judge(rec: &mut Recording<'_>, way: Way) -> Result {
    let name = |plane: Plane, what: &str| format!("{}/{}/{what}", way.name(), plane.name());
    for (plane, least, id) in [(Plane::Weir, 1.5, "cost"), (Plane::WeirCrossing, 0.0, "crossing")] {
        let pair = [plane, Plane::BridgeHtb].map(|plane| name(plane, "per-cpu"));
        let text = format!(
            "{} a vif, {}: packets per second of soft interrupts : bridge + HTB",
            way.name(),
            plane.name(),
        );
        let id = format!("{}/{id}", way.name());
        rec.claim(id, text, Rule::RatioOfMedians, Bound::at_least(least), &pair)?;
    }
    let text = format!("{} a vif: the others' median second, of what they sent", way.name());
    let own = [name(Plane::Weir, "others")];
    rec.claim(format!("{}/others", way.name()), text, Rule::Min, Bound::at_least(0.99), &own)?;
    let text = format!("{} a vif: the flood at its limit of {LIMIT_PPS} pps, most", way.name());
    let own = [name(Plane::Weir, "flood")];
    let most = Bound::at_most(1.02 * float(LIMIT_PPS));
    rec.claim(format!("{}/limit", way.name()), text, Rule::Max, most, &own)?;
    let text = format!("{} a vif: the flood at its limit of {LIMIT_PPS} pps, least", way.name());
    let least = Bound::at_least(0.95 * float(LIMIT_PPS));
    rec.claim(format!("{}/limit-used", way.name()), text, Rule::Min, least, &own)?;
    // With less, the flood would be none.
    let text = format!("{} a vif: packets of the flood a second, offered", way.name());
    let offered = Plane::ALL.map(|plane| name(plane, "offered"));
    let least = Bound::at_least(0.5 * float(FLOOD_PPS));
    rec.claim(format!("{}/offered", way.name()), text, Rule::Min, least, &offered)
}

/// The forwarder. The host's bridge is part of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plane {
    /// Known unicast leaves past the bridge.
    Weir,
    /// All that is not dropped crosses the bridge.
    WeirCrossing,
    BridgeHtb,
}

impl Plane {
    const ALL: [Self; 3] = [Self::Weir, Self::WeirCrossing, Self::BridgeHtb];

    const fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::WeirCrossing => "weir-crossing",
            Self::BridgeHtb => "bridge-htb",
        }
    }
}

/// The direction of the flood, as tenant 0 sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    From,
    Towards,
}

/// The result of one repetition.
#[derive(Clone, Copy, Debug)]
struct FloodResult {
    /// Packets that arrived for each second of soft interrupts.
    efficiency: f64,
    /// Processors in soft interrupts.
    soft_interrupts: f64,
    /// Packets of the flood that arrived in the fullest second, without the first.
    flood_pps: f64,
    /// Packets of the flood that were sent, a second.
    offered_pps: f64,
    /// The part of what the other tenant sent that arrived in the median second.
    median_second: f64,
    /// The least part that arrived in a second.
    least_second: f64,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::From => "from",
            Self::Towards => "towards",
        }
    }

    /// Runs one repetition, on a lab of its own.
    fn measure(self, plane: Plane, quick: bool) -> Result<FloodResult> {
        let star = StarTopology::new("kernel-flood", 2, LINK);
        let mut rig = Testbed::up(&star)?;
        // No plane is to pay for filters that nobody has. Past a bridge with any filter, Weir sends
        // nothing.
        rig.ask("sw", Command::new("sh", ["-c", NO_NETFILTER]))?;
        match plane {
            Plane::Weir | Plane::WeirCrossing => {
                let mut policy = self.policy(&star);
                policy.node.redirect = plane == Plane::Weir;
                rig.put(&policy.into())?;
                self.flow(&rig, quick)
            }
            Plane::BridgeHtb => {
                let bridge = StarBridge::up(&mut rig, &star)?;
                let burst = ByteCount::new(BURST_BYTES);
                Htb { link: LINK, class: OTHERS_MIN, burst, packets: QUEUE_PACKETS }.up(&star)?;
                rig.ask("sw", Command::batch("tc", self.limit_lines()))?;
                let seen = self.flow(&rig, quick);
                bridge.down()?;
                seen
            }
        }
        .and_then(|seen| rig.down().map(|()| seen))
    }

    /// Returns a policy in which the other tenant has a guarantee, and tenant 0 a limit in the
    /// flood's direction. The limit is in bits, since HTB can hold no other.
    fn policy(self, star: &StarTopology) -> Policy {
        let mut policy = policy(star);
        policy.vifs[1].send.min_rate = OTHERS_MIN;
        let vif = &mut policy.vifs[0];
        let (share, queue) = match self {
            Self::From => (&mut vif.send, &mut vif.send_queue),
            Self::Towards => (&mut vif.receive, &mut vif.receive_queue),
        };
        share.rate = Some(limit());
        share.burst = ByteCount::new(BURST_BYTES);
        queue.packets = QUEUE_PACKETS;
        queue.bytes = ByteCount::new(u64::from(QUEUE_PACKETS) * u64::from(FRAME_BYTES));
        policy
    }

    /// Returns the commands that set the limit, as a person would type them.
    fn limit_lines(self) -> Vec<String> {
        let rate = format!("{}bit", limit().as_bps());
        let class = format!("htb rate {rate} ceil {rate} burst {BURST_BYTES} cburst {BURST_BYTES}");
        match self {
            Self::From => {
                vec![format!("class change dev {UPLINK} parent 1:1 classid 1:10 {class}")]
            }
            Self::Towards => vec![
                "qdisc replace dev t0 root handle 1: htb default 1".to_owned(),
                format!("class add dev t0 parent 1: classid 1:1 {class}"),
                format!("qdisc add dev t0 parent 1:1 handle 10: pfifo limit {QUEUE_PACKETS}"),
            ],
        }
    }

    /// Floods, and measures what comes through and what it costs.
    fn flow(self, rig: &Testbed, quick: bool) -> Result<FloodResult> {
        let star = rig.star();
        let (flood, other) = (Some(Rate::Pps(FLOOD_PPS)), Some(Rate::Bps(OTHER_BPS)));
        let stream = |flood| -> XdpStream {
            match self {
                Self::From => star.stream(0, FLOOD, FRAME_BYTES, flood),
                Self::Towards => star.stream_towards(0, FLOOD, FRAME_BYTES, flood),
            }
        };
        let streams = vec![
            stream(flood),
            star.stream(1, OTHER_SENDS, OTHER_BYTES, other),
            star.stream_towards(1, OTHER_RECEIVES, OTHER_BYTES, other),
            // The bridge learns from it where tenant 0 is.
            star.stream(0, LEARNED, FRAME_BYTES, Some(Rate::Pps(10))),
        ];
        let seconds = if quick { 4 } else { 6 };
        let run = TrafficRun {
            senders: vec![star.generator(streams)],
            receivers: vec![star.sink(), star.sink_at("t0"), star.sink_at("t1")],
            ..TrafficRun::new(star, Forwarder::Bridge, seconds)
        };
        let meter = SoftirqMeter::start()?;
        let (outcome, soft_interrupts) = run.flow(rig, |_| {
            weir_experiment::clock::sleep(WARM_UP)?;
            let (begun, before) = (Instant::now(), meter.total()?);
            weir_experiment::clock::sleep(run.length.saturating_sub(2 * WARM_UP))?;
            let spent = meter.total()?.saturating_sub(before);
            Ok(spent.as_secs_f64() / begun.elapsed().as_secs_f64())
        })?;
        let rate = |packets: u64| float(packets) / run.length.as_secs_f64();
        let at_flood = if self == Self::From { 0 } else { 1 };
        let carried = rate(outcome.packets(at_flood, FLOOD));
        let each = outcome.got(at_flood, FLOOD).into_iter().skip(1);
        let flood_pps = each.fold(0.0, f64::max) / f64::from(8 * FRAME_BYTES);
        let others = [(0, OTHER_SENDS), (2, OTHER_RECEIVES)];
        let all: u64 = others.iter().map(|(at, stream)| outcome.packets(*at, *stream)).sum();
        let mut parts: Vec<f64> = Vec::new();
        for (at, stream) in others {
            let pairs = outcome.got(at, stream).into_iter().zip(outcome.offered(stream)).skip(1);
            parts.extend(pairs.map(|(got, offered)| got / offered.max(1.0)));
        }
        parts.sort_by(f64::total_cmp);
        Ok(FloodResult {
            efficiency: (carried + rate(all)) / soft_interrupts.max(f64::MIN_POSITIVE),
            soft_interrupts,
            flood_pps,
            offered_pps: rate(outcome.packets_sent(FLOOD)),
            median_second: parts.get(parts.len() / 2).copied().unwrap_or(0.0),
            least_second: parts.first().copied().unwrap_or(0.0),
        })
    }
}

/// Returns the limit of the flood, in bits.
fn limit() -> BitRate {
    BitRate::from_bps(LIMIT_PPS * u64::from(FRAME_BYTES) * 8)
}

/// Keeps netfilter from the bridge's frames, where it sees any (`br_netfilter`).
const NO_NETFILTER: &str = "
    for value in /proc/sys/net/bridge/bridge-nf-call-*; do
        if [ -e \"$value\" ]; then echo 0 >\"$value\"; fi
    done
";
const LINK: BitRate = BitRate::from_mbps(200);
const OTHERS_MIN: BitRate = BitRate::from_mbps(20);
const OTHER_BPS: u64 = 2_000_000;
const OTHER_BYTES: u16 = 500;
const FRAME_BYTES: u16 = 64;
/// Few enough for a loaded machine to offer. The flood's ratio to its limit decides what early
/// drops save.
const FLOOD_PPS: u64 = 60_000;
const LIMIT_PPS: u64 = 8_000;
const BURST_BYTES: u64 = 12_800;
const QUEUE_PACKETS: u32 = 200;
const FLOOD: u16 = 0;
const OTHER_SENDS: u16 = 1;
const OTHER_RECEIVES: u16 = 2;
const LEARNED: u16 = 3;
const WARM_UP: Duration = Duration::from_millis(500);
