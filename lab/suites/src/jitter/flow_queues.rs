// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 12: sixteen greedy connections and a sparse flow in one tenant's queue.
//!
//! In virtual time, so exact: TCP is smoltcp's, the queue is the scheduler that ships, with what a
//! policy gives it by default. Beside it stand one queue in order of arrival and models of TBF and
//! of HTB over a pfifo.

use weir_experiment::prelude::*;
use weir_sched::{ClassConfig, SchedulerAlgorithm};
use weir_sim::{CongestionControl, Crossing, ProbeSource, TcpNetwork, TcpSimError};
use weir_units::{BitRate, Instant, Nanos};

use super::flow_runs::{GREEDY, QueueCase, TestedQueue, flow_queue, one_queue, scheduled};

/// Shows the part of one link speed. A quick run leaves out the fastest, which takes minutes.
pub(super) fn show(rec: &mut Recording<'_>, speed: usize) -> Result<(), ExperimentError> {
    let speeds = if rec.quick { &SPEEDS[..2] } else { &SPEEDS[..] };
    let Some((mbps, sparse_s)) = speeds.get(speed).copied() else { return Ok(()) };
    for round_trip_ms in ROUND_TRIPS {
        for (control, name) in CONTROLS {
            let rate = BitRate::from_mbps(mbps);
            let round_trip = Nanos::from_millis(round_trip_ms);
            let case = QueueCase { queue: TestedQueue::Flows, control, rate, round_trip };
            let prefix = format!("{mbps}M/{round_trip_ms}ms/{name}");
            judge(rec, &prefix, &case, sparse_s)?;
        }
    }
    peers(rec, mbps)
}

/// Judges one case by its bounds.
fn judge(
    rec: &mut Recording<'_>,
    prefix: &str,
    case: &QueueCase,
    sparse_s: f64,
) -> Result<(), ExperimentError> {
    let run = case.run(warm_up(case), seconds(rec, case.rate))?;
    let bps = float(case.rate.as_bps());
    rec.claim_samples(
        format!("{prefix}/sparse"),
        format!("{prefix}: delay of a sparse flow, p99"),
        Series::unordered("s", run.sparse),
        Rule::Percentile { percent: 99.0 },
        Bound::at_most(sparse_s),
    )?;
    let packet_s = 1514.0 * 8.0 / bps;
    let target_s = (1.5 * packet_s).max(5e-3);
    rec.claim_samples(
        format!("{prefix}/bulk"),
        format!("{prefix}: delay of greedy connections, median"),
        Series::unordered("s", run.bulk),
        Rule::Median,
        Bound::at_most((2.0 * target_s).max(2.0 * float(GREEDY as u64) * packet_s)),
    )?;
    rec.claim_samples(
        format!("{prefix}/utilization"),
        format!("{prefix}: what crosses of the link's rate"),
        Series::sampled("1", 1.0, run.seconds.iter().map(|bytes| bytes * 8.0 / bps).collect()),
        Rule::Mean,
        Bound::at_least(0.97),
    )?;
    // Jain's index is 1 / (1 + v²), where v is the relative deviation.
    rec.claim_samples(
        format!("{prefix}/fairness"),
        format!("{prefix}: relative deviation of {GREEDY} connections (Jain 0.98)"),
        Series::unordered("B", run.flows),
        Rule::RelativeDeviation,
        Bound::at_most((1.0_f64 / 0.98 - 1.0).sqrt()),
    )
}

/// Keeps what other queues do to the same traffic, and claims that flow queues do better.
fn peers(rec: &mut Recording<'_>, mbps: u64) -> Result<(), ExperimentError> {
    let (control, name) = CONTROLS[1];
    let mut names = Vec::new();
    for queue in TestedQueue::ALL {
        let (rate, round_trip) = (BitRate::from_mbps(mbps), Nanos::from_millis(20));
        let case = QueueCase { queue, control, rate, round_trip };
        let run = case.run(WARM_UP, seconds(rec, case.rate))?;
        let prefix = format!("peers/{mbps}M/{name}/{}", queue.name());
        let used = run.seconds.iter().map(|bytes| bytes * 8.0 / float(rate.as_bps())).collect();
        rec.keep(&format!("{prefix}/sparse"), Series::unordered("s", run.sparse))?;
        rec.keep(&format!("{prefix}/bulk"), Series::unordered("s", run.bulk))?;
        rec.keep(&format!("{prefix}/utilization"), Series::sampled("1", 1.0, used))?;
        rec.keep(&format!("{prefix}/flows"), Series::unordered("B", run.flows))?;
        names.push(format!("{prefix}/sparse"));
    }
    let [flows, others @ ..] = names.as_slice() else { return Ok(()) };
    for (other, queue) in others.iter().zip(&TestedQueue::ALL[1..]) {
        rec.claim(
            format!("peers/{mbps}M/{}", queue.name()),
            format!("{mbps} Mb/s: a sparse flow's delay p99, times that of {}", queue.name()),
            Rule::RatioOfPercentiles { percent: 99.0 },
            Bound::at_most(0.5),
            &[flows, other],
        )?;
    }
    Ok(())
}

/// Two tenants of a 100 Mb/s link, guaranteed 70 and 30 Mb/s, each with eight streams that together
/// ask for more: each second's part is the guarantee within a packet, with flow queues as with one.
pub(super) fn guarantees(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let rate = BitRate::from_mbps(100);
    for (queue, name) in [(flow_queue(rate), "flows"), (one_queue(), "fifo")] {
        let class = |mbps: u32| ClassConfig {
            weight: mbps,
            min_rate: BitRate::from_mbps(mbps.into()),
            queue: queue.clone(),
            ..ClassConfig::default()
        };
        let link = scheduled(rate, SchedulerAlgorithm::Hfsc, &[class(70), class(30)])?;
        // 16 streams of 15 Mb/s, with packets of 200 to 1475 bytes, in turn of one and the other.
        let probe = |index: u32| {
            let bytes = 200 + 85 * index;
            let period = Nanos::new(u64::from(bytes + 14) * 8 * 1_000 / 15);
            ProbeSource { start: Instant::from_nanos(index.into()), period, bytes, is_drawn: false }
        };
        let probes = (0..16).map(probe).collect();
        let failed = |error: TcpSimError| ExperimentError::Node(error.to_string());
        let mut network = TcpNetwork::new(link, Vec::new(), probes, 1).map_err(failed)?;
        let mut got = [vec![0.0; 5], vec![0.0; 5]];
        let end = Instant::ZERO + Nanos::from_millis(6000);
        let mut crossed = |packet: Crossing, starts: Instant, _: Instant| {
            let second = (starts.as_nanos() / 1_000_000_000).checked_sub(1);
            let second = second.and_then(|second| usize::try_from(second).ok());
            let tenant = &mut got[packet.flow % 2];
            if let Some(bits) = second.and_then(|second| tenant.get_mut(second)) {
                *bits += f64::from(packet.bytes) * 8.0;
            }
        };
        network.run(end, &mut crossed).map_err(failed)?;
        for (tenant, mbps) in got.into_iter().zip([70.0, 30.0]) {
            // Two packets: one of each end of the second.
            let bound = Bound::at_least((mbps * 1e6 - 2.0 * 1514.0 * 8.0) / (mbps * 1e6));
            let id = format!("guarantee/{name}/{mbps}");
            let owed = vec![mbps * 1e6; tenant.len()];
            rec.keep(&format!("{id}/got"), Series::sampled("bit/s", 1.0, tenant))?;
            rec.keep(&format!("{id}/owed"), Series::sampled("bit/s", 1.0, owed))?;
            let title = format!("{name}: part of {mbps} Mb/s in the worst second");
            let series = [format!("{id}/got"), format!("{id}/owed")];
            rec.claim(id, title, Rule::LeastRatio, bound, &series)?;
        }
    }
    Ok(())
}

/// Seconds that are judged. A slow link has few packets: in 20 s its connections do not even out.
fn seconds(rec: &Recording<'_>, rate: BitRate) -> u64 {
    let slow = rate <= BitRate::from_mbps(10);
    if rec.quick && !slow { 20 } else { 60 }
}

/// Seconds that are not judged: connections start, their first losses are of slow start, and then
/// their windows even out. Reno adds a packet a round trip, so that a window of W packets takes W/2
/// round trips to be whole again after a loss: 16 s at 1 Gb/s and 80 ms. Eight of these times leave
/// of what told two windows apart a 256th, since each halves it (Chiu and Jain 1989).
fn warm_up(case: &QueueCase) -> u64 {
    let each = case.rate.as_bps() / GREEDY as u64;
    let window = each.saturating_mul(case.round_trip.as_nanos()) / 1_000_000_000 / (8 * 1514);
    let recovery = window.saturating_mul(case.round_trip.as_nanos()) / 2 / 1_000_000_000;
    WARM_UP.max(8 * recovery)
}

/// Mb/s, and the bound on a sparse flow's delay in seconds.
const SPEEDS: [(u64, f64); 3] = [(10, 10e-3), (100, 2e-3), (1000, 0.5e-3)];
/// Milliseconds.
const ROUND_TRIPS: [u64; 2] = [20, 80];
const CONTROLS: [(CongestionControl, &str); 2] =
    [(CongestionControl::Reno, "reno"), (CongestionControl::Cubic, "cubic")];
/// Least seconds that are not judged.
const WARM_UP: u64 = 20;
