// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tenants who all want more share in proportion to their weights.

use weir_experiment::ExperimentError;
use weir_units::BitRate;

use super::{Frames, Variant};
use crate::conformance::judge::{BALANCE, Share};
use crate::conformance::measure::{Load, Setup};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "weights",
    title: "tenants share in proportion to their weights",
    does: "All tenants want more than their share of the link; weights 1 to 8, and 30 to 1; frames \
           of another size for each tenant, and of one size.",
    bounds: || format!("least ÷ largest throughput by weight ≥ {BALANCE}, in each second"),
    needs: &[Ability::Weight],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for (weights, mbps, frames) in bench.variants(VARIANTS) {
        let variant = Variant { tenants: weights.len(), mbps: *mbps, frames: *frames };
        weigh(bench, &variant, weights)?;
    }
    Ok(())
}

fn weigh(
    bench: &mut Bench<'_, '_, '_>,
    variant: &Variant,
    weights: &[u32],
) -> Result<(), ExperimentError> {
    let part = variant.name();
    let mut intent = Intent::equal(variant.link(), variant.tenants);
    for (tenant, weight) in intent.tenants.iter_mut().zip(weights) {
        tenant.send.weight = *weight;
        tenant.receive.weight = *weight;
    }
    let loads = (0..).zip(weights).map(|(tenant, weight)| {
        let bps = 3 * share(variant.link(), *weight, weights) / 2;
        Load::send(tenant, variant.sizes(tenant), bps)
    });
    let setup = Setup::new(intent, loads.collect(), bench.seconds());
    let seen = bench.measure(&part, &setup)?;
    let shares = (0..).zip(weights).map(|(tenant, weight)| Share {
        name: format!("t{tenant}"),
        got: seen.got(tenant),
        offered: seen.offered(tenant),
        weight: *weight,
    });
    bench.judge.shares(&part, shares.collect(), variant.link().as_bps())
}

/// What a tenant may have of the link, in bits a second.
fn share(link: BitRate, weight: u32, weights: &[u32]) -> u64 {
    let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    link.as_bps() * u64::from(weight) / all.max(1)
}

const VARIANTS: &[(&[u32], u64, Frames)] = &[
    (&[1, 2, 3, 4, 5, 6, 7, 8], 100, Frames::Apart),
    (&[30, 1], 1000, Frames::Of(1500)),
    (&[1, 30], 100, Frames::Of(512)),
    (&[1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8], 1000, Frames::Mixed),
];
