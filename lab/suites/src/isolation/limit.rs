// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One vif with a limit and more to send: its rate over ten seconds, and its worst 100 ms.

use weir_experiment::prelude::*;
use weir_experiment::senders::in_cells;
use weir_experiment::virtual_time::SimRun;
use weir_policy::{Idle, Share};

/// Shows the row: each rate with a worker that never sleeps, and the two by which lateness shows
/// most with one that does.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for mbps in MBPS {
        rec.within(&format!("{mbps}M/"), |rec| at(rec, mbps, Idle::Spin, on_the_wire))?;
    }
    for mbps in [100, 1000] {
        let part = format!("{mbps}M-asleep/");
        rec.within(&part, |rec| at(rec, mbps, Idle::Sleep, on_the_wire))?;
    }
    Ok(())
}

/// Shows the row in virtual time, where a worker neither spins nor sleeps: each rate once.
pub(super) fn show_in_virtual_time(rec: &mut Recording<'_>) -> Result {
    for mbps in MBPS {
        rec.within(&format!("{mbps}M/"), |rec| at(rec, mbps, Idle::Spin, in_virtual_time))?;
    }
    Ok(())
}

fn on_the_wire(_: &mut Recording<'_>, run: TrafficRun) -> Result<TrafficRecord> {
    run.run()
}

fn in_virtual_time(rec: &mut Recording<'_>, run: TrafficRun) -> Result<TrafficRecord> {
    let place = SimRun { part: rec.id(), number: 0, disk: None };
    let made = run.run_in_virtual_time(&rec.sim, &place)?;
    made.note.into_iter().for_each(|note| rec.result.add_note(note));
    Ok(made.record)
}

fn at(
    rec: &mut Recording<'_>,
    mbps: u64,
    idle: Idle,
    run: fn(&mut Recording<'_>, TrafficRun) -> Result<TrafficRecord>,
) -> Result {
    let measured: usize = if rec.quick { 3 } else { 10 };
    let rate = BitRate::from_mbps(mbps);
    // Above the largest limit, so that the limit is what holds.
    let star = StarTopology::new("limit", 1, BitRate::from_mbps(2_000));
    let mut policy = star.policy();
    policy.node.idle = idle;
    // The burst of a policy that names none.
    let burst = Share::default_burst(Some(rate), ByteCount::new(u64::from(FRAME_BYTES)));
    (policy.vifs[0].send.rate, policy.vifs[0].send.burst) = (Some(rate), burst);
    let offered = Some(Rate::Bps(mbps * 1_200_000));
    let traffic = TrafficRun {
        senders: vec![star.generator(vec![star.stream(0, 0, FRAME_BYTES, offered)])],
        receivers: vec![in_cells(star.sink(), 1_000)],
        ..TrafficRun::new(&star, policy, SETTLE_SECONDS + measured + 1)
    };
    let outcome = run(rec, traffic)?;
    let series = outcome.stream(0, 0).map(|seen| &seen.series);
    let bits = outcome.bits(series, 1_000_000, (SETTLE_SECONDS + measured) * 1000);
    let name = "bits-each-ms";
    rec.keep(name, Series::sampled("bit", 0.001, bits))?;
    let bps = float(rate.as_bps());
    let total = bps * float(measured as u64);
    let slack = (0.001 * total).max(f64::from(FRAME_BYTES) * 8.0);
    for (part, bound) in
        [("at-least", Bound::at_least(total - slack)), ("at-most", Bound::at_most(total + slack))]
    {
        let claim = Claim::new(part, format!("bits in {measured} s, {part}"), Rule::Sum, bound);
        rec.judge(claim.of(&[name]).skip(SETTLE_SECONDS * 1000))?;
    }
    // A window that begins within a cell lies in one cell more.
    for (part, samples, text) in [
        ("window", 100, "bits in the fullest 100 ms that begin with a cell of 1 ms"),
        ("any-window", 101, "bits in the fullest 100 ms wherever they begin, to 1 ms"),
    ] {
        let most = bps * 0.001 * f64::from(samples) + float(burst.get() * 8);
        let rule = Rule::GreatestWindow { samples };
        rec.claim(part, text, rule, Bound::at_most(most), &[name])?;
    }
    Ok(())
}

/// Rates of the limit.
const MBPS: [u64; 5] = [1, 10, 100, 500, 1000];

const FRAME_BYTES: u16 = 1_500;

/// The burst at the beginning has passed by then.
const SETTLE_SECONDS: usize = 2;
