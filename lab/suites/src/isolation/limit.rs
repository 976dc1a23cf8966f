// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One vif with a limit and more to send: its rate over ten seconds, and its worst 100 ms.

use weir_experiment::prelude::*;
use weir_experiment::senders::in_cells;
use weir_policy::{Idle, Share};

/// Shows the row: each rate with a worker that never sleeps, and the two by which lateness shows
/// most with one that does.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    for mbps in [1, 10, 100, 500, 1000] {
        at(rec, mbps, Idle::Spin)?;
    }
    for mbps in [100, 1000] {
        at(rec, mbps, Idle::Sleep)?;
    }
    Ok(())
}

fn at(rec: &mut Recording<'_>, mbps: u64, idle: Idle) -> Result<(), ExperimentError> {
    let measured = if rec.quick { 3 } else { 10 };
    let rate = BitRate::from_mbps(mbps);
    let what = match idle {
        Idle::Spin => format!("{mbps}M"),
        Idle::Sleep => format!("{mbps}M-asleep"),
    };
    let star = StarTopology::new("limit", 1, BitRate::from_mbps(LINK_MBPS));
    let mut policy = star.policy();
    policy.node.idle = idle;
    // As of a policy that names none.
    let burst = Share::default_burst(Some(rate), ByteCount::new(FRAME_BYTES));
    policy.vifs[0].send.rate = Some(rate);
    policy.vifs[0].send.burst = burst;
    let burst_bits = float(burst.get() * 8);
    let offered = Some(Rate::Bps(mbps * 1_200_000));
    let frame_bytes = u16::try_from(FRAME_BYTES).unwrap_or(u16::MAX);
    let outcome = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![star.generator(vec![star.stream(0, 0, frame_bytes, offered)])],
        receivers: vec![in_cells(star.sink(), 1_000)],
        changes: Vec::new(),
        length: Duration::from_secs(SETTLE_MILLIS / 1000 + measured + 1),
        star,
    }
    .run()?;
    let cells = usize::try_from(SETTLE_MILLIS + measured * 1000).unwrap_or(usize::MAX);
    let series = outcome.stream(0, 0).map(|seen| &seen.series);
    let bits = outcome.bits(series, 1_000_000, cells);
    let name = format!("{what}/bits-each-ms");
    rec.keep(&name, Series::sampled("bit", 0.001, bits))?;
    let bps = float(rate.as_bps());
    let total = bps * float(measured);
    let settle = usize::try_from(SETTLE_MILLIS).unwrap_or(0);
    let mean_claim = |part: &str, bound| {
        let id = format!("{what}/{part}");
        Claim::new(id, format!("bits in {measured} s, {part}"), Rule::Sum, bound)
            .of(&[&name])
            .skip(settle)
    };
    let slack = (0.001 * total).max(float(FRAME_BYTES * 8));
    rec.judge(mean_claim("at-least", Bound::at_least(total - slack)))?;
    rec.judge(mean_claim("at-most", Bound::at_most(total + slack)))?;
    // A window that begins within a cell lies in one cell more.
    for (part, samples, text) in [
        ("window", 100, "bits in the fullest 100 ms that begin with a cell of 1 ms"),
        ("any-window", 101, "bits in the fullest 100 ms wherever they begin, to 1 ms"),
    ] {
        let bound = Bound::at_most(bps * 0.001 * f64::from(samples) + burst_bits);
        let id = format!("{what}/{part}");
        let rule = Rule::GreatestWindow { samples };
        rec.claim(id, text, rule, bound, &[&name])?;
    }
    Ok(())
}

/// Above the largest limit, so that the limit is what holds.
const LINK_MBPS: u64 = 2_000;

const FRAME_BYTES: u64 = 1_500;

/// The burst at the beginning has passed by then.
const SETTLE_MILLIS: u64 = 2_000;
