// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who keeps to its minimum hardly waits, although others flood the link.

use weir_experiment::ExperimentError;
use weir_units::{BitRate, ByteCount, Nanos};

use super::{Frames, Variant};
use crate::conformance::measure::{Load, Setup};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "delay",
    title: "who keeps to its minimum waits for two frames",
    does: "The first tenant has a tenth of the link and a delay bound of two frames, and sends 95 \
           % of that evenly; the others send three times the link.",
    bounds: || {
        format!("99 of 100 packets within two frames of 1518 bytes and {} µs", SLACK_S * 1e6)
    },
    needs: &[Ability::Minimum, Ability::Delay],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for variant in bench.variants(VARIANTS) {
        let part = variant.name();
        let link = variant.link();
        let minimum = link.as_bps() / 10;
        let two_frames = link.time_for_ceil(ByteCount::new(2 * LONGEST_BYTES));
        let mut intent = Intent::equal(link, variant.tenants);
        intent.tenants[0].send.min_rate = BitRate::from_bps(minimum);
        intent.tenants[0].delay = Some(two_frames);
        let flood = 3 * link.as_bps() / (variant.tenants - 1) as u64;
        let load = |tenant| {
            let bps = if tenant == 0 { minimum * 95 / 100 } else { flood };
            Load::send(tenant, variant.sizes(tenant), bps)
        };
        let loads = (0..variant.tenants).map(load).collect();
        let setup = Setup { even: true, ..Setup::new(intent, loads, bench.seconds()) };
        let seen = bench.measure(&part, &setup)?;
        bench.judge.waits(&part, seen.delays(0), seconds(two_frames) + SLACK_S)?;
        // What is lost has no delay.
        bench.judge.owed(&part, "t0", [seen.got(0), seen.offered(0)], minimum)?;
        let streams = (0..variant.tenants).map(|tenant| (format!("t{tenant}"), seen.got(tenant)));
        bench.judge.full(&part, streams.collect(), weir_experiment::float(link.as_bps()))?;
    }
    Ok(())
}

fn seconds(length: Nanos) -> f64 {
    weir_experiment::float(length.as_nanos()) / 1e9
}

/// A frame of a VLAN.
const LONGEST_BYTES: u64 = 1518;

/// For the devices on the way and a shared machine.
const SLACK_S: f64 = 200e-6;

const VARIANTS: &[Variant] = &[
    Variant { tenants: 2, mbps: 1000, frames: Frames::Of(1500) },
    Variant { tenants: 8, mbps: 100, frames: Frames::Of(1500) },
    Variant { tenants: 8, mbps: 1000, frames: Frames::Mixed },
];
