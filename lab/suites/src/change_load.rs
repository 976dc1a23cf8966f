// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load of the rows that change a running node a thousand times: three flows below their
//! shares, a flood, and two guests that come and go.

use weir_experiment::prelude::*;
use weir_traffic::XdpStream;

/// Returns the streams. Tenants 0, 2 and 3 have flows: from the vif that is changed, towards one,
/// and to a neighbour. Tenant 1 floods the link `flood` times over.
pub(crate) fn streams(star: &StarTopology, flood: u64) -> Vec<XdpStream> {
    let mbps = |mbps: u64| Some(Rate::Bps(mbps * 1_000_000));
    let flow = Some(Rate::Bps(FLOW_BPS));
    vec![
        star.stream(0, 0, 1000, flow),
        star.stream(1, FLOOD, 1500, mbps(flood * LINK_MBPS)),
        star.stream_towards(2, 2, 700, flow),
        star.stream_between(3, 4, 3, flow),
        star.stream(5, GUESTS[0], 500, mbps(1)),
        star.stream(6, GUESTS[1], 500, mbps(1)),
    ]
}

/// Gives vif 0 another limit, which stays above what its flow needs and has that burst, or another
/// priority to it or to the flooding one.
pub(crate) fn alter(policy: &mut Policy, number: u32, burst: fn(BitRate) -> ByteCount) {
    let vif = &mut policy.vifs[0];
    match number % 3 {
        0 => vif.send.priority = number % 16 + 1,
        1 => {
            let rate = BitRate::from_mbps(u64::from(20 + number % 40));
            vif.send.rate = Some(rate);
            vif.send.burst = burst(rate);
        }
        _ => policy.vifs[1].send.priority = number % 8 + 1,
    }
}

/// The rate of each flow.
pub(crate) const FLOW_BPS: u64 = 5_000_000;
pub(crate) const LINK_MBPS: u64 = 100;
pub(crate) const TENANTS: usize = 7;
/// Tenants that are there from the beginning to the end.
pub(crate) const LASTING: usize = 5;
const FLOOD: u16 = 1;
/// The streams of those that come and go.
pub(crate) const GUESTS: [u16; 2] = [4, 5];
/// Between two changes.
pub(crate) const STEP: Duration = Duration::from_millis(30);
