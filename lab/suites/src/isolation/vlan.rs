// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two slices on one port, each in a VLAN of its own: minimums hold, frames carry their tag on the
//! wire, and neither slice ever sees a frame of the other's.

use weir_experiment::prelude::*;
use weir_traffic::{Mac, XdpStream};

use super::parts::{self, Flow, IsolationPart, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = parts::length(rec);
    let star = StarTopology::new("vlan", 4, BitRate::from_mbps(LINK_MBPS));
    let mut policy = parts::in_slices(&star, &[("a", Some(VLAN_A), 2), ("b", Some(VLAN_B), 2)]);
    policy.vifs[0].send.min_rate = BitRate::from_mbps(OWED_MBPS[0]);
    policy.vifs[2].send.min_rate = BitRate::from_mbps(OWED_MBPS[1]);
    for few in [1, 3] {
        policy.vifs[few].send.min_rate = BitRate::from_mbps(1);
    }
    let outcome = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![star.generator(streams(&star))],
        receivers: ["wire", "t0", "t1", "t2", "t3"].map(|node| star.sink_at(node)).into(),
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let part = IsolationPart { name: "vlan", outcome: &outcome, seconds };
    let flow = |name, stream| Flow { name, receiver: 0, stream };
    part.owed(rec, flow("a", A.flood), OWED_MBPS[0] * 1_000_000)?;
    part.owed(rec, flow("b", B.flood), OWED_MBPS[1] * 1_000_000)?;
    part.full(rec, A.all().into_iter().chain(B.all()), LINK_MBPS * 1_000_000)?;
    separated(rec, &part)?;
    part.none(rec, "tags", "frames on the wire without their slice's tag", mistagged(&outcome))
}

/// Streams of one slice, by what they are. Those from the wire carry the slice's tag.
struct Streams {
    /// From the first vif to the wire.
    flood: u16,
    /// From the second vif to all.
    broadcast: u16,
    /// From the second vif to an address that nobody has.
    unknown: u16,
    /// From the second vif to an address of the other slice.
    trespass: u16,
    /// From the wire to the first vif.
    down: u16,
    /// From the wire to all.
    down_broadcast: u16,
    /// From the wire to an address of the other slice.
    down_trespass: u16,
}

fn streams(star: &StarTopology) -> Vec<XdpStream> {
    let mut all = of_slice(star, &A, VLAN_A, [0, 1, 2]);
    all.extend(of_slice(star, &B, VLAN_B, [2, 3, 0]));
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

/// `[own, second, others]`: tenants.
fn of_slice(
    star: &StarTopology,
    of: &Streams,
    vlan: u16,
    [own, second, others]: [usize; 3],
) -> Vec<XdpStream> {
    let (few, flood) = (Some(Rate::Pps(FEW_PPS)), Some(Rate::Bps(2 * LINK_MBPS * 1_000_000)));
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
        star.stream(own, of.flood, 1500, flood),
        up(of.broadcast, EVERYBODY),
        up(of.unknown, NOBODY),
        up(of.trespass, StarTopology::mac(others)),
        down(of.down, StarTopology::mac(own)),
        down(of.down_broadcast, EVERYBODY),
        down(of.down_trespass, StarTopology::mac(others)),
    ]
}

/// Judges that each VLAN's own traffic arrives, and never another's.
fn separated(rec: &mut Recording<'_>, part: &IsolationPart<'_>) -> Result<(), ExperimentError> {
    for (slice, own, other, [first, second]) in [("a", &A, &B, [1, 2]), ("b", &B, &A, [3, 4])] {
        let foreign = other.all().into_iter().chain([UNTAGGED, OTHER_VLAN]);
        let foreign: u64 =
            foreign.map(|stream| part.packets(first, stream) + part.packets(second, stream)).sum();
        let id = format!("{slice}/foreign");
        part.none(rec, &id, "frames seen that are not the slice's", foreign)?;
        let expected = [
            (first, own.broadcast),
            (first, own.unknown),
            (first, own.down),
            (first, own.down_broadcast),
            (second, own.down_broadcast),
            (0, own.broadcast),
            (0, own.trespass),
        ];
        let least = expected.map(|(at, stream)| part.packets(at, stream)).into_iter().min();
        let id = format!("{slice}/own");
        let what = "frames of the rarest stream that the slice should see";
        part.at_least(rec, &id, what, (least.unwrap_or(0), FEW_PPS / 2))?;
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

impl Streams {
    const fn from(first: u16) -> Self {
        Self {
            flood: first,
            broadcast: first + 1,
            unknown: first + 2,
            trespass: first + 3,
            down: first + 4,
            down_broadcast: first + 5,
            down_trespass: first + 6,
        }
    }

    const fn all(&self) -> [u16; 7] {
        let Self { flood, broadcast, unknown, trespass, .. } = *self;
        [flood, broadcast, unknown, trespass, self.down, self.down_broadcast, self.down_trespass]
    }
}

const A: Streams = Streams::from(0);
const B: Streams = Streams::from(7);

/// From the wire to all, in no VLAN and in one that is no slice's.
const UNTAGGED: u16 = 14;
const OTHER_VLAN: u16 = 15;

const VLAN_A: u16 = 100;
const VLAN_B: u16 = 200;

const EVERYBODY: Mac = Mac([0xff; 6]);
const NOBODY: Mac = Mac([0x02, 0, 0, 9, 9, 9]);

const OWED_MBPS: [u64; 2] = [10, 24];
const FEW_PPS: u64 = 100;
