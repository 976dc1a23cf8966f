// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Video, web pages and bulk at 2 Mb/s, as the text has them, through each shaper: rows 7 and 8.

use weir_experiment::prelude::*;
use weir_sim::ShapedPacket;
use weir_tester::DelayVariation;
use weir_units::Instant;

use super::scenario::{SHAPED, ShapedScenario};
use super::shaped::{ShaperContender, at, delays_ms, millis, spread, windows};

/// Shows one sender through all shapers, by its place in [`SHAPED`].
pub(super) fn show(rec: &mut Recording<'_>, sender: usize) -> Result<(), ExperimentError> {
    let (name, _) = SHAPED[sender];
    let scenario = ShapedScenario::named(name)?;
    record(rec, name, &scenario)?;
    judge(rec, name, &scenario)
}

/// Keeps what a scenario measures, of each shaper.
pub fn record(
    rec: &mut Recording<'_>,
    name: &str,
    scenario: &ShapedScenario,
) -> Result<(), ExperimentError> {
    for contender in ShaperContender::ALL {
        let packets = scenario.run(contender.make(&scenario.smooth()))?;
        rec.within(&format!("{name}/{}/", contender.name()), |rec| keep(rec, scenario, &packets))?;
    }
    Ok(())
}

fn keep(
    rec: &mut Recording<'_>,
    scenario: &ShapedScenario,
    packets: &[ShapedPacket],
) -> Result<(), ExperimentError> {
    let (two, all) = (Nanos::from_secs(2), (SETTLED, scenario.end()));
    let delays = delays_ms(packets, SETTLED);
    let spread = spread(&delays);
    let (arrived, left) = windows(packets, all, two);
    let allocation = float(scenario.rate.bytes_in_floor(two).get());
    let limit = |bytes: &f64| if scenario.is_greedy() { allocation } else { bytes.min(allocation) };
    let due: Vec<f64> = arrived.iter().map(limit).collect();
    let refused = packets.iter().filter(|packet| packet.left.is_none()).count();
    let rate = left.iter().sum::<f64>() / (allocation * float(left.len() as u64));
    let text = format!("spread {spread:.1} ms, {rate:.3} of the rate, {refused} refused");
    rec.say(&format!("{}: {text}", rec.id()));
    rec.keep("delay", Series::unordered("ms", delays))?;
    rec.keep("spread", Series::unordered("ms", vec![spread]))?;
    keep_variation(rec, packets)?;
    rec.keep("left", Series::unordered("B", left))?;
    rec.keep("due", Series::unordered("B", due))?;
    rec.keep("refused", Series::count("1", refused as u64))
}

/// Keeps the variation of the delay by the standards that say how to count it.
fn keep_variation(
    rec: &mut Recording<'_>,
    packets: &[ShapedPacket],
) -> Result<(), ExperimentError> {
    let settled = packets.iter().filter(|packet| packet.arrived >= SETTLED);
    let delays: Vec<Nanos> =
        settled.filter_map(|of| Some(of.left?.saturating_since(of.arrived))).collect();
    let found = DelayVariation::of(&delays);
    for (part, value) in [
        ("rfc3550/jitter", found.jitter_most),
        ("rfc5481/pdv", found.beyond_least),
        ("rfc5481/ipdv", found.between_neighbours),
    ] {
        rec.keep(part, Series::unordered("ms", vec![millis(value)]))?;
    }
    Ok(())
}

/// Holds what [`record`] kept against the text's bounds.
pub fn judge(
    rec: &mut Recording<'_>,
    name: &str,
    scenario: &ShapedScenario,
) -> Result<(), ExperimentError> {
    let id = |contender: ShaperContender, part: &str| format!("{name}/{}/{part}", contender.name());
    let claim = |part: &str| format!("{name}/{part}");
    let spreads = [id(ShaperContender::Smooth, "spread"), id(ShaperContender::Xen, "spread")];
    let text = "delay p99 - p1 of the smooth window, of that of Xen's own bucket";
    let bound = Bound::at_most(scenario.spread_by_xen);
    rec.claim(claim("smoother"), text, Rule::RatioOfSums, bound, &spreads)?;
    let of = [id(ShaperContender::Smooth, "left"), id(ShaperContender::Smooth, "due")];
    let due = if scenario.is_greedy() { "the" } else { "what arrived within the" };
    let text = format!("bytes in all, of {due} allocation");
    rec.claim(claim("total-least"), &text, Rule::RatioOfSums, Bound::at_least(0.99), &of)?;
    rec.claim(claim("total-most"), &text, Rule::RatioOfSums, Bound::at_most(1.01), &of)?;
    let text = format!("bytes in the worst 2-s window, of {due} allocation");
    rec.claim(claim("window-least"), &text, Rule::LeastRatio, Bound::at_least(0.965), &of)?;
    rec.claim(claim("window-most"), &text, Rule::GreatestRatio, Bound::at_most(1.035), &of)
}

/// The bounds hold after the first 6 s.
const SETTLED: Instant = at(6);
