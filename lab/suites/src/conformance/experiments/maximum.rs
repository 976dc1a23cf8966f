// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rate is reached, and in no window exceeded by more than its burst.

use std::time::Duration;

use weir_experiment::ExperimentError;
use weir_traffic::FrameSizes;
use weir_units::BitRate;

use crate::conformance::intent::FRAME_BYTES;
use crate::conformance::judge::{RATE_ERROR, SETTLE_SECONDS};
use crate::conformance::measure::{Load, Setup};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "maximum",
    title: "a rate is reached, and exceeded by its burst at most",
    does: "Tenants with rates of their own, on a link with room for all, ask for 20 % more.",
    bounds: || {
        format!(
            "rate to {:.1} % of ten seconds, and the time that the machine was without a \
             processor; no 100 ms hold more than rate · T + burst, \
             the burst being two frames or 5 ms at the rate",
            RATE_ERROR * 100.0
        )
    },
    needs: &[Ability::Maximum],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for rates_mbps in bench.variants(VARIANTS) {
        let link = BitRate::from_mbps(LINK_MBPS);
        let mut intent = Intent::equal(link, rates_mbps.len());
        let mut loads = Vec::new();
        for (index, mbps) in rates_mbps.iter().enumerate() {
            intent.tenants[index].send.rate = Some(BitRate::from_mbps(*mbps));
            let frame = u16::try_from(FRAME_BYTES).unwrap_or(u16::MAX);
            loads.push(Load::send(index, FrameSizes::Fixed(frame), mbps * 1_200_000));
        }
        // The second more covers that the last cell may not be full.
        let seconds = if bench.quick() { bench.seconds() } else { LONG_SECONDS };
        let setup = Setup { cell_us: 1_000, ..Setup::new(intent, loads, seconds + 1) };
        let names: Vec<_> = rates_mbps.iter().map(|mbps| format!("{mbps}M")).collect();
        let part = names.join("+");
        let seen = bench.measure(&part, &setup)?;
        let mut total = 0.0;
        for (tenant, name) in names.iter().enumerate() {
            let bits = seen.bits(tenant, Duration::from_millis(1), seconds * 1000);
            total += bits.iter().skip(1000 * SETTLE_SECONDS).sum::<f64>();
            let limits = &setup.intent.tenants[tenant].send;
            bench.judge.limited(&format!("{part}/{name}"), bits, limits, seen.stolen_s())?;
        }
        let measured = weir_experiment::float((seconds - SETTLE_SECONDS) as u64);
        bench.judge.utilized(total / measured / weir_experiment::float(link.as_bps()));
    }
    Ok(())
}

/// Ten seconds are judged.
const LONG_SECONDS: usize = SETTLE_SECONDS + 10;

/// Above all rates together.
const LINK_MBPS: u64 = 2_000;

const VARIANTS: &[&[u64]] = &[&[10, 100, 500], &[1, 2, 5, 10, 20, 50, 100, 200], &[1000]];
