// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flood of small frames, from a tenant and towards one: what the others send and receive within
//! their minimums is whole.

use weir_experiment::ExperimentError;
use weir_experiment::claims::GUARANTEED;
use weir_traffic::{FrameSizes, Rate};
use weir_units::BitRate;

use crate::conformance::measure::{Load, Setup, Way};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const FROM: Experiment = Experiment {
    name: "flood-from",
    title: "a flood of small frames from a tenant harms no other",
    does: "The last tenant sends three million frames of 64 bytes a second; the two others have \
           a quarter of the link each and ask for a little more, in both directions.",
    bounds,
    needs: &[Ability::Minimum, Ability::ReceiveMinimum],
    show: |bench| show(bench, Way::Send(FLOODED)),
};

pub(super) const TOWARDS: Experiment = Experiment {
    name: "flood-towards",
    title: "a flood of small frames towards a tenant harms no other",
    does: "The same flood comes from the link, towards the last tenant; it sends, too.",
    bounds,
    needs: &[Ability::Minimum, Ability::ReceiveMinimum],
    show: |bench| show(bench, Way::Receive(FLOODED)),
};

fn bounds() -> String {
    format!(
        "of the others, both directions: throughput ≥ {GUARANTEED} of the lesser of minimum and \
         offer, in each second"
    )
}

fn show(bench: &mut Bench<'_, '_, '_>, flooded: Way) -> Result<(), ExperimentError> {
    for mbps in bench.variants(LINKS_MBPS) {
        at(bench, flooded, *mbps)?;
    }
    Ok(())
}

fn at(bench: &mut Bench<'_, '_, '_>, flooded: Way, mbps: u64) -> Result<(), ExperimentError> {
    let part = format!("{mbps}M");
    let link = BitRate::from_mbps(mbps);
    let owed = link.as_bps() / 4;
    let mut intent = Intent::equal(link, OTHERS + 1);
    let mut loads = Vec::new();
    for (index, tenant) in intent.tenants.iter_mut().enumerate().take(OTHERS) {
        tenant.send.min_rate = BitRate::from_bps(owed);
        tenant.receive.min_rate = BitRate::from_bps(owed);
        for way in [Way::Send(index), Way::Receive(index)] {
            loads.push(Load { way, sizes: LARGE, rate: Rate::Bps(owed * 105 / 100) });
        }
    }
    // Whatever the flood's way, its tenant wants all that can be sent: the link is to be full.
    loads.push(Load::send(FLOODED, LARGE, 2 * link.as_bps()));
    let flood = loads.len();
    loads.push(Load { way: flooded, sizes: SMALL, rate: Rate::Pps(FLOOD_PPS) });
    let setup = Setup::new(intent, loads, bench.seconds());
    let seen = bench.measure(&part, &setup)?;
    let least = weir_experiment::float(link.as_bps()).min(LEAST_FLOOD_BPS);
    bench.judge.offered(&format!("{part}/flood"), seen.offered(flood), least)?;
    let mut sent = Vec::new();
    for (load, Load { way, .. }) in setup.loads.iter().enumerate() {
        let name = match way {
            Way::Send(tenant) => format!("t{tenant}-sends"),
            Way::Receive(tenant) | Way::Between(_, tenant) => format!("t{tenant}-receives"),
        };
        if load < 2 * OTHERS {
            bench.judge.owed(&part, &name, [seen.got(load), seen.offered(load)], owed)?;
        }
        if matches!(way, Way::Send(_)) {
            sent.push((format!("link/{name}-{load}"), seen.got(load)));
        }
    }
    bench.judge.full(&part, sent, weir_experiment::float(link.as_bps()))
}

/// Tenants beside the flooded one, which is the last.
const OTHERS: usize = 2;
const FLOODED: usize = OTHERS;

const LARGE: FrameSizes = FrameSizes::Fixed(1500);
const SMALL: FrameSizes = FrameSizes::Fixed(64);

/// More than a worker or a bridge serves on one core.
const FLOOD_PPS: u64 = 3_000_000;

/// A sender that shares its processor with the data plane must get this much out, or the flood was
/// none: 400 000 frames a second.
const LEAST_FLOOD_BPS: f64 = 400_000.0 * 64.0 * 8.0;

const LINKS_MBPS: &[u64] = &[200, 1000];
