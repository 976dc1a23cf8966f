// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor time of the three guests by load, as Figs 7 to 9 and Fig 12 of the text have it,
//! and the model of Table 1 fitted to it.
//!
//! A thread's time is what the kernel counted for it, in user mode and in system calls. What the
//! kernel does for it outside of its threads (soft interrupts) is not in it.

use weir_experiment::median;
use weir_experiment::prelude::*;
use weir_tester::{CpuLine, FramePattern};

use super::guest_model::{GuestModel, SizeLoads, lines};
use crate::guests::ParallelInternet::{self, Can, Dss, Qos};
use crate::guests::scenario::{GuestScenario, GuestSweep, size_key};
use crate::guests::sweep;

/// Shows the processor time that a packet takes of each guest.
pub(super) fn by_load(rec: &mut Recording<'_>) -> Result {
    let scenario = GuestScenario::load(rec.quick)?;
    let sweep = scenario.sweep(SWEEP)?.with_sizes(&["128", "1024", "1280", "1518"]);
    let sizes = measure(rec, &scenario, &sweep)?;
    let slopes = |internet| -> Result<Vec<f64>> {
        Ok(lines(&sizes, internet)?.iter().map(CpuLine::slope).collect())
    };
    let (qos, can, dss) = (slopes(Qos)?, slopes(Can)?, slopes(Dss)?);
    let large = |slopes: &[f64]| -> Vec<f64> {
        let all = sizes.iter().zip(slopes);
        all.filter(|(size, _)| size.bytes >= 1024.0).map(|(_, slope)| *slope).collect()
    };
    let unit = "%/1000/s";
    for (name, slopes) in [("qos-large", large(&qos)), ("can-large", large(&can))] {
        rec.keep(name, Series::unordered(unit, slopes))?;
    }
    for (name, slopes) in [("qos-slope", &qos), ("dss-slope", &dss), ("can-slope", &can)] {
        rec.keep(name, Series::unordered(unit, slopes.clone()))?;
    }
    let text = "CAN: processor time a packet by QoS's, sizes from 1024 bytes, least";
    let bound = Bound::at_least(1.3);
    rec.claim("can", text, Rule::LeastRatio, bound, &["can-large", "qos-large"])?;
    let text = "DSS: processor time a packet by QoS's, all sizes, most";
    let bound = Bound::at_most(1.1);
    rec.claim("dss", text, Rule::GreatestRatio, bound, &["dss-slope", "qos-slope"])?;
    // By bits: a Mbit/s of small frames is more packets.
    for bytes in [128.0, 1024.0] {
        let find = |slopes: &Vec<f64>| {
            let mut all = sizes.iter().zip(slopes);
            let (_, slope) = all.find(|(size, _)| (size.bytes - bytes).abs() < 0.5)?;
            Some(slope * 1e3 / (8.0 * bytes))
        };
        let of_bits = [&qos, &can, &dss].into_iter().filter_map(find).collect();
        rec.keep(&format!("mbit-{bytes}"), Series::unordered("%/Mbit/s", of_bits))?;
    }
    let text = "a Mbit/s at 128 bytes by one at 1024, least of the guests";
    let bound = Bound::at_least(1.0);
    rec.claim("bits", text, Rule::LeastRatio, bound, &["mbit-128", "mbit-1024"])
}

/// Shows the lines, one a size and guest, and the surface of each guest.
pub(super) fn fitted(rec: &mut Recording<'_>) -> Result {
    let scenario = GuestScenario::load(rec.quick)?;
    let sweep = scenario.sweep(SWEEP)?;
    let sizes = measure(rec, &scenario, &sweep)?;
    let (mut surfaces, mut held_out) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
    for internet in ParallelInternet::ALL {
        let model = GuestModel::of(&sizes, internet)?;
        let r_square: Vec<f64> = model.lines.iter().map(|line| line.fit().r_square).collect();
        let good = r_square.iter().filter(|r_square| **r_square >= GOOD_LINE).count() as u64;
        let key = internet.key();
        rec.keep(&format!("{key}/r-square"), Series::unordered("1", r_square))?;
        let text = format!("{}: sizes whose line has R² of at least 0.9", internet.name());
        // Of a quick run's two sizes, one.
        let least = if rec.quick { 1.0 } else { 5.0 };
        rec.count(format!("{key}/lines"), text, good, Bound::at_least(least))?;
        for (all, surface) in surfaces.iter_mut().zip(&model.surfaces) {
            all.push(surface.fit().r_square);
        }
        for (all, errors) in held_out.iter_mut().zip(model.held_out.iter().flatten()) {
            all.push(median(errors));
        }
    }
    let [plain, wakeups, batches] = surfaces;
    let seconds = [&plain, &batches].map(|all| Series::unordered("1", vec![median(all)]));
    for (id, all) in [("all", plain), ("wakeups", wakeups), ("batches", batches)] {
        rec.keep(&format!("surface-{id}"), Series::unordered("1", all))?;
    }
    let with = ["", ", with wake-ups that follow from the load"];
    let names = [["surface", "held-out"], ["batches", "batches-held-out"]];
    let each = names.into_iter().zip(with).zip(seconds.into_iter().zip(held_out));
    for (([surface, held_out], with), (second, errors)) in each {
        let text = format!("R² of a guest's surface over all sizes, second of three{with}");
        rec.claim_samples(surface, text, second, Rule::Min, Bound::at_least(0.8))?;
        if errors.is_empty() {
            continue;
        }
        let text = "distance of a size from the surface of all others, median, worst guest";
        let series = Series::unordered("%", errors);
        let text = format!("{text}{with}");
        rec.claim_samples(held_out, text, series, Rule::Max, Bound::at_most(2.0))?;
    }
    Ok(())
}

fn measure(
    rec: &mut Recording<'_>,
    scenario: &GuestScenario,
    sweep: &GuestSweep,
) -> Result<Vec<SizeLoads>> {
    sweep::run(rec, scenario, sweep)?;
    let loads = |size: &FramePattern| {
        let place = format!("{}/{}", sweep.name, size_key(size));
        let loads = sweep::loads(&rec.result, &rec.name(&place));
        SizeLoads { bytes: size.mean(), loads }
    };
    Ok(sweep.sizes.iter().map(loads).collect())
}

const SWEEP: &str = "fixed";
const GOOD_LINE: f64 = 0.9;
