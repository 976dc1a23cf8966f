// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Phases on a wire: three backlogged tenants, 100 µs each, frames timed at the other end.
//!
//! The sink stamps each frame of one tenant, another in each run, as it arrives at the peer. Phases
//! begin at multiples of the cycle on the monotonic clock, so that it is known whose phase it is
//! without asking the node. A frame is inside if it came no more than 6 µs before its phase or
//! after it. What a node is entitled to is what the phases hold beside the guard
//! ([`phase_frames`]). Phases that it missed are a series without a claim.

use weir_experiment::prelude::*;
use weir_policy::{Idle, Layer, PortCycle, Reservation, phase_frames};
use weir_traffic::{Record, RecordSpec};

/// Shows one size of frames.
pub(super) fn show(rec: &mut Recording<'_>, size: usize) -> Result {
    let size = SIZES[size];
    let runs = if rec.quick { 1 } else { 5 };
    let mut found: Vec<WirePhases> = Vec::new();
    for run in 0..runs {
        let one = run_once(size, run % OWNERS)?;
        rec.say(&format!("{size} bytes, run {run}: {one:?}"));
        found.push(one);
    }
    let mut keep = |what: &str, value: fn(&WirePhases) -> f64| {
        rec.keep(
            &format!("{size}/{what}"),
            Series::unordered("1", found.iter().map(value).collect()),
        )
    };
    keep("inside", |run| run.inside)?;
    keep("unfair", |run| run.unfair)?;
    keep("sent", |run| run.sent)?;
    keep("missed", |run| run.missed)?;
    keep("late-p50", |run| run.late_p50_us)?;
    keep("late-p99", |run| run.late_p99_us)?;
    let claims = [
        ("inside", "frames inside their phase, 6 µs allowed on either side", Bound::at_least(0.99)),
        ("unfair", "largest distance of a share from a third, of a third", Bound::at_most(0.005)),
        (
            "sent",
            "frames of those that the phases have room for beside the guard",
            Bound::at_least(0.9),
        ),
    ];
    for (what, text, bound) in claims {
        let id = format!("{size}/{what}");
        let text = format!("{size} bytes: {text}, median of {runs}");
        rec.claim(id.clone(), text, Rule::Median, bound, &[id])?;
    }
    Ok(())
}

/// The findings of one run.
#[derive(Clone, Copy, Debug)]
struct WirePhases {
    /// Share of the frames.
    inside: f64,
    unfair: f64,
    sent: f64,
    missed: f64,
    late_p50_us: f64,
    late_p99_us: f64,
}

fn run_once(size: u16, tenant: usize) -> Result<WirePhases> {
    let star = StarTopology::new("iip-phases", OWNERS, LINK);
    let mut policy = star.policy();
    // A real-time thread that sleeps between frames.
    (policy.node.idle, policy.node.reservation) = (Idle::Sleep, Reservation::Fifo);
    let port = &mut policy.ports[0];
    port.layer = Layer::L1;
    port.catch_up = PHASE;
    let length = Nanos::new(PHASE.as_nanos() * OWNERS as u64);
    port.cycle = Some(PortCycle { length, borrow: false });
    policy.slices.iter_mut().for_each(|slice| slice.phase = Some(PHASE));
    // Each offers more than its third. The FCS is none of the frame's bytes here.
    let rate = Some(Rate::Bps(LINK.as_bps() * 2 / 5));
    let streams = (0..STREAMS).map(|n| star.stream(n.into(), n, size - 4, rate)).collect();
    let stream = u16::try_from(tenant).unwrap_or(0);
    let mut sink = star.sink();
    sink.record = Some(RecordSpec { stream, packets_max: 1_000_000 });
    let run = TrafficRun {
        senders: vec![star.generator(streams)],
        receivers: vec![sink],
        ..TrafficRun::new(&star, policy, SECONDS)
    };
    let record = run.run()?;
    let status = record.status.as_ref();
    let phases = status.and_then(|status| status.ports.first()?.phases);
    let phases = phases.ok_or_else(|| failed("the port has no phases in its status"))?;
    let arrivals = record.received.first().map(|sink| &sink.records[..]).unwrap_or_default();
    let [inside, sent] = judge(size, tenant, record.start_ns, arrivals)?;
    let counts: Vec<f64> = (0..STREAMS).map(|n| float(record.packets(0, n))).collect();
    let third = counts.iter().sum::<f64>() / float(OWNERS as u64);
    let unfair = counts.iter().map(|count| (count / third - 1.0).abs()).fold(0.0, f64::max);
    Ok(WirePhases {
        inside,
        unfair,
        sent,
        missed: float(phases.missed) / float((phases.met + phases.missed).max(1)),
        late_p50_us: float(phases.late.p50_ns) / 1e3,
        late_p99_us: float(phases.late.p99_ns) / 1e3,
    })
}

/// The share of a tenant's frames that are inside its phases, and how many there are of those that
/// its phases have room for, over the second after the first.
fn judge(size: u16, tenant: usize, start: u64, arrivals: &[Record]) -> Result<[f64; 2]> {
    let (phase, cycle) = (PHASE.as_nanos(), PHASE.as_nanos() * OWNERS as u64);
    let (from, until) = (start + SETTLED, start + SETTLED + cycle * MEASURED_CYCLES);
    let times = arrivals.iter().map(|arrival| arrival.time_ns);
    let times: Vec<u64> = times.filter(|time| (from..until).contains(time)).collect();
    if times.is_empty() {
        return Err(failed("nothing arrived"));
    }
    // From a little before the tenant's phase.
    let since = |time: &u64| (time + cycle + ALLOWED - tenant as u64 * phase) % cycle;
    let inside = times.iter().filter(|time| since(time) <= phase + 2 * ALLOWED).count();
    let all = float(times.len() as u64);
    let frame = ByteCount::new(u64::from(size) + BETWEEN);
    let room = phase_frames(PHASE, LINK, frame, PortCycle::GUARD);
    Ok([float(inside as u64) / all, all / float(MEASURED_CYCLES * room)])
}

fn failed(what: &str) -> ExperimentError {
    ExperimentError::Node(what.to_owned())
}

const SIZES: [u16; 2] = [512, 1518];
const OWNERS: usize = 3;
const STREAMS: u16 = 3;
const PHASE: Nanos = Nanos::from_micros(100);
const LINK: BitRate = BitRate::from_mbps(1000);
/// Preamble, start and gap.
const BETWEEN: u64 = 20;
const ALLOWED: u64 = 6_000;
const SECONDS: usize = 3;
/// When senders and queues are in their stride, after the start of the traffic.
const SETTLED: u64 = 1_000_000_000;
const MEASURED_CYCLES: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a frame 6 µs early or late is inside, one 7 µs early or late is not.
    #[test]
    fn frames_beside_their_phase_are_seen() {
        let at = |micros: u64| Record {
            time_ns: SETTLED + 300_000_000 + micros * 1000,
            sequence: 0,
            bytes: 508,
            delay_ns: 0,
        };
        // A multiple of the cycle; the second tenant's phase is from 100 to 200 µs after.
        let start = 100_000_000;
        let phase = (SETTLED + 300_000_000) % 300_000;
        assert_eq!(phase, 100_000, "the times above begin with its phase");
        let inside = |times: &[u64]| {
            let arrivals: Vec<Record> = times.iter().map(|time| at(*time)).collect();
            judge(512, 1, start, &arrivals).unwrap()[0]
        };
        assert!((inside(&[0, 50, 106, 294, 300]) - 1.0).abs() < 1e-9);
        assert!((inside(&[50, 107, 293, 200]) - 0.25).abs() < 1e-9);
        assert!(judge(512, 1, start, &[]).is_err());
    }
}
