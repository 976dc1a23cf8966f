// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 15: what row 12 shows in virtual time, on the wire: sixteen greedy TCP connections of the
//! kernel and a sparse flow in one tenant's queue, through a running node, TBF and HTB.

use weir_experiment::prelude::*;
use weir_traffic::SendSpec;

use super::flow_runs::{GREEDY, default_queue};
use crate::peers::{Limiter, PeerLimit, StarBridge};

/// The middle of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WireQueue {
    Flows,
    Tbf,
    HtbFifo,
}

/// One run of the traffic: queue, link and senders.
#[derive(Clone, Copy, Debug)]
struct WireRun {
    queue: WireQueue,
    mbps: u64,
    /// Milliseconds.
    round_trip: u64,
    /// Congestion control of the greedy connections.
    control: &'static str,
}

/// Shows the part of one link speed, by its place in [`SPEEDS`].
pub(super) fn show(rec: &mut Recording<'_>, speed: usize) -> Result<(), ExperimentError> {
    let (mbps, sparse_s) = SPEEDS[speed];
    let cubic = |round_trip| WireRun { queue: WireQueue::Flows, mbps, round_trip, control: CUBIC };
    let round_trips = if rec.quick { &ROUND_TRIPS[..1] } else { &ROUND_TRIPS[..] };
    for round_trip in round_trips.iter().copied() {
        let prefix = format!("{mbps}M/{round_trip}ms");
        measure(rec, &prefix, cubic(round_trip))?;
        judge(rec, &prefix, mbps, sparse_s)?;
    }
    if !rec.quick && has_bbr() {
        let prefix = format!("{mbps}M/bbr");
        measure(rec, &prefix, WireRun { control: BBR, ..cubic(ROUND_TRIPS[0]) })?;
        judge(rec, &prefix, mbps, sparse_s)?;
    }
    // TBF drops what would wait for more than its own latency, so its queue is short, too.
    let peers = [(WireQueue::Tbf, "tbf", 1.0), (WireQueue::HtbFifo, "htb-pfifo", 0.5)];
    for (queue, name, most) in peers {
        let prefix = format!("{mbps}M/{name}");
        measure(rec, &prefix, WireRun { queue, ..cubic(ROUND_TRIPS[0]) })?;
        let names = [format!("{mbps}M/{}ms/sparse", ROUND_TRIPS[0]), format!("{prefix}/sparse")];
        let text = format!("{mbps} Mb/s: a sparse flow's added delay p99, times that of {name}");
        let rule = Rule::RatioOfPercentiles { percent: 99.0 };
        rec.claim(format!("{mbps}M/beside-{name}"), text, rule, Bound::at_most(most), &names)?;
    }
    Ok(())
}

fn judge(
    rec: &mut Recording<'_>,
    prefix: &str,
    mbps: u64,
    sparse_s: f64,
) -> Result<(), ExperimentError> {
    let name = |part: &str| [format!("{prefix}/{part}")];
    let id = |part: &str| format!("{prefix}/{part}/bound");
    let text = format!("{prefix}: added delay of a sparse flow, p99");
    let rule = Rule::Percentile { percent: 99.0 };
    rec.claim(id("sparse"), text, rule, Bound::at_most(sparse_s), &name("sparse"))?;
    let packet_s = 1514.0 * 8.0 / (float(mbps) * 1e6);
    let target_s = (1.5 * packet_s).max(5e-3);
    let bound = Bound::at_most((2.0 * target_s).max(2.0 * float(GREEDY as u64) * packet_s));
    let text = format!("{prefix}: delay in the queue, median of looks");
    rec.claim(id("bulk"), text, Rule::Median, bound, &name("bulk"))?;
    let text = format!("{prefix}: what crosses of the link's rate");
    rec.claim(id("utilization"), text, Rule::Mean, Bound::at_least(0.97), &name("utilization"))?;
    // Jain's index is 1 / (1 + v²), where v is the relative deviation.
    let bound = Bound::at_most((1.0_f64 / 0.98 - 1.0).sqrt());
    let text = format!("{prefix}: relative deviation of {GREEDY} connections (Jain 0.98)");
    rec.claim(id("fairness"), text, Rule::RelativeDeviation, bound, &name("flows"))
}

/// Runs the traffic through one queue, and keeps what was seen as `PREFIX/…`.
fn measure(
    rec: &mut Recording<'_>,
    prefix: &str,
    WireRun { queue, mbps, round_trip, control }: WireRun,
) -> Result<(), ExperimentError> {
    let rate = BitRate::from_mbps(mbps);
    let mut star = StarTopology::new("flows", 1, rate);
    star.round_trip = Nanos::from_millis(round_trip);
    let mut rig = Testbed::up(&star)?;
    put(&mut rig, &star, queue)?;
    rig.ask(&star.tenants[0], StarTopology::congestion_control(control))?;
    let seconds = if rec.quick { 25 } else { 60 };
    let later = |seconds: usize| Some(seconds as u64 * SECOND_NS);
    let sparse = |stream| star.udp(0, stream, 200, Some(Rate::Pps(50)));
    let run = TrafficRun {
        senders: vec![
            SendSpec { start_ns: later(WARM_UP), ..sparse(SPARSE) },
            SendSpec { start_ns: later(ALONE), ..star.tcp(0, 1, GREEDY_COUNT) },
            sparse(ALL_ALONG),
        ],
        receivers: vec![star.sink(), star.tcp_server()],
        ..TrafficRun::new(&star, star.policy(), seconds)
    };
    let (seen, waits) = run.flow(&rig, |rig| looks(rig, seconds))?;
    rig.down()?;
    keep(rec, prefix, &seen, rate)?;
    if queue == WireQueue::Flows {
        rec.keep(&format!("{prefix}/bulk"), Series::unordered("s", waits))?;
    }
    Ok(())
}

fn keep(
    rec: &mut Recording<'_>,
    prefix: &str,
    seen: &TrafficRecord,
    rate: BitRate,
) -> Result<(), ExperimentError> {
    let few = |stream| {
        ExperimentError::Node(format!("{prefix}: stream {stream}: under {DELAYS_MIN} packets came"))
    };
    let delays = |stream| {
        let delays = seen.stream(0, stream).map(|seen| &seen.delays);
        delays.filter(|delays| delays.count >= DELAYS_MIN).ok_or_else(|| few(stream))
    };
    // A packet that met no queue was delayed by the link and its delay line alone: those before the
    // connections began.
    let (least, sparse) = (delays(ALL_ALONG)?.quantile_ns(1, 1000), delays(SPARSE)?);
    let added = |k| float(sparse.quantile_ns(k, 1000).saturating_sub(least)) / 1e9;
    let added = (1..=1000).map(added).collect();
    rec.keep(&format!("{prefix}/sparse"), Series::unordered("s", added))?;
    let bits = seen.got_from(0, StarTopology::mac(0));
    let used = bits.iter().skip(WARM_UP).map(|bits| bits / float(rate.as_bps())).collect();
    rec.keep(&format!("{prefix}/utilization"), Series::sampled("1", 1.0, used))?;
    let connections = seen.received.get(1).map_or(&[][..], |server| &server.connections);
    let flows = connections.iter().map(|connection| float(connection.bytes)).collect();
    rec.keep(&format!("{prefix}/flows"), Series::unordered("B", flows))
}

/// Looks at the delay of the queue, after the connections have started.
fn looks(rig: &Testbed, seconds: usize) -> Result<Vec<f64>, ExperimentError> {
    let Some(node) = rig.node() else { return Ok(Vec::new()) };
    std::thread::sleep(Duration::from_secs(WARM_UP as u64));
    let mut waits = Vec::new();
    for _ in 0..seconds.saturating_sub(WARM_UP + 1) * LOOKS_A_SECOND {
        let status = node.status()?;
        waits.extend(status.vifs.first().map(|vif| float(vif.send.wait_ns) / 1e9));
        std::thread::sleep(Duration::from_secs(1) / u32::try_from(LOOKS_A_SECOND).unwrap_or(1));
    }
    Ok(waits)
}

fn put(rig: &mut Testbed, star: &StarTopology, queue: WireQueue) -> Result<(), ExperimentError> {
    if queue == WireQueue::Flows {
        let mut policy = star.policy();
        policy.vifs[0].send_queue = default_queue(star.rate);
        return rig.put(&policy.into());
    }
    let _bridge = StarBridge::up(rig, star)?;
    let burst = ByteCount::new(2 * 1514);
    // 50 ms of bytes as `latency 50ms`, or a device's 1000 packets.
    let (limiter, queue) = match queue {
        WireQueue::Tbf => (Limiter::Tbf, star.rate.bytes_in_floor(Nanos::from_millis(50))),
        WireQueue::Flows | WireQueue::HtbFifo => (Limiter::Htb, ByteCount::new(1000 * 1514)),
    };
    limiter.up(star, PeerLimit { rate: star.rate, burst, queue })
}

/// Returns true if this kernel has BBR. Where it is a module, somebody must have loaded it.
fn has_bbr() -> bool {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    known.is_ok_and(|known| known.split_whitespace().any(|name| name == BBR))
}

/// Mb/s, and the bound on a sparse flow's added delay in seconds.
const SPEEDS: [(u64, f64); 2] = [(10, 10e-3), (100, 2e-3)];
/// Milliseconds.
const ROUND_TRIPS: [u64; 2] = [20, 80];
const CUBIC: &str = "cubic";
const BBR: &str = "bbr";
const GREEDY_COUNT: u32 = 16;
const _: () = assert!(GREEDY_COUNT as usize == GREEDY, "as many as in virtual time");
/// Seconds before the connections begin.
const ALONE: usize = 1;
/// Seconds that are not judged: connections start, and their first losses are of slow start.
const WARM_UP: usize = 10;
/// The sparse flow that is judged, and the one that is there from the start.
const SPARSE: u16 = 0;
const ALL_ALONG: u16 = 2;
/// Packets of a sparse flow in half of the shortest run.
const DELAYS_MIN: u64 = 300;
const SECOND_NS: u64 = 1_000_000_000;
const LOOKS_A_SECOND: usize = 20;
