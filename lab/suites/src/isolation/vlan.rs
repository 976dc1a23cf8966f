// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two slices on one port, each in a VLAN of its own: minimums hold, frames carry their tag on the
//! wire, and neither slice ever sees a frame of the other's.

use weir_experiment::prelude::*;
use weir_traffic::{Mac, XdpStream};

use super::parts::{self, LINK_MBPS, mbps};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("vlan", 4, BitRate::from_mbps(LINK_MBPS));
    let mut policy = parts::in_slices(&star, &[("a", Some(VLAN_A), 2), ("b", Some(VLAN_B), 2)]);
    for (vif, mbps) in policy.vifs.iter_mut().zip([OWED_MBPS[0], 1, OWED_MBPS[1], 1]) {
        vif.send.min_rate = BitRate::from_mbps(mbps);
    }
    let seen = TrafficRun {
        senders: vec![star.generator(streams(&star))],
        receivers: ["wire", "t0", "t1", "t2", "t3"].map(|node| star.sink_at(node)).into(),
        ..TrafficRun::new(&star, policy, parts::length(rec))
    }
    .run()?;
    parts::owed(rec, &seen, ("a", 0, A + FLOOD), OWED_MBPS[0])?;
    parts::owed(rec, &seen, ("b", 0, B + FLOOD), OWED_MBPS[1])?;
    parts::full(rec, &seen, A..B + STREAMS)?;
    separated(rec, &seen)?;
    rec.none("tags", "frames on the wire without their slice's tag", mistagged(&seen))
}

fn streams(star: &StarTopology) -> Vec<XdpStream> {
    let mut all = of_slice(star, A, VLAN_A, [0, 1, 2]);
    all.extend(of_slice(star, B, VLAN_B, [2, 3, 0]));
    let few = Some(Rate::Pps(FEW_PPS));
    all.extend([
        star.stream_towards(0, UNTAGGED, 200, few),
        XdpStream {
            vlan: Some(VLAN_A + 1),
            destination_mac: EVERYBODY,
            ..star.stream_towards(0, OTHER_VLAN, 200, few)
        },
    ]);
    all
}

/// Returns the streams of a slice of the tenants `[own, second, others]`.
fn of_slice(
    star: &StarTopology,
    first: u16,
    vlan: u16,
    [own, second, others]: [usize; 3],
) -> Vec<XdpStream> {
    let (few, flood) = (Some(Rate::Pps(FEW_PPS)), mbps(2 * LINK_MBPS));
    let up = |stream, destination_mac| XdpStream {
        destination_mac,
        ..star.stream(second, stream, 200, few)
    };
    let down = |stream, destination_mac| XdpStream {
        destination_mac,
        vlan: Some(vlan),
        ..star.stream_towards(own, stream, 200, few)
    };
    vec![
        star.stream(own, first + FLOOD, 1500, flood),
        up(first + BROADCAST, EVERYBODY),
        up(first + UNKNOWN, NOBODY),
        up(first + TRESPASS, StarTopology::mac(others)),
        down(first + DOWN, StarTopology::mac(own)),
        down(first + DOWN_BROADCAST, EVERYBODY),
        down(first + DOWN_TRESPASS, StarTopology::mac(others)),
    ]
}

/// Claims that each VLAN's own traffic arrives, and never another's.
fn separated(rec: &mut Recording<'_>, seen: &TrafficRecord) -> Result {
    for (slice, own, other, [first, second]) in [("a", A, B, [1, 2]), ("b", B, A, [3, 4])] {
        let foreign = (other..other + STREAMS).chain([UNTAGGED, OTHER_VLAN]);
        let at_both = |stream| seen.packets(first, stream) + seen.packets(second, stream);
        let what = "frames seen that are not the slice's";
        rec.none(format!("{slice}/foreign"), what, foreign.map(at_both).sum())?;
        let expected = [
            (first, own + BROADCAST),
            (first, own + UNKNOWN),
            (first, own + DOWN),
            (first, own + DOWN_BROADCAST),
            (second, own + DOWN_BROADCAST),
            (0, own + BROADCAST),
            (0, own + TRESPASS),
        ];
        let least = expected.map(|(at, stream)| seen.packets(at, stream)).into_iter().min();
        let what = "frames of the rarest stream that the slice should see";
        rec.at_least(format!("{slice}/own"), what, least.unwrap_or(0), FEW_PPS / 2)?;
    }
    Ok(())
}

/// Frames at the wire's sink from a tenant without that tenant's tag.
fn mistagged(outcome: &TrafficRecord) -> u64 {
    let sources = outcome.received.iter().take(1).flat_map(|wire| &wire.sources);
    let wrong = sources.filter(|source| {
        let tenant = (0..4).position(|tenant| StarTopology::mac(tenant) == source.mac);
        source.vlan != tenant.map(|tenant| if tenant < 2 { VLAN_A } else { VLAN_B })
    });
    wrong.map(|source| source.packets).sum()
}

/// The first stream of each slice. Its others are numbered from it; those from the wire carry the
/// slice's tag.
const A: u16 = 0;
const B: u16 = STREAMS;

/// From the first vif to the wire.
const FLOOD: u16 = 0;
/// From the second vif to all.
const BROADCAST: u16 = 1;
/// From the second vif to an address that nobody has.
const UNKNOWN: u16 = 2;
/// From the second vif to an address of the other slice.
const TRESPASS: u16 = 3;
/// From the wire to the first vif.
const DOWN: u16 = 4;
/// From the wire to all.
const DOWN_BROADCAST: u16 = 5;
/// From the wire to an address of the other slice.
const DOWN_TRESPASS: u16 = 6;
const STREAMS: u16 = 7;

/// From the wire to all, in no VLAN and in one that is no slice's.
const UNTAGGED: u16 = 2 * STREAMS;
const OTHER_VLAN: u16 = UNTAGGED + 1;

const VLAN_A: u16 = 100;
const VLAN_B: u16 = 200;

const EVERYBODY: Mac = Mac([0xff; 6]);
const NOBODY: Mac = Mac([0x02, 0, 0, 9, 9, 9]);

const OWED_MBPS: [u64; 2] = [10, 24];
const FEW_PPS: u64 = 100;
