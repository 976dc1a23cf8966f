// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weights, then a rate, change each second while all want the whole link: what each gets follows,
//! and who keeps to its minimum loses nothing.

use std::time::Duration;

use weir_experiment::ExperimentError;
use weir_traffic::FrameSizes;
use weir_units::BitRate;

use crate::conformance::judge::{FOLLOWS, Phase};
use crate::conformance::measure::{Load, Seen, Setup};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "change",
    title: "what each gets follows a changed value at once, and nothing is lost",
    does: "Two tenants want the whole link; their weights change each second, from 30 : 1 to \
           1 : 30, then the rate of one does. A third keeps to its minimum meanwhile.",
    bounds: || {
        format!(
            "100 ms after each change, both within {:.0} % of weights and rate until the next; of \
             the third no packet is lost or reordered",
            (1.0 - FOLLOWS) * 100.0
        )
    },
    needs: &[Ability::Weight, Ability::Minimum, Ability::Maximum, Ability::Change],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for (mbps, frame_bytes) in bench.variants(VARIANTS) {
        let phases = if bench.quick() { QUICK } else { PHASES };
        at(bench, BitRate::from_mbps(*mbps), *frame_bytes, phases)?;
    }
    Ok(())
}

fn at(
    bench: &mut Bench<'_, '_, '_>,
    link: BitRate,
    frame_bytes: u16,
    values: &[Values],
) -> Result<(), ExperimentError> {
    let part = format!("{}M-{frame_bytes}B", link.as_bps() / 1_000_000);
    let sizes = FrameSizes::Fixed(frame_bytes);
    let flood = |tenant| Load::send(tenant, sizes.clone(), 2 * link.as_bps());
    let calm = Load::send(CALM, sizes.clone(), link.as_bps() / 20);
    let first = values.first().map_or_else(|| Intent::equal(link, 3), |first| intent(link, first));
    let changes = (1..)
        .zip(values)
        .map(|(second, values)| (Duration::from_secs(second), intent(link, values)));
    let setup = Setup {
        changes: changes.collect(),
        ..Setup::new(first, vec![flood(0), flood(1), calm], values.len() + 2)
    };
    let seen = bench.measure(&part, &setup)?;
    judge(bench, &part, link, values, &seen)
}

fn judge(
    bench: &mut Bench<'_, '_, '_>,
    part: &str,
    link: BitRate,
    values: &[Values],
    seen: &Seen,
) -> Result<(), ExperimentError> {
    let cells = |load| seen.bits(load, CELL, (values.len() + 1) * CELLS_OF_PHASE);
    let [wild, other, calm] = [cells(0), cells(1), cells(2)];
    let phase = |(number, values): (usize, &Values)| {
        let begin = number * CELLS_OF_PHASE + CELLS_LEFT_OUT;
        let sum = |cells: &[f64]| {
            cells.iter().skip(begin).take(CELLS_OF_PHASE - CELLS_LEFT_OUT).sum::<f64>()
        };
        Phase {
            got: [sum(&wild), sum(&other)],
            rest: sum(&calm),
            weights: values.weights,
            rate_bps: values.rate_percent.map(|percent| link.as_bps() * percent / 100),
        }
    };
    let phases: Vec<Phase> = (1..).zip(values).map(phase).collect();
    bench.judge.follows(part, &phases, JUDGED_S, weir_experiment::float(link.as_bps()))?;
    let (sent, arrived) = seen.counts(CALM);
    let lost = sent.abs_diff(arrived);
    bench.judge.none(&format!("{part}/lost"), "packets within the minimum lost", lost)?;
    let order = seen.order(CALM);
    let wrong = order.reordered + order.duplicated + order.stale;
    bench.judge.none(&format!("{part}/order"), "of those, late or doubled", wrong)?;
    // Of nothing nothing is lost.
    let offered = seen.offered(CALM);
    let least = weir_experiment::float(link.as_bps()) / 25.0;
    bench.judge.offered(&format!("{part}/calm"), offered, least)
}

/// The third tenant is owed a tenth of the link, and asks for half of that.
fn intent(link: BitRate, values: &Values) -> Intent {
    let mut intent = Intent::equal(link, 3);
    for (tenant, weight) in intent.tenants.iter_mut().zip(values.weights) {
        tenant.send.weight = weight;
        tenant.receive.weight = weight;
    }
    let rate = values.rate_percent.map(|percent| link.as_bps() * percent / 100);
    intent.tenants[1].send.rate = rate.map(BitRate::from_bps);
    intent.tenants[CALM].send.min_rate = BitRate::from_bps(link.as_bps() / 10);
    intent
}

/// What holds for a second.
#[derive(Clone, Copy, Debug)]
struct Values {
    weights: [u32; 2],
    /// The second tenant's, of the link.
    rate_percent: Option<u64>,
}

const fn weights(first: u32, second: u32) -> Values {
    Values { weights: [first, second], rate_percent: None }
}

const fn rate(percent: u64) -> Values {
    Values { weights: [1, 1], rate_percent: Some(percent) }
}

const CALM: usize = 2;

const QUICK: &[Values] = &[weights(30, 1), weights(1, 30), rate(10)];

const PHASES: &[Values] = &[
    weights(30, 1),
    weights(10, 1),
    weights(3, 1),
    weights(1, 1),
    weights(1, 3),
    weights(1, 10),
    weights(1, 30),
    rate(10),
    rate(40),
    rate(2),
    weights(2, 1),
];

/// Link in Mb/s, and length of the frames.
const VARIANTS: &[(u64, u16)] = &[(100, 1500), (1000, 1500), (100, 200)];

const CELL: Duration = Duration::from_millis(100);
const CELLS_OF_PHASE: usize = 10;

/// A change has 100 ms.
const CELLS_LEFT_OUT: usize = 1;

/// Seconds of each phase that are judged.
const JUDGED_S: f64 = 0.9;
