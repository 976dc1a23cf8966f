// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tenants of equal weight share equally, although one asks for three times as much.

use weir_experiment::ExperimentError;
use weir_experiment::claims::UTILIZATION;

use super::{Frames, Variant};
use crate::conformance::judge::{BALANCE, Share};
use crate::conformance::measure::{Load, Setup};
use crate::conformance::{Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fairness",
    title: "equal tenants share equally, however much each asks for",
    does: "All tenants want more than their equal share of the link, the first three times as much \
           as the others; with frames of one size, of random sizes, and of another size for each.",
    bounds: || {
        format!(
            "least ÷ largest throughput ≥ {BALANCE} and link ≥ {:.0} % full, in each second",
            UTILIZATION * 100.0
        )
    },
    needs: &[],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for variant in bench.variants(VARIANTS) {
        let part = variant.name();
        let setup = Setup::new(
            Intent::equal(variant.link(), variant.tenants),
            (0..variant.tenants).map(|tenant| load(variant, tenant)).collect(),
            bench.seconds(),
        );
        let seen = bench.measure(&part, &setup)?;
        let share = |tenant| Share {
            name: format!("t{tenant}"),
            got: seen.got(tenant),
            offered: seen.offered(tenant),
            weight: 1,
        };
        let shares = (0..variant.tenants).map(share).collect();
        bench.judge.shares(&part, shares, variant.link().as_bps())?;
    }
    Ok(())
}

fn load(variant: &Variant, tenant: usize) -> Load {
    let share = variant.link().as_bps() / variant.tenants as u64;
    let times = if tenant == 0 { TIMES_AS_ACTIVE } else { 1 };
    Load::send(tenant, variant.sizes(tenant), times * share * 3 / 2)
}

const TIMES_AS_ACTIVE: u64 = 3;

const VARIANTS: &[Variant] = &[
    Variant { tenants: 8, mbps: 100, frames: Frames::Apart },
    Variant { tenants: 2, mbps: 1000, frames: Frames::Of(1500) },
    Variant { tenants: 8, mbps: 10, frames: Frames::Of(64) },
    Variant { tenants: 32, mbps: 100, frames: Frames::Of(512) },
    Variant { tenants: 32, mbps: 1000, frames: Frames::Mixed },
];
