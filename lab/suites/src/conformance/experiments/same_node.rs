// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic between tenants of one node: limits hold there too, it stays inside, and takes nothing
//! from what others are owed on the link.

use std::time::Duration;

use weir_experiment::ExperimentError;
use weir_traffic::{FrameSizes, Rate};
use weir_units::{BitRate, ByteCount, Nanos};

use crate::conformance::intent::{FRAME_BYTES, burst_lasting};
use crate::conformance::measure::{Load, Setup, Way};
use crate::conformance::{Ability, Bench, Experiment, Intent};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "same-node",
    title: "limits and minimums hold beside and between neighbours",
    does: "One tenant sends to a neighbour above its own rate, another to a neighbour above that \
           one's; a fifth has a fifth of the link and asks for more, a sixth floods it.",
    bounds: || {
        "as for `maximum` and `minimum`; the link sees no frame that one tenant sends another"
            .to_owned()
    },
    needs: &[Ability::Minimum, Ability::NeighbourMaximum],
    show,
};

fn show(bench: &mut Bench<'_, '_, '_>) -> Result<(), ExperimentError> {
    for (link_mbps, limit_mbps) in bench.variants(VARIANTS) {
        at(bench, *link_mbps, *limit_mbps)?;
    }
    Ok(())
}

fn at(
    bench: &mut Bench<'_, '_, '_>,
    link_mbps: u64,
    limit_mbps: u64,
) -> Result<(), ExperimentError> {
    let part = format!("{link_mbps}M");
    let link = BitRate::from_mbps(link_mbps);
    let owed = link.as_bps() / 5;
    let limit = Some(BitRate::from_mbps(limit_mbps));
    let mut intent = Intent::equal(link, TENANTS);
    intent.tenants[..4].iter_mut().for_each(|tenant| tenant.network = Some(0));
    intent.tenants[0].send.rate = limit;
    intent.tenants[3].receive.rate = limit;
    // What a neighbour receives may be policed, not queued: the burst is for a sender's lumps.
    let lumps = burst_lasting(limit, LUMPS).max(ByteCount::new(LUMP_FRAMES * FRAME_BYTES));
    intent.tenants[3].receive.burst = Some(lumps);
    intent.tenants[4].send.min_rate = BitRate::from_bps(owed);
    let over = Rate::Bps(limit_mbps * 1_500_000);
    let frames = |way, rate| Load { way, sizes: FrameSizes::Fixed(1500), rate };
    let loads = vec![
        frames(Way::Between(0, 1), over),
        frames(Way::Between(2, 3), over),
        frames(Way::Send(4), Rate::Bps(owed * 6 / 5)),
        frames(Way::Send(5), Rate::Bps(3 * link.as_bps())),
    ];
    let setup = Setup { cell_us: 1_000, ..Setup::new(intent, loads, bench.seconds() + 1) };
    let seen = bench.measure(&part, &setup)?;
    let seconds = bench.seconds();
    let each_ms = |load| seen.bits(load, Duration::from_millis(1), seconds * 1000);
    let (tenants, stolen_s) = (&setup.intent.tenants, seen.stolen_s());
    bench.judge.limited(&format!("{part}/sender"), each_ms(0), &tenants[0].send, stolen_s)?;
    bench.judge.limited(&format!("{part}/receiver"), each_ms(1), &tenants[3].receive, stolen_s)?;
    let whole = |bits: Vec<f64>| bits.into_iter().take(seconds).collect::<Vec<_>>();
    let both = [whole(seen.got(2)), whole(seen.offered(2))];
    bench.judge.owed(&part, "t4", both, owed)?;
    let inside = seen.on_the_link(0) + seen.on_the_link(1);
    let what = "frames between tenants that the link saw";
    bench.judge.none(&format!("{part}/on-the-link"), what, inside)?;
    let streams = [2, 3].map(|load| (format!("link/{load}"), whole(seen.got(load))));
    bench.judge.full(&part, streams.into(), weir_experiment::float(link.as_bps()))
}

const TENANTS: usize = 6;

/// Frames that a sender catches up on at once.
const LUMP_FRAMES: u64 = 8;

/// A sender on a shared processor pauses for less.
const LUMPS: Nanos = Nanos::from_millis(10);

/// Link and limit, Mb/s.
const VARIANTS: &[(u64, u64)] = &[(100, 20), (10, 2), (500, 100)];
