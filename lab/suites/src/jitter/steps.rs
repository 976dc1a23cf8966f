// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps of load: eight times as many clients, then as many as before, twice as many, and back.

use weir_experiment::prelude::*;
use weir_sched::SmoothConfig;
use weir_sim::{HttpClients, run_shaped};
use weir_units::Instant;

use super::scenario::ROUND_TRIP;
use super::shaped::{ShaperContender, at, windows};

/// Rate and clients of each part.
const PARTS: [(u64, u32); 4] = [(2, 1), (10, 5), (100, 50), (1, 1)];
/// Clients of each step, in those of the first.
const STEPS: [u32; 5] = [1, 8, 1, 2, 1];
/// Seconds of a step.
const STEP: usize = 40;

/// Shows one rate.
pub(super) fn show(rec: &mut Recording<'_>, part: usize) -> Result<(), ExperimentError> {
    let (mbps, clients) = PARTS[part];
    let config = SmoothConfig {
        delay_max: Nanos::from_secs(1),
        ..SmoothConfig::new(BitRate::from_mbps(mbps))
    };
    for contender in [ShaperContender::Smooth, ShaperContender::Pid] {
        let id = |name: &str| format!("{mbps}-mbps/{}/{name}", contender.name());
        let mut shaper = contender.make(&config);
        let steps = (0..).step_by(STEP).zip(STEPS);
        let steps = steps.map(|(from, times)| (at(from), times * clients)).collect();
        let mut source = HttpClients::new(8 << 10, ROUND_TRIP, steps, u64::MAX);
        let end = at((STEP * STEPS.len()) as u64);
        let packets = run_shaped(&mut *shaper, &mut source, end);
        let second = Nanos::from_secs(1);
        let (_, left) = windows(&packets, (Instant::ZERO, end), second);
        let allocation = float(config.rate.bytes_in_floor(second).get());
        let ratios: Vec<f64> = left.iter().map(|bytes| bytes / allocation).collect();
        let each = ratios.chunks(STEP);
        let settled: Vec<f64> = each.clone().map(settles_after).collect();
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let totals: Vec<f64> = each.map(|step| total(step.get(SETTLE..).unwrap_or(&[]))).collect();
        rec.say(&format!("{}: settled after {settled:?} s, most {most:.3}", id("")));
        rec.keep(&id("ratio"), Series::unordered("1", ratios))?;
        rec.keep(&id("settled"), Series::unordered("s", settled))?;
        rec.keep(&id("total"), Series::unordered("1", totals))?;
    }
    judge(rec, mbps)
}

fn judge(rec: &mut Recording<'_>, mbps: u64) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{mbps}-mbps/{part}");
    let of = |part: &str| [format!("{mbps}-mbps/smooth/{part}")];
    let text = "bytes of a step after three intervals, of its allocation";
    rec.claim(id("total-least"), text, Rule::Min, Bound::at_least(0.9), &of("total"))?;
    rec.claim(id("total-most"), text, Rule::Max, Bound::at_most(1.1), &of("total"))?;
    let text = "seconds after which all further ones are within a tenth, median of the steps";
    let bound = Bound::at_most(float(SETTLE as u64));
    rec.claim(id("settled"), text, Rule::Median, bound, &of("settled"))?;
    let text = "bytes of the worst second, of its allocation";
    rec.claim(id("overshoot"), text, Rule::Max, Bound::at_most(1.2), &of("ratio"))
}

/// Seconds after which all further ones are within a tenth of the allocation.
fn settles_after(step: &[f64]) -> f64 {
    let last = step.iter().rposition(|ratio| (ratio - 1.0).abs() > 0.1);
    last.map_or(0.0, |last| float(last as u64 + 1))
}

fn total(ratios: &[f64]) -> f64 {
    ratios.iter().sum::<f64>() / float(ratios.len().max(1) as u64)
}

/// Intervals that a step may take, of a second each.
const SETTLE: usize = 3;
