// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A switch node with veths as they come: default offloads, no GRO, neighbours that expire. It is
//! killed, leaves or gives way to another build, and nobody runs for four seconds: the kernel
//! forwards meanwhile.

use std::path::Path;
use std::time::Instant;

use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_platform::run::Command;
use weir_policy::Kind;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let star = StarTopology {
        resolves: true,
        ..StarTopology::new("kernel-away", TENANTS, BitRate::from_mbps(200))
    };
    let mut rig = Testbed::up(&star)?;
    let own = product::path()?;
    let other = rig.file("weir");
    std::fs::copy(own, &other).map_err(|error| ExperimentError::io(&other, error))?;
    let times = if rec.quick { 2 } else { 10 };
    let events = || NodeEnd::ALL.into_iter().flat_map(|end| std::iter::repeat_n(end, times));
    let count = NodeEnd::ALL.len() * times;
    let run = TrafficRun {
        senders: vec![
            star.tcp(0, 0, 1),
            star.udp(1, 1, 500, Some(Rate::Bps(FLOW_BPS))),
            star.udp(2, 2, 1400, Some(Rate::Bps(2 * LIMIT_BPS))),
        ],
        receivers: vec![star.sink(), star.tcp_server()],
        length: BACK + (AWAY + BACK) * u32::try_from(2 * count).unwrap_or(u32::MAX),
        ..TrafficRun::new(&star, policy(&star), 0)
    };
    rig.put(&run.middle)?;
    let (outcome, (moments, pings)) = run.flow(&rig, |rig| {
        let begun = Instant::now();
        std::thread::sleep(BACK);
        let (mut moments, mut pings) = (Vec::new(), 0);
        for end in events() {
            moments.push(begun.elapsed());
            pings += end.make(rig, if end == NodeEnd::Upgrade { &other } else { own })?;
        }
        moments.push(begun.elapsed());
        Ok((moments, pings))
    })?;
    rig.down()?;
    rec.at_least("pings", "answers to pings while nobody ran, ARP included", pings, count as u64)?;
    let mac = |tenant| StarTopology::mac(tenant);
    let silent = |tenant| silences(&outcome, mac(tenant), &moments);
    rec.keep("udp/gap", Series::unordered("s", silent(1)))?;
    let text = "longest silence of a flow around an end and a start, median";
    rec.claim("gap/median", text, Rule::Median, Bound::at_most(0.1), &["udp/gap"])?;
    let (text, rule) = ("in nine of ten", Rule::Percentile { percent: 90.0 });
    rec.claim("gap/most", text, rule, Bound::at_most(0.3), &["udp/gap"])?;
    let text = "longest time in which TCP made no progress";
    let stalls = Series::unordered("s", silent(0));
    rec.claim_samples("stall", text, stalls, Rule::Max, Bound::at_most(0.5))?;
    let seconds = usize::try_from(moments.last().map_or(0, Duration::as_secs)).unwrap_or(0);
    let limited = outcome.got_from(0, mac(2)).into_iter().take(seconds).skip(1).collect();
    rec.keep("limited", Series::sampled("bit/s", 1.0, limited))?;
    // The bucket of the stand-in is full at an end and holds a tenth of a second; the next node's
    // queue may let as much pass at its start.
    let (text, bound) = ("a limit, every second", Bound::at_most(1.2 * float(LIMIT_BPS)));
    rec.claim("limit", text, Rule::Max, bound, &["limited"])?;
    let (text, bound) = ("the same, mean", Bound::at_most(1.03 * float(LIMIT_BPS)));
    rec.claim("limit/mean", text, Rule::Mean, bound, &["limited"])?;
    let (text, bound) = ("the same, median", Bound::at_least(0.97 * float(LIMIT_BPS)));
    rec.claim("limit/median", text, Rule::Median, bound, &["limited"])
}

/// The way in which a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeEnd {
    Kill,
    Leave,
    Upgrade,
}

impl NodeEnd {
    const ALL: [Self; 3] = [Self::Kill, Self::Leave, Self::Upgrade];

    /// Ends the node, pings past it, and starts `program` later; returns the answered pings.
    fn make(self, rig: &Testbed, program: &Path) -> Result<u64> {
        let (node, since) = (rig.running()?, Instant::now());
        if self == Self::Kill {
            node.crash()?;
        } else {
            node.leave()?;
        }
        rig.ask("t3", Command::line("ip neigh flush all"))?;
        let answered = rig.ping("t3", StarTopology::wire_address().into(), 1)?;
        std::thread::sleep(AWAY.saturating_sub(since.elapsed()));
        node.start_again(program)?;
        std::thread::sleep(BACK);
        Ok(answered)
    }
}

/// Five vifs; one has a limit.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.ports[0].kind = Kind::Xdp;
    policy.vifs.iter_mut().for_each(|vif| vif.kind = Kind::Xdp);
    policy.vifs[0].send.rate = Some(BitRate::from_mbps(100));
    policy.vifs[2].send.rate = Some(BitRate::from_mbps(LIMIT_BPS / 1_000_000));
    policy
}

/// The longest silence of a source from each moment to the next, in seconds.
fn silences(outcome: &TrafficRecord, mac: weir_traffic::Mac, moments: &[Duration]) -> Vec<f64> {
    let window = |moment: &Duration| {
        let nanos = weir_experiment::clock::nanos(*moment);
        usize::try_from(nanos / WINDOW_NS).unwrap_or(usize::MAX)
    };
    let sources = outcome.received.first().map_or(&[][..], |seen| &seen.sources);
    let series = sources.iter().find(|source| source.mac == mac).map(|source| &source.series);
    let count = moments.last().map_or(0, window);
    let bits = outcome.bits(series, WINDOW_NS, count);
    let longest = |pair: &[Duration]| {
        let stretch = bits.get(window(&pair[0])..window(&pair[1])).unwrap_or_default();
        let silent = stretch.split(|bits| *bits > 0.0).map(<[f64]>::len).max();
        float(silent.unwrap_or(stretch.len()) as u64 * WINDOW_NS) / 1e9
    };
    moments.windows(2).map(longest).collect()
}

const TENANTS: usize = 5;
const AWAY: Duration = Duration::from_secs(4);
const BACK: Duration = Duration::from_secs(2);
const LIMIT_BPS: u64 = 20_000_000;
/// 1250 packets a second: 12 in a window.
const FLOW_BPS: u64 = 5_000_000;
const WINDOW_NS: u64 = 10_000_000;
