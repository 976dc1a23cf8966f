// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A packet rate is reached, and in no window exceeded by more than its burst.

use std::time::Duration;

use weir_experiment::ExperimentError;
use weir_traffic::Rate;
use weir_units::PacketRate;

use super::{Frames, Variant};
use crate::conformance::judge::{PACKET_RATE_ERROR, Policed, SETTLE_SECONDS};
use crate::conformance::measure::{Load, Setup, Way};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "packet-rate",
    title: "a packet rate is reached, and exceeded by its burst at most",
    does: "Tenants with packet rates of 1000 to 200 000 a second, on a link with room for all, \
           send half as many again, of 64 bytes and of random sizes.",
    bounds: || {
        format!(
            "as many packets as a bucket of 64 packets or 1 ms lets through of the offer, to \
             {:.0} % and the time that the machine was without a processor; no 100 ms hold more \
             than rate · T + burst, and what delays can add",
            PACKET_RATE_ERROR * 100.0
        )
    },
    needs: &[Ability::PacketRate],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for (rates_pps, frames) in bench.variants(VARIANTS) {
        let variant = Variant { tenants: rates_pps.len(), mbps: LINK_MBPS, frames: *frames };
        let mut intent = Intent::equal(variant.link(), variant.tenants);
        let mut loads = Vec::new();
        for (tenant, pps) in rates_pps.iter().enumerate() {
            intent.tenants[tenant].send.max_pps = Some(PacketRate::from_pps(*pps));
            let (way, rate) = (Way::Send(tenant), Rate::Pps(pps * 3 / 2));
            loads.push(Load { way, sizes: variant.sizes(tenant), rate });
        }
        let setup = Setup { cell_us: 1_000, ..Setup::new(intent, loads, bench.seconds() + 1) };
        let part = variant.name();
        let seen = bench.measure(&part, &setup)?;
        let millis = bench.seconds() * 1000;
        let mut total = 0.0;
        for (tenant, pps) in rates_pps.iter().enumerate() {
            let width = Duration::from_millis(1);
            let bits = seen.bits(tenant, width, millis);
            total += bits.iter().skip(1000 * SETTLE_SECONDS).sum::<f64>();
            let packets = seen.packets(tenant, width, millis);
            let offered = seen.packets_offered(tenant, width, millis);
            let limits = &setup.intent.tenants[tenant].send;
            let (delays, stolen_s) = (&seen.on_the_way(tenant), seen.stolen_s());
            let policed = Policed { packets, offered: &offered, delays, stolen_s };
            bench.judge.limited_packets(&format!("{part}/{pps}pps"), policed, limits)?;
        }
        let measured = weir_experiment::float((bench.seconds() - SETTLE_SECONDS) as u64);
        bench.judge.utilized(total / measured / weir_experiment::float(variant.link().as_bps()));
    }
    Ok(())
}

const LINK_MBPS: u64 = 2_000;

const VARIANTS: &[(&[u64], Frames)] =
    &[(&[1_000, 10_000, 100_000], Frames::Of(64)), (&[2_000, 20_000, 200_000], Frames::Mixed)];
