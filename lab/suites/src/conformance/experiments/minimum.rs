// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A minimum holds, whatever the others send and weigh.

use weir_experiment::ExperimentError;
use weir_experiment::claims::GUARANTEED;
use weir_units::BitRate;

use super::{Frames, Variant};
use crate::conformance::measure::{Load, Seen, Setup};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "minimum",
    title: "a minimum holds, whatever the others send and weigh",
    does: "The first two tenants have minimums of 10 % and 30 % of the link and weight 1; all \
           others have weight 100 and want the whole link each.",
    bounds: || {
        format!("throughput ≥ {GUARANTEED} of the lesser of minimum and offer, in each second")
    },
    needs: &[Ability::Minimum, Ability::Weight],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for variant in bench.variants(VARIANTS) {
        let part = variant.name();
        let link = variant.link().as_bps();
        let minimum = |tenant| MINIMUMS_PERCENT.get(tenant).map(|percent| link * percent / 100);
        let mut intent = Intent::equal(variant.link(), variant.tenants);
        for (index, tenant) in intent.tenants.iter_mut().enumerate() {
            match minimum(index) {
                Some(bps) => tenant.send.min_rate = BitRate::from_bps(bps),
                None => tenant.send.weight = FLOODERS_WEIGHT,
            }
        }
        // All floods together are three times the link.
        let flood = 3 * link / (variant.tenants - MINIMUMS_PERCENT.len()).max(1) as u64;
        let load = |tenant| {
            let bps = minimum(tenant).map_or(flood, |bps| bps * 6 / 5);
            Load::send(tenant, variant.sizes(tenant), bps)
        };
        let loads = (0..variant.tenants).map(load).collect();
        let setup = Setup::new(intent, loads, bench.seconds());
        let seen = bench.measure(&part, &setup)?;
        judge(bench, &part, variant, &seen)?;
    }
    Ok(())
}

fn judge(
    bench: &mut Bench<'_, '_, '_>,
    part: &str,
    variant: &Variant,
    seen: &Seen,
) -> Result<(), ExperimentError> {
    let link = variant.link().as_bps();
    for (tenant, percent) in MINIMUMS_PERCENT.iter().enumerate() {
        let both = [seen.got(tenant), seen.offered(tenant)];
        bench.judge.owed(part, &format!("t{tenant}"), both, link * percent / 100)?;
    }
    let streams = (0..variant.tenants).map(|tenant| (format!("t{tenant}"), seen.got(tenant)));
    bench.judge.full(part, streams.collect(), weir_experiment::float(link))
}

/// Of the link, by tenant.
const MINIMUMS_PERCENT: [u64; 2] = [10, 30];

const FLOODERS_WEIGHT: u32 = 100;

const VARIANTS: &[Variant] = &[
    Variant { tenants: 8, mbps: 100, frames: Frames::Apart },
    Variant { tenants: 8, mbps: 10, frames: Frames::Of(64) },
    Variant { tenants: 32, mbps: 100, frames: Frames::Of(64) },
    Variant { tenants: 32, mbps: 1000, frames: Frames::Of(1500) },
];
